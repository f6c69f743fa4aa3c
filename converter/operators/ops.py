"""``tpuconvert.ops`` and ``tpuconvert.describe_op``: the supported operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.operators.description import OperatorDescription, describe
from tpuconvert.operators.tables import (
    Row,
    chips_named,
    operator_named,
    refused_operators,
    source_operators,
    tpu_operators,
)
from tpuconvert.operators.text import description_lines
from tpuconvert.plugins import load_plugins
from tpuconvert.schema.errors import UsageError
from tpuconvert.text.result import Result
from tpuconvert.text.table import table

SOURCE_FORMATS = ("onnx", "tflite", "caffe")


@dataclass(frozen=True, repr=False)
class OperatorList(Result, hidden=("refused", "source_format"), keys={"rows": "operators"}):
    """Operators, one row each.

    Args:
        rows: of TPU operators the name, kind, and data types per chip; of operators of a source format the name,
            domain, versions, kind of conversion and limits.
        refused: number of rows of operators that are refused.
        source_format: ``onnx``, ``tflite`` or ``caffe``; None for TPU operators.

    """

    rows: tuple[Row, ...]
    refused: int = 0
    source_format: str | None = None

    @property
    def names(self) -> list[str]:
        """Names of the operators."""
        return [row["operator"] for row in self.rows]

    @property
    def summary(self) -> str:
        """Number of operators, and what marks in the table mean."""
        legend = "; * marked unfinished by the vendor: legal, with a warning"
        if self.source_format is not None:
            legend = f", {self.refused} of them refused" if self.refused else ""
        return f"{len(self.rows)} operators{legend}"

    def lines(self) -> list[str]:
        """Return the table."""
        return table(self._cells())

    def _cells(self) -> list[tuple[str, ...]]:
        heading = tuple(self.rows[0]) if self.rows else ("operator",)
        cells = (
            tuple((", ".join(cell) if isinstance(cell, list) else cell) or "-" for cell in row.values())
            for row in self.rows
        )
        return [heading, *cells]

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        return [self.summary], self._cells()

    def __repr__(self) -> str:
        return f"<OperatorList: {self.summary}>"


@dataclass(frozen=True, repr=False)
class OperatorExplanation(Result, keys={"description": "*"}):
    """Explanation of a TPU operator: formula, operands, parameters, data types per chip, locality, and an example."""

    description: OperatorDescription

    def lines(self) -> list[str]:
        """Return the explanation as sections."""
        return description_lines(self.description)


def ops(*, chip: str | None = None, format: str | None = None, plugins: Iterable[str | Path] = ()) -> OperatorList:
    """List the TPU operators with the data types of each chip, or the operators of a source format.

    Args:
        chip: List only the operators of this chip.
        format: ``onnx``, ``tflite`` or ``caffe``: list the operators of this source format instead.
        plugins: Python files with custom operators and converters.

    Raises:
        UsageError: An unknown chip or format, or both are given.

    Example:
        >>> "conv" in tc.ops(chip="bm1684").names
        True
        >>> "Convolution" in tc.ops(format="caffe").names
        True

    """
    if chip is not None and format is not None:
        raise UsageError("chip and format exclude each other", hint="give one of them: --chip or --format")
    load_plugins(plugins)
    if format is None:
        return OperatorList(tuple(tpu_operators(chip)))
    if format not in SOURCE_FORMATS:
        raise UsageError(f"unknown source format '{format}'", hint=f"one of {', '.join(SOURCE_FORMATS)}")
    refused = refused_operators(format)
    return OperatorList((*source_operators(format), *refused), len(refused), format)


def describe_op(name: str, *, chip: str | None = None, plugins: Iterable[str | Path] = ()) -> OperatorExplanation:
    """Explain one TPU operator: its formula, parameters, data types per chip, locality, and an example.

    Args:
        name: Name of the operator.
        chip: Show the data types of this chip only.
        plugins: Python files with custom operators.

    Raises:
        UsageError: There is no such operator or chip.

    Example:
        >>> tc.describe_op("clamp").lines()[0]
        'clamp(tensor_i; min, max) -> tensor_o'

    """
    load_plugins(plugins)
    return OperatorExplanation(describe(operator_named(name), chips_named(chip)))
