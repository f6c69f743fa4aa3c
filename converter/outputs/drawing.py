"""Drawn results: the interpretation of a model's outputs for one image together with its picture."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.outputs.interpretation import Interpretation
from tpuconvert.outputs.picture import draw_results, import_pillow, save_picture
from tpuconvert.samples.image_files import open_image
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import Array
from tpuconvert.text.styled_text import join_lines


@dataclass(frozen=True)
class Drawing:
    """Results of a model for one image, and their picture.

    Args:
        found: the results, in pixels of the image.
        image: the image, a PIL image in RGB.

    """

    found: Interpretation
    image: Any

    @cached_property
    def picture(self) -> Any:
        """The image with the results drawn on it, a PIL image."""
        return draw_results(self.image, self.found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as PNG or JPEG, as the suffix states.

        Raises:
            UsageError: the suffix is another one, or the file cannot be written.

        """
        save_picture(self.picture, Path(path))

    def to_dict(self) -> dict[str, Any]:
        """Return the results as plain values."""
        return self.found.to_dict()

    def __str__(self) -> str:
        return join_lines(self.found.lines())

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.picture.save(buffer, "PNG")
        return buffer.getvalue()


def dequantize_outputs(outputs: Mapping[str, Array], ports: list[Port]) -> dict[str, Array]:
    """Return the outputs of a run in floats: integers of a quantized output are dequantized."""
    quants = {port.name: port.quant for port in ports}
    floats = {}
    for name, array in outputs.items():
        quant = quants[name]
        floats[name] = quant.dequantize(array) if quant is not None and array.dtype.kind in "iu" else array
    return floats


def sample_outputs(outputs: Mapping[str, Array], count: int) -> list[dict[str, Array]]:
    """Return the outputs of each of ``count`` samples of one run, with a batch axis of extent 1.

    Raises:
        UsageError: an output has another number of samples.

    """
    if count == 1:
        return [dict(outputs)]
    for name, array in outputs.items():
        if array.shape[:1] != (count,):
            raise UsageError(
                f"output '{name}' {list(array.shape)} is not one row for each of the {count} images of a batch",
                hint="convert the model with batch size 1 (--input-shapes) to draw its results",
            )
    return [{name: array[index : index + 1] for name, array in outputs.items()} for index in range(count)]


def as_picture(image: Any) -> Any:
    """Return an image as a PIL image in RGB: a path, a PIL image, or a uint8 array [H, W, 3] or [H, W].

    Raises:
        MissingExtraError: Pillow is not installed.
        UsageError: the argument is not one image.

    """
    import_pillow()
    from PIL import Image

    if isinstance(image, str | os.PathLike):
        with open_image(Path(image)) as opened:
            return opened.convert("RGB")
    if hasattr(image, "convert") and hasattr(image, "getbands"):
        return image.convert("RGB")
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        squeezed = image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image
        if squeezed.ndim == 2 or (squeezed.ndim == 3 and squeezed.shape[2] == 3):
            return Image.fromarray(squeezed).convert("RGB")
    shape = f"{image.dtype}{list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
    raise UsageError(f"not one image: {shape}", hint="a path, a PIL image, or a uint8 array [H, W, 3] or [H, W]")
