"""Effects, one row per feature and one interval per task."""

import numpy as np
import pytest

from bayesmtfs.plots import effects, norm_q


def rows_of(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_features_are_sorted_and_tasks_have_marks_and_words(fit):
    axes = effects(fit([[0.0, 1.0, -3.0], [0.0, 0.0, 2.0]]))
    assert rows_of(axes) == ["f2", "f1"]
    first, second = (axes.collections[k].get_offsets() for k in (0, 2))
    np.testing.assert_array_equal(first[:, 0], [-3.0, 1.0])
    np.testing.assert_array_equal(second[:, 0], [2.0, 0.0])
    assert (np.round(first[:, 1]) == [0, 1]).all() and (first[:, 1] < second[:, 1]).all()
    assert [text.get_text() for text in axes.texts] == ["all 2 tasks", "only t0"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["t0", "t1"]


def test_lines_are_quantiles_of_the_draws_in_deviations(posterior, fit):
    draws = np.random.default_rng(0).standard_normal((400, 2, 2)) + np.array([[[1.0, 2.0], [4.0, 3.0]]])
    result = posterior(draws)
    unit = np.array([[1.0, 2.0], [0.5, 1.0]])
    with_units = type(result)(**{**vars(result), "effect_unit": unit})
    axes = effects(with_units, prob=0.8)
    order = [int(name[1:]) for name in rows_of(axes)]
    for t, lines in enumerate(axes.collections[k] for k in (0, 3)):
        found = np.array([segment[:, 0] for segment in lines.get_segments()])
        low, high = np.quantile(draws * unit.T, [0.1, 0.9], axis=0)[:, order, t]
        np.testing.assert_allclose(found, np.stack([low, high], axis=1))
    assert "80% interval" in axes.get_xlabel()


def test_many_tasks_have_one_colour_and_no_legend(fit):
    axes = effects(fit(np.random.default_rng(0).standard_normal((30, 4))), most=2)
    assert axes.get_legend() is None and len(axes.get_yticklabels()) == 2


def test_screened_features_and_none_selected(screened, fit):
    result, _ = screened
    assert set(rows_of(effects(result))) == {"f1", "f3"}
    assert "of 0 selected" in effects(fit(np.zeros((2, 3)))).get_title()


def test_a_fixed_q_is_said_to_be_fixed(fit):
    with pytest.raises(ValueError, match="q fixed at 2"):
        norm_q(fit([[1.0]], settings={"norm_q": 2}))
