"""MatMulNBits keeps the codes, scales and zero points of its file, with all options."""

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support.onnx.models import graph_of, ours, ramp
from tpuconvert.schema.ops.matmul_group_quantized import GROUPS, MatmulGroupQuantized, unpack_codes
from tpuconvert.schema.types import Array

ROWS = 6
OPTIONS = [
    (bits, block, zero, scale_type, has_index, has_bias, level)
    for number, (bits, block, zero, scale_type) in enumerate(
        itertools.product((2, 4, 8), (16, 32, 128, 512), ("none", "packed", "float"), (np.float32, np.float16))
    )
    for has_index, has_bias, level in [((number % 3 == 0), bool(number % 2), number % 5)]
]
"""All combinations of the first four options; the others vary with them."""


def n_bits(
    bits: int, block: int, zero: str, scale_type: type, has_index: bool, has_bias: bool, level: int
) -> tuple[onnx.ModelProto, dict[str, Array], Array]:
    """Return a model, its inputs, and the weight [K, N]; K has a partial block unless ``g_idx`` is there."""
    rng = np.random.default_rng(bits * block)
    depth = 2 * block if has_index else 2 * block + 8
    blocks = -(-depth // block)
    codes = rng.integers(0, 1 << bits, (ROWS, blocks * block))
    scale = rng.uniform(0.01, 0.02, (ROWS, blocks)).astype(scale_type)
    zeros: Array = np.full((ROWS, blocks), 1 << (bits - 1))
    constants = {"w": pack(codes, bits).reshape(ROWS, blocks, -1), "s": scale}
    if zero == "packed":
        zeros = rng.integers(0, 1 << bits, (ROWS, blocks))
        constants["z"] = pack(np.pad(zeros, ((0, 0), (0, -blocks % (8 // bits)))), bits)
    elif zero == "float":
        zeros = constants["z"] = (rng.uniform(0, (1 << bits) - 1, (ROWS, blocks))).astype(scale_type)
    group_of = np.arange(depth) // block
    if has_index:
        group_of = rng.permutation(group_of)
        constants["g"] = group_of.astype(np.int32)
    if has_bias:
        constants["b"] = ramp(ROWS).astype(scale_type)
    reads = ["x", "w", "s", *(name if name in constants else "" for name in "zgb")]
    while not reads[-1]:
        reads.pop()
    node = helper.make_node(
        "MatMulNBits", reads, ["y"], name="product", domain="com.microsoft",
        K=depth, N=ROWS, bits=bits, block_size=block, accuracy_level=level,
    )  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(scale_type))
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", kind, [3, depth])],
        [helper.make_tensor_value_info("y", kind, [3, ROWS])],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=domains, ir_version=9)
    weight = (codes[:, :depth] - zeros.astype(np.float64)[:, group_of]) * scale.astype(np.float64)[:, group_of]
    return proto, {"x": ramp(3, depth).astype(scale_type)}, weight.T


def pack(codes: Array, bits: int) -> Array:
    """Pack rows of codes into bytes, the first one in the lowest bits."""
    parts = codes.reshape(len(codes), -1, 8 // bits).astype(np.uint8)
    packed: Array = np.bitwise_or.reduce(parts << (bits * np.arange(8 // bits, dtype=np.uint8)), axis=2)
    return packed


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_codes_and_values_of_every_option(options: tuple, tmp_path: Path) -> None:
    bits, block, zero, scale_type, has_index, has_bias, _ = options
    proto, feeds, weight = n_bits(*options)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    graph = graph_of(proto, tmp_path)
    (node,) = (node for node in graph.nodes if isinstance(node.op, MatmulGroupQuantized))
    op = node.op
    assert isinstance(op, MatmulGroupQuantized)
    assert (op.bits, op.group) == (max(bits, 4), min(block, GROUPS[-1]))
    _, codes, scale, zeros, *_ = node.inputs
    assert codes is not None and scale is not None and (zeros is not None) == (zero != "none" or bits == 2)
    depth = len(weight)
    order = np.argsort(stored["g"], kind="stable") if has_index else np.arange(depth)
    expected = unpack_codes(stored["w"].reshape(ROWS, -1), bits)[:, order]
    np.testing.assert_array_equal(unpack_codes(codes.array, op.bits)[:, :depth], expected)
    repeats = block // op.group
    np.testing.assert_array_equal(scale.array[:, ::repeats], stored["s"].astype(np.float32))
    y = ours(proto, feeds, tmp_path)["y"]
    result = feeds["x"].astype(np.float64) @ weight + (stored["b"] if has_bias else 0)
    np.testing.assert_allclose(y, result, rtol=2e-3, atol=2e-2 if scale_type is np.float16 else 1e-4)


RUNS = [options for options in OPTIONS if options[0] != 2 and options[3] is np.float32 and options[1] < 512]


@pytest.mark.parametrize("options", RUNS, ids=str)
def test_values_are_those_of_onnx_runtime(options: tuple, tmp_path: Path) -> None:
    """It rounds activations at level 4, and ignores integer zero points of groups in another order."""
    runtime = pytest.importorskip("onnxruntime")
    bits, block, zero, scale_type, has_index, has_bias, _ = options
    if has_index and zero == "packed":
        pytest.skip("ignored by ONNX Runtime")
    proto, feeds, _ = n_bits(bits, block, zero, scale_type, has_index, has_bias, 1)
    try:
        session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        expected = session.run(None, feeds)[0]
    except Exception as error:
        pytest.skip(f"refused by ONNX Runtime: {str(error)[:100]}")
    np.testing.assert_allclose(ours(proto, feeds, tmp_path)["y"], expected, rtol=1e-3, atol=1e-3)
