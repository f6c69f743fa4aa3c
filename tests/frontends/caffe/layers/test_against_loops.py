"""Layers over random shapes and parameters, against plain loops in binary64 (``caffe_oracles``).

Tolerance: 2e-5 of the result's range where sums are rounded to binary32; elements that only move are equal.
"""

import math

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.caffe import oracles as loops
from tests.support.caffe.networks import layer, load_text, run, run_layer, with_input
from tpuconvert.schema.errors import UnsupportedError

SEEDS = range(8)


def check(found, expected, exact=False):
    expected = np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    if exact:
        assert np.array_equal(found, expected.astype(np.float32))
        return
    span = max(float(expected.max() - expected.min()), 1.0) if expected.size else 1.0
    assert np.abs(found.astype(np.float64) - expected).max(initial=0) <= 2e-5 * span


def normal(generator, *shape):
    return generator.standard_normal(shape).astype(np.float32)


def in_text(values):
    return "[" + ", ".join(map(str, values)) + "]"


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("type_", ["Convolution", "Deconvolution"])
def test_convolutions(tmp_path, type_, seed, axes):
    generator = np.random.default_rng(100 * seed + axes)
    group = int(generator.choice([1, 1, 2]))
    channels, filters = group * int(generator.integers(1, 3)), group * int(generator.integers(1, 3))
    kernel, stride, dilation = (
        generator.integers(1, 4, axes),
        generator.integers(1, 3, axes),
        generator.integers(1, 3, axes),
    )
    pad = np.array([int(generator.integers(0, (k - 1) * d + 1)) for k, d in zip(kernel, dilation, strict=True)])
    spatial = (kernel - 1) * dilation + 1 + generator.integers(0, 4, axes)
    has_bias = bool(generator.integers(0, 2))
    text = (
        f"convolution_param {{ num_output: {filters} group: {group} kernel_size: {in_text(kernel)} "
        f"stride: {in_text(stride)} pad: {in_text(pad)} dilation: {in_text(dilation)} "
        f"bias_term: {str(has_bias).lower()} }}"
    )
    x = normal(generator, 2, channels, *spatial)
    is_transposed = type_ == "Deconvolution"
    shape = (channels, filters // group) if is_transposed else (filters, channels // group)
    w, b = normal(generator, *shape, *kernel), normal(generator, filters) if has_bias else None
    oracle = loops.deconvolution if is_transposed else loops.convolution
    expected = oracle(x, w, b, stride, pad, dilation, group)
    if min(expected.shape) < 1:
        pytest.skip("padding leaves nothing")
    (y,) = run_layer(tmp_path, type_, text, x, blobs=[w, b] if has_bias else [w])
    check(y, expected)


def test_bottoms_share_a_kernel(tmp_path):
    generator = np.random.default_rng(1)
    first, second, w = normal(generator, 1, 2, 4, 4), normal(generator, 1, 2, 4, 4), normal(generator, 3, 2, 3, 3)
    text = "convolution_param { num_output: 3 kernel_size: 3 bias_term: false }"
    found = run_layer(tmp_path, "Convolution", text, first, second, blobs=[w], tops="y z")
    for x, y in zip((first, second), found, strict=True):
        check(y, loops.convolution(x, w, None, (1, 1), (0, 0), (1, 1), 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_im2col(tmp_path, seed):
    generator = np.random.default_rng(seed)
    kernel, stride, dilation = (generator.integers(1, 4, 2) for _ in range(3))
    pad = generator.integers(0, 2, 2)
    x = normal(generator, 2, 3, *((kernel - 1) * dilation + 1 + generator.integers(0, 3, 2)))
    text = (
        f"convolution_param {{ kernel_size: {in_text(kernel)} stride: {in_text(stride)} pad: {in_text(pad)} "
        f"dilation: {in_text(dilation)} }}"
    )
    (y,) = run_layer(tmp_path, "Im2col", text, x)
    check(y, loops.im2col(x, kernel, stride, pad, dilation), exact=True)


@pytest.mark.parametrize("method", ["MAX", "AVE", "STOCHASTIC"])
@pytest.mark.parametrize("rounding", ["CEIL", "FLOOR"])
@pytest.mark.parametrize("seed", SEEDS)
def test_pooling(tmp_path, seed, rounding, method):
    generator = np.random.default_rng(seed)
    kernel, stride = generator.integers(1, 5, 2), generator.integers(1, 5, 2)
    pad = np.array([int(generator.integers(0, k)) for k in kernel]) * (method != "STOCHASTIC")
    x = normal(generator, 2, 2, *(kernel + generator.integers(0, 6, 2)))
    if method == "STOCHASTIC":
        x = np.maximum(x, 0)  # some windows are all 0
    text = (
        f"pooling_param {{ pool: {method} kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride_h: {stride[0]} "
        f"stride_w: {stride[1]} pad_h: {pad[0]} pad_w: {pad[1]} round_mode: {rounding} }}"
    )
    if method == "AVE" and rounding == "CEIL" and not pad.any() and has_empty_window(x.shape[2:], kernel, stride):
        with pytest.raises(UnsupportedError, match="begins past the end of the image"):
            run_layer(tmp_path, "Pooling", text, x)
        return
    (y,) = run_layer(tmp_path, "Pooling", text, x)
    check(y, loops.pooling(x, method, kernel, stride, pad, rounding == "CEIL")[0], exact=method == "MAX")


def has_empty_window(extents, kernel, stride):
    return any(-(-(n - k) // s) * s >= n for n, k, s in zip(extents, kernel, stride, strict=True))


@pytest.mark.parametrize("method", ["MAX", "AVE", "STOCHASTIC"])
def test_global_pooling(tmp_path, method):
    x = np.abs(normal(np.random.default_rng(3), 2, 3, 5, 4))
    (y,) = run_layer(tmp_path, "Pooling", f"pooling_param {{ pool: {method} global_pooling: true }}", x)
    check(y, loops.pooling(x, method, (5, 4), (1, 1), (0, 0))[0])


@pytest.mark.parametrize("rounding", ["CEIL", "FLOOR"])
@pytest.mark.parametrize("extents", [(6, 4), (7, 5), (5, 9)])
def test_positions_of_maxima_and_back(tmp_path, extents, rounding):
    """Ties are frequent here: the first of equal elements is meant."""
    x = np.random.default_rng(5).integers(0, 3, (2, 2, *extents)).astype(np.float32)
    text = with_input(
        x.shape,
        layer("Pooling", f"pooling_param {{ kernel_size: 2 stride: 2 round_mode: {rounding} }}", "x", "p m", "pool"),
    )
    text += layer("Power", "power_param { scale: 3 shift: 1 }", "p", "q", "power")
    text += layer(
        "Upsample", f"upsample_param {{ scale: 2 upsample_h: {extents[0]} upsample_w: {extents[1]} }}", "q m", "y", "up"
    )
    graph = load_text(tmp_path, text, outputs=["p", "m", "y"])
    found = run(graph, x)
    values, mask = loops.pooling(x, "MAX", (2, 2), (2, 2), (0, 0), rounding == "CEIL")
    check(found["p"], values, exact=True)
    check(found["m"], mask, exact=True)
    check(found["y"], loops.unpooling(3 * values + 1, mask, extents), exact=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_lrn(tmp_path, seed):
    generator = np.random.default_rng(seed)
    size = int(generator.choice([1, 3, 5, 7]))
    alpha, beta, k = generator.uniform(0.1, 2), float(generator.choice([0.5, 0.75, 1.0])), generator.uniform(1, 3)
    x = normal(generator, 2, int(generator.integers(1, 8)), 5, 6)
    text = f"lrn_param {{ local_size: {size} alpha: {alpha} beta: {beta} k: {k} %s }}"
    (y,) = run_layer(tmp_path, "LRN", text % "", x)
    check(y, loops.lrn_across(x, size, alpha, beta, k))
    (y,) = run_layer(tmp_path, "LRN", text % "norm_region: WITHIN_CHANNEL", x)
    check(y, loops.lrn_within(x, size, alpha, beta))


@pytest.mark.parametrize("seed", SEEDS)
def test_eltwise(tmp_path, seed):
    generator = np.random.default_rng(seed)
    tensors = [normal(generator, 2, 3, 4) for _ in range(int(generator.integers(2, 5)))]
    factors = [float(np.float32(generator.uniform(-2, 2))) for _ in tensors]
    stable = str(bool(seed % 2)).lower()
    coefficients = " ".join(f"coeff: {factor}" for factor in factors)
    text = f"eltwise_param {{ operation: %s stable_prod_grad: {stable} {coefficients if seed % 3 else ''} }}"
    summed = sum(factor * x.astype(np.float64) for factor, x in zip(factors, tensors, strict=True))
    if not seed % 3:
        summed = sum(x.astype(np.float64) for x in tensors)
        (y,) = run_layer(tmp_path, "Eltwise", text % "PROD", *tensors)
        check(y, np.prod(np.stack(tensors).astype(np.float64), axis=0))
    (y,) = run_layer(tmp_path, "Eltwise", text % "SUM", *tensors)
    check(y, summed)
    (y,) = run_layer(tmp_path, "Eltwise", text % "MAX", *tensors)
    check(y, np.stack(tensors).max(axis=0), exact=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_crop_slice_and_reshape(tmp_path, seed):
    generator = np.random.default_rng(seed)
    shape = tuple(int(n) for n in generator.integers(2, 7, 4))
    x = normal(generator, *shape)
    axis = int(generator.integers(0, 4))
    wanted = tuple(int(generator.integers(1, n + 1)) for n in shape)
    offsets = [int(generator.integers(0, n - m + 1)) for n, m in zip(shape, wanted, strict=True)]
    text = " ".join(f"offset: {offset}" for offset in offsets[axis:])
    (y,) = run_layer(tmp_path, "Crop", f"crop_param {{ axis: {axis - 4} {text} }}", x, np.zeros(wanted, np.float32))
    cut = x
    for k in range(axis, 4):
        cut = np.take(cut, range(offsets[k], offsets[k] + wanted[k]), axis=k)
    check(y, cut, exact=True)

    points = sorted(generator.choice(range(1, shape[axis]), size=min(2, shape[axis] - 1), replace=False).tolist())
    text = " ".join(f"slice_point: {point}" for point in points)
    tops = " ".join(f"y{k}" for k in range(len(points) + 1))
    parts = run_layer(tmp_path, "Slice", f"slice_param {{ axis: {axis} {text} }}", x, tops=tops)
    for part, (start, end) in zip(parts, zip([0, *points], [*points, shape[axis]], strict=True), strict=True):
        check(part, np.take(x, range(start, end), axis=axis), exact=True)

    count = int(generator.integers(1, 5 - axis)) if axis < 4 else 0
    text = f"reshape_param {{ axis: {axis} num_axes: {count} shape {{ dim: -1 dim: 1 }} }}"
    (y,) = run_layer(tmp_path, "Reshape", text, x)
    inner = int(np.prod(shape[axis : axis + count]))
    check(y, x.reshape(*shape[:axis], inner, 1, *shape[axis + count :]), exact=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_interp(tmp_path, seed):
    generator = np.random.default_rng(seed)
    begin, end = (-int(generator.integers(0, 3)) for _ in range(2))
    x = normal(generator, 1, 2, *(1 - begin - end + generator.integers(0, 6, 2)))
    cut = x[:, :, -begin : x.shape[2] + end, -begin : x.shape[3] + end]
    height, width = cut.shape[2:]
    zoom, shrink = int(generator.integers(1, 4)), int(generator.integers(1, 4))
    small = [(n - 1) // shrink + 1 for n in (height, width)]
    pads = f"pad_beg: {begin} pad_end: {end}"
    for text, size in (
        ("height: 5 width: 3", (5, 3)),
        (f"zoom_factor: {zoom}", [n + (n - 1) * (zoom - 1) for n in (height, width)]),
        (f"shrink_factor: {shrink}", small),
        (f"shrink_factor: {shrink} zoom_factor: {zoom}", [n + (n - 1) * (zoom - 1) for n in small]),
    ):
        (y,) = run_layer(tmp_path, "Interp", f"interp_param {{ {pads} {text} }}", x)
        check(y, loops.interp(cut, size))
    (y,) = run_layer(tmp_path, "Interp", f"interp_param {{ {pads} }}", x, np.zeros((1, 1, 4, 7), np.float32))
    check(y, loops.interp(cut, (4, 7)))


@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (1, 2)])
def test_upsample(tmp_path, factors):
    x = normal(np.random.default_rng(0), 2, 3, 4, 5)
    (y,) = run_layer(tmp_path, "Upsample", f"upsample_param {{ scale_h: {factors[0]} scale_w: {factors[1]} }}", x)
    check(y, x.repeat(factors[0], axis=2).repeat(factors[1], axis=3), exact=True)


@pytest.mark.parametrize("is_exposed", [False, True])
@pytest.mark.parametrize("has_static", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_lstm(tmp_path, steps, has_static, is_exposed):
    generator = np.random.default_rng(steps)
    batch, units, size = 2, 3, (2, 2)
    x, static = normal(generator, steps, batch, *size), normal(generator, batch, 5)
    cont = generator.integers(0, 2, (steps, batch)).astype(np.float32)
    w_x, b = normal(generator, 4 * units, 4), normal(generator, 4 * units)
    w_static, w_h = normal(generator, 4 * units, 5), normal(generator, 4 * units, units)
    hidden, memory = normal(generator, 1, batch, units), normal(generator, 1, batch, units)
    feeds = [x, cont, *([static] if has_static else []), *([hidden, memory] if is_exposed else [])]
    blobs = [w_x, b, *([w_static] if has_static else []), w_h]
    text = f"recurrent_param {{ num_output: {units} expose_hidden: {str(is_exposed).lower()} }}"
    found = run_layer(tmp_path, "LSTM", text, *feeds, blobs=blobs, tops="y h c" if is_exposed else "y")
    states = {"hidden": hidden[0], "memory": memory[0]} if is_exposed else {}
    extra = {"static": static, "w_static": w_static} if has_static else {}
    expected = loops.lstm(x, cont, w_x, b, w_h, **states, **extra)
    check(found[0], expected[0])
    for y, want in zip(found[1:], expected[1:], strict=False):
        check(y, want[None])


@pytest.mark.parametrize("is_exposed", [False, True])
def test_rnn(tmp_path, is_exposed):
    generator = np.random.default_rng(7)
    steps, batch, units = 3, 2, 4
    x, cont = normal(generator, steps, batch, 5), generator.integers(0, 2, (steps, batch)).astype(np.float32)
    w_x, w_h, w_o = normal(generator, units, 5), normal(generator, units, units), normal(generator, units, units)
    b_h, b_o, hidden = normal(generator, units), normal(generator, units), normal(generator, 1, batch, units)
    text = f"recurrent_param {{ num_output: {units} expose_hidden: {str(is_exposed).lower()} }}"
    feeds = [x, cont, hidden] if is_exposed else [x, cont]
    found = run_layer(tmp_path, "RNN", text, *feeds, blobs=[w_x, b_h, w_h, w_o, b_o], tops="y h" if is_exposed else "y")
    y, h = loops.rnn(x, cont, w_x, b_h, w_h, w_o, b_o, hidden[0] if is_exposed else None)
    check(found[0], y)
    if is_exposed:
        check(found[1], h[None])


def test_lstm_unit(tmp_path):
    generator = np.random.default_rng(11)
    memory, gates, cont = normal(generator, 1, 3, 2), normal(generator, 1, 3, 8), np.array([[1, 0, 1]], np.float32)
    found = run_layer(tmp_path, "LSTMUnit", "", memory, gates, cont, tops="c h")
    for n in range(3):
        for u in range(2):
            i, f, o = (loops.sigmoid(gates[0, n, 2 * k + u]) for k in range(3))
            c = cont[0, n] * f * memory[0, n, u] + i * np.tanh(gates[0, n, 6 + u])
            assert found[0][0, n, u] == pytest.approx(c, abs=1e-6)
            assert found[1][0, n, u] == pytest.approx(o * np.tanh(c), abs=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_regions(tmp_path, seed):
    generator = np.random.default_rng(seed)
    x = normal(generator, 2, 3 * 9, 8, 9)
    corners = generator.integers(-8, 40, (6, 4))
    rois = np.concatenate([generator.integers(0, 2, (6, 1)), corners], axis=1).astype(np.float32)
    scale = float(generator.choice([0.25, 0.5, 1.0]))
    text = f"roi_pooling_param {{ pooled_h: 2 pooled_w: 3 spatial_scale: {scale} }}"
    (y,) = run_layer(tmp_path, "ROIPooling", text, x, rois)
    check(y, loops.roi_pooling(x, rois, (2, 3), scale), exact=True)
    text = f"psroi_pooling_param {{ output_dim: 3 group_size: 3 spatial_scale: {scale} }}"
    (y,) = run_layer(tmp_path, "PSROIPooling", text, x, rois.reshape(6, 5, 1, 1))
    check(y, loops.psroi_pooling(x, rois, 3, 3, scale))


@pytest.mark.parametrize("seed", SEEDS)
def test_proposals(tmp_path, seed):
    generator = np.random.default_rng(seed)
    ratios, scales = (0.5, 1.0, 2.0), (1.0, 2.0)
    scores = generator.uniform(0, 1, (1, 12, 5, 6)).astype(np.float32)
    deltas = (0.3 * normal(generator, 1, 24, 5, 6)).astype(np.float32)
    info = (60.0, 70.0, float(generator.choice([1.0, 2.0])))
    text = (
        "proposal_param { feat_stride: 12 base_size: 16 min_size: 8 ratio: 0.5 ratio: 1 ratio: 2 scale: 1 scale: 2 "
        "pre_nms_topn: 60 post_nms_topn: 20 nms_thresh: 0.5 }"
    )
    rois, found = run_layer(tmp_path, "Proposal", text, scores, deltas, np.array([info], np.float32), tops="r s")
    kept = loops.proposals(scores, deltas, info, 12, 16, 8, ratios, scales, 60, 20, 0.5)
    assert rois.shape == (20, 5)
    assert found.shape == (20, 1)
    check(rois[: len(kept), 1:], [box for _, box in kept])
    check(found[: len(kept), 0], [score for score, _ in kept], exact=True)
    assert not rois[len(kept) :].any()


def test_grid_of_boxes(tmp_path):
    x = normal(np.random.default_rng(2), 2, 2 * 8, 3, 4)
    (soft,) = run_layer(tmp_path, "Region", "region_param { classes: 3 coords: 4 num: 2 }", x)
    (flat,) = run_layer(tmp_path, "RegionYolo", "region_yolo_param { classes: 3 coords: 4 num: 2 }", x)
    text = "region_yolo_param { classes: 3 coords: 4 num: 9 do_softmax: false mask: 0 mask: 1 anchors: 3 }"
    (plain,) = run_layer(tmp_path, "RegionYolo", text, x)
    for n, box, i, j in loops.places(2, 2, 3, 4):
        numbers = x[n, 8 * box : 8 * box + 8, i, j].astype(np.float64)
        squeezed = 1 / (1 + np.exp(-numbers))
        classes = np.exp(numbers[5:]) / np.exp(numbers[5:]).sum()
        first = [*squeezed[:2], *numbers[2:4], squeezed[4]]
        assert soft[n, 8 * box : 8 * box + 8, i, j] == pytest.approx([*first, *classes], abs=1e-6)
        assert plain[n, 8 * box : 8 * box + 8, i, j] == pytest.approx([*first, *squeezed[5:]], abs=1e-6)
    assert np.array_equal(flat, soft.reshape(2, -1))


@pytest.mark.parametrize("seed", SEEDS)
def test_normalizations(tmp_path, seed):
    generator = np.random.default_rng(seed)
    x, scale = normal(generator, 2, 3, 4, 2), generator.uniform(0.5, 2, 3).astype(np.float32)
    spatial, shared = bool(seed % 2), bool(seed // 2 % 2)
    text = f"norm_param {{ across_spatial: {str(spatial).lower()} channel_shared: {str(shared).lower()} eps: 0.01 }}"
    blob = scale[:1] if shared else scale
    (y,) = run_layer(tmp_path, "Normalize", text, x, blobs=[blob])
    check(y, loops.normalize(x, spatial, blob, 0.01))
    text = (
        f"mvn_param {{ across_channels: {str(spatial).lower()} normalize_variance: {str(shared).lower()} eps: 0.01 }}"
    )
    (y,) = run_layer(tmp_path, "MVN", text, x)
    check(y, loops.mvn(x, spatial, shared, 0.01))
    mean, variance = normal(generator, 3), generator.uniform(0.5, 2, 3).astype(np.float32)
    slope, shift = normal(generator, 3), normal(generator, 3)
    expected = (x - mean.reshape(3, 1, 1)) / np.sqrt(variance.reshape(3, 1, 1) + 1e-5)
    (y,) = run_layer(tmp_path, "BatchNorm", "", x, blobs=[mean, variance])  # no third blob: nothing to divide by
    check(y, expected)
    (y,) = run_layer(tmp_path, "BatchNorm", "", x, blobs=[2 * mean, 2 * variance, np.array([2.0])])
    check(y, expected)
    text, blobs = "batch_norm_param { eps: 0.1 use_global_stats: true }", [slope, shift, mean, variance]
    (y,) = run_layer(tmp_path, "CuDNNBatchNorm", text, x, blobs=blobs)
    expected = (x - mean.reshape(3, 1, 1)) / np.sqrt(variance.reshape(3, 1, 1) + 0.1)
    check(y, expected * slope.reshape(3, 1, 1) + shift.reshape(3, 1, 1))


@pytest.mark.parametrize("stride", [2, 3])
def test_reorg(tmp_path, stride):
    x = normal(np.random.default_rng(0), 2, 9 * 4, 6, 12)
    for type_ in ("Reorg", "PassThrough"):
        (y,) = run_layer(tmp_path, type_, f"reorg_param {{ stride: {stride} }}", x)
        check(y, loops.reorg(x, stride), exact=True)
    (back,) = run_layer(tmp_path, "Reorg", f"reorg_param {{ stride: {stride} reverse: true }}", y)
    check(back, x, exact=True)


def test_focus(tmp_path):
    x = normal(np.random.default_rng(0), 1, 3, 4, 6)
    (y,) = run_layer(tmp_path, "Focus", "", x)
    for part, (row, column) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        for c, i, j in loops.places(3, 2, 3):
            assert y[0, 3 * part + c, i, j] == x[0, c, 2 * i + row, 2 * j + column]


def test_gelu(tmp_path):
    x = normal(np.random.default_rng(0), 1, 64)
    (y,) = run_layer(tmp_path, "GELU", "", x)
    check(y, [[value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in x[0].tolist()]])


def test_filter(tmp_path):
    """The number of remaining images depends on the data."""
    text = with_input((4, 2, 3), "") + with_input((4, 1), "").replace('"x"', '"s"')
    graph = load_text(tmp_path, text + layer("Filter", "", "x s", "y"))
    assert graph.outputs[0].shape[1:] == (2, 3)
    x, selector = normal(np.random.default_rng(0), 4, 2, 3), np.array([[1], [0], [0.5], [0]], np.float32)
    with tc.Session(graph) as session:
        found = session.run({"x": x, "s": selector})["y"]
    check(found, x[[0, 2]], exact=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_flow_warp(tmp_path, seed):
    generator = np.random.default_rng(seed)
    x, flow = normal(generator, 2, 3, 5, 6), (2 * normal(generator, 2, 2, 5, 6)).astype(np.float32)
    flow[0, :, 0] = np.round(flow[0, :, 0])  # on pixels, and on the edge
    (y,) = run_layer(tmp_path, "FlowWarp", "", x, flow)
    check(y, loops.flow_warp(x, flow))


def test_accum(tmp_path):
    generator = np.random.default_rng(0)
    first, second, size = normal(generator, 1, 2, 3, 4), normal(generator, 1, 1, 6, 5), np.zeros((1, 9, 6, 5), "f4")
    (y,) = run_layer(tmp_path, "Accum", "accum_param { have_reference: true }", first, second, size)
    check(y, np.concatenate([loops.interp(first, (6, 5)), second], axis=1))
    (y,) = run_layer(tmp_path, "Accum", "accum_param { top_height: 2 top_width: 7 }", first)
    check(y, loops.interp(first, (2, 7)))
    with pytest.raises(UnsupportedError, match="no top_height"):
        run_layer(tmp_path, "Accum", "accum_param { size_divisible_by: 4 }", first)
