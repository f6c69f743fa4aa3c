"""Tensors without elements: slices, parts and gathers that select nothing, and every operator that reads their result.

Models come from dynamic loops (TensorList operators, ``tf.scan``), which slice before the first and after the last
step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.tflite.cases import f32, i32
from tests.support.tflite.models import O, S, T, serialize
from tests.support.tflite.reference import reference_runner, run_interpreter
from tpuconvert.schema.errors import UnsupportedError

_QUANTS: Mapping[str, Any] = {"INT8": ((0.05,), (3,)), "INT16": ((0.001,), (0,))}
NONE = np.zeros(0, np.int32)
_SECOND_VERSION = ("BROADCAST_TO",)
Row = tuple[str, list[Any], list[Any], list[Any], dict[str, Any]]


def model_of(
    op: str,
    shapes: Sequence[tuple[int, ...]],
    results: Sequence[tuple[int, ...]],
    *constants: Any,
    first: Sequence[Any] = (),
    dtype: str = "FLOAT32",
    types: Sequence[str] = (),
    table: str = "",
    **options: Any,
) -> S:
    """One operator; an operand whose shape contains 0 is a slice of an input that has elements."""
    tensors: list[T] = [T(f"f{number}", data=array) for number, array in enumerate(first)]
    places = list(range(len(first)))
    operators: list[O] = []
    inputs: list[int] = []
    scale, zero = _QUANTS.get(dtype, ((), ()))
    for number, shape in enumerate(shapes):
        inputs.append(len(tensors))
        places.append(len(tensors))
        tensors.append(T(f"x{number}", tuple(max(extent, 1) for extent in shape), dtype, None, scale, zero))
        if 0 in shape:
            box = [T(f"b{number}", data=i32([0] * len(shape))), T(f"s{number}", data=i32(shape))]
            tensors += [*box, T(f"e{number}", shape, dtype, None, scale, zero)]
            places[-1] = len(tensors) - 1
            operators.append(O("SLICE", [inputs[-1], places[-1] - 2, places[-1] - 1], [places[-1]], "SliceOptions"))
    for number, array in enumerate(constants):
        places.append(len(tensors))
        tensors.append(T(f"c{number}", data=array))
    outputs = []
    for number, (shape, type_name) in enumerate(zip(results, types or [dtype] * len(results), strict=True)):
        outputs.append(len(tensors))
        tensors.append(T(f"y{number}", shape, type_name, None, *_QUANTS.get(type_name, ((), ()))))
    operators.append(O(op, places, outputs, table, options, 2 if op in _SECOND_VERSION else 1))
    return S(tensors, operators, inputs, outputs)


def _cut(begin: int, end: int, step: int = 1, **masks: int) -> Row:
    constants = [i32([begin, 0]), i32([end, 3]), i32([step, 1])]
    return "STRIDED_SLICE", [(4, 3)], [(0,) if masks else (0, 3)], constants, {"table": "StridedSliceOptions", **masks}


JOIN = {"table": "ConcatenationOptions"}
PARTS = {"table": "SplitVOptions"}
MOVES: list[Row] = [
    ("CONCATENATION", [(0, 3), (2, 3)], [(2, 3)], [], {**JOIN, "axis": 0}),
    ("CONCATENATION", [(2, 3), (0, 3), (2, 3)], [(4, 3)], [], {**JOIN, "axis": 0}),
    ("CONCATENATION", [(0, 3), (0, 2)], [(0, 5)], [], {**JOIN, "axis": 1}),
    ("PAD", [(0, 3)], [(2, 3)], [i32([[1, 1], [0, 0]])], {}),
    ("PAD", [(0, 3)], [(0, 5)], [i32([[0, 0], [1, 1]])], {}),
    ("RESHAPE", [(0, 3)], [(3, 0)], [i32([3, 0])], {"table": "ReshapeOptions"}),
    ("RESHAPE", [(0, 3)], [(0,)], [i32([-1])], {"table": "ReshapeOptions"}),
    ("TRANSPOSE", [(0, 3)], [(3, 0)], [i32([1, 0])], {}),
    ("EXPAND_DIMS", [(0, 3)], [(1, 0, 3)], [i32(0)], {}),
    ("SQUEEZE", [(1, 0, 3)], [(0, 3)], [], {"table": "SqueezeOptions", "squeeze_dims": (0,)}),
    ("SLICE", [(0, 3)], [(0, 2)], [i32([0, 1]), i32([0, 2])], {}),
    ("SLICE", [(4, 3)], [(4, 0)], [i32([0, 3]), i32([-1, 0])], {}),
    _cut(4, 4),
    _cut(0, 3, -1),
    _cut(3, 2, shrink_axis_mask=2),
    ("SPLIT", [(0, 4)], [(0, 2)] * 2, [], {"first": [i32(1)], "table": "SplitOptions", "num_splits": 2}),
    ("SPLIT", [(0, 4)], [(0, 4)] * 2, [], {"first": [i32(0)], "table": "SplitOptions", "num_splits": 2}),
    ("SPLIT_V", [(4, 3)], [(0, 3), (4, 3)], [i32([0, 4]), i32(0)], {**PARTS, "num_splits": 2}),
    ("SPLIT_V", [(4, 3)], [(1, 3), (0, 3), (3, 3)], [i32([1, 0, 3]), i32(0)], {**PARTS, "num_splits": 3}),
    ("SPLIT_V", [(4, 3)], [(4, 3), (0, 3)], [i32([4, -1]), i32(0)], {**PARTS, "num_splits": 2}),
    ("PACK", [(0, 3)] * 2, [(2, 0, 3)], [], {"table": "PackOptions", "values_count": 2}),
    ("GATHER", [(4, 3)], [(0, 3)], [NONE], {"table": "GatherOptions"}),
    ("GATHER", [(4, 0)], [(2, 0)], [i32([1, 2])], {"table": "GatherOptions"}),
    ("GATHER_ND", [(4, 3)], [(0, 3)], [np.zeros((0, 1), np.int32)], {}),
    ("TILE", [(2, 3)], [(0, 3)], [i32([0, 1])], {}),
    ("TILE", [(0, 3)], [(0, 6)], [i32([1, 2])], {}),
    ("BROADCAST_TO", [(1, 3)], [(0, 3)], [i32([0, 3])], {}),
    ("REVERSE_V2", [(0, 3)], [(0, 3)], [i32([1])], {}),
    ("FILL", [()], [(0, 3)], [], {"first": [i32([0, 3])]}),
    ("SPACE_TO_BATCH_ND", [(0, 4, 4, 2)], [(0, 2, 2, 2)], [i32([2, 2]), i32([[0, 0], [0, 0]])], {}),
    ("BATCH_TO_SPACE_ND", [(0, 2, 2, 2)], [(0, 4, 4, 2)], [i32([2, 2]), i32([[0, 0], [0, 0]])], {}),
    ("DEPTH_TO_SPACE", [(0, 2, 2, 8)], [(0, 4, 4, 2)], [], {"table": "DepthToSpaceOptions", "block_size": 2}),
    ("SPACE_TO_DEPTH", [(0, 4, 4, 2)], [(0, 2, 2, 8)], [], {"table": "SpaceToDepthOptions", "block_size": 2}),
    ("DYNAMIC_UPDATE_SLICE", [(4, 3), (0, 3)], [(4, 3)], [i32([1, 0])], {}),
    ("ADD", [(0, 3), (1, 3)], [(0, 3)], [], {"table": "AddOptions"}),
    ("MUL", [(0, 3), (3,)], [(0, 3)], [], {"table": "MulOptions"}),
    ("REDUCE_MAX", [(0, 3)], [(3,)], [i32([0])], {"table": "ReducerOptions"}),
    ("REDUCE_MIN", [(0, 3)], [(0,)], [i32([1])], {"table": "ReducerOptions"}),
    ("MEAN", [(0, 3)], [(0,)], [i32([1])], {"table": "ReducerOptions"}),
    ("TOPK_V2", [(2, 3)], [(2, 0)] * 2, [i32(0)], {}),
    ("TOPK_V2", [(0, 3)], [(0, 2)] * 2, [i32(2)], {}),
    ("ARG_MAX", [(0, 3)], [(0,)], [i32(1)], {"table": "ArgMaxOptions", "output_type": 2}),
    ("EQUAL", [(0, 3)] * 2, [(0, 3)], [], {"types": ["BOOL"]}),
    ("SHAPE", [(0, 3)], [(2,)], [], {"types": ["INT32"], "table": "ShapeOptions", "out_type": 2}),
    # constants without elements
    ("STRIDED_SLICE", [()], [()], [NONE] * 3, {"table": "StridedSliceOptions"}),
    ("STRIDED_SLICE", [(2, 3)], [(2, 3)], [NONE] * 3, {"table": "StridedSliceOptions"}),
    ("SLICE", [()], [()], [NONE, NONE], {}),
    ("PAD", [()], [()], [np.zeros((0, 2), np.int32)], {}),
    ("MIRROR_PAD", [()], [()], [np.zeros((0, 2), np.int32)], {"table": "MirrorPadOptions"}),
    ("TILE", [()], [()], [NONE], {}),
    ("BROADCAST_TO", [()], [()], [NONE], {}),
    ("RESHAPE", [(1, 1)], [()], [NONE], {"table": "ReshapeOptions"}),
    ("SQUEEZE", [(1, 1)], [()], [], {"table": "SqueezeOptions"}),
    ("FILL", [()], [()], [], {"first": [NONE]}),
    ("DYNAMIC_UPDATE_SLICE", [(), ()], [()], [NONE], {}),
    *((op, [(2, 3)], [(2, 3)], [NONE], {"table": "ReducerOptions"}) for op in ("MEAN", "SUM", "REDUCE_MAX")),
]
FLOATS: list[Row] = [
    *((op, [(0, 3)], [(3,)], [i32([0])], {"table": "ReducerOptions"}) for op in ("MEAN", "SUM", "REDUCE_PROD")),
    *((op, [(0, 3)], [(0, 3)], [], {}) for op in ("EXP", "RELU", "TANH", "ABS", "SIN", "FLOOR", "SQUARE", "SIGN")),
    *((op, [(0, 3)] * 2, [(0, 3)], [], {}) for op in ("SUB", "POW", "SQUARED_DIFFERENCE", "MINIMUM", "ATAN2")),
    ("SOFTMAX", [(0, 3)], [(0, 3)], [], {"table": "SoftmaxOptions"}),
    ("PRELU", [(0, 2, 3), (1, 3)], [(0, 2, 3)], [], {}),
    ("FULLY_CONNECTED", [(0, 3)], [(0, 2)], [f32(np.ones((2, 3))), f32([1, 1])], {"table": "FullyConnectedOptions"}),
    ("BATCH_MATMUL", [(2, 0, 3), (2, 3, 4)], [(2, 0, 4)], [], {"table": "BatchMatMulOptions"}),
    ("BATCH_MATMUL", [(2, 2, 0), (2, 0, 4)], [(2, 2, 4)], [], {"table": "BatchMatMulOptions"}),
    (
        *("CONV_2D", [(0, 4, 4, 2)], [(0, 4, 4, 3)], [f32(np.ones((3, 1, 1, 2))), f32([1, 1, 1])]),
        {"table": "Conv2DOptions", "stride_h": 1, "stride_w": 1},
    ),
    (
        *("MAX_POOL_2D", [(0, 4, 4, 2)], [(0, 2, 2, 2)], []),
        {"table": "Pool2DOptions", "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2},
    ),
    ("CUMSUM", [(0, 3)], [(0, 3)], [i32(1)], {"table": "CumsumOptions"}),
    ("SELECT_V2", [(0, 3)] * 2, [(0, 3)], [], {"first": [np.asarray([True])]}),
    ("SCATTER_ND", [(0, 3)], [(4, 3)], [i32([4, 3])], {"first": [np.zeros((0, 1), np.int32)]}),
    ("UNSORTED_SEGMENT_SUM", [(0, 3)], [(2, 3)], [NONE, i32(2)], {}),
    ("UNSORTED_SEGMENT_MAX", [(0, 3)], [(2, 3)], [NONE, i32(2)], {}),
    ("EMBEDDING_LOOKUP", [(4, 3)], [(0, 3)], [], {"first": [NONE]}),
    ("QUANTIZE", [(0, 3)], [(0, 3)], [], {"types": ["INT8"]}),
    ("CAST", [(0, 3)], [(0, 3)], [], {"types": ["INT32"]}),
]


def _cases() -> list[Any]:
    """Every case; the ordinary run has the data movement of one type, in turns."""
    types = ("FLOAT32", "INT8", "INT32")
    cases = [(number, case, dtype) for number, case in enumerate(MOVES) for dtype in types]
    cases += [(0, case, "FLOAT32") for case in FLOATS]
    return [
        pytest.param(
            case,
            dtype,
            id=f"{case[0]}-{place}-{dtype}",
            marks=() if types[number % 3] == dtype else (pytest.mark.slow,),
        )
        for place, (number, case, dtype) in enumerate(cases)
    ]


@pytest.mark.parametrize(("case", "dtype"), _cases())
def test_equals_the_reference_kernels(case: Any, dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    op, shapes, results, constants, options = case
    if op in ("TOPK_V2", "ARG_MAX"):
        options = {**options, "types": [dtype, "INT32"] if op == "TOPK_V2" else ["INT32"]}
    model = serialize(model_of(op, shapes, results, *constants, dtype=dtype, **options))
    (tmp_path / "model.tflite").write_bytes(model)
    interpreter = reference_runner(model)
    g = np.random.default_rng(1)
    feeds = [g.integers(1, 100, detail["shape"]).astype(detail["dtype"]) for detail in interpreter.get_input_details()]
    want = run_interpreter(interpreter, feeds)
    with tc.Session(tc.convert(tmp_path / "model.tflite")) as session:
        found = list(session.run({port.name: x for port, x in zip(session.inputs, feeds, strict=True)}).values())
    for ours, theirs in zip(found, want, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("op", ["MEAN", "SUM"])
def test_refuses_integer_sums_of_no_elements(op: str, tmp_path: Path) -> None:
    """The reference kernel leaves the quantized result undefined."""
    model = model_of(op, [(0, 3)], [(3,)], i32([0]), dtype="INT8", table="ReducerOptions")
    (tmp_path / "model.tflite").write_bytes(serialize(model))
    with pytest.raises(UnsupportedError, match="over no elements"):
        tc.convert(tmp_path / "model.tflite")


def test_refuses_parts_of_different_extents(tmp_path: Path) -> None:
    """A part without elements must still fit to the others."""
    model = model_of("CONCATENATION", [(0, 3), (2, 4)], [(2, 4)], table="ConcatenationOptions", axis=0)
    (tmp_path / "model.tflite").write_bytes(serialize(model))
    with pytest.raises(UnsupportedError, match="cannot join"):
        tc.convert(tmp_path / "model.tflite")
