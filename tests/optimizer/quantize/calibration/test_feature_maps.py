"""Ranges of networks that predict at every position are not clipped; feature maps of classifiers are."""

import numpy as np
import pytest

from tests.support.quantize.networks import Net
from tpuconvert.optimizer.quantize import calibrate, legalize, quantize, refine
from tpuconvert.optimizer.quantize.calibration.feature_maps import names_of_dense_feature_maps, uncorrected_results
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, Chip, TensorType

AVERAGE = Pool(kernel_h=6, kernel_w=6, stride_h=1, stride_w=1, pooling_type=PoolType.AVE)


def backbone(seed=0):
    net = Net((1, 4, 6, 6), seed)
    return net, net.conv(net.conv(net.x, 6, "a"), 8, "b")


def classifier(net, x):
    pooled = net.graph.add(Reshape((1, 8)), net.graph.add(AVERAGE, x, name="mean"), name="flat")
    return net.graph.add(
        MatrixMul(), pooled, net.constant(8, 20, name="w"), net.constant(1, 20, name="b"), name="scores"
    )


def test_a_head_with_a_map():
    net, x = backbone()
    graph = net.done(net.conv(x, 5, "head", relu=False))
    assert names_of_dense_feature_maps(graph) == {"a_pre", "a", "b_pre", "b", "head"}


def test_a_head_with_a_list_of_predictions():
    net, x = backbone()
    moved = net.graph.add(Permute((0, 2, 3, 1)), net.conv(x, 5, "head", relu=False), name="moved")
    graph = net.done(net.graph.add(Reshape((1, 36, 5)), moved, name="list"))
    assert {"a", "b", "head", "moved", "list"} <= names_of_dense_feature_maps(graph)


def test_a_classifier_has_none():
    net, x = backbone()
    assert names_of_dense_feature_maps(net.done(classifier(net, x))) == set()


def test_the_classifying_branch_is_left_out():
    net, x = backbone()
    graph = net.done(net.conv(x, 5, "head", relu=False), classifier(net, x))
    assert names_of_dense_feature_maps(graph) == {"a_pre", "a", "b_pre", "b", "head"}


def test_sequences_without_convolutions_have_none():
    graph = Graph("net")
    x = graph.input("x", TensorType(F32, (1, 32, 8)))
    flat = graph.add(Reshape((32, 8)), x)
    w = graph.constant(np.ones((8, 8), np.float32), "w")
    graph.output(graph.add(Reshape((1, 32, 8)), graph.add(MatrixMul(), flat, w)))
    assert names_of_dense_feature_maps(graph) == set()


@pytest.mark.parametrize("method", ["auto", "mse"])
def test_rare_large_responses_are_represented(method):
    """One position of one sample responds 20 times as strongly as all others."""
    net, x = backbone()
    graph = net.done(net.conv(x, 5, "head", relu=False))
    samples = net.samples(40)
    samples[7]["x"][0, :, 2, 3] *= 20
    found = calibrate(graph, samples, method)["b"]
    assert (found.threshold == found.high) is (method == "auto")


def test_classifiers_have_the_thresholds_of_mse():
    net, x = backbone()
    graph = net.done(classifier(net, x))
    samples = net.samples()
    assert calibrate(graph, samples, "auto") == calibrate(graph, samples, "mse")


def test_weights_of_feature_maps_are_not_corrected_on_bm1686():
    net, x = backbone()
    graph = net.done(net.conv(x, 5, "head", relu=False))
    assert uncorrected_results(graph, Chip.BM1686) == {"a_pre", "a", "b_pre", "b", "head"}
    assert uncorrected_results(graph, Chip.BM1684) == set()
    samples = net.samples()
    ranges = calibrate(graph, samples, "minmax")
    weights = []
    for names in (set(), {"head"}):
        legalized = legalize(graph, Chip.BM1686, quantize(graph, ranges, Chip.BM1686))
        refine(legalized, graph, samples, Chip.BM1686, uncorrected=names)
        weights.append({value.name: value.array for value in legalized.graph.values if value.is_constant})
    assert np.array_equal(weights[0]["b_w"], weights[1]["b_w"])
    assert not np.array_equal(weights[0]["head_w"], weights[1]["head_w"])
