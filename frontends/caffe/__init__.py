"""Caffe networks as graphs of TPU operators."""

import os
from collections.abc import Mapping, Sequence

from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.system.limits import Limits, current_limits


def load(
    path: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None = None,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    limits: Limits | None = None,
    require_weights: bool = True,
) -> Graph:
    """Read a Caffe network as it runs for inference.

    Args:
        path: prototxt of any Caffe generation (V0, V1 or current).
        weights: the caffemodel. Not needed if the prototxt contains the weights or no layer has weights.
        input_shapes: shapes by input name: required where the prototxt has no shape, otherwise they override it.
        inputs: names of blobs to use as graph inputs instead of the inputs of the network. ``input_shapes`` must
            contain their shapes.
        outputs: names of blobs to use as graph outputs. Default: every blob that no layer reads, in prototxt order.
        limits: bounds on sizes; those in force by default.
        require_weights: if false, missing weights are replaced by zeros, to check the rest of the network.

    Returns:
        The graph with FLOAT32 arithmetic in NCHW.

    Raises:
        CorruptInputError: the file is damaged, or is not a Caffe file.
        UnsupportedError: parts of the network cannot be converted; the error lists all of them.
        UsageError: a name or shape in the arguments does not fit the network, or the weights are missing.
        ResourceLimitError: a file or tensor exceeds the limits.

    """
    # 36 ms, which other formats do not need: the converters and protobuf.
    from tpuconvert.frontends.caffe.importer import import_network

    return import_network(
        path,
        weights,
        limits or current_limits(),
        input_shapes=input_shapes,
        inputs=inputs,
        outputs=outputs,
        require_weights=require_weights,
    )
