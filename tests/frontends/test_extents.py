"""Operands of a wrong rank, and values that no file can have, are problems of the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.caffe.networks import layer, load_text, with_input
from tests.support.onnx.models import model, one, ramp, save_model
from tests.support.tflite.models import T, serialize, single
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.extents import Extents
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, TensorType


def test_extents_are_a_tuple() -> None:
    shape = Extents((2, 3, 4))
    assert shape == (2, 3, 4) and (shape[0], shape[-1], shape[1:]) == (2, 4, (3, 4))
    assert hash(shape) == hash((2, 3, 4)) and type((*shape, 5)) is tuple


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_does_not_exist(axis: int) -> None:
    with pytest.raises(CannotConvertError, match=rf"an operand of the shape \[2, 3\] has no axis {axis}"):
        Extents((2, 3))[axis]
    with pytest.raises(CannotConvertError, match=r"shape \[\] has no axis 0"):
        Extents((2, 3))[2:][0]


def test_values_that_no_file_can_have() -> None:
    g = Graph("g", "net")
    with pytest.raises(tc.ShapeError, match="9 axes, more than 8"):
        g.input("x", TensorType(F32, (1,) * 9))
    x = g.input("x", TensorType(F32, (1 << 20, 1 << 20)))
    with pytest.raises(tc.ShapeError, match="2199023255552 elements, more than"):
        g.input("y", TensorType(F32, (1 << 20, 1 << 21, "N")))
    assert g.add(Reshape((1 << 40,)), x).shape == (1 << 40,)


def i32(*numbers: int) -> T:
    return T(data=np.asarray(numbers, np.int32))


TFLITE: list[tuple[str, list[T], dict[str, Any], str]] = [
    ("TOPK_V2", [T(), T(data=np.int32(1))], {}, r"shape \[\] has no axis -1"),
    ("RNN", [T(shape=(1, 2)), *(T(data=np.float32(1)) for _ in range(3)), T(shape=(1, 2))],
     {"table": "RNNOptions"}, "has no axis 0"),
    ("SVDF", [T(shape=(1, 2)), T(data=np.float32(1)), T(data=np.float32(1))],
     {"table": "SVDFOptions", "rank": 1}, "has no axis 0"),
    ("UNSORTED_SEGMENT_PROD", [T(shape=(3, 2**31 - 1)), i32(0, 1, 1), T(data=np.int32(2))], {},
     r"too large .* constant of shape \[2147483647\]"),
    ("RELU", [T(shape=(1,) * 9)], {}, "too large .*: 9 axes, more than 8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "inputs", "options", "says"), TFLITE, ids=lambda item: item if isinstance(item, str) else ""
)
def test_tflite(op: str, inputs: list[T], options: dict[str, Any], says: str) -> None:
    content = serialize(single(op, inputs, [T()] * (2 if op == "TOPK_V2" else 1), **options))
    with pytest.raises(tc.UnsupportedError, match=says):
        tc.convert(content)


BYTES = np.ones((1, 1, 3, 3), np.int8)
ONNX: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("ConvInteger", [BYTES, np.int8(1), np.int8(0), np.ones(3, np.int8)], {}, r"has no axis 0"),
    ("GridSample", [ramp(1, 1, 3, 3), np.float32(1)], {}, "has no axis 0"),
    ("GatherND", [ramp(2, 3), np.int64(1)], {}, "has no axis -1"),
    ("ScatterND", [ramp(2, 3), np.int64(1), ramp(3)], {}, "has no axis -1"),
    ("Compress", [ramp(3), np.bool_(True)], {}, "has no axis 0"),
    ("Trilu", [np.ones(3, np.int64)], {}, "must have rank 2"),
    ("MatMulInteger", [BYTES, BYTES, np.int8(0), np.ones(0, np.int8)], {}, "must have elements"),
    ("DequantizeLinear", [np.ones((2, 4), np.int8), ramp(1, 2, 2)], {"axis": 1, "block_size": 2}, "block_size=2"),
    ("Col2Im", [ramp(1, 4, 9), np.array([4, 4]), np.array([2, 2])], {"strides": [0, 1]}, "below 1"),
    ("RoiAlign", [ramp(1, 2, 4, 4), ramp(2, 4), np.zeros(2, np.int64)], {"sampling_ratio": 2**31}, "ratio 2147483648"),
    (
        "ScatterElements",
        [np.ones((2, 2), np.int32), np.zeros((1, 2), np.int64), ramp(1, 2)],
        {"reduction": "add"},
        "not on this chip",
    ),
    ("Split", [ramp(4)], {"num_outputs": 2**31}, "cannot be split"),
    ("OneHot", [np.arange(3), np.int64(3), np.ones(0, np.float32)], {}, "out of bounds"),
]


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "says"), ONNX, ids=lambda item: item if isinstance(item, str) else ""
)
def test_onnx(op: str, operands: list[Any], attributes: dict[str, Any], says: str, tmp_path: Path) -> None:
    """The first operand is an input of the model, except for operators that are evaluated."""
    arrays = {f"c{index}": np.asarray(array) for index, array in enumerate(operands)}
    given = {} if op in ("Trilu", "OneHot") else {"c0": arrays.pop("c0")}
    node = one(op, *(f"c{index}" for index in range(len(operands))), **attributes)
    path = save_model(model([node], given, ["y"], arrays, opset=21), tmp_path)
    with pytest.raises(tc.UnsupportedError, match=says):
        tc.convert(path)


@pytest.mark.parametrize(
    ("type_", "parameters", "bottoms", "says"),
    [
        ("SPP", "spp_param { pyramid_height: 2147483647 }", "x", "pyramid_height 2147483647 for 2 x 2"),
        ("Filter", "", "", "has 0 bottoms, needs 1"),
    ],
)
def test_caffe(type_: str, parameters: str, bottoms: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(tc.UnsupportedError, match=says):
        load_text(tmp_path, with_input((1, 1, 2, 2), layer(type_, parameters, bottoms)))


def test_sequences_of_many_tensors(tmp_path: Path) -> None:
    proto = model([one("SplitToSequence", "x", outputs=["q"])], {"x": ramp(1, 1)}, ["q"], {})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**31 - 1
    with pytest.raises(tc.UnsupportedError, match="a sequence of 2147483647 tensors, more than 50000"):
        tc.convert(save_model(proto, tmp_path))
