"""The bundled example: a network for handwritten digits in three source formats, and its images."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

SOURCES = {
    "onnx": ("digits.onnx", None, "NCHW"),
    "tflite": ("digits.tflite", None, "NHWC"),
    "caffe": ("digits.prototxt", "digits.caffemodel", "NCHW"),
}
"""Source format -> source file, weights file, layout of the input."""

PIXELS = "color=GRAY,scale=0.0625"
"""Scale of the pixels: the images contain ink counts from 0 to 16, but the network was trained on 0 to 1."""


def example_folder() -> Path:
    """Return the folder of the example, in a checkout or an installed package.

    Raises:
        UsageError: this installation does not contain the example.

    """
    folder = Path(str(resources.files("tpuconvert.examples"))) / "digits"
    if not (folder / "digits.npz").is_file():
        raise UsageError(
            f"the example is not part of this installation: {folder}",
            hint="install tpuconvert with its data files, or run 'make demo' in a checkout",
        )
    return folder


def load_part(folder: Path, name: str) -> tuple[Array, Array]:
    """Load images (uint8 [N, 8, 8]) and labels of one part of the data: ``calibration`` or ``test``."""
    with np.load(folder / "digits.npz") as archive:
        chosen = archive[name]
        return archive["images"][chosen], archive["labels"][chosen]
