"""Unary composites become lookup tables; other composites stay float, with a reason."""

import numpy as np
import pytest

from tests.support.quantize.networks import Net, calibrate_and_annotate, signal_to_noise, sqnr_of_roundings
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.graph.legality import check_graph
from tpuconvert.schema.ops.normalization import GroupNorm
from tpuconvert.schema.ops.smooth_activation import Gelu, HardSigmoid, HardSwish, Mish, Silu, Softplus
from tpuconvert.schema.types import Chip


@pytest.mark.parametrize("chip", [Chip.BM1684, Chip.BM1686], ids=lambda chip: chip.value)
@pytest.mark.parametrize("op", [Silu(), Gelu(), HardSwish(), HardSigmoid(), Mish(), Softplus()], ids=str)
def test_an_activation_is_one_table(op, chip):
    net = Net()
    y = net.graph.add(op, net.conv(net.x, 4, "a", relu=False), name="activated")
    graph = net.done(net.conv(y, 4, "b"))
    samples, expected, reasons = calibrate_and_annotate(net, graph, chip)
    result = legalize(graph, chip, reasons)
    result.graph.validate()
    problems = ProblemList("net")
    check_graph(result.graph, chip, problems)
    problems.raise_if_any()
    names = [node.op.name for node in result.graph.nodes]
    assert op.name not in names
    table = result.graph.find("activated").producer
    assert table.op.name == "lut"
    assert table.inputs[1].array.size == 256
    assert result.float_nodes == ()
    with Session(result.graph) as session:
        found = [session.run(feeds)["b"] for feeds in samples]
    if chip is Chip.BM1686:  # the products of BM1684 are evaluated for their own chip in test_legalize
        # The operands of both products and of the table, its result, and two weights.
        assert signal_to_noise(np.stack([e["b"] for e in expected]), np.stack(found)) > sqnr_of_roundings(6)


@pytest.mark.parametrize("chip", [Chip.BM1684, Chip.BM1686], ids=lambda chip: chip.value)
def test_a_normalization_stays_float_and_whole(chip):
    net = Net()
    y = net.graph.add(GroupNorm(2), net.conv(net.x, 4, "a"), name="normal")
    graph = net.done(net.conv(y, 4, "b"))
    _, _, reasons = calibrate_and_annotate(net, graph, chip)
    result = legalize(graph, chip, reasons)
    assert result.graph.find("normal").producer.op == GroupNorm(2)
    reasons = {item.node: item.reason for item in result.float_nodes}
    assert reasons["normal"] == "it has no integer form"
