"""Models that were made already, by the content of everything that decides what they are.

The key of a model is the SHA-256 of its source with all files that belong to it, its samples, its options and the
program itself. Names, places and dates of files do not matter, limits neither: a limit that was changed is looked at
anew, and nothing is made again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tpuconvert.ci.manifest import Job

PACKAGES = ("tpuconvert", "tpuconvert.schema", "tpuconvert.runtime", "tpuconvert.frontends", "tpuconvert.optimizer")
KEYED_FILES = ("source", "weights", "calibration", "data", "evaluation", "baseline")

_FORM = 1
"""Of what is kept; another number makes everything anew."""


class Cache:
    """A folder of finished models and what was measured of them. Several programs may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def model(self, key: str) -> Path:
        """Where the model of a key lies, or is to lie."""
        return self.folder / key[:2] / f"{key}.tpum"

    def measures(self, key: str) -> dict[str, Any] | None:
        """What was measured of a model; None where the model is not there."""
        path = self.model(key).with_suffix(".json")
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there, or half-written by a program that was killed: it is made again
            return None
        return found if self.model(key).is_file() else None

    def keep(self, key: str, measures: dict[str, Any]) -> None:
        """Keep what was measured; the model was written before."""
        path = self.model(key).with_suffix(".json")
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(measures, file, indent=1, sort_keys=True)
        os.replace(file.name, path)


def key_of(job: Job) -> str:
    """The key of a job, in hexadecimal digits.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256(f"{_FORM} {program()} {job.samples}\n".encode())
    options = {name: value for name, value in job.options.items() if name != "allow_root"}  # a place, not a content
    digest.update(json.dumps(options, sort_keys=True, default=str).encode())
    for key in KEYED_FILES:
        if key in job.files:
            digest.update(f"\n{key} ".encode())
            for path in (job.files[key], *(_external(job.files[key]) if key == "source" else ())):
                digest.update(content(path))
    for plugin in job.plugins:
        digest.update(content(plugin))
    return digest.hexdigest()


def content(path: Path) -> bytes:
    """Digest of a file, or of the names and contents of all files under a folder."""
    if path.is_dir():
        digest = hashlib.sha256()
        for member in sorted(member for member in path.rglob("*") if member.is_file()):
            digest.update(member.relative_to(path).as_posix().encode() + b"\0" + content(member))
        return digest.digest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _external(source: Path) -> Iterable[Path]:
    """Files beside an ONNX model that hold its weights: those whose names it contains."""
    if source.suffix != ".onnx" or b"location" not in source.read_bytes():
        return
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(source), load_external_data=False)
    except DecodeError:  # what is wrong with it, the conversion will say
        return
    names = {
        entry.value for tensor in _tensors(model.graph) for entry in tensor.external_data if entry.key == "location"
    }
    for name in sorted(names):
        place = source.parent / name
        if place.is_file():
            yield place


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _tensors(inner)


@cache
def program() -> str:
    """Digest of the program that makes the models: of its Python files, its tables and its compiled engine."""
    digest = hashlib.sha256()
    seen: set[Path] = set()
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for place in spec.submodule_search_locations or () if spec is not None else ():
            members = (member for member in Path(place).rglob("*") if member.suffix in (".py", ".json", ".so", ".pyd"))
            for member in sorted(members):
                if member not in seen and "build" not in member.parts:
                    seen.add(member)
                    digest.update(member.name.encode() + content(member))
    return digest.hexdigest()
