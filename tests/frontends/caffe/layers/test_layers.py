"""Single layers, with values computed by hand or by the formula of Caffe's documentation."""

import math
import re

import numpy as np
import pytest

from tests.support.caffe.networks import layer, load_text, run, run_layer, with_input
from tpuconvert.frontends.caffe.node import caffe_op
from tpuconvert.schema.errors import UnsupportedError

ROW = np.array([[-2.0, -0.5, 0.0, 0.5, 2.0]], np.float32)
COUNT = np.arange(1.0, 25.0, dtype=np.float32)
IMAGE = COUNT.reshape(1, 2, 3, 4)

ELEMENT_BY_ELEMENT = [
    ("AbsVal", "", np.abs),
    ("ReLU", "", lambda x: np.maximum(x, 0)),
    ("ReLU", "relu_param { negative_slope: 0.25 }", lambda x: np.where(x > 0, x, 0.25 * x)),
    ("ReLU6", "", lambda x: np.clip(x, 0, 6)),
    ("Sigmoid", "", lambda x: 1 / (1 + np.exp(-x))),
    ("TanH", "", np.tanh),
    ("ELU", "", lambda x: np.where(x > 0, x, np.exp(x) - 1)),
    ("ELU", "elu_param { alpha: 0.5 }", lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1))),
    ("BNLL", "", lambda x: np.log(1 + np.exp(x))),
    ("Swish", "", lambda x: x / (1 + np.exp(-x))),
    ("Swish", "swish_param { beta: 2 }", lambda x: x / (1 + np.exp(-2 * x))),
    ("HardSigmoid", "", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    ("HardSwish", "", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ("Mish", "", lambda x: x * np.tanh(np.log(1 + np.exp(x)))),
    ("Clip", "clip_param { min: -1 max: 0.25 }", lambda x: np.clip(x, -1, 0.25)),
    ("Threshold", "threshold_param { threshold: 0.5 }", lambda x: x > 0.5),
    ("Power", "", lambda x: x),
    ("Power", "power_param { power: 2 }", lambda x: x**2),
    ("Power", "power_param { power: 3 scale: 0.5 shift: 1 }", lambda x: (1 + 0.5 * x) ** 3),
    ("Power", "power_param { power: 7 }", lambda x: x**7),
    ("Power", "power_param { power: -11 shift: 3 }", lambda x: (3 + x) ** -11),
    ("Power", "power_param { power: 0 }", np.ones_like),
    ("Power", "power_param { power: 0.5 shift: 3 }", lambda x: np.sqrt(3 + x)),
    ("Power", "power_param { power: -0.5 shift: 3 }", lambda x: 1 / np.sqrt(3 + x)),
    ("Power", "power_param { power: -1 shift: 3 }", lambda x: 1 / (3 + x)),
    ("Power", "power_param { power: 0.75 shift: 2 }", lambda x: (2 + x) ** 0.75),
    ("Exp", "", np.exp),
    ("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }", lambda x: 2 ** (1 + 0.5 * x)),
    ("Log", "log_param { shift: 3 }", lambda x: np.log(3 + x)),
    ("Log", "log_param { base: 10 scale: 2 shift: 5 }", lambda x: np.log10(5 + 2 * x)),
    ("Dropout", "dropout_param { dropout_ratio: 0.3 }", lambda x: x),
    ("SigmoidCrossEntropyLoss", "", lambda x: 1 / (1 + np.exp(-x))),
    ("CReLU", "", lambda x: np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], axis=1)),
]


@pytest.mark.parametrize(
    ("type_", "parameters", "formula"),
    ELEMENT_BY_ELEMENT,
    ids=lambda item: item[:48] if isinstance(item, str) else item.__name__,
)
def test_element_by_element(tmp_path, type_, parameters, formula):
    (y,) = run_layer(tmp_path, type_, parameters, ROW)
    expected = np.asarray(formula(ROW.astype(np.float64)), np.float64)
    assert y.shape == expected.shape
    assert y == pytest.approx(expected, rel=2e-6, abs=1e-6)  # a few roundings to binary32


def test_prelu(tmp_path):
    x = np.array([[-1.0, -2.0, 3.0]], np.float32)
    (y,) = run_layer(tmp_path, "PReLU", "", x, blobs=[np.array([0.5, 0.25, 0.1])])
    assert y.tolist() == [[-0.5, -0.5, 3]]
    (y,) = run_layer(tmp_path, "PReLU", "prelu_param { channel_shared: true }", x, blobs=[np.array([0.5])])
    assert y.tolist() == [[-0.5, -1, 3]]


