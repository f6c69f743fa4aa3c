"""A model of the catalog as files of a work folder: its source, samples, and the outputs of the float model."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

import tpuconvert as tc
from tools.accuracy.trained.catalog import Entry, read_catalog, read_items
from tools.accuracy.trained.decoders import Outputs
from tools.accuracy.trained.engines import Run, open_litert, open_onnxruntime
from tools.accuracy.trained.metrics import Metric, metric_of
from tools.accuracy.trained.samples import Feed, load
from tools.accuracy.trained.wheels import fetch
from tools.bench.prepare import ready
from tpuconvert.schema.types import Array


class Network:
    """A trained model with its samples.

    Files are made once. They are in a folder whose name contains a digest of the catalog's entry, so that a changed
    entry does not find old ones.

    Args:
        name: its name in the catalog.
        work: folder of all files that are made.
        cache: folder of downloaded files.
    """

    def __init__(self, name: str, work: Path, cache: Path) -> None:
        self.entry: Entry = read_catalog()[name]
        self.work, self.cache = work, cache
        digest = hashlib.sha256(json.dumps(dataclasses.asdict(self.entry), sort_keys=True).encode()).hexdigest()
        self.folder = work / f"{name}-{digest[:12]}"
        self.folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def source(self) -> Path:
        """The float model that tpuconvert reads: the TFLite file, or the ONNX file with fixed extents."""
        file = fetch(self.entry, self.cache)
        if self.entry.format == "tflite":
            return file
        return ready(self.folder / "source.onnx", lambda path: write_fixed(file, path, self.entry.shapes))

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]] | None:
        """Shapes of the inputs for tpuconvert; None if the source has them."""
        return (self.entry.shapes or None) if self.entry.format == "tflite" else None

    @cached_property
    def onnx(self) -> Path:
        """The float model that ONNX Runtime and NNCF read: the source, or an export of tpuconvert."""
        return self.source if self.entry.format == "onnx" else ready(self.folder / "export.onnx", self._write_export)

    def _write_export(self, path: Path) -> None:
        exported = path.with_name("unnamed.onnx")
        tc.export(
            tc.convert(self.source, source_options=tc.SourceOptions(input_shapes=self.shapes or {})),
            exported,
            to="onnx",
        )
        write_fixed(exported, path, {})
        exported.unlink()

    @cached_property
    def metric(self) -> Metric:
        """The metric of the task."""
        return metric_of(self.entry.name)

    def calibration(self, draw: int) -> list[Feed]:
        """Return the calibration samples of a draw."""
        items = self.entry.calibration.draw(draw)
        path = self.folder / f"calibration-{draw}.npz"
        return _read(ready(path, lambda path: _write(path, load(self.entry, items, self.run_helper))))

    @cached_property
    def evaluation(self) -> list[Feed]:
        """The evaluation samples."""
        items = read_items(self.entry.evaluation)
        path = self.folder / "evaluation.npz"
        return _read(ready(path, lambda path: _write(path, load(self.entry, items, self.run_helper))))

    @cached_property
    def float_outputs(self) -> Sequence[Outputs]:
        """Outputs of the float model for the evaluation samples, by ONNX Runtime or LiteRT."""
        return _read(ready(self.folder / "float.npz", self._write_float_outputs))

    def _write_float_outputs(self, path: Path) -> None:
        run = self.open_float()
        _write(path, [run(feed) for feed in self.evaluation])

    def open_float(self) -> Run:
        """Open the float model in the engine of its format."""
        if self.entry.format == "onnx":
            return open_onnxruntime(self.source)
        return open_litert(self.source, shapes=self.entry.shapes)

    def run_helper(self, name: str, x: Array) -> Outputs:
        """Run another float model of the catalog, for samples and metrics that need one."""
        run, port = _open_helper(name, self.work, self.cache)
        return run({port: x})


@functools.lru_cache(8)
def _open_helper(name: str, work: Path, cache: Path) -> tuple[Run, str]:
    network = Network(name, work, cache)
    return network.open_float(), network.entry.input


def _write(path: Path, rows: Sequence[Mapping[str, Array]]) -> None:
    with path.open("wb") as file:
        np.savez(file, **{name: np.stack([row[name] for row in rows]) for name in rows[0]})  # type: ignore[arg-type]  # numpy declares its own keywords only


def _read(path: Path) -> list[dict[str, Array]]:
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return [{name: array[i, ...] for name, array in arrays.items()} for i in range(len(next(iter(arrays.values()))))]


def write_fixed(source: Path, target: Path, shapes: Mapping[str, Sequence[int]]) -> None:
    """Write an ONNX model with fixed extents of its inputs, shapes of all tensors, and names of all nodes."""
    model = onnx.load(source)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [port for port in graph.input if port.name not in constants]
    for port in inputs:
        if port.name in shapes:
            port.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
            for extent in shapes[port.name]:
                port.type.tensor_type.shape.dim.add().dim_value = extent
    del graph.input[:]
    graph.input.extend(inputs)
    del graph.value_info[:]
    for port in graph.output:
        port.type.tensor_type.ClearField("shape")
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    onnx.save(model, target)
