"""Shape arithmetic with numbers and names."""

import pytest

from tpuconvert.schema.definition import extents
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, TensorType


def test_sums():
    assert extents.plus(1, 2, -3) == 0
    assert extents.plus("H", 1, 2) == "H+3"
    assert extents.plus("H", -1) == "H-1"
    assert extents.plus("H", 1, -1) == "H"
    assert extents.plus("C", 3, "D") == "C+D+3"


def test_sums_have_one_form():
    """The order and the grouping of terms do not matter; equal terms are added up, but not data-dependent ones."""
    assert extents.plus("new", "past") == extents.plus("past", "new") == "new+past"
    assert extents.plus("b+a", 1, "b") == extents.plus("2*b", "a+1") == "a+2*b+1"
    assert extents.plus("a+b", "b+a") == extents.times(2, "a+b") == "2*(a+b)"
    assert extents.plus("8*H*p", "8*p*W") == "8*(H*p+W*p)"
    assert extents.plus("a+b", "-b") == "a"
    assert extents.plus("?where", "?where") == "?where+?where"
    assert extents.substitute("b+zz", {"b": "b", "zz": "a"}) == "a+b"


def test_differences():
    assert extents.minus("past+new", "new") == "past"
    assert extents.minus("a+b+3", "b+1") == "a+2"
    assert extents.minus("a", "a") == 0
    assert extents.minus("a", "b") is None
    assert extents.minus("a-b", "a") is None
    assert extents.minus("?where", "?where") is None


def test_products_have_one_spelling():
    assert extents.times(2, 3) == 6
    assert extents.times("W", 2, "H", 3) == extents.times(6, "H", "W") == "6*H*W"
    assert extents.times("H", 0) == 0
    assert extents.times("H+1", 2) == "2*(H+1)"
    assert extents.times(extents.times("H+1", 2), 3) == "6*(H+1)"
    assert extents.times("H+1") == "H+1"
    assert extents.times("max(A,B)", 2) == "2*max(A,B)"


def test_divides_extents():
    assert extents.ceil_div(7, 2) == 4
    assert extents.ceil_div("H", 1) == "H"
    assert extents.ceil_div("H+1", 2) == "ceil((H+1)/2)"
    assert extents.exact_div(6, 3) == 2
    assert extents.exact_div("6*H", 3) == "2*H"
    assert extents.exact_div("2*H", 2) == "H"
    assert extents.exact_div("H", 2) == "H/2"


def test_names_may_differ_numbers_may_not():
    x, y = TensorType(F32, ("N", 3)), TensorType(F32, (2, "C"))
    assert extents.merge_shapes("op", x, y) == (2, 3)
    with pytest.raises(ShapeError, match=r"\[N, 3\] and \[2, 4\]"):
        extents.merge_shapes("op", x, TensorType(F32, (2, 4)))


def test_unknown_extents_are_marked():
    assert extents.unknown("nms").startswith("?")
