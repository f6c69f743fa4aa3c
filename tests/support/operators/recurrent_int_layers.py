"""Random integer recurrent layers for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.schema.ops.recurrent.recurrent import Direction
from tpuconvert.schema.ops.recurrent.recurrent_int import GruInt, IntegerLayer, LstmInt, RnnInt
from tpuconvert.schema.types import I8, U8, Array, DType

KINDS: tuple[tuple[type[IntegerLayer], dict[str, Any]], ...] = (
    (LstmInt, {}),
    (LstmInt, {"input_forget": True, "cell_limit": 9000, "cell_bits": 2}),
    (LstmInt, {"input_forget": True, "is_forget_given": True, "cell_bits": 0}),
    (GruInt, {}),
    (GruInt, {"hidden_bits": 2}),
    (GruInt, {"linear_before_reset": True, "hidden_bits": 1}),
    (RnnInt, {}),
    (RnnInt, {"activation": "sigmoid"}),
)
"""Operators with parameters for every part of a step."""


def random_layer(
    kind: type[IntegerLayer],
    parameters: dict[str, Any],
    shape: tuple[int, int, int, int],
    seed: int,
    direction: Direction = Direction.FORWARD,
    *,
    optional: bool = True,
    dtype: DType = I8,
) -> tuple[IntegerLayer, list[Array | None]]:
    """Return an operator and its operands. ``optional`` adds lengths and states. Extents: steps, batch, size, units."""
    rng = np.random.default_rng(seed)
    steps, batch, size, units = shape
    count = len(direction.reverse)
    rows = count * kind.gates * units

    def factors() -> tuple[tuple[int, ...], tuple[int, ...]]:
        shifts = rng.integers(-8, -2, rows)
        return tuple(rng.integers(1 << 30, (1 << 31) - 1, rows).tolist()), tuple(shifts.tolist())

    (input_multipliers, input_shifts), (recurrent_multipliers, recurrent_shifts) = factors(), factors()
    op = kind(
        direction,
        x_zero=int(rng.integers(-20, 20)) if dtype is I8 else int(rng.integers(0, 200)),
        y_zero=int(rng.integers(-5, 5)),
        input_multipliers=input_multipliers,
        input_shifts=input_shifts,
        recurrent_multipliers=recurrent_multipliers,
        recurrent_shifts=recurrent_shifts,
        y_multiplier=int(rng.integers(1 << 30, (1 << 31) - 1)),
        y_shift=-22 if kind is LstmInt else -7,
        **parameters,
    )

    def draw(dtype: DType, *extents: int) -> Array:
        return rng.integers(dtype.min, dtype.max, extents, dtype.numpy, endpoint=True)

    operands: list[Array | None] = [
        draw(dtype, steps, batch, size),
        draw(I8, count, kind.gates * units, size),
        draw(I8, count, kind.gates * units, units),
        rng.integers(-20000, 20000, (count, 2 * kind.gates * units), np.int32),
    ]
    if optional:
        operands.append(rng.integers(0, steps, batch, np.int32, endpoint=True))
        operands += [draw(state, count, batch, units) for state in kind.state_types]
    return op, operands


DTYPES = (I8, U8)
