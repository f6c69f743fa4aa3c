"""Bitwise operators on integers of up to 32 bits."""

from __future__ import annotations

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.bit_logic import BitAnd, BitOr, BitXor, BitXors
from tpuconvert.schema.types import Scalar


def _integer(node: OnnxNode, index: int) -> Value:
    x = node.input(index)
    if not x.dtype.is_integer:
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(index)}", "supported: integers")
    return x


def _bitwise(name: str, op: type[Op]) -> None:
    def convert(node: OnnxNode, g: Graph) -> Result:
        a, b = _integer(node, 0), _integer(node, 1)
        shape = emit.broadcast_shape(emit.extents(a), emit.extents(b))  # the TPU operators require equal shapes
        return node.elementwise(g.add(op(), emit.expand(g, a, shape), emit.expand(g, b, shape)))

    convert.__doc__ = f"{name}, element by element."
    onnx_op(name, since=18)(convert)


_bitwise("BitwiseAnd", BitAnd)
_bitwise("BitwiseOr", BitOr)
_bitwise("BitwiseXor", BitXor)


@onnx_op("BitwiseNot", since=18, kind=Kind.DIRECT)
def bitwise_not(node: OnnxNode, g: Graph) -> Result:
    """Bitwise complement: exclusive or with all ones."""
    x = _integer(node, 0)
    ones = -1 if x.dtype.is_signed else x.dtype.max
    return node.elementwise(g.add(BitXors(Scalar(x.dtype, ones)), x))
