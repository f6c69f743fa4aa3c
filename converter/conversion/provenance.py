"""Provenance of a model that was reproduced, as an in-toto statement with a SLSA provenance predicate (version 1).

The statement says that a second conversion of the listed sources gave the same bytes. It has no time and no path of
this machine, so that equal reproductions give equal statements.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from tpuconvert.installed import NAME
from tpuconvert.requirements import read_requirements
from tpuconvert.schema.system.content_digest import ALGORITHM
from tpuconvert.schema.system.file_replacement import replacing

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:tpuconvert:convert:v1"
BUILDER = "urn:tpuconvert:reproduce"


def make_statement(
    file: str, sha256: str, chip: str, recipe: Mapping[str, Any], sources: Mapping[str, tuple[str, str]], version: str
) -> bytes:
    """Return the statement as JSON text.

    Args:
        file: name of the model file.
        sha256: its digest in hexadecimal digits.
        chip: the chip of the model.
        recipe: the recipe that was followed.
        sources: role (``source``, ``weights``) -> name and SHA-256 of a file.
        version: version of tpuconvert that converted again.

    """
    dependencies: list[dict[str, Any]] = [
        {"name": name, "digest": {"sha256": digest}, "annotations": {"role": role}}
        for role, (name, digest) in sources.items()
    ]
    for role in ("source", "external", "calibration", "ranges"):
        entry = recipe.get(role)
        if isinstance(entry, Mapping) and role not in sources:
            digests = {name: entry[name] for name in (ALGORITHM,) if name in entry}
            notes = {"role": role, **{name: value for name, value in entry.items() if name not in digests}}
            dependencies.append({"name": role, "digest": digests, "annotations": notes})
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"chip": chip, "options": dict(recipe.get("options", {}))},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {"builder": {"id": BUILDER, "version": {NAME: version, **_versions()}}},
    }
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": file, "digest": {"sha256": sha256}}],
        "predicateType": PROVENANCE_TYPE,
        "predicate": predicate,
    }
    return json.dumps(statement, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the required packages."""
    required, _ = read_requirements()
    versions = {package.name: package.installed for package in required if package.installed is not None}
    return {"python": ".".join(map(str, sys.version_info[:3])), **dict(sorted(versions.items()))}


def write_statement(path: str | os.PathLike[str], statement: bytes) -> None:
    """Write a statement to a file.

    Raises:
        UsageError: the file cannot be written.

    """
    with replacing(path) as file:
        file.write(statement + b"\n")
