"""Top-1 accuracy of the labelled test models in float and INT8, as a Markdown table.

    python tools/accuracy.py [--chip bm1686] [--method auto] [MODEL ...]

Columns: float top-1, INT8 top-1, difference in points, share of samples whose predicted class changed, nodes that
stayed float, seconds per INT8 sample.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np
from datasets import Entry, LabelledSet, data_root, entries, input_shapes, labelled_set, model_files

import tpuconvert as tc
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Row:
    """Measurements of one model."""

    model: str
    count: int
    float_top1: float
    int8_top1: float
    changed: float
    float_nodes: int
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """Cells of the table row."""
        return (
            self.model,
            str(self.count),
            f"{100 * self.float_top1:.2f}",
            f"{100 * self.int8_top1:.2f}",
            f"{100 * (self.int8_top1 - self.float_top1):+.2f}",
            f"{100 * self.changed:.2f}",
            str(self.float_nodes),
            f"{self.seconds:.4f}",
        )


HEADING = ("model", "samples", "float", "INT8", "difference", "changed %", "float nodes", "s/sample")


def predictions(model: tc.Model, samples: list[Array]) -> tuple[Array, float]:
    """Return the predicted classes, and the seconds per sample."""
    with tc.Session(model) as session:
        (name,) = (item.name for item in session.inputs)
        start = time.perf_counter()
        found = [int(np.argmax(next(iter(session.run({name: x}).values())))) for x in samples]
        return np.array(found), (time.perf_counter() - start) / len(samples)


def measure(entry: Entry, data: LabelledSet, chip: str, method: str) -> Row:
    """Convert a float model to float and to INT8, and compare their accuracy."""
    source, weights = model_files(data_root(), entry)
    shapes = input_shapes(entry)
    reference = tc.convert(source, weights=weights, chip=chip, input_shapes=shapes)
    quantized = tc.convert(
        source,
        weights=weights,
        chip=chip,
        input_shapes=shapes,
        quantize="int8",
        calibration=data.calibration,
        calibration_method=method,
    )
    labels = np.array(data.labels) + entry["labels"]["output_offset"]
    before, _ = predictions(reference, data.samples)
    after, seconds = predictions(quantized, data.samples)
    floats = sum(note.kind == "float" for note in quantized.notes)
    return Row(
        entry["id"],
        len(labels),
        float((before == labels).mean()),
        float((after == labels).mean()),
        float((before != after).mean()),
        floats,
        seconds,
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--chip", default="bm1686")
    parser.add_argument("--method", default="auto", choices=("auto", "minmax", "kl", "mse"))
    options = parser.parse_args()
    known = entries(data_root())
    chosen = options.models or [
        name
        for name, entry in known.items()
        if "labels" in entry and not any("quantization" in item for item in entry["inputs"]) and "lstm" not in name
        and "qlinear" not in name
    ]  # fmt: skip
    print(f"chip {options.chip}, calibration {options.method}")
    print("| " + " | ".join(HEADING) + " |")
    print("|" + " --- |" * len(HEADING))
    for name in chosen:
        row = measure(known[name], labelled_set(data_root(), known[name]), options.chip, options.method)
        print("| " + " | ".join(row.cells()) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
