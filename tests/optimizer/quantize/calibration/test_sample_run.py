"""Samples that run part by part get the values of a whole run."""

import numpy as np
import pytest

from tests.support.quantize.networks import Net, calibrate_and_annotate
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.optimizer.quantize.calibration.sample_run import SampleRun
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.types import Array, Chip


def integer_graph() -> tuple[Graph, list[dict[str, Array]]]:
    """A residual network in integers, whose inputs and outputs are float; two of its values leave it."""
    net = Net()
    first = net.conv(net.x, 8, "first")
    second = net.graph.add(Add(), first, net.conv(first, 8, "second"), name="sum")
    graph = net.done(net.conv(second, 5, "last", kernel=1, relu=False), first)
    samples, _, _ = calibrate_and_annotate(net, graph)
    return legalize(graph, Chip.BM1686).graph, samples


def linear_nodes(graph):
    return [node for node in graph.sorted_nodes() if isinstance(node.op, ConvV2)]


@pytest.mark.parametrize("starts", [0, 1, 3])
def test_values_are_those_of_a_whole_run(starts: int) -> None:
    graph, samples = integer_graph()
    chosen = linear_nodes(graph)[:starts]
    run = SampleRun(graph, Chip.BM1686, samples, chosen)
    began = [part.nodes[0] for part in run]
    assert len(linear_nodes(graph)) == 3
    # The first convolution follows the quantization of the input, which is a part of its own.
    assert [node for node in began if node in linear_nodes(graph)] == linear_nodes(graph)[: max(starts, 1)]
    with Session(graph, backend="reference") as session:
        wanted = [session.run(feed) for feed in samples]
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        for found, results in zip(run.arrays(value), wanted, strict=True):
            assert found.dtype == results[port.name].dtype and np.array_equal(found, results[port.name])


def test_a_constant_that_changes_before_its_part_counts() -> None:
    graph, samples = integer_graph()
    last = linear_nodes(graph)[-1]
    run = SampleRun(graph, Chip.BM1686, samples, [last])
    for part in run:
        if part.nodes[0] is last:
            bias = last.inputs[2]
            bias.data = bias.array + 1000
    with Session(graph, backend="reference") as session:  # the graph has the new constant
        wanted = session.run(samples[0])
    assert np.array_equal(run.arrays(graph.outputs[0])[0], wanted[graph.output_ports[0].name])


def test_only_values_that_are_still_needed_are_kept() -> None:
    graph, samples = integer_graph()
    run = SampleRun(graph, Chip.BM1686, samples, linear_nodes(graph))
    for _ in run:
        pass
    for value in graph.values:
        if not value.is_constant and not graph.is_output(value):
            with pytest.raises(KeyError):
                run.arrays(value)
