"""Columns as frames, and checks of probabilities."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from bayesmtfs.results.tables import as_frame, check_probability, plain_labels

COLUMNS = {"feature": np.array(["a", "b"]), "share": np.array([0.5, 1.0])}


@pytest.mark.parametrize(("backend", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_frames_of_both_libraries(backend, kind):
    frame = as_frame(COLUMNS, backend)
    assert isinstance(frame, kind) and frame["share"].to_list() == [0.5, 1.0]


def test_an_unknown_library_is_refused():
    with pytest.raises(ValueError, match="backend is 'dask'; pass 'pandas' or 'polars'"):
        as_frame(COLUMNS, "dask")


def test_labels_of_several_types_become_text():
    mixed = np.empty(2, dtype=object)
    mixed[:] = [1, "one"]
    assert plain_labels(mixed).tolist() == ["1", "one"]
    assert plain_labels(np.array([3, 1])).tolist() == [3, 1]


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, np.nan])
def test_probabilities_are_between_0_and_1(value):
    with pytest.raises(ValueError, match="level is .*; pass a number between 0 and 1"):
        check_probability("level", value)
    check_probability("level", 0.5)
