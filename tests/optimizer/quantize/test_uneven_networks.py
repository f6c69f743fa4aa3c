"""INT8 of networks whose tensors have parts of very different size keeps all parts, on both chips."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.paired import paired
from tests.support.quantize.onnx_builder import OnnxNet
from tests.support.quantize.uneven_networks import KINDS, compare_fresh
from tests.support.sampled import sampled
from tpuconvert.conversion.options.options import group_options
from tpuconvert.model.accuracy_notes import AccuracyWarning
from tpuconvert.model.integer_share import integer_share
from tpuconvert.schema.graph.cost import macs

CHIPS = ("bm1684", "bm1686")
ENOUGH = 0.99
"""Cosine similarity below which an output of a model is reported as inaccurate."""

INTEGERS = ("dense_features", "conv_features", "log_features", "outliers_before_silu")
"""Networks whose linear operators all remain in integers."""


def check(kind: str, seed: int, chip: str) -> None:
    found = compare_fresh(KINDS[kind](seed), chip)
    assert found.cosine > ENOUGH, f"{kind}, seed {seed}: cosine {found.cosine}"
    assert integer_share(found.model.graph.nodes) == 1.0 or kind not in INTEGERS


@pytest.mark.parametrize(
    ("chip", "kind", "seed"),
    [
        *paired(CHIPS, [("dense_features", 0), ("dense_features", 5), ("conv_features", 2), ("log_features", 1)]),
        *paired(CHIPS, [("sines", 3), ("exponentials", 4)]),
        *(
            pytest.param(chip, kind, seed, marks=pytest.mark.slow)
            for kind, seed in (("conv_features", 3), ("outliers_before_silu", 1), ("residual_outliers", 5))
            for chip in CHIPS
        ),
    ],
)
def test_all_parts_of_the_tensors_are_kept(kind, seed, chip):
    check(kind, seed, chip)


@pytest.mark.parametrize(("kind", "seed"), sampled([("log_features", 1), ("outliers_before_silu", 1)], every=3))
def test_the_notes_are_those_of_the_choice(kind: str, seed: int) -> None:
    """16 bits leave the target missed here, so that nodes in float are chosen: no note is about 16 bits."""
    notes = {note.kind for note in compare_fresh(KINDS[kind](seed), "bm1686").model.notes}
    assert "coarse-nodes" in notes and notes.isdisjoint({"int16-nodes", "accuracy"})


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", KINDS)
def test_all_parts_of_the_tensors_of_random_networks_are_kept(kind, seed, chip):
    check(kind, seed, chip)


def deep_sines(width: int, size: int) -> tuple[OnnxNet, str]:
    """Sines of numbers up to 30 between convolutions, whose MACs grow with the size of the image."""
    net = OnnxNet(1)
    x = net.input("x", 1, 4, size, size)
    for _ in range(3):
        x = net.add("Sin", net.add("Mul", net.conv(x, width), net.constant(np.float32(30.0))))
    return net, net.conv(x, 6)


def macs_in_float(model: tc.Model) -> tuple[int, float]:
    """MACs of float linear operators, and their share of all MACs."""
    found = [(macs(node) or 0, node.output.dtype.is_float) for node in model.graph.nodes]
    in_float = sum(count for count, is_float in found if is_float)
    return in_float, in_float / sum(count for count, _ in found)


@pytest.mark.parametrize("chip", sampled(CHIPS, every=2))
def test_nodes_in_float_have_a_limited_share_of_the_work(chip: str) -> None:
    """A large network keeps its integers where only float is exact enough; a warning says so."""
    net, output = deep_sines(24, 32)
    given = {"quantize": "int8", "calibration": net.samples(16), "chip": chip}
    with pytest.warns(AccuracyWarning):
        model = tc.convert(net.model(output), **group_options(**given))
    in_float, share = macs_in_float(model)
    assert in_float <= 1_000_000 or share <= 0.05
    small, output = deep_sines(8, 8)
    model = tc.convert(small.model(output), **group_options(**given | {"calibration": small.samples(16)}))
    in_float, share = macs_in_float(model)
    assert 0.05 < share <= 0.5
    assert in_float <= 1_000_000