# Convolution


def test_convolution_by_hand(tmp_path):
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    kernel = np.array([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 1, 2, 2)
    (y,) = run_layer(
        tmp_path, "Convolution", "convolution_param { num_output: 1 kernel_size: 2 }", x, blobs=[kernel, [10]]
    )
    assert y.tolist() == [[[[37, 47], [67, 77]]]]  # 0*1 + 1*2 + 3*3 + 4*4 + 10 = 37


def correlate(x, w, strides, pads, dilations, groups):
    """Plain loops over outputs."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads[0],) * 2, (pads[1],) * 2))
    kh, kw = ((w.shape[2 + k] - 1) * dilations[k] + 1 for k in (0, 1))
    oh, ow = (x.shape[2] - kh) // strides[0] + 1, (x.shape[3] - kw) // strides[1] + 1
    y = np.zeros((x.shape[0], w.shape[0], oh, ow))
    per_group = w.shape[0] // groups
    for o in range(w.shape[0]):
        first = o // per_group * w.shape[1]
        for i in range(oh):
            for j in range(ow):
                top, left = i * strides[0], j * strides[1]
                window = x[
                    :, first : first + w.shape[1], top : top + kh : dilations[0], left : left + kw : dilations[1]
                ]
                y[:, o, i, j] = (window * w[o]).sum((1, 2, 3))
    return y


@pytest.mark.parametrize(
    ("type_", "parameters", "kernel", "strides", "pads", "dilations", "groups"),
    [
        ("Convolution", "kernel_size: 3 pad: 1 stride: 2", (3, 3), (2, 2), (1, 1), (1, 1), 1),
        ("Convolution", "kernel_size: 3 kernel_size: 2 stride: [1, 2] pad: [0, 1]", (3, 2), (1, 2), (0, 1), (1, 1), 1),
        (
            "Convolution",
            "kernel_h: 1 kernel_w: 3 pad_h: 2 pad_w: 1 stride_h: 2 stride_w: 1",
            (1, 3),
            (2, 1),
            (2, 1),
            (1, 1),
            1,
        ),
        ("Convolution", "kernel_size: 2 dilation: 2 group: 2", (2, 2), (1, 1), (0, 0), (2, 2), 2),
        ("ConvolutionDepthwise", "kernel_size: 3 pad: 1", (3, 3), (1, 1), (1, 1), (1, 1), 4),
        ("DepthwiseConvolution", "kernel_size: 3 pad: 1 group: 4", (3, 3), (1, 1), (1, 1), (1, 1), 4),
    ],
)
def test_convolution(tmp_path, type_, parameters, kernel, strides, pads, dilations, groups):
    generator = np.random.default_rng(7)
    x = generator.standard_normal((2, 4, 6, 7)).astype(np.float32)
    w = generator.standard_normal((8, 4 // groups, *kernel)).astype(np.float32)
    text = f"convolution_param {{ num_output: 8 bias_term: false {parameters} }}"
    (y,) = run_layer(tmp_path, type_, text, x, blobs=[w])
    expected = correlate(x, w, strides, pads, dilations, groups)
    assert y.shape == expected.shape
    assert y == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_deconvolution_by_hand(tmp_path):
    """Every input pixel writes its multiple of the kernel; stride 2 lets them overlap by one column."""
    x = np.array([1.0, 10.0]).reshape(1, 1, 1, 2)
    kernel = np.array([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3)
    parameters = (
        "convolution_param { num_output: 1 kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: %d }"
    )
    (y,) = run_layer(tmp_path, "Deconvolution", parameters % 0, x, blobs=[kernel, [0.5]])
    assert y.tolist() == [[[[1.5, 2.5, 13.5, 20.5, 30.5]]]]
    (y,) = run_layer(tmp_path, "Deconvolution", parameters % 1, x, blobs=[kernel, [0.5]])
    assert y.tolist() == [[[[2.5, 13.5, 20.5]]]]


# Pooling: Caffe rounds the extent up, and an average counts padding


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("kernel_size: 2 stride: 2", [[[6, 8], [10, 12]]]),  # three rows: the second window has one row
        ("kernel_size: 2 stride: 2 round_mode: FLOOR", [[[6, 8]]]),
        ("kernel_size: 2 stride: 2 ceil_mode: false", [[[6, 8]]]),
        ("pool: AVE kernel_size: 2 stride: 2", [[[3.5, 5.5], [9.5, 11.5]]]),
        # windows begin at -1, 1 (rows) and -1, 1, 3 (columns); the one at row 3 would begin past the image
        ("pool: AVE kernel_size: 2 stride: 2 pad: 1", [[[0.25, 1.25, 1], [3.5, 8.5, 5]]]),
        ("pool: AVE global_pooling: true", [[[6.5]]]),
        ("pool: MAX kernel_h: 3 kernel_w: 1 stride_h: 1 stride_w: 3", [[[9, 12]]]),
    ],
)
def test_pooling(tmp_path, parameters, expected):
    x = np.arange(1.0, 13.0).reshape(1, 1, 3, 4)
    (y,) = run_layer(tmp_path, "Pooling", f"pooling_param {{ {parameters} }}", x)
    assert y[0].tolist() == expected


def test_pooling_drops_a_window_past_the_image(tmp_path):
    """Extent 4, kernel 3, stride 2, pad 1: ceil(3 / 2) + 1 = 3 windows from -1, 1, 3; stride 3: from -1, 2 only."""
    x = np.arange(1.0, 5.0).reshape(1, 1, 1, 4)
    parameters = "pooling_param { kernel_h: 1 kernel_w: 3 pad_w: 1 pad_h: 0 stride_h: 1 stride_w: %d }"
    assert run_layer(tmp_path, "Pooling", parameters % 2, x)[0].tolist() == [[[[2, 4, 4]]]]
    assert run_layer(tmp_path, "Pooling", parameters % 3, x)[0].tolist() == [[[[2, 4]]]]


def test_spp(tmp_path):
    x = np.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    (y,) = run_layer(tmp_path, "SPP", "spp_param { pyramid_height: 2 }", x)
    assert y.tolist() == [[16, 6, 8, 14, 16]]


# Shapes


@pytest.mark.parametrize(
    ("type_", "parameters", "expected"),
    [
        ("Flatten", "", (1, 24)),
        ("Flatten", "flatten_param { axis: 2 }", (1, 2, 12)),
        ("Flatten", "flatten_param { axis: 0 end_axis: -3 }", (2, 3, 4)),
        ("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 4 } }", (1, 6, 4)),
        ("Reshape", "reshape_param { shape { dim: 12 } axis: 2 }", (1, 2, 12)),
        ("Reshape", "reshape_param { shape { dim: 6 } axis: 1 num_axes: 2 }", (1, 6, 4)),
        ("Reshape", "reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }", (1, 2, 3, 4, 1)),
        ("Reshape", "reshape_param { shape { dim: 2 dim: 2 } axis: -2 }", (1, 2, 3, 2, 2)),
        ("Reshape", "reshape_param { shape { dim: 0 dim: 0 dim: -1 } axis: 1 num_axes: 3 }", (1, 2, 3, 4)),
    ],
)
def test_shape_changes(tmp_path, type_, parameters, expected):
    (y,) = run_layer(tmp_path, type_, parameters, IMAGE)
    assert y.shape == expected
    assert np.array_equal(y.reshape(-1), COUNT)


@pytest.mark.parametrize(("order", "full"), [([0, 2, 3, 1], [0, 2, 3, 1]), ([3, 1], [3, 1, 0, 2]), ([], [0, 1, 2, 3])])
def test_permute(tmp_path, order, full):
    (y,) = run_layer(tmp_path, "Permute", f"permute_param {{ order: {order} }}", IMAGE)
    assert np.array_equal(y, IMAGE.transpose(full))


@pytest.mark.parametrize(
    ("parameters", "axis"), [("", 1), ("concat_param { axis: -1 }", 3), ("concat_param { concat_dim: 0 }", 0)]
)
def test_concat(tmp_path, parameters, axis):
    (y,) = run_layer(tmp_path, "Concat", parameters, IMAGE, -IMAGE, IMAGE)
    assert np.array_equal(y, np.concatenate([IMAGE, -IMAGE, IMAGE], axis))


def test_slice(tmp_path):
    parts = run_layer(tmp_path, "Slice", "slice_param { axis: 3 slice_point: 1 slice_point: 3 }", IMAGE, tops="a b c")
    assert [part.shape[3] for part in parts] == [1, 2, 1]
    assert np.array_equal(np.concatenate(parts, 3), IMAGE)
    halves = run_layer(tmp_path, "Slice", "slice_param { slice_dim: 1 }", IMAGE, tops="a b")
    assert np.array_equal(halves[1], IMAGE[:, 1:])


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", IMAGE[:, :, :2, :2]),
        ("crop_param { offset: 1 }", IMAGE[:, :, 1:3, 1:3]),
        ("crop_param { offset: 0 offset: 2 }", IMAGE[:, :, :2, 2:]),
        ("crop_param { axis: 1 offset: 1 offset: 1 offset: 0 }", IMAGE[:, 1:, 1:3, :2]),
    ],
)
def test_crop(tmp_path, parameters, expected):
    (y,) = run_layer(tmp_path, "Crop", parameters, IMAGE, np.zeros((1, 1 if "axis" in parameters else 9, 2, 2)))
    assert np.array_equal(y, expected)


def test_tile(tmp_path):
    (y,) = run_layer(tmp_path, "Tile", "tile_param { axis: 2 tiles: 2 }", IMAGE)
    assert np.array_equal(y, np.tile(IMAGE, (1, 1, 2, 1)))


def test_shuffle_channel(tmp_path):
    x = np.arange(6.0).reshape(1, 6, 1, 1)
    (y,) = run_layer(tmp_path, "ShuffleChannel", "shuffle_channel_param { group: 2 }", x)
    assert y.reshape(-1).tolist() == [0, 3, 1, 4, 2, 5]


def test_reorg_in_darknets_order(tmp_path):
    """The loops of darknet's reorg_cpu, as its reorg layer calls them."""
    c, h, w, s = 8, 4, 6, 2
    x = np.arange(float(c * h * w), dtype=np.float32)
    y = np.zeros_like(x)
    for k in range(c):
        for j in range(h):
            for i in range(w):
                c2, offset = k % (c // (s * s)), k // (c // (s * s))
                w2, h2 = i * s + offset % s, j * s + offset // s
                y[i + w * (j + h * k)] = x[w2 + w * s * (h2 + h * s * c2)]
    x, y = x.reshape(1, c, h, w), y.reshape(1, c * s * s, h // s, w // s)
    (found,) = run_layer(tmp_path, "Reorg", "reorg_param { stride: 2 }", x)
    assert np.array_equal(found, y)
    (back,) = run_layer(tmp_path, "Reorg", "reorg_param { stride: 2 reverse: true }", y)
    assert np.array_equal(back, x)


def test_batch_reindex(tmp_path):
    x = np.arange(6.0).reshape(3, 2)
    (y,) = run_layer(tmp_path, "BatchReindex", "", x, np.array([2.0, 0.0, 2.0]))
    assert y.tolist() == [[4, 5], [0, 1], [4, 5]]


# Element-wise combinations


@pytest.mark.parametrize(
    ("type_", "parameters", "expected"),
    [
        ("Eltwise", "", [[6, 7]]),
        ("Eltwise", "eltwise_param { operation: SUM coeff: 1 coeff: -2 coeff: 0.5 }", [[-1.5, 7]]),
        ("Eltwise", "eltwise_param { operation: PROD }", [[6, -12]]),
        ("Eltwise", "eltwise_param { operation: MAX stable_prod_grad: false }", [[3, 6]]),
        ("Maximum", "", [[3, 6]]),
        ("Minimum", "", [[1, -1]]),
    ],
)
def test_combinations(tmp_path, type_, parameters, expected):
    tensors = [np.array([row], np.float32) for row in ([1, 2], [2, -1], [3, 6])]
    assert run_layer(tmp_path, type_, parameters, *tensors)[0].tolist() == expected


@pytest.mark.parametrize(
    ("parameters", "shape"),
    [
        ("", (1, 2, 1, 1)),
        ("axis: 2 num_axes: 2", (1, 1, 3, 4)),
        ("axis: -1", (1, 1, 1, 4)),
        ("axis: 0 num_axes: -1", (1, 2, 3, 4)),
        ("num_axes: 0", (1, 1, 1, 1)),
    ],
)
def test_scale_and_bias(tmp_path, parameters, shape):
    factor = np.linspace(-1, 1, math.prod(shape)).astype(np.float32)
    start = next((k for k in range(4) if shape[k] != 1), 4)
    blob = factor.reshape(shape[start:] if start < 4 else ())
    (y,) = run_layer(
        tmp_path, "Scale", f"scale_param {{ {parameters} bias_term: true }}", IMAGE, blobs=[blob, blob + 1]
    )
    assert y == pytest.approx(IMAGE * factor.reshape(shape) + (factor.reshape(shape) + 1), rel=1e-6)
    (y,) = run_layer(tmp_path, "Bias", f"bias_param {{ {parameters} }}", IMAGE, blobs=[blob])
    assert np.array_equal(y, IMAGE + factor.reshape(shape))


def test_scale_by_a_second_tensor(tmp_path):
    factor = np.array([[2.0, -1.0]], np.float32)
    (y,) = run_layer(tmp_path, "Scale", "scale_param { axis: 0 }", IMAGE, factor)
    assert np.array_equal(y, IMAGE * factor.reshape(1, 2, 1, 1))


def test_axpy(tmp_path):
    (y,) = run_layer(tmp_path, "Axpy", "", np.array([2.0, 0.5]).reshape(1, 2, 1, 1), IMAGE, -IMAGE)
    assert np.array_equal(y, IMAGE * np.array([2, 0.5]).reshape(1, 2, 1, 1) - IMAGE)


# Fully connected


def test_inner_product(tmp_path):
    x = np.arange(6.0).reshape(1, 2, 3)
    w = np.array([[1.0, 0, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0]])
    text = "inner_product_param { num_output: 2 %s }"
    assert run_layer(tmp_path, "InnerProduct", text % "", x, blobs=[w, [10, 20]])[0].tolist() == [[15, 23]]
    assert run_layer(tmp_path, "InnerProduct", text % "transpose: true", x, blobs=[w.T, [10, 20]])[0].tolist() == [
        [15, 23]
    ]
    rows = run_layer(
        tmp_path, "InnerProduct", text % "axis: 2 bias_term: false", x, blobs=[np.array([[1, 0, 0], [0, 1, 1]])]
    )
    assert rows[0].tolist() == [[[0, 3], [3, 9]]]


def test_embed(tmp_path):
    table = np.arange(6.0).reshape(3, 2)
    text = "embed_param { num_output: 2 input_dim: 3 }"
    (y,) = run_layer(tmp_path, "Embed", text, np.array([[2.0, 0.0]]), blobs=[table, [10, 20]])
    assert y.tolist() == [[[14, 25], [10, 21]]]


# Normalization


def test_batch_norm_divides_its_statistics(tmp_path):
    """mean [2, 4] and variance [8, 32] are sums over 2: mean 1, 2 and variance 4, 16."""
    x = np.array([[5.0, 10.0]], np.float32)
    blobs = [np.array([2.0, 4.0]), np.array([8.0, 32.0]), np.array([2.0])]
    (y,) = run_layer(tmp_path, "BatchNorm", "batch_norm_param { eps: 0 }", x, blobs=blobs)
    assert y.tolist() == [[2, 2]]
    scaled = [*blobs, np.array([3.0, 1.0]), np.array([0.0, -1.0])]
    (y,) = run_layer(tmp_path, "BatchNorm", "batch_norm_param { eps: 0 scale_bias: true }", x, blobs=scaled)
    assert y.tolist() == [[6, 1]]


def test_batch_norm_without_stored_statistics(tmp_path):
    x = np.array([1.0, 3.0]).reshape(2, 1)
    blobs = [np.zeros(1), np.zeros(1), np.zeros(1)]
    (y,) = run_layer(tmp_path, "BatchNorm", "batch_norm_param { eps: 0 use_global_stats: false }", x, blobs=blobs)
    assert y.tolist() == [[-1], [1]]


def test_bn_of_two_forks(tmp_path):
    x = np.array([[5.0, 10.0]], np.float32)
    segnet = [np.array([2.0, 3.0]).reshape(1, 2, 1, 1), np.array([1.0, 0.0]).reshape(1, 2, 1, 1)]
    assert run_layer(tmp_path, "BN", "bn_param { bn_mode: INFERENCE }", x, blobs=segnet)[0].tolist() == [[11, 30]]
    pspnet = [np.array([2.0, 3.0]), np.array([1.0, 0.0]), np.array([1.0, 2.0]), np.array([4.0, 16.0])]
    assert run_layer(tmp_path, "BN", "bn_param { eps: 0 }", x, blobs=pspnet)[0].tolist() == [[5, 6]]


def test_lrn_across_channels(tmp_path):
    x = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    (y,) = run_layer(tmp_path, "LRN", "lrn_param { local_size: 3 alpha: 3 beta: 0.5 k: 2 }", x)
    sums = np.array([1 + 4, 1 + 4 + 9, 4 + 9 + 16, 9 + 16.0])
    assert y.reshape(-1) == pytest.approx(x.reshape(-1) / np.sqrt(2 + sums), rel=1e-6)


def test_mvn(tmp_path):
    x = np.array([[1.0, 3.0], [2.0, 6.0]]).reshape(1, 2, 1, 2)
    (y,) = run_layer(tmp_path, "MVN", "mvn_param { eps: 1 }", x)
    assert y.reshape(2, 2) == pytest.approx(np.array([[-0.5, 0.5], [-2 / 3, 2 / 3]]))
    (y,) = run_layer(tmp_path, "MVN", "mvn_param { across_channels: true normalize_variance: false }", x)
    assert y.reshape(2, 2).tolist() == [[-2, 0], [-1, 3]]


def test_normalize(tmp_path):
    x = np.array([3.0, 4.0, 0.0, 2.0]).reshape(1, 2, 1, 2)
    parameters = "norm_param { across_spatial: %s channel_shared: %s eps: 0 }"
    (y,) = run_layer(tmp_path, "Normalize", parameters % ("false", "false"), x, blobs=[np.array([10.0, 20.0])])
    root = math.sqrt(20)
    assert y.reshape(-1) == pytest.approx([10, 40 / root, 0, 40 / root])
    (y,) = run_layer(tmp_path, "NormalizeBBox", parameters % ("true", "true"), x, blobs=[np.array([2.0])])
    assert y.reshape(-1) == pytest.approx(2 * x.reshape(-1) / math.sqrt(29))


def test_softmax(tmp_path):
    x = np.log(np.array([[1.0, 3.0], [2.0, 2.0]]))
    assert run_layer(tmp_path, "Softmax", "", x)[0] == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5]]))
    assert run_layer(tmp_path, "Softmax", "softmax_param { axis: 0 }", x)[0] == pytest.approx(
        np.array([[1 / 3, 0.6], [2 / 3, 0.4]])
    )


