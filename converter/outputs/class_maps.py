"""Classes of the pixels of an image, from the output of a segmentation network."""

from __future__ import annotations

import numpy as np

from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

IGNORED = 255
"""Class of pixels that the model does not see; as a label: of pixels that do not count."""


MASK_LIMIT = 0.5
"""Usual smallest probability of a pixel that belongs to a mask."""


def is_mask(scores: Array) -> bool:
    """Return True for floats from 0 to 1: probabilities of one class."""
    return scores.dtype.kind == "f" and bool(((scores >= 0) & (scores <= 1)).all())


def class_map(
    scores: Array, output: str, rule: Preprocess, size: tuple[int, int], mask_limit: float = MASK_LIMIT
) -> Array:
    """Return the class of every pixel of an image, int64 [height, width]; ``IGNORED`` outside the model's input.

    A pixel takes the class of the output cell in which its center lies.

    Args:
        scores: scores per class, or class indices.
        output: name of the output, for the message of an error.
        rule: preprocessing of the image, with a size.
        size: (height, width) of the image.
        mask_limit: smallest probability of class 1, if there are probabilities of one class only.

    Raises:
        UsageError: the output holds neither scores nor class indices of pixels.

    """
    classes = _classes(scores, output, rule, mask_limit)
    height, width = size
    left, top, right, bottom = rule.region(width, height)
    result = np.full((height, width), IGNORED, dtype=np.int64)
    rows, seen_rows = _cells(height, top, bottom, classes.shape[0])
    columns, seen_columns = _cells(width, left, right, classes.shape[1])
    result[np.ix_(seen_rows, seen_columns)] = classes[np.ix_(rows, columns)]
    return result


def _classes(scores: Array, output: str, rule: Preprocess, mask_limit: float) -> Array:
    """Return the class per cell, [rows, columns], from scores per class or from class indices."""
    if scores.ndim == 4:
        axis = 1 if rule.layout == "NCHW" else 3
        classes = scores.take(0, axis) if scores.shape[axis] == 1 else scores.argmax(axis)
    else:
        classes = scores
    if classes.ndim == 3 and len(classes) == 1:
        classes = classes[0]
    if is_mask(classes):
        classes = (classes >= mask_limit).astype(np.int64)
    if classes.ndim != 2 or (classes != np.round(classes)).any() or classes.min() < 0:
        raise UsageError(
            f"output '{output}' {list(scores.shape)} holds neither scores nor class indices of pixels",
            hint="expected [1, classes, rows, columns], [1, rows, columns, classes] or [1, rows, columns]; "
            "evaluate --scores NAME chooses another output",
        )
    indices: Array = classes.astype(np.int64)
    return indices


def _cells(pixels: int, start: float, stop: float, cells: int) -> tuple[Array, Array]:
    """Return the cell in which the center of each pixel lies, and the indices of the pixels that lie in a cell.

    Args:
        pixels: number of pixels of the image along the axis.
        start: begin of the first cell, in pixels of the image.
        stop: end of the last cell.
        cells: number of cells.

    """
    # The numerator is exact for integers, so that a center on the border of two cells belongs to the second.
    cell_of = np.floor((2 * np.arange(pixels) + 1 - 2 * start) * cells / (2 * (stop - start))).astype(np.int64)
    (seen,) = np.nonzero((cell_of >= 0) & (cell_of < cells))
    return cell_of[seen], seen
