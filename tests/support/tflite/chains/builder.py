"""Construction of a random chain: tensors, constants and operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.tflite.chains.registry import ALL
from tests.support.tflite.integer_cases import scale, zero
from tests.support.tflite.models import O, T

MOST_ELEMENTS = 1500

_VERSIONS = {"BROADCAST_TO": 2}
"""Versions of operators whose first one the interpreter lacks."""


class Chain:
    """A subgraph under construction.

    Args:
        generator: source of every random choice.

    Attributes:
        tensors: all tensors of the subgraph.
        operators: in execution order.
        inputs: indices of the inputs of the model.
        results: indices of computed tensors and inputs that operators may use.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.g = generator
        self.tensors: list[T] = []
        self.operators: list[O] = []
        self.inputs: list[int] = []
        self.results: list[int] = []
        self.others: list[int] = []  # results of types that no further operator takes
        self.extra: set[int] = set()
        self.chosen: list[int] = []  # the outputs of the model

    # Random choices

    def integer(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return int(self.g.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return bool(self.g.random() < probability)

    def pick(self, items: Sequence[Any]) -> Any:
        """Return one of the items."""
        return items[int(self.g.integers(len(items)))]

    def activation(self, *allowed: int) -> int:
        """Number of a fused activation: NONE, RELU, RELU_N1_TO_1, RELU6."""
        return int(self.pick(allowed or (0, 0, 0, 1, 2, 3)))

    def choose(self, types: Sequence[str], ranks: Sequence[int]) -> int | None:
        """Return a tensor of one of the types and ranks, most often the newest; None if there is none."""
        fitting = [
            index
            for index in self.results
            if self.tensors[index].type in types and len(self.tensors[index].shape) in ranks
        ]
        if not fitting:
            return None
        return fitting[-1] if self.chance(0.65) else int(self.pick(fitting))

    def other(self, x: int, *, same_scale: bool) -> int | None:
        """Return another tensor with the type and shape of a tensor, and with its quantization if that is needed."""
        one = self.tensors[x]
        fitting = [
            index
            for index in self.results
            if index != x
            and (self.tensors[index].type, tuple(self.tensors[index].shape)) == (one.type, tuple(one.shape))
            and (not same_scale or _quantization(self.tensors[index]) == _quantization(one))
        ]
        return int(self.pick(fitting)) if fitting else None

    # Construction

    def add_input(self) -> int:
        """Add an input of the model."""
        dtype = str(self.g.choice(ALL, p=(0.6, 0.2, 0.2)))
        rank = int(self.g.choice((5, 4, 3, 2, 1), p=(0.05, 0.67, 0.12, 0.12, 0.04)))
        shape = [self.integer(1, 6) for _ in range(rank)]
        if rank == 4:
            shape[0] = 1 if self.chance(0.8) else 2
        index = self.tensor(shape, dtype, scale(self.g, 0.05 if dtype != "INT16" else 3e-4), zero(self.g, dtype))
        self.inputs.append(index)
        return index

    def tensor(self, shape: Sequence[int], dtype: str, step: float, zero_point: int) -> int:
        """Add a quantized tensor that later operators may use."""
        index = self._add(T(f"t{len(self.tensors)}", tuple(shape), dtype, None, (step,), (zero_point,)))
        self.results.append(index)
        return index

    def like(self, x: int, shape: Sequence[int]) -> int:
        """Add a tensor with the type and quantization of another."""
        one = self.tensors[x]
        return self.tensor(shape, one.type, one.scale[0], one.zero_point[0])

    def copied(self, x: int, shape: Sequence[int]) -> int:
        """Add a tensor with the integers of another, which the kernel computes without regard to scales."""
        return self.rescaled(x, shape) if self.chance(0.15) else self.like(x, shape)

    def plain(self, shape: Sequence[int], dtype: str) -> int:
        """Add a result of a type without quantization, which no operator takes."""
        index = self._add(T(f"t{len(self.tensors)}", tuple(shape), dtype))
        self.others.append(index)
        return index

    def rescaled(self, x: int, shape: Sequence[int], around: float | None = None, dtype: str = "") -> int:
        """Add a tensor with a random quantization."""
        one = self.tensors[x]
        kind = dtype or one.type
        return self.tensor(shape, kind, scale(self.g, around or one.scale[0]), zero(self.g, kind))

    def integers(self, *values: int, shape: tuple[int, ...] | None = None) -> int:
        """Add a constant of INT32."""
        array = np.asarray(values, np.int32)
        return self._add(T(f"c{len(self.tensors)}", data=array if shape is None else array.reshape(shape)))

    def constant(self, like: T, shape: Sequence[int], step: float | None = None) -> int:
        """Add a random quantized constant of the type of a tensor."""
        limits = np.iinfo(like.type.lower())
        data = self.g.integers(limits.min, limits.max, tuple(shape), endpoint=True).astype(like.type.lower())
        quant = (like.scale[0], like.zero_point[0]) if step is None else (step, zero(self.g, like.type))
        return self._add(T(f"c{len(self.tensors)}", data=data, scale=(quant[0],), zero_point=(quant[1],)))

    def divisor(self, like: T, shape: Sequence[int]) -> int:
        """Add a random quantized constant none of whose elements is zero."""
        zero_point = int(self.g.integers(0, 255))
        data = self.g.integers(0, 255, tuple(shape), endpoint=True)
        data = np.where(data == zero_point, zero_point + 1, data).astype(like.type.lower())
        step = scale(self.g, 0.05)
        return self._add(T(f"c{len(self.tensors)}", data=data, scale=(step,), zero_point=(zero_point,)))

    def stored(self, tensor: T) -> int:
        """Add a given constant."""
        return self._add(T(**{**tensor.__dict__, "name": f"c{len(self.tensors)}"}))

    def operator(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], table: str = "", **options: Any
    ) -> None:
        """Add an operator."""
        version = _VERSIONS.get(name, 1)
        self.operators.append(O(name, list(inputs), list(outputs), table, options, version))
        if self.chance(0.15):
            self.extra.add(int(self.pick(list(outputs))))

    def outputs(self) -> list[int]:
        """Indices of the outputs: results that no operator uses, and some that are used."""
        used = {index for operator in self.operators for index in operator.inputs}
        computed = [index for operator in self.operators for index in operator.outputs]
        chosen = [index for index in computed if index not in used or index in self.extra]
        if chosen and self.chance(0.05):
            chosen.append(self.pick([*chosen, *self.inputs]))
        return chosen or list(self.inputs)

    def shape(self, x: int) -> tuple[int, ...]:
        """Extents of a tensor."""
        return tuple(self.tensors[x].shape)

    def is_shape(self, x: int, dtype: str, shape: Sequence[int]) -> bool:
        """Return True if a tensor has a type and a shape."""
        return self.tensors[x].type == dtype and self.shape(x) == tuple(shape)

    def is_like(self, x: int, one: int, shape: Sequence[int]) -> bool:
        """Return True if a tensor has a shape, and the type and quantization of another tensor."""
        other = self.tensors[one]
        return self.is_shape(x, other.type, shape) and _quantization(self.tensors[x]) == _quantization(other)

    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if a tensor of that shape is neither empty nor too large."""
        return 0 < math.prod(shape) <= MOST_ELEMENTS

    def _add(self, tensor: T) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1


def _quantization(tensor: T) -> tuple[tuple[float, ...], tuple[int, ...]]:
    return tuple(tensor.scale), tuple(tensor.zero_point)
