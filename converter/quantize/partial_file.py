"""File with the statistics of an interrupted calibration, from which the same command continues.

It is an ``.npz`` archive: an array with JSON, and the arrays that the JSON refers to. No objects are pickled.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.diagnosis.samples import SampleStatistics
from tpuconvert.installed import version
from tpuconvert.optimizer.precision_rules import METHODS, split_method
from tpuconvert.optimizer.quantize.calibrators import Collector
from tpuconvert.optimizer.quantize.ranges import RangeCollector
from tpuconvert.options import Options
from tpuconvert.plugins import loaded_files
from tpuconvert.progress import Progress
from tpuconvert.quantize.counted_samples import Counted, Part
from tpuconvert.quantize.statistics_json import decode, encode
from tpuconvert.recipe import file_digest, source_digest, write_options
from tpuconvert.samples.array_writer import write_npz
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.content_digest import digest_of
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.schema.graph import Port
from tpuconvert.schema.json_text import parse_json
from tpuconvert.schema.types import Array
from tpuconvert.source_loading import Source

FORMAT = "tpuconvert partial calibration"
VERSION = 2
"""Version of the file format. Since version 2, it has the largest magnitude of each sample."""

SECONDS = 30.0
"""Time between two writes, for a process that is killed."""

_HEADER = "header"


def run_key(files: Iterable[Source | None], options: Options) -> dict[str, Any]:
    """Return everything besides the samples that statistics depend on, by the name under which messages mention it."""
    return {
        "the version of tpuconvert": version(),
        "the model": [source_digest(file) for file in files if file is not None],
        "--plugin": [file_digest(file) for file in loaded_files()],
        "--chip": options.chip.value,
        "--preprocess": str(options.preprocess),
        **{f"--{name.replace('_', '-')}": value for name, value in write_options(options).items()},
    }


def open_partial(
    path: str | os.PathLike[str] | None, files: Iterable[Source | None], options: Options, progress: Progress
) -> PartialFile | None:
    """Return the file for a calibration; None if there is no path.

    Args:
        path: the file, which need not exist.
        files: the files of the model.
        options: options of the conversion.
        progress: receives messages.
    """
    return None if path is None else PartialFile(path, run_key(files, options), progress.report)


def check_storable(method: str, methods: Mapping[str, str]) -> None:
    """Check that the collectors of calibration methods can be stored.

    Raises:
        UsageError: a method is that of a plugin.
    """
    for name in dict.fromkeys((method, *methods.values())):
        if split_method(name)[0] not in METHODS:
            raise UsageError(
                f"calibration method '{name}' is that of a plugin, whose collectors cannot be stored",
                hint=f"leave --resume out, or use a method of tpuconvert: {', '.join(METHODS)}",
            )


class PartialFile:
    """Statistics of an interrupted calibration in a file.

    Args:
        path: the file, which need not exist.
        key: result of ``run_key``.
        report: receives messages for the user.
    """

    def __init__(self, path: str | os.PathLike[str], key: Mapping[str, Any], report: Callable[[str], None]) -> None:
        self._path = Path(path)
        self._key = dict(key)
        self._report = report
        self._samples = 0
        self._written = 0
        self._is_reported = False
        self._time = time.monotonic()

    def read(
        self,
        feeds: FeedSource,
        ports: Sequence[Port],
        first: int,
        method_of: Callable[[str], str],
        keeps: Collection[str] = (),
    ) -> Counted:
        """Return what the file contains; nothing if there is no file.

        Args:
            feeds: calibration samples.
            ports: the model's inputs.
            first: number of batches that are first samples.
            method_of: calibration method by name of the tensor.
            keeps: names of the tensors whose histograms are kept.

        Raises:
            UsageError: the file is that of other samples or options, or cannot be read.
            CorruptInputError: the file is damaged, or has another format.
        """
        self._samples = len(feeds)
        self._key |= {
            "the samples": [len(feeds), digest_of(b"".join(feeds.contents)).hex()],
            "--refinement-samples": first,
        }
        try:
            content = self._load()
        except FileNotFoundError:
            return Counted()
        except OSError as error:
            raise UsageError(f"{self._path}: cannot be read ({error.strerror or error})") from error
        except _WRONG_CONTENT as error:
            raise self._damaged(f"holds no statistics of a calibration: {error}") from error
        header, arrays = content
        if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
            raise self._damaged("holds no statistics of a calibration")
        known = header.get("key")
        if not isinstance(known, dict):
            raise self._damaged("is damaged: no key")
        changed = sorted(name for name in known.keys() | self._key.keys() if known.get(name) != self._key.get(name))
        if changed:
            raise UsageError(
                f"{self._path}: is that of a calibration with another value of {', '.join(changed)}",
                hint="give the same as then, or remove the file to start again",
            )
        try:
            counted = self._counted(header, arrays, ports, method_of, keeps)
        except _WRONG_CONTENT as error:
            raise self._damaged(f"is damaged: {error}") from error
        self._written = counted.count
        self._report(f"continuing after {counted.count} of {len(feeds)} samples of {self._path}")
        return counted

    def save_at_times(self, counted: Counted) -> None:
        """Write the file if the last write was ``SECONDS`` ago."""
        if time.monotonic() - self._time > SECONDS:
            self.save(counted)

    def save(self, counted: Counted) -> None:
        """Write the file, unless it has all these samples; an existing file is replaced atomically.

        Raises:
            UsageError: the file cannot be written.
            ResourceLimitError: the disk is full.
        """
        if counted.count > self._written:
            arrays: list[Array] = []
            header = {
                "format": FORMAT,
                "version": VERSION,
                "key": self._key,
                "first": {name: encode(found, arrays) for name, found in counted.first.items()},
                "others": {name: encode(found, arrays) for name, found in counted.others.items()},
                "parts": [[part.start, part.end, encode(part.statistics.fields(), arrays)] for part in counted.parts],
            }
            text = np.frombuffer(json.dumps(header).encode("utf-8"), np.uint8)
            with replacing(self._path) as file:
                write_npz(file, {_HEADER: text, **{str(index): item for index, item in enumerate(arrays)}})
            self._written = counted.count
        self._time = time.monotonic()

    def save_after_interrupt(self, counted: Counted) -> None:
        """Write the file, and report how to continue."""
        self.save(counted)
        self.report_after_interrupt()

    def report_after_interrupt(self) -> None:
        """Report how to continue, once, if the file has samples."""
        if self._written and not self._is_reported:
            self._is_reported = True
            self._report(
                f"{self._path} has the statistics of {self._written} of {self._samples} samples; "
                "the same command with --resume continues"
            )

    def _load(self) -> tuple[Any, Sequence[Array]]:
        """Return the JSON and the arrays of the file."""
        with np.load(self._path, allow_pickle=False) as archive:
            header = parse_json(archive[_HEADER].tobytes().decode("utf-8"))
            return header, [archive[str(index)] for index in range(len(archive.files) - 1)]

    @staticmethod
    def _counted(
        header: Mapping[str, Any],
        arrays: Sequence[Array],
        ports: Sequence[Port],
        method_of: Callable[[str], str],
        keeps: Collection[str],
    ) -> Counted:
        def collectors(forms: Mapping[str, Any]) -> dict[str, Collector]:
            found = {}
            for name, form in forms.items():
                expected = RangeCollector(method_of(name), keeps_histogram=name in keeps)
                found[name] = decode(form, expected, arrays)
                if found[name].method != expected.method:
                    raise ValueError(f"method {found[name].method} of '{name}', expected {expected.method}")
                if found[name].has_histogram != expected.has_histogram:
                    raise ValueError(f"a histogram of '{name}' is missing, or not expected")
                found[name].channels()  # fails if the numbers of channels differ
            return found

        parts = []
        for start, end, forms in header["parts"]:
            statistics = SampleStatistics(ports)
            like, form = statistics.fields(), dict(forms["mapping"])
            statistics.set_fields({name: decode(form[name], like[name], arrays) for name in like})
            parts.append(Part(int(start), int(end), statistics))
        borders = [border for part in parts for border in (part.start, part.end)]
        if borders != sorted(borders) or (borders and borders[0] < 0):
            raise ValueError(f"parts of the samples at {borders}")
        return Counted(collectors(header["first"]), collectors(header["others"]), tuple(parts))

    def _damaged(self, message: str) -> CorruptInputError:
        hint = "remove it to start again; it is written by an interrupted calibration with --resume"
        return CorruptInputError(message, file=str(self._path), hint=hint)


_WRONG_CONTENT = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    EOFError,
    RuntimeError,
    OverflowError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors while a damaged or foreign file is read."""
