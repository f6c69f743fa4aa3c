"""Test oracles of Caffe layers: scalar loops in float64, from the published definitions.

They share no code with the converters.
"""

import itertools
import math

import numpy as np

Array = np.ndarray


def places(*extents):
    return itertools.product(*map(range, extents))


def convolution(x, w, b, stride, pad, dilation, group):
    """Convolution with any number of spatial axes. ``stride`` and similar arguments have one number per axis."""
    kernel, spatial = w.shape[2:], x.shape[2:]
    out = [
        (n + 2 * p - (d * (k - 1) + 1)) // s + 1
        for n, p, d, k, s in zip(spatial, pad, dilation, kernel, stride, strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for n, o, *at in places(*y.shape):
        total = float(b[o]) if b is not None else 0.0
        first = o // (w.shape[0] // group) * w.shape[1]
        for c, *k in places(*w.shape[1:]):
            source = [a * s - p + i * d for a, s, p, i, d in zip(at, stride, pad, k, dilation, strict=True)]
            if all(0 <= q < extent for q, extent in zip(source, spatial, strict=True)):
                total += float(x[(n, first + c, *source)]) * float(w[(o, c, *k)])
        y[(n, o, *at)] = total
    return y


def deconvolution(x, w, b, stride, pad, dilation, group):
    """Transposed convolution: every input element adds a multiple of the kernel; ``w`` is [ic, oc / group, ...]."""
    kernel, spatial = w.shape[2:], x.shape[2:]
    out = [
        s * (n - 1) + d * (k - 1) + 1 - 2 * p
        for n, p, d, k, s in zip(spatial, pad, dilation, kernel, stride, strict=True)
    ]
    outputs = w.shape[1] * group
    y = np.zeros((x.shape[0], outputs, *out))
    for n, c, *at in places(*x.shape):
        first = c // (x.shape[1] // group) * w.shape[1]
        for o, *k in places(*w.shape[1:]):
            target = [a * s - p + i * d for a, s, p, i, d in zip(at, stride, pad, k, dilation, strict=True)]
            if all(0 <= q < extent for q, extent in zip(target, out, strict=True)):
                y[(n, first + o, *target)] += float(x[(n, c, *at)]) * float(w[(c, o, *k)])
    if b is not None:
        y += np.asarray(b, np.float64).reshape(-1, *(1,) * len(out))
    return y


def im2col(x, kernel, stride, pad, dilation):
    kh, kw = kernel
    oh, ow = (
        (n + 2 * p - (d * (k - 1) + 1)) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], pad, dilation, kernel, stride, strict=True)
    )
    y = np.zeros((x.shape[0], x.shape[1] * kh * kw, oh, ow))
    for n, c, i, j, r, q in places(x.shape[0], x.shape[1], kh, kw, oh, ow):
        row, column = r * stride[0] - pad[0] + i * dilation[0], q * stride[1] - pad[1] + j * dilation[1]
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            y[n, (c * kh + i) * kw + j, r, q] = x[n, c, row, column]
    return y


def pooling(x, method, kernel, stride, pad, is_ceil=True):
    """Pooling; for MAX also the index of the first maximum in its plane."""
    extents = []
    for n, k, s, p in zip(x.shape[2:], kernel, stride, pad, strict=True):
        steps = (n + 2 * p - k) / s
        count = (math.ceil(steps) if is_ceil else math.floor(steps)) + 1
        if (pad[0] or pad[1]) and (count - 1) * s >= n + p:
            count -= 1
        extents.append(count)
    y = np.zeros((*x.shape[:2], *extents))
    mask = np.full(y.shape, -1.0)
    height, width = x.shape[2:]
    for n, c, i, j in places(*y.shape):
        top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
        bottom, right = min(top + kernel[0], height + pad[0]), min(left + kernel[1], width + pad[1])
        size = (bottom - top) * (right - left)
        inside = [
            (r, q) for r in range(max(top, 0), min(bottom, height)) for q in range(max(left, 0), min(right, width))
        ]
        values = [float(x[n, c, r, q]) for r, q in inside]
        if method == "AVE":
            y[n, c, i, j] = sum(values) / size
        elif method == "MAX" and not values:
            y[n, c, i, j] = np.finfo(np.float32).min
        elif method == "MAX":
            best = max(range(len(values)), key=lambda k: (values[k], -k))
            y[n, c, i, j] = values[best]
            mask[n, c, i, j] = inside[best][0] * width + inside[best][1]
        else:
            total = sum(values)
            y[n, c, i, j] = sum(value * value for value in values) / total if total > 0 else 0
    return y, mask


def unpooling(x, mask, size):
    y = np.zeros((*x.shape[:2], size[0] * size[1]))
    for n, c, i, j in places(*x.shape):
        y[n, c, int(mask[n, c, i, j])] = x[n, c, i, j]
    return y.reshape(*x.shape[:2], *size)


