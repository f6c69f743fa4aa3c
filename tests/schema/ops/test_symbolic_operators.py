"""Operators that exist only while extents are symbolic: values by hand, inferred names, and errors."""

from __future__ import annotations

import numpy as np
import pytest

from tpuconvert.schema.arithmetic.resize_weights import Coordinates, NearestRounding
from tpuconvert.schema.definition.extents import evaluate_extent
from tpuconvert.schema.definition.op import all_ops
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.global_average_int import AverageForm, GlobalAverageInt
from tpuconvert.schema.ops.positions import FormulaPositions
from tpuconvert.schema.ops.resize import ResizeNearest, ResizeWeighted
from tpuconvert.schema.ops.symbolic_movement import ReshapeAxes, ReshapeByFormulas, ReshapeLike, SliceAxis
from tpuconvert.schema.types import F32, I8, TensorType

ROW = np.array([[[[1, 2, 3]]]], np.float32)
BYTES = np.array([[[[10, 20], [30, 41]]]], np.int8)
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
NEAREST = {"coordinates": Coordinates.asymmetric, "rounding": NearestRounding.floor}
SCALES = {"operand_scales": (0.5,), "result_scale": 0.25, "out_dtype": I8}

CASES = [
    (ResizeNearest(scales=(1.0, 2.0), sizes=(0, 0), **NEAREST), [ROW], [[[[1, 1, 2, 2, 3, 3]]]]),
    (ResizeNearest(scales=(1.0, 0.0), sizes=(0, 5), **NEAREST), [ROW], [[[[1, 1, 2, 2, 3]]]]),
    (ResizeNearest(scales=(0.0, 1.0), sizes=(0, 0), **NEAREST), [ROW, np.zeros(2, np.int32)], [[[[1, 2, 3]] * 2]]),
    (ResizeNearest(scales=(1.5, 1.5), sizes=(0, 0), **NEAREST), [BYTES], [[[[10, 10, 20]] * 2 + [[30, 30, 41]]]]),
    (ResizeNearest(scales=(2.0,), sizes=(0,), **NEAREST), [ROW[0]], [[[1, 1, 2, 2, 3, 3]]]),
    (ResizeWeighted(scales=(1.0, 2.0), sizes=(0, 0)), [ROW], [[[[1, 1.25, 1.75, 2.25, 2.75, 3]]]]),
    (ReshapeAxes((1, 1), (1, 2), (2, 1)), [np.arange(6, dtype=np.float32).reshape(2, 3)], None),
    (ReshapeAxes((1, 4), (1, 1), (2, 0)), [MATRIX.T.reshape(3, 2)], None),
    (ReshapeLike(), [MATRIX, np.zeros((3, 2), np.float32)], MATRIX.reshape(3, 2)),
    (ReshapeByFormulas(("2", "H+1"), ("H",), (0,)), [MATRIX, np.zeros((2, 9), np.float32)], MATRIX),
    (SliceAxis(1, 1, -1), [MATRIX], [[1], [4]]),
    (SliceAxis(1, 0, 0, 2), [MATRIX], [[0, 2], [3, 5]]),
    (SliceAxis(0, -1), [MATRIX], [[3, 4, 5]]),
    (SliceAxis(1, -100, 2), [MATRIX], [[0, 1], [3, 4]]),
    (SliceAxis(1, -2, 100), [MATRIX], [[1, 2], [4, 5]]),
    (FormulaPositions("ceil(H/2)+W", ("H", "W"), (0, 1)), [np.zeros((3, 2), np.float32)], [0, 1, 2, 3]),
    # 101 / 4 = 25.25 at the scale 0.5 is 50.5 at the scale 0.25: ties up
    (GlobalAverageInt(form=AverageForm.POOL, **SCALES), [BYTES], [[[[51]]]]),
    (GlobalAverageInt(form=AverageForm.SUMS, operand_zero_point=1, result_zero_point=-3, **SCALES), [BYTES],
     [[[[46]]]]),
    (GlobalAverageInt(form=AverageForm.SCALED_CONV, **SCALES), [BYTES], [[[[51]]]]),
]  # fmt: skip
ERRORS = (6, 7)
"""Indices of cases whose extents do not fit."""


