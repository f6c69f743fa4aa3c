"""Bit-exactness of a model with a quantized source: compare its integers with those that the source file defines.

Integers are compared as codes relative to their zero point, in steps of their scale. Two programs may hold one tensor
in different types, such as INT8 and UINT8 with a zero point that differs by 128: equal distances from the zero point
are equal codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpuconvert.model.notes import NAMED
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.text.plain_values import Plain
from tpuconvert.schema.types import Array, Chip, QuantParams
from tpuconvert.text.text_format import several, shorten
from tpuconvert.verify.difference import Difference

OWN_PROGRAM = "the source as it was read"
"""Name of the built-in oracle: the source graph without optimization, run by the NumPy reference."""


def defines_integers(graph: Graph, chip: Chip) -> bool:
    """Return True if the graph gives exactly the integers of its quantized source on every machine.

    The chip must be BM1686, which can rescale as the source formats do. Only inputs and outputs may be floats, because
    float sums depend on their order and may round to another integer.
    """
    inner = (value for node in graph.nodes for value in node.outputs if value.uses)
    return chip is Chip.BM1686 and all(value.dtype.is_integer for value in inner)


class Codes(NamedTuple):
    """Integers of a tensor with their quantization parameters."""

    array: Array
    quant: QuantParams


def steps_between(expected: Codes, actual: Codes) -> Array:
    """Element-wise distance of two tensors of equal shape, in units of the scale of ``expected``.

    For different scales, dequantized values are compared and the distance is rounded up, so that any difference counts.
    """
    if _scales(expected.quant) == _scales(actual.quant):
        steps: Array = np.abs(_from_zero(expected) - _from_zero(actual))
    else:
        steps = np.ceil(np.abs(_values(expected) - _values(actual)) / max(expected.quant.scale)).astype(np.int64)
    return steps


def _scales(quant: QuantParams) -> tuple[object, ...]:
    return (*quant.scale, quant.axis) if len(set(quant.scale)) > 1 else quant.scale[:1]


def _along(numbers: tuple[float, ...] | tuple[int, ...], quant: QuantParams, rank: int) -> Array:
    """Reshape per-channel parameters so that they broadcast against a tensor of this rank."""
    if quant.axis is None:
        return np.asarray(numbers[0])
    return np.asarray(numbers).reshape([len(numbers) if axis == quant.axis else 1 for axis in range(rank)])


def _from_zero(codes: Codes) -> Array:
    zero: Array = codes.array.astype(np.int64) - _along(codes.quant.zero_point, codes.quant, codes.array.ndim)
    return zero


def _values(codes: Codes) -> Array:
    value: Array = _from_zero(codes) * _along(codes.quant.scale, codes.quant, codes.array.ndim).astype(np.float64)
    return value


@dataclass(frozen=True)
class Exactness(Plain, added=("is_exact", "verdict")):
    """Number of integers that are equal to an oracle.

    Args:
        oracle: name of the program that computes the expected integers, inserted after "are equal to".
        tensors: number of integer tensors that both programs compute under the same name.
        integers: number of elements of these tensors over all samples.
        different: number of elements that differ.
        output_integers: number of elements of integer outputs.
        output_different: number of output elements that differ.
        largest_steps: largest difference, in units of the scale.
        first: first tensor that differs, in execution order; empty if all are equal.
        deviations: known deviations of the oracle: source nodes that deviate from the standard, and the verdict of
            another engine that computes other integers.
        runs: the runs that were compared, such as those from the initial state of a model; empty for all.

    """

    oracle: str
    tensors: int
    integers: int
    different: int
    output_integers: int
    output_different: int
    largest_steps: int
    first: str
    deviations: tuple[str, ...] = ()
    runs: str = ""

    @staticmethod
    def of(
        oracle: str, tensors: Iterable[Difference], outputs: Iterable[Difference], deviations: Iterable[str] = ()
    ) -> Exactness:
        """Sum up comparisons, without floats and without inputs, which are equal by construction."""
        inner = [item for item in tensors if item.integers and item.op != "input"]
        leaving = [item for item in outputs if item.integers]
        both = (*inner, *leaving)
        return Exactness(
            oracle,
            tensors=len(inner),
            integers=sum(item.integers for item in inner),
            different=sum(item.different for item in inner),
            output_integers=sum(item.integers for item in leaving),
            output_different=sum(item.different for item in leaving),
            largest_steps=max((item.steps for item in both), default=0),
            first=next((item.name for item in both if item.different), ""),
            deviations=tuple(deviations),
        )

    @property
    def is_equal(self) -> bool:
        """True if integers were compared and all of them are equal."""
        return self.integers + self.output_integers > 0 and self.different + self.output_different == 0

    @property
    def is_exact(self) -> bool:
        """True if all integers are equal and no node is known to deviate from the standard."""
        return self.is_equal and not self.deviations

    @property
    def verdict(self) -> str:
        """The result of the comparison in one line."""
        if not self.integers + self.output_integers:
            return f"no verdict on bits: no integer tensor has a counterpart in {self.oracle}"
        if self.tensors:
            count, different, where = self.integers, self.different, several(self.tensors, "tensor")
        else:
            count, different, where = self.output_integers, self.output_different, "outputs"
        if self.is_equal:
            lead = "equal" if self.deviations else "bit-exact"
            lead += f" {self.runs}" if self.runs else ""
            text = f"{lead}: {count:,} of {count:,} integers in {where} are equal to {self.oracle}"
        else:
            text = (
                f"not bit-exact: {different:,} of {count:,} integers in {where} differ from {self.oracle}, "
                f"largest difference {several(self.largest_steps, 'step')}, first at '{shorten(self.first)}'"
            )
        if self.tensors and self.output_integers:
            text += f"; outputs: {self.output_integers - self.output_different:,} of {self.output_integers:,} equal"
        if self.deviations:
            text += f"; known deviations: {_listed(self.deviations)}"
        return text


def _listed(deviations: tuple[str, ...]) -> str:
    more = len(deviations) - NAMED
    return "; ".join(deviations[:NAMED]) + (f" and {more} more" if more > 0 else "")
