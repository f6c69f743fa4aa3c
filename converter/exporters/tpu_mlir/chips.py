"""Target chips of the vendor's compiler: names, the corresponding chips here, and requantization records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array, Chip


@dataclass(frozen=True)
class Target:
    """A chip of the vendor's compiler.

    Args:
        name: name of the chip in the compiler.
        chip: the chip whose operators a model must use.
        has_packed_requant: True if a requantization record has two words, with shift and zero point packed in the
            second.
        returns_floats: True if 8-bit tensors are returned as float32, because the chip stores the elements of four
            images in one word.
        has_reshape_buffer: True if a reshape has an operand for a buffer.
        has_float32_biases: True if products of FLOAT16 and BFLOAT16 have FLOAT32 biases, False if they have biases of
            their type.
        absent: operations that the compiler does not have for the chip, or that are wrong in the simulator, with the
            attribute ``mode`` or an empty string.
        groups_images: False if the compiler groups a cast with a convolution of few channels and then gets some rows of
            its result wrong.
        fuses_zero_points: False if zero points of unsigned results are wrong where the compiler fuses them.
        has_small_sums: False if convolutions to one element of a channel are wrong in a layer group.
        level: level of layer grouping that is tried first. Groups of BM1684 with floats are often wrong in simulation.
        has_transposed_operands: True if the right operand of a product may be transposed.
        floats: types in which the chip computes floating-point operators.
        takes_integers: False if a program takes 8- and 16-bit inputs as dequantized float32 values.
        packed_rows: the number of rows of a packed weight has to be a multiple of this.
    """

    name: str
    chip: Chip
    has_packed_requant: bool = False
    returns_floats: bool = False
    has_reshape_buffer: bool = False
    has_float32_biases: bool = False
    absent: frozenset[tuple[str, str]] = frozenset()
    groups_images: bool = True
    fuses_zero_points: bool = True
    has_small_sums: bool = True
    level: int = 2
    has_transposed_operands: bool = True
    floats: tuple[str, ...] = ("f32", "f16", "bf16")
    takes_integers: bool = True
    packed_rows: int = 1

    def requant_table(self, multipliers: Sequence[int], shifts: Sequence[int], zero_points: Sequence[int]) -> Array:
        """Return the operand of ``RequantIntAxis``: int32 [1, channels, 1, words].

        Args:
            multipliers: one per channel, below 2^31.
            shifts: one per channel; negative values shift to the right.
            zero_points: zero points of the result, one per channel.
        """
        columns = [np.array(multipliers, np.int64), np.array(shifts, np.int64), np.array(zero_points, np.int64)]
        if self.has_packed_requant:
            columns[1:] = [(columns[1] & 0xFFFF) | ((columns[2] & 0xFFFF) << 16)]
        words = np.stack(columns, axis=1).astype(np.uint32).view(np.int32)
        return words.reshape(1, len(multipliers), 1, len(columns))


_ABSENT_ON_BM1684 = frozenset(
    {
        ("tpu.Active", "CEIL"),
        ("tpu.Active", "GELU"),
        ("tpu.Active", "HSWISH"),
        ("tpu.Active", "ROUND"),
        ("tpu.Active", "RSQRT"),
        ("tpu.Active", "TGELU"),
        ("tpu.Clip", ""),
        ("tpu.LayerNorm", ""),
        ("tpu.RMSNorm", ""),
    }
)

TARGETS = {
    target.name: target
    for target in (
        Target("bm1684x", Chip.BM1686),
        Target(
            "bm1688",
            Chip.BM1686,
            has_packed_requant=True,
            has_float32_biases=True,
            packed_rows=32,
            groups_images=False,
            fuses_zero_points=False,
            has_small_sums=False,
        ),
        Target(
            "bm1684",
            Chip.BM1684,
            returns_floats=True,
            has_reshape_buffer=True,
            takes_integers=False,
            floats=("f32",),
            absent=_ABSENT_ON_BM1684,
            level=0,
            has_transposed_operands=False,
        ),
    )
}
"""Targets by name."""


def target_of(name: str, chip: Chip, file: str) -> Target:
    """Return the target of a name.

    Raises:
        UsageError: models for the chip do not run on the target.
    """
    target = TARGETS[name]
    if chip is not target.chip:
        raise UsageError(
            f"the model is for {chip.value}, exactness on {name} needs one for {target.chip.value}",
            file=file,
            hint=f"add --chip {name}",
        )
    return target
