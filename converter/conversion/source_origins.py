"""Tensors of a source file that cause non-finite constants of its graph."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tpuconvert.frontends.caffe.file.origins import find_origin as find_in_caffe
from tpuconvert.frontends.onnx.file.origins import find_origin as find_in_onnx
from tpuconvert.frontends.tflite.file.origins import find_origin as find_in_tflite

if TYPE_CHECKING:
    from onnx import ModelProto

    from tpuconvert.frontends.origins import Origin

    FilePath = str | os.PathLike[str]


def find_origin(
    kind: str, source: FilePath | ModelProto, weights: FilePath | None, constant: str, allow_root: FilePath | None
) -> Origin | None:
    """Find the tensor of a source from which a constant was computed.

    Args:
        kind: name of the frontend.
        source: the file, or an ``onnx.ModelProto``.
        weights: the caffemodel of a prototxt.
        constant: name of the constant.
        allow_root: another folder with files of external data.

    """
    if kind == "onnx":
        return find_in_onnx(source, constant, allow_root)
    assert isinstance(source, (str, os.PathLike)), "only ONNX models can be messages in memory"
    if kind == "tflite":
        return find_in_tflite(source, constant)
    return None if weights is None else find_in_caffe(weights, constant)
