"""Formats of source models whose structure is changed systematically: valid models, their files, and their changes.

Each change replaces one shape, constant, element type, option or operand of a small model of one operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.support.damage import structure_caffe, structure_onnx, structure_tflite
from tests.support.damage.structure_seeds import onnx_models, tflite_models
from tests.support.tflite.models import serialize

Change = Callable[[], bytes]

FORMATS: dict[str, tuple[Callable[[], list[Any]], Callable[[Any], bytes], Callable[[Any], Iterable[Change]]]] = {
    "onnx": (onnx_models, lambda model: model.SerializeToString(), structure_onnx.changes),
    "tflite": (tflite_models, lambda model: serialize(*model), structure_tflite.changes),
    "caffe": (structure_caffe.networks, str.encode, structure_caffe.changes),
}
"""Format -> functions that return the models, the file of a model, and its changed files."""
