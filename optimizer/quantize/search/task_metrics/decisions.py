"""Tasks that decide by comparing elements of one output: text, classes, and masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tpuconvert.optimizer.quantize.search.task_metrics.rows import Columns
from tpuconvert.optimizer.quantize.search.task_metrics.score import Run, TaskScore
from tpuconvert.schema.arithmetic.text_decoding import collapse
from tpuconvert.schema.types import Array

SMALLEST_MARGIN = 0.1
"""Smallest distance of the two largest probabilities, or of the two largest logits as a share of their standard
deviation, of a class that the float network decides. Any rounding may exchange two classes that are closer."""


class Text:
    """Strings of a network with a blank class (CTC): repeats are merged and blanks removed.

    Args:
        columns: scores [samples, steps, classes].
        blank: number of the blank class.
        floats: float outputs by feed.
    """

    def __init__(self, columns: Columns, blank: int, floats: Sequence[Run]) -> None:
        self.outputs: tuple[str, ...] = (columns.output,)
        self._columns = columns
        self._blank = blank
        self._strings = [string for run in floats for string in self._read(run)]

    def _read(self, run: Run) -> list[tuple[int, ...]]:
        return [tuple(row[collapse(row, self._blank)].tolist()) for row in self._columns.read(run).argmax(axis=2)]

    @property
    def characters(self) -> int:
        """Number of characters of the float strings."""
        return sum(len(string) for string in self._strings)

    def compare(self, runs: Sequence[Run]) -> TaskScore:
        """Compare whole strings."""
        strings = [string for run in runs for string in self._read(run)]
        equal = np.array([a == b for a, b in zip(self._strings, strings, strict=True)], np.float64)
        text = f"strings: {int(equal.sum())} of {len(equal)} equal"
        return TaskScore(self.outputs, "strings", text, equal, np.ones(len(equal)), self.characters)


class Classes:
    """Class with the largest score, of a sample or of every position of it.

    Args:
        columns: scores [samples, positions, classes].
        floats: float outputs by feed.
        is_probability: whether the scores are probabilities.
    """

    def __init__(self, columns: Columns, floats: Sequence[Run], *, is_probability: bool) -> None:
        self.outputs: tuple[str, ...] = (columns.output,)
        self._columns = columns
        self._floats = []
        for scores in (columns.read(run) for run in floats):
            margin = SMALLEST_MARGIN * (1.0 if is_probability else float(scores.std()))
            highest = np.partition(scores, -2, axis=2)
            self._floats.append((scores.argmax(axis=2), highest[..., -1] - highest[..., -2] >= margin))

    def compare(self, runs: Sequence[Run]) -> TaskScore:
        """Compare the classes that are clear in float."""
        equal, clear = [], []
        for (classes, is_clear), run in zip(self._floats, runs, strict=True):
            same = (self._columns.read(run).argmax(axis=2) == classes) & is_clear
            equal += [int(row.sum()) for row in same]
            clear += [int(row.sum()) for row in is_clear]
        text = f"classes: {sum(equal)} of {sum(clear)} equal"
        totals = np.array(clear, np.float64)
        return TaskScore(self.outputs, "classes", text, np.array(equal, np.float64), totals, sum(clear))


class Mask:
    """Positions with a probability above a threshold.

    Args:
        columns: probabilities [samples, positions, 1].
        floats: float outputs by feed.
        threshold: the threshold.
    """

    def __init__(self, columns: Columns, floats: Sequence[Run], threshold: float) -> None:
        self.outputs: tuple[str, ...] = (columns.output,)
        self._columns = columns
        self._threshold = threshold
        self._floats = [mask for run in floats for mask in self._read(run)]

    def _read(self, run: Run) -> Iterator[Array]:
        yield from self._columns.read(run)[..., 0] > self._threshold

    def compare(self, runs: Sequence[Run]) -> TaskScore:
        """Compare by intersection over union."""
        masks = [mask for run in runs for mask in self._read(run)]
        pairs = list(zip(self._floats, masks, strict=True))
        common = np.array([(a & b).sum() for a, b in pairs], np.float64)
        union = np.array([(a | b).sum() for a, b in pairs], np.float64)
        overlap = common.sum() / union.sum() if union.any() else 1.0
        text = f"mask above {self._threshold:g}: {overlap:.1%} overlap"
        return TaskScore(self.outputs, "mask", text, common, union, int(sum(mask.sum() for mask in self._floats)))
