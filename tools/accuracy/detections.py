"""Share of float detections that INT8 models keep, as a Markdown table.

    python -m tools.accuracy.detections [--chip bm1686] [--method mse] [DETECTOR ...]

A float detection is kept if the INT8 model detects the same class with an intersection over union of at least 0.9,
above the same score threshold. Calibration and evaluation images are different ones.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tpuconvert as tc
from tools.accuracy.datasets import Entry, data_root, entries, input_shapes, model_files
from tpuconvert.conversion.options.options import group_options
from tpuconvert.samples.preprocess import Preprocess

NMS_IOU = 0.4
"""Of two detections of a class with a larger overlap, the one with the smaller score is dropped."""


@dataclass(frozen=True)
class Detector:
    """A trained detector: its images, the decoding of its outputs, and the score threshold of its authors."""

    images: str
    decode: str
    threshold: float


DETECTORS = {
    "yunet_n_320_onnx": Detector("faces", "yunet", 0.6),
    "ultraface_rfb_320_onnx": Detector("faces", "ssd", 0.7),
    "fastestdet_coco_onnx": Detector("coco", "fastestdet", 0.5),
    "retinaface_mnet_caffe": Detector("faces", "detection_output", 0.5),
}


def images_of(root: Path, detector: Detector) -> tuple[list[Path], list[Path]]:
    """Return calibration and evaluation images. COCO pictures show people, so that face detectors use them too."""
    coco, faces = (sorted((root / "images" / name).glob("*.jpg")) for name in ("coco", "faces"))
    return coco[::2], coco[1::2] + (faces if detector.images == "faces" else [])


def measure(name: str, chip: str, **options: Any) -> tuple[int, int]:
    """Return the number of float detections, and how many of them the INT8 model keeps."""
    root = data_root()
    entry: Entry = entries(root)[name]
    detector = DETECTORS[name]
    preprocessing = {key: value for key, value in entry["preprocessing"].items() if key not in ("kind", "images")}
    preprocess = Preprocess.from_mapping(preprocessing)
    calibration, evaluation = images_of(root, detector)
    source, weights = model_files(root, entry)
    call: dict[str, Any] = {"weights": weights, "chip": chip, "input_shapes": input_shapes(entry)}
    samples = [preprocess.load(path) for path in calibration]
    measures = tc.evaluate(
        tc.convert(source, calibration=samples, **group_options(quantize="int8", **call, **options)),
        evaluation,
        metrics="map",
        reference=tc.convert(source, **group_options(**call)),
        unlabeled=True,
        decode=detector.decode,
        preprocess=preprocess,
        min_score=detector.threshold,
        nms_iou=NMS_IOU,
    )
    total = int(measures.agreement["detections"])
    return total, round(measures.agreement["kept"] * total)


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
