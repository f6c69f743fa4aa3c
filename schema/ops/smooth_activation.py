"""Composite activations: element-wise unary functions that expand to several TPU operators.

References are evaluated in binary64 and rounded once. In INT8 networks they become lookup tables.
"""

from __future__ import annotations

import abc
import enum
import math

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import in_binary64
from tpuconvert.schema.definition.op import LOCAL, Operand, OpKind, Trait, tpu_op
from tpuconvert.schema.graph.composite import Composite, check_float
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.types import Array, TensorType


class CompositeActivation(Composite, abc.ABC):
    """Base of element-wise unary functions."""

    inputs = (Operand("tensor_i"),)
    locality = LOCAL
    traits = Trait.LUT

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the operand may have any shape, and the result has the same shape."""
        check_float(self, x)
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        """Evaluate in binary64 and round once."""
        return (in_binary64(self.function, x),)

    def expand(self, g: Graph, x: Value) -> tuple[Value]:
        """Expand to the operators added by ``formula``."""
        return (self.formula(g, x),)

    @abc.abstractmethod
    def function(self, x: Array) -> Array:
        """Evaluate the function in binary64."""

    @abc.abstractmethod
    def formula(self, g: Graph, x: Value) -> Value:
        """Add TPU operators that compute the function."""


_ERFC = np.frompyfunc(math.erfc, 1, 1)


class GeluForm(enum.IntEnum):
    """Formula of gelu: exact with ERF, or approximated with TANH."""

    ERF = 0
    TANH = 1


@tpu_op("gelu", OpKind.COMPOSITE)
class Gelu(CompositeActivation):
    """``y = x/2 * (1 + erf(x / sqrt(2)))``; with TANH ``y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))``.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units; ONNX Gelu-20.
    """

    form: GeluForm = GeluForm.ERF

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", GeluForm(self.form))

    def function(self, x: Array) -> Array:
        """Evaluate with erfc, which keeps full precision for negative x, where 1 + erf(x) cancels."""
        if self.form is GeluForm.TANH:
            # 1 + tanh(u) = 2 / (1 + exp(-2u)), without cancellation at negative u
            return _zero_below(x, x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
        tails = np.asarray(_ERFC(-x * math.sqrt(0.5)), dtype=np.float64)
        return _zero_below(x, x * 0.5 * tails)

    def formula(self, g: Graph, x: Value) -> Value:
        """Expand to a polynomial approximation of erf, or to tanh."""
        if self.form is GeluForm.ERF:
            inner = f.erf(g, f.muls(g, x, math.sqrt(0.5)))
        else:
            cube = f.mul(g, f.square(g, x), x)
            inner = f.tanh(g, f.muls(g, f.add(g, x, f.muls(g, cube, 0.044715)), math.sqrt(2 / math.pi)))
        return f.mul(g, f.muls(g, x, 0.5), f.adds(g, inner, 1))


@tpu_op("silu", OpKind.COMPOSITE)
class Silu(CompositeActivation):
    """``y = x / (1 + exp(-alpha * x))``: SiLU, also called swish.

    Source: ONNX Swish-24.
    """

    alpha: float = 1.0

    def function(self, x: Array) -> Array:
        y = x / (1 + np.exp(-self.alpha * x))
        return y if self.alpha <= 0 else _zero_below(x, y)

    def formula(self, g: Graph, x: Value) -> Value:
        """``x * sigmoid(alpha * x)``."""
        return f.mul(g, x, f.sigmoid(g, x if self.alpha == 1 else f.muls(g, x, self.alpha)))


@tpu_op("hard_sigmoid", OpKind.COMPOSITE)
class HardSigmoid(CompositeActivation):
    """``y = min(max(alpha * x + beta, 0), 1)``, a piecewise linear sigmoid.

    Source: ONNX HardSigmoid-6.
    """

    alpha: float = 0.2
    beta: float = 0.5

    rewrite_weight = 11  # more than the weight of the expansion, by which decompose_hard_sigmoid replaces it

    def function(self, x: Array) -> Array:
        result: Array = np.clip(self.alpha * x + self.beta, 0, 1)
        return result

    def formula(self, g: Graph, x: Value) -> Value:
        """``clamp(alpha * x + beta, 0, 1)``."""
        return f.clamp(g, f.adds(g, f.muls(g, x, self.alpha), self.beta), 0, 1)


@tpu_op("hard_swish", OpKind.COMPOSITE)
class HardSwish(CompositeActivation):
    """``y = x * min(max(x / 6 + 1/2, 0), 1)``, a piecewise approximation of SiLU.

    Source: ONNX HardSwish-14.
    """

    def function(self, x: Array) -> Array:
        return _zero_below(x, x * np.clip(x / 6 + 0.5, 0, 1))

    def formula(self, g: Graph, x: Value) -> Value:
        """``x * clamp(x / 6 + 1/2, 0, 1)``."""
        return f.mul(g, x, f.clamp(g, f.adds(g, f.muls(g, x, 1 / 6), 0.5), 0, 1))


@tpu_op("softplus", OpKind.COMPOSITE)
class Softplus(CompositeActivation):
    """``y = ln(1 + exp(x))``, a smooth ReLU.

    Source: ONNX Softplus-1; Caffe BNLL.
    """

    def function(self, x: Array) -> Array:
        """Evaluate without overflow."""
        return _softplus(x)

    def formula(self, g: Graph, x: Value) -> Value:
        """``max(x, 0) + ln(1 + exp(-|x|))``."""
        return f.softplus(g, x)


@tpu_op("mish", OpKind.COMPOSITE)
class Mish(CompositeActivation):
    """``y = x * tanh(ln(1 + exp(x)))``: the Mish activation.

    Source: ONNX Mish-18.
    """

    def function(self, x: Array) -> Array:
        result: Array = _zero_below(x, x * np.tanh(_softplus(x)))
        return result

    def formula(self, g: Graph, x: Value) -> Value:
        """``x * tanh(softplus(x))``."""
        return f.mul(g, x, f.tanh(g, f.softplus(g, x)))


def _softplus(x: Array) -> Array:
    result: Array = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return result


def _zero_below(x: Array, y: Array) -> Array:
    """Replace y by its limit 0 if x is minus infinity, for which the formula gives NaN (infinity times 0)."""
    return np.where(np.isneginf(x), 0.0, y)
