"""INT8 of networks whose tensors have parts of very different size keeps all parts, on both chips."""

import pytest
from optimizer.quantize.uneven_networks import KINDS, compare_fresh

from tpuconvert.quantize.integer_share import integer_share

CHIPS = ("bm1684", "bm1686")
ENOUGH = 0.99
"""Cosine similarity below which an output of a model is reported as inaccurate."""

INTEGERS = [("dense_features", 0), ("dense_features", 2), ("conv_features", 1), ("conv_features", 3)]
"""Networks whose first linear operator takes the scales of the features."""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("kind", "seed"), INTEGERS)
def test_the_first_layer_takes_the_scales_of_features(kind, seed, chip):
    found = compare_fresh(KINDS[kind](seed), chip)
    assert found.cosine > ENOUGH, f"{kind}, seed {seed}"
    assert integer_share(found.model.graph.nodes) == 1.0
