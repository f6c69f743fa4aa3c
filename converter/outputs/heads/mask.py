"""Head of masks: the probability of one class per pixel."""

from __future__ import annotations

from tpuconvert.outputs.class_maps import class_map, is_mask
from tpuconvert.outputs.head import ClassMap, DecodedImage, Head, Outputs, list_outputs, register_head
from tpuconvert.outputs.heads.segmentation import is_fine, map_of
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError


@register_head("mask")
class Mask(Head):
    """Probabilities [1, 1, rows, columns] or [1, rows, columns, 1]; the mask has the pixels from `--min-score`."""

    recognized = "with values from 0 to 1, and at most the rows and columns of the input"
    class_names = ("background", "mask")

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for a single map of floats from 0 to 1 that is not finer than the input."""
        (array, *others) = outputs.values()
        if others or array.ndim == 3:  # three axes have scores of a sequence too
            return False
        assert rule.size is not None
        channels, rows, columns = map_of(array.shape, rule)
        is_coarse = rows <= rule.size[0] and columns <= rule.size[1]
        return channels == 1 and is_coarse and is_fine(rows, columns, rule) and is_mask(array)

    def decode(self, outputs: Outputs, image: DecodedImage) -> ClassMap:
        """Return class 1 for the pixels of the mask."""
        output, array = next(iter(outputs.items()))
        if map_of(array.shape, image.rule)[0] != 1 or not is_mask(array):
            raise UsageError(
                f"expected probabilities [1, 1, rows, columns], found {list_outputs(outputs)}",
                hint="end the model after its sigmoid (convert --outputs), or --decode segmentation",
            )
        return ClassMap(class_map(array, output, image.rule, image.size, image.min_score), output)
