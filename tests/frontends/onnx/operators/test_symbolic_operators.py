"""Single operators on symbolic axes, against NumPy: slices, resizes, unpooling and states of recurrent layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

import tpuconvert as tc
from tests.support.onnx.models import model, ramp
from tpuconvert.runtime.native.builder import loader
from tpuconvert.schema.errors import UnsupportedError, UsageError
from tpuconvert.schema.types import Array

CHIPS = ("bm1684", "bm1686")
BACKENDS = ("reference", *(("native",) if loader.extension() is not None else ()))


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A node; ``-`` is an empty name."""
    names = [["" if name == "-" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, name=f"{op}_{outputs.split()[0]}", **attributes)


def symbolic(
    nodes: Sequence[NodeProto], shape: Sequence[int | str], outputs: str = "y", opset: int = 17, **constants: Array
) -> onnx.ModelProto:
    proto = model(nodes, {"x": ramp(1)}, outputs.split(), constants, opset=opset)
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    return proto


def run(proto: onnx.ModelProto, *inputs: Array, chip: str = "bm1686") -> list[Array]:
    """The first output for each input."""
    with tc.Session(tc.convert(proto, chip=chip), threads=1) as session:
        return [session.run({"x": x})[proto.graph.output[0].name] for x in inputs]


SLICES = [
    (-100, 2**63 - 1, 1), (-100, 2**31 - 1, 1), (-3, -1, 1), (-3, 100, 1), (0, 3, 1), (1, 100, 2), (-4, 4, 1),
    (-(2**63), 2, 1), (-1, -(2**63), -1), (-2, -4, -1), (100, 0, -2), (3, -(2**31), -1), (-3, -1, 2),
]  # fmt: skip


@pytest.mark.parametrize(("start", "end", "step"), SLICES)
@pytest.mark.parametrize("chip", CHIPS)
def test_slices_of_a_symbolic_axis_are_clamped(start: int, end: int, step: int, chip: str) -> None:
    constants = {"s": i64(start), "e": i64(end), "a": i64(1), "t": i64(step)}
    proto = symbolic([node("Slice", "x s e a t", "y")], ["B", "S", 2], **constants)
    inputs = [ramp(2, extent, 2) for extent in (4, 5, 7)]
    for x, found in zip(inputs, run(proto, *inputs, chip=chip), strict=True):
        np.testing.assert_array_equal(found, x[:, start:end:step])


def test_an_empty_axis_and_a_symbolic_one() -> None:
    proto = symbolic([node("Slice", "x s e a", "y")], ["N", 3], s=i64(-4, 1), e=i64(2**63 - 1, 1), a=i64(0, 1))
    assert [found.shape for found in run(proto, ramp(9, 3), ramp(2, 3))] == [(4, 0), (2, 0)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("start", "end", "step"), [(5, 9, 1), (-2, 2, 3), (-2, 1, 1), (1, 2**63 - 1, 2), (0, -1, 1), (-7, -5, 1)]
)
def test_slices_that_leave_nothing(start: int, end: int, step: int, backend: str) -> None:
    constants = {"s": i64(start), "e": i64(end), "a": i64(1), "t": i64(step)}
    nodes = [node("Slice", "x s e a t", "y"), node("Shape", "y", "n"), node("ReduceSum", "y a", "z", keepdims=0)]
    proto = symbolic(nodes, ["B", "S", 2], **constants)
    outputs = [
        helper.make_tensor_value_info(n, t, None) for n, t in (("n", TensorProto.INT64), ("z", TensorProto.FLOAT))
    ]
    proto.graph.output.extend(outputs)
    with tc.Session(tc.convert(proto), backend=backend, threads=1) as session:
        for extent in (1, 2, 3, 4, 8):
            x = ramp(2, extent, 2)
            y, n, z = session.run({"x": x}).values()
            expected = x[:, start:end:step]
            np.testing.assert_array_equal(y, expected)
            np.testing.assert_array_equal(n, expected.shape)
            np.testing.assert_allclose(z, expected.sum(axis=1), rtol=1e-6, atol=1e-6)


def test_a_slice_of_one_element_that_does_not_exist_is_an_error_of_the_run() -> None:
    """Its extent is the number 1, with which the following operators are converted."""
    proto = symbolic([node("Slice", "x s e a", "y")], ["B", "S", 2], s=i64(5), e=i64(6), a=i64(1))
    assert run(proto, ramp(1, 7, 2))[0].shape == (1, 1, 2)
    with pytest.raises(UsageError, match=r"leaves none of 4 elements"):
        run(proto, ramp(1, 4, 2))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("op", "expected"),
    [("ReduceMax", -np.inf), ("ReduceMin", np.inf), ("ReduceLogSumExp", -np.inf), ("ReduceSum", 0), ("ReduceProd", 1)],
)
def test_reductions_of_no_elements(op: str, expected: float, backend: str) -> None:
    """As the standard (opset 20) defines them for every operator with a neutral element."""
    axes = {"a": i64(1)} if op == "ReduceSum" else {}
    proto = symbolic([node(op, "x a" if axes else "x", "y", **({} if axes else {"axes": [1]}))], ["B", "S", 2], **axes)
    with tc.Session(tc.convert(proto), backend=backend, threads=1) as session:
        np.testing.assert_array_equal(session.run({"x": ramp(3, 0, 2)})["y"], np.full((3, 1, 2), expected, np.float32))


