"""Precision rules as users give them: texts, mappings, and YAML files with either."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.yaml_files import read_yaml

Rules = str | Mapping[str, Any] | Sequence[str]

_HINT = "{conv1: float32, 'op:conv': [per-tensor, minmax]}, or a list of SELECTOR=SETTINGS"


def expand_rules(rules: Rules | None, folder: str | os.PathLike[str] = "") -> tuple[str, ...]:
    """Return precision rules as texts ``SELECTOR=SETTINGS``, with the content of rule files in their place.

    Args:
        rules: texts, or a mapping of selectors to settings. A text ``@FILE`` names a YAML file with rules.
        folder: base folder for relative names of files.

    Raises:
        UsageError: a file cannot be read, or the rules have another form.

    """
    texts: list[str] = []
    for rule in _texts(rules, "precision"):
        if rule.startswith("@"):
            path = Path(folder) / rule[1:]
            note_input(path)
            texts += _texts(read_yaml(path), str(path))
        else:
            texts.append(rule)
    return tuple(texts)


def _texts(rules: Any, where: str) -> list[str]:
    if isinstance(rules, Mapping):
        return [f"{selector}={_settings(settings)}" for selector, settings in rules.items()]
    texts = [rules] if isinstance(rules, str) else rules
    if texts is None or (isinstance(texts, list | tuple) and all(isinstance(rule, str) for rule in texts)):
        return list(texts or ())
    raise UsageError(f"{where}: expected precision rules, found {type(rules).__name__}", hint=_HINT)


def _settings(settings: Any) -> str:
    if isinstance(settings, Mapping):
        settings = [f"{name}:{number}" for name, number in settings.items()]
    return ",".join(map(str, settings)) if isinstance(settings, list | tuple) else str(settings)
