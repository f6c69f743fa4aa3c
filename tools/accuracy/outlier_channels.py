"""Print the accuracy of INT8 transformers with outlier channels.

    python -m tools.accuracy.outlier_channels [--seeds 4] [--hard]

The networks are small, with random weights (``tools/bench/outliers.py``); ``--hard`` changes them so that any error
costs more. The similarity compares the outputs with the float model over samples that calibration has not seen; the
similarity of a network is the lowest one of its outputs. The table has the lowest and the median of all seeds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tools.bench.outliers import HARD, OUTLIER_NETWORKS, OutlierNetwork, Outliers
from tpuconvert.model.integer_share import integer_share
from tpuconvert.schema.types import Array

CHIPS = ("bm1686", "bm1684")
CALIBRATION, EVALUATION = 32, 32
"""Number of samples."""

ENOUGH = 0.995
"""Goal for the similarity."""


def similarities(network: OutlierNetwork, path: Path, model: tc.Model, seed: int) -> dict[str, float]:
    """Cosine similarity of every output to the float model."""
    sums: dict[str, Array] = {}
    with tc.Session(tc.convert(path)) as floats, tc.Session(model) as integers:
        for feeds in network.feeds(EVALUATION, 2000 + seed):
            expected, actual = floats.run(feeds), integers.run(feeds)
            for name, array in expected.items():
                a, b = array.astype(np.float64).ravel(), actual[name].astype(np.float64).ravel()
                sums[name] = sums.get(name, np.zeros(3)) + np.array((a @ b, a @ a, b @ b))
    return {name: float(ab / np.sqrt(aa * bb)) for name, (ab, aa, bb) in sums.items()}


def measure(
    network: OutlierNetwork, outliers: Outliers, chip: str, seeds: int, without: Sequence[str], folder: Path
) -> tuple[list[float], float]:
    """Lowest similarity of the outputs for every seed, and lowest share of INT8."""
    cosines: list[float] = []
    shares = []
    for seed in range(seeds):
        path = folder / f"{network.name}.onnx"
        network.write(path, seed, outliers)
        samples = network.feeds(CALIBRATION, 1000 + seed)
        model = tc.convert(path, chip=chip, quantize=tc.Quantization(without=without), calibration=samples)
        cosines.append(min(similarities(network, path, model, seed).values()))
        shares.append(integer_share(model.graph.nodes) or 0.0)
    return cosines, min(shares)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="number of networks of each kind")
    parser.add_argument("--hard", action="store_true", help="more variation of the channels, sharper attention")
    arguments = parser.parse_args()
    seeds, outliers = arguments.seeds, HARD if arguments.hard else Outliers()
    print("| network | chip | cosine without `balancing` | cosine | at least 0.995 | INT8 share |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for network in OUTLIER_NETWORKS.values():
            for chip in CHIPS:
                plain, _ = measure(network, outliers, chip, seeds, ["balancing"], Path(folder))
                cosines_of_seeds, share = measure(network, outliers, chip, seeds, [], Path(folder))
                cosines = " | ".join(
                    f"{min(each):.4f}, {statistics.median(each):.4f}" for each in (plain, cosines_of_seeds)
                )
                enough = f"{sum(cosine >= ENOUGH for cosine in cosines_of_seeds)} of {seeds}"
                print(f"| {network.name} | {chip.upper()} | {cosines} | {enough} | {share:.1%} |", flush=True)


if __name__ == "__main__":
    main()
