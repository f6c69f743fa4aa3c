"""Head of SSD networks with decoded boxes."""

from __future__ import annotations

from tpuconvert.outputs.detector import BoxHead, above, scale_of, unsuitable
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections


@register_head("ssd")
class Ssd(BoxHead):
    """Boxes [1, N, 4] (left, top, right, bottom from 0 to 1) and scores [1, N, 1 + C], the first of the background."""

    recognized = "yes"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for two outputs with the same number of rows, of which one has four columns."""
        shapes = [array.shape for array in outputs.values()]
        if len(shapes) != 2 or any(len(shape) != 3 for shape in shapes) or shapes[0][:2] != shapes[1][:2]:
            return False
        return shapes[0][1] > 1 and 4 in (shapes[0][2], shapes[1][2])

    def classes(self, outputs: Outputs, rule: Preprocess) -> int | None:
        """Return the number of scores without the score of the background."""
        widths = [array.shape[-1] for array in outputs.values()]
        return sum(widths) - 4 - 1 if len(widths) == 2 and 4 in widths else None

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes with a sufficient score of a class other than the background."""
        named = {name: array[0] for name, array in outputs.items() if array.ndim == 3 and len(array) == 1}
        box_outputs = [name for name, array in named.items() if array.shape[1] == 4]
        if len(box_outputs) > 1:  # scores of three classes also have four columns
            box_outputs = [name for name in box_outputs if "box" in name.lower() or "loc" in name.lower()]
        scores = [array for name, array in named.items() if name not in box_outputs and array.shape[1] > 1]
        if len(box_outputs) != 1 or len(scores) != 1 or len(named[box_outputs[0]]) != len(scores[0]):
            raise unsuitable("boxes [1, N, 4] and scores [1, N, 1 + classes]", outputs)
        return above(named[box_outputs[0]] * scale_of(size), scores[0][:, 1:], min_score)
