"""Share of float detections that INT8 models keep, as a Markdown table.

    python tools/detections.py [--chip bm1686] [--method mse] [DETECTOR ...]

A float detection is kept if the INT8 model detects the same class with an intersection over union of at least 0.9,
above the same score threshold. Calibration and evaluation images are different ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Entry, data_root, entries, input_shapes, model_files

import tpuconvert as tc
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.types import Array

IOU = 0.9
"""Smallest intersection over union of a kept detection."""

NMS_IOU = 0.4
"""Of two detections of a class with a larger overlap, the one with the smaller score is dropped."""


@dataclass(frozen=True)
class Detections:
    """Boxes [n, 4] as x1, y1, x2, y2, scores [n] and classes [n]."""

    boxes: Array
    scores: Array
    classes: Array

    def select(self, index: Array) -> Detections:
        """Return the detections at an index array."""
        return Detections(self.boxes[index], self.scores[index], self.classes[index])


Decode = Callable[[Mapping[str, Array]], Detections]


def decode_yunet(outputs: Mapping[str, Array]) -> Detections:
    """Decode three scales with one score per class and one per object, in pixels of the input."""
    boxes, scores = [], []
    for stride in (8, 16, 32):
        side = 320 // stride
        cells = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
        box = outputs[f"bbox_{stride}"][0]
        center, size = (cells + box[:, :2]) * stride, np.exp(box[:, 2:]) * stride
        boxes.append(np.concatenate([center - size / 2, center + size / 2], axis=1))
        product = outputs[f"cls_{stride}"][0] * outputs[f"obj_{stride}"][0]
        scores.append(np.sqrt(np.clip(product[:, 0], 0, 1)))
    return _of_one_class(np.concatenate(boxes), np.concatenate(scores))


def decode_ultraface(outputs: Mapping[str, Array]) -> Detections:
    """Return corners, relative to the image, and scores of the second class."""
    return _of_one_class(outputs["boxes"][0], outputs["scores"][0, :, 1])


def decode_fastestdet(outputs: Mapping[str, Array]) -> Detections:
    """Decode one grid with an object score, a box and 80 class scores per cell."""
    found = next(iter(outputs.values()))[0]
    height, width = found.shape[1:]
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    center = np.stack([(np.tanh(found[1]) + x) / width, (np.tanh(found[2]) + y) / height], axis=-1)
    size = 1 / (1 + np.exp(-np.stack([found[3], found[4]], axis=-1)))
    boxes = np.concatenate([center - size / 2, center + size / 2], axis=-1).reshape(-1, 4)
    scores = np.maximum(found[0], 0) ** 0.6 * np.maximum(found[5:].max(axis=0), 0) ** 0.4
    return Detections(boxes, scores.reshape(-1), found[5:].argmax(axis=0).reshape(-1))


def decode_retinaface(outputs: Mapping[str, Array]) -> Detections:
    """Return the rows of a detection_output operator."""
    rows = next(iter(outputs.values())).reshape(-1, 7)
    rows = rows[rows[:, 2] > 0]
    return Detections(rows[:, 3:7], rows[:, 2], rows[:, 1])


def _of_one_class(boxes: Array, scores: Array) -> Detections:
    return Detections(boxes, scores, np.zeros(len(scores)))


@dataclass(frozen=True)
class Detector:
    """A trained detector: its images, the decoding of its outputs, and the score threshold of its authors."""

    images: str
    decode: Decode
    threshold: float


DETECTORS = {
    "yunet_n_320_onnx": Detector("faces", decode_yunet, 0.6),
    "ultraface_rfb_320_onnx": Detector("faces", decode_ultraface, 0.7),
    "fastestdet_coco_onnx": Detector("coco", decode_fastestdet, 0.5),
    "retinaface_mnet_caffe": Detector("faces", decode_retinaface, 0.5),
}


def overlap(a: Array, b: Array) -> Array:
    """Intersection over union of boxes [n, 4] and [m, 4]: [n, m]."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1) for boxes in (a, b)]
    result: Array = shared / np.maximum(areas[0][:, None] + areas[1][None, :] - shared, 1e-12)
    return result


def filter_detections(found: Detections, threshold: float) -> Detections:
    """Return detections above a score threshold after non-maximum suppression within each class."""
    found = found.select(np.flatnonzero(found.scores >= threshold))
    found = found.select(np.argsort(-found.scores, kind="stable"))
    same = found.classes[:, None] == found.classes[None, :]
    overlaps = (overlap(found.boxes, found.boxes) > NMS_IOU) & same
    kept: list[int] = []
    for index in range(len(found.scores)):
        if not overlaps[index, kept].any():
            kept.append(index)
    return found.select(np.array(kept, int))


def count_kept(wanted: Detections, found: Detections) -> int:
    """Number of wanted detections with a partner of the same class, each found detection being used once."""
    matches = (overlap(wanted.boxes, found.boxes) >= IOU) & (wanted.classes[:, None] == found.classes[None, :])
    used: set[int] = set()
    for row in matches:
        partner = next((int(i) for i in np.flatnonzero(row) if int(i) not in used), None)
        if partner is not None:
            used.add(partner)
    return len(used)


def images_of(root: Path, detector: Detector) -> tuple[list[Path], list[Path]]:
    """Return calibration and evaluation images. COCO pictures show people, so that face detectors use them too."""
    coco, faces = (sorted((root / "images" / name).glob("*.jpg")) for name in ("coco", "faces"))
    return coco[::2], coco[1::2] + (faces if detector.images == "faces" else [])


def measure(name: str, chip: str, **options: Any) -> tuple[int, int]:
    """Return the number of float detections, and how many of them the INT8 model keeps."""
    root = data_root()
    entry: Entry = entries(root)[name]
    detector = DETECTORS[name]
    given = {key: value for key, value in entry["preprocessing"].items() if key not in ("kind", "images")}
    load = Preprocess.from_mapping(given).load
    calibration, evaluation = images_of(root, detector)
    source, weights = model_files(root, entry)
    call: dict[str, Any] = {"weights": weights, "chip": chip, "input_shapes": input_shapes(entry)}
    models = [
        tc.convert(source, **call),
        tc.convert(source, **call, quantize="int8", calibration=[load(path) for path in calibration], **options),
    ]
    total = kept = 0
    with tc.Session(models[0]) as exact, tc.Session(models[1]) as integer:
        for path in evaluation:
            feed = {entry["inputs"][0]["name"]: load(path)}
            wanted, found = (
                filter_detections(detector.decode(session.run(feed)), detector.threshold)
                for session in (exact, integer)
            )
            total += len(wanted.scores)
            kept += count_kept(wanted, found)
    return total, kept


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("detectors", nargs="*", help=", ".join(DETECTORS))
    parser.add_argument("--chip", default="bm1686")
    parser.add_argument("--method", default="auto")
    options = parser.parse_args()
    print(f"chip {options.chip}, calibration {options.method}")
    print("| detector | float detections | kept | share |\n| --- | --- | --- | --- |")
    for name in options.detectors or DETECTORS:
        total, kept = measure(name, options.chip, calibration_method=options.method)
        print(f"| {name} | {total} | {kept} | {100 * kept / max(total, 1):.1f} % |", flush=True)


if __name__ == "__main__":
    main()
