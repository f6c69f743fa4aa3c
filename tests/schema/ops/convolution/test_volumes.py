"""3-D convolution and pooling, compared with scalar loops and with the ONNX reference."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.onnx.reference import run_node
from tests.support.operators import oracles
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.conv3d_v2 import Conv3dV2, Deconv3dV2
from tpuconvert.schema.ops.pool3d_int import Pool3dInt
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U32, DType, TensorType

SMALL = st.integers(1, 2)


@st.composite
def convolutions(draw, transposed):
    """A small convolution with exact results: operator and arrays."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups, inputs, outputs = draw(SMALL), draw(SMALL), draw(SMALL)
    kernel, strides, dilations = ([draw(SMALL) for _ in range(3)] for _ in range(3))
    before = [draw(st.integers(0, 1)) for _ in range(3)]
    after = [draw(st.integers(1 - strides[i] if transposed else 0, 1)) for i in range(3)]
    reach = [dilations[i] * (kernel[i] - 1) + 1 for i in range(3)]
    extents = [max(reach[i], 3) + draw(st.integers(0, 1)) for i in range(3)]
    x_dtype, w_dtype = draw(st.sampled_from([I8, U8])), draw(st.sampled_from([I8, U8]))
    first, second = (groups * inputs, outputs) if transposed else (groups * outputs, inputs)
    x = oracles.random_integers(rng, x_dtype, (draw(SMALL), groups * inputs, *extents), draw(st.booleans()))
    w = oracles.random_integers(rng, w_dtype, (first, second, *kernel), draw(st.booleans()))
    shape = draw(st.sampled_from([(groups * outputs,), (1, groups * outputs, 1, 1, 1)]))
    op = (Deconv3dV2 if transposed else Conv3dV2)(
        *dilations,
        *itertools.chain.from_iterable(zip(before, after, strict=True)),
        *strides,
        groups,
        has_bias=True,
        is_izp_const=False,
        izp_vec=tuple(oracles.random_integers(rng, x_dtype, groups * inputs).tolist()),
        is_kzp_const=False,
        kzp_vec=tuple(oracles.random_integers(rng, w_dtype, groups * outputs).tolist()),
        out_dtype=draw(st.sampled_from([I32, U32])),
    )
    return op, x, w, oracles.random_integers(rng, I32, shape)


def expected_sums(op, x, w, b, *, transposed):
    """Sum of products in plain Python integers."""
    strides, dilations = (op.stride_t, op.stride_h, op.stride_w), (op.dt, op.dh, op.dw)
    pads = (op.pad_t_0, op.pad_h_0, op.pad_w_0)
    shape = op.infer(*(TensorType(DType.of(a.dtype), a.shape) for a in (x, w, b)))[0].static_shape
    sums = dict.fromkeys(np.ndindex(*shape), 0)
    per_group = x.shape[1] // op.groups
    outputs = shape[1] // op.groups
    for n, c in np.ndindex(*x.shape[:2]):
        group = c // per_group
        for k in range(outputs):
            o = group * outputs + k
            for taps in np.ndindex(*w.shape[2:]):
                factor = int(w[(c, k, *taps)] if transposed else w[(o, c % per_group, *taps)]) - op.kzp_vec[o]
                for index in np.ndindex(*x.shape[2:]):
                    product = (int(x[(n, c, *index)]) - op.izp_vec[c]) * factor
                    if transposed:
                        at = [
                            p * s + t * d - q
                            for p, s, t, d, q in zip(index, strides, taps, dilations, pads, strict=True)
                        ]
                    else:
                        from_start = [p + q - t * d for p, q, t, d in zip(index, pads, taps, dilations, strict=True)]
                        if any(f % s for f, s in zip(from_start, strides, strict=True)):
                            continue
                        at = [f // s for f, s in zip(from_start, strides, strict=True)]
                    if (n, o, *at) in sums:
                        sums[n, o, *at] += product
    low, high = (op.out_dtype.min, op.out_dtype.max)
    biases = b.reshape(-1).tolist()
    values = [min(max(total + biases[index[1]], low), high) for index, total in sums.items()]
    return np.array(values, op.out_dtype.numpy).reshape(shape)


@settings(max_examples=30)
@given(convolutions(transposed=False))
def test_exact_convolution(use):
    op, x, w, b = use
    np.testing.assert_array_equal(op.evaluate(x, w, b)[0], expected_sums(op, x, w, b, transposed=False))


@settings(max_examples=30)
@given(convolutions(transposed=True))
def test_exact_transposed_convolution(use):
    op, x, w, b = use
    np.testing.assert_array_equal(op.evaluate(x, w, b)[0], expected_sums(op, x, w, b, transposed=True))


@pytest.mark.parametrize("groups", [1, 2])
def test_float_convolution_as_onnx(groups):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2, 4, 5, 6, 7)).astype(np.float32)
    w = rng.normal(size=(6, 4 // groups, 2, 3, 1)).astype(np.float32)
    b = rng.normal(size=6).astype(np.float32)
    op = Conv3d(groups, dilation=(2, 1, 1), pad=(1, 0, 2, 1, 0, 3), stride=(1, 2, 3))
    (found,) = op.evaluate(x, w, b)
    wanted = run_node("Conv", [x, w, b], group=groups, dilations=[2, 1, 1], pads=[1, 2, 0, 0, 1, 3], strides=[1, 2, 3])
    assert op.infer(*(TensorType(F32, a.shape) for a in (x, w, b)))[0].shape == found.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)  # the reference sums in binary32


def test_half_precision_is_rounded_once():
    x, w = np.full((1, 1, 1, 1, 3), 2048, np.float16), np.ones((1, 1, 1, 1, 3), np.float16)
    (found,) = Conv3d().evaluate(x, w, np.array([3], np.float16))
    assert found.dtype == np.float16
    assert (
        found.item() == 6148
    )  # 3 * 2048 + 3 = 6147 is between 6144 and 6148; accumulation in float16 would lose the 3


def test_symbolic_batch():
    x, w = TensorType(F16, ("N", 1, 4, 4, 4)), TensorType(F16, (2, 1, 1, 2, 3))
    assert Conv3d().infer(x, w) == (TensorType(F16, ("N", 2, 4, 3, 2)),)


@pytest.mark.parametrize(
    ("op", "x", "w", "b", "message"),
    [
        (Conv3d(), (1, 2, 4, 4, 4), (2, 1, 1, 1, 1), None, "input channels must be 1"),
        (Conv3d(groups=2), (1, 2, 4, 4, 4), (3, 1, 1, 1, 1), None, "3 output channels in 2 groups"),
        (Conv3d(), (1, 1, 4, 4, 4), (2, 1, 1, 1, 1), (3,), r"the bias must be \[2\]"),
        (Conv3d(), (1, 1, 4, 4, 4), (2, 1, 5, 1, 1), None, "does not fit"),
        (Conv3d(), (1, 1, 4, 4), (2, 1, 1, 1, 1), None, "rank 5"),
        (Deconv3dV2(pad_t_0=4), (1, 1, 4, 4, 4), (1, 1, 1, 1, 1), None, "leave nothing"),
        (Conv3dV2(has_bias=True), (1, 1, 4, 4, 4), (1, 1, 1, 1, 1), None, "has_bias"),
        (Conv3dV2(is_izp_const=False, izp_vec=(1, 2)), (1, 1, 4, 4, 4), (1, 1, 1, 1, 1), None, "2 values in izp_vec"),
    ],
)
def test_shapes_that_do_not_fit(op, x, w, b, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(TensorType(F32, x), TensorType(F32, w), None if b is None else TensorType(F32, b))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Conv3d(stride=(1, 0, 1)),
        lambda: Conv3d(pad=(0, 0, -1, 0, 0, 0)),
        lambda: Conv3d(dilation=(1, 1)),
        lambda: Conv3dV2(pad_t_1=-1, stride_t=2),
        lambda: Deconv3dV2(pad_t_1=-2, stride_t=2),
    ],
)
def test_parameters_out_of_range(make):
    with pytest.raises(ValueError, match="conv3d"):
        make()


