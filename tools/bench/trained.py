"""The trained models of the test data: tpuconvert against the engine of the source format, on the same file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.accuracy.datasets import (
    Entry,
    data_root,
    entries,
    input_shapes,
    labeled_set,
    model_files,
    reference_samples,
)
from tools.bench.models import OURS, Maker, Model, build
from tools.bench.prepare import Feed, convert_ours, quantize_onnxruntime, quantize_openvino, ready, write_feed

SOURCE_ENGINES = {"onnx": ("ONNX Runtime", "onnxruntime"), "tflite": ("LiteRT", "litert")}
"""Source format -> label and engine. Caffe is missing, because no installable engine runs Caffe networks."""

CALIBRATION = 32
"""Number of calibration samples from labeled data. Models without labels use the samples of the reference outputs."""


def trained_models(names: list[str], folder: Path, backend: str) -> Iterator[Model]:
    """Yield every trained ONNX and TFLite network in its own arithmetic, and float ONNX networks also in INT8."""
    root = data_root()
    for name, entry in entries(root).items():
        if entry["format"] not in SOURCE_ENGINES or (names and name not in names):
            continue
        source, _ = model_files(root, entry)
        feeds = [feed for feed, _ in reference_samples(root, entry)]
        measured = ready(folder / f"{name}.npz", lambda path, feed=feeds[0]: write_feed(path, feed))  # type: ignore[misc]  # defaults of a lambda
        label, engine = SOURCE_ENGINES[entry["format"]]
        theirs = Maker(label, engine, str(source), lambda path: None)
        yield build(name, "as it is", folder, measured, [_ours(entry, source, name, None), theirs], backend)
        if entry["format"] == "onnx" and "qlinear" not in name:
            calibration = functools.cache(functools.partial(_calibration, root, entry, feeds))
            yield _quantize(entry, name, folder, source, measured, calibration, backend)


def _quantize(
    entry: Entry,
    name: str,
    folder: Path,
    source: Path,
    measured: Path,
    feeds: Callable[[], list[Feed]],
    backend: str,
) -> Model:
    makers = [
        _ours(entry, source, f"{name}.int8", feeds),
        Maker(
            "ONNX Runtime", "onnxruntime", f"{name}.ort.onnx", lambda path: quantize_onnxruntime(source, path, feeds())
        ),
        Maker("OpenVINO", "openvino", f"{name}.openvino.xml", lambda path: quantize_openvino(source, path, feeds())),
    ]
    return build(name, "INT8", folder, measured, makers, backend)


def _ours(entry: Entry, source: Path, name: str, feeds: Callable[[], list[Feed]] | None) -> Maker:
    def make(path: Path) -> None:
        convert_ours(source, path, None if feeds is None else feeds(), input_shapes(entry))

    return Maker(OURS, OURS, f"{name}.tpum", make)


def _calibration(root: Path, entry: Entry, feeds: list[Feed]) -> list[Feed]:
    if "labels" not in entry:
        return feeds
    (name,) = feeds[0]
    return [{name: sample} for sample in labeled_set(root, entry).calibration[:CALIBRATION]]
