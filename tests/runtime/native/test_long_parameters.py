"""Per-channel parameters of a model file, which are arrays until a tuple is requested."""

from pathlib import Path

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.loader import extension
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.array_fields import has_arrays
from tpuconvert.schema.file.file_format import FileModel, read_model, write_model
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, I32, Chip, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

CHANNELS = 50
SHAPE = (1, CHANNELS, 5, 4)


def in_units(graph: Graph, x: Value, random: np.random.Generator) -> Value:
    """Integer per-channel multipliers, which a residual add includes in its step."""
    factors = random.integers(5000, 20000, CHANNELS) << 16
    op = RequantInt32(
        multiplier_vec=tuple(factors.tolist()),
        shift_vec=(15,) * CHANNELS,
        is_mul_shift_pc=True,
        mode=RequantMode.TFLITE_LSHIFT,
        out_dtype=I32,
    )
    return graph.add(op, x)


def network() -> Graph:
    """x + convolution(x), with parameters per channel everywhere."""
    random = np.random.default_rng(5)
    graph = Graph("block")
    x = graph.input("x", TensorType(I8, SHAPE))
    weights = graph.constant(random.integers(-128, 128, (CHANNELS, CHANNELS, 1, 1)).astype(np.int8))
    bytes_ = RequantInt32(
        multiplier_vec=tuple(random.integers(1 << 30, 1 << 31, CHANNELS).tolist()),
        shift_vec=tuple(random.integers(-41, -38, CHANNELS).tolist()),
        is_mul_shift_pc=True,
        mode=RequantMode.MULTIPLIER_SHIFT,
        out_dtype=I8,
    )
    y = graph.add(bytes_, graph.add(ConvV2(), x, weights))
    total = graph.add(Add(), in_units(graph, y, random), in_units(graph, x, random))
    last = RequantInt32(multiplier_val=1 << 30, shift_val=-44, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8)
    graph.output(graph.add(last, total))
    return graph


@pytest.mark.parametrize("name", ["fused", "singly"])
def test_planning_makes_no_tuples_of_them(tmp_path: Path, name: str) -> None:
    graph = network()
    if name == "singly":
        for value in [node.outputs[0] for node in graph.nodes[:-1]]:
            graph.output(value)
    write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1686, "0"))
    read = read_model(tmp_path / "m.tpum")
    ops = [node.op for node in read.graph.nodes if has_arrays(node.op)]
    session = Session(read, backend="native", threads=1)
    assert len(ops) == 3 and not any({"multiplier_vec", "shift_vec"} & vars(op).keys() for op in ops)
    feeds = {"x": np.random.default_rng(6).integers(-128, 128, SHAPE).astype(np.int8)}
    assert [step.kind for step in session.profile(feeds)].count("conv_int8 1x1 + residual") == (name == "fused")
    wanted = Session(graph, backend="reference").run(feeds)
    for key, found in session.run(feeds).items():
        np.testing.assert_array_equal(found, wanted[key])
