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


# ---------------------------------------------------------------------- cells drawn in the posterior


SHORT = {"draws": 300, "tune": 200, "chains": 2, "random_state": 0, "n_jobs": 1}
quiet = pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")  # of so few draws


def drawn(kind=bm.BayesianRegressor, **parameters):
    return kind(**{"impute": "model", **SHORT, **parameters})


@pytest.fixture(scope="module")
def related():
    """Three tasks at levels of their own; columns explain each other, two of them lack cells, one row lacks all."""
    rng = np.random.default_rng(1)
    tasks = np.repeat(["u", "v", "w"], N)
    around = rng.normal(size=(3 * N, P)) + 1.5 * rng.normal(size=(3 * N, 1))
    X = around + 20.0 * (tasks == "v")[:, np.newaxis]
    y = around[:, 0] - around[:, 1] + 0.5 * rng.normal(size=3 * N)
    gone = np.zeros(X.shape, dtype=bool)
    gone[:, 1] = rng.random(3 * N) < 0.3
    gone[N // 2 : N, 2] = True  # in one task only
    gone[5] = True
    return X, y, tasks, gone


@quiet
@pytest.mark.parametrize(
    "parameters",
    [{}, {"prior": "generalized_normal"}, {"prior": "matrix_variate"}, {"loss": "student_t(4)"}],
    ids=["spike", "generalized normal", "matrix variate", "heavy tails"],
)
def test_drawn_cells_are_near_the_truth_and_say_how_near(related, tmp_path, parameters):
    X, y, tasks, gone = related
    holes = pd.DataFrame(np.where(gone, np.nan, X), columns=list("abcd"))
    model = drawn(**parameters).fit(holes, y, tasks=tasks)
    assert model.result_.feature_names.tolist() == list("abcd")
    whole = drawn(**{**parameters, "impute": None}).fit(X, y, tasks=tasks)
    filled = drawn(**{**parameters, "impute": "task_mean"}).fit(holes, y, tasks=tasks)
    truth = np.array([1.0, -1.0, 0.0, 0.0])
    assert np.abs(model.coef_ - truth).mean() < 0.7 * np.abs(filled.coef_[:, :P] - truth).mean()
    assert whole.coef_std_[:, 1].mean() < model.coef_std_[:, 1].mean()
    imputed = model.posterior_["imputed"].dataset
    names = ["abcd".index(name) for name in imputed["feature"].values.tolist()]
    assert gone[imputed["row"].values, names].all() and imputed.sizes["cell"] == gone.sum()
    z = (X[imputed["row"].values, names] - imputed["mean"].values) / imputed["deviation"].values
    assert 0.75 < z.std() < 1.3 and abs(z.mean()) < 0.35
    mean, low, high = model.predict(holes, tasks=tasks, interval=0.9)
    np.testing.assert_allclose(model.predict(holes, tasks=tasks), mean)
    own = gone[:, 1] & ~gone[:, 2]
    assert (high - low)[own].mean() > 1.3 * (high - low)[~gone.any(axis=1)].mean()
    assert 0.8 < np.mean((low <= y) & (y <= high)) < 0.98
    model.save(tmp_path / "model")
    again = bm.load(tmp_path / "model")
    for found, expected in zip(again.predict(holes, tasks=tasks, interval=0.9), (mean, low, high), strict=True):
        np.testing.assert_array_equal(found, expected)
    pd.testing.assert_frame_equal(
        again.posterior_["imputed"].dataset.to_dataframe(), imputed.to_dataframe(), check_dtype=False
    )
    assert not np.isnan(model.transform(holes)).any()


@quiet
def test_without_gaps_the_draws_are_those_without_imputing(related):
    X, y, tasks, _ = related
    for prior in ("spike", "generalized_normal"):
        model, plain = (drawn(prior=prior, impute=impute).fit(X, y, tasks=tasks) for impute in ("model", None))
        np.testing.assert_array_equal(
            model.posterior_["posterior"]["coef"].values, plain.posterior_["posterior"]["coef"].values
        )
        assert "imputed" not in model.posterior_.children


@quiet
@pytest.mark.parametrize("prior", ["spike", "generalized_normal"])
def test_units_of_columns_do_not_matter_and_seeds_repeat(related, prior):
    X, y, tasks, gone = related
    unit, level = np.array([1e-3, 4.0, 1.0, 1e4]), np.array([0.0, -1e3, 5.0, 1e5])
    fits = [
        drawn(prior=prior, draws=40, tune=20).fit(np.where(gone, np.nan, features), y, tasks=tasks)
        for features in (X, X * unit + level, X)
    ]
    np.testing.assert_allclose(fits[1].coef_ * unit, fits[0].coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(fits[2].coef_, fits[0].coef_)
    cells = [fit.posterior_["imputed"].dataset["mean"].values for fit in fits]
    place = np.nonzero(gone)[1]
    np.testing.assert_allclose((cells[1] - level[place]) / unit[place], cells[0], rtol=1e-3, atol=1e-3)


@quiet
@pytest.mark.parametrize("weights", [False, True])
def test_shared_rows_of_numbers_and_labels(related, weights):
    """One unknown for all targets of a row, observed or not; labels one against the rest, too."""
    X, _, _, gone = related
    X = X[:N] * [1.0, 10.0, 1.0, 1.0]
    rng = np.random.default_rng(2)
    eta = X @ np.array([[1.0, 0.5, 0.0], [0.1, 0.1, -0.1], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    eta = eta - eta.mean(axis=0)
    Y, holes = eta + 0.3 * rng.normal(size=eta.shape), np.where(gone[:N], np.nan, X)
    Y[rng.random(Y.shape) < 0.1] = np.nan
    weight = rng.uniform(0.5, 2.0, N) if weights else None
    for prior in ("spike", "generalized_normal"):
        wide = drawn(prior=prior).fit(holes, Y, sample_weight=weight)
        imputed = wide.posterior_["imputed"].dataset
        place = imputed["feature"].values == "x1"
        error = imputed["mean"].values[place] - X[imputed["row"].values[place], 1]
        assert np.std(error[:-1]) < 0.4 * X[:, 1].std()  # three targets and three columns know it
        mean, low, high = wide.predict(holes, interval=0.9)
        assert mean.shape == Y.shape and (low < high).all()
    if not weights:
        labels = (eta + rng.logistic(size=eta.shape) > 0).astype(int)
        chance = drawn(bm.BayesianClassifier).fit(holes, labels).predict_proba(holes)
        assert chance.shape == Y.shape and ((chance > 0) & (chance < 1)).all()
        several = drawn(bm.BayesianClassifier).fit(holes, np.digitize(eta[:, 0], [-0.7, 0.7]))
        np.testing.assert_allclose(several.predict_proba(holes).sum(axis=1), 1.0)
        assert several.posterior_["imputed"].sizes["cell"] == gone[:N].sum()


@quiet
def test_more_columns_than_rows_and_exact_fits():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 60)) + rng.normal(size=(40, 1))
    y = X[:, 0] + X[:, 1]
    holes = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    for prior in ("spike", "generalized_normal"):
        model = drawn(prior=prior).fit(holes, y, tasks=np.repeat([0, 1], 20))
        assert np.isfinite(model.coef_).all() and model.coef_[:, :2].min() > 0.3


@quiet
def test_categories_are_filled_and_numbers_drawn(related):
    X, y, tasks, gone = related
    kind = pd.Categorical(np.where(np.arange(3 * N) % 11 == 0, None, np.where(X[:, 3] > 0, "high", "low")))
    frame = pd.DataFrame(np.where(gone, np.nan, X), columns=list("abcd")).assign(kind=kind)
    model = drawn().fit(frame, y, tasks=tasks)
    assert model.result_.feature_names.tolist() == [*"abcd", "kind[low]", "kind[missing]"]
    assert set(model.posterior_["imputed"]["feature"].values.tolist()) == set("abcd")
    assert np.isfinite(model.predict(frame, tasks=tasks)).all()
    data = model.training_data(frame, y, tasks, None)
    assert np.isnan(model._filled(data).design).sum() == gone.sum()


@quiet
def test_drawn_cells_in_comparisons_and_projections(related):
    X, y, tasks, gone = related
    holes = np.where(gone, np.nan, X)
    table = bm.compare(
        {"drawn": drawn(), "means": drawn(impute="task_mean")}, holes, y, tasks=tasks, cv=3, progress=False
    )
    errors = {fit.name: fit.error for fit in table.fits}
    assert errors["drawn"] < errors["means"]
    model = drawn().fit(holes, y, tasks=tasks)
    new = pd.DataFrame(holes).sample(frac=1.0, random_state=0)
    again = model.predict(new.to_numpy(), tasks=tasks[new.index])
    np.testing.assert_allclose(again, model.predict(holes, tasks=tasks)[new.index])
    prior = drawn().prior_predictive(holes, y, tasks=tasks, draws=20)
    assert np.isfinite(prior["prior_predictive"]["y"].values).all()


@pytest.mark.parametrize(
    ("model", "way_out"),
    [
        (bm.MixedNormRegressor(impute="model"), "pass 'task_mean', or use BayesianRegressor"),
        (bm.JeffreysRegressor(impute="model"), "JeffreysRegressor has not"),
        (drawn(prior="horseshoe"), "takes the sampler 'nuts'; use impute='task_mean', or sampler='gibbs'"),
        (drawn(loss="poisson"), "loss='poisson' takes the sampler 'nuts'"),
        (drawn(sampler="variational"), "takes the sampler 'variational'"),
        (drawn(impute="draw"), "pass 'task_mean', 'model', or None"),
    ],
    ids=["penalised", "EM", "horseshoe", "poisson", "variational", "unknown"],
)
def test_routes_that_draw_no_cells_say_so(related, model, way_out):
    X, y, tasks, gone = related
    with pytest.raises(ValueError, match=way_out):
        model.fit(np.where(gone, np.nan, X), np.floor(np.abs(y)), tasks=tasks)


def test_rows_that_share_a_loss_draw_no_cells(related):
    X, y, tasks, gone = related
    classes = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    model = bm.BayesianClassifier(loss="multinomial", impute="model", draws=10, tune=10)
    with pytest.raises(ValueError, match="loss='multinomial', whose rows share a loss; use impute='task_mean'"):
        model.fit(np.where(gone, np.nan, X), classes, tasks=tasks)
