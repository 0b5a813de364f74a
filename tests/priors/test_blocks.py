import numpy as np
import pytest

from bayesmtfs.priors import Blocks

W = np.arange(1.0, 13.0).reshape(4, 3)
GROUPS = np.array([7, 2, 7, 5])
PRESENT = np.array([[1, 1, 0], [0, 0, 1], [1, 1, 1], [1, 0, 1]], dtype=bool)


def entries_by_loop(groups, present):
    """The entries of every row, collected one by one."""
    rows = []
    for label in sorted(set(groups)):
        features = [i for i in range(4) if groups[i] == label]
        rows.append([W[i, j] for i in features for j in range(3) if present[i, j]])
    return rows


@pytest.mark.parametrize("groups", [None, GROUPS])
@pytest.mark.parametrize("present", [None, PRESENT])
def test_rows_hold_the_entries_of_their_features(groups, present):
    blocks = Blocks(4, 3, groups=groups, present=present)
    expected = entries_by_loop(
        range(4) if groups is None else groups, np.ones((4, 3), dtype=bool) if present is None else present
    )
    rows = blocks.gather(W)
    assert blocks.n_rows == len(rows) == len(expected)
    assert [list(row[row != 0]) for row in rows] == expected
    assert list(blocks.sizes) == [len(row) for row in expected]


@pytest.mark.parametrize("groups", [None, GROUPS, np.zeros(4, dtype=int)])
@pytest.mark.parametrize("present", [None, PRESENT])
def test_round_trip_keeps_present_entries_and_zeroes_the_others(groups, present):
    blocks = Blocks(4, 3, groups=groups, present=present)
    kept = W if present is None else np.where(present, W, 0.0)
    np.testing.assert_array_equal(blocks.scatter(blocks.gather(W)), kept)


def test_scatter_drops_what_the_padding_holds():
    blocks = Blocks(4, 3, groups=GROUPS, present=PRESENT)
    rows = np.full(blocks.gather(W).shape, 9.0)
    np.testing.assert_array_equal(blocks.scatter(rows), 9.0 * PRESENT)


def test_single_complete_features_are_not_copied():
    blocks = Blocks(4, 3)
    assert blocks.gather(W) is W
    assert blocks.scatter(W) is W
    assert Blocks(4, 3, present=np.ones((4, 3), dtype=bool)).gather(W) is W


def test_row_of_feature_spreads_row_quantities_over_features():
    blocks = Blocks(4, 3, groups=GROUPS)
    np.testing.assert_array_equal(blocks.row_of_feature, [2, 0, 2, 1])


def test_inputs_are_not_modified_and_may_be_read_only():
    frozen = W.copy()
    frozen.flags.writeable = False
    blocks = Blocks(4, 3, groups=GROUPS, present=PRESENT)
    blocks.gather(frozen)[:] = 0.0
    np.testing.assert_array_equal(frozen, W)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": np.array([0, 1])}, r"groups has shape \(2,\) but there are 4 features; pass one"),
        ({"groups": np.array([0.0, 1.0, 1.5, 2.0])}, "groups has entries of type float64; pass integer"),
        ({"present": np.ones((4, 2), dtype=bool)}, r"present has shape \(4, 2\) but there are 4 features and 3 tasks"),
    ],
)
def test_wrong_layouts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Blocks(4, 3, **arguments)


def test_parts_of_a_matrix_can_have_rows_of_one_length():
    whole = Blocks(n_features=4, n_tasks=2, groups=np.array([0, 1, 0, 0]))
    part = Blocks(n_features=1, n_tasks=2, groups=np.array([0]), features_per_row=3)
    W = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(part.gather(W[[1]]), whole.gather(W)[[1]])
    np.testing.assert_array_equal(part.scatter(part.gather(W[[1]])), W[[1]])
