"""The result of a comparison of two models."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.diff.html import difference_sections, to_html
from tpuconvert.diff.limits import check_difference, parse_categories
from tpuconvert.diff.markdown import to_markdown
from tpuconvert.diff.record import DifferenceRecord
from tpuconvert.diff.text import difference_lines
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.text.styled_text import join_lines
from tpuconvert.verify.verification import Thresholds


@dataclass(frozen=True, repr=False)
class ModelDifference(DifferenceRecord):
    """Differences of two models. ``str()`` returns the short text, ``text(everything=True)`` all changes.

    Args:
        before: name of the first model.
        after: name of the second model.
        matched: number of nodes that both models have.
        nodes: number of nodes of both models.
        changes: the differences, the most severe of each category first.
        measures: sizes and cost by name: ``file_bytes``, ``constant_bytes``, ``parameters``, ``nodes``, ``macs``,
            ``traffic_bytes`` and ``seconds``.
        outputs: comparison of the outputs.
        models: descriptions of both models, for reports with their nodes.

    """

    def text(self, *, everything: bool = False) -> str:
        """Return the differences as text: the most severe ones, or all of them."""
        return join_lines(difference_lines(self, everything=everything))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {category}" for category, count in self.counts().items())
        return f"ModelDifference({self.before!r}, {self.after!r}: {counts or 'no differences'})"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks."""
        return "".join(difference_sections(self))

    def check(
        self,
        *,
        fail_on: Iterable[str] = (),
        max_difference: float | None = None,
        min_cosine: float | None = None,
        min_sqnr: float | None = None,
        max_size_growth: float | None = None,
        max_constants_growth: float | None = None,
        max_cost_growth: float | None = None,
    ) -> None:
        """Compare the differences with limits.

        Args:
            fail_on: categories that must not have changes, ``outputs`` for other outputs, or ``any``.
            max_difference: largest difference of an output, as a share of its range.
            min_cosine: smallest cosine similarity of an output.
            min_sqnr: smallest signal-to-quantization-noise ratio of an output in decibel.
            max_size_growth: largest growth of the file, as a share.
            max_constants_growth: largest growth of the constants, as a share.
            max_cost_growth: largest growth of the least time on the chip, as a share.

        Raises:
            ThresholdError: A limit is exceeded.
            UsageError: A category is unknown, or a limit is for something that was not measured.

        """
        growth = {
            "max_size_growth": max_size_growth,
            "max_constants_growth": max_constants_growth,
            "max_cost_growth": max_cost_growth,
        }
        check_difference(
            self,
            fail_on=parse_categories(",".join(fail_on)) if fail_on else (),
            thresholds=Thresholds(max_difference, min_cosine, min_sqnr),
            growth={key: limit for key, limit in growth.items() if limit is not None},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page with both models and graphs (``.html``), or Markdown for a pull request (``.md``).

        Raises:
            UsageError: The file has another suffix, or cannot be written.

        """
        suffix = Path(path).suffix.lower()
        if suffix not in (".html", ".htm", ".md"):
            hint = "one of .html, .htm, .md"
            raise UsageError(f"{os.fspath(path)}: the suffix selects the format of the differences", hint=hint)
        text = to_markdown(self) if suffix == ".md" else to_html(self)
        with replacing(path) as file:
            file.write(text.encode("utf-8"))
