"""Activation functions: one operator without parameters, one that carries the slope of LEAKY_RELU."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import in_binary64
from tpuconvert.schema.arithmetic.fixed_point import rhaz, saturate
from tpuconvert.schema.definition.op import LOCAL, Trait, UnaryOp, case, on, same, tpu_op
from tpuconvert.schema.types import F16, F32, SMALL, Array, DType


class ActiveType(enum.IntEnum):
    """Activation functions, with the values of the TPU operator set."""

    ACTIVE_TANH = 0
    ACTIVE_SIGMOID = 1
    ACTIVE_RELU = 2
    ACTIVE_EXP = 3
    ACTIVE_ELU = 4
    ACTIVE_SQRT = 5
    ACTIVE_SQUARE = 6
    ACTIVE_RSQRT = 7
    ACTIVE_ABSVAL = 8
    ACTIVE_LN = 9
    ACTIVE_ROUND = 10
    ACTIVE_CEIL = 11
    ACTIVE_FLOOR = 12
    ACTIVE_SIN = 13
    ACTIVE_COS = 14
    ACTIVE_LEAKY_RELU = 15
    UNKNOWN_ACTIVE_TYPE = 16


def relu(x: Array) -> Array:
    """``max(x, 0)``; -0 becomes 0 on every CPU."""
    result: Array = np.maximum(x, x.dtype.type(0))
    result += x.dtype.type(0)
    return result


def round_float(x: Array) -> Array:
    """Round to the nearest integer; ties round away from zero, and zeros are positive."""
    rounded: Array = rhaz(x).astype(x.dtype)
    rounded += x.dtype.type(0)
    return rounded


_BINARY64: Mapping[ActiveType, Callable[[Array], Array]] = MappingProxyType(
    {
        ActiveType.ACTIVE_TANH: np.tanh,
        ActiveType.ACTIVE_SIGMOID: lambda x: 1 / (1 + np.exp(-x)),
        ActiveType.ACTIVE_EXP: np.exp,
        # expm1, because exp(x) - 1 would lose most significant digits near 0.
        ActiveType.ACTIVE_ELU: lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        ActiveType.ACTIVE_SQRT: np.sqrt,
        ActiveType.ACTIVE_RSQRT: lambda x: 1 / np.sqrt(x),
        ActiveType.ACTIVE_LN: np.log,
        ActiveType.ACTIVE_SIN: np.sin,
        ActiveType.ACTIVE_COS: np.cos,
    }
)

_BINARY32: Mapping[ActiveType, Callable[[Array], Array]] = MappingProxyType(
    {
        ActiveType.ACTIVE_RELU: relu,
        ActiveType.ACTIVE_SQUARE: np.square,
        ActiveType.ACTIVE_ABSVAL: np.abs,
        ActiveType.ACTIVE_ROUND: round_float,
        ActiveType.ACTIVE_CEIL: np.ceil,
        ActiveType.ACTIVE_FLOOR: np.floor,
    }
)

_NON_NEGATIVE = (
    ActiveType.ACTIVE_ABSVAL,
    ActiveType.ACTIVE_EXP,
    ActiveType.ACTIVE_RELU,
    ActiveType.ACTIVE_RSQRT,
    ActiveType.ACTIVE_SIGMOID,
    ActiveType.ACTIVE_SQRT,
    ActiveType.ACTIVE_SQUARE,
)
_EXACT = (ActiveType.ACTIVE_RELU, ActiveType.ACTIVE_ABSVAL)
_LEAKY = ActiveType.ACTIVE_LEAKY_RELU

_FIXED_POINT = (
    case(
        {"tensor_i": SMALL, "tensor_o": SMALL},
        when=lambda op: op.active_type in _EXACT,
        when_text="active_type is RELU or ABSVAL",
        compute="EXACT_INT",
    ),
    same(*SMALL, when=lambda op: op.active_type is _LEAKY, when_text="active_type is LEAKY_RELU", compute="FLOAT32"),
)
_DTYPES = on(
    same(F32),
    bm1684=(same(F32), *_FIXED_POINT),
    bm1686=(
        same(F32),
        *_FIXED_POINT,
        same(
            F16,
            when=lambda op: op.active_type in (*_EXACT, _LEAKY),
            when_text="active_type is RELU, ABSVAL or LEAKY_RELU",
        ),
    ),
)


class ActivationFunction(UnaryOp):
    """Base of the two activation operators."""

    dtypes = _DTYPES
    locality = LOCAL
    traits = Trait.LUT
    rewrite_weight = 2

    active_type: ActiveType
    out_dtype: DType | None

    def __post_init__(self) -> None:
        if ActiveType(self.active_type) is ActiveType.UNKNOWN_ACTIVE_TYPE:
            raise ValueError(f"{self.name}: active_type UNKNOWN_ACTIVE_TYPE is reserved")
        object.__setattr__(self, "active_type", ActiveType(self.active_type))

    def clamp_range(self) -> tuple[float, float] | None:
        """RELU is the only activation function that is a clamp."""
        return (0.0, math.inf) if self.active_type is ActiveType.ACTIVE_RELU else None

    def is_non_negative(self) -> bool:
        """Return True if the function has no negative results."""
        return self.active_type in _NON_NEGATIVE

    def reference(self, x: Array) -> tuple[Array]:
        """Evaluate the function. Only RELU, ABSVAL and LEAKY_RELU accept integers."""
        out = self.result_dtype(DType.of(x.dtype))
        if x.dtype.kind in "iu":
            return (saturate(self._of_integers(x.astype(np.int64)), out),)
        if self.active_type in _BINARY64:
            return (in_binary64(_BINARY64[self.active_type], x).astype(out.numpy, copy=False),)
        wide = x.astype(np.float32, copy=False)
        with np.errstate(all="ignore"):
            result = self._leaky_relu(wide) if self.active_type is _LEAKY else _BINARY32[self.active_type](wide)
            return (result.astype(out.numpy, copy=False),)

    def _leaky_relu(self, x: Array) -> Array:
        slope = np.float32(self._slope)
        # With slope 0 it is RELU by definition, also for -0 and minus infinity, which give 0.
        result: Array = relu(x) if slope == 0 else np.where(x >= 0, x, slope * x)
        return result

    def _of_integers(self, x: Array) -> Array:
        if self.active_type is ActiveType.ACTIVE_RELU:
            return relu(x)
        if self.active_type is ActiveType.ACTIVE_ABSVAL:
            return np.abs(x)
        if self.active_type is not _LEAKY:
            raise ValueError(f"{self.name}: {self.active_type.name} does not take integers")
        scaled = rhaz(x.astype(np.float32) * np.float32(self._slope))
        result: Array = np.where(x >= 0, x, scaled)
        return result

    @property
    def _slope(self) -> float:
        return 0.0


@tpu_op("active")
class Active(ActivationFunction):
    """``y = f(x)``: apply an activation function element-wise. LEAKY_RELU has slope 0 here.

    Units: SIN and COS take radians.
    """

    active_type: ActiveType
    out_dtype: DType | None = None


@tpu_op("active_param")
class ActiveParam(ActivationFunction):
    """``y = f(x)``: apply an activation element-wise. ``params[0]`` is the slope of LEAKY_RELU, 0 if absent."""

    active_type: ActiveType
    params: tuple[float, ...] = ()
    out_dtype: DType | None = None

    @property
    def _slope(self) -> float:
        return self.params[0] if self.params else 0.0
