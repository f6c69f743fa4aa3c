"""Limits for the differences of two models, for ``--fail-on`` and the numeric options of ``tpuconvert diff``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuconvert.diff.change import CATEGORIES
from tpuconvert.diff.record import MEASURES
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.text.text_format import against_limit, several
from tpuconvert.verify.verification import Thresholds, limit_failures

if TYPE_CHECKING:
    from tpuconvert.diff.record import DifferenceRecord

OUTPUTS, ANY = "outputs", "any"
"""Further words for ``--fail-on``: outputs that differ, and any difference."""


@dataclass(frozen=True)
class GrowthLimit:
    """A limit for the growth of a size or cost.

    Args:
        key: name of the argument of ``check``; the option is ``--`` with dashes.
        measure: name of the measure in ``ModelDifference.measures``.
        help: description for ``--help``.

    """

    key: str
    measure: str
    help: str


GROWTH_LIMITS = (
    GrowthLimit("max_size_growth", "file_bytes", "Largest growth of the file, such as 5%."),
    GrowthLimit("max_constants_growth", "constant_bytes", "Largest growth of the constants, such as 5%."),
    GrowthLimit("max_cost_growth", "seconds", "Largest growth of the least time on the chip, such as 5%."),
)


def parse_growth(text: str) -> float:
    """Read a share such as ``5%`` or ``0.05``.

    Raises:
        UsageError: the text is not a number from 0 on.

    """
    digits = text.strip()
    try:
        value = float(digits.removesuffix("%")) / (100.0 if digits.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if value >= 1.0 and not digits.endswith("%"):
        raise UsageError(
            f"'{text}' is a growth of {value:.0%}", hint=f"write {digits}% for a percentage, or {value:.0%}"
        )
    if not value >= 0.0:
        raise UsageError(f"'{text}' is not a growth", hint="a percentage such as 5%, or a share such as 0.05")
    return value


def parse_categories(text: str) -> tuple[str, ...]:
    """Read names of categories, separated by commas.

    Raises:
        UsageError: there is no such category.

    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    categories = (*CATEGORIES, OUTPUTS, ANY)
    for name in names:
        if name not in categories:
            hint = did_you_mean(name, categories) or f"one or more of {', '.join(categories)}"
            raise UsageError(f"'{name}' is not a category of differences", hint=hint)
    return names


def check_difference(
    record: DifferenceRecord,
    *,
    fail_on: tuple[str, ...] = (),
    thresholds: Thresholds | None = None,
    growth: dict[str, float] | None = None,
) -> None:
    """Compare differences with limits.

    Args:
        record: the differences.
        fail_on: categories that must not have changes; ``outputs`` and ``any`` are allowed, too.
        thresholds: limits for the outputs.
        growth: limits by the keys of ``GROWTH_LIMITS``, as shares.

    Raises:
        ThresholdError: a limit is exceeded.
        UsageError: a limit is for something that was not measured.

    """
    failures = [*_categories(record, fail_on)]
    if thresholds is not None and thresholds != Thresholds():
        _require_outputs(record)
        failures += [text for output in record.outputs.outputs for text in limit_failures("output", output, thresholds)]
    for limit in GROWTH_LIMITS:
        max_growth = (growth or {}).get(limit.key)
        if max_growth is None:
            continue
        measured = record.measures[limit.measure].growth
        if measured is None:
            what = f"a limit for the growth of {MEASURES[limit.measure]}, which is not known for both models"
            raise UsageError(what, hint="compare two .tpum files, or leave the limit out")
        if not measured <= max_growth:
            text = against_limit(100.0 * measured, 100.0 * max_growth, is_least=False, unit="%")
            failures.append(f"growth of {MEASURES[limit.measure]}: {text}")
    if failures:
        raise ThresholdError("; ".join(failures), file=record.after, hint=f"compared with {record.before}")


def _categories(record: DifferenceRecord, fail_on: tuple[str, ...]) -> list[str]:
    """Return one message per category with changes."""
    texts = []
    counts = record.counts()
    for category, count in counts.items():
        if category in fail_on or ANY in fail_on:
            first = next(change for change in record.changes if change.category == category)
            texts.append(f"{several(count, 'change')} in {category}, the first at '{first.name}'")
    if OUTPUTS in fail_on:
        _require_outputs(record)
    if (OUTPUTS in fail_on or ANY in fail_on) and not record.outputs.is_equal:
        names = ", ".join(f"'{output.name}'" for output in record.outputs.outputs if not output.is_equal)
        texts.append(f"outputs differ: {names}")
    if ANY in fail_on and not texts and not record.is_equal:
        texts.append(several(len(record.changes), "change"))
    return texts


def _require_outputs(record: DifferenceRecord) -> None:
    """Refuse a limit for outputs that were not compared."""
    if record.outputs.problem:
        what = f"a limit for the outputs, which were not compared: {record.outputs.problem}"
        raise UsageError(what, file=record.after, hint="give samples that fit both models, or leave the limit out")
