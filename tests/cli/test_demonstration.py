"""``bayesmtfs demo``."""

import matplotlib.image
import pytest

import bayesmtfs as bm

PICTURES = ("path.png", "coefficients.png", "row_norms.png", "norm_q.png", "penalised_and_posterior.png")


@pytest.fixture(scope="module")
def demo(bayesmtfs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "new"
    return bayesmtfs("demo", "--out", folder, "--seed", 3), folder


def test_demo_walks_the_three_uses(demo):
    result, folder = demo
    assert result.exit_code == 0, result.output
    for words in ("1. Penalised", "2. EM", "3. Posterior", "lasso per task", "wrongly kept", "report.html"):
        assert words in result.output
    for name in PICTURES:
        assert matplotlib.image.imread(folder / name).std() > 0.01
    assert "Side by side" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in ("demo", "fit", "compare"))])
def test_help_everywhere(bayesmtfs, arguments):
    result = bayesmtfs(*arguments)
    assert result.exit_code == 0 and "--help" in result.output


def test_version_and_wrong_usage(bayesmtfs):
    assert bayesmtfs("--version").output.split() == ["bayesmtfs", bm.__version__]
    assert bayesmtfs("fit", "t.csv", "--penality", 1).exit_code == 2
