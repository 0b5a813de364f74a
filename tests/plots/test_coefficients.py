"""Plots of coefficients: what is drawn, not how it looks."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayesmtfs.plots import coefficient_heatmap, compare_coefficients, row_norms


def names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_heatmap_shows_selected_rows_largest_first(fit):
    axes = coefficient_heatmap(fit([[1.0, 0.0, -3.0], [0.5, 0.0, 2.0]]))
    assert names(axes.yaxis) == ["f2", "f0"]
    assert names(axes.xaxis) == ["t0", "t1"]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[-3.0, 2.0], [1.0, 0.5]])
    assert axes.images[0].get_clim() == (-3.0, 3.0)
    assert axes.get_title() == "Some: 2 of 3 features selected"


def test_heatmap_stays_readable_when_large(fit):
    coef = np.random.default_rng(0).standard_normal((139, 10_000))
    axes = coefficient_heatmap(fit(coef))
    assert axes.images[0].get_array().shape == (40, 139)
    assert len(axes.get_xticklabels()) <= 40
    assert axes.get_xlabel() == "task (one in 4 is named)"


@pytest.mark.parametrize("draw", [coefficient_heatmap, row_norms])
def test_names_of_features_that_are_not_selected_are_grey(fit, draw):
    axes = draw(fit([[3.0, 1.0, 2.0]], selection=[True, False, True]))
    colours = {label.get_text(): label.get_color() for label in axes.get_yticklabels()}
    assert colours["f0"] == colours["f2"] == "black" != colours["f1"]
    assert axes.get_ylabel() == "feature; grey: not selected"


def test_heatmap_of_nothing_and_on_given_axes(fit):
    own = plt.figure().add_subplot()
    axes = coefficient_heatmap(fit(np.zeros((2, 3))), ax=own)
    assert axes is own and "0 of 3" in axes.get_title()


def test_row_norms_of_a_point_are_its_norms_in_order(fit):
    axes = row_norms(fit([[3.0, 0.0, 1.0], [4.0, 0.0, 0.0]]))
    assert names(axes.yaxis) == ["f0", "f2"]
    np.testing.assert_allclose(axes.collections[0].get_offsets()[:, 0], [5.0, 1.0])
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the largest is on top


def test_row_norms_of_draws_have_quantiles_as_intervals(posterior):
    draws = np.abs(np.random.default_rng(0).standard_normal((500, 3, 1))) + np.arange(3)[None, :, None]
    axes = row_norms(posterior(draws), prob=0.8, most=2)
    assert names(axes.yaxis) == ["f2", "f1"]
    segment = axes.collections[0].get_segments()[0]
    np.testing.assert_allclose(segment[:, 0], np.quantile(draws[:, 2, 0], [0.1, 0.9]))
    assert "80% interval" in axes.get_xlabel()


def test_features_that_were_screened_out_before_sampling_have_no_draws_and_keep_their_places(screened):
    result, draws = screened
    axes = row_norms(result, prob=0.8)
    assert names(axes.yaxis) == ["f3", "f1"]
    low, high = axes.collections[0].get_segments()[0][:, 0]
    np.testing.assert_allclose([low, high], np.quantile(np.linalg.norm(draws[:, 1], axis=1), [0.1, 0.9]))
    compared = compare_coefficients(result, result)
    heights = np.ptp([segment[:, 1] for segment in compared.collections[0].get_segments()], axis=1)
    deviations = np.zeros((2, 5))
    deviations[:, [1, 3]] = draws.std(axis=0).T
    np.testing.assert_allclose(heights, 2 * deviations.ravel())


@pytest.mark.parametrize("wrong", [{"prob": 1.5}, {"most": 0}])
def test_row_norms_refuse_nonsense(fit, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        row_norms(fit([[1.0, 2.0]]), **wrong)


def test_comparison_puts_one_fit_on_each_axis_and_names_what_differs(fit, posterior):
    draws = np.random.default_rng(0).standard_normal((100, 2, 2)) * 0.01 + np.array([[1.0, 2.0], [3.0, -1.0]])
    penalised = fit([[1.0, 0.0], [2.0, -1.0]], method="Penalised")
    axes = compare_coefficients(penalised, posterior(draws), label=1)
    assert axes.get_xlabel() == "Penalised" and axes.get_ylabel().startswith("Draws")
    assert [text.get_text() for text in axes.texts] == ["f1"]
    offsets = axes.collections[-1].get_offsets()
    np.testing.assert_allclose(offsets[:, 0], penalised.coef.ravel())
    np.testing.assert_allclose(offsets[:, 1], draws.mean(axis=0).T.ravel())


def test_comparison_names_only_what_differs_noticeably(fit):
    axes = compare_coefficients(fit([[1.0, 1.0, 1.0]]), fit([[2.0, 1.5, 1.01]]))
    assert [text.get_text() for text in axes.texts] == ["f0", "f1"]


def test_comparison_refuses_fits_of_other_data(fit):
    with pytest.raises(ValueError, match="shapes"):
        compare_coefficients(fit([[1.0]]), fit([[1.0, 2.0]]))


def test_what_is_not_a_fit_is_refused():
    with pytest.raises(TypeError, match="ndarray"):
        coefficient_heatmap(np.eye(3))
