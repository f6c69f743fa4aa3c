"""Random networks whose tensors have parts of very different size, which one scale of 8 bits cannot represent.

Features of an input in different units, arguments of a sine or an exponential, outlier channels before SiLU and in a
residual stream. Weights are drawn so that the small parts matter for the output as much as the large ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.types import Array


@dataclass
class Uneven:
    """A network, and how its samples are drawn.

    Args:
        net: the network.
        output: name of its output.
        scale: factor of a normal sample of the input, broadcast to its shape.
        mean: added to it.
        draw: function of normal samples that is applied first.
    """

    net: OnnxNet
    output: str = ""
    scale: Array = field(default_factory=lambda: np.ones(1))
    mean: Array = field(default_factory=lambda: np.zeros(1))
    draw: Callable[[Array], Array] | None = None

    def samples(self, count: int, seed: int) -> dict[str, Array]:
        """Samples along axis 0 of the input ``x``, a number of batches of it."""
        rng = np.random.default_rng(seed)
        shape = self.net.inputs["x"]
        drawn = rng.normal(size=(count * shape[0], *shape[1:]))
        drawn = drawn if self.draw is None else self.draw(drawn)
        return {"x": (drawn * self.scale + self.mean).astype(np.float32)}


def _units(rng: np.random.Generator, count: int, axis: int, rank: int) -> tuple[Array, Array]:
    """Spread and mean of features: units from 1e-4 to 1e3, means up to 50 times the spread."""
    shape = [-1 if index == axis % rank else 1 for index in range(rank)]
    spread = 10.0 ** rng.uniform(-4, 3, count)
    mean = spread * rng.uniform(-50, 50, count) * (rng.random(count) < 0.6)
    return spread.reshape(shape), mean.reshape(shape)


def dense_features(seed: int) -> Uneven:
    """Features [N, F] or [N, T, F], standardized by Sub and Div, Mul and Add, or in the weights; then dense layers."""
    net = OnnxNet(seed)
    rng = net.rng
    features = int(rng.choice([4, 8, 24]))
    shape = [(int(rng.choice([1, 4])), features), (1, 16, features)][seed % 2]
    x = net.input("x", *shape)
    spread, mean = _units(rng, features, -1, len(shape))
    flat = spread.ravel(), mean.ravel()
    form = seed % 3
    if form == 0:
        y = net.add("Div", net.add("Sub", x, _float(net, flat[1])), _float(net, flat[0]))
    elif form == 1:
        y = net.add("Add", net.add("Mul", x, _float(net, 1 / flat[0])), _float(net, -flat[1] / flat[0]))
    if form < 2:
        y = net.dense(y, 16)
    else:
        w = rng.normal(size=(features, 16)) / features**0.5 / flat[0][:, np.newaxis]
        y = net.add("Add", net.add("MatMul", x, _float(net, w)), _float(net, -flat[1] @ w))
    for _ in range(int(rng.integers(0, 2))):
        y = net.dense(net.add("Relu", y), 16)
    return Uneven(net, net.dense(net.add("Relu", y), 5), spread, mean)


def conv_features(seed: int) -> Uneven:
    """Channels [N, C, H, W] or [N, C, T], standardized by BatchNormalization or in the weights; then convolutions."""
    net = OnnxNet(seed)
    rng = net.rng
    channels = int(rng.choice([3, 8, 12]))
    shape = (1, channels, 10, 10) if seed % 2 else (1, channels, 32)
    x = net.input("x", *shape)
    spread, mean = _units(rng, channels, 1, len(shape))
    if seed % 4 == 3:  # padding puts zeros beside the features: they have a mean of 0
        mean = mean * 0.0
        w = rng.normal(size=(12, channels, 3, 3)) / (9 * channels) ** 0.5 / spread.reshape(1, -1, 1, 1)
        y = net.add("Conv", x, _float(net, w), net.normal(12, scale=0.2), pads=[1] * 4)
    else:
        ones, zeros = _float(net, np.ones(channels)), _float(net, np.zeros(channels))
        statistics = _float(net, mean.ravel()), _float(net, spread.ravel() ** 2)
        y = net.conv(net.add("BatchNormalization", x, ones, zeros, *statistics, epsilon=1e-12), 12)
    return Uneven(net, net.conv(net.conv(net.add("Relu", y), 8), 5, 1), spread, mean)


def log_features(seed: int) -> Uneven:
    """The logarithm of log-normal features; then dense layers or convolutions."""
    net = OnnxNet(seed)
    shape = [(4, 8), (1, 6, 8, 8)][seed % 2]
    y = net.add("Log", net.add("Add", net.input("x", *shape), net.constant(np.float32(1e-3))))
    y = net.conv(y, 12) if len(shape) == 4 else net.dense(y, 16)
    y = net.add("Relu", y)
    y = net.conv(y, 5, 1) if len(shape) == 4 else net.dense(y, 5)
    spread, _ = _units(net.rng, shape[1], 1, len(shape))
    return Uneven(net, y, spread, draw=np.exp)


def sines(seed: int) -> Uneven:
    """An implicit representation: sin(30 (W x + b)), hidden sines with weights of sqrt(6 / n) / 30, a dense layer."""
    net = OnnxNet(seed)
    rng = net.rng
    rows, width, inputs = int(rng.choice([1, 4, 16])), int(rng.choice([16, 32])), int(rng.choice([2, 8]))
    y = net.input("x", *((1, rows) if seed % 2 else (rows,)), inputs)
    for layer in range(int(rng.integers(1, 4))):
        fan = inputs if layer == 0 else width
        bound = 1 / fan if layer == 0 else (6 / fan) ** 0.5 / 30
        product = net.add("MatMul", y, _float(net, rng.uniform(-bound, bound, (fan, width))))
        product = net.add("Add", product, _float(net, rng.uniform(-bound, bound, width)))
        y = net.add("Sin" if seed % 3 else "Cos", net.add("Mul", product, net.constant(np.float32(30))))
    return Uneven(net, net.dense(y, 3), draw=np.tanh)  # coordinates from -1 to 1


def exponentials(seed: int) -> Uneven:
    """An exponential of a large range between two dense layers or convolutions."""
    net = OnnxNet(seed)
    rng = net.rng
    if seed % 2:
        y = net.input("x", 1, 3, 6, 6)
        y = net.add("Exp", net.conv(y, 6, gain=2.5))
        return Uneven(net, net.conv(y, 4, 1))
    y = net.input("x", int(rng.choice([1, 4])), 8)
    w = net.normal(8, 6)
    return Uneven(net, net.dense(net.add("Exp", net.add("MatMul", y, w)), 3))


def outliers_before_silu(seed: int) -> Uneven:
    """A convolution with one or two channels that are 50 to 300 times as large, SiLU or hard-swish, convolutions."""
    net = OnnxNet(seed)
    rng = net.rng
    x = net.input("x", 1, 3, 12, 12)
    factor = np.ones(16)
    factor[rng.choice(16, 1 + seed % 2, replace=False)] = rng.uniform(50, 300)
    y = _conv(net, x, 16, factor)
    y = net.silu(y) if seed % 3 else net.add("HardSwish", y)
    y = net.silu(_conv(net, y, 16, divisor=factor))
    if rng.random() < 0.5:
        y = net.add("Add", y, net.silu(net.conv(y, 16)))
    return Uneven(net, net.conv(y, 6, 1))


def residual_outliers(seed: int) -> Uneven:
    """A residual stream with an outlier channel; the blocks scale it down."""
    net = OnnxNet(seed)
    rng = net.rng
    factor = np.ones(12)
    factor[rng.integers(12)] = rng.uniform(30, 120)
    y = _conv(net, net.input("x", 1, 3, 10, 10), 12, factor)
    for _ in range(int(rng.integers(1, 4))):
        z = _conv(net, y, 12, divisor=factor)
        z = net.silu(z) if seed % 2 else net.add("Relu", z)
        y = net.add("Add", y, _conv(net, z, 12, factor))
    return Uneven(net, _conv(net, y, 6, kernel=1, divisor=factor))


KINDS: dict[str, Callable[[int], Uneven]] = {
    make.__name__: make
    for make in (
        dense_features,
        conv_features,
        log_features,
        sines,
        exponentials,
        outliers_before_silu,
        residual_outliers,
    )
}


def _float(net: OnnxNet, array: Array) -> str:
    return net.constant(np.asarray(array, np.float32))


def _conv(
    net: OnnxNet, x: str, channels: int, factor: Array | None = None, divisor: Array | None = None, kernel: int = 3
) -> str:
    """A convolution whose output channels are multiplied by factors, and whose input channels are divided."""
    inputs = net.channels(x)
    w = net.rng.normal(size=(channels, inputs, kernel, kernel)) * 1.4 / (inputs * kernel**2) ** 0.5
    b = net.rng.normal(size=channels) * 0.2
    if factor is not None:
        w, b = w * factor.reshape(-1, 1, 1, 1), b * factor
    if divisor is not None:
        w = w / divisor.reshape(1, -1, 1, 1)
    return net.add("Conv", x, _float(net, w), _float(net, b), pads=[kernel // 2] * 4)


@dataclass(frozen=True)
class Found:
    """INT8 against float on samples that calibration has not seen.

    Args:
        cosine: mean over the samples.
        sqnr: in decibel.
        model: the INT8 model.
    """

    cosine: float
    sqnr: float
    model: tc.Model


def compare_fresh(network: Uneven, chip: str, calibration: int = 64, **options: object) -> Found:
    """Convert to INT8 and in float, and compare on 32 batches of fresh samples."""
    proto = network.net.model(network.output)
    model = tc.convert(
        proto, chip=chip, calibration=network.samples(calibration, 1000), **group_options(quantize="int8", **options)
    )
    feeds = network.samples(32, 2000)["x"].reshape(32, *network.net.inputs["x"])
    name = model.graph.output_ports[0].name
    with tc.Session(model, threads=1) as integers, tc.Session(tc.convert(proto), threads=1) as floats:
        pairs = [(floats.run({"x": x})[name], integers.run({"x": x})[name]) for x in feeds]
    wanted, found = (np.stack(arrays).reshape(32, -1).astype(np.float64) for arrays in zip(*pairs, strict=True))
    norms = np.linalg.norm(wanted, axis=1) * np.linalg.norm(found, axis=1)
    cosines = np.sum(wanted * found, axis=1) / np.maximum(norms, np.finfo(np.float64).tiny)
    noise = np.square(wanted - found).sum()
    sqnr = 10 * np.log10(np.square(wanted).sum() / max(noise, np.finfo(np.float64).tiny))
    return Found(float(cosines.mean()), float(sqnr), model)
