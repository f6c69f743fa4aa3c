"""Cache of converted models, keyed by the content of everything that determines the result.

The key of a model is the SHA-256 of its source with all files that belong to it, its samples, its options, the program
itself and installed plugins. Names, folders and dates of files are not part of the key. Limits are not part of it
either: a changed limit is compared with the stored measurements, without a conversion.

An entry is a model file and a JSON file with the measurements, the SHA-256 of both, and the key. It is used only if the
digests and the key match and the recipe in the model file equals the recipe of the job. Otherwise the source is
converted again. This finds damage and mistakes, but not a forgery: every user with write access to the folder decides
what is delivered.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tpuconvert.ci.manifest import Job
from tpuconvert.ci.measures import Measurement
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.recipe import write_options
from tpuconvert.conversion.reproduction import file_sha256
from tpuconvert.conversion.source import Source
from tpuconvert.frontends.onnx.file.external_files import external_file
from tpuconvert.installed import version
from tpuconvert.model.model import load
from tpuconvert.plugins import installed_modules
from tpuconvert.samples.image_files import IMAGE_SUFFIXES
from tpuconvert.schema.definition.chip_names import device_of
from tpuconvert.schema.errors import CorruptInputError, TpuConvertError, UsageError
from tpuconvert.schema.system.bounded_files import open_regular
from tpuconvert.schema.system.content_digest import ALGORITHM
from tpuconvert.schema.system.file_digest import file_digest
from tpuconvert.schema.system.file_replacement import replacing_link
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.system.temporary_files import temporary_folder
from tpuconvert.schema.text.json_text import parse_json

PACKAGES = ("tpuconvert", "tpuconvert.schema", "tpuconvert.runtime", "tpuconvert.frontends", "tpuconvert.optimizer")
KEYED_FILES = ("source", "weights", "calibration", "data", "evaluation", "baseline")

_FORM = 4
"""Version of the entry format. Entries of another version are not found, because it is part of the key."""

_MOST_BYTES = 1 << 26
"""Largest size of the JSON file of an entry, in bytes."""

_LARGEST = 1 << 63
"""Measurements that are integers are smaller than this, so that they can be converted to floats."""

_TEXTS = ("chip", "quantize", "exactness", "first_difference", "device", "first_device_difference")
"""Measurements that are texts or None; the others are numbers."""

_NEEDED = ("size", "transposes", "nodes", "integer_nodes", "cosine")
"""Measurements that every entry must contain, as numbers."""


@dataclass(frozen=True)
class Entry:
    """A cached model with its measurements.

    Args:
        model: the model file.
        sha256: digest of the model file, in hexadecimal digits.
        measurement: measurements, and descriptions for the report.
    """

    model: Path
    sha256: str
    measurement: Measurement

    def open(self) -> Any:
        """Open the model file for reading.

        Raises:
            OSError: it is a link, not a regular file, or cannot be read.
        """
        return _open_file(self.model)


class DamagedEntry(Exception):
    """A cache entry is damaged or belongs to another key; the message has the reason."""


class Cache:
    """A folder of converted models and their measurements. Several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def model(self, key: str) -> Path:
        """Path of the model file for a key."""
        return self.folder / key[:2] / f"{key}.tpum"

    @contextlib.contextmanager
    def new_models(self) -> Iterator[Path]:
        """Create a folder for new models; :meth:`keep` turns a file in it into an entry.

        It is removed at the end, or by the next run if this one is killed.

        Raises:
            OSError: the cache cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with temporary_folder(self.folder / "new") as folder:
            yield Path(folder)

    def find(self, key: str, job: Job) -> Entry | None:
        """Return the entry of a key, or None.

        Raises:
            DamagedEntry: the key has an entry that cannot be used.
        """
        path = self.model(key).with_suffix(".json")
        if os.path.islink(path.parent):
            raise DamagedEntry("its folder is a link")
        if not os.path.lexists(path) and not os.path.lexists(self.model(key)):
            return None
        try:
            with _open_file(path) as file:
                content = parse_json(file.read(_MOST_BYTES).decode("utf-8"))
            written, digest = content["entry"], content["sha256"]
            key_of_entry, sha256 = written["key"], written["model"]
            measurement = Measurement(written["measures"], written["sections"])
            are_valid = _are_valid(measurement)
        except FileNotFoundError:  # another process is still writing the entry, or was killed
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedEntry(f"its description cannot be read ({type(error).__name__})") from error
        if digest != _digest(written) or key_of_entry != key or not are_valid:
            raise DamagedEntry("its description is damaged, or belongs to another model")
        entry = Entry(self.model(key), sha256, measurement)
        _check_model(entry, job)
        return entry

    def keep(self, key: str, converted: Path, measurement: Measurement) -> Entry:
        """Add an entry: move the model file into the cache and write its measurements."""
        model = self.model(key)
        description = model.with_suffix(".json")
        sha256 = content(converted).hex()
        if os.path.islink(model.parent) or model.parent.is_file():  # what a link names may be outside of the cache
            model.parent.unlink()
        model.parent.mkdir(parents=True, exist_ok=True)
        for path in (model, description):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        os.replace(converted, model)  # replaces a symbolic link; opening the path for writing would follow it
        entry = {"key": key, "model": sha256, "measures": measurement.measures, "sections": measurement.sections}
        written = json.loads(json.dumps(entry))  # JSON turns integer keys into text
        text = json.dumps({"entry": written, "sha256": _digest(written)}, indent=1)
        with replacing_link(description) as file:
            file.write(text.encode())
        return Entry(model, sha256, Measurement(written["measures"], written["sections"]))


def _are_valid(measurement: Measurement) -> bool:
    """Return True if measures and sections have the types of an entry. Anyone can compute the digest of another one."""
    numbers = {name: value for name, value in measurement.measures.items() if name not in _TEXTS}
    return (
        set(_NEEDED) <= set(numbers)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers.values())
        and all(abs(value) < _LARGEST for value in numbers.values() if isinstance(value, int))
        and all(isinstance(measurement.measures.get(name), str | None) for name in _TEXTS)
        and all(isinstance(section, dict) for section in measurement.sections.values())
    )


def _digest(written: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


def _open_file(path: Path) -> Any:
    """Open a cache file for reading. Refuse links, because their target may be outside the cache.

    Raises:
        OSError: the path is not a regular file, or cannot be read.
    """
    try:
        return open_regular(path, getattr(os, "O_NOFOLLOW", 0))
    except UsageError as error:
        raise OSError(str(error)) from error


def _check_model(entry: Entry, job: Job) -> None:
    """Compare a cached model file with its digest, and its recipe with the job.

    Raises:
        DamagedEntry: the digest or the recipe differs.
    """
    try:
        with _open_file(entry.model) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DamagedEntry(f"its model is a link, no regular file, or cannot be read ({error.strerror})") from error
    if digest != entry.sha256:
        raise DamagedEntry("the SHA-256 of its model has changed since it was written")
    try:
        model = load(entry.model)
    except TpuConvertError as error:
        raise DamagedEntry(f"its model cannot be loaded ({error.message})") from error
    recipe = model.metadata.get("recipe")
    if not isinstance(recipe, Mapping) or recipe_of(job) != {name: recipe.get(name) for name in recipe_of(job)}:
        raise DamagedEntry("its model was converted from another source, or with other options")
    options = Options.of(**job.options)
    if (model.content.tool_version, model.chip) != (version(), options.chip):
        raise DamagedEntry("its model was made for another chip, or by another version")


def recipe_of(job: Job) -> dict[str, Any]:
    """Return the parts of the recipe of a job's model that are known before the conversion."""
    source = job.files["source"]
    recipe: dict[str, Any] = {
        "source": {"format": Source(source).format, ALGORITHM: file_digest(source)},
        "options": write_options(Options.of(**job.options)),
    }
    if "weights" in job.files:
        recipe["weights"] = {ALGORITHM: file_digest(job.files["weights"])}
    return recipe


