"""Padding around a tensor: pad, and pad_v2 with paddings computed at run time."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.dtype_rules import IO_SAME, PADVAL_SAME
from tpuconvert.schema.definition.extents import check_length, may_equal, plus, shapes_of, unknown
from tpuconvert.schema.definition.op import GLOBAL, Op, Operand, Trait, case, limited_local, on, todo, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, I32, NUMBERS, NUMBERS_F16, Array, Chip, DType, Scalar, TensorType


class PadType(enum.IntEnum):
    """Content of the padding."""

    PAD_CONSTANT = 0
    PAD_REFLECT = 1
    PAD_SYMMETRIC = 2
    PAD_EDGE = 3


def _check(op: str, mode: PadType, x: TensorType, paddings: Sequence[int]) -> None:
    check_length(op, "paddings", paddings, 2 * x.rank, x)
    if any(padding < 0 for padding in paddings):
        raise ShapeError(f"{op}: paddings {list(paddings)} for {x} are negative")
    for axis, extent in enumerate(x.shape):
        largest = max(paddings[2 * axis : 2 * axis + 2])
        if isinstance(extent, int) and largest > _largest_padding(mode, extent, largest):
            raise ShapeError(f"{op}: axis {axis} of {x} is too short for {mode.name} with paddings {list(paddings)}")


def _largest_padding(mode: PadType, extent: int, asked: int) -> int:
    """Return the largest valid padding on one side of an axis.

    REFLECT and SYMMETRIC reflect the tensor once only. EDGE needs an element to repeat.
    """
    if mode is PadType.PAD_REFLECT:
        return max(extent - 1, 0)
    if mode is PadType.PAD_SYMMETRIC:
        return extent
    return 0 if mode is PadType.PAD_EDGE and extent == 0 else asked


def _pad_array(x: Array, mode: PadType, value: Scalar, paddings: Sequence[int]) -> Array:
    if mode is PadType.PAD_CONSTANT:
        shape = [n + paddings[2 * axis] + paddings[2 * axis + 1] for axis, n in enumerate(x.shape)]
        result = np.full(shape, value.array.astype(x.dtype), x.dtype)
        result[tuple(slice(paddings[2 * axis], paddings[2 * axis] + n) for axis, n in enumerate(x.shape))] = x
        return result
    for axis, n in enumerate(x.shape):
        before, after = paddings[2 * axis : 2 * axis + 2]
        if before or after:
            x = x.take(_sources(mode, np.arange(-before, n + after), n), axis=axis)
    return x.copy()


def _sources(mode: PadType, j: Array, n: int) -> Array:
    """Return the index of the element to copy to position j, which may be outside of the tensor."""
    if mode is PadType.PAD_EDGE:
        return np.clip(j, 0, n - 1)
    edge = 0 if mode is PadType.PAD_REFLECT else 1  # SYMMETRIC also repeats the outermost element
    return np.where(j < 0, -j - edge, np.where(j >= n, 2 * (n - 1) - j + edge, j))


def _is_local(op: Pad, ins: tuple[TensorType, ...], outs: tuple[TensorType, ...], chip: Chip) -> bool:
    return all(padding == 0 for padding in op.paddings[:4])


@tpu_op("pad")
class Pad(Op):
    """Pad x. REFLECT does not repeat the outermost elements, SYMMETRIC does.

    Shapes: ``paddings`` contains (before, after) of axis 0, then of axis 1, ...; none is negative.
    """

    pad_val: Scalar
    paddings: tuple[int, ...]
    pad_mode: PadType = PadType.PAD_CONSTANT

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=todo(*NUMBERS_F16))
    locality = limited_local(_is_local, "local only when axes 0 and 1 are not padded")
    traits = Trait.PADS | Trait.MOVES_INTEGERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "pad_mode", PadType(self.pad_mode))

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: two paddings per axis. In REFLECT and SYMMETRIC mode a padding must be at most one reflection."""
        _check(self.name, self.pad_mode, x, self.paddings)
        extents = zip(x.shape, self.paddings[::2], self.paddings[1::2], strict=True)
        return (TensorType(x.dtype, tuple(plus(n, before, after) for n, before, after in extents)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return a padded copy."""
        return (_pad_array(x, self.pad_mode, self.pad_val, self.paddings),)


@tpu_op("pad_v2")
class PadV2(Op):
    """As pad, with paddings computed at run time.

    Shapes: paddings [2 * rank of x]; the extents of y depend on their values.
    """

    pad_val: Scalar
    pad_mode: PadType = PadType.PAD_CONSTANT

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"), Operand("paddings", ranks=(1,), coeff=True))
    dtypes = on(
        bm1682=(case({"tensor_i": (F32,), "paddings": (I32,), "pad_val": (F32,), "tensor_o": (F32,)}, IO_SAME),),
        bm1684=(
            case(
                {"tensor_i": NUMBERS, "pad_val": NUMBERS, "paddings": (I32,), "tensor_o": NUMBERS}, IO_SAME, PADVAL_SAME
            ),
        ),
        bm1686=None,
    )
    locality = GLOBAL
    traits = Trait.PADS

    def __post_init__(self) -> None:
        object.__setattr__(self, "pad_mode", PadType(self.pad_mode))

    def infer(self, x: TensorType, paddings: TensorType) -> tuple[TensorType]:
        """Shapes: two paddings per axis."""
        if not may_equal(paddings.shape[0], 2 * x.rank):
            raise ShapeError(f"{self.name} needs two paddings per axis, got {shapes_of((x, paddings))}")
        return (TensorType(x.dtype, tuple(unknown(self.name, axis) for axis in range(x.rank))),)

    def reference(self, x: Array, paddings: Array) -> tuple[Array]:
        """Return a padded copy. Invalid paddings raise ShapeError."""
        values = paddings.tolist()
        _check(self.name, self.pad_mode, TensorType(DType.of(x.dtype), x.shape), values)
        return (_pad_array(x, self.pad_mode, self.pad_val, values),)
