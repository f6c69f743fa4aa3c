"""Shape arithmetic is evaluated while the model is read and leaves no operator in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tflite.models import O, S, T, graph_of, ops, run, single
from tpuconvert.frontends.tflite.node import folds
from tpuconvert.schema.errors import UnsupportedError


def i32(*numbers: Any) -> T:
    return T(data=np.asarray(numbers[0] if len(numbers) == 1 else numbers, np.int32))


def i64(*numbers: Any) -> T:
    return T(data=np.asarray(numbers, np.int64))


CASES: Sequence[tuple[str, Sequence[T], Any, str, dict[str, Any]]] = [
    ("SHAPE", [T(shape=(3, 5))], [3, 5], "ShapeOptions", {"out_type": 2}),
    ("RANK", [T(shape=(3, 5))], 2, "", {}),
    ("ADD", [i32(1, 2), i32(10)], [11, 12], "AddOptions", {}),
    ("SUB", [i32(1, 2), i32(10)], [-9, -8], "SubOptions", {}),
    ("MUL", [i32(1, 2), i32(10)], [10, 20], "MulOptions", {}),
    ("DIV", [i32(7, -7), i32(2)], [3, -3], "DivOptions", {}),
    ("FLOOR_DIV", [i32(7, -7), i32(2)], [3, -4], "", {}),
    ("FLOOR_MOD", [i32(7, -7), i32(3)], [1, 2], "", {}),
    ("MAXIMUM", [i32(1, 5), i32(3)], [3, 5], "", {}),
    ("MINIMUM", [i32(1, 5), i32(3)], [1, 3], "", {}),
    ("NEG", [i32(1, -5)], [-1, 5], "", {}),
    ("ABS", [i32(1, -5)], [1, 5], "", {}),
    ("SQUARE", [i32(1, -5)], [1, 25], "", {}),
    ("SIGN", [i32(4, -5)], [1, -1], "", {}),
    ("ZEROS_LIKE", [i32(4, -5)], [0, 0], "", {}),
    ("EQUAL", [i32(1, 2), i32(2)], [0, 1], "", {}),
    ("NOT_EQUAL", [i32(1, 2), i32(2)], [1, 0], "", {}),
    ("LESS", [i32(1, 2), i32(2)], [1, 0], "", {}),
    ("LESS_EQUAL", [i32(1, 3), i32(2)], [1, 0], "", {}),
    ("GREATER", [i32(1, 3), i32(2)], [0, 1], "", {}),
    ("GREATER_EQUAL", [i32(1, 2), i32(2)], [0, 1], "", {}),
    ("LOGICAL_AND", [T(data=np.array([1, 1], bool)), T(data=np.array([0, 1], bool))], [0, 1], "", {}),
    ("LOGICAL_OR", [T(data=np.array([0, 1], bool)), T(data=np.array([0, 1], bool))], [0, 1], "", {}),
    ("LOGICAL_NOT", [T(data=np.array([0, 1], bool))], [1, 0], "", {}),
    ("SUM", [i32([[1, 2], [3, 4]]), i32([0])], [4, 6], "ReducerOptions", {}),
    ("REDUCE_PROD", [i32(2, 3, 4), i32([0])], [24], "ReducerOptions", {"keep_dims": True}),
    ("REDUCE_MAX", [i32(2, 3, 4), i32([0])], 4, "ReducerOptions", {}),
    ("REDUCE_MIN", [i32(2, 3, 4), i32([-1])], 2, "ReducerOptions", {}),
    ("REDUCE_ANY", [T(data=np.array([0, 1], bool)), i32([0])], 1, "ReducerOptions", {}),
    ("REDUCE_ALL", [T(data=np.array([0, 1], bool)), i32([0])], 0, "ReducerOptions", {}),
    ("SELECT", [T(data=np.array([0, 1], bool)), i32(1, 2), i32(3, 4)], [3, 2], "", {}),
    ("SELECT_V2", [T(data=np.array([0, 1], bool)), i32(1), i32(3, 4)], [3, 1], "", {}),
    ("RESHAPE", [i32(1, 2), i32(-1, 1)], [[1], [2]], "ReshapeOptions", {"new_shape": (-1, 1)}),
    ("SQUEEZE", [i32([[4, 5]])], [4, 5], "SqueezeOptions", {"squeeze_dims": (0,)}),
    ("EXPAND_DIMS", [i32(4, 5), i32(0)], [[4, 5]], "", {}),
    ("TRANSPOSE", [i32([[4, 5]]), i32(1, 0)], [[4], [5]], "", {}),
    ("PACK", [i32(1), i32(2), i32(3)], [1, 2, 3], "PackOptions", {"values_count": 3}),
    ("CONCATENATION", [i32(1, 2), i32([3])], [1, 2, 3], "ConcatenationOptions", {}),
    ("STRIDED_SLICE", [i32(4, 5, 6), i32([1]), i32([0]), i32([1])], 5, "StridedSliceOptions", {"shrink_axis_mask": 1}),
    ("STRIDED_SLICE", [i32(4, 5, 6), i32([0]), i32([0]), i32([-1])], [6, 5, 4], "StridedSliceOptions",
     {"begin_mask": 1, "end_mask": 1}),
    ("SLICE", [i32(4, 5, 6), i32([1]), i32([-1])], [5, 6], "", {}),
    ("GATHER", [i32(4, 5, 6), i32(2, 0)], [6, 4], "GatherOptions", {}),
    ("TILE", [i32(1, 2), i32([2])], [1, 2, 1, 2], "", {}),
    ("BROADCAST_TO", [i32([7]), i32([3])], [7, 7, 7], "", {}),
    ("BROADCAST_ARGS", [i32(1, 3), i32([5, 1, 1])], [5, 1, 3], "", {}),
    ("FILL", [i32(2, 1), i32(9)], [[9], [9]], "", {}),
    ("STABLEHLO_IOTA", [i32(0)], [[0, 0], [1, 1]], "StablehloIotaOptions", {"iota_dimension": 0}),
    ("RANGE", [i32(5), i32(0), i32(-2)], [5, 3, 1], "", {}),
    ("CAST", [T(data=np.asarray([2.7, -2.7], np.float32))], [2, -2], "CastOptions", {}),
    ("ADD", [i64(1 << 40), i64(-(1 << 40) + 3)], [3], "AddOptions", {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "expected", "table", "options"), CASES, ids=[case[0] for case in CASES])
def test_value(
    tmp_path: Path, op: str, inputs: Sequence[T], expected: Any, table: str, options: dict[str, Any]
) -> None:
    result = T(shape=np.asarray(expected).shape, type="INT32")
    graph = graph_of(tmp_path, single(op, inputs, [result], table, **options))
    assert ops(graph) == []
    (y,) = run(graph, *[np.zeros(tensor.shape) for tensor in inputs if tensor.data is None])
    assert y.tolist() == expected


def test_unpack(tmp_path: Path) -> None:
    parts = [T(shape=(), type="INT32")] * 2
    graph = graph_of(tmp_path, single("UNPACK", [i32(4, 5)], parts, "UnpackOptions", num=2))
    assert [int(y) for y in run(graph)] == [4, 5]


def test_every_evaluator_has_a_case() -> None:
    elsewhere = {"UNPACK", "DEQUANTIZE", "DENSIFY", "BITCAST"}
    assert set(folds.names()) - {case[0] for case in CASES} - elsewhere == set()


def test_densify_passes_dense_weights(tmp_path: Path) -> None:
    tensors = [T("d", data=np.asarray([2], np.float32)), T("w", (1,)), T("x", (1,)), T("y", (1,))]
    operators = [O("DENSIFY", [0], [1]), O("MUL", [2, 1], [3], "MulOptions")]
    graph = graph_of(tmp_path, S(tensors, operators, [2], [3]))
    assert ops(graph) == ["mul"]
    assert run(graph, [21])[0].tolist() == [42]


@pytest.mark.parametrize(
    ("given", "shape", "type_name", "expected"),
    [
        (np.asarray([1.0, -2.0], np.float32), (2,), "INT32", [0x3F800000, -0x40000000]),
        (np.asarray([258], np.int32), (1, 4), "UINT8", [[2, 1, 0, 0]]),
        (np.asarray([[2, 1], [0, 1]], np.uint8), (2,), "INT16", [258, 256]),
    ],
)
def test_bitcast(tmp_path: Path, given: Any, shape: Sequence[int], type_name: str, expected: list[Any]) -> None:
    """Little-endian bytes; the last axis appears or goes when sizes differ."""
    graph = graph_of(tmp_path, single("BITCAST", [T(data=given)], [T(shape=shape, type=type_name)]))
    assert run(graph)[0].tolist() == expected


def test_shapes_of_a_flattening_disappear(tmp_path: Path) -> None:
    """Flatten as exporters write it: SHAPE, STRIDED_SLICE, PACK, RESHAPE."""
    tensors = [T("x", (2, 3, 4)), T("shape", (3,), "INT32"), i32([0]), i32([1]), i32([1])]
    tensors += [T("batch", (), "INT32"), i32(12), T("target", (2,), "INT32"), T("y", (2, 12))]
    operators = [
        O("SHAPE", [0], [1], "ShapeOptions", {"out_type": 2}),
        O("STRIDED_SLICE", [1, 2, 3, 4], [5], "StridedSliceOptions", {"shrink_axis_mask": 1}),
        O("PACK", [5, 6], [7], "PackOptions", {"values_count": 2}),
        O("RESHAPE", [0, 7], [8]),
    ]
    graph = graph_of(tmp_path, S(tensors, operators, [0], [8]))
    assert ops(graph) == ["reshape"]
    assert graph.outputs[0].shape == (2, 12)
    changed = graph_of(tmp_path, S(tensors, operators, [0], [8]), input_shapes={"x": (5, 3, 4)})
    assert changed.outputs[0].shape == (5, 12)


@pytest.mark.parametrize(
    ("op", "inputs", "says"),
    [
        ("FLOOR_DIV", [i32(1), i32(0)], "divides by zero"),
        ("FILL", [i32(1 << 20, 1 << 20), i32(9)], "bytes, more than"),
        ("TILE", [i32(1, 2), i32([1 << 30])], "bytes, more than"),
        ("FILL", [i32([-1]), i32(9)], r"shape \[-1\]"),
        ("RANGE", [i32(0), i32(5), i32(0)], "the step is 0"),
        ("MUL", [i32(1 << 20), i32(1 << 20)], "leaves the range of int32"),
        ("ADD", [i32(1, 2), i32(1, 2, 3)], "broadcast"),
        ("GATHER", [i32(1, 2), i32([5])], "outside the extent 2"),
    ],
)
def test_refused(tmp_path: Path, op: str, inputs: Sequence[T], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        graph_of(tmp_path, single(op, inputs, [T(shape=(1,), type="INT32")]))


@pytest.mark.parametrize(("op", "inputs"), [("RANGE", [1, 2, 3]), ("FILL", [3, 1])])
def test_empty_constants_are_refused(op: str, inputs: list[int], tmp_path: Path) -> None:
    """The shape of a scalar is a constant without elements, where one element is needed."""
    tensors = [T(data=np.float32(3)), T("empty", (0,), "INT32"), i32(5), i32(1), T("y", (1,), "INT32")]
    operators = [O("SHAPE", [0], [1], "ShapeOptions", {"out_type": 2}), O(op, inputs, [4])]
    with pytest.raises(UnsupportedError, match="cannot reshape array of size 0"):
        graph_of(tmp_path, S(tensors, operators, [], [4]))
