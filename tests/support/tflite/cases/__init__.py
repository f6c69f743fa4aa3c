"""Cases for comparisons with the TFLite reference kernels, one table per family; ``all_cases`` finds them."""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.tflite.models import S


@dataclass(frozen=True)
class Given:
    """An operand that is an input of the model, with the array to run it on."""

    array: Any


@dataclass(frozen=True)
class Variable:
    """A state tensor that the runtime keeps between runs. It starts with zeros."""

    shape: Sequence[int]
    type: str = "FLOAT32"


@dataclass(frozen=True)
class Case:
    """One operator on some operands.

    Args:
        op: its name.
        inputs: ``Given`` ones are inputs of the model, arrays are constants, None is an absent operand.
        outputs: types of the results, or (type, shape) where the operator reads the shape from the file.
        table: of the options.
        options: its fields.
        atol: largest difference of floats, as a share of the largest magnitude or of 1.
        note: told apart from others by it.
        version: of the operator.
        scale: quantization of all 8-bit and 16-bit operands and results, with ``zero_point``; none where it is 0.
        subgraphs: that the operator calls.
        optimized: compared with the optimized kernels, because there is no reference kernel or it computes something
            else; as the note or a comment states.
    """

    op: str
    inputs: Sequence[Any]
    outputs: Sequence[Any] = ("FLOAT32",)
    table: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    atol: float = 2e-6
    note: str = ""
    version: int = 1
    scale: float = 0.0
    zero_point: int = 0
    subgraphs: Sequence[S] = ()
    optimized: bool = False

    def __str__(self) -> str:
        return "-".join(part for part in (self.op, self.note.replace(" ", "_")) if part)


def numbers(name: str, shape: Sequence[int], low: float = -3.0, high: float = 3.0, dtype: str = "float32") -> Any:
    """Random numbers that depend only on a name."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(int(low), int(high) + 1, shape).astype(dtype)
    return generator.uniform(low, high, shape).astype(dtype)


def feed(name: str, shape: Sequence[int], low: float = -3.0, high: float = 3.0, dtype: str = "float32") -> Given:
    """Random numbers as a model input."""
    return Given(numbers(name, shape, low, high, dtype))


def i32(*values: Any) -> Any:
    """INT32 constants."""
    return np.asarray(values[0] if len(values) == 1 else values, np.int32)


def f32(*values: Any) -> Any:
    """FLOAT32 constants."""
    return np.asarray(values[0] if len(values) == 1 else values, np.float32)


def all_cases() -> Iterator[Case]:
    """The cases of every table."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda item: item.name):
        yield from importlib.import_module(f"{__name__}.{module.name}").CASES
