"""Recognize subgraphs with a single operator: the function of a reduction, or the comparator of a sort."""

from __future__ import annotations

from tpuconvert.frontends.tflite.file.reader import Operator
from tpuconvert.frontends.tflite.node import TfliteNode
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE

_FUNCTIONS = {
    **{name: name for name in ("ADD", "MUL", "MAXIMUM", "MINIMUM")},
    **{"STABLEHLO_ADD": "ADD", "STABLEHLO_MULTIPLY": "MUL"},
    **{"STABLEHLO_MAXIMUM": "MAXIMUM", "STABLEHLO_MINIMUM": "MINIMUM"},
    **{"STABLEHLO_AND": "MINIMUM", "STABLEHLO_OR": "MAXIMUM"},  # combination_of checks that the tensors are Boolean
    **{"LOGICAL_AND": "MINIMUM", "LOGICAL_OR": "MAXIMUM"},
}
_SUPPORTED = "supported: one sum, product, maximum or minimum of its two inputs"


def combination_of(node: TfliteNode, subgraph: int, *, may_replace: bool = False) -> str:
    """Key in ``scatter_update.COMBINATIONS`` of a subgraph's function, or REPLACE if it returns its second input."""
    body = node.caller.subgraph(node, subgraph)
    if may_replace and not body.operators and len(body.inputs) == 2 and body.outputs == body.inputs[1:]:
        return "REPLACE"
    operator = _single_operator(node, subgraph)
    if operator.name not in _FUNCTIONS or sorted(operator.inputs) != sorted(body.inputs):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"a body of {operator.name}", _SUPPORTED)
    if operator.name in ("STABLEHLO_AND", "STABLEHLO_OR") and node.tensor(0).type != "BOOL":
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"a body of {operator.name} on {node.tensor(0).type}", _SUPPORTED)
    if operator.options.peek("fused_activation_function"):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "a body with an activation", _SUPPORTED)
    return _FUNCTIONS[operator.name]


def is_descending(node: TfliteNode, subgraph: int) -> bool:
    """Return True if a comparator sorts in descending order."""
    body, operator = node.caller.subgraph(node, subgraph), _single_operator(node, subgraph)
    directions = {"LESS": False, "LESS_EQUAL": False, "GREATER": True, "GREATER_EQUAL": True}
    if operator.name == "STABLEHLO_COMPARE":
        direction = {2: "GREATER_EQUAL", 3: "GREATER", 4: "LESS_EQUAL", 5: "LESS"}
        name = direction.get(operator.options.peek("comparison_direction"), "EQUAL")
    else:
        name = operator.name
    if name not in directions or sorted(operator.inputs) != sorted(body.inputs):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"a comparator of {operator.name}", "supported: less or greater")
    return directions[name] != (operator.inputs != body.inputs)


def _single_operator(node: TfliteNode, subgraph: int) -> Operator:
    body = node.caller.subgraph(node, subgraph)
    if len(body.operators) != 1 or len(body.inputs) != 2 or body.outputs != body.operators[0].outputs:
        listed = ", ".join(operator.name for operator in body.operators[:4])
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"a body of {len(body.operators)} operators ({listed})", _SUPPORTED)
    return body.operators[0]