# Reductions


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", 6.0),
        ("operation: MEAN coeff: 2", 3.0),
        ("operation: ASUM axis: 1", [5.0, 5.0]),
        ("operation: SUMSQ axis: -1", [13.0, 17.0]),
    ],
)
def test_reduction(tmp_path, parameters, expected):
    x = np.array([[-2.0, 3.0], [1.0, 4.0]])
    (y,) = run_layer(tmp_path, "Reduction", f"reduction_param {{ {parameters} }}", x)
    assert y.shape == np.shape(expected)
    assert y.tolist() == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", [[[1]], [[0]]]),
        ("top_k: 2", [[[1, 2]], [[0, 2]]]),
        ("top_k: 2 out_max_val: true", [[[1, 2], [9, 5]], [[0, 2], [7, 6]]]),
        ("axis: 1", [[1], [0]]),
        ("axis: 1 out_max_val: true", [[9], [7]]),
        ("axis: 0", [[1, 0, 1]]),
    ],
)
def test_argmax(tmp_path, parameters, expected):
    x = np.array([[1.0, 9.0, 5.0], [7.0, 2.0, 6.0]])
    assert run_layer(tmp_path, "ArgMax", f"argmax_param {{ {parameters} }}", x)[0].tolist() == expected


@pytest.mark.parametrize("power", [65, 66, -65, 2.5, -0.5, 0.5, -3])
def test_power_of_negative_bases(tmp_path, power):
    x = np.array([[-1.5, -1.0, -0.5, 0.0, 0.5, 1.25]], np.float32)
    with np.errstate(all="ignore"):
        expected = np.power(x, np.float32(power))
    y = run_layer(tmp_path, "Power", f"power_param {{ power: {power} }}", x)[0]
    np.testing.assert_allclose(y, expected, rtol=2e-5)