def key_of(job: Job) -> str:
    """Compute the key of a job, in hexadecimal digits. Register the files that are read as inputs.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file is a pipe or a device.
        CorruptInputError: the source names external data that may not be read.
    """
    options = Options.of(**job.options)
    device = device_of(job.options.get("chip", options.chip))  # of which the model has notes
    digest = hashlib.sha256(f"{_FORM} {program()} {job.samples} {options.chip.value} {device}\n".encode())
    digest.update(json.dumps(write_options(options), sort_keys=True).encode())
    preprocess = options.preprocess.to_dict() if options.preprocess is not None else None
    digest.update(json.dumps(preprocess, sort_keys=True).encode())
    if job.device is not None:
        digest.update(json.dumps(asdict(job.device), sort_keys=True).encode())
    for key in KEYED_FILES:
        if key in job.files:
            digest.update(f"\n{key} ".encode())
            others = _external(job.files[key], options.allow_root) if key == "source" else ()
            for path in (job.files[key], *others):
                digest.update(content(path))
    for plugin in job.plugins:
        digest.update(content(plugin))
    return digest.hexdigest()


def content(path: Path) -> bytes:
    """Compute the digest of a file, or of the names and contents of all images under a folder.

    Raises:
        UsageError: the path is a pipe or a device, which may have no end.
    """
    if os.path.isdir(path):
        digest = hashlib.sha256()
        members = (member for member in path.rglob("*") if member.suffix.lower() in IMAGE_SUFFIXES)
        for member in sorted(member for member in members if member.is_file()):
            digest.update(member.relative_to(path).as_posix().encode() + b"\0" + content(member))
        return digest.digest()
    note_input(path)
    return file_sha256(path)