def test_the_end_int_max_with_a_negative_step() -> None:
    """ONNX Runtime takes all elements, the standard none."""
    proto = symbolic([node("Slice", "x s e a t", "y")], [3, 4], s=i64(-1), e=i64(2**63 - 1), a=i64(1), t=i64(-1))
    with pytest.raises(UnsupportedError, match="the standard and ONNX Runtime have different readings"):
        tc.convert(proto)


def test_slices_that_begin_before_the_first_element() -> None:
    """With a negative step, the start is clamped to the first element; NumPy takes none."""
    proto = symbolic([node("Slice", "x s e a t", "y")], [3, 4], s=i64(-9), e=i64(-(2**63)), a=i64(1), t=i64(-1))
    x = ramp(3, 4)
    np.testing.assert_array_equal(run(proto, x)[0], x[:, :1])


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [["N", 1, 2, 2], ["N", 1, "H", 2], ["N", "C", "H", "W"]], ids=str)
def test_linear_resize(shape: list[int | str], chip: str) -> None:
    scales = np.array([1, 1, 1, 2], np.float32)
    proto = symbolic([node("Resize", "x - scales", "y", mode="linear")], shape, opset=13, scales=scales)
    x = np.array([[[[0, 4], [8, 16]]], [[[1, 1], [2, 2]]]], np.float32)
    (found,) = run(proto, x, chip=chip)
    assert found.tolist() == [[[[0, 1, 3, 4], [8, 10, 14, 16]]], [[[1, 1, 1, 1], [2, 2, 2, 2]]]]


def test_one_axis_to_a_size_and_a_symbolic_one_by_a_factor() -> None:
    """5 columns to 9 are not a multiple, beside rows whose new extent is a multiple of a symbolic one."""
    nodes = [
        node("Shape", "x", "s"), node("Slice", "s zero three", "lead"), node("Mul", "lead ones", "scaled"),
        node("Concat", "scaled nine", "sizes", axis=0), node("Resize", "x - - sizes", "y", mode="nearest"),
    ]  # fmt: skip
    constants = {"zero": i64(0), "three": i64(3), "ones": i64(1, 1, 2), "nine": i64(9)}
    (found,) = run(symbolic(nodes, ["N", 1, "H", 5], opset=13, **constants), ramp(2, 1, 3, 5))
    assert found.shape == (2, 1, 6, 9)


