"""The report: what is in it, and that it works in a real browser."""

import csv
import dataclasses
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray as xr

from bayesmtfs import JeffreysRegressor, MatrixVariateRegressor, MixedNormRegressor, TaskData, simulate_tasks
from bayesmtfs.cli.console import as_text
from bayesmtfs.reporting import Source, report
from bayesmtfs.selection.comparison import ComparedFit, Comparison

ROWS = r"(<tr><td[^>]*>gene &lt;(\d+)&gt;</td>.*?</tr>)"
VOID = {"meta", "link", "img", "input", "br"}
SHAPES = {"line", "circle", "rect", "polyline", "polygon"}


class Outline(HTMLParser):
    """Headings, ids, links, images, and whether every tag is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.headings, self.ids, self.targets, self.alternatives = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.targets += [attributes["href"][1:]] if attributes.get("href", "").startswith("#") else []
        self.alternatives += [attributes.get("aria-label")] if attributes.get("role") == "img" else []

    def handle_startendtag(self, tag, attributes):
        assert tag in SHAPES

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def fits():
    sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, n_samples=40, random_state=0)
    data = TaskData.from_long(sim.X, sim.y, sim.tasks, feature_names=[f"gene <{i}>" for i in range(20)])
    models = (MixedNormRegressor(), JeffreysRegressor(), MatrixVariateRegressor(coefficients="integrated"))
    return [model.fit(data) for model in models]


@pytest.fixture(scope="module")
def page(fits, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    report(fits, path, title="Genes & tasks")
    return path


def test_page_is_well_formed_accessible_and_self_contained(page):
    text = page.read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert outline.headings[0] == 1
    assert all(after - before <= 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.ids) == len(set(outline.ids)) and set(outline.targets) <= set(outline.ids)
    assert outline.alternatives and all(outline.alternatives)
    assert "http" not in text and "<img" not in text and "#000" not in text


def test_page_tells_what_was_fitted_and_selected(page, fits):
    text = page.read_text(encoding="utf-8")
    assert "<title>Genes &amp; tasks</title>" in text and "gene &lt;3&gt;" in text and "gene <3>" not in text
    for fit in fits:
        assert f"bm.{type(fit).__name__}(" in text
        assert f"<h2>{type(fit).__name__}" not in text  # headings are words
        assert f"{int(fit.get_support().sum())} of 20 features are selected" in text
    assert "Relations between tasks" in text and "160" in text


def test_page_tells_where_the_fits_agree(page, fits):
    text = page.read_text(encoding="utf-8")
    body = re.search(r'id="agreement".*?<tbody>(.*?)</tbody>', text, re.DOTALL).group(1)
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in body.split("</tr>")[:-1]]
    chosen = np.array([fit.get_support() for fit in fits])
    assert {row[0] for row in rows} == {f"gene &lt;{i}&gt;" for i in np.flatnonzero(chosen.any(axis=0))}
    for row in rows:
        own = chosen[:, int(re.search(r"\d+", row[0]).group())]
        assert row[1] == str(own.sum()) and row[2:] == ["yes" if kept else "no" for kept in own]


def test_one_fit_has_no_overview_and_names_of_a_mapping_are_used(fits, tmp_path):
    report(fits[0].result_, tmp_path / "one.html")
    assert "Side by side" not in (tmp_path / "one.html").read_text(encoding="utf-8")
    report({"the lasso": fits[0], "the EM": fits[1]}, tmp_path / "two.html")
    assert "<h2>the lasso</h2>" in (tmp_path / "two.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("sampled", [20, 12])  # of the features, the others screened out
def test_draws_bring_intervals_and_false_sign_rates(tmp_path, fits, sampled):
    result = fits[0].result_
    draws = np.random.default_rng(0).standard_normal((1, 50, sampled, 4))
    coords = {"feature": result.feature_names[:sampled]}
    variables = {"coef": (("chain", "draw", "feature", "task"), draws)}
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset(variables, coords)})
    report(dataclasses.replace(result, posterior=tree), tmp_path / "draws.html")
    text = (tmp_path / "draws.html").read_text(encoding="utf-8")
    assert "smallest false sign rate" in text
    assert sorted(int(own) for _, own in re.findall(ROWS, text)) == list(range(20))
    place = [re.sub("<[^>]*>", "", head) for head in re.findall("<th .*?</th>", text)].index("smallest false sign rate")
    cells = {own: re.findall("<td[^>]*>([^<]*)</td>", row) for row, own in re.findall(ROWS, text)}
    rates = {own: values[place] for own, values in cells.items()}
    expected = np.minimum((draws[0] <= 0).mean(axis=0), (draws[0] >= 0).mean(axis=0)).min(axis=1)
    assert [float(rates[str(i)]) for i in range(sampled)] == pytest.approx(expected, rel=1e-2)
    assert {rates[str(i)] for i in range(sampled, 20)} <= {"1"}


def test_nothing_is_half_written(fits, tmp_path):
    with pytest.raises(ValueError, match="empty"):
        report([], tmp_path / "none.html")
    with pytest.raises(TypeError, match="int"):
        report([fits[0], 3], tmp_path / "none.html")
    with pytest.raises(FileNotFoundError, match="folder"):
        report(fits[0], tmp_path / "absent" / "none.html")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: the page is not opened")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium or chromedriver is not installed: the page is not opened in a browser")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=900,1200"):
        options.add_argument(argument)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield opened
    opened.quit()


def column(browser, name, place):
    rows = f"[...document.querySelectorAll('#{name} tbody tr')].filter(row => !row.hidden)"
    return browser.execute_script(f"return {rows}.map(row => row.cells[{place}].textContent)")


def test_page_works_in_a_browser(browser, page, tmp_path):
    browser.get(page.as_uri())
    assert browser.get_log("browser") == []
    by_norm = browser.find_elements("css selector", "#fit-0-features th button")[2]
    for descending in (False, True):
        browser.execute_script("arguments[0].click()", by_norm)
        norms = [float(text) for text in column(browser, "fit-0-features", 2)]
        assert norms == sorted(norms, reverse=descending)
    search = browser.find_element("id", "fit-0-features-filter")
    browser.execute_script("arguments[0].scrollIntoView()", search)
    search.send_keys("gene <1")
    assert set(column(browser, "fit-0-features", 0)) == {"gene <1>"} | {f"gene <1{i}>" for i in range(10)}
    assert browser.find_element("id", "fit-0-features-count").text == "11 shown"
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.get_screenshot_as_file(str(tmp_path / "page.png"))
    from matplotlib.image import imread

    assert imread(tmp_path / "page.png")[..., :3].std() > 0.05


def test_a_table_is_saved_as_it_is_shown_and_columns_of_tasks_can_be_hidden(browser, page, fits):
    browser.get(page.as_uri())
    browser.find_element("id", "fit-0-features-filter").send_keys("gene <3>")
    saved = browser.execute_script("return asCsv(document.getElementById('fit-0-features'))")
    head, row = list(csv.reader(saved.splitlines()))
    found = fits[0].result_.to_frame(form="features").set_index("feature").loc["gene <3>"]
    effects = fits[0].result_.as_effects().coef[:, 3]
    assert head[:3] == ["feature", "in which tasks", "norm over tasks"] and head[3:] == ["0", "1", "2", "3"]
    assert row[:2] == ["gene <3>", found["tasks"]]
    np.testing.assert_allclose([float(cell) for cell in row[2:]], [found["norm"], *effects])
    visible = "return [...document.querySelectorAll('#fit-0-features th')].filter(head => head.offsetWidth).length"
    assert browser.execute_script(visible) == 7
    browser.execute_script("document.getElementById('fit-0-features-tasks').click()")
    assert browser.execute_script(visible) == 3


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_is_readable_at_every_width_and_in_both_themes(browser, page, width, dark):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": theme})
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    height = browser.execute_script("return document.documentElement.scrollHeight")
    assert height < (5000 if width == 1280 else 9000)
    ground, words, guide, mark = browser.execute_script(
        "const colour = (query, name) => getComputedStyle(document.querySelector(query))[name];"
        "return [colour('body', 'backgroundColor'), colour('svg text', 'fill'), colour('svg .guide', 'stroke'),"
        " colour('svg .c0', 'fill')]"
    )
    light = [np.mean([int(part) for part in re.findall(r"\d+", colour)[:3]]) for colour in (ground, words, guide, mark)]
    contrast = [abs(value - light[0]) for value in light[1:]]
    assert (light[0] < 40) == dark and contrast[0] > 150 and contrast[1] > 20 and contrast[2] > 60
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_values_are_under_the_pointer(page, fits):
    text = page.read_text(encoding="utf-8")
    effects = fits[0].result_.as_effects().coef
    feature = int(np.linalg.norm(effects, axis=0).argmax())
    for t in range(4):
        assert f"<title>gene &lt;{feature}&gt; in {t}: {effects[t, feature]:.3g}</title>" in text


def test_a_feature_that_is_not_selected_is_said_to_be_so(page, fits):
    text = page.read_text(encoding="utf-8")
    body = re.search(r'id="fit-0-features".*?<tbody>(.*?)</tbody>', text, re.DOTALL).group(1)
    for row, own in re.findall(ROWS, body):
        chosen = fits[0].get_support()[int(own)]
        assert ("not selected" in row) != chosen and ("all 4 tasks" in row) == chosen


def test_sources_are_told_and_come_back_from_a_file(fits, tmp_path):
    errors = Comparison((ComparedFit("this fit", 0.5, 0.1, 0.0, 0.0, -1.0, 0.1, 3, 1.0, r2=0.75),), "RMSE")
    source = Source("genes.csv", "score", "site", ("3 of 80 rows have no target.",), "bayesmtfs fit genes.csv", errors)
    again = Source.from_dict(json.loads(as_text(source.as_dict())))
    report(fits[0], tmp_path / "page.html", sources=again)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("genes.csv", "3 of 80 rows", "<code>bayesmtfs fit genes.csv</code>", "0.5 ± 0.1", "<td>0.75</td>"):
        assert words in text
    assert "RMSE on held-out rows (mean ± standard error): this fit: 0.5 ± 0.1." in text  # in the paragraph for a paper
    assert "Obozinski, Taskar, Jordan (2006)" in text


def test_with_the_data_a_fit_is_measured(fits, tmp_path):
    sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, n_samples=40, random_state=0)
    report(fits[0], tmp_path / "page.html", X=TaskData.from_long(sim.X, sim.y, sim.tasks))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    rows = dict(re.findall(r"<tr><td>([a-z ]+)</td><td>([0-9.]+) ±", text))
    assert set(rows) == {"this fit", "task mean", "pooled lasso", "lasso per task"}
    assert float(rows["this fit"]) < float(rows["task mean"])


def test_long_names_leave_no_drawing_and_no_page(browser, tmp_path):
    """Headings break, names lose their middle and keep the level of a category, titles of axes stay inside."""
    levels = [f"Sprache zu Hause, auch weitere[{level}]" for level in ("Deutsch", "andere")]
    sim = simulate_tasks(n_tasks=8, n_features=2, n_relevant=2, n_samples=20, random_state=0)
    model = MixedNormRegressor(penalty_strength=0.01).fit(
        TaskData.from_long(sim.X, sim.y, [f"a_task_with_a_long_name_{t}" for t in sim.tasks], feature_names=levels)
    )
    report(model, tmp_path / "page.html", title=",".join(["a_target_without_spaces"] * 9))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "...[Deutsch]</text>" in text and "...[andere]</text>" in text
    size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((tmp_path / "page.html").as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    outside = (
        "return [...document.querySelectorAll('svg text')].filter(word => { const box = word.getBoundingClientRect(),"
        " all = word.closest('svg').getBoundingClientRect();"
        " return box.right > all.right + 1 || box.left < all.left - 1; }).map(word => word.textContent)"
    )
    assert browser.execute_script(outside) == []
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
