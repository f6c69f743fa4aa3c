"""Blobs of a caffemodel that a constant of the graph is computed from."""

from __future__ import annotations

import os

from tpuconvert.frontends.caffe.weights import read_weights
from tpuconvert.frontends.origins import Origin
from tpuconvert.schema.finite import is_finite


def find_origin(path: str | os.PathLike[str], name: str) -> Origin | None:
    """Find the blob of a layer that makes the constant ``layer/what`` not finite; biases come after weights."""
    layer, _, what = name.rpartition("/")
    blobs = read_weights(path).get(layer, [])
    damaged = [(index, blob) for index, blob in enumerate(blobs) if not is_finite(blob.data)]
    if not damaged:
        return None
    index, blob = damaged[-1 if "bias" in what or what == "shift" else 0]
    return Origin(f"{layer}, blob {index}", blob.data.reshape(blob.shape))