def test_symbolic_sizes_that_are_constants() -> None:
    proto = symbolic([node("Resize", "x - - z", "y", mode="nearest")], ["N", 1, "H", 2], opset=13, z=i64(1, 1, 4, 2))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    assert run(proto, x)[0].tolist() == [[[[0, 1], [0, 1], [2, 3], [2, 3]]]]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_softmax_before_opset_13(op: str, rank: int) -> None:
    """All axes from ``axis`` on are one axis, for static and symbolic extents."""
    shape = (2, 3, 2, 1, 3)[:rank]
    x = ramp(*shape)
    for axis in range(-rank, rank):
        flat = x.reshape(int(np.prod(shape[:axis])) if axis % rank else 1, -1)
        power = np.exp(flat - flat.max(1, keepdims=True))
        expected = power / power.sum(1, keepdims=True)
        if op == "Hardmax":
            expected = (flat == flat.max(1, keepdims=True)).astype(np.float32)
        expected = np.log(expected) if op == "LogSoftmax" else expected
        for extents in (shape, ["A", "B", "C", "D", "E"][:rank]):
            (found,) = run(symbolic([node(op, "x", "y", axis=axis)], extents, opset=11), x)
            np.testing.assert_allclose(found, expected.reshape(shape), atol=1e-5)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("op", ["GroupNormalization", "LogSoftmax", "AveragePool", "MaxPool"])
