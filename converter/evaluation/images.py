"""Image files: their sizes, and label images of segmentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tpuconvert.samples.image_files import open_image
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.types import Array


def image_size(path: Path) -> tuple[int, int]:
    """Return (height, width) of an image file in pixels, without decoding it.

    Raises:
        MissingExtraError: Pillow is not installed.
        CorruptInputError: the file is not an image.

    """
    with open_image(path) as image:
        width, height = image.size
    return height, width


def read_label_image(path: Path) -> Array:
    """Return the classes of the pixels, int64 [height, width]: palette indices, or gray values.

    Raises:
        UsageError: the image has colors.
        CorruptInputError: the file is not an image, or is damaged.

    """
    note_input(path)
    with open_image(path) as image:
        bands = "".join(image.getbands())
        pixels: Array = np.asarray(image)
    if len(bands) != 1:
        raise UsageError(f"{path}: label image with channels {bands}", hint="a gray or palette PNG holds classes")
    return pixels.astype(np.int64)