def _external(source: Path, allow_root: str | os.PathLike[str] | None) -> Iterable[Path]:
    """Yield the files with external data of an ONNX model.

    Raises:
        CorruptInputError: the model names a file that a conversion may not read.
    """
    if not os.path.isfile(source) or Source(source).format != "onnx" or not _contains(source, b"location"):
        return
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(source), load_external_data=False)
    except DecodeError:  # the conversion reports the error
        return
    names = {entry.value for tensor in _tensors(model) for entry in tensor.external_data if entry.key == "location"}
    for name in sorted(names):
        if not name or "\0" in name:
            raise CorruptInputError("has external data without a location", file=source.name)
        path = Path(external_file(source, name, allow_root))
        if os.path.isfile(path):  # the conversion reports a missing file
            yield path


def _contains(path: Path, part: bytes) -> bool:
    if not path.stat().st_size:
        return False
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped.find(part) >= 0


def _tensors(message: Any) -> Iterator[Any]:
    """Yield all tensors of an ONNX message, including tensors of subgraphs and functions."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in (value,) if hasattr(value, "DESCRIPTOR") else value:
                yield from _tensors(inner)


def program() -> str:
    """Digest of the converter: this package with its tables and compiled engine, and installed plugins."""
    digest = hashlib.sha256()
    for name in (*PACKAGES, *sorted({module.partition(".")[0] for module in installed_modules().values()})):
        digest.update(name.encode() + _digest_of_package(name))
    return digest.hexdigest()


@cache
def _digest_of_package(name: str) -> bytes:
    digest = hashlib.sha256()
    spec = importlib.util.find_spec(name)
    if spec is None:
        return b""
    for folder in spec.submodule_search_locations or ():
        members = (member for member in Path(folder).rglob("*") if member.suffix in (".py", ".json", ".so", ".pyd"))
        for member in sorted(members):
            if "build" not in member.relative_to(folder).parts:
                digest.update(member.name.encode() + file_sha256(member))
    if not spec.submodule_search_locations and spec.origin is not None:
        digest.update(file_sha256(Path(spec.origin)))
    return digest.digest()
