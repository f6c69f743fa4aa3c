"""Algorithms stay only where they reduce the measured error."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tpuconvert.conversion.quantization.gates import effective, gate_algorithms
from tpuconvert.optimizer.quantize.search.output_error import Errors


class Algorithms:
    """Graphs that are sets of algorithms, and errors that are a function of the set."""

    def __init__(self, **factors: float) -> None:
        self.factors = factors
        self.built: list[tuple[str, ...]] = []

    def build(self, left_out):
        self.built.append(tuple(left_out))
        return SimpleNamespace(graph={"scales"} - set(left_out))

    def refine(self, legalized, left_out, share):
        legalized.graph = legalized.graph | ({"rounding", "bias"} - set(left_out)) | ({"half"} if share < 1 else set())

    def measure(self, graph) -> Errors:
        error = float(np.prod([self.factors.get(name, 1.0) for name in graph]))
        samples = 0.01 * error * np.array([0.9, 1.0, 1.1])
        return Errors(samples[np.newaxis], samples[np.newaxis])

    def gate(self, *others: str, costly=()):
        return gate_algorithms(self.build(()), self.build, self.refine, self, ["rounding", "bias"], others, costly)


def test_keeps_a_refinement_that_helps_without_further_trials():
    algorithms = Algorithms(rounding=0.5, bias=0.5)
    found = algorithms.gate()
    assert found.legalized.graph == {"scales", "rounding", "bias"}
    assert algorithms.built == [()]
    assert "SQNR 20.0 dB without refinement, 26.0 dB with rounding, bias" in found.describe()


@pytest.mark.parametrize(
    ("factors", "left_out"),
    [({"rounding": 4.0, "bias": 0.5}, ("rounding",)), ({"rounding": 2.0, "bias": 3.0}, ("rounding", "bias"))],
)
def test_leaves_out_what_increases_the_error(factors, left_out):
    found = Algorithms(**factors).gate()
    assert found.left_out == left_out
    assert found.errors.mean < found.unrefined.mean * 1.0001
    assert f"left out, because the error is smaller without: {', '.join(left_out)}" in found.describe()


class Boxes(Algorithms):
    """A detector: the correction reduces the error of boxes, half of it does not increase the error of scores.

    Args:
        scores: error of the scores with all of the correction, with half of it, and without it.
    """

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = scores

    def refine(self, legalized, left_out, share):
        corrected = 0.0 if "bias-correction" in left_out else share
        legalized.graph = legalized.graph | {corrected}

    def measure(self, graph) -> Errors:
        shares = [item for item in graph if isinstance(item, float)]
        whole, half, none = self.scores
        scores = {1.0: whole, 0.5: half, 0.0: none}[shares[0]] if shares else none
        boxes = 0.02 if not shares or not shares[0] else 0.01
        errors = np.outer([boxes, scores], [0.9, 1.0, 1.1])
        return Errors(errors, errors)

    def gate(self):
        names = ["weight-rounding", "bias-correction"]
        return gate_algorithms(self.build(()), self.build, self.refine, self, names)


@pytest.mark.parametrize(
    ("scores", "share", "applied"),
    [
        ((0.010, 0.011, 0.012), 1.0, ("weight-rounding", "bias-correction")),  # all branches are better with all of it
        ((0.030, 0.011, 0.012), 0.5, ("weight-rounding", "bias-correction")),
        ((0.040, 0.030, 0.012), 1.0, ("weight-rounding",)),
    ],
)
def test_a_correction_that_harms_a_branch_is_halved_or_left_out(scores, share, applied):
    found = Boxes(*scores).gate()
    assert (found.bias_share, found.applied) == (share, applied)
    assert ("50% of bias-correction" in found.describe()) is (share == 0.5)


def test_measures_every_algorithm_if_others_are_given():
    algorithms = Algorithms(scales=1.5, rounding=0.5, bias=1.2)
    found = algorithms.gate("scales")
    # Together, the refinements reduce the error; only one of them does.
    assert found.left_out == ("scales", "bias")
    assert found.legalized.graph == {"rounding"}
    assert algorithms.built == [(), ("scales",), ("scales", "rounding"), ("scales", "bias")]


def test_reconstruction_alone_has_no_effect():
    assert effective(["reconstruction", "bias-correction"]) == ("bias-correction",)
    assert effective(["reconstruction", "weight-rounding"]) == ("reconstruction", "weight-rounding")


def test_the_text_names_no_second_error_if_nothing_is_applied():
    found = Algorithms(rounding=2.0, bias=3.0).gate()
    assert found.applied == ()
    text = "SQNR 20.0 dB without refinement; left out, because the error is smaller without: rounding, bias"
    assert found.describe().endswith(text)
    one = Errors(np.array([[0.01]]), np.array([[0.01]]))
    assert replace(found, errors=one).describe().startswith("error at the outputs on 1 sample: SQNR")


@pytest.mark.parametrize(("factor", "is_kept"), [(0.5, True), (1.0, False), (2.0, False)])
def test_a_costly_algorithm_stays_only_if_the_error_is_smaller_with_it(factor, is_kept):
    algorithms = Algorithms(scales=factor, rounding=0.5)
    found = algorithms.gate(costly=["scales"])
    assert ("scales" in found.legalized.graph) is is_kept
    assert found.without_gain == (() if is_kept else ("scales",))
    assert ("the error is not smaller with: scales" in found.describe()) is not is_kept
    # The error before the refinement was measured on the same graph.
    assert found.unrefined.mean == pytest.approx(0.01 * (factor if is_kept else 1.0))
    if is_kept:
        assert algorithms.built[-1] == ()  # the scales of the float graph


def test_trials_of_the_refinement_keep_a_costly_algorithm_left_out():
    found = Algorithms(scales=1.5, rounding=2.0).gate(costly=["scales"])
    assert found.legalized.graph == {"bias"}
    assert (found.without_gain, found.left_out) == (("scales",), ("rounding",))