def test_all_extents_but_the_channels_are_symbolic(op: str, chip: str) -> None:
    attributes: dict[str, Any] = {"num_groups": 2} if op == "GroupNormalization" else {"kernel_shape": [2, 2, 2]}
    attributes = {"axis": 1} if op == "LogSoftmax" else attributes
    opset, inputs = (18, "x s b") if op == "GroupNormalization" else (11, "x")
    constants = {"s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)} if op == "GroupNormalization" else {}
    proto = symbolic([node(op, inputs, "y", **attributes)], ["N", 4, "D", "H", "W"], opset=opset, **constants)
    assert run(proto, ramp(2, 4, 3, 2, 4), chip=chip)[0].shape[:2] == (2, 4)


@pytest.mark.parametrize("shape", [[2, 2, 5, 5], ["N", 2, "H", "W"]], ids=str)
@pytest.mark.parametrize("chip", CHIPS)
def test_unpooling_to_the_shape_before_pooling(shape: list[int | str], chip: str) -> None:
    """SegNet: the positions belong to the plane before pooling, also to an odd one."""
    nodes = [
        node("MaxPool", "x", "p i", kernel_shape=[2, 2], strides=[2, 2]), node("Neg", "p", "n"),
        node("Shape", "x", "s"), node("MaxUnpool", "n i s", "y", kernel_shape=[2, 2], strides=[2, 2]),
    ]  # fmt: skip
    x = ramp(2, 2, 5, 5)
    expected = np.zeros_like(x)
    for n, c, row, column in np.ndindex(2, 2, 2, 2):
        window = x[n, c, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        down, along = np.unravel_index(window.argmax(), (2, 2))
        expected[n, c, 2 * row + down, 2 * column + along] = -window.max()
    np.testing.assert_array_equal(run(symbolic(nodes, shape), x, chip=chip)[0], expected)


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {
    "ConstantOfShape": [node("ConstantOfShape", "size", "h")],
    "Expand": [node("Expand", "zero size", "h")],
    "Where": [
        node("Equal", "size minus", "e"), node("Where", "e ones size", "known"), node("Expand", "none known", "h"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("how", STATES)
def test_zero_states_of_a_symbolic_batch(op: str, how: str) -> None:
    """The states that exporters of PyTorch make from the shape of the input; without them a state is zero too."""
    directions, hidden, length = 2, 4, 3
    constants = {
        "w": ramp(directions, GATES[op] * hidden, length, seed=1), "r": ramp(directions, GATES[op] * hidden, hidden),
        "zero_index": np.array(0), "first": i64(0), "d": i64(directions), "units": i64(hidden),
        "zero": np.zeros((directions, 1, hidden), np.float32), "none": np.zeros((), np.float32),
        "minus": i64(-1, -1, -1), "ones": i64(1, 1, 1),
    }  # fmt: skip
    states = "h h" if op == "LSTM" else "h"
    layer = {"hidden_size": hidden, "direction": "bidirectional"}
    lead = [
        node("Shape", "x", "s"), node("Gather", "s zero_index", "g"), node("Unsqueeze", "g first", "u"),
        node("Concat", "d u units", "size", axis=0), *STATES[how], node("Transpose", "x", "xt", perm=[1, 0, 2]),
    ]  # fmt: skip
    with_states = symbolic([*lead, node(op, f"xt w r - - {states}", "y", **layer)], ["B", "T", length], **constants)
    plain = symbolic([lead[-1], node(op, "xt w r", "y", **layer)], ["B", "T", length], **constants)
    inputs = [ramp(2, 5, length), ramp(1, 1, length)]
    for found, expected in zip(run(with_states, *inputs), run(plain, *inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("chip", CHIPS)
def test_size_as_an_output_is_warned_about_at_the_output(chip: str) -> None:
    """The nodes that compute it belong to no source node."""
    proto = symbolic([node("Size", "x", "y")], ["B", 3, "S"])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, []))
    converted = tc.convert(proto, chip=chip)
    assert [note.node for note in converted.notes if note.kind == "deviation"] == ["y"]
    with tc.Session(converted, threads=1) as session:
        assert session.run({"x": ramp(2, 3, 5)})["y"] == 30


@pytest.mark.parametrize(
    ("nodes", "constants", "expected"),
    [
        ([node("Concat", "x c", "y", axis=1)], {"c": np.zeros((0, 3, 2), np.float32)}, (0, 7, 2)),
        ([node("Concat", "c x", "y", axis=1)], {"c": np.zeros((0, 3, 2), np.float32)}, (0, 7, 2)),
        ([node("Concat", "c c", "y", axis=1)], {"c": np.zeros((2, 0, 3), np.float32)}, (2, 0, 3)),
        ([node("GatherElements", "x c", "y", axis=2)], {"c": np.zeros((0, 2, 5), np.int64)}, (0, 2, 5)),
        ([node("GatherND", "x c", "y", batch_dims=1)], {"c": np.zeros((0, 3, 1), np.int64)}, (0, 3, 2)),
        ([node("Gather", "x c", "t", axis=0), node("Relu", "t", "y")], {"c": np.zeros((2, 0), np.int64)}, (2, 0, 4, 2)),
    ],
)
def test_constants_without_elements(nodes: list[NodeProto], constants: dict[str, Array], expected: Any) -> None:
    """A symbolic axis beside an empty constant is empty; the other extents count."""
    (found,) = run(symbolic(nodes, ["B", 4, 2], **constants), ramp(0, 4, 2))
    assert found.shape == expected


@pytest.mark.parametrize("reader", ["Identity", "Relu"])
def test_extents_as_a_tensor_of_higher_rank(reader: str) -> None:
    cast = [node("Unsqueeze", "n a", "m"), node("Cast", "m", "f", to=TensorProto.FLOAT), node("Relu", "f", "y")]
    nodes = [node("Shape", "x", "n"), *(cast if reader == "Relu" else [node("Unsqueeze", "n a", "y")])]
    proto = symbolic(nodes, ["B", 4, 2], a=i64(-2, -3))
    if reader == "Identity":
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [1, 1, 3]))
    (found,) = run(proto, ramp(3, 4, 2))
    np.testing.assert_array_equal(found, [[[3, 4, 2]]])


@pytest.mark.parametrize("op", ["Greater", "Concat"])
def test_an_empty_constant_has_the_rank_of_the_other_operand(op: str) -> None:
    attributes = {"axis": 1} if op == "Concat" else {}
    shape = (2, 0, 3) if op == "Concat" else (0, 3)
    empty = np.empty(shape, np.float32)
    proto = symbolic([node(op, "x c", "y", **attributes)], [2, "N", 3], opset=13, c=empty)
    assert run(proto, np.empty((2, 0, 3), np.float32))[0].shape == (2, 0, 3)
