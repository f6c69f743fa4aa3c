"""Models of the data set in the forms that the native engine runs, for tests that go through all of them."""

import json
import os
from pathlib import Path

from datasets import entries, input_shapes, model_files, reference_samples

import tpuconvert as tc
from tpuconvert.options import Options
from tpuconvert.schema.types import Array
from tpuconvert.source_loading import load_source

CALIBRATION = 8
FEEDS = 2


def names() -> list[str]:
    """Models of the manifest, if it is there when tests are collected."""
    named = os.environ.get("TPUCONVERT_TEST_DATA")
    root = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    manifest = root / "manifest.json"
    return [item["id"] for item in json.loads(manifest.read_text("utf-8"))["models"]] if manifest.is_file() else []


def is_quantized(entry) -> bool:
    """Return True if the source file is quantized."""
    return any("quantization" in item for item in (*entry["inputs"], *entry["outputs"])) or "qlinear" in entry["id"]


def converted(root: Path, name: str, chip: str, how: str) -> tuple[tc.Model, list[dict[str, Array]]]:
    """The model as its source is (``source``, ``float``) or quantized (``int8``), and samples."""
    entry = entries(root)[name]
    source, weights = model_files(root, entry)
    shapes = input_shapes(entry)
    # The data set has the names of the tensors, which may differ from those of a TFLite signature; the order is equal.
    ports = load_source(source, weights, Options(input_shapes=dict(shapes or {}))).input_ports
    inputs = [port.name for port in ports]
    feeds = [dict(zip(inputs, sample.values(), strict=True)) for sample, _ in reference_samples(root, entry)]
    options = {"quantize": "int8", "calibration": feeds[:CALIBRATION]} if how == "int8" else {}
    model = tc.convert(source, weights=weights, input_shapes=shapes, chip=chip, **options)
    return model, feeds[:FEEDS]
