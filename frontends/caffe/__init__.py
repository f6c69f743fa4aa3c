"""Caffe networks as graphs of TPU operators."""

import os
from collections.abc import Mapping, Sequence

from tpuconvert.frontends.limits import DEFAULT_LIMITS, Limits
from tpuconvert.frontends.sniffing import identify
from tpuconvert.schema.graph import Graph


def load(
    path: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None = None,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    require_weights: bool = True,
) -> Graph:
    """Read a Caffe network as it runs for inference.

    Args:
        path: the prototxt, of any generation.
        weights: the caffemodel. Not needed when the prototxt holds the weights or no layer has any.
        input_shapes: extents for inputs that the prototxt leaves open, or that are to have others.
        inputs: blob names where the graph is to begin, instead of at the network's own inputs; their shapes have to
            be in ``input_shapes``.
        outputs: blob names where it is to end. By default every blob that no layer reads, in the prototxt's order.
        limits: bounds on sizes.
        require_weights: false takes zeros for missing weights, to check everything else about a network.

    Returns:
        The graph with FLOAT32 arithmetic in NCHW.

    Raises:
        CorruptInputError: damaged, or not a Caffe file.
        UnsupportedError: everything in the network that cannot be represented.
        UsageError: a name or shape in the arguments does not fit the network, or the weights are missing.
        ResourceLimitError: larger than the limits.

    """
    from tpuconvert.frontends.caffe.description import read_description  # protobuf is loaded only for a Caffe file
    from tpuconvert.frontends.caffe.importer import ImportOptions, import_network
    from tpuconvert.frontends.caffe.weights import read_weights

    net = read_description(path, limits)
    names = tuple(inputs or ()), tuple(outputs or ())
    options = ImportOptions(limits, dict(input_shapes or {}), *names, require_weights)
    return import_network(net, None if weights is None else read_weights(weights, limits), options)


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Return True if a file with these first bytes and this name is a Caffe network or its weights."""
    name = os.fspath(path).lower()
    kind = identify(head, max(len(head), 1), os.path.basename(name))
    if kind is not None and kind.id in ("onnx", "tflite", "tpum"):
        return False
    return name.endswith((".prototxt", ".caffemodel")) or (kind is not None and kind.id in ("prototxt", "caffemodel"))
