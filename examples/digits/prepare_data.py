"""Makes ``digits.npz`` and ``calibration.npz`` from the published text file: ``python prepare_data.py optdigits.tes``.

The text has one image per line: 64 counts (0 to 16, row by row) and the digit, separated by commas. The same file comes
with scikit-learn as ``sklearn/datasets/data/digits.csv.gz``; a file whose name ends in ``.gz`` is decompressed.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CALIBRATION_PER_CLASS = 10
TEST_PER_CLASS = 50
SPLIT_SEED = 20


def split_indices(labels: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.uint16]]:
    """Splits the images into three parts. Calibration and test get the same number of images of every class."""
    random = np.random.RandomState(SPLIT_SEED)  # the legacy generator: its stream is frozen for all NumPy versions
    parts: dict[str, list[Any]] = {"train": [], "calibration": [], "test": []}
    for digit in range(10):
        order = random.permutation(np.flatnonzero(labels == digit))
        parts["calibration"].extend(order[:CALIBRATION_PER_CLASS])
        parts["test"].extend(order[CALIBRATION_PER_CLASS : CALIBRATION_PER_CLASS + TEST_PER_CLASS])
        parts["train"].extend(order[CALIBRATION_PER_CLASS + TEST_PER_CLASS :])
    return {name: np.sort(np.array(part)).astype(np.uint16) for name, part in parts.items()}


def main(source: str, target: Path) -> None:
    """Reads the text file ``source``; writes the archive ``target``, and ``calibration.npz`` in the same folder."""
    table = np.loadtxt(source, delimiter=",")
    if table.shape != (1797, 65) or table.min() < 0 or table.max() > 16:
        raise SystemExit(f"{source}: expected 1797 lines of 64 counts (0 to 16) and a label, found {table.shape}")
    images = table[:, :64].reshape(-1, 8, 8).astype(np.uint8)
    labels = table[:, 64].astype(np.uint8)
    parts = split_indices(labels)
    np.savez_compressed(target.with_name("calibration.npz"), images=images[parts["calibration"]])
    np.savez_compressed(target, images=images, labels=labels, **parts)  # type: ignore[arg-type]  # numpy/numpy#22662: the stub takes every keyword for allow_pickle


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1], Path(__file__).parent / "digits.npz")
