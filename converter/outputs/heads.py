"""Heads of networks: the meaning of their outputs, by name and found from the shapes of the outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tpuconvert.outputs.decoders import decoder_names
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Array
from tpuconvert.user_functions import is_function_name

CLASSES = "classes"
SEGMENTATION = "segmentation"
POINTS_2D = "points2d"
POINTS_3D = "points3d"

COARSEST_MAP = 8
"""An output whose rows and columns are at least this fraction of the input's is taken for a segmentation."""

FEWEST_POINTS = 5
"""Smallest number of points that are recognized as such without ``--decode``."""

STRIDES = (8, 16, 32)
"""Strides of the grids of YOLO networks, which determine their number of boxes."""


def head_names() -> tuple[str, ...]:
    """Names of all heads, for ``--decode``: heads that are not detectors first."""
    return (CLASSES, SEGMENTATION, POINTS_2D, POINTS_3D, *decoder_names())


def check_head(name: str) -> None:
    """Check the name of a head.

    Raises:
        UsageError: there is no head of this name, and it names no function.

    """
    if name not in head_names() and not is_function_name(name):
        known = f"one of {', '.join(head_names())}, or a function as module:function"
        raise UsageError(f"there is no head '{name}'", hint=did_you_mean(name, head_names()) or known)


def find_head(outputs: Mapping[str, Array], rule: Preprocess) -> str:
    """Return the only head with outputs of these names and shapes.

    Raises:
        UsageError: there is none, or several have such outputs.

    """
    shapes = [array.shape for array in outputs.values()]
    if all(f"{kind}_{stride}" in outputs for kind in ("cls", "obj", "bbox") for stride in STRIDES):
        return "yunet"
    if len(shapes) == 1:
        found = _only_output(shapes[0], next(iter(outputs.values())), rule)
        if found:
            return found
    if len(shapes) == 2:
        short, long = sorted(shapes, key=math.prod)
        if len(short) == len(long) == 3 and short[:2] == long[:2] and short[1] > 1 and 4 in (short[2], long[2]):
            return "ssd"
        if math.prod(short) == 1 and long[:3] == (1, 1, 1) and long[3] % 3 == 0 and long[3] >= 3 * FEWEST_POINTS:
            return POINTS_3D
    if len([shape for shape in shapes if _is_vector(shape)]) == 1 and len(shapes) == 1:
        return CLASSES
    listed = ", ".join(f"'{name}' {list(array.shape)}" for name, array in outputs.items())
    raise UsageError(
        f"the meaning of the outputs is not known: {listed}",
        hint=f"--decode states it: {', '.join(head_names())}, or module:function",
    )


def _only_output(shape: tuple[int, ...], array: Array, rule: Preprocess) -> str:
    assert rule.size is not None
    height, width = rule.size
    if len(shape) == 4 and shape[:2] == (1, 1) and shape[3] == 7:
        return "detection_output"
    if len(shape) == 3:
        cells = sum((height // stride) * (width // stride) for stride in STRIDES)
        if shape[1] == 3 * cells and shape[2] > 5:
            return "yolov5"
        if shape[2] == cells and shape[1] > 4:
            return "yolov8"
    channels, rows, columns = _map_of(shape, rule)
    is_map = rows * COARSEST_MAP >= height and columns * COARSEST_MAP >= width and rows > 1 and columns > 1
    return SEGMENTATION if is_map and (channels > 1 or array.dtype.kind in "iu") else ""


def _map_of(shape: tuple[int, ...], rule: Preprocess) -> tuple[int, int, int]:
    """Return channels, rows and columns of an output; zeros if it is not a map."""
    if len(shape) == 4 and rule.layout == "NHWC":
        return shape[3], shape[1], shape[2]
    if len(shape) in (3, 4):
        return (shape[1] if len(shape) == 4 else 1), shape[-2], shape[-1]
    return 0, 0, 0


def _is_vector(shape: tuple[int, ...]) -> bool:
    """Return True if a shape fits scores of one image: only one axis has an extent above 1."""
    return len(shape) > 1 and shape[0] == 1 and sum(extent > 1 for extent in shape) == 1


def scores_output(outputs: Mapping[str, Array]) -> str:
    """Return the name of the output with the scores of a classifier.

    Raises:
        UsageError: no output, or several ones, are scores of classes.

    """
    names = [name for name, array in outputs.items() if _is_vector(array.shape)]
    if len(names) != 1:
        listed = ", ".join(f"'{name}' {list(array.shape)}" for name, array in outputs.items())
        raise UsageError(
            f"expected one output with scores [1, classes], found {listed}",
            hint="end the model at the scores (convert --outputs)",
        )
    return names[0]


def class_count(head: str, outputs: Mapping[str, Array], rule: Preprocess) -> int | None:
    """Return the number of classes of a network, or None if its outputs do not have it."""
    shapes = [array.shape for array in outputs.values()]
    if head == CLASSES:
        return int(outputs[scores_output(outputs)].size)
    if head == SEGMENTATION and len(shapes) == 1 and _map_of(shapes[0], rule)[0] > 1:
        return _map_of(shapes[0], rule)[0]
    if head == "yunet":
        return 1
    if head in ("yolov5", "yolov8", "fastestdet") and len(shapes) == 1:
        return int(shapes[0][2] - 5 if head == "yolov5" else shapes[0][1] - {"yolov8": 4, "fastestdet": 5}[head])
    if head == "ssd" and len(shapes) == 2:
        widths = [shape[-1] for shape in shapes]
        return (sum(widths) - 4) - 1 if 4 in widths else None
    return None
