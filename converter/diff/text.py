"""The differences of two models as text: a verdict, the categories with their worst changes, sizes, outputs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from tpuconvert.diff.change import CATEGORIES, Change
from tpuconvert.diff.constants import ConstantDifference
from tpuconvert.diff.outputs import OutputComparison
from tpuconvert.diff.record import MEASURES
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.text.styled_text import concat, style
from tpuconvert.text.table import number, table
from tpuconvert.text.text_format import bytes_text, several, shorten

if TYPE_CHECKING:
    from tpuconvert.diff.record import DifferenceRecord, Measure

SHOWN = 5
"""Number of changes of a category in the short text."""

NAMED = 3
"""Number of names of changes that are alike."""


def difference_lines(record: DifferenceRecord, *, everything: bool = False) -> list[str]:
    """Return the differences as lines: the most severe changes of each category, or with ``everything`` all."""
    lines = [f"{shorten(record.before)} -> {shorten(record.after)}: {summary(record)}"]
    for category, changes in by_category(record).items():
        following = sum(change.follows for change in changes)
        lines.append(f"  {category}: {len(changes) - following}")
        if everything:
            lines += [f"    {change_text(change)}" for change in changes]
            continue
        shown = alike([change for change in changes if not change.follows])[:SHOWN]
        lines += [f"    {group_text(group)}" for group in shown]
        hidden = hidden_text(len(changes) - sum(map(len, shown)), following)
        if hidden:
            lines.append(f"    {hidden}")
    lines += [concat(["  ", line]) for line in measure_lines(record, everything=everything)]
    return [*lines, *(f"  {line}" for line in output_lines(record.outputs))]


def summary(record: DifferenceRecord) -> str:
    """Return the verdict: the number of changes per category, or that there are none."""
    if record.is_equal:
        sizes = record.measures["file_bytes"]
        note = "; only the bytes of the files differ" if sizes.differs else ""
        return f"no differences{note}"
    counts = record.counts()
    if not counts:
        return "other outputs" if not record.changes else several(len(record.changes), "change")
    nodes = f"{record.matched} of {record.nodes[0]} and {record.nodes[1]} nodes match"
    return f"{', '.join(f'{count} in {name}' for name, count in counts.items())}; {nodes}"


def by_category(record: DifferenceRecord) -> dict[str, list[Change]]:
    """Return the changes by category, in the order of the categories."""
    groups: dict[str, list[Change]] = {category: [] for category in CATEGORIES}
    for change in record.changes:
        groups[change.category].append(change)
    return {category: changes for category, changes in groups.items() if changes}


def alike(changes: Sequence[Change]) -> list[list[Change]]:
    """Group changes of nodes from the same operators to the same operators; the largest groups are first."""
    groups: dict[Hashable, list[Change]] = {}
    for position, change in enumerate(changes):
        is_kind = change.category == "precision" or (change.category == "nodes" and change.before and change.after)
        is_kind = is_kind and change.action in ("changed", "replaced")
        key = (change.action, change.what, change.before, change.after) if is_kind else position
        groups.setdefault(key, []).append(change)
    return sorted(groups.values(), key=lambda group: -len(group))


def hidden_text(hidden: int, following: int) -> str:
    """Return the line about the changes that are not shown."""
    if hidden <= 0:
        return ""
    if following >= hidden:
        return f"{several(hidden, 'change')} that {_follow(hidden)} from others: tpuconvert diff --all"
    consequences = f", {following} of them {_follow(following)} from others" if following else ""
    return f"and {hidden} more{consequences}: tpuconvert diff --all"


def _follow(count: int) -> str:
    return "follows" if count == 1 else "follow"


def group_text(group: Sequence[Change]) -> str:
    """Format changes that are alike as one line: their number, the change, and some names."""
    first = group[0]
    if len(group) == 1:
        return change_text(first)
    names = ", ".join(f"'{shorten(change.name)}'" for change in group[:NAMED])
    more = " ..." if len(group) > NAMED else ""
    return f"{len(group)} x {shorten(first.before, 100)} -> {shorten(first.after, 100)}: {names}{more}"


def change_text(change: Change) -> str:
    """Format a change as one line."""
    name = f"'{shorten(change.name)}'"
    what = f" {one_line(change.what)}" if change.what else ""
    before, after = shorten(change.before, 100), shorten(change.after, 100)
    if change.measured:
        return f"{name}{what}: {measured_text(change.measured)}"
    if change.action in ("added", "removed"):
        detail = after if change.action == "added" else before
        return f"{change.action} {name}{what}: {detail}" if detail else f"{change.action} {name}{what}"
    text = f"{name}{what}"
    if change.action in ("moved", "rewired", "renamed", "reordered"):
        text += f" {change.action}"
    return f"{text}: {before} -> {after}"


def measured_text(difference: ConstantDifference) -> str:
    """Format how the elements of a constant changed."""
    if difference.factor is not None:
        return f"multiplied by {difference.factor:.6g}"
    largest = f"at most {number(difference.max_difference)}, {number(difference.mean_difference)} on average"
    distances = (
        f"{difference.different:,} of {difference.elements:,} elements differ, by {largest} "
        f"(largest magnitude {number(difference.magnitude)})"
    )
    return distances if difference.factor_axis is None else f"rescaled along axis {difference.factor_axis}; {distances}"


def measure_lines(record: DifferenceRecord, *, everything: bool = False) -> list[str]:
    """Return one line per size or cost that differs; with ``everything`` also the equal ones."""
    rows = [
        (f"{MEASURES[name]}:", *_sides(measure), growth_text(measure))
        for name, measure in record.measures.items()
        if measure.differs or (everything and (measure.before is not None or measure.after is not None))
    ]
    return table(rows, has_heading=False) if rows else []


def _sides(measure: Measure) -> tuple[str, str, str]:
    return value_text(measure, measure.before), "->", value_text(measure, measure.after)


def value_text(measure: Measure, value: float | None) -> str:
    """Format one side of a measure."""
    if value is None:
        return "-"
    if measure.unit == "bytes":
        return bytes_text(int(value))
    return f"{value * 1e3:.4g} ms" if measure.unit == "s" else f"{int(value):,}"


def growth_text(measure: Measure) -> str:
    """Format the growth of a measure as a signed percentage."""
    growth = measure.growth
    if growth is None or not measure.differs:
        return ""
    text = f"{growth:+.1%}" if math.isfinite(growth) else "from nothing"
    return style(text, "warning" if growth > 0 else "good")  # less of each measure is better


def output_lines(outputs: OutputComparison) -> Iterator[str]:
    """Return the comparison of the outputs: one line, and one more per output that differs."""
    if outputs.problem:
        if outputs.problem != "not requested":
            yield f"outputs not compared: {outputs.problem}"
        return
    samples = f"{several(outputs.samples, 'sample')} {outputs.origin}".rstrip()
    if outputs.is_equal:
        yield f"outputs on {samples}: equal"
        return
    yield f"outputs on {samples}:"
    for output in outputs.outputs:
        if output.is_equal:
            yield f"  '{shorten(output.name)}': equal"
            continue
        classes = f", other class in {output.changed_classes:.1%}" if output.changed_classes is not None else ""
        yield (
            f"  '{shorten(output.name)}': cosine {output.cosine:.6f}, SQNR {output.sqnr:.1f} dB, "
            f"largest difference {number(output.max_absolute)} ({number(output.relative)} of the range){classes}"
        )
    if outputs.advice:
        yield f"  {outputs.advice}"
