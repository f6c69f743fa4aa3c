"""Integers of packed weights stay packed in graphs that compute float weights, as exporters of PyTorch write them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tpuconvert as tc
from tests.support.onnx.models import graph_of, model, one, ops, ours, ramp
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized, unpack_codes
from tpuconvert.schema.types import Array

DEPTH, COLUMNS, BLOCK, PER_WORD = 64, 24, 16, 8
GROUPS = DEPTH // BLOCK
X = {"x": ramp(3, DEPTH)}


def words(integers: Array) -> Array:
    """Pack rows of 4 bits into words of 32 bits, the first row in the lowest bits."""
    parts = integers.reshape(-1, PER_WORD, integers.shape[1]).astype(np.uint32)
    packed: Array = sum(parts[:, index] << np.uint32(4 * index) for index in range(PER_WORD))
    return packed


class Expansion:
    """A graph that computes a weight from packed integers, and the integers and scales that it has.

    Args:
        scale_type: type of the scales in the file.
        group_of: group of each input, or None for groups in order.
        zero_points: zero points, [groups, columns].
    """

    def __init__(self, scale_type: type = np.float16, group_of: Array | None = None, zero_points: Array | None = None):
        rng = np.random.default_rng(0)
        self.integers = rng.integers(0, 16, (DEPTH, COLUMNS))
        self.zero = rng.integers(0, 16, (GROUPS, COLUMNS)) if zero_points is None else zero_points
        self.scale = rng.uniform(0.01, 0.02, (GROUPS, COLUMNS)).astype(scale_type)
        self.group_of = np.arange(DEPTH) // BLOCK if group_of is None else group_of
        self.constants: dict[str, Array] = {"scales": self.scale}
        self.nodes: list[onnx.NodeProto] = []

    @property
    def differences(self) -> Array:
        """Integers minus their zero points, [inputs, columns]."""
        return self.integers - self.zero[self.group_of]

    def add(self, op: str, *inputs: str | Array, **attributes: object) -> str:
        """Add a node, whose inputs may be constants; return the name of its result."""
        names = []
        for value in inputs:
            if not isinstance(value, str):
                name = f"c{len(self.constants)}"
                self.constants[name] = np.asarray(value)
                value = name
            names.append(value)
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [result], **attributes))
        return result

    def shift_by_bits(self, packed: Array, axis: int) -> str:
        """Unpack words along an axis with BitShift, as the exporter with dynamo does."""
        shifts = np.arange(0, 32, 4, dtype=np.uint32)
        shape = [1, 1, 1]
        shape[axis] = PER_WORD
        wide = self.add("BitShift", np.expand_dims(packed, axis), shifts.reshape(shape), direction="RIGHT")
        return self.add("BitwiseAnd", self.add("Cast", wide, to=onnx.TensorProto.INT8), np.int8(15))

    def shift_by_powers(self, packed: Array, axis: int) -> str:
        """Unpack words along an axis with divisions, as the TorchScript exporter does. They fit 31 bits."""
        shape = [1, 1, 1]
        shape[axis] = PER_WORD
        powers = self.add("Pow", np.float32(2), np.arange(0, 32, 4, dtype=np.float32).reshape(shape))
        divisors = self.add("Cast", powers, to=onnx.TensorProto.INT32)
        wide = self.add("Div", np.expand_dims(packed.astype(np.int32), axis), divisors)
        return self.add("BitwiseAnd", self.add("Cast", wide, to=onnx.TensorProto.INT8), np.int8(15))

    def cast(self, x: str) -> str:
        """Cast to the type of the scales."""
        return self.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(self.scale.dtype))

    def finish(self, weight: str, x: str = "x") -> onnx.ModelProto:
        """Return the model with a matmul in FLOAT32."""
        wide = self.add("Cast", weight, to=onnx.TensorProto.FLOAT)
        return model([*self.nodes, one("MatMul", x, wide)], X, ["y"], self.constants, opset=18, ir_version=9)

    def gptq(self, *, by_powers: bool = False) -> onnx.ModelProto:
        """Blocks of rows: words pack eight rows of the weight, and eight columns of the zero points."""
        unpack = self.shift_by_powers if by_powers else self.shift_by_bits
        codes = unpack(words(self.integers), 1)
        zero = unpack(words(self.zero.T).T, 2)
        rows = self.add("Reshape", codes, np.array([GROUPS, BLOCK, COLUMNS]))
        zeros = self.add("Reshape", zero, np.array([GROUPS, 1, COLUMNS]))
        difference = self.cast(self.add("Sub", rows, zeros))
        scaled = self.add("Mul", self.scale.reshape(GROUPS, 1, COLUMNS), difference)
        return self.finish(self.add("Reshape", scaled, np.array([DEPTH, COLUMNS])))

    def gptq_by_index(self) -> onnx.ModelProto:
        """A group per row, with gathered scales and zero points."""
        index = self.group_of.astype(np.int64)
        codes = self.add("Reshape", self.shift_by_bits(words(self.integers), 1), np.array([DEPTH, COLUMNS]))
        zero = self.add("Reshape", self.shift_by_bits(words(self.zero.T).T, 2), np.array([GROUPS, COLUMNS]))
        difference = self.cast(self.add("Sub", codes, self.add("Gather", zero, index)))
        return self.finish(self.add("Mul", self.add("Gather", "scales", index), difference))

    def awq(self) -> onnx.ModelProto:
        """Words pack eight columns in another order, and scales are repeated."""
        order = np.array([0, 2, 4, 6, 1, 3, 5, 7])

        def unpacked(integers: Array) -> str:
            mixed = integers.reshape(len(integers), -1, PER_WORD)[:, :, order].reshape(len(integers), -1)
            codes = self.add("Reshape", self.shift_by_bits(words(mixed.T).T, 2), np.array(integers.shape))
            back = np.arange(COLUMNS).reshape(-1, PER_WORD)[:, np.argsort(order)].reshape(-1)
            return self.add("Gather", codes, back, axis=1)

        def repeated(x: str) -> str:
            wide = self.add("Tile", self.add("Unsqueeze", x, np.array([1])), np.array([1, BLOCK, 1]))
            return self.add("Reshape", wide, np.array([DEPTH, COLUMNS]))

        difference = self.cast(self.add("Sub", unpacked(self.integers), repeated(unpacked(self.zero))))
        return self.finish(self.add("Mul", difference, repeated("scales")))


def packed_integers(graph: Graph) -> tuple[Array, Array]:
    """Return the integers minus zero points, [K, N], and the scales, [groups, N], of the only matmul."""
    (node,) = (node for node in graph.nodes if isinstance(node.op, MatmulGroupQuantized))
    op = node.op
    assert isinstance(op, MatmulGroupQuantized)
    _, codes, scale, zero, *_ = node.inputs
    assert codes is not None and scale is not None
    offsets: Array = np.full(scale.array.shape, 1 << (op.bits - 1))
    if zero is not None:
        is_float = zero.array.dtype.kind == "f"
        offsets = zero.array if is_float else unpack_codes(zero.array, op.bits)[:, : scale.array.shape[1]]
    differences = unpack_codes(codes.array, op.bits) - np.repeat(offsets, op.group, axis=1).astype(np.float32)
    return differences.T, scale.array.T


@pytest.mark.parametrize("scale_type", [np.float16, np.float32])
@pytest.mark.parametrize("form", ["gptq", "gptq by powers", "gptq by index", "awq"])
def test_expanded_integers_stay_packed(form: str, scale_type: type, tmp_path: Path) -> None:
    expansion = Expansion(scale_type)
    expansion.integers[7::8] %= 8  # signed words would be divided toward 0
    expansion.zero[:, 7::8] %= 8
    proto = {
        "gptq": expansion.gptq,
        "gptq by powers": lambda: expansion.gptq(by_powers=True),
        "gptq by index": expansion.gptq_by_index,
        "awq": expansion.awq,
    }[form]()
    differences, scale = packed_integers(graph_of(proto, tmp_path))
    np.testing.assert_array_equal(differences[:DEPTH], expansion.differences)
    np.testing.assert_array_equal(scale, expansion.scale.astype(np.float32))
    weight = expansion.differences * expansion.scale[expansion.group_of].astype(np.float64)
    np.testing.assert_allclose(ours(proto, X, tmp_path)["y"], X["x"] @ weight, rtol=1e-3, atol=1e-5)


def test_values_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    for proto in (Expansion(np.float32).gptq(), Expansion(np.float32).awq()):
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(ours(proto, X, tmp_path)["y"], session.run(None, X)[0], rtol=1e-4, atol=1e-5)


def test_groups_in_another_order_sort_the_operand(tmp_path: Path) -> None:
    group_of = np.random.default_rng(1).permutation(DEPTH) // BLOCK
    expansion = Expansion(np.float32, group_of)
    proto = expansion.gptq_by_index()
    graph = graph_of(proto, tmp_path)
    assert ops(graph) == ["index_select", "matmul_group_quantized"]
    order = graph.nodes[0].inputs[1]
    assert order is not None
    assert all(len(set(block)) == 1 for block in group_of[order.array].reshape(GROUPS, BLOCK))
    np.testing.assert_array_equal(packed_integers(graph)[0], expansion.differences[order.array])
    weight = expansion.differences * expansion.scale[group_of]
    np.testing.assert_allclose(ours(proto, X, tmp_path)["y"], X["x"] @ weight, rtol=1e-4, atol=1e-5)


def test_zero_points_outside_of_the_codes_are_floats(tmp_path: Path) -> None:
    """GPTQ stores a zero point minus 1, so that it may be 16."""
    expansion = Expansion(np.float32)
    codes, integers = expansion.gptq(), expansion.integers
    bias = next(node for node in codes.graph.node if node.op_type == "Sub")
    position = list(codes.graph.node).index(bias)
    codes.graph.initializer.append(numpy_helper.from_array(np.int8(1), "one"))
    codes.graph.node.insert(position, helper.make_node("Add", [bias.input[1], "one"], ["more"]))
    codes.graph.node[position + 1].input[1] = "more"
    graph = graph_of(codes, tmp_path)
    np.testing.assert_array_equal(packed_integers(graph)[0], integers - 1 - expansion.zero[expansion.group_of])


def test_groups_of_different_sizes_stay_float_with_a_note(tmp_path: Path) -> None:
    group_of = np.arange(DEPTH) // BLOCK
    group_of[20] = 0
    graph = graph_of(Expansion(np.float32, group_of).gptq_by_index(), tmp_path)
    assert "matmul_group_quantized" not in ops(graph)
    (note,) = (note for note in graph.notes if "are not kept" in note)
    assert note.startswith("'the_MatMul'") and "no groups of a multiple of 16 inputs" in note


def test_scales_of_outputs_stay_float(tmp_path: Path) -> None:
    """A float weight with a scale per output can be quantized with other types."""
    integers = np.random.default_rng(0).integers(-8, 8, (DEPTH, COLUMNS)).astype(np.int8)
    nodes = [
        helper.make_node("Cast", ["w"], ["wf"], to=onnx.TensorProto.FLOAT),
        one("Mul", "wf", "s", "ws"),
        one("MatMul", "x", "ws"),
    ]
    nodes[1] = helper.make_node("Mul", ["wf", "s"], ["ws"])
    proto = model(nodes, X, ["y"], {"w": integers, "s": ramp(1, COLUMNS)}, opset=18, ir_version=9)
    assert "matmul_group_quantized" not in ops(graph_of(proto, tmp_path))


def test_integers_of_more_than_8_bits_stay_float(tmp_path: Path) -> None:
    integers = np.random.default_rng(0).integers(-200, 200, (DEPTH, COLUMNS)).astype(np.int16)
    scale = ramp(GROUPS, 1, low=0.1).repeat(BLOCK, axis=0)
    nodes = [
        helper.make_node("Cast", ["w"], ["wf"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["wf", "s"], ["ws"]),
        one("MatMul", "x", "ws"),
    ]
    proto = model(nodes, X, ["y"], {"w": integers, "s": scale}, opset=18, ir_version=9)
    assert "matmul_group_quantized" not in ops(graph_of(proto, tmp_path))
    np.testing.assert_allclose(ours(proto, X, tmp_path)["y"], X["x"] @ (integers * scale), rtol=1e-3, atol=0.1)


def blocked(
    axis: int, block: int, shape: tuple[int, int], nodes: list[onnx.NodeProto], **feeds: Array
) -> onnx.ModelProto:
    """A model with a constant of 4 bits and blocks along an axis."""
    count = -(-shape[axis] // block)
    w = helper.make_tensor("w", onnx.TensorProto.UINT4, shape, np.random.default_rng(0).integers(0, 16, shape))
    scale = ramp(*((count, shape[1]) if axis == 0 else (shape[0], count)), low=0.1)
    dequantize = helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"], "dequantize", axis=axis, block_size=block)
    proto = model([dequantize, *nodes], feeds, ["y"], {"ws": scale}, opset=21, ir_version=10)
    proto.graph.initializer.append(w)
    return proto


def test_blocks_stay_packed_through_a_transpose(tmp_path: Path) -> None:
    nodes = [helper.make_node("Transpose", ["wr"], ["wt"], perm=[1, 0]), one("MatMul", "x", "wt")]
    proto = blocked(1, BLOCK, (COLUMNS, DEPTH), nodes, **X)
    integers = numpy_helper.to_array(proto.graph.initializer[1]).astype(np.int64)
    graph = graph_of(proto, tmp_path)
    np.testing.assert_array_equal(packed_integers(graph)[0], integers.T)


def test_lookup_in_a_table_with_blocks_stays_packed(tmp_path: Path) -> None:
    ids = np.array([[3, 0, -1]])
    proto = blocked(1, BLOCK, (COLUMNS, DEPTH), [one("Gather", "wr", "ids")], ids=ids)
    assert "gather_group_quantized" in ops(graph_of(proto, tmp_path))
    table = numpy_helper.to_array(proto.graph.initializer[1]).astype(np.float32)
    table *= np.repeat(numpy_helper.to_array(proto.graph.initializer[0]), BLOCK, axis=1)
    np.testing.assert_array_equal(ours(proto, {"ids": ids}, tmp_path)["y"], table[ids])


@pytest.mark.parametrize(
    ("axis", "block", "message"),
    [
        (
            0,
            8,
            "'dequantize': the integers of 'w' are not kept, because rank 2, uint4 and blocks of 8 have no packed form",
        ),
        (1, 16, "'wr': its integers are not kept, because an operator other than a matmul along their blocks"),
    ],
)
def test_note_names_integers_that_are_not_kept(axis: int, block: int, message: str, tmp_path: Path) -> None:
    graph = graph_of(blocked(axis, block, (DEPTH, COLUMNS), [one("MatMul", "x", "wr")], **X), tmp_path)
    assert "matmul_group_quantized" not in ops(graph)
    (note,) = (note for note in graph.notes if "are not kept" in note)
    assert note.startswith(message)


@pytest.mark.parametrize("operator", ["", "Cast", "Transpose"])
def test_constants_without_inputs_are_float_weights(operator: str) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    stored = {"": array, "Cast": array.astype(np.float64), "Transpose": np.ascontiguousarray(array.T)}[operator]
    nodes = [helper.make_node("Constant", [], ["stored"], value=numpy_helper.from_array(stored))]
    if operator:
        attributes = {"to": onnx.TensorProto.FLOAT} if operator == "Cast" else {}
        nodes.append(helper.make_node(operator, ["stored"], ["w"], **attributes))
    nodes.append(helper.make_node("MatMul", ["x", "w" if operator else "stored"], ["y"]))
    ports = [helper.make_tensor_value_info(*port) for port in (("x", 1, [2, 3]), ("y", 1, [2, 4]))]
    proto = helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:]))
    x = np.ones((2, 3), np.float32)
    with tc.Session(tc.convert(proto)) as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], x @ array)