@pytest.mark.parametrize("parameters", ["", "axis: 1", "top_k: 2", "top_k: 4 axis: 1", "top_k: 3 out_max_val: true"])
def test_argmax_selects_the_last_of_equal_elements(tmp_path, parameters):
    """Caffe sorts pairs of value and index by ``std::greater``."""
    x = np.array([[1.0, 5.0, 5.0, 2.0], [7.0, 7.0, 7.0, 7.0], [0.0, 3.0, -1.0, 3.0]])
    count = int((re.search(r"top_k: (\d)", parameters) or ["", "1"])[1])
    pairs = [sorted(((value, index) for index, value in enumerate(row)), reverse=True)[:count] for row in x.tolist()]
    indices, values = ([[pair[k] for pair in row] for row in pairs] for k in (1, 0))
    (y,) = run_layer(tmp_path, "ArgMax", f"argmax_param {{ {parameters} }}", x)
    if "axis" in parameters:
        assert y.tolist() == indices
    else:
        expected = zip(indices, values, strict=True) if "out_max_val" in parameters else zip(indices, strict=True)
        assert y.tolist() == [list(rows) for rows in expected]


# Sizes


def test_upsample(tmp_path):
    x = np.array([[1.0, 2.0]]).reshape(1, 1, 1, 2)
    (y,) = run_layer(tmp_path, "Upsample", "upsample_param { scale: 2 }", x)
    assert y.reshape(2, 4).tolist() == [[1, 1, 2, 2]] * 2


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("height: 1 width: 5", [[0, 1, 2, 3, 4]]),
        ("zoom_factor: 2", [[0, 1, 2, 3, 4]]),
        ("shrink_factor: 2", [[0, 4]]),
        ("shrink_factor: 2 zoom_factor: 4", [[0, 1, 2, 3, 4]]),
    ],
)
def test_interp(tmp_path, parameters, expected):
    x = np.array([0.0, 2.0, 4.0]).reshape(1, 1, 1, 3)
    (y,) = run_layer(tmp_path, "Interp", f"interp_param {{ {parameters} }}", x)
    assert y[0, 0] == pytest.approx(np.array(expected))


