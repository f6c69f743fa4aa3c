"""Preprocessing that TFLite metadata state. This module imports no reader, because every conversion imports it."""

from __future__ import annotations

import math
from typing import Any


def preprocessing(metadata: dict[str, Any], layout: str) -> dict[str, Any]:
    """Preprocessing options of the first input if it is an image; empty if the metadata have no valid ones."""
    tensor = (metadata.get("inputs") or [{}])[0]
    mean, std, color = tensor.get("mean", []), tensor.get("std", []), tensor.get("color", "RGB")
    counts = (1, 3) if color == "RGB" else (1,)
    if tensor.get("content") != "image" or any(len(numbers) not in counts for numbers in (mean, std)):
        return {}
    scale = [1.0 / number if number else 0.0 for number in std]
    if not all(math.isfinite(number) for number in mean + scale) or 0.0 in scale:
        return {}
    return {"color": color, "mean": mean, "scale": scale, "layout": layout}
