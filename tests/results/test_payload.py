import io
import json
import math

import arviz as az
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bayesmtfs.results.payload import StoredFile, decode, encode, prepare, read_payload, write_entries

NUMPY_SCALARS = st.one_of(
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.integers(0, 255).map(np.uint8),
    st.booleans().map(np.bool_),
    st.text().map(np.str_),
)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), NUMPY_SCALARS)
KEYS = st.one_of(st.text(), st.just("$float"), st.integers(), st.tuples(st.integers(), st.text()))
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)
UNICODE = st.characters(exclude_categories=["Cs"])
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(sizes=(32, 64), endianness="?"),
    hnp.unicode_string_dtypes(endianness="?", max_len=7),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def any_array(dtype):
    elements = hnp.from_dtype(dtype, alphabet=UNICODE) if dtype.kind == "U" else hnp.from_dtype(dtype)
    return hnp.arrays(dtype, SHAPES, elements=elements)


def same(left, right):
    """Whether two values are equal in type and content, NaN equal to NaN and -0.0 different from 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and same(left.tolist(), right.tolist())
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left), list(right)) and same(list(left.values()), list(right.values()))
    if isinstance(left, (float, np.floating)):
        return repr(left) == repr(right)
    return left == right


def through_stream(kind="kind", header=None, arrays=None, tree=None, dims=None) -> StoredFile:
    stream = io.BytesIO()
    write_entries(stream, prepare(kind, header or {}, arrays or {}, tree, dims or {}), user_block=512)
    return read_payload(stream, limit=len(stream.getvalue()))


@settings(deadline=None, derandomize=True)
@given(VALUES)
def test_every_value_survives_strict_json(value):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    text = json.dumps(encode(value, [], "value"), allow_nan=False)
    assert same(decode(json.loads(text, parse_constant=refuse), []), value)


def test_values_that_json_would_change_keep_their_type():
    value = {"q": math.inf, "shape": (2, (3,)), 1: None, "$tuple": [np.float32(0.1), -0.0, np.bool_(True)]}
    assert same(decode(encode(value, [], "value"), []), value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, {"b": object()}]}, r"settings\.a\[1\]\.b is of type object"),
        ({"a": {1, 2}}, r"settings\.a is of type set"),
        ({"a": 1 + 2j}, r"settings\.a is of type complex"),
        ({"a": np.complex128(1)}, r"settings\.a is of type complex128"),
        ({"a": b"bytes"}, r"settings\.a is of type bytes"),
    ],
)
def test_a_value_that_cannot_be_saved_is_named(value, where):
    with pytest.raises(TypeError, match=where):
        encode(value, [], "settings")


def test_unknown_tag_is_refused():
    with pytest.raises(ValueError, match=r"unknown tag \$call"):
        decode({"$call": "os.system"}, [])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(DTYPES.flatmap(any_array))
def test_arrays_come_back_bit_for_bit(array):
    back = through_stream(arrays={"array": array}).arrays["array"]
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "bc", ""],
        [1, "one", None],
        [("a", 1), ("b", 2)],
        [1.5, math.inf, True],
        ["ends in NUL\0", "x"],
        [],
    ],
)
def test_arrays_of_objects_come_back_as_objects(labels):
    array = np.fromiter(labels, dtype=object, count=len(labels))
    back = through_stream(arrays={"labels": array}).arrays["labels"]
    assert back.dtype == object
    assert same(back.tolist(), labels)


def test_fortran_order_strides_and_wide_strings():
    arrays = {
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "strided": np.arange(10)[::3],
        "flags": np.array([True, False, True, True])[::2],
        "names": np.array(["a", "bb"], dtype="<U40"),
        "greek": np.array([["α", "日本語", "a\0b"]]),
        "scalar name": np.array("x"),
    }
    assert same(through_stream(arrays=arrays).arrays, arrays)


def test_arrays_inside_the_header_are_stored_beside_it():
    header = {"groups": np.array([0, 0, 1]), "deep": [{"names": np.array(["x", "y"], dtype=object)}, np.zeros((0, 2))]}
    assert same(through_stream(header=header).header, header)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(["2020-01-01"], dtype="M8[D]"), r"arrays/name has dtype datetime64\[D\]"),
        (np.array([1j]), "arrays/name has dtype complex128"),
        (np.array([1], dtype=np.float16), "arrays/name has dtype float16"),
        (np.array([b"x"]), r"arrays/name has dtype \|S1"),
        (np.array([object()]), r"arrays/name\[0\] is of type object"),
        (np.array([{"a": np.zeros(2)}]), r"arrays/name\[0\]\.a is of type ndarray"),
    ],
)
def test_an_array_that_cannot_be_saved_is_named(array, message):
    with pytest.raises(TypeError, match=message):
        prepare("kind", {}, {"name": array}, None, {})


def test_text_that_is_not_unicode_is_refused():
    with pytest.raises(ValueError, match="names holds text that is not valid Unicode"):
        through_stream(arrays={"names": np.array(["\ud800"])})


@pytest.mark.parametrize("name", ["", "a/b", "a\0"])
def test_impossible_names_are_refused(name):
    with pytest.raises(ValueError, match="cannot be the name of a stored array"):
        prepare("kind", {}, {name: np.zeros(1)}, None, {})


def test_an_array_may_be_called_like_a_dimension():
    arrays = {"b_axis0": np.ones((2, 1)), "b": np.zeros(3), "c": np.arange(4.0), "c_axis0": np.zeros(2)}
    assert same(through_stream(arrays=arrays).arrays, arrays)


def test_dims_must_name_every_axis():
    with pytest.raises(ValueError, match="coef has 2 axes but dims names 1"):
        prepare("kind", {}, {"coef": np.zeros((2, 3))}, None, {"coef": ["task"]})


def test_axes_with_one_name_have_one_length():
    with pytest.raises(ValueError, match="b has 3 entries along 'task', another array 2"):
        through_stream(arrays={"a": np.zeros(2), "b": np.zeros(3)}, dims={"a": ["task"], "b": ["task"]})


@pytest.fixture
def tree() -> xr.DataTree:
    draws = xr.Dataset(
        {
            "coef": (("chain", "draw", "feature"), np.random.default_rng(0).normal(size=(2, 3, 2)), {"units": "cm"}),
            "empty": (("chain", "none"), np.zeros((2, 0))),
            "single": ((), np.float32(3.5)),
        },
        coords={
            "feature": ["α", "b"],
            "chain": [0, 1],
            "weight": ("feature", [1.0, 2.0]),
            "label": ("feature", np.array(["x", "yy"], dtype=object)),
        },
        attrs={"sample_dims": ["chain", "draw"], "tuning": None, "settings": {"max": math.inf}},
    )
    stats = xr.Dataset(
        {
            "diverging": (("chain", "draw"), np.array([[True, False, False], [False, True, False]])),
            "message": (("chain", "draw"), np.array([[None, "bad", None]] * 2, dtype=object)),
            "depth": (("chain", "draw"), np.arange(6, dtype=np.uint64).reshape(2, 3)),
        }
    )
    root = xr.Dataset({"shared": ("feature", [1, 2])}, coords={"feature": ["α", "b"]}, attrs={"fit": (1, 2)})
    groups = {"/": root, "posterior": draws, "sample_stats": stats, "nested/deeper": stats[["depth"]]}
    return xr.DataTree.from_dict(groups, name="fit")


def test_a_tree_comes_back_with_types_and_attributes(tree):
    back = through_stream(tree=tree).tree
    xr.testing.assert_identical(back, tree)
    assert back.name == "fit"
    for node in tree.subtree:
        assert same(back[node.path].attrs, node.attrs)
        for name, variable in node.variables.items():
            assert back[node.path].variables[name].dtype == variable.dtype


def test_a_branch_keeps_the_coordinates_it_inherits():
    root = xr.Dataset(coords={"feature": ["a", "b"]})
    tree = xr.DataTree.from_dict({"/": root, "fit": xr.Dataset({"coef": ("feature", [1.0, 2.0])})})
    back = through_stream(tree=tree["fit"]).tree
    assert back["coef"].coords["feature"].values.tolist() == ["a", "b"]


def test_an_arviz_tree_comes_back():
    draws = np.random.default_rng(1).normal(size=(2, 10, 3))
    tree = az.from_dict({"posterior": {"coef": draws}, "observed_data": {"y": np.arange(4.0)}})
    xr.testing.assert_identical(through_stream(tree=tree).tree, tree)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ({"bayesmtfs": xr.Dataset({"a": 1})}, ValueError, "'bayesmtfs' names a part of the file itself"),
        ({"/": xr.Dataset({"bayesmtfs": 1})}, ValueError, "'bayesmtfs' names a part of the file itself"),
        ({"/": xr.Dataset({1: ("x", [1.0])})}, TypeError, "rename them to strings"),
        ({"/": xr.Dataset({"a": ((2,), [1.0])})}, TypeError, "rename them to strings"),
        ({"/": xr.Dataset(attrs={"f": print})}, TypeError, r"attributes\.f is of type builtin"),
    ],
)
def test_a_tree_that_cannot_be_saved(groups, error, message):
    with pytest.raises(error, match=message):
        prepare("kind", {}, {}, xr.DataTree.from_dict(groups), {})
