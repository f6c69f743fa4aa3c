"""Provenance of a model that was reproduced, as an in-toto statement with a SLSA provenance predicate (version 1).

The statement says that a second conversion of the listed sources gave the same bytes. It has no time and no path of
this machine, so that equal reproductions give equal statements.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from tpuconvert.diagnosis.packages import read_requirements
from tpuconvert.installed import NAME
from tpuconvert.schema.content_digest import ALGORITHM
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.signing import keys
from tpuconvert.signing.bundle import Bundle, signed_bytes
from tpuconvert.signing.statement import PROVENANCE_TYPE, to_statement

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
    return to_statement(file, sha256, PROVENANCE_TYPE, predicate)


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the required packages."""
    required, _ = read_requirements(metadata.requires(NAME) or [])
    found = {package.name: package.installed for package in required if package.installed is not None}
    return {"python": ".".join(map(str, sys.version_info[:3])), **dict(sorted(found.items()))}


def write_statement(
    path: str | os.PathLike[str], statement: bytes, key: keys.Key | None, password: str | bytes | None
) -> None:
    """Write a statement: as it is, or signed in a bundle.

    Raises:
        UsageError: the file cannot be written, or the key is not usable.
        MissingExtraError: a key is given, and ``cryptography`` is not installed.

    """
    content = statement + b"\n"
    if key is not None:
        private = keys.read_private_key(key, password)
        signature = keys.sign_bytes(private, signed_bytes(statement))
        content = Bundle(statement, signature, keys.key_id(private.public_key())).to_json().encode()
    with replacing(path) as file:
        file.write(content)
