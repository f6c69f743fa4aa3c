"""Differences from the source engines' outputs on the test models, as a Markdown table.

    python -m tools.exactness.references [MODEL ...]

Models are converted without quantization: a float model in float, a quantized model with its own integers. For float
outputs, the largest difference is given as a share of the output's range. For integer outputs, it is given in steps,
with the share of equal integers.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

import tpuconvert as tc
from tools.accuracy.datasets import data_root, entries, input_shapes, model_files, reference_samples
from tpuconvert.schema.types import Array

HEADING = ("model", "nodes", "seconds to convert", "samples", "largest difference", "equal integers")


def difference(actual: Array, want: Array) -> tuple[float, float]:
    """Return the largest difference (floats: share of the range; integers: steps) and the share of equal elements."""
    apart = np.abs(actual.astype(np.float64) - want.astype(np.float64))
    unit = 1.0 if want.dtype.kind in "iu" else float(np.ptp(want)) or 1.0
    return float(apart.max()) / unit, float((apart == 0).mean())


def measure(name: str) -> tuple[str, ...]:
    """Return the table row of one model."""
    root = data_root()
    entry = entries(root)[name]
    source, weights = model_files(root, entry)
    start = time.perf_counter()
    model = tc.convert(source, weights=weights, source_options=tc.SourceOptions(input_shapes=input_shapes(entry)))
    seconds = time.perf_counter() - start
    samples = reference_samples(root, entry)
    rows = []
    with tc.Session(model) as session:
        for feeds, expected in samples:
            results = session.run(feeds)
            rows += [difference(results[output], want) for output, want in expected.items()]
    worst, equal = max(row[0] for row in rows), float(np.mean([row[1] for row in rows]))
    integers = all(want.dtype.kind in "iu" for want in samples[0][1].values())
    cells = (f"{worst:.0f} steps", f"{100 * equal:.2f} %") if integers else (f"{worst:.1e}", "")
    return (name, str(len(model.graph)), f"{seconds:.2f}", str(len(samples)), *cells)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    chosen = parser.parse_args().models or list(entries(data_root()))
    print("| " + " | ".join(HEADING) + " |")
    print("|" + " --- |" * len(HEADING))
    for name in chosen:
        print("| " + " | ".join(measure(name)) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
