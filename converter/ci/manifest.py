"""The manifest: a YAML file that lists models to convert, their sources, and their limits.

    defaults: {chip: bm1686, quantize: int8, data: samples/}
    models:
      digits:
        source: digits.onnx
        calibration: samples/
        output: build/digits.tpum
        limits: {cosine: 0.99, size: 200KB, transposes: 0}

``defaults`` apply to every model that does not override them; limits are merged one by one. Paths are relative to the
manifest. Every other key is an option of ``tpuconvert.convert``.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuconvert.conversion.fixed_inputs import read_fixed
from tpuconvert.conversion.options.options import OPTIONS, Options
from tpuconvert.conversion.options.rule_files import expand_rules
from tpuconvert.conversion.source import SOURCE_SUFFIXES
from tpuconvert.exporters.compilation.compiled_export import LEAST_LIMIT, TIME_LIMIT
from tpuconvert.exporters.request import FLOATS
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.plugins import load_plugins
from tpuconvert.samples.preprocess import YAML_SUFFIXES
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.yaml_files import read_yaml

FILES = ("source", "weights", "calibration", "data", "evaluation", "baseline", "output")
"""Keys that name files. ``calibration`` and ``data`` may also be folders of images."""

ACCEPTED = "inaccurate_outputs"
"""Key with the names of outputs that may be below the accuracy limits of a quantized model."""

NUMBERS = ("samples",)
"""Keys with an integer. ``samples`` is the number of samples that are compared with the source."""

DEVICE = "device"
"""Key with the chip for which the model has to compile, and options of the export."""

DEFAULT_SAMPLES = 8

MOST_SAMPLES = 1_000_000
"""Largest number of random samples: more take days."""

_LARGEST = 1e300
"""Limits are smaller than this, so that a threshold is finite."""


@dataclass(frozen=True)
class Limit:
    """A limit of the manifest for one measurement.

    Args:
        key: key of the limit in the manifest.
        measure: name of the measurement in ``measures.py`` that is compared with the limit.
        is_least: True for a lower limit, False for an upper limit.
        unit: unit of the measurement, shown in reports.
        needs: key of the file that the measurement needs; empty if it needs none.
        meaning: description, shown in reports.
    """

    key: str
    measure: str
    is_least: bool
    unit: str
    needs: str
    meaning: str


LIMITS = (
    Limit("cosine", "cosine", True, "", "", "smallest cosine similarity of an output to the float source"),
    Limit("sqnr", "sqnr", True, "dB", "", "smallest ratio of signal to difference of an output, in decibel"),
    Limit("difference", "difference", False, "", "", "largest difference of an output, as a share of its range"),
    Limit(
        "different_integers",
        "different_integers",
        False,
        "",
        "",
        "integers that differ from a quantized source",
    ),
    Limit("top1_drop", "top1_drop", False, "", "evaluation", "loss of top-1 accuracy against float, as a share of 1"),
    Limit("size", "size", False, "bytes", "", "size of the file; 500KB, 3MB and 1.5GiB are understood"),
    Limit(
        "latency_ratio", "latency_ratio", False, "", "", "time of a run here, against the baseline or the float model"
    ),
    Limit("transposes", "transposes", False, "", "", "transposes that are left"),
)

ACCURACY = Limit(
    ACCEPTED, ACCEPTED, False, "", "", "outputs of a quantized model below the accuracy limits that are not accepted"
)
"""Limit of every quantized model. The manifest has the accepted outputs instead of a number."""

PROGRAM = Limit(DEVICE, "device_differing", False, "", "", "tensors of the compiled program that differ")
"""Limit of every model with the key ``device``."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([KMG]i?B|B)?", re.IGNORECASE)
_FACTORS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True)
class DeviceProgram:
    """Program that is compiled and compared in the vendor's simulator.

    Args:
        chip: chip of the vendor's compiler.
        floats: type of floating-point operators.
        with_checks: compare every integer tensor.
        time_limit: limit of each compiler pass and of the simulator, in seconds.
    """

    chip: str
    floats: str = FLOATS[0]
    with_checks: bool = False
    time_limit: float = TIME_LIMIT


