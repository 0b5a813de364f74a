"""The School experiment: its protocol, its measures, and a small run."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

from bayesmtfs.papers.reproduction import yang2010
from bayesmtfs.papers.reproduction.common import DataNotThere, TaskRows


@pytest.fixture(scope="module")
def school():
    try:
        return yang2010.read_school()
    except DataNotThere as error:
        pytest.skip(f"the School data are not there: {error}")


class Fixed:
    """A model with the predictions it was given."""

    def __init__(self, predictions):
        self.predictions = predictions

    def predict(self, X, tasks):
        return self.predictions


def test_measures_against_their_definition():
    rng = np.random.default_rng(0)
    rows = TaskRows(np.empty((60, 0)), rng.standard_normal(60), np.repeat([0, 1, 2], 20))
    model = Fixed(rows.y + 0.5 * rng.standard_normal(60))
    assert yang2010.explained_variance(model, rows) == pytest.approx(100 * r2_score(rows.y, model.predictions))
    within = [r2_score(rows.y[rows.tasks == t], model.predictions[rows.tasks == t]) for t in range(3)]
    assert yang2010.explained_within_schools(model, rows) == pytest.approx(100 * np.mean(within))


def test_a_draw_has_eleven_rows_of_each_school(school):
    train, test = yang2010.draw(school, seed=3)
    assert school.X.shape == (15362, 27) and school.X.max() == 1.0
    assert np.bincount(train.tasks).tolist() == [11] * 139
    assert len(train.y) + len(test.y) == len(school.y)
    assert train.y.mean() == pytest.approx(0.0, abs=1e-12)
    # both parts together are the scores of all rows, less one number
    both = np.sort(np.r_[train.y, test.y])
    np.testing.assert_allclose(both - both[0], np.sort(school.y) - school.y.min(), atol=1e-9)


def test_tables_hold_all_methods_beside_the_papers_figures(school):
    table = yang2010.near_the_best(yang2010.PAPER.quick._replace(n_splits=2), 0, lambda share: None)
    shown = {figure.method: figure for figure in table.figures if figure.measure == yang2010.EXPLAINED}
    assert set(shown) == {"aMTFS", "MTFTS", "iMTFS", "DA-aMTFS", "DA-MTFTS", "DA-iMTFS"}
    assert shown["aMTFS"].paper == 21.0 and shown["aMTFS"].n_repeats == 2
    for name, method in shown.items():
        assert method.paper is None or method.mean == pytest.approx(method.paper, abs=3.5), name


def test_a_shared_mean_explains_more_than_any_method_of_the_paper(school):
    settings = yang2010.PAPER.quick._replace(n_splits=1, n_penalties=2, n_folds=2)
    table = yang2010.shared_mean(settings, 0, lambda share: None)
    assert len(table.figures) == 4
    assert all(figure.mean > 25.0 for figure in table.figures)


def test_without_data_all_is_skipped_in_plain_words(no_data):
    outcome = yang2010.PAPER.run(quick=True, progress=False)
    assert outcome.tables == () and len(outcome.skipped) == 4
    assert outcome.skipped[0].startswith("Table 1: the data could not be read.")
