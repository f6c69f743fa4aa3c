"""Operators that call subgraphs: the operators of the called subgraph are inlined."""

from __future__ import annotations

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.node import Converted, TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, NO_OPERATOR
from tpuconvert.schema.graph.graph import Graph


@tflite_op("CALL", kind=Kind.FOLDED)
def call(node: TfliteNode, g: Graph) -> tuple[Converted, ...]:
    """Inline the called subgraph."""
    return node.inline_subgraph(node.option("subgraph"))


@tflite_op("STABLEHLO_COMPOSITE", kind=Kind.FOLDED)
def composite(node: TfliteNode, g: Graph) -> tuple[Converted, ...]:
    """Replace a composite by the subgraph that defines it."""
    # The name and the attributes choose a faster kernel; the decomposition alone defines the result.
    node.ignore_option("name", "composite_attributes", "composite_attributes_format", "version")
    return node.inline_subgraph(node.option("decomposition_subgraph_index"))


@tflite_op("IF", kind=Kind.FOLDED, limits="a condition that is known at conversion")
def if_(node: TfliteNode, g: Graph) -> tuple[Converted, ...]:
    """Inline the subgraph that the constant condition selects."""
    then, otherwise = node.option("then_subgraph_index"), node.option("else_subgraph_index")
    if not node.is_constant(0):
        raise node.fail(NO_OPERATOR, "its condition depends on the model's inputs", "export the branch that is needed")
    condition = node.constant(0)
    if condition.size != 1:
        raise node.fail(INVALID_NODE, f"its condition has the shape {list(condition.shape)}")
    return node.inline_subgraph(then if condition.reshape(-1)[0] else otherwise, first=1)


@tflite_op("WHILE", "STABLEHLO_WHILE", kind=Kind.FOLDED, limits="a condition that is known before every pass; unrolled")
def while_(node: TfliteNode, g: Graph) -> tuple[Converted, ...]:
    """Unroll a loop whose condition is constant before every iteration."""
    return node.unroll_loop(node.option("cond_subgraph_index"), node.option("body_subgraph_index"))
