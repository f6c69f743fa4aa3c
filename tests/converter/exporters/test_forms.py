"""Arithmetic of exported forms, without the vendor's compiler."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.exporters.tpu_mlir.forms.linear import dense_deconv_weights
from tpuconvert.exporters.tpu_mlir.forms.pooling import exact_quotient, quotient_multipliers
from tpuconvert.schema.arithmetic.pooling import divide_half_away
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2


def rounded_half_away(product, shift):
    return np.sign(product) * ((np.abs(product) + (1 << shift - 1)) >> shift)


@pytest.mark.parametrize("largest", [2, 9, 25, 90])
def test_quotients_of_uneven_windows_are_exact(largest):
    """For every sum of 8-bit integers and every divisor, with products below 2^31."""
    counts = np.array(sorted({1, 2, largest // 2, largest - 1, largest}))
    multipliers, shift = quotient_multipliers(counts)
    for count, multiplier in zip(counts, multipliers, strict=True):
        sums = np.arange(-128 * count, 255 * count + 1)
        assert abs(sums * multiplier).max() < 2**31
        assert np.array_equal(rounded_half_away(sums * multiplier, shift), divide_half_away(sums, np.array(count)))


@pytest.mark.parametrize("count", [3, 7, 49, 196, 1000])
def test_quotients_of_equal_windows_are_exact(count):
    rescale = exact_quotient(count, 1)
    sums = np.arange(-128 * count, 255 * count + 1)
    found = rounded_half_away(sums * rescale.multipliers[0], -rescale.shifts[0])
    assert np.array_equal(found, divide_half_away(sums, np.array(count)))


@pytest.mark.parametrize(("groups", "columns"), [(1, 3), (2, 3), (4, 1)])
def test_dense_weights_of_grouped_deconvolutions(groups, columns):
    rng = np.random.default_rng(groups)
    x = rng.integers(-128, 128, (1, 4, 5, 3)).astype(np.int8)
    weights = rng.integers(-128, 128, (4, columns, 3, 2)).astype(np.int8)
    window = {"stride_h": 2, "stride_w": 1, "pad_h_t": 1}
    (grouped,) = DeconvV2(groups=groups, **window).reference(x, weights)
    (dense,) = DeconvV2(**window).reference(x, dense_deconv_weights(weights, groups))
    assert np.array_equal(grouped, dense)


@pytest.mark.parametrize("dtype", sampled([TensorProto.UINT8, TensorProto.INT8, TensorProto.INT16]))
def test_networks_that_begin_with_integers(dtype, tmp_path):
    """A cast of an image, and a lookup of computed rows, whose negative indices get the number of rows."""
    image = helper.make_tensor_value_info("image", dtype, [1, 3, 4, 4])
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 6])
    results = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 4, 4]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 6, 3]),
    ]
    rng = np.random.default_rng(0)
    weights = [("w", (2, 3, 1, 1)), ("rows", (5, 8)), ("m", (8, 3))]
    constants = [numpy_helper.from_array(rng.standard_normal(shape).astype("float32"), name) for name, shape in weights]
    nodes = [
        helper.make_node("Cast", ["image"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Conv", ["numbers", "w"], ["y"]),
        helper.make_node("Gather", ["rows", "ids"], ["chosen"]),
        helper.make_node("MatMul", ["chosen", "m"], ["z"]),
    ]
    graph = helper.make_graph(nodes, "g", [image, ids], results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    manifest = tc.export(tc.convert(model, chip="bm1688"), tmp_path / "out", chip="bm1688").manifest
    assert manifest["host_nodes"] == []
    assert {item["name"] for item in manifest["results"] if item["source"]} == {"y", "z"}
