"""Missing cells: means of the task over training rows, indicators, folds, files; an error without ``impute``."""

import numpy as np
import pandas as pd
import pytest

import bayesmtfs as bm
from bayesmtfs.data.gaps import has_gaps, learn_means
from bayesmtfs.estimators.folds import make_folds, take

N, P = 60, 4


@pytest.fixture(scope="module")
def gappy():
    """Two tasks at different levels; column b lacks cells, and that it does so matters."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(["u", "v"], N)
    X = rng.normal(size=(2 * N, P)) + np.where(tasks == "v", 5.0, 0.0)[:, np.newaxis]
    gone = rng.random(2 * N) < 0.3
    y = X[:, 0] - X[:, 1] + 2.0 * gone + 0.3 * rng.normal(size=2 * N)
    X[gone, 1] = np.nan
    return pd.DataFrame(X, columns=list("abcd")), y, tasks, gone


def by_hand(frame, tasks, train):
    """Cells filled with means of the task over training rows, and the indicator."""
    X = frame.to_numpy().copy()
    for t in np.unique(tasks):
        own = tasks == t
        X[own & np.isnan(X[:, 1]), 1] = np.nanmean(X[own & train, 1])
    return np.column_stack([X, frame["b"].isna()])


def test_a_fit_is_that_of_means_and_indicators(gappy):
    frame, y, tasks, gone = gappy
    train = np.arange(2 * N) % 3 > 0
    model = bm.MixedNormRegressor(penalty_strength=0.05, impute="task_mean")
    model.fit(frame[train], y[train], tasks=tasks[train])
    X = by_hand(frame, tasks, train)
    plain = bm.MixedNormRegressor(penalty_strength=0.05).fit(X[train], y[train], tasks=tasks[train])
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-10)
    assert model.result_.feature_names.tolist() == ["a", "b", "c", "d", "b[missing]"]
    assert model.coef_[:, 4].min() > 1.0  # that a cell is missing matters here
    new = ~train
    np.testing.assert_allclose(
        model.predict(frame[new], tasks=tasks[new]), plain.predict(X[new], tasks=tasks[new]), atol=1e-9
    )
    arrays = bm.MixedNormRegressor(penalty_strength=0.05, impute="task_mean")
    arrays.fit(frame[train].to_numpy(), y[train], tasks=tasks[train])
    np.testing.assert_allclose(arrays.coef_, plain.coef_, atol=1e-10)
    assert arrays.result_.feature_names[-1] == "x1[missing]"
    assert not np.isnan(model.transform(frame)).any()


def test_gaps_in_other_columns_of_new_rows_are_filled_too(gappy):
    frame, y, tasks, _ = gappy
    model = bm.MixedNormRegressor(penalty_strength=0.05, impute="task_mean").fit(frame, y, tasks=tasks)
    holes = frame.copy()
    holes.loc[:, "a"] = np.nan
    means = frame.copy()
    for t in ("u", "v"):
        means.loc[tasks == t, "a"] = frame.loc[tasks == t, "a"].mean()
    np.testing.assert_allclose(model.predict(holes, tasks=tasks), model.predict(means, tasks=tasks), atol=1e-10)


def test_folds_fill_from_their_own_training_rows(gappy):
    frame, y, tasks, _ = gappy
    cv = {"penalties": [0.3, 0.05], "cv": 4}
    model = bm.MixedNormRegressorCV(impute="task_mean", **cv).fit(frame, y, tasks=tasks)
    reader = bm.MixedNormRegressorCV(impute="task_mean", **cv)
    data = reader.training_data(frame, y, tasks, None)
    assert has_gaps(data)
    errors = []
    for fold in make_folds(data, 4):
        used = np.zeros(2 * N, dtype=bool)
        used[data.order[fold.train]] = True
        X = by_hand(frame, tasks, used)
        by_penalty = []
        for strength in cv["penalties"]:
            plain = bm.MixedNormRegressor(penalty_strength=strength).fit(X[used], y[used], tasks=tasks[used])
            residual = (y[~used] - plain.predict(X[~used], tasks=tasks[~used])) ** 2
            by_penalty.append(np.mean([residual[tasks[~used] == t].mean() for t in ("u", "v")]))
        errors.append(by_penalty)
    np.testing.assert_allclose(model.cv_results_["fold_errors"][0].T, errors, rtol=1e-3)
    part = take(data, make_folds(data, 4)[0].train).data
    assert np.abs(learn_means(part).means - learn_means(data).means).max() > 1e-3


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")  # of so few draws
@pytest.mark.parametrize(
    "model",
    [
        bm.JeffreysRegressor(impute="task_mean"),
        bm.BayesianRegressor(impute="task_mean", draws=100, tune=100, chains=2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_other_routes_files_and_comparisons(gappy, tmp_path, model):
    frame, y, tasks, _ = gappy
    X = by_hand(frame, tasks, np.ones(2 * N, dtype=bool))
    model.fit(frame, y, tasks=tasks)
    plain = type(model)(**{**model.get_params(), "impute": None}).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-6)
    expected = plain.predict(X, tasks=tasks)
    model.save(tmp_path / "model")
    for fitted in (model, bm.load(tmp_path / "model")):
        np.testing.assert_allclose(fitted.predict(frame, tasks=tasks), expected, atol=1e-6)


def test_wide_form_categories_and_comparison(gappy):
    frame, y, tasks, gone = gappy
    kinds = frame.assign(kind=pd.Categorical(np.where(gone, None, np.where(frame["a"] > 2, "high", "low"))))
    model = bm.MixedNormRegressor(penalty_strength=0.02, impute="task_mean").fit(kinds, y, tasks=tasks)
    assert model.result_.feature_names.tolist()[-2:] == ["b[missing]", "kind[missing]"]
    assert np.isfinite(model.predict(kinds, tasks=tasks)).all()
    Y = np.column_stack([y, -y])
    wide = bm.MixedNormRegressor(penalty_strength=0.05, impute="task_mean").fit(frame, Y)
    X = np.column_stack([frame.fillna(frame.mean()), gone])
    plain = bm.MixedNormRegressor(penalty_strength=0.05).fit(X, Y)
    np.testing.assert_allclose(wide.predict(frame), plain.predict(X), atol=1e-8)
    models = [bm.MixedNormRegressor(impute="task_mean"), bm.JeffreysRegressor(impute="task_mean")]
    table = bm.compare(models, frame, y, tasks=tasks, cv=3, progress=False)
    assert all(fit.error < 1.0 for fit in table.fits)


def test_without_impute_all_columns_with_gaps_are_named(gappy):
    frame, y, tasks, _ = gappy
    holes = frame.assign(d=np.where(np.arange(2 * N) == 7, np.nan, frame["d"]))
    with pytest.raises(ValueError, match="of column 'b'.*row 7 of column 'd'"):
        bm.MixedNormRegressor().fit(holes, y, tasks=tasks)
    with pytest.raises(ValueError, match="pass 'task_mean'"):
        bm.MixedNormRegressor(impute="mean").fit(frame, y, tasks=tasks)


def test_dates_are_days(gappy):
    frame, y, tasks, _ = gappy
    days = np.arange(2 * N)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
    with_dates = frame.drop(columns="b").assign(when=when)
    with_numbers = frame.drop(columns="b").assign(when=days.astype(float))
    kind = bm.MixedNormRegressor(penalty_strength=0.05)
    dated = kind.fit(with_dates, y, tasks=tasks).coef_.copy()
    np.testing.assert_allclose(dated, kind.fit(with_numbers, y, tasks=tasks).coef_, atol=1e-4)
