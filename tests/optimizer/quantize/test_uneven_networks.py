"""INT8 of networks whose tensors have parts of very different size keeps all parts, on both chips."""

import pytest
from optimizer.quantize.uneven_networks import KINDS, compare_fresh

from tpuconvert.quantize.integer_share import integer_share

CHIPS = ("bm1684", "bm1686")
ENOUGH = 0.99
"""Cosine similarity below which an output of a model is reported as inaccurate."""

INTEGERS = ("dense_features", "conv_features", "log_features", "outliers_before_silu")
"""Networks whose linear operators all remain in integers."""


def check(kind: str, seed: int, chip: str) -> None:
    found = compare_fresh(KINDS[kind](seed), chip)
    assert found.cosine > ENOUGH, f"{kind}, seed {seed}: cosine {found.cosine}"
    assert integer_share(found.model.graph.nodes) == 1.0 or kind not in INTEGERS


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("dense_features", 0),
        ("dense_features", 5),
        ("conv_features", 2),
        ("conv_features", 3),
        ("log_features", 1),
        ("sines", 3),
        ("exponentials", 4),
        ("outliers_before_silu", 1),
        ("residual_outliers", 5),
    ],
)
def test_all_parts_of_the_tensors_are_kept(kind, seed, chip):
    check(kind, seed, chip)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", KINDS)
def test_all_parts_of_the_tensors_of_random_networks_are_kept(kind, seed, chip):
    check(kind, seed, chip)
