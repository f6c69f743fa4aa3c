"""The catalog of trained models, ``catalog.yaml``: packages, files with checksums, samples and metrics."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CATALOG = Path(__file__).with_name("catalog.yaml")
HELPER = "helper"
"""Task of models that run in float only, to compute inputs of others."""


@dataclass(frozen=True)
class Item:
    """One element of a set of samples. It yields one sample, or for crops one per object in the picture."""

    set: str
    index: int


def read_items(parts: Sequence[str]) -> list[Item]:
    """Read ``SET START:STOP[:STEP]`` texts."""
    items = []
    for part in parts:
        name, _, extent = part.partition(" ")
        items += [Item(name, index) for index in range(*map(int, extent.split(":")))]
    return items


@dataclass(frozen=True)
class Calibration:
    """The pool of calibration items, and how many of them a draw takes."""

    take: int
    of: tuple[str, ...]

    def draw(self, number: int) -> list[Item]:
        """Return the items of a draw: the first of the pool for draw 0, otherwise random ones in their order."""
        pool = read_items(self.of)
        if number == 0:
            return pool[: self.take]
        return [pool[index] for index in sorted(random.Random(number).sample(range(len(pool)), self.take))]


@dataclass(frozen=True)
class Entry:
    """A trained model.

    Args:
        name: its id.
        package: ``NAME==VERSION`` of the package that contains it.
        path: its path in the wheel.
        sha256: checksum of the file.
        task: group of the model in the table; HELPER for a model that is not measured.
        about: network and purpose, in a few words.
        input: name of the input that gets the samples.
        shapes: shapes of the inputs, where the file has dynamic extents.
        constants: value of every element of the other inputs, by name.
        preprocess: preprocessing of pictures.
        phrase: spoken phrase of a wake word.
        calibration: calibration samples.
        evaluation: evaluation samples.
        metric: kind and fields of the metric.
    """

    name: str
    package: str
    path: str
    sha256: str
    task: str
    about: str
    input: str
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, float]
    preprocess: Mapping[str, Any]
    phrase: str
    calibration: Calibration
    evaluation: tuple[str, ...]
    metric: Mapping[str, Any]

    @property
    def format(self) -> str:
        """``onnx`` or ``tflite``."""
        return Path(self.path).suffix[1:]


def _read_entry(name: str, fields: Mapping[str, Any]) -> Entry:
    values = {"phrase": "", "constants": {}, "preprocess": {}, "metric": {}, **fields}
    pool = values.pop("calibration", {"take": 0, "of": []})
    calibration = Calibration(pool["take"], tuple(pool["of"]))
    shapes = {port: tuple(shape) for port, shape in values.pop("shapes", {}).items()}
    evaluation = tuple(values.pop("evaluation", ()))
    return Entry(name, shapes=shapes, calibration=calibration, evaluation=evaluation, **values)


@functools.cache
def read_catalog() -> dict[str, Entry]:
    """Return all entries by name, helpers included."""
    content = yaml.safe_load(CATALOG.read_text(encoding="utf-8"))
    return {name: _read_entry(name, fields) for name, fields in content["models"].items()}


def read_packages() -> dict[str, str]:
    """Return the licenses of the packages by ``NAME==VERSION``."""
    packages: dict[str, str] = yaml.safe_load(CATALOG.read_text(encoding="utf-8"))["packages"]
    return packages


def measured_names() -> list[str]:
    """Return the names of the models that are measured, in the order of the table."""
    return [name for name, entry in read_catalog().items() if entry.task != HELPER]
