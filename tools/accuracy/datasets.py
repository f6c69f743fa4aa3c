"""The public test data as arrays: inputs of a model, labels, calibration samples, as described in the manifest.

The folder is the one that tests use (TPUCONVERT_TEST_DATA, or shared/data beside the checkout).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.types import Array

Entry = dict[str, Any]

MNIST_CALIBRATION = 100
"""Number of first MNIST images that are used for calibration. The others are for evaluation."""


def data_root() -> Path:
    """Return the data folder.

    Raises:
        SystemExit: the folder does not exist.
    """
    named = os.environ.get("TPUCONVERT_TEST_DATA")
    root = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    if not (root / "manifest.json").is_file():
        raise SystemExit(f"{root} has no manifest.json: name the data folder in TPUCONVERT_TEST_DATA")
    return root


def entries(root: Path) -> dict[str, Entry]:
    """Return the entries of the manifest by model id."""
    models = json.loads((root / "manifest.json").read_text(encoding="utf-8"))["models"]
    return {entry["id"]: entry for entry in models}


def model_files(root: Path, entry: Entry) -> tuple[Path, Path | None]:
    """Return the model file, and for Caffe the weights file, otherwise None."""
    folder = root / "models" / entry["id"]
    if entry["format"] == "caffe":
        return folder / "deploy.prototxt", folder / "model.caffemodel"
    return folder / f"model.{entry['format']}", None


def input_shapes(entry: Entry) -> dict[str, tuple[int, ...]]:
    """Return the input shapes for which the reference results were computed."""
    return {item["name"]: tuple(item["shape"]) for item in entry["inputs"]}


def reference_samples(root: Path, entry: Entry) -> list[tuple[dict[str, Array], dict[str, Array]]]:
    """Return one pair per sample: inputs, and outputs of the source engine, by name."""
    arrays = np.load(root / entry["reference"]["file"])
    samples = []
    for index in range(entry["reference"]["samples"]):
        suffix = f"_s{index}" if index else ""
        feeds = {item["name"]: arrays[f"in{number}{suffix}"] for number, item in enumerate(entry["inputs"])}
        outputs = {item["name"]: arrays[f"out{number}{suffix}"] for number, item in enumerate(entry["outputs"])}
        samples.append((feeds, outputs))
    return samples


@dataclass(frozen=True)
class LabeledSet:
    """Calibration samples, evaluation samples and labels of one model's single input, one sample per entry."""

    calibration: list[Array]
    samples: list[Array]
    labels: list[int]


def labeled_set(root: Path, entry: Entry) -> LabeledSet:
    """Load the labeled set of a manifest entry, preprocessed for the model."""
    kind = entry["labels"]["set"]
    if kind == "imagenet":
        return _imagenet(root, entry)
    if kind == "vww":
        return _person(root, entry)
    return _cifar10(root, entry) if kind == "cifar10" else _mnist(root, entry)


def _imagenet(root: Path, entry: Entry) -> LabeledSet:
    folder = root / "images" / "imagenet"
    images = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["images"]
    chosen = [image for image in images if image["role"] == "eval"]
    calibration = [image for image in images if image["role"] == "calib"]
    return LabeledSet(
        [_image(folder / image["file"], entry) for image in calibration],
        [_image(folder / image["file"], entry) for image in chosen],
        [image["label"] for image in chosen],
    )


def _person(root: Path, entry: Entry) -> LabeledSet:
    """Load the person data: all labeled images are for evaluation, images of another set for calibration."""
    folder = root / "images" / "coco"
    images = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["images"]
    other = root / "images" / "imagenet"
    calibration = json.loads((other / "labels.json").read_text(encoding="utf-8"))["images"]
    return LabeledSet(
        [_image(other / image["file"], entry) for image in calibration if image["role"] == "calib"],
        [_image(folder / image["file"], entry) for image in images],
        [image["person"] for image in images],
    )


def _image(path: Path, entry: Entry) -> Array:
    given = {key: value for key, value in entry["preprocessing"].items() if key not in ("kind", "images")}
    return _to_stored_dtype(Preprocess.from_mapping(given).load(path), entry)


def _cifar10(root: Path, entry: Entry) -> LabeledSet:
    folder = root / "images" / "cifar10"
    how = entry["preprocessing"]
    mean = np.load(folder / how["mean"]) if how.get("mean", "none") != "none" else np.float32(0)

    def prepare(images: Array) -> list[Array]:
        x = images.astype(np.float32) - mean
        x = x.transpose(0, 3, 1, 2) if how["layout"] == "NCHW" else x
        return [_to_stored_dtype(np.ascontiguousarray(image[np.newaxis]), entry) for image in x]

    test = np.load(folder / "test.npz")
    return LabeledSet(
        prepare(np.load(folder / "calib.npz")["images"]), prepare(test["images"]), test["labels"].tolist()
    )


def _mnist(root: Path, entry: Entry) -> LabeledSet:
    test = np.load(root / "images" / "mnist" / "test.npz")
    how = entry["preprocessing"]
    x = test["images"].astype(np.float32) * np.float32(how["scale"])
    samples = [_to_stored_dtype(image.reshape(how["shape"]), entry) for image in x]
    split = MNIST_CALIBRATION
    return LabeledSet(samples[:split], samples[split:], test["labels"].tolist()[split:])


def _to_stored_dtype(x: Array, entry: Entry) -> Array:
    """Convert a sample to the type of the model's input; quantize it if the input is quantized."""
    declared = entry["inputs"][0]
    if "quantization" not in declared:
        return x
    limits = np.iinfo(declared["dtype"])
    scale, zero_point = declared["quantization"]["scale"], declared["quantization"]["zero_point"]
    stored: Array = np.clip(np.round(x / scale) + zero_point, limits.min, limits.max).astype(declared["dtype"])
    return stored
