"""A calibration method, an optimizer rule and a metric of the example plugin, registered like operators."""

import numpy as np

import tpuconvert as tc
from acme_tpu.channel_gate import ChannelGate


@tc.register_calibrator("acme_percentile")
class Percentile:
    """Threshold at the 99.9th percentile of the magnitudes of a sample; the largest one of all samples."""

    def __init__(self):
        self.low, self.high, self.threshold = np.inf, -np.inf, 0.0

    def add(self, array):
        """Add one sample."""
        self.low, self.high = min(self.low, float(array.min())), max(self.high, float(array.max()))
        self.threshold = max(self.threshold, float(np.quantile(np.abs(array), 0.999)))

    def result(self):
        """Return the range in float units: smallest value, largest value, and threshold."""
        return tc.Range(self.low, self.high, self.threshold)


@tc.register_rule(
    tc.pattern(ChannelGate, tc.pattern(ChannelGate, "x", "gate", name="inner", sole_user=True), "again", name="outer")
)
def acme_gate_twice(g, m):
    """``gate(gate(x, a), a) -> gate(x, a)`` with the higher limit."""
    if m.gate is not m.again:
        return tc.Skip("the gates are two")
    return g.add(ChannelGate(limit=max(m.inner.op.limit, m.outer.op.limit)), m.x, m.gate)


@tc.register_metric("acme_worst_channel")
def worst_channel(wanted, got):
    """Largest difference between the means of a channel."""
    axes = (0, *range(2, wanted.ndim))
    return float(np.abs(wanted.mean(axis=axes) - got.mean(axis=axes)).max())