@st.composite
def poolings(draw):
    """A small pooling: operator and array."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kernel, strides = ([draw(st.integers(1, 3)) for _ in range(3)] for _ in range(2))
    pads = [(draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))) for size in kernel]
    extents = [size + draw(st.integers(0, 2)) for size in kernel]
    dtype = draw(st.sampled_from([I8, U8, I16]))
    x = oracles.random_integers(rng, dtype, (draw(SMALL), draw(SMALL), *extents), draw(st.booleans()))
    names = "thw"
    settings_ = {f"kernel_{a}": kernel[i] for i, a in enumerate(names)}
    settings_ |= {f"stride_{a}": strides[i] for i, a in enumerate(names)}
    settings_ |= {f"pad_{a}_{side}": pads[i][side] for i, a in enumerate(names) for side in (0, 1)}
    settings_ |= {"out_ceil_mode": draw(st.integers(0, 1)), "is_avg_pooling": draw(st.booleans())}
    if draw(st.booleans()):
        settings_ |= {"quant_mode": 2, "scale": draw(st.integers(-300, 300)), "rshift": draw(st.integers(0, 12))}
    return Pool3dInt(**settings_), x


@settings(max_examples=60)
@given(poolings())
def test_pooling(use):
    op, x = use
    try:
        shapes = [item.static_shape for item in op.infer(TensorType(DType.of(x.dtype), x.shape))]
    except ShapeError:
        return  # a window that exists only in ceil mode
    found = op.evaluate(x)
    dtype = DType.of(x.dtype)
    kernel = (op.kernel_t, op.kernel_h, op.kernel_w)
    strides, pads = (op.stride_t, op.stride_h, op.stride_w), (op.pad_t_0, op.pad_h_0, op.pad_w_0)
    assert [item.shape for item in found] == shapes
    for n, c, *window in np.ndindex(*shapes[0]):
        starts = [index * s - p for index, s, p in zip(window, strides, pads, strict=True)]
        ranges = [
            range(max(start, 0), min(start + k, extent))
            for start, k, extent in zip(starts, kernel, x.shape[2:], strict=True)
        ]
        elements = [(int(x[n, c, t, h, w]), (t, h, w)) for t, h, w in itertools.product(*ranges)]
        total = sum(value for value, _ in elements)
        if not op.is_avg_pooling:
            largest = max(value for value, _ in elements)
            t, h, w = next(index for value, index in elements if value == largest)
            assert found[1][n, c, *window] == (t * x.shape[3] + h) * x.shape[4] + w
            wanted = largest
        elif op.quant_mode == 1:
            quotient = Fraction(total, len(elements))
            wanted = int(abs(quotient) + Fraction(1, 2)) * (1 if quotient >= 0 else -1)
        else:
            wanted = int((Fraction(total * op.scale, 2**op.rshift) + Fraction(1, 2)).__floor__())
        assert found[0][n, c, *window] == min(max(wanted, dtype.min), dtype.max)


def test_a_window_outside_the_volume():
    op = Pool3dInt(
        stride_t=2, stride_h=1, stride_w=1, kernel_t=1, kernel_h=1, kernel_w=1, pad_t_1=1, is_avg_pooling=True
    )
    with pytest.raises(ShapeError, match="window 1 holds no element"):
        op.infer(TensorType(I8, (1, 1, 2, 1, 1)))