@dataclass(frozen=True)
class Job:
    """One model of the manifest.

    Args:
        name: name in the manifest.
        files: absolute paths by key of FILES.
        options: options of the conversion, as written in the manifest.
        limits: values of the limits by key.
        samples: how many samples are compared with the source.
        plugins: absolute paths of the plugins.
        missing: message about a file of the manifest that does not exist, so that the model cannot be converted; else
            empty.
        accepted: names of outputs that may be below the accuracy limits.
        device: the program that has to compile and to compute the same; None for a model without one.
    """

    name: str
    files: Mapping[str, Path]
    options: Mapping[str, Any]
    limits: Mapping[str, float]
    samples: int = DEFAULT_SAMPLES
    plugins: tuple[Path, ...] = ()
    missing: str = ""
    accepted: tuple[str, ...] = ()
    device: DeviceProgram | None = None

    @property
    def inputs(self) -> list[Path]:
        """Files and folders that the manifest names for reading."""
        return [*(location for key, location in self.files.items() if key != "output"), *self.plugins]


def read_manifest(path: Path) -> list[Job]:
    """Read and check a manifest.

    Raises:
        UsageError: the manifest is wrong; the message names the model and the key, and suggests a similar key.
    """
    return _Reader(path).jobs(read_yaml(path))


