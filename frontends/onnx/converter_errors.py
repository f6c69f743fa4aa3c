"""Run a converter and translate its exceptions: the source file is untrusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx.dynamic_shape_errors import open_extent_of
from tpuconvert.frontends.onnx.node import Converted, OnnxNode
from tpuconvert.frontends.open_extents import OpenExtentError
from tpuconvert.schema.errors import INVALID_NODE, InternalError, ResourceLimitError, ShapeError, TpuConvertError
from tpuconvert.schema.graph import Graph


def run_converter(converter: Callable[..., Any], node: OnnxNode, graph: Graph, file: str) -> Sequence[Converted]:
    """Run the converter of a node. Every exception becomes one of the errors below.

    Args:
        converter: function of the node and the graph.
        node: the source node.
        graph: receives the new nodes.
        file: name of the source for error messages.

    Raises:
        CannotConvertError: the node is invalid or not supported.
        OpenExtentError: the converter needs a number for a symbolic extent.
        ResourceLimitError: there is not enough memory.
        InternalError: the converter has a bug.

    """
    try:
        converted = converter(node, graph)
    except (CannotConvertError, TpuConvertError, OpenExtentError) as error:
        if isinstance(error, ShapeError):
            raise CannotConvertError(INVALID_NODE, error.message) from error
        raise
    except (TypeError, AttributeError, ValueError) as error:
        if extent := open_extent_of(node.inputs):  # NumPy does not accept a symbolic extent
            raise OpenExtentError(extent) from error
        if isinstance(error, ValueError):
            raise CannotConvertError(INVALID_NODE, str(error)) from error
        raise _internal(node, error, file) from error
    except OverflowError as error:
        raise CannotConvertError(INVALID_NODE, str(error)) from error
    except MemoryError as error:
        raise ResourceLimitError("not enough memory to convert it", file=file, node=node.name) from error
    except Exception as error:
        raise _internal(node, error, file) from error
    return converted if isinstance(converted, (list, tuple)) else [converted]


def _internal(node: OnnxNode, error: Exception, file: str) -> InternalError:
    what = f"{node.op_type} could not be converted: {type(error).__name__}: {error}"
    return InternalError(what, file=file, node=node.name)
