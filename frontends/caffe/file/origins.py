"""Find the caffemodel blob from which a constant of the graph was computed."""

from __future__ import annotations

import os

from tpuconvert.frontends.caffe.file.weights import read_weights
from tpuconvert.frontends.origins import Origin
from tpuconvert.schema.arithmetic.finite import is_finite


def find_origin(path: str | os.PathLike[str], name: str) -> Origin | None:
    """Find the blob that causes infinite or NaN elements in the constant ``layer/what``; None if all are finite.

    If several blobs of the layer are not finite, a bias is traced to the last of them, any other constant to the first.
    """
    layer, _, what = name.rpartition("/")
    blobs = read_weights(path).get(layer, [])
    damaged = [(index, blob) for index, blob in enumerate(blobs) if not is_finite(blob.data)]
    if not damaged:
        return None
    index, blob = damaged[-1 if "bias" in what or what == "shift" else 0]
    return Origin(f"{layer}, blob {index}", blob.data.reshape(blob.shape))
