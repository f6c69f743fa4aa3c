"""Repetition of a whole tensor along its axes: tile, broadcast, repeat, and tile_v2 with counts from a tensor."""

from __future__ import annotations

import abc

import numpy as np

from tpuconvert.schema.definition.dtype_rules import IO_SAME
from tpuconvert.schema.definition.extents import check_length, may_equal, shapes_of, times, unknown
from tpuconvert.schema.definition.op import GLOBAL, Op, Operand, Trait, case, limited_local, on, todo, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, I32, NUMBERS, NUMBERS_F16, Array, Chip, TensorType, format_shape


class Repetition(Op, abc.ABC):
    """Base of operators that compute ``y[i] = x[i % extent]`` on every axis."""

    inputs = (Operand("tensor_i"),)
    traits = Trait.MOVES_DATA

    @property
    @abc.abstractmethod
    def counts(self) -> tuple[int, ...]:
        """Number of copies per axis."""

    def __post_init__(self) -> None:
        if any(count < 1 for count in self.counts):
            raise ValueError(f"{self.name}: counts {self.counts} must be at least 1")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: one count per axis; the extents are multiplied."""
        check_length(self.name, "counts", self.counts, x.rank, x)
        return (TensorType(x.dtype, tuple(map(times, x.shape, self.counts))),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return a new array with all copies."""
        return (np.tile(x, self.counts),)


def _is_local(op: Repetition, ins: tuple[TensorType, ...], outs: tuple[TensorType, ...], chip: Chip) -> bool:
    return len(op.counts) >= 2 and op.counts[1] == 1


@tpu_op("tile")
class Tile(Repetition):
    """x repeated ``reps[k]`` times along axis k."""

    reps: tuple[int, ...]

    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=todo(*NUMBERS_F16))
    locality = limited_local(_is_local, "local only while nothing is repeated along axis 1")
    traits = Trait.MOVES_INTEGERS

    @property
    def counts(self) -> tuple[int, ...]:
        """``reps``."""
        return self.reps


@tpu_op("broadcast")
class Broadcast(Repetition):
    """Repeat x ``times[k]`` times along axis k: equal to tile."""

    times: tuple[int, ...]

    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=todo(*NUMBERS_F16))
    locality = limited_local(_is_local, "local only while nothing is repeated along axis 1")

    @property
    def counts(self) -> tuple[int, ...]:
        """``times``."""
        return self.times


@tpu_op("repeat")
class Repeat(Repetition):
    """Repeat x ``reps[k]`` times along axis k: tile with global locality. It does not repeat single elements."""

    reps: tuple[int, ...]

    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=NUMBERS_F16)
    locality = GLOBAL

    @property
    def counts(self) -> tuple[int, ...]:
        """``reps``."""
        return self.reps


@tpu_op("tile_v2")
class TileV2(Op):
    """As tile, with counts computed at run time.

    Shapes: reps [rank of x]; the extents of y depend on its values.
    """

    inputs = (Operand("tensor_i"), Operand("reps", ranks=(1,), coeff=True))
    unfinished = True
    dtypes = on(
        bm1682=(case({"tensor_i": (F32,), "reps": (I32,), "tensor_o": (F32,)}, IO_SAME),),
        bm1684=(case({"tensor_i": NUMBERS, "reps": (I32,), "tensor_o": NUMBERS}, IO_SAME),),
        bm1686=None,
    )
    locality = GLOBAL
    traits = Trait.MOVES_DATA

    def infer(self, x: TensorType, reps: TensorType) -> tuple[TensorType]:
        """Shapes: one count per axis."""
        if not may_equal(reps.shape[0], x.rank):
            raise ShapeError(f"{self.name} needs one count per axis, got {shapes_of((x, reps))}")
        return (TensorType(x.dtype, tuple(unknown(self.name, axis) for axis in range(x.rank))),)

    def reference(self, x: Array, reps: Array) -> tuple[Array]:
        """Return a new array with all copies. Counts below 1 raise ShapeError."""
        if (reps < 1).any():
            raise ShapeError(f"{self.name}: counts {reps.tolist()} for {format_shape(x.shape)} must be at least 1")
        return (np.tile(x, reps.tolist()),)
