"""Image files, opened with Pillow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuconvert.schema.errors import CorruptInputError, MissingExtraError, ResourceLimitError, UsageError
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.bounded_files import check_regular
from tpuconvert.schema.system.limits import current_limits, exceeded

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")

INSTALL_PILLOW = "pip install 'tpuconvert[images]'"

_SHOWN = 3
"""Number of array files that an error names."""


def images_in(folder: Path) -> list[Path]:
    """Return the image files of a folder, sorted by name.

    Raises:
        UsageError: there are none, or one is a link whose file is missing.

    """
    every = sorted(folder.iterdir())
    entries = [entry for entry in every if entry.is_file()]
    images = [entry for entry in entries if entry.suffix.lower() in IMAGE_SUFFIXES]
    for entry in every:
        if entry.suffix.lower() in IMAGE_SUFFIXES and entry.is_symlink() and not entry.exists():
            message = f"{entry}: a link to a file that does not exist"
            raise UsageError(message, hint="leave it out, or copy the image to its place")
    if not images:
        arrays = [entry.name for entry in entries if entry.suffix.lower() in (".npz", ".npy")]
        hint = f"known: {', '.join(IMAGE_SUFFIXES)}"
        if arrays:
            shown = ", ".join(arrays[:_SHOWN]) + (" ..." if len(arrays) > _SHOWN else "")
            hint = f"it has arrays: {shown}; give one of these files instead of the folder"
        raise UsageError(f"{folder}: no images in this folder", hint=hint)
    return images


@contextmanager
def open_image(path: Path) -> Iterator[Any]:
    """Open an image file as a PIL image. Errors while it is decoded in the ``with`` block are converted, too.

    Raises:
        MissingExtraError: Pillow is not installed.
        CorruptInputError: the file is not an image, or is damaged.
        ResourceLimitError: the image has more pixels than the limit.

    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("reading images needs Pillow", file=str(path), hint=INSTALL_PILLOW) from error
    try:
        check_regular(path)
        with Image.open(path) as image:
            limit = current_limits().max_image_pixels
            if image.width * image.height > limit:
                raise exceeded(f"{image.width} x {image.height} pixels", "max_image_pixels", file=str(path))
            yield image
    except FileNotFoundError:
        raise absent_file(path) from None
    except Image.DecompressionBombError as error:  # twice Pillow's own limit, which is above the default of ours
        raise ResourceLimitError(str(error), file=str(path), hint="make the image smaller first") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # all of these are raised by Pillow's decoders
        raise CorruptInputError(
            f"not an image, or a damaged one: {error}", file=str(path), hint="leave it out, or copy it again"
        ) from error