def test_interp_cuts_first(tmp_path):
    x = np.arange(25.0).reshape(1, 1, 5, 5)
    (y,) = run_layer(tmp_path, "Interp", "interp_param { pad_beg: -1 pad_end: -2 height: 2 width: 2 }", x)
    assert y[0, 0].tolist() == [[6, 7], [11, 12]]


# Data


def test_constants(tmp_path):
    text = with_input((1, 2), "") + (
        'layer { name: "c" type: "DummyData" top: "c"'
        ' dummy_data_param { num: 1 channels: 2 height: 1 width: 1 data_filler { type: "constant" value: 3 } } }'
        'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 1 dim: 2 } } }'
    )
    text += layer("Flatten", "", "c", "flat", "f") + layer("Eltwise", "", "x flat p", "y", "e")
    graph = load_text(tmp_path, text, {"p": [np.array([[10.0, 20.0]])]})
    assert run(graph, np.array([[1.0, 2.0]]))["y"].tolist() == [[14, 25]]


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ('type: "MemoryData" memory_data_param { batch_size: 2 channels: 1 height: 3 width: 4 }', (2, 1, 3, 4)),
        ('type: "ImageData" image_data_param { batch_size: 2 source: "f" new_height: 5 new_width: 6 }', (2, 3, 5, 6)),
        (
            'type: "ImageData" image_data_param { batch_size: 2 is_color: false } transform_param { crop_size: 7 }',
            (2, 1, 7, 7),
        ),
        ('type: "WindowData" window_data_param { batch_size: 2 crop_size: 8 }', (2, 3, 8, 8)),
        ('type: "DummyData" dummy_data_param { shape { dim: 2 dim: 9 } }', (2, 9)),
    ],
)
def test_data_layers_become_inputs(tmp_path, data, shape):
    graph = load_text(tmp_path, f'layer {{ name: "d" top: "x" {data} }}' + layer("ReLU"))
    assert [(port.name, port.shape) for port in graph.input_ports] == [("x", shape)]


