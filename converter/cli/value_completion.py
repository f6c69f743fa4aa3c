"""Completion of the values of options that are declared in ``options.py`` and are not plain choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from tpuconvert.conversion.options.quantization import ALGORITHMS
from tpuconvert.optimizer.pipeline import known_names
from tpuconvert.optimizer.precision_rules import DTYPES, METHODS, SYMMETRIES, WEIGHT_SCALES
from tpuconvert.schema.definition.chip_names import KNOWN
from tpuconvert.schema.definition.op import all_ops

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_METHODS = (*METHODS, "percentile:")
_SETTINGS = (*DTYPES, *WEIGHT_SCALES, *SYMMETRIES, *_METHODS, "threshold:")
_OPERATOR = "op:"


def complete_from(names: Callable[[], Iterable[str]]) -> Completer:
    """Return a completer of the names that the function returns; it is called for completions only."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items(names(), incomplete)

    return complete


def complete_selector(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ``op:NAME``."""
    return _items(_selectors(incomplete), incomplete)


def complete_rule(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the selector of a precision rule, or its last setting."""
    selector, separator, settings = incomplete.rpartition("=")
    if not separator:
        return _items([f"{name}=" if name != _OPERATOR else name for name in _selectors(incomplete)], incomplete)
    before, comma, last = settings.rpartition(",")
    settings_before = {setting.partition(":")[0] for setting in before.split(",")}
    lead = f"{selector}={before}{comma}"
    return _items([lead + name for name in _SETTINGS if name.partition(":")[0] not in settings_before], lead + last)


def _selectors(incomplete: str) -> list[str]:
    # The names of all operators would hide that the selector may be the name of a node.
    return [f"{_OPERATOR}{name}" for name in all_ops()] if incomplete.startswith(_OPERATOR) else [_OPERATOR]


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


complete_operator = complete_from(all_ops)

COMPLETERS: dict[str, Completer] = {
    "chip": complete_from(lambda: KNOWN),
    "calibration_method": complete_from(lambda: _METHODS),
    "precision": complete_rule,
    "keep_float": complete_selector,
    "without": complete_from(lambda: ALGORITHMS),
    "disable_rules": complete_from(known_names),
}
"""Name of a declared option -> the completer of its values."""
