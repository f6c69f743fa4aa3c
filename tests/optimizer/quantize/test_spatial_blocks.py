"""space_to_batch and batch_to_space move integers in a quantized network."""

import numpy as np
import pytest

from tests.support.quantize.networks import Net, calibrate_and_annotate, signal_to_noise, sqnr_of_roundings
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch
from tpuconvert.schema.types import F32, I8, U8, Chip, QuantParams, TensorType

CONVERSIONS = ("requant_fp32_to_int", "dequant_int_to_fp32", "cast", "muls")


@pytest.mark.parametrize("chip", [Chip.BM1684, Chip.BM1686])
def test_blocks_between_convolutions_move_as_integers(chip):
    net = Net()
    blocks = net.graph.add(SpaceToBatch((2, 2), (1, 1, 1, 1)), net.conv(net.x, 4, "a"), name="blocks")
    plane = net.graph.add(BatchToSpace((2, 2), (1, 1, 1, 1)), net.conv(blocks, 4, "b"), name="plane")
    graph = net.done(net.conv(plane, 4, "c"))
    samples, expected, reasons = calibrate_and_annotate(net, graph, chip)
    result = legalize(graph, chip, reasons)
    names = [node.op.name for node in result.graph.nodes]
    first, last = names.index("space_to_batch"), names.index("batch_to_space")
    assert result.float_nodes == ()
    assert not set(CONVERSIONS) & set(names[first : last + 1])
    assert all(result.graph.find(name).dtype in (I8, U8) for name in ("blocks", "plane"))
    seen = {}
    with Session(result.graph) as session:
        found = [session.run(feeds, observe=lambda value, array: seen.update({value.name: array})) for feeds in samples]
    moved = SpaceToBatch((2, 2), (1, 1, 1, 1)).evaluate(seen[result.graph.find("blocks").producer.inputs[0].name])[0]
    assert np.array_equal(seen["blocks"], moved)
    found_c = np.stack([f["c"] for f in found])  # three operands and three weights
    assert signal_to_noise(np.stack([e["c"] for e in expected]), found_c) > sqnr_of_roundings(6, is_power_of_two=True)


def annotated_blocks(zero_point: int, pad: int) -> Graph:
    """One space_to_batch of a source whose integers have this zero point."""
    graph, quant = Graph("q", "q.tflite"), QuantParams.per_tensor(0.1, zero_point, I8)
    graph.rescale = "tflite"
    x = graph.input("x", TensorType(F32, (1, 1, 4, 4)), Port("x", "int8", (1, 1, 4, 4), quant), quant)
    y = graph.add(SpaceToBatch((2, 2), (pad, pad, 0, 0)), x, name="y")
    y.quant = quant
    graph.output(y, Port("y", "int8", y.type.static_shape, quant))
    return graph


@pytest.mark.parametrize(("zero_point", "pad", "is_integer"), [(0, 1, True), (3, 0, True), (3, 1, False)])
def test_padding_blocks_needs_a_zero_point_of_zero(zero_point, pad, is_integer):
    result = legalize(annotated_blocks(zero_point, pad), Chip.BM1686)
    assert ([node.op.name for node in result.graph.nodes] == ["space_to_batch"]) == is_integer
    assert [item.reason for item in result.float_nodes] == (
        [] if is_integer else ["it pads with the integer 0, which is not the zero point"]
    )
    x = np.arange(-8, 8, dtype=np.int8).reshape(1, 1, 4, 4)
    with Session(result.graph) as session:
        found = session.run({"x": x})["y"]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (0, 0)), constant_values=zero_point)
    assert np.array_equal(found, SpaceToBatch((2, 2), (0, 0, 0, 0)).evaluate(padded)[0])
