"""Conversion of the data set's models in the variants that the native engine supports."""

from __future__ import annotations

from pathlib import Path

import tpuconvert as tc
from tools.accuracy.datasets import Entry, entries, input_shapes, model_files, reference_samples
from tpuconvert.conversion.options.options import Options, group_options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.schema.types import Array

CALIBRATION = 8
FEEDS = 2


def is_quantized(entry: Entry) -> bool:
    """Return True if the source file is quantized."""
    return any("quantization" in item for item in (*entry["inputs"], *entry["outputs"])) or "qlinear" in entry["id"]


def convert_model(
    root: Path, name: str, chip: str, how: str, **further: object
) -> tuple[tc.Model, list[dict[str, Array]]]:
    """The model as in its source (``source``, ``float``) or quantized (``int8``, ``exact``), with samples.

    Args:
        root: data folder.
        name: name of the model.
        chip: the target.
        how: the variant.
        further: further options of the conversion.
    """
    entry = entries(root)[name]
    source, weights = model_files(root, entry)
    shapes = input_shapes(entry)
    # The data set has tensor names, which may differ from the names of a TFLite signature; the order is equal.
    ports = load_source(Source(source, weights), Options(input_shapes=dict(shapes or {}))).input_ports
    inputs = [port.name for port in ports]
    feeds = [dict(zip(inputs, sample.values(), strict=True)) for sample, _ in reference_samples(root, entry)]
    options = {"quantize": "int8", "calibration": feeds[:CALIBRATION]} if how in ("int8", "exact") else {}
    if how == "exact":
        options["exact_on"] = chip
    model = tc.convert(source, weights=weights, chip=chip, **group_options(input_shapes=shapes, **options, **further))
    return model, feeds[:FEEDS]
