"""Differences of two models, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from tpuconvert.diff.change import CATEGORIES, Category, Change
from tpuconvert.diff.outputs import OutputComparison
from tpuconvert.schema.text.plain_values import Keyword, Plain

MEASURES = {
    "file_bytes": "file",
    "constant_bytes": "constants",
    "parameters": "parameters",
    "nodes": "nodes",
    "macs": "multiply-accumulates",
    "traffic_bytes": "global-memory traffic",
    "seconds": "least time on the chip",
}
"""Measure -> its title."""


@dataclass(frozen=True)
class Measure(Plain, hidden=("name",), added=("growth",)):
    """A size or cost of both models. A side is None if it is not known."""

    name: str
    unit: str
    before: float | None
    after: float | None

    @property
    def growth(self) -> float | None:
        """Growth as a share of the first value; None if it is not known."""
        if self.before is None or self.after is None:
            return None
        if self.before == 0:
            return 0.0 if self.after == 0 else float("inf")
        return self.after / self.before - 1.0

    @property
    def differs(self) -> bool:
        """Return True if both sides are known and differ."""
        return self.before is not None and self.after is not None and self.before != self.after


class NodeCounts(TypedDict):
    """Number of nodes of both models, and of nodes that both have."""

    before: int
    after: int
    matched: int


@dataclass(frozen=True)
class DifferenceRecord(
    Plain,
    hidden=("matched", "nodes", "models"),
    added=("counts", "is_equal"),
    keys={"node_counts": "nodes"},
):
    """Differences of two models.

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

    before: str
    after: str
    matched: int
    nodes: tuple[int, int]
    changes: tuple[Change, ...]
    measures: Mapping[Annotated[str, Keyword("enum", tuple(MEASURES))], Measure]
    outputs: OutputComparison
    models: tuple[Mapping[str, Any], Mapping[str, Any]] = field(default=({}, {}), repr=False, compare=False)

    @property
    def node_counts(self) -> NodeCounts:
        """Number of nodes of both models, and of nodes that both have."""
        return {"before": self.nodes[0], "after": self.nodes[1], "matched": self.matched}

    @property
    def is_equal(self) -> bool:
        """Return True if the models have no difference: no change, and equal outputs if they were compared."""
        return not self.changes and self.outputs.is_equal

    def counts(self) -> dict[Category, int]:
        """Return the number of changes per category, without consequences of other changes."""
        counts = Counter(change.category for change in self.changes if not change.follows)
        return {category: counts[category] for category in CATEGORIES if counts[category]}