def lrn_across(x, size, alpha, beta, k):
    y = np.zeros(x.shape)
    for n, c, i, j in places(*x.shape):
        near = [float(x[n, q, i, j]) ** 2 for q in range(x.shape[1]) if abs(q - c) <= (size - 1) // 2]
        y[n, c, i, j] = x[n, c, i, j] / (k + alpha / size * sum(near)) ** beta
    return y


def lrn_within(x, size, alpha, beta):
    """Mean of squares over the window, padding counted, as in Caffe's within-channel LRN."""
    half = (size - 1) // 2
    mean, _ = pooling(x.astype(np.float64) ** 2, "AVE", (size, size), (1, 1), (half, half))
    return x / (1 + alpha * mean) ** beta


def interp(x, size):
    """Bilinear resize with aligned corners."""
    height, width = x.shape[2:]
    y = np.zeros((*x.shape[:2], *size))
    for i, j in places(*size):
        row = i * (height - 1) / (size[0] - 1) if size[0] > 1 else 0.0
        column = j * (width - 1) / (size[1] - 1) if size[1] > 1 else 0.0
        r, q = int(row), int(column)
        r1, q1 = min(r + 1, height - 1), min(q + 1, width - 1)
        a, b = row - r, column - q
        y[:, :, i, j] = (1 - a) * ((1 - b) * x[:, :, r, q] + b * x[:, :, r, q1]) + a * (
            (1 - b) * x[:, :, r1, q] + b * x[:, :, r1, q1]
        )
    return y


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def lstm(x, cont, w_x, b, w_h, static=None, w_static=None, hidden=None, memory=None):
    """LSTM with gates in the order input, forget, output, candidate."""
    steps, batch = x.shape[:2]
    units = w_h.shape[1]
    h = np.zeros((batch, units)) if hidden is None else hidden.astype(np.float64).copy()
    c = np.zeros((batch, units)) if memory is None else memory.astype(np.float64).copy()
    y = np.zeros((steps, batch, units))
    for t in range(steps):
        for n in range(batch):
            goes_on = float(cont[t, n])
            gates = w_x @ x[t, n].reshape(-1).astype(np.float64) + b + w_h @ (goes_on * h[n])
            if static is not None:
                gates = gates + w_static @ static[n].reshape(-1)
            for u in range(units):
                i, f, o = (sigmoid(gates[k * units + u]) for k in range(3))
                candidate = math.tanh(gates[3 * units + u])
                c[n, u] = (goes_on * f * c[n, u]) + i * candidate
                y[t, n, u] = o * math.tanh(c[n, u])
        h = y[t].copy()
    return y, h, c


def rnn(x, cont, w_x, b_h, w_h, w_o, b_o, hidden=None):
    steps, batch = x.shape[:2]
    h = np.zeros((batch, len(w_h))) if hidden is None else hidden.astype(np.float64).copy()
    y = np.zeros((steps, batch, len(w_o)))
    for t in range(steps):
        for n in range(batch):
            h[n] = np.tanh(w_x @ x[t, n].reshape(-1) + b_h + w_h @ (float(cont[t, n]) * h[n]))
            y[t, n] = np.tanh(w_o @ h[n] + b_o)
    return y, h


def round_away(x):
    return math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)


def roi_pooling(x, rois, size, scale):
    y = np.zeros((len(rois), x.shape[1], *size))
    for number, (image, *corners) in enumerate(rois.tolist()):
        left, top, right, bottom = (round_away(float(np.float32(np.float32(q) * np.float32(scale)))) for q in corners)
        height, width = max(bottom - top + 1, 1), max(right - left + 1, 1)
        for c, i, j in places(x.shape[1], *size):
            cell_h, cell_w = np.float32(height) / np.float32(size[0]), np.float32(width) / np.float32(size[1])
            rows = range(
                min(max(math.floor(i * cell_h) + top, 0), x.shape[2]),
                min(max(math.ceil((i + 1) * cell_h) + top, 0), x.shape[2]),
            )
            columns = range(
                min(max(math.floor(j * cell_w) + left, 0), x.shape[3]),
                min(max(math.ceil((j + 1) * cell_w) + left, 0), x.shape[3]),
            )
            y[number, c, i, j] = max((float(x[int(image), c, r, q]) for r in rows for q in columns), default=0)
    return y


def psroi_pooling(x, rois, outputs, group, scale):
    y = np.zeros((len(rois), outputs, group, group))
    for number, (image, *corners) in enumerate(rois.tolist()):
        left, top = (round_away(q) * scale for q in corners[:2])
        right, bottom = (round_away(q + 1.0) * scale for q in corners[2:])
        cell_h, cell_w = max(bottom - top, 0.1) / group, max(right - left, 0.1) / group
        for o, i, j in places(outputs, group, group):
            rows = range(
                min(max(math.floor(i * cell_h + top), 0), x.shape[2]),
                min(max(math.ceil((i + 1) * cell_h + top), 0), x.shape[2]),
            )
            columns = range(
                min(max(math.floor(j * cell_w + left), 0), x.shape[3]),
                min(max(math.ceil((j + 1) * cell_w + left), 0), x.shape[3]),
            )
            channel = (o * group + i) * group + j
            values = [float(x[int(image), channel, r, q]) for r in rows for q in columns]
            y[number, o, i, j] = sum(values) / len(values) if values else 0
    return y


