"""Cast and CastLike between the dtypes of the graph."""

from __future__ import annotations

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import Element
from tpuconvert.frontends.onnx.folding.arithmetic import cast_array, cast_target
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, Result, folds, onnx_op
from tpuconvert.frontends.open_extents import is_shape_tensor
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import cast_integers
from tpuconvert.frontends.value_bounds import ValueBounds
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.compare import Nes
from tpuconvert.schema.types import DType, Scalar


@onnx_op("Cast", since=1, kind=Kind.DIRECT, limits="numbers of 8 bits and more; 64-bit integers within INT32")
def cast(node: OnnxNode, g: Graph) -> Result:
    """Cast to another type; floats are truncated toward zero before the cast to integers."""
    target = cast_target(node)
    return _cast(node, g, node.input(0), node.element(0), target)


@onnx_op("CastLike", since=15, limits="as Cast")
def cast_like(node: OnnxNode, g: Graph) -> Result:
    """Cast to the type of another tensor."""
    node.optional_attr("saturate")
    node.optional_attr("round_mode")
    return _cast(node, g, node.input(0), node.element(0), node.element(1))


@folds("Cast", since=1)
def fold_cast(node: OnnxNode, g: Graph) -> Folded | Result:
    """Cast a constant."""
    return _fold(node, g, cast_target(node))


@folds("CastLike", since=15)
def fold_cast_like(node: OnnxNode, g: Graph) -> Folded | Result:
    """Cast a constant to the type of another tensor."""
    node.optional_attr("saturate")
    node.optional_attr("round_mode")
    return _fold(node, g, node.element(1))


def _fold(node: OnnxNode, g: Graph, target: Element) -> Folded | Result:
    """Cast a constant or extents. Extents in 8 or 16 bits wrap around, unlike their formulas: they become a tensor."""
    array = node.constant(0)
    if is_shape_tensor(array) and target.is_integer and target.bits < 32:
        return _cast(node, g, node.input(0), node.element(0), target)
    return Folded(cast_array(array, target), target)


def _cast(node: OnnxNode, g: Graph, x: Value, source: Element, target: Element) -> Result:
    scalar = node.tensor(0).shape == ()
    if target.bits < 8 or "float8" in target.name:
        raise node.fail(UNSUPPORTED_TYPE, f"cast to {target}", "supported: constants only")
    if target is element_types.BOOL:
        y = x if source is element_types.BOOL else g.add(Nes(Scalar.f32(0)), emit.as_float(g, x))
        return node.result(y, target, scalar=scalar)
    if source.is_float and target.is_integer:
        x = functions.truncate(g, x)
    if source.is_float and target.is_float and target.bits < 32:
        note = f"{target} is computed in float32"
        if note not in g.notes:
            g.notes.append(note)
    if x.dtype.is_integer and target.is_integer:
        y = cast_integers(g, x, target.graph)
    else:
        y = x if x.dtype is target.graph else emit.cast(g, x, target.graph)
    _note_beyond_int32(g, x, source, target)
    return node.result(y, target, scalar=scalar)


def _note_beyond_int32(g: Graph, x: Value, source: Element, target: Element) -> None:
    """Record a deviation if a result can be outside of INT32, the type of 64-bit and UINT32 values in the graph."""
    if not target.is_integer or target.graph is not DType.INT32 or target is element_types.INT32:
        return
    low, high = ValueBounds(g).of(x)
    if source.is_float and (high > DType.INT32.max or (low < DType.INT32.min and target is element_types.INT64)):
        g.note_deviation(f"floats outside of INT32 saturate, {target} has more bits")
    if source.is_integer and low < 0 and target is not element_types.INT64:
        g.note_deviation(f"negative integers stay negative, they wrap around in {target}")
