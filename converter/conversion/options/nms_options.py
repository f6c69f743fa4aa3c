"""The value of ``--append-nms``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import did_you_mean

FORMATS = ("xyxy", "cxcywh")
_HINT = "boxes=NAME,scores=NAME, and optionally iou=0.5,score=0.25,max=100,format=xyxy or cxcywh,objectness=false"


@dataclass(frozen=True)
class NmsTail:
    """Suppression to append to a model.

    Args:
        boxes: output with boxes.
        scores: output with scores; the same output if the scores follow the boxes, as in YOLO exports.
        iou: largest overlap of two selected boxes of a class.
        score: scores of selected boxes are above it.
        max: largest number of boxes per image and class.
        format: ``xyxy`` for two opposite corners, ``cxcywh`` for center and size.
        objectness: the first score is the probability of any object and multiplies the others.

    Raises:
        UsageError: a value is not valid.

    """

    boxes: str
    scores: str
    iou: float = 0.5
    score: float = 0.25
    max: int = 100
    format: str = "xyxy"
    objectness: bool = False

    def __post_init__(self) -> None:
        if not self.boxes or not self.scores:
            raise UsageError("append_nms: boxes and scores have to name outputs", hint=_HINT)
        if not (0 <= self.iou <= 1 and math.isfinite(self.score)):
            raise UsageError(f"append_nms: iou={self.iou:g},score={self.score:g}, expected iou from 0 to 1", hint=_HINT)
        if self.max < 1:
            raise UsageError(f"append_nms: max={self.max}, expected at least 1", hint=_HINT)
        if self.format not in FORMATS:
            raise UsageError(f"append_nms: format is '{self.format}'", hint=f"one of {', '.join(FORMATS)}")

    @staticmethod
    def parse(text: str) -> NmsTail:
        """Read ``key=value,...``. Names may contain commas and equals signs.

        Raises:
            UsageError: a key is unknown or missing, or a value is not valid.

        """
        parts = re.split(r"(?:^|,)\s*(boxes|scores|iou|score|max|format|objectness)=", text)
        if parts[0].strip():
            key = parts[0].partition("=")[0].strip()
            raise UsageError(f"append_nms: '{key}' is not a key", hint=did_you_mean(key, _READERS) or _HINT)
        fields: dict[str, Any] = {}
        for key, value in zip(parts[1::2], parts[2::2], strict=True):
            if key in fields:
                raise UsageError(f"append_nms: {key} is given twice", hint="give it once")
            try:
                fields[key] = _READERS[key](value.strip())
            except (ValueError, KeyError):
                raise UsageError(f"append_nms: {key} is '{value}'", hint=_HINT) from None
        missing = [key for key in ("boxes", "scores") if key not in fields]
        if missing:
            raise UsageError(f"append_nms: no {' and no '.join(missing)}", hint=_HINT)
        return NmsTail(**fields)


_READERS: dict[str, Any] = {
    "boxes": str,
    "scores": str,
    "iou": float,
    "score": float,
    "max": int,
    "format": str,
    "objectness": {"true": True, "false": False}.__getitem__,
}


def read_append_nms(text: str | None) -> str | None:
    """Check the text of the option. An empty text is none."""
    if text:
        NmsTail.parse(text)
    return text or None
