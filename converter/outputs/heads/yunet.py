"""Head of the face detector YuNet."""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import BoxHead, above, unsuitable
from tpuconvert.outputs.grids import STRIDES, cells_of
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, boxes_in_cells

_KINDS = ("cls", "obj", "bbox")


@register_head("yunet")
class YuNet(BoxHead):
    """`cls_S`, `obj_S` and `bbox_S` for the strides 8, 16 and 32; landmarks `kps_S`."""

    recognized = "yes"
    class_names = ("face",)

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for outputs with these names."""
        return all(f"{kind}_{stride}" in outputs for kind in _KINDS for stride in STRIDES)

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the faces. The score is the geometric mean of class and objectness; landmarks are optional."""
        boxes, scores, points = [], [], []
        for stride in STRIDES:
            try:
                arrays = [outputs[f"{kind}_{stride}"].astype(np.float64) for kind in _KINDS]
            except KeyError:
                raise unsuitable(f"cls_{stride}, obj_{stride} and bbox_{stride}", outputs) from None
            kind, presence, codes = (array.reshape(-1, array.shape[-1]) for array in arrays)
            origins = cells_of(size[0] // stride, size[1] // stride) * stride
            boxes.append(boxes_in_cells(codes, origins, np.full((len(origins), 2), stride)))
            scores.append(np.sqrt(np.clip(kind, 0, 1) * np.clip(presence, 0, 1)))
            if f"kps_{stride}" in outputs:
                offsets = outputs[f"kps_{stride}"].astype(np.float64).reshape(len(origins), -1, 2)
                points.append(offsets * stride + origins[:, np.newaxis])
        landmarks = np.concatenate(points) if len(points) == len(boxes) else None
        return above(np.concatenate(boxes), np.concatenate(scores), min_score, landmarks)