# Refusals


@pytest.mark.parametrize(
    ("type_", "parameters", "shapes", "words"),
    [
        ("Convolution", "convolution_param { kernel_size: 1 }", [(1, 2, 3, 4)], "num_output is missing"),
        ("Convolution", "convolution_param { num_output: 1 }", [(1, 2, 3, 4)], "kernel_size is missing"),
        ("Convolution", "convolution_param { num_output: 3 kernel_size: 1 group: 2 }", [(1, 2, 3, 4)], "2 groups"),
        ("Convolution", "convolution_param { num_output: 1 kernel_size: 1 axis: 2 }", [(1, 2, 3, 4)], "axis: 2"),
        ("Convolution", "convolution_param { num_output: 1 kernel_size: 1 }", [(1, 2)], "spatial axes"),
        ("Convolution", "convolution_param { num_output: 1 kernel_size: 1 stride: 0 }", [(1, 2, 3, 4)], "1 or more"),
        ("Pooling", "pooling_param { kernel_size: 2 pad: 2 }", [(1, 2, 3, 4)], "must be below the kernel"),
        ("Pooling", "pooling_param { pool: MAX }", [(1, 2, 3, 4)], "has no kernel_size"),
        ("Pooling", "pooling_param { global_pooling: true pad: 1 }", [(1, 2, 3, 4)], "whole plane"),
        ("InnerProduct", "", [(1, 2)], "num_output is missing"),
        ("Eltwise", "", [(1, 2)], "needs two or more"),
        ("Eltwise", "", [(1, 2), (1, 3)], "which must be equal"),
        ("Eltwise", "eltwise_param { coeff: 1 }", [(1, 2), (1, 2)], "1 coeff for 2 bottoms"),
        ("Eltwise", "eltwise_param { operation: PROD coeff: [1, 2] }", [(1, 2), (1, 2)], "SUM only"),
        ("Scale", "", [(1, 2, 3), (4,)], "does not fit"),
        ("Scale", "scale_param { num_axes: 5 }", [(1, 2, 3)], "goes beyond"),
        ("Concat", "concat_param { axis: 7 }", [(1, 2), (1, 2)], "axis 7 does not exist"),
        ("Concat", "", [(1, 2, 3), (1, 2, 4)], "cannot join"),
        ("Slice", "slice_param { slice_point: 5 }", [(1, 4)], "cuts axis 1"),
        ("Reshape", "reshape_param { shape { dim: 5 } }", [(1, 4)], "does not fit"),
        ("Reshape", "reshape_param { shape { dim: -1 dim: -1 } }", [(1, 4)], "does not fit"),
        ("Reshape", "reshape_param { shape { dim: 1 dim: 4 dim: 0 } }", [(1, 4)], "cannot replace"),
        ("Flatten", "flatten_param { axis: 3 }", [(1, 4)], "axis 3 does not exist"),
        ("Permute", "permute_param { order: [0, 0] }", [(1, 4)], "of 2 axes"),
        ("Crop", "crop_param { axis: 1 offset: 1 }", [(1, 4), (1, 4)], "goes beyond"),
        ("Tile", "", [(1, 4)], "tiles: 0"),
        ("Dropout", "dropout_param { scale_train: false }", [(1, 4)], "scale_train: false"),
        ("Exp", "exp_param { base: -3 }", [(1, 4)], "base: -3"),
        ("Clip", "clip_param { min: 0 }", [(1, 4)], "has no max"),
        ("LRN", "lrn_param { local_size: 4 }", [(1, 2, 3, 4)], "odd size"),
        ("BN", "bn_param { bn_mode: LEARN }", [(1, 2)], "bn_mode: LEARN"),
        ("Upsample", "", [(1, 2, 3, 4), (1, 2, 3, 4)], "second bottom"),
        ("Interp", "", [(1, 2, 3, 4)], "no size"),
        ("Interp", "interp_param { pad_beg: 1 height: 3 width: 3 }", [(1, 2, 3, 4)], "only cutting"),
        ("Interp", "", [(1, 2, 3, 4), (1, 2)], "a second bottom of shape"),
        ("ArgMax", "argmax_param { top_k: 9 }", [(1, 2)], "top_k 9 of 2"),
        ("ReLU", "", [], "has 0 bottoms, needs 1"),
    ],
)
def test_what_a_layer_cannot_be(tmp_path, type_, parameters, shapes, words):
    with pytest.raises(UnsupportedError) as error:
        run_layer(tmp_path, type_, parameters, *(np.zeros(shape) for shape in shapes))
    (problem,) = error.value.problems
    assert words in problem.message + problem.hint
    assert problem.node == "layer"


def test_every_converter_has_a_sentence():
    nameless = [entry.name for entry in caffe_op.entries() if not entry.converter.__doc__]
    assert nameless == []
