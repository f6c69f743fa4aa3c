"""Convolutions, compared with scalar integer loops, and for floats with the ONNX reference implementation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.onnx.reference import run_node
from tests.support.operators import oracles
from tpuconvert.schema.arithmetic import convolution
from tpuconvert.schema.arithmetic.convolution import Window, convolve
from tpuconvert.schema.arithmetic.integer_product import integer_convolution
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U32, DType, TensorType

SMALL = st.integers(1, 3)


@st.composite
def uses(draw, transposed=False):
    """A small convolution: parameters, arrays, zero points."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups, inputs, outputs, kh, kw = (draw(SMALL) for _ in range(5))
    strides, dilations = (draw(SMALL), draw(SMALL)), (draw(SMALL), draw(SMALL))
    pads = tuple(draw(st.integers(0, 2)) for _ in range(4))
    reach = dilations[0] * (kh - 1) + 1, dilations[1] * (kw - 1) + 1
    if transposed:
        pads = (*pads[:2], draw(st.integers(1 - strides[0], 2)), draw(st.integers(1 - strides[1], 2)))
        lowest = [max(-(-(pads[i] + pads[i + 2] - reach[i]) // strides[i]) + 2, 1) for i in range(2)]
    else:
        lowest = [max(reach[i] - pads[i] - pads[i + 2], 1) for i in range(2)]
    extents = [draw(st.integers(low, low + 3)) for low in lowest]
    x_dtype, w_dtype = draw(st.sampled_from([I8, U8])), draw(st.sampled_from([I8, U8]))
    extreme = draw(st.booleans())
    x = oracles.random_integers(rng, x_dtype, (draw(st.integers(1, 2)), groups * inputs, *extents), extreme)
    first, second = (groups * inputs, outputs) if transposed else (groups * outputs, inputs)
    w = oracles.random_integers(rng, w_dtype, (first, second, kh, kw), extreme)
    izp = oracles.random_integers(rng, x_dtype, groups * inputs).tolist()
    kzp = oracles.random_integers(rng, w_dtype, groups * outputs).tolist()
    parameters = {
        "dh": dilations[0],
        "dw": dilations[1],
        "pad_h_t": pads[0],
        "pad_w_l": pads[1],
        "pad_h_b": pads[2],
        "pad_w_r": pads[3],
        "stride_h": strides[0],
        "stride_w": strides[1],
        "groups": groups,
    }
    geometry = {"strides": strides, "dilations": dilations, "pads": pads, "groups": groups}
    return parameters, geometry, x, w, izp, kzp


@settings(max_examples=60)
@given(use=uses(), is_vector=st.booleans(), out=st.sampled_from([I32, U32]), has_bias=st.booleans())
def test_conv_v2(use, is_vector, out, has_bias):
    parameters, geometry, x, w, izp, kzp = use
    if is_vector:
        zeros = {"is_izp_const": False, "izp_vec": tuple(izp), "is_kzp_const": False, "kzp_vec": tuple(kzp)}
    else:
        izp, kzp = [izp[0]] * len(izp), [kzp[0]] * len(kzp)
        zeros = {"izp_val": izp[0], "kzp_val": kzp[0]}
    bias = np.arange(len(w), dtype=np.int32).reshape(1, -1, 1, 1) * 100 - 50 if has_bias else None
    op = ConvV2(**parameters, **zeros, has_bias=has_bias, out_dtype=out)
    (found,) = op.evaluate(x, w, bias)
    (type_,) = op.infer(*(None if a is None else TensorType(DType.of(a.dtype), a.shape) for a in (x, w, bias)))
    assert (type_.dtype, type_.shape) == (DType.of(found.dtype), found.shape)
    expected = oracles.convolution(x, w, **geometry, x_zero=izp.__getitem__, w_zero=kzp.__getitem__)
    assert len(expected) == found.size
    for place, total in expected:
        added = 0 if bias is None else int(bias[0, place[1], 0, 0])
        assert int(found[place]) == oracles.saturate(total + added, out), place


@settings(max_examples=60)
@given(use=uses(transposed=True), is_vector=st.booleans())
def test_deconv_v2(use, is_vector):
    parameters, geometry, x, w, izp, kzp = use
    if is_vector:
        zeros = {"is_izp_const": False, "izp_vec": tuple(izp), "is_kzp_const": False, "kzp_vec": tuple(kzp)}
    else:
        izp, kzp = [izp[0]] * len(izp), [kzp[0]] * len(kzp)
        zeros = {"izp_val": izp[0], "kzp_val": kzp[0]}
    op = DeconvV2(**parameters, **zeros)
    (found,) = op.evaluate(x, w)
    (type_,) = op.infer(TensorType(DType.of(x.dtype), x.shape), TensorType(DType.of(w.dtype), w.shape))
    assert (type_.dtype, type_.shape) == (I32, found.shape)
    expected = oracles.transposed_convolution(x, w, **geometry, x_zero=izp.__getitem__, w_zero=kzp.__getitem__)
    assert len(expected) == found.size
    for place, total in expected.items():
        assert int(found[place]) == total, place


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("depth", [257, 258, 259, 513, 514, 515, 1023, 1024, 1025, 4608, 33025, 70000])
def test_extreme_sums_stay_exact(depth, sign):
    """All products have the largest magnitude: partial sums exceed 2^24, and the total exceeds 2^31."""
    x = np.full((1, depth, 1, 2), 255, np.uint8)
    x[0, 0, 0, 1] = 254  # the sum is odd, so that the loss of the lowest bit is detected
    w = np.full((2, depth, 1, 1), 127 if sign > 0 else -128, np.int8)
    w[1] = 0
    factor = 255 if sign > 0 else -256  # w minus its zero point is -128 or 128
    sums = integer_convolution(x, w, Window((1, 1)), w_zero=np.array([-128 if sign > 0 else 128, 0]))
    assert sums.astype(object)[0, :, 0].tolist() == [
        [255 * factor * depth, 255 * factor * depth - factor],
        [0, 0],
    ]


def test_accumulators_saturate_once():
    x = np.full((1, 40000, 1, 1), 255, np.uint8)
    w = np.full((1, 40000, 1, 1), 255, np.uint8)
    bias = np.full((1, 1, 1, 1), -(2**31), np.int32)
    exact = 40000 * 255 * 255
    assert exact > 2**31
    assert ConvV2().evaluate(x, w)[0].item() == 2**31 - 1
    assert ConvV2(has_bias=True).evaluate(x, w, bias)[0].item() == exact - 2**31
    assert ConvV2(out_dtype=U32).evaluate(x, w)[0].item() == exact
    assert ConvV2(kzp_val=255, out_dtype=U32, has_bias=True).evaluate(x, w, bias)[0].item() == 0


def test_tiles_do_not_change_anything(monkeypatch):
    rng = np.random.default_rng(5)
    for groups, kernel, stride in itertools.product((1, 2, 6), (1, 3), (1, 2)):
        x = rng.standard_normal((3, 6, 11, 9))
        w = rng.standard_normal((12, 6 // groups, kernel, kernel))
        window = Window((kernel, kernel), (stride, stride), (1, 1), (1, 0, 1, 1), groups)
        bias = rng.standard_normal(12)
        whole = convolve(x, w, window, np.float64, bias=bias, zero=0.5, pad=2)
        for size in (1, 300, 3000, 30000):
            monkeypatch.setattr(convolution, "_TILE_BYTES", size)
            tiled = convolve(x, w, window, np.float64, bias=bias, zero=0.5, pad=2)
            np.testing.assert_allclose(tiled, whole, rtol=1e-13, atol=1e-13)
        monkeypatch.undo()


FLOATS = [
    # channels, outputs, groups, kernel, strides, dilations, pads (top, left, bottom, right), extents
    (3, 4, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), (7, 6)),
    (4, 6, 2, (3, 2), (2, 1), (1, 2), (0, 1, 2, 0), (9, 8)),
    (5, 5, 5, (3, 3), (2, 2), (1, 1), (0, 0, 1, 1), (8, 8)),
    (8, 2, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (5, 5)),
    (8, 2, 1, (1, 1), (2, 2), (1, 1), (0, 0, 0, 0), (5, 5)),
    (2, 2, 1, (1, 7), (1, 3), (1, 1), (0, 3, 0, 3), (1, 20)),
]


@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_float_convolution(case):
    channels, outputs, groups, kernel, strides, dilations, pads, extents = case
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, channels, *extents)).astype(np.float32)
    w = rng.standard_normal((outputs, channels // groups, *kernel)).astype(np.float32)
    b = rng.standard_normal(outputs).astype(np.float32)
    expected = run_node("Conv", [x, w, b], group=groups, strides=strides, dilations=dilations, pads=pads)
    op = Conv(*dilations, pads[0], pads[2], pads[1], pads[3], *strides, groups)
    (found,) = op.evaluate(x, w, b.reshape(1, -1, 1, 1))
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, expected, rtol=1e-5, atol=1e-5
    )  # the reference sums in float32, this package in float64
    assert op.infer(TensorType(F32, x.shape), TensorType(F32, w.shape))[0].shape == expected.shape


@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_float_transposed_convolution(case):
    channels, outputs, groups, kernel, strides, dilations, _, extents = case
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, channels, *extents)).astype(np.float32)
    w = rng.standard_normal((channels, outputs // groups, *kernel)).astype(np.float32)
    b = rng.standard_normal(outputs).astype(np.float32)
    added = [stride - 1 for stride in strides]
    attributes = {"strides": strides, "dilations": dilations, "output_padding": added}
    # Group by group and without bias: the reference implementation does not add the bias of later groups.
    parts = zip(np.split(x, groups, axis=1), np.split(w, groups), strict=True)
    expected = np.concatenate([run_node("ConvTranspose", list(part), **attributes) for part in parts], axis=1)
    expected = expected + b.reshape(1, -1, 1, 1)
    op = Deconv(*dilations, 0, -added[0], 0, -added[1], *strides, groups)
    (found,) = op.evaluate(x, w, b.reshape(1, -1, 1, 1))
    np.testing.assert_allclose(
        found, expected, rtol=1e-5, atol=1e-5
    )  # the reference sums in float32, this package in float64


def test_floats_are_summed_in_binary64_and_rounded_once():
    x = np.array([1e8, 1, -1e8], np.float32).reshape(1, 3, 1, 1)
    assert Conv().evaluate(x, np.ones((1, 3, 1, 1), np.float32))[0].item() == 1
    half = np.array([2048, 0.5, 0.5], np.float16).reshape(
        1, 3, 1, 1
    )  # float16 cannot represent 2049: the tie rounds to even
    assert Conv().evaluate(half, np.ones((1, 3, 1, 1), np.float16))[0].item() == 2048
    assert Conv().evaluate(half, np.full((1, 3, 1, 1), 3, np.float16))[0].item() == 6148
    big = np.full((1, 1, 1, 1), 3e38, np.float32)
    assert Conv().evaluate(big, np.full((1, 1, 1, 1), 2, np.float32))[0].item() == np.inf


X, W = TensorType(F32, (1, 4, 8, 8)), TensorType(F32, (6, 2, 3, 3))


def test_symbolic_extents_pass_through():
    x = TensorType(F32, ("N", 4, "H", "W"))
    assert Conv(groups=2, pad_h_t=1, pad_h_b=1).infer(x, W)[0].shape == ("N", 6, "H", "W-2")
    assert Conv(groups=2, stride_h=2, stride_w=2).infer(x, W)[0].shape == ("N", 6, "ceil((H-2)/2)", "ceil((W-2)/2)")
    doubled = Deconv(groups=2, stride_h=2, stride_w=2, pad_h_t=1, pad_h_b=0, pad_w_l=1, pad_w_r=0)
    assert doubled.infer(x, TensorType(F32, (4, 3, 3, 3)))[0].shape == ("N", 6, "2*H", "2*W")


@pytest.mark.parametrize(
    ("op", "types", "message"),
    [
        (Conv(), (X, W), "input channels"),
        (Conv(groups=4), (X, W), "4 groups"),
        (Conv(groups=2), (X, W, TensorType(F32, (6,))), "rank 4"),
        (Conv(groups=2), (X, W, TensorType(F32, (1, 5, 1, 1))), r"\[1, 6, 1, 1\]"),
        (Conv(groups=2, dh=4), (X, W), "does not fit"),
        (Conv(groups=2), (TensorType(F32, (4, 8, 8)), W), "rank 4"),
        (Conv(groups=2), (X, TensorType(F32, ("O", 2, 3, 3))), "must be a number"),
        (Deconv(pad_h_t=10), (X, TensorType(F32, (4, 2, 3, 3))), "leave nothing"),
        (ConvV2(groups=2, has_bias=True), (TensorType(I8, X.shape), TensorType(I8, W.shape)), "has_bias"),
        (
            ConvV2(groups=2, is_izp_const=False, izp_vec=(1, 2, 3)),
            (TensorType(I8, X.shape), TensorType(I8, W.shape)),
            "3 values in izp_vec for 4",
        ),
    ],
    ids=str,
)
def test_types_that_do_not_fit(op, types, message):
    with pytest.raises(ShapeError, match=message) as caught:
        op.infer(*types)
    assert "[" in str(caught.value)


@pytest.mark.parametrize(
    ("definition", "parameters"),
    [
        (Conv, {"stride_h": 0}),
        (Conv, {"dw": 0}),
        (Conv, {"groups": 0}),
        (Conv, {"pad_h_b": -1}),
        (Conv, {"scale": 0.0}),
        (Conv, {"scale": -1.0}),
        (Conv, {"scale": float("nan")}),
        (Conv, {"scale": 1e-60}),
        (Conv, {"mode": 3}),
        (Deconv, {"pad_h_b": -2, "stride_h": 2}),
        (Deconv, {"pad_h_t": -1, "stride_h": 2}),
    ],
    ids=str,
)
def test_illegal_parameters(definition, parameters):
    with pytest.raises(ValueError, match=r"must|not a valid"):
        definition(**parameters)


def test_result_types():
    x, w = TensorType(I8, X.shape), TensorType(I8, W.shape)
    assert Conv(groups=2).infer(x, w)[0].dtype is I8
    assert Conv(groups=2, out_dtype=I16).infer(x, w)[0].dtype is I16
    assert ConvV2(groups=2).infer(x, w)[0].dtype is I32
    assert Conv(groups=2).infer(TensorType(F16, X.shape), TensorType(F16, W.shape))[0].dtype is F16
