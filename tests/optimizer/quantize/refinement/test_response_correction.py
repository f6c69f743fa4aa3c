"""Scores of detectors: correction of their biases, and the scale on which their errors are measured."""

from __future__ import annotations

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.optimizer.quantize import calibrate, legalize, quantize
from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.refinement.refinement import add_to_biases
from tpuconvert.optimizer.quantize.refinement.response_correction import correct_responses
from tpuconvert.optimizer.quantize.search.output_branches import ErrorScale
from tpuconvert.optimizer.quantize.search.output_error import OutputError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array, Chip

POSITIONS = 256
OBJECTS = 12


def detector(*, has_sigmoid: bool, background: float = -7.0) -> tuple[Graph, str]:
    """One value per position gives the logit and the offsets of the box: objects have logits around 0.

    Args:
        has_sigmoid: whether the network computes the probabilities of its logits.
        background: logit where nothing is.

    Returns:
        The graph and the name of the tensor of the logits.
    """
    net = OnnxNet(0)
    x = net.input("x", 1, 1, 16, 16)
    weight = net.constant(np.full((1, 1, 1, 1), -background, np.float32))
    logits = net.add("Conv", x, weight, net.constant(np.float32([background])))
    flat = net.reshape(logits, 1, POSITIONS, 1)
    scores = net.add("Sigmoid", flat) if has_sigmoid else flat
    boxes = net.constant(np.float32([1.0, 1.0, 6.0, 6.0]).reshape(4, 1, 1, 1))
    offsets = net.add("Conv", x, boxes, net.constant(np.float32([0.0, 0.0, 6.0, 6.0])))
    graph = tc.convert(net.model(scores, net.reshape(net.permute(offsets, 0, 2, 3, 1), 1, POSITIONS, 4))).graph
    return graph, logits


def pictures(count: int, spread: float) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        x = rng.uniform(-spread, 0.1, size=(1, 1, POSITIONS))
        x[0, 0, rng.choice(POSITIONS, OBJECTS, replace=False)] = rng.normal(1.0, 0.15, OBJECTS)
        found.append({"x": x.reshape(1, 1, 16, 16).astype(np.float32)})
    return found


def integers(graph: Graph, feeds: list[dict[str, Array]]) -> Legalized:
    prepare(graph)
    return legalize(graph, Chip.BM1686, quantize(graph, calibrate(graph, feeds), Chip.BM1686))


@pytest.mark.parametrize("has_sigmoid", [True, False])
@pytest.mark.parametrize("shift", [-1.2, 1.2])
def test_shifted_logits_of_scores_are_corrected(has_sigmoid: bool, shift: float) -> None:
    """Shifts lose detections, or make new ones, although the mean over all positions may be right."""
    graph, logits = detector(has_sigmoid=has_sigmoid)
    feeds = pictures(12, 0.1)
    error = OutputError(graph, Chip.BM1686, feeds)
    assert error.has_scores
    legalized = integers(graph, feeds)
    assert add_to_biases(legalized, {logits: shift})
    before = error.measure(legalized.graph)
    correct_responses(legalized, error, error)
    after = error.measure(legalized.graph)
    assert before.tasks[0].share < 0.9 < 0.95 < after.tasks[0].share
    assert after.is_preferred_to(before)


def test_biases_stay_if_the_outputs_are_worse_with_the_correction() -> None:
    graph, _ = detector(has_sigmoid=True)
    feeds = pictures(12, 0.1)
    error = OutputError(graph, Chip.BM1686, feeds)
    legalized = integers(graph, feeds)
    before = {value.name: value.array.tolist() for value in legalized.graph.values if value.is_constant}

    class Misleading(OutputError):
        """Samples on which the float network responds much more often."""

        def measure_logits(self, graph: Graph) -> dict[str, tuple[Array, Array]]:
            return {name: (floats + 3.0, found) for name, (floats, found) in super().measure_logits(graph).items()}

    correct_responses(legalized, Misleading(detector(has_sigmoid=True)[0], Chip.BM1686, feeds), error)
    assert {value.name: value.array.tolist() for value in legalized.graph.values if value.is_constant} == before


def test_logits_of_detections_are_compared_up_to_a_bound() -> None:
    """Logits of the background go down to -1000: their errors would outweigh the error of the responses."""
    graph, _ = detector(has_sigmoid=False, background=-500.0)
    feeds = pictures(12, 1.0)
    error = OutputError(graph, Chip.BM1686, feeds)
    assert error.branches[0].scale is ErrorScale.BOUNDED_LOGIT
    name = graph.output_ports[0].name
    with tc.Session(graph) as session:
        runs = [session.run(feed) for feed in feeds]
    far = [{**run, name: np.where(run[name] < -100.0, run[name] * 1.05, run[name])} for run in runs]
    near = [{**run, name: np.minimum(run[name], -4.0)} for run in runs]
    assert error.compare(far).branches[0].mean() == 0.0
    assert error.compare(near).branches[0].mean() > 1e-4
    assert error.compare(near).tasks[0].share < 1.0 == error.compare(far).tasks[0].share
