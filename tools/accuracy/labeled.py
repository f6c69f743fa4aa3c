"""Top-1 accuracy of the labeled test models in float and INT8, as a Markdown table.

    python -m tools.accuracy labeled [--chip bm1686] [--method auto] [--exact-on bm1684] [MODEL ...]

Columns: float top-1, INT8 top-1, difference in points, share of samples whose predicted class changed, mean cosine
similarity of the outputs, nodes that stayed float, seconds per INT8 sample.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import tpuconvert as tc
from tools.accuracy.datasets import Entry, LabeledSet, data_root, entries, input_shapes, labeled_set, model_files
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Row:
    """Measurements of one model.

    Args:
        model: its id in the manifest.
        images: number of labeled samples.
        float_correct: samples that the float model classifies correctly.
        int8_correct: the same for the INT8 model.
        flips: samples whose predicted class changed.
        cosine: mean cosine similarity of the outputs of both models.
        float_nodes: nodes that stayed float.
        seconds: time per INT8 sample.
    """

    model: str
    images: int
    float_correct: int
    int8_correct: int
    flips: int
    cosine: float
    float_nodes: int
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """Cells of the table row."""
        share = 100 / self.images
        return (
            self.model,
            str(self.images),
            f"{share * self.float_correct:.2f}",
            f"{share * self.int8_correct:.2f}",
            f"{share * (self.int8_correct - self.float_correct):+.2f}",
            f"{share * self.flips:.2f}",
            f"{self.cosine:.5f}",
            str(self.float_nodes),
            f"{self.seconds:.4f}",
        )


HEADING = ("model", "samples", "float", "INT8", "difference", "changed %", "cosine", "float nodes", "s/sample")


def classifiers() -> list[str]:
    """Ids of the labeled models that can be quantized."""
    return [
        name
        for name, entry in entries(data_root()).items()
        if "labels" in entry and not any("quantization" in item for item in entry["inputs"]) and "lstm" not in name
        and "qlinear" not in name
    ]  # fmt: skip


def scores(model: tc.Model, samples: list[Array]) -> tuple[Array, float]:
    """Return the first output, one row per sample, and the seconds per sample."""
    with tc.Session(model) as session:
        (name,) = (item.name for item in session.inputs)
        start = time.perf_counter()
        rows = [next(iter(session.run({name: x}).values())).reshape(-1).astype(np.float64) for x in samples]
        return np.array(rows), (time.perf_counter() - start) / len(samples)


def measure(entry: Entry, data: LabeledSet, chip: str, method: str, exact_on: str = "none") -> Row:
    """Convert a float model to float and to INT8, and compare their accuracy."""
    source, weights = model_files(data_root(), entry)
    shapes = input_shapes(entry)
    reference = tc.convert(source, weights=weights, chip=chip, source_options=tc.SourceOptions(input_shapes=shapes))
    quantized = tc.convert(
        source,
        weights=weights,
        chip=chip,
        source_options=tc.SourceOptions(input_shapes=shapes),
        quantize=tc.Quantization(calibration_method=method, exact_on=exact_on),
        calibration=data.calibration,
    )
    labels = np.array(data.labels) + entry["labels"]["output_offset"]
    before, _ = scores(reference, data.samples)
    after, seconds = scores(quantized, data.samples)
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosines = (before * after).sum(axis=1) / np.maximum(norms, np.finfo(np.float64).tiny)
    classes = before.argmax(axis=1), after.argmax(axis=1)
    floats = sum(note.kind == "float" for note in quantized.notes)
    return Row(
        entry["id"],
        len(labels),
        int((classes[0] == labels).sum()),
        int((classes[1] == labels).sum()),
        int((classes[0] != classes[1]).sum()),
        float(cosines.mean()),
        floats,
        seconds,
    )


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.accuracy labeled", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--chip", default="bm1686")
    parser.add_argument("--method", default="auto", choices=("auto", "minmax", "kl", "mse"))
    parser.add_argument("--exact-on", default="none", choices=("none", "bm1684x", "bm1688", "bm1684"))
    options = parser.parse_args(arguments)
    all_entries = entries(data_root())
    chosen = options.models or classifiers()
    print(f"chip {options.chip}, calibration {options.method}")
    print("| " + " | ".join(HEADING) + " |")
    print("|" + " --- |" * len(HEADING))
    for name in chosen:
        data = labeled_set(data_root(), all_entries[name])
        row = measure(all_entries[name], data, options.chip, options.method, options.exact_on)
        print("| " + " | ".join(row.cells()) + " |", flush=True)
    return 0
