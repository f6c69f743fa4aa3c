"""The networks of the comparison: labeled classifiers and detectors, with their images and float results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

import tpuconvert as tc
from tools.accuracy.datasets import Entry, data_root, entries, input_shapes, labeled_set, model_files
from tools.accuracy.detections import DETECTORS, NMS_IOU, Detector, images_of
from tools.accuracy.labeled import classifiers
from tools.bench.prepare import ready
from tpuconvert.evaluation.metrics.mean_average_precision import KEPT_IOU
from tpuconvert.optimizer.engine.node_properties import operands
from tpuconvert.outputs.detector import find_detector
from tpuconvert.outputs.head import DecodedImage
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, match_detections
from tpuconvert.schema.ops.host.detection import DetectionOutput
from tpuconvert.schema.types import Array

Outputs = Mapping[str, Array]
Run = Callable[[Array], Outputs]
"""Function that runs a network on one sample and returns its outputs by name."""

Numbers = dict[str, float]


def subject_names() -> list[str]:
    """Names of all networks: the classifiers first."""
    return [*classifiers(), *DETECTORS]


@dataclass(frozen=True)
class Network:
    """A network as a file.

    Args:
        path: the file.
        finish: computes the final outputs from the outputs of the file.
    """

    path: Path
    finish: Callable[[Outputs], Outputs] = lambda outputs: outputs


class Subject:
    """A network with calibration and evaluation images.

    Args:
        name: its id in the manifest of the test data.
        folder: folder for the files that are made from it.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.detector: Detector | None = DETECTORS.get(name)
        self.entry: Entry = entries(data_root())[name]
        self.labels: Array | None = None
        if self.detector is None:
            dataset = labeled_set(data_root(), self.entry)
            self.calibration, self.samples = dataset.calibration, dataset.samples
            self.labels = np.array(dataset.labels) + self.entry["labels"]["output_offset"]
        else:
            rule = {key: value for key, value in self.entry["preprocessing"].items() if key not in ("kind", "images")}
            self.preprocess = Preprocess.from_mapping(rule)
            images = images_of(data_root(), self.detector)
            self.calibration, self.samples = ([self.preprocess.load(path) for path in paths] for paths in images)

    def convert(
        self, outputs: Sequence[str] | None = None, chip: str = "bm1686", quantize: str | None = None
    ) -> tc.Model:
        """Convert the source with tpuconvert and its default options."""
        source, weights = model_files(data_root(), self.entry)
        samples = self.calibration if quantize else None
        shapes = input_shapes(self.entry)
        return tc.convert(
            source,
            weights=weights,
            chip=chip,
            source_options=tc.SourceOptions(input_shapes=shapes, outputs=outputs),
            quantize=quantize,
            calibration=samples,
        )

    @cached_property
    def source(self) -> Network | None:
        """The source file with nothing added, unless it is a Caffe file, which other tools cannot read."""
        return None if self.entry["format"] == "caffe" else Network(model_files(data_root(), self.entry)[0])

    @cached_property
    def onnx(self) -> Network:
        """The float network as an ONNX file: the source, or one exported by tpuconvert."""
        if self.source is not None and self.entry["format"] == "onnx":
            return self.source
        model = self.convert()
        last = model.graph.nodes[-1]
        finish = Network.finish
        if isinstance(last.op, DetectionOutput):  # ONNX has no such operator
            loc, conf, prior = operands(last)
            op, result, boxes = last.op, last.outputs[0].name, prior.array
            model = self.convert(outputs=[loc.name, conf.name])
            finish = lambda outputs: {result: op.reference(outputs[loc.name], outputs[conf.name], boxes)[0]}  # noqa: E731
        return Network(ready(self.folder / "float.onnx", lambda path: _export(model, path)), finish)

    @cached_property
    def float_outputs(self) -> list[Outputs]:
        """Outputs of the float network of tpuconvert, one mapping per evaluation image."""
        path = ready(self.folder / "float_outputs.npz", self._write_float_outputs)
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return [{name: array[i] for name, array in arrays.items()} for i in range(len(self.samples))]

    def _write_float_outputs(self, path: Path) -> None:
        results = self.run(our_run(self.convert()))
        with path.open("wb") as file:
            np.savez(file, **{name: np.stack([each[name] for each in results]) for name in results[0]})  # type: ignore[arg-type]  # numpy declares its own keywords only

    def run(self, run: Run) -> list[Outputs]:
        """Run a network on the evaluation images."""
        return [{name: np.array(array) for name, array in run(sample).items()} for sample in self.samples]

    def measure(self, quantized_outputs: Sequence[Outputs]) -> Numbers:
        """Compare the outputs for the evaluation images with the outputs of the float network."""
        if self.labels is not None:
            before, after = (
                np.array([_scores(each) for each in outputs]) for outputs in (self.float_outputs, quantized_outputs)
            )
            return compare_classes(before, after, self.labels)
        return compare_detections(
            *([self.detections(each) for each in outputs] for outputs in (self.float_outputs, quantized_outputs))
        )

    def detections(self, outputs: Outputs) -> Detections:
        """Decode the outputs for one image, and remove overlapping detections."""
        assert self.detector is not None and self.preprocess.size is not None
        image = DecodedImage(self.preprocess, self.preprocess.size, self.detector.threshold, NMS_IOU)
        return find_detector(self.detector.decode).decode(outputs, image)


def _export(model: tc.Model, path: Path) -> None:
    """Write a float network as an ONNX file with biases of rank 1 after MatMul.

    ONNX Runtime makes a Gemm node of both, and cannot quantize it per channel with a bias [1, N].
    """
    tc.export(model, path, to="onnx")
    file = onnx.load(path)
    products = {name for node in file.graph.node if node.op_type == "MatMul" for name in node.output}
    sums = [node for node in file.graph.node if node.op_type == "Add" and products & set(node.input)]
    biases = {name for node in sums for name in node.input}
    for tensor in file.graph.initializer:
        if tensor.name in biases and len(tensor.dims) == 2 and tensor.dims[0] == 1:
            del tensor.dims[0]
    onnx.save(file, path)


def our_run(model: tc.Model) -> Run:
    """Open a model of tpuconvert."""
    session = tc.Session(model)
    (name,) = (item.name for item in session.inputs)
    return lambda sample: session.run({name: sample})


def compare_classes(before: Array, after: Array, labels: Array) -> Numbers:
    """Compare scores [images, classes] of two models: right answers, changed answers, mean cosine similarity."""
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosines = (before * after).sum(axis=1) / np.maximum(norms, np.finfo(np.float64).tiny)
    first, second = before.argmax(axis=1), after.argmax(axis=1)
    return {
        "images": len(labels),
        "float_correct": int((first == labels).sum()),
        "correct": int((second == labels).sum()),
        "flips": int((first != second).sum()),
        "cosine": round(float(cosines.mean()), 6),
    }


def compare_detections(before: Sequence[Detections], after: Sequence[Detections]) -> Numbers:
    """Count the detections of the first model, and how many of them the second one keeps."""
    pairs = zip(before, after, strict=True)
    return {
        "detections": sum(len(each.scores) for each in before),
        "kept": sum(len(match_detections(reference, actual, KEPT_IOU)) for reference, actual in pairs),
        "found": sum(len(each.scores) for each in after),
    }


def _scores(outputs: Outputs) -> Array:
    scores: Array = np.asarray(next(iter(outputs.values()))).reshape(-1).astype(np.float64)
    return scores
