"""An operator of Acme's: y = x where the gate of the channel is open, else 0.

With everything that an operator can have: a converter, an integer form, a native kernel, examples to test it with.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tpuconvert as tc

KERNELS = Path(__file__).parent / "_channel_gate*.so"


@tc.register_op("acme_channel_gate")  # what the file stores: use a prefix of your own, and never rename it
@dataclass(frozen=True)
class ChannelGate(tc.Op):
    """y = x where gate exceeds the limit, else 0; one gate per channel.

    Shapes: x [N, C, H, W], gate [N, C], y as x.
    """

    limit: float = 0.5  # the fields are the parameters

    inputs = (tc.Operand("x"), tc.Operand("gate"))
    outputs = (tc.Operand("y"),)
    native = tc.NativeKernel("acme_channel_gate", KERNELS)

    def infer(self, x, gate):
        """Result type; raises ShapeError for shapes that do not match."""
        if len(x.shape) != 4 or gate.shape != x.shape[:2]:
            raise tc.ShapeError(f"gate has shape {gate.shape}, expected {x.shape[:2]}: one per channel")
        return (x,)

    def reference(self, x, gate):
        """Definition of the result."""
        open_gates = gate > np.float32(self.limit)
        return (np.where(open_gates[:, :, None, None], x, np.zeros((), x.dtype)),)

    def quantized(self, operands, results):
        """The operator on integers: each value is ``(q - zero_point) * scale``."""
        x, gate = operands
        (y,) = results
        if x is None or gate is None or x.axis is not None or y.axis is not None:
            return None  # it then runs in float
        limit = int(np.floor(self.limit / gate.scale[0])) + gate.zero_point[0]
        return ChannelGateInt(limit, x.zero_point[0], y.zero_point[0], x.scale[0] / y.scale[0], y.dtype)

    @staticmethod
    def examples():
        """Examples for ``tpuconvert op test``: operators with the shapes of their operands."""
        yield ChannelGate(), ((1, 3, 4, 4), (1, 3))
        yield ChannelGate(limit=0.0), ((2, 5, 1, 7), (2, 5))


@tc.register_op("acme_channel_gate_int")
@dataclass(frozen=True)
class ChannelGateInt(tc.Op):
    """As ChannelGate, on integers: y = round((x - x_zero) * factor) + y_zero where gate exceeds the limit, else y_zero.

    Shapes: x [N, C, H, W], gate [N, C], y as x.
    """

    limit: int
    x_zero: int
    y_zero: int
    factor: float
    dtype: tc.DType

    inputs = (tc.Operand("x"), tc.Operand("gate"))
    outputs = (tc.Operand("y"),)

    def infer(self, x, gate):
        """As ChannelGate, with the data type of the result."""
        ChannelGate().infer(x, gate)
        return (tc.TensorType(self.dtype, x.shape),)

    def reference(self, x, gate):
        """Round half to even and saturate, in float64."""
        open_gates = (gate.astype(np.int64) > self.limit)[:, :, None, None]
        real = np.where(open_gates, np.rint((x.astype(np.float64) - self.x_zero) * self.factor), 0.0) + self.y_zero
        return (np.clip(real, self.dtype.min, self.dtype.max).astype(self.dtype.numpy),)

    @staticmethod
    def examples():
        """Arrays where the data type or the numbers matter."""
        x = np.arange(-24, 24, dtype=np.int8).reshape(1, 3, 4, 4)
        yield ChannelGateInt(3, 0, -5, 0.5, tc.DType.INT8), (x, np.array([[3, 4, -7]], np.int8))


@tc.register_converter("onnx", "ChannelGate", domain="com.acme", since=1)
def channel_gate(node, g):
    """Convert an ONNX node; attributes that are not read are reported as unsupported."""
    return g.add(ChannelGate(limit=node.attr("limit", 0.5)), node.input(0), node.input(1))