def proposals(scores, deltas, info, stride, base, min_size, ratios, scales, before, after, threshold):
    """Loops over lists of boxes and scores, as in the C++ implementation of Faster R-CNN."""
    anchors = []
    for ratio in ratios:
        w = round_away(math.sqrt(base * base / ratio))
        h = round_away(w * ratio)
        for scale in scales:
            anchors.append((0.5 * (w * scale - 1), 0.5 * (h * scale - 1)))
    centre = 0.5 * (base - 1)
    height, width, factor = info
    found = []
    for i, j, a in places(*scores.shape[2:], len(anchors)):
        half_w, half_h = anchors[a]
        x1, y1, x2, y2 = (
            j * stride + centre - half_w,
            i * stride + centre - half_h,
            j * stride + centre + half_w,
            i * stride + centre + half_h,
        )
        dx, dy, dw, dh = (float(deltas[0, 4 * a + k, i, j]) for k in range(4))
        w, h = x2 - x1 + 1, y2 - y1 + 1
        cx, cy = x1 + 0.5 * w + dx * w, y1 + 0.5 * h + dy * h
        w, h = math.exp(dw) * w, math.exp(dh) * h
        box = [
            min(max(cx - 0.5 * w, 0), width - 1),
            min(max(cy - 0.5 * h, 0), height - 1),
            min(max(cx + 0.5 * w, 0), width - 1),
            min(max(cy + 0.5 * h, 0), height - 1),
        ]
        is_large = min(box[2] - box[0], box[3] - box[1]) + 1 >= min_size * factor
        found.append((float(scores[0, len(anchors) + a, i, j]) if is_large else 0.0, box))
    found.sort(key=lambda item: -item[0])
    kept = []
    for score, box in found[:before]:
        if all(_overlap(box, other) <= threshold for _, other in kept):
            kept.append((score, box))
    return kept[:after]


def _overlap(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0]) + 1
    h = min(a[3], b[3]) - max(a[1], b[1]) + 1
    shared = max(w, 0) * max(h, 0)
    areas = sum((q[2] - q[0] + 1) * (q[3] - q[1] + 1) for q in (a, b))
    return shared / (areas - shared)


def normalize(x, across_spatial, scale, eps):
    y = np.zeros(x.shape)
    for n, i, j in places(x.shape[0], *x.shape[2:]):
        values = x[n] if across_spatial else x[n, :, i, j]
        length = math.sqrt(float((values.astype(np.float64) ** 2).sum()) + eps)
        y[n, :, i, j] = x[n, :, i, j] / length * np.asarray(scale, np.float64)
    return y


def mvn(x, across_channels, normalize_variance, eps):
    y = np.zeros(x.shape)
    for n in range(x.shape[0]):
        groups = [slice(None)] if across_channels else [slice(c, c + 1) for c in range(x.shape[1])]
        for group in groups:
            part = x[n, group].astype(np.float64)
            part = part - part.mean()
            y[n, group] = part / (math.sqrt((part**2).mean()) + eps) if normalize_variance else part
    return y


def reorg(x, stride):
    """Darknet reads its memory as [C / s^2, H * s, W * s] and writes [C, H, W], whatever the declared shapes are."""
    batch, c, h, w = x.shape
    s = stride
    out = np.zeros((batch, c * h * w))
    for n in range(batch):
        flat = x[n].reshape(-1)
        for k, j, i in places(c, h, w):
            small, offset = k % (c // (s * s)), k // (c // (s * s))
            column, row = i * s + offset % s, j * s + offset // s
            out[n, i + w * (j + h * k)] = flat[column + w * s * (row + h * s * small)]
    return out.reshape(batch, c * s * s, h // s, w // s)


def flow_warp(x, flow):
    y = np.zeros(x.shape)
    height, width = x.shape[2:]
    for n, i, j in places(x.shape[0], height, width):
        column, row = j + float(flow[n, 0, i, j]), i + float(flow[n, 1, i, j])
        if not (0 <= column < width and 0 <= row < height):
            continue
        left, top = math.floor(column), math.floor(row)
        right, bottom = min(left + 1, width - 1), min(top + 1, height - 1)
        a, b = column - left, row - top
        y[n, :, i, j] = (1 - b) * ((1 - a) * x[n, :, top, left] + a * x[n, :, top, right]) + b * (
            (1 - a) * x[n, :, bottom, left] + a * x[n, :, bottom, right]
        )
    return y
