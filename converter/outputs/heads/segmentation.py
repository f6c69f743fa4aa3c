"""Head of segmentations."""

from __future__ import annotations

from tpuconvert.outputs.class_maps import class_map
from tpuconvert.outputs.head import ClassMap, DecodedImage, Head, Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess

COARSEST_MAP = 8
"""An output whose rows and columns are at least this fraction of the input's is recognized as a segmentation."""


@register_head("segmentation")
class Segmentation(Head):
    """Scores [1, C, rows, columns] or [1, rows, columns, C], as the layout of the preprocessing, or class numbers."""

    recognized = f"with at least 1/{COARSEST_MAP} of the rows and columns of the input"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for a single output that is a map of scores or of integers, not much coarser than the input."""
        if len(outputs) != 1:
            return False
        (array,) = outputs.values()
        channels, rows, columns = map_of(array.shape, rule)
        return is_fine(rows, columns, rule) and (channels > 1 or array.dtype.kind in "iu")

    def classes(self, outputs: Outputs, rule: Preprocess) -> int | None:
        """Return the number of channels."""
        channels = [map_of(array.shape, rule)[0] for array in outputs.values()]
        return channels[0] if len(channels) == 1 and channels[0] > 1 else None

    def decode(self, outputs: Outputs, image: DecodedImage) -> ClassMap:
        """Return the class of every pixel, from the first output."""
        output = next(iter(outputs))
        return ClassMap(class_map(outputs[output], output, image.rule, image.size), output)


def is_fine(rows: int, columns: int, rule: Preprocess) -> bool:
    """Return True if a map is not much coarser than the input."""
    assert rule.size is not None
    return min(rows, columns) > 1 and rows * COARSEST_MAP >= rule.size[0] and columns * COARSEST_MAP >= rule.size[1]


def map_of(shape: tuple[int, ...], rule: Preprocess) -> tuple[int, int, int]:
    """Return channels, rows and columns of an output; zeros if it is not a map."""
    if len(shape) == 4 and rule.layout == "NHWC":
        return shape[3], shape[1], shape[2]
    if len(shape) in (2, 3, 4):
        return (shape[1] if len(shape) == 4 else 1), shape[-2], shape[-1]
    return 0, 0, 0
