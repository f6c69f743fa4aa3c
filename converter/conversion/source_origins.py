"""Tensors of a source file that cause non-finite constants of its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuconvert.frontends.caffe.file.origins import find_origin as find_in_caffe
from tpuconvert.frontends.onnx.file.origins import find_origin as find_in_onnx
from tpuconvert.frontends.tflite.file.origins import find_origin as find_in_tflite

if TYPE_CHECKING:
    import os

    from tpuconvert.conversion.source import Source
    from tpuconvert.frontends.origins import Origin


def find_origin(source: Source, constant: str, allow_root: str | os.PathLike[str] | None) -> Origin | None:
    """Find the tensor of a source from which a constant was computed.

    Args:
        source: the source.
        constant: name of the constant.
        allow_root: another folder with files of external data.

    """
    if source.format == "onnx":
        return find_in_onnx(source.model, constant, allow_root)
    if source.format == "tflite":
        return find_in_tflite(source.path, constant)
    return None if source.weights is None else find_in_caffe(source.weights, constant)
