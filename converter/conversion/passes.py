"""``tpuconvert.passes``: the passes and rules of the optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.optimizer.pipeline import PassRow, describe_passes
from tpuconvert.plugins import load_plugins
from tpuconvert.text.result import Result
from tpuconvert.text.table import table


@dataclass(frozen=True, repr=False)
class PassList(Result, keys={"rows": "passes"}):
    """Passes and rules of the optimizer in execution order.

    Args:
        rows: order, name of the pass, name of the rule (empty for a pass without rules), and what it does.

    """

    rows: tuple[PassRow, ...]

    @property
    def names(self) -> list[str]:
        """Names of rules, and of passes without rules: what ``disable_rules`` of ``convert`` accepts."""
        return [row["rule"] or row["name"] for row in self.rows]

    @property
    def summary(self) -> str:
        """Number of rules."""
        return f"{sum(bool(row['rule']) for row in self.rows)} rules"

    def lines(self) -> list[str]:
        """Return the table."""
        return table(self._cells())

    def _cells(self) -> list[tuple[str, ...]]:
        cells = ((str(row["order"]), row["name"], row["rule"] or "-", row["about"]) for row in self.rows)
        return [("#", "pass", "rule", "what it does"), *cells]

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        return [self.summary], self._cells()

    def __repr__(self) -> str:
        return f"<PassList: {self.summary}>"


def passes(*, plugins: Iterable[str | Path] = ()) -> PassList:
    """List the optimizer's passes and rules in execution order.

    Args:
        plugins: Python files with rules.

    Example:
        >>> "fold_scale_into_next_linear" in tc.passes().names
        True

    """
    load_plugins(plugins)
    return PassList(tuple(describe_passes()))
