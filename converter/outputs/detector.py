"""Detections in pixels of the image file, from the outputs of a model and the preprocessing of its input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tpuconvert.outputs.boxes import Detections, suppress
from tpuconvert.outputs.decoders import Outputs, check_detections, find_decoder, user_decoder
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.types import Array


class Detector:
    """A decoder with its thresholds.

    Args:
        decode: name of a built-in decoder, ``module:function``, or a function.
        rule: preprocessing of the images, with a size.
        min_score: smallest score of a detection of a built-in decoder.
        nms_iou: overlap above which built-in decoders suppress the box with the lower score.

    Raises:
        UsageError: there is no such decoder.

    """

    def __init__(self, decode: str | Callable[..., Any], rule: Preprocess, min_score: float, nms_iou: float) -> None:
        self.name = decode if isinstance(decode, str) else getattr(decode, "__name__", repr(decode))
        self.user = user_decoder(decode)
        self.built_in = find_decoder(self.name) if self.user is None else None
        self.rule, self.min_score, self.nms_iou = rule, min_score, nms_iou

    def detect(self, outputs: Outputs, size: tuple[int, int]) -> Detections:
        """Return the detections in an image of ``size`` (height, width), in its pixels."""
        height, width = size
        if self.user is not None:
            return check_detections(self.user(dict(outputs), (height, width)), self.name)
        assert self.built_in is not None
        assert self.rule.size is not None
        found = self.built_in(outputs, self.rule.size, self.min_score)
        found = found.take(np.isfinite(found.boxes).all(axis=1) & np.isfinite(found.scores))
        found = suppress(found, self.nms_iou)
        points = None if found.points is None else to_image_pixels(found.points, self.rule, size)
        return replace(found, boxes=to_image_pixels(found.boxes, self.rule, size), points=points)


def to_image_pixels(pairs: Array, rule: Preprocess, size: tuple[int, int]) -> Array:
    """Map x, y pairs along the last axis from pixels of the model's input to pixels of an image (height, width)."""
    assert rule.size is not None
    height, width = size
    left, top, right, bottom = rule.region(width, height)
    rows, columns = rule.size
    count = pairs.shape[-1] // 2
    scale = np.array([right - left, bottom - top] * count) / np.array([columns, rows] * count)
    mapped: Array = pairs * scale + (left, top) * count
    return mapped
