"""Scalar multiply and add that emit no operator for the identities 1 and 0, the defaults of Caffe's parameters."""

from tpuconvert.frontends import emit
from tpuconvert.schema.graph.graph import Graph, Value


def scale_by(g: Graph, x: Value, factor: float) -> Value:
    """``x * factor``; x itself if the factor is 1."""
    return x if factor == 1 else emit.muls(g, x, factor)


def shift_by(g: Graph, x: Value, offset: float) -> Value:
    """``x + offset``; x itself if the offset is 0."""
    return x if offset == 0 else emit.adds(g, x, offset)
