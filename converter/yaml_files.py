"""YAML files that users write: options, manifests and precision rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpuconvert.schema.errors import UsageError


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        UsageError: the file cannot be read, or is not YAML.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not YAML: {error}") from error


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML text. ``where`` is its origin, for errors.

    Raises:
        UsageError: the text is not YAML.
    """
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{where}: is not YAML: {error}") from error