@dataclass
class _Reader:
    path: Path

    def jobs(self, content: Any) -> list[Job]:
        top = self._mapping(content, "the manifest")
        self._check_keys(top, ("defaults", "models", "plugins"), "the manifest")
        defaults = self._mapping(top.get("defaults"), "defaults")
        models = self._mapping(top.get("models"), "models")
        if not models:
            raise self._wrong("names no models", hint="models: {name: {source: net.onnx}}")
        plugins = top.get("plugins")
        plugins = [] if plugins is None else plugins
        if not isinstance(plugins, list):
            raise self._wrong("plugins: is not a list of files")
        locations = tuple(self._place(name, "plugins") for name in plugins)
        load_plugins(locations)  # options may name calibration methods and rules of plugins
        jobs = [self._job(str(name), defaults, self._mapping(entry, f"models.{name}"), locations)
                for name, entry in models.items()]  # fmt: skip
        self._check_outputs(jobs)
        return jobs

    def _job(self, name: str, defaults: Mapping[str, Any], entry: Mapping[str, Any], plugins: tuple[Path, ...]) -> Job:
        where = f"models.{name}"
        limits = {**self._limits(defaults, "defaults"), **self._limits(entry, where)}
        fields = {**defaults, **entry}
        fields.pop("limits", None)
        self._check_keys(fields, (*FILES, *NUMBERS, ACCEPTED, DEVICE, "limits", *OPTIONS), where)
        named = {key: fields.pop(key) for key in FILES if key in fields}
        files = {key: self._place(name, f"{where}.{key}") for key, name in named.items() if name is not None}
        if "source" not in files:
            raise self._wrong(f"{where}: has no source", hint="source: the ONNX, TFLite or prototxt file")
        for limit in LIMITS:
            if limit.key in limits and limit.needs and limit.needs not in files:
                raise self._wrong(f"{where}: the limit '{limit.key}' needs '{limit.needs}'")
        samples = fields.pop("samples", DEFAULT_SAMPLES)
        if not isinstance(samples, int) or isinstance(samples, bool) or not 1 <= samples <= MOST_SAMPLES:
            raise self._wrong(f"{where}.samples: {samples!r} is not a number of samples from 1 to {MOST_SAMPLES}")
        accepted = self._names(fields.pop(ACCEPTED, None) or [], f"{where}.{ACCEPTED}")
        device = self._device(fields.pop(DEVICE, None), f"{where}.{DEVICE}")
        if fields.get("allow_root") is not None:
            fields["allow_root"] = str(self._place(fields["allow_root"], f"{where}.allow_root"))
        preprocess = fields.get("preprocess")
        if isinstance(preprocess, str) and preprocess.lower().endswith(YAML_SUFFIXES):
            fields["preprocess"] = str(self._place(preprocess, f"{where}.preprocess"))
        missing = self._missing(files, fields)
        if missing:
            return Job(name, files, {}, limits, samples, plugins, missing, accepted)
        try:
            if "fix_inputs" in fields:  # read the .npy files now, so that their values are part of the cache key
                fields["fix_inputs"] = read_fixed(self._mapping(fields["fix_inputs"], "fix_inputs"), self.path.parent)
            if "precision" in fields:  # read rule files now, for the same reason
                fields["precision"] = expand_rules(fields["precision"], self.path.parent)
            checked = Options.of(**fields)
        except UsageError as error:
            raise self._wrong(f"{where}: {error.message}", hint=error.hint) from error
        if device is not None and TARGETS[device.chip].chip is not checked.chip:
            chip = TARGETS[device.chip].chip.value.lower()
            raise self._wrong(
                f"{where}.{DEVICE}: the model is for {checked.chip.value}, {device.chip} needs one for {chip.upper()}",
                hint=f"chip: {chip}",
            )
        options = {key: value for key, value in fields.items() if key not in FILES}
        return Job(name, files, options, limits, samples, plugins, accepted=accepted, device=device)

    def _device(self, value: Any, where: str) -> DeviceProgram | None:
        if value is None:
            return None
        entry = self._mapping(value, where)
        self._check_keys(entry, [item.name for item in dataclasses.fields(DeviceProgram)], where)
        if "chip" not in entry:
            raise self._wrong(f"{where}: has no chip", hint=f"{DEVICE}: {{chip: {next(iter(TARGETS))}}}")
        device = DeviceProgram(**entry)
        for key, known in (("chip", tuple(TARGETS)), ("floats", FLOATS), ("with_checks", (True, False))):
            if getattr(device, key) not in known:
                raise self._wrong(f"{where}.{key}: {getattr(device, key)!r} is not one of {', '.join(map(str, known))}")
        limit = self._number(device.time_limit, f"{where}.time_limit")
        if limit < LEAST_LIMIT:
            raise self._wrong(f"{where}.time_limit: {limit:g} is less than {LEAST_LIMIT:g} s")
        return dataclasses.replace(device, time_limit=limit)

    def _missing(self, files: Mapping[str, Path], fields: Mapping[str, Any]) -> str:
        """Return a message about the first file that a model needs and that does not exist."""
        locations = {key: location for key, location in files.items() if key != "output"}
        if fields.get("allow_root") is not None:
            locations["allow_root"] = Path(fields["allow_root"])
        if str(fields.get("preprocess")).lower().endswith(YAML_SUFFIXES):
            locations["preprocess"] = Path(str(fields["preprocess"]))
        return next(
            (f"{key}: there is no {location}" for key, location in locations.items() if not os.path.exists(location)),
            "",  # Path.exists would raise for a name that is too long
        )

    def _limits(self, entry: Mapping[str, Any], where: str) -> dict[str, float]:
        limits = self._mapping(entry.get("limits"), f"{where}.limits")
        self._check_keys(limits, [limit.key for limit in LIMITS], f"{where}.limits")
        return {
            key: self._number(value, f"{where}.limits.{key}", is_size=key == "size") for key, value in limits.items()
        }

    def _number(self, value: Any, where: str, *, is_size: bool = False) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST:
            return float(value)
        match = _SIZE.fullmatch(str(value).strip()) if is_size else None
        size = float(match[1]) * _FACTORS[(match[2] or "").upper()] if match else _LARGEST
        if size >= _LARGEST:
            raise self._wrong(f"{where}: {str(value)[:80]!r} is not a {'size' if is_size else 'number'}")
        return size

    def _names(self, value: Any, where: str) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self._wrong(f"{where}: is not a list of names")
        return tuple(names)

    def _place(self, name: Any, where: str) -> Path:
        if not isinstance(name, str) or not name or "\0" in name:
            raise self._wrong(f"{where}: {name!r} is not the name of a file")
        return (self.path.parent / name).absolute()

    def _mapping(self, value: Any, where: str) -> Mapping[str, Any]:
        if value is None:  # a key without a value
            return {}
        if not isinstance(value, Mapping):
            raise self._wrong(f"{where}: is not a mapping of names to values")
        return value

    def _check_keys(self, entry: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
        allowed = list(allowed)
        for key in entry:
            if key not in allowed:
                hint = did_you_mean(str(key), allowed) or f"one of {', '.join(sorted(allowed))}"
                raise self._wrong(f"{where}: unknown key '{key}'", hint=hint)

    def _check_outputs(self, jobs: list[Job]) -> None:
        taken: dict[str, str] = {}
        for job in jobs:
            location = job.files.get("output")
            if location is None:
                continue
            if location.suffix.lower() in SOURCE_SUFFIXES:
                hint = f"name it {location.stem}.tpum"
                raise self._wrong(f"models.{job.name}.output: what is written is not a {location.suffix} file", hint)
            real = os.path.normcase(os.path.realpath(location))
            if taken.setdefault(real, job.name) != job.name:
                raise self._wrong(f"models.{job.name}.output: {taken[real]} writes the same file")

    def _wrong(self, message: str, hint: str = "") -> UsageError:
        return UsageError(message, file=str(self.path), hint=hint)
