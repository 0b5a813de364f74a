"""The package as a whole: what it imports, what it ships, what it promises."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bayesmtfs
from bayesmtfs import public_names

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "work",
    [
        "import bayesmtfs",
        "import bayesmtfs, numpy as np; bayesmtfs.MixedNormRegressor().fit(np.eye(4), np.arange(4.0))",
    ],
)
def test_a_penalised_fit_loads_neither_pymc_nor_arviz_nor_matplotlib(work):
    loaded = run(f"{work}; import sys; print(sorted({{'pymc', 'pytensor', 'arviz', 'matplotlib'}} & set(sys.modules)))")
    assert loaded.strip() == "[]"


def test_every_folder_with_code_is_packaged():
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "bayesmtfs").glob("**/__init__.py")
    } | {"bayesmtfs.models"}
    assert folders == set(PROJECT["tool"]["setuptools"]["packages"])


def test_public_names_exist():
    for name in bayesmtfs.__all__:
        assert getattr(bayesmtfs, name) is not None
    assert set(bayesmtfs.__all__) <= set(dir(bayesmtfs))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bayesmtfs.nothing  # noqa: B018


@pytest.mark.parametrize("name", [*public_names.ESTIMATORS, *public_names.BASELINES])
def test_a_wrong_keyword_names_the_class(name):
    home = bayesmtfs if name in public_names.ESTIMATORS else bayesmtfs.baselines
    with pytest.raises(TypeError, match=f"^{name}.__init__.*'strength'"):
        getattr(home, name)(strength=1)


def test_one_version_everywhere():
    assert PROJECT["project"]["version"] == bayesmtfs.__version__
    assert f"version: {bayesmtfs.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_dependencies_have_lower_bounds_and_no_upper_ones():
    extras = PROJECT["project"].get("optional-dependencies", {}).values()
    groups = PROJECT["dependency-groups"].values()
    for requirement in [*PROJECT["project"]["dependencies"], *(r for group in [*extras, *groups] for r in group)]:
        assert ">=" in requirement and "<" not in requirement and "==" not in requirement, requirement


def test_no_private_names_of_other_packages():
    for path in [*(ROOT / "bayesmtfs").rglob("*.py"), *(ROOT / "models").rglob("*.py")]:
        for line in path.read_text().splitlines():
            if line.lstrip().startswith(("import ", "from ")):
                assert "._" not in line and " import _" not in line, f"{path}: {line}"


def test_readme_shows_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert "pip install uv && uv run bayesmtfs demo" in readme
    assert "pip install uv && uv run pytest" in readme
