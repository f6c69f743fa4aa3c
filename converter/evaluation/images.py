"""Image files: their sizes, and label images of segmentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.samples.preprocess import INSTALL_PILLOW
from tpuconvert.schema.errors import CorruptInputError, MissingExtraError, UsageError
from tpuconvert.schema.input_files import note_input
from tpuconvert.schema.types import Array


def image_size(path: Path) -> tuple[int, int]:
    """Return (height, width) of an image file in pixels, without decoding it.

    Raises:
        MissingExtraError: Pillow is not installed.
        CorruptInputError: the file is not an image.

    """
    with _open(path) as image:
        width, height = image.size
        return height, width


def read_label_image(path: Path) -> Array:
    """Return the classes of the pixels, int64 [height, width]: palette indices, or gray values.

    Raises:
        UsageError: the image has colors.
        CorruptInputError: the file is not an image, or is damaged.

    """
    note_input(path)
    with _open(path) as image:
        if len(image.getbands()) != 1:
            bands = "".join(image.getbands())
            raise UsageError(f"{path}: label image with channels {bands}", hint="a gray or palette PNG holds classes")
        try:
            return np.asarray(image).astype(np.int64)
        except OSError as error:
            raise CorruptInputError(f"a damaged image: {error}", file=str(path)) from error


def _open(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("reading images needs Pillow", file=str(path), hint=INSTALL_PILLOW) from error
    try:
        return Image.open(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, Image.DecompressionBombError) as error:
        raise CorruptInputError(f"not an image, or a damaged one: {error}", file=str(path)) from error
