"""Small float graphs for the tests of quantization."""

import numpy as np

from tpuconvert.optimizer.quantize import calibrate, quantize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.types import F32, Array, Chip, TensorType

RELU = Active(ActiveType.ACTIVE_RELU)
SAME = {"pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1}


class Net:
    """A graph under construction, with seeded random weights."""

    def __init__(self, shape=(1, 4, 6, 6), seed=0):
        self.rng = np.random.default_rng(seed)
        self.graph = Graph("net", "net.onnx")
        self.x = self.graph.input("x", TensorType(F32, shape))

    def constant(self, *shape, scale=1.0, name="constant") -> Value:
        return self.graph.constant((scale * self.rng.normal(size=shape)).astype(np.float32), name)

    def conv(self, x: Value, channels: int, name: str, kernel=3, groups=1, relu=True, stride=1) -> Value:
        assert isinstance(x.shape[1], int)
        w = self.constant(channels, x.shape[1] // groups, kernel, kernel, scale=0.3, name=f"{name}_w")
        b = self.constant(1, channels, 1, 1, name=f"{name}_b")
        geometry = {**(SAME if kernel == 3 else {}), "stride_h": stride, "stride_w": stride}
        y = self.graph.add(Conv(groups=groups, **geometry), x, w, b, name=f"{name}_pre" if relu else name)
        return self.graph.add(RELU, y, name=name) if relu else y

    def done(self, *outputs: Value) -> Graph:
        for value in outputs:
            self.graph.output(value)
        return self.graph

    def samples(self, count=8) -> list[dict[str, Array]]:
        shape = self.x.type.static_shape
        return [{"x": self.rng.normal(size=shape).astype(np.float32)} for _ in range(count)]


def calibrate_and_annotate(net: Net, graph: Graph, chip=Chip.BM1686):
    """Calibrate on the samples and annotate. Return the samples, the float results, and the reasons of float nodes."""
    samples = net.samples()
    with Session(graph) as session:
        expected = [session.run(feeds) for feeds in samples]
    reasons = quantize(graph, calibrate(graph, samples, "minmax"), chip)
    return samples, expected, reasons


def signal_to_noise(expected: Array, found: Array) -> float:
    """In decibels."""
    noise = ((expected.astype(np.float64) - found) ** 2).mean()
    return float(10 * np.log10((expected.astype(np.float64) ** 2).mean() / max(noise, 1e-30)))


def sqnr_of_roundings(count: int, *, bits: int = 8, is_power_of_two: bool = False) -> float:
    """Return the signal-to-noise ratio, in dB, that independent roundings of operands, weights and results leave.

    A rounding has the noise step^2 / 12. The tensors are normal and reach 4 standard deviations, so that a step is
    4 / (2^(bits - 1) - 1) of them. A scale that is a power of two (BM1684) doubles the step at most.

    Args:
        count: number of roundings, each of which is passed on with the size of the signal.
        bits: of the integers, with sign.
        is_power_of_two: True if the scales are.
    """
    steps = (2 ** (bits - 1) - 1) / 4 / (2 if is_power_of_two else 1)
    return float(10 * np.log10(12 * steps**2 / count))