@pytest.mark.parametrize(("op", "arrays", "expected"), [case for case in CASES if case[2] is not None], ids=str)
def test_values(op, arrays, expected):
    (found,) = op.evaluate(*arrays)
    assert found.tolist() == np.asarray(expected).tolist()
    types = [TensorType(I8 if x.dtype == np.int8 else F32, x.shape) for x in arrays]
    assert op.infer(*types)[0].shape == found.shape


@pytest.mark.parametrize(("op", "arrays", "expected"), [CASES[index] for index in ERRORS], ids=str)
def test_extents_that_do_not_fit(op, arrays, expected):
    with pytest.raises(ShapeError, match=r"not a multiple of 2|does not fit into"):
        op.evaluate(*arrays)


@pytest.mark.parametrize(
    ("op", "types", "shape"),
    [
        (ResizeNearest(scales=(2.0, 0.5), sizes=(0, 0)), [("N", 3, "H", "W")], ("N", 3, "2*H", "floor(W*0.5)")),
        (ResizeWeighted(scales=(0.0, 0.0), sizes=(7, 0)), [("N", 3, "H", "W"), ("V",)], ("N", 3, 7, "V")),
        (ReshapeAxes((1, 2, 1), (1, 1, 2), (1, 0, 6)), [("N", "H", 4)], ("N", 2, "2*H")),
        (ReshapeLike(), [("N", 4), (2, "M")], (2, "M")),
        (ReshapeByFormulas(("N", "max(H,W)", "3"), ("N", "H", "W"), (0, 1, 2)), [("K",), ("N", "H", 5)],
         ("N", "max(H,5)", 3)),
        (SliceAxis(1, 1, -1, 2), [("N", "H")], ("N", "ceil((H-2)/2)")),
        (SliceAxis(1, -3), [("N", "H")], ("N", "min(H,3)")),
        (SliceAxis(1, -3, -2), [("N", "H")], ("N", 1)),
        (SliceAxis(1, 2, 9), [("N", "H")], ("N", "min(H-2,7)")),
        (SliceAxis(1, -5, 9, 2), [("N", "H")], ("N", "ceil((min(H,9)-max(H-5,0))/2)")),
        (FormulaPositions("2*H", ("H",), (0,)), [("H",)], ("2*H",)),
    ],
    ids=str,
)  # fmt: skip
def test_symbolic_shapes(op, types, shape):
    assert op.infer(*(TensorType(F32, item) for item in types))[0].shape == shape


def test_every_operator_has_a_case():
    ours = {type(op).name for op, _, _ in CASES}
    assert {name for name, found in all_ops().items() if issubclass(found, DeferredOp)} == ours


def test_copies_with_numbers_have_the_expansion_and_no_unused_operands():
    g = Graph("g")
    x = g.input("x", TensorType(F32, (1, 2, "H", "W")))
    rows = g.add(FormulaPositions("2*H", ("H",), (2,)), x)
    g.output(g.add(ResizeNearest(scales=(0.0, 2.0), sizes=(0, 0), **NEAREST), x, rows, name="y"))
    copy = copy_graph(g, {"H": 3, "W": 4})
    assert [node.op.name for node in copy.nodes] == ["upsample"]
    assert [(value.name, value.shape) for value in copy.outputs] == [("y", (1, 2, 6, 8))]


@pytest.mark.parametrize("formula", ["H/2", "__import__('os')", "f(H)", "H.real", "V", "H**2", "H/0", ""])
def test_refuses_what_is_no_formula_with_a_value(formula):
    with pytest.raises(ShapeError, match=r"has no value|not an integer"):
        evaluate_extent(formula, {"H": 3})
