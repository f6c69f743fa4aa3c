"""The fused inverted residual equals its single steps for all band heights, strides and numbers of threads."""

import itertools

import numpy as np
import pytest

from tests.support.sampled import sampled
from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.matchers import inverted_residual as plan_inverted_residual
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, I32, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

SIZES = [
    # batch, channels, expanded channels, height, width, stride, kernel
    (1, 8, 48, 40, 40, 1, 3),
    (2, 5, 33, 23, 31, 1, 3),
    (1, 16, 96, 37, 40, 2, 3),
    (3, 7, 20, 2, 3, 1, 3),
    (1, 4, 600, 21, 30, 1, 3),  # a band of two rows
    (1, 6, 130, 19, 64, 2, 5),
    (1, 3, 64, 1, 70, 1, 3),
]


def network(batch, channels, expanded, height, width, stride, kernel, *, has_expansion=True, is_shared=False):
    """An inverted residual block with a residual add if the shapes permit it."""
    rng = np.random.default_rng([channels, expanded, height])
    graph = Graph("block")
    x = graph.input("x", TensorType(I8, (batch, channels if has_expansion else expanded, height, width)))

    def conv(x, outputs, kernel=1, stride=1, groups=1):
        inputs = x.type.static_shape[1]
        weights = graph.constant(rng.integers(-90, 91, (outputs, inputs // groups, kernel, kernel)).astype(np.int8))
        bias = graph.constant(rng.integers(-900, 900, (1, outputs, 1, 1)).astype(np.int32))
        pads = dict.fromkeys(("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r"), kernel // 2)
        op = ConvV2(stride_h=stride, stride_w=stride, groups=groups, has_bias=True, izp_val=-5, **pads)
        bits = round(np.log2(inputs // groups * kernel * kernel) / 2) + 8
        rescale = RequantInt32(multiplier_val=3 << 28, shift_val=-30 - bits + 3, mode=RequantMode.MULTIPLIER_SHIFT)
        return graph.add(rescale, graph.add(op, x, weights, bias))

    y = conv(x, expanded) if has_expansion else x
    y = middle = conv(y, expanded, kernel, stride, expanded)
    y = conv(y, channels)
    if y.type.static_shape == x.type.static_shape:
        units = RequantInt32(multiplier_val=9000 << 16, shift_val=15, mode=RequantMode.TFLITE_LSHIFT, out_dtype=I32)
        total = graph.add(Add(), graph.add(units, y), graph.add(units, x))
        y = graph.add(RequantInt32(multiplier_val=1 << 30, shift_val=-44, mode=RequantMode.MULTIPLIER_SHIFT), total)
    graph.output(y)
    if is_shared:
        graph.output(middle)
    return graph


def kinds_and_result(graph, x, threads=1):
    session = Session(graph, backend="native", threads=threads)
    return [step.kind for step in session.profile({"x": x})], session.run({"x": x})


@pytest.mark.parametrize(
    ("size", "has_expansion", "isa"), sampled(itertools.product(SIZES, [True, False], available_isas())), ids=str
)
def test_blocks_equal_the_reference(size, has_expansion, isa, monkeypatch):
    monkeypatch.setenv("TPUCONVERT_ISA", isa)
    monkeypatch.setattr(plan_inverted_residual, "LEAST_BYTES", 1)
    graph = network(*size, has_expansion=has_expansion)
    shape = graph.inputs[0].type.static_shape
    x = np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)
    expected = Session(graph, backend="reference").run({"x": x})
    for threads in (1, 2, 4):
        kinds, found = kinds_and_result(graph, x, threads)
        is_fused = any(kind.startswith(("inverted_residual_int8", "separable_int8")) for kind in kinds)
        # The scalar kernels do not add the residual.
        has_residual = any("residual" in kind for kind in kinds if "inverted" not in kind)
        assert is_fused or isa not in plan_inverted_residual.ISAS or (isa == "scalar" and has_residual), kinds
        for name, array in expected.items():
            assert len(np.unique(array)) > 50
            np.testing.assert_array_equal(found[name], array)


def test_results_with_other_users_are_not_fused(monkeypatch):
    monkeypatch.setattr(plan_inverted_residual, "LEAST_BYTES", 1)
    size = (1, 8, 48, 20, 20, 1, 3)
    x = np.random.default_rng(3).integers(-128, 128, (1, 8, 20, 20)).astype(np.int8)
    kinds, found = kinds_and_result(network(*size, is_shared=True), x)
    assert not any(kind.startswith(("inverted_residual_int8", "separable_int8")) for kind in kinds)
    expected = Session(network(*size, is_shared=True), backend="reference").run({"x": x})
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_small_blocks_are_not_fused():
    x = np.zeros((1, 8, 20, 20), np.int8)
    assert "depthwise_int8 3x3" in kinds_and_result(network(1, 8, 48, 20, 20, 1, 3), x)[0]
