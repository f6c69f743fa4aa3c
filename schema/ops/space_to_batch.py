"""Spatial blocks to the batch axis and back: space_to_batch, batch_to_space, and their forms with run-time values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.definition.dtype_rules import IO_SAME
from tpuconvert.schema.definition.extents import exact_div, may_equal, plus, shapes_of, times, unknown
from tpuconvert.schema.definition.op import GLOBAL, Case, Op, Operand, Support, Trait, case, on, same, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F16, F32, I8, I32, U8, Array, Dim, DType, Shape, TensorType, format_shape

_FIXED = (F32, I32, I8, U8)
_ALL = (F32, F16, I32, I8, U8)


def _check(op: str, block: Sequence[int], margin: Sequence[int], error: type[Exception] = ValueError) -> None:
    if len(block) != 2 or len(margin) != 4 or any(size < 1 for size in block) or any(size < 0 for size in margin):
        raise error(f"{op}: blocks of {list(block)} with {list(margin)} rows and columns at the edges")


def _batch_shape(op: str, shape: Shape, block: Sequence[int], pad: Sequence[int]) -> Shape:
    """Result shape of space_to_batch."""
    n, c, *plane = shape
    padded = plus(plane[0], pad[0], pad[1]), plus(plane[1], pad[2], pad[3])
    if any(isinstance(extent, int) and extent % size for extent, size in zip(padded, block, strict=True)):
        raise ShapeError(
            f"{op}: {format_shape(shape)} with padding {list(pad)} is {format_shape((n, c, *padded))}, "
            f"which has no whole number of blocks {list(block)}"
        )
    return (times(n, block[0], block[1]), c, *map(exact_div, padded, block))


def _spread(op: str, shape: Shape, block: Sequence[int], crop: Sequence[int]) -> Shape:
    """Result shape of batch_to_space."""
    n, c, h, w = shape
    grown = times(h, block[0]), times(w, block[1])
    plane: list[Dim] = [plus(grown[0], -crop[0], -crop[1]), plus(grown[1], -crop[2], -crop[3])]
    if isinstance(n, int) and n % (block[0] * block[1]):
        raise ShapeError(f"{op}: the batch of {format_shape(shape)} has no whole number of blocks {list(block)}")
    if any(isinstance(extent, int) and extent < 0 for extent in plane):
        raise ShapeError(f"{op}: crop {list(crop)} is more than {format_shape((n, c, *grown))} from {shape} has")
    return (exact_div(n, block[0] * block[1]), c, *plane)


def _to_batch(x: Array, block: Sequence[int], pad: Sequence[int]) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[1]), (pad[2], pad[3])))
    n, c, h, w = padded.shape
    blocks = padded.reshape(n, c, h // block[0], block[0], w // block[1], block[1])
    return blocks.transpose(3, 5, 0, 1, 2, 4).reshape(-1, c, h // block[0], w // block[1])


def _to_space(x: Array, block: Sequence[int], crop: Sequence[int]) -> Array:
    batch, c, h, w = x.shape
    blocks = x.reshape(*block, batch // (block[0] * block[1]), c, h, w).transpose(2, 3, 4, 0, 5, 1)
    plane = blocks.reshape(-1, c, h * block[0], w * block[1])
    cropped = plane[:, :, crop[0] : h * block[0] - crop[1], crop[2] : w * block[1] - crop[3]]
    return np.ascontiguousarray(cropped)


@tpu_op("space_to_batch")
class SpaceToBatch(Op):
    """Move element (bh, bw) of every block of image n to batch index (bh * block columns + bw) * N + n.

    Shapes: x NCHW, padded with 0 by ``pad`` (top, bottom, left, right) to a whole number of blocks (rows, columns).
    """

    block_size: tuple[int, int]
    pad: tuple[int, int, int, int]

    inputs = (Operand("tensor_i", ranks=(4,), layout="NCHW"),)
    outputs = (Operand("tensor_o", ranks=(4,), layout="NCHW"),)
    dtypes = on(bm1682=(F32,), bm1684=_FIXED, bm1686=Support((same(*_ALL),), inferred=True))
    locality = GLOBAL
    traits = Trait.PADS | Trait.MOVES_INTEGERS

    def __post_init__(self) -> None:
        _check(self.name, self.block_size, self.pad)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the padded plane is a whole number of blocks."""
        return (TensorType(x.dtype, _batch_shape(self.name, x.shape, self.block_size, self.pad)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return the rearranged elements."""
        return (_to_batch(x, self.block_size, self.pad),)


@tpu_op("batch_to_space")
class BatchToSpace(Op):
    """Invert space_to_batch, then remove ``crop_size`` rows and columns (top, bottom, left, right).

    Shapes: x NCHW; N is a multiple of the block area.
    """

    block_size: tuple[int, int]
    crop_size: tuple[int, int, int, int]

    inputs = (Operand("tensor_i", ranks=(4,), layout="NCHW"),)
    outputs = (Operand("tensor_o", ranks=(4,), layout="NCHW"),)
    dtypes = on(bm1682=(F32,), bm1684=_FIXED, bm1686=_ALL)
    locality = GLOBAL
    traits = Trait.MOVES_INTEGERS

    def __post_init__(self) -> None:
        _check(self.name, self.block_size, self.crop_size)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the batch size is a multiple of the block area; the crop is not larger than the plane."""
        return (TensorType(x.dtype, _spread(self.name, x.shape, self.block_size, self.crop_size)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return the rearranged elements."""
        return (_to_space(x, self.block_size, self.crop_size),)


def _with(margin: str, dtypes: tuple[DType, ...]) -> tuple[Case]:
    return (case({"tensor_i": dtypes, "tensor_o": dtypes, "block_size": (I32,), margin: (I32,)}, IO_SAME),)


def _check_operands(op: str, x: TensorType, block: TensorType, margin: TensorType) -> None:
    if not (may_equal(block.shape[0], 2) and may_equal(margin.shape[0], 4)):
        raise ShapeError(f"{op} needs 2 block extents and 4 border extents, got {shapes_of((x, block, margin))}")


@tpu_op("space_to_batch_v2")
class SpaceToBatchV2(Op):
    """As space_to_batch, with block size and padding computed at run time.

    Shapes: x NCHW, block_size [2], pad [4]; the extents of y depend on their values.
    """

    inputs = (
        Operand("tensor_i", ranks=(4,), layout="NCHW"),
        Operand("block_size", ranks=(1,), coeff=True),
        Operand("pad", ranks=(1,), coeff=True),
    )
    outputs = (Operand("tensor_o", ranks=(4,), layout="NCHW"),)
    unfinished = True
    dtypes = on(bm1682=_with("pad", (F32,)), bm1684=_with("pad", _FIXED), bm1686=_with("pad", _ALL))
    locality = GLOBAL
    traits = Trait.PADS

    def infer(self, x: TensorType, block_size: TensorType, pad: TensorType) -> tuple[TensorType]:
        """Shapes: only the number of channels is known before the run."""
        _check_operands(self.name, x, block_size, pad)
        n, h, w = (unknown(self.name, axis) for axis in (0, 2, 3))
        return (TensorType(x.dtype, (n, x.shape[1], h, w)),)

    def reference(self, x: Array, block_size: Array, pad: Array) -> tuple[Array]:
        """Return the rearranged elements."""
        _check(self.name, block_size.tolist(), pad.tolist(), ShapeError)
        _batch_shape(self.name, x.shape, block_size.tolist(), pad.tolist())
        return (_to_batch(x, block_size.tolist(), pad.tolist()),)


@tpu_op("batch_to_space_v2")
class BatchToSpaceV2(Op):
    """As batch_to_space, with block size and crop computed at run time.

    Shapes: x NCHW, block_size [2], crop_size [4]; the extents of y depend on their values.
    """

    inputs = (
        Operand("tensor_i", ranks=(4,), layout="NCHW"),
        Operand("block_size", ranks=(1,), coeff=True),
        Operand("crop_size", ranks=(1,), coeff=True),
    )
    outputs = (Operand("tensor_o", ranks=(4,), layout="NCHW"),)
    unfinished = True
    dtypes = on(bm1682=_with("crop_size", (F32,)), bm1684=_with("crop_size", _FIXED), bm1686=None)
    locality = GLOBAL
    traits = Trait.MOVES_DATA

    def infer(self, x: TensorType, block_size: TensorType, crop_size: TensorType) -> tuple[TensorType]:
        """Shapes: only the number of channels is known before the run."""
        _check_operands(self.name, x, block_size, crop_size)
        n, h, w = (unknown(self.name, axis) for axis in (0, 2, 3))
        return (TensorType(x.dtype, (n, x.shape[1], h, w)),)

    def reference(self, x: Array, block_size: Array, crop_size: Array) -> tuple[Array]:
        """Return the rearranged elements."""
        _check(self.name, block_size.tolist(), crop_size.tolist(), ShapeError)
        _spread(self.name, x.shape, block_size.tolist(), crop_size.tolist())
        return (_to_space(x, block_size.tolist(), crop_size.tolist()),)
