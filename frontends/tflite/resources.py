"""Resource variables: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, and CALL_ONCE, which initializes them."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.node import Converted, TfliteNode, tflite_op
from tpuconvert.frontends.tflite.states import variable_name
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array


@tflite_op("VAR_HANDLE", kind=Kind.FOLDED)
def var_handle(node: TfliteNode, g: Graph) -> Array:
    """Handle of a resource variable."""
    name = variable_name(node.option("container", "") or "", node.option("shared_name", "") or "")
    return np.asarray(node.caller.states.handle(name), np.int64)


@tflite_op("READ_VARIABLE", kind=Kind.FOLDED, limits="--state selects the initial value of a run")
def read_variable(node: TfliteNode, g: Graph) -> Converted:
    """Current value of a variable: the last one assigned in this run, or the initial one."""
    states, name = node.caller.states, _name(node)
    found = states.current.get(name)
    if found is None:
        raise node.fail(INVALID_NODE, f"the variable '{name}' is read before anything is assigned to it")
    if isinstance(found, np.ndarray) and states.is_changed(name):
        found = node.start_state(name, node.output_tensor(), found.shape) or found
    return found


@tflite_op("ASSIGN_VARIABLE", kind=Kind.FOLDED)
def assign_variable(node: TfliteNode, g: Graph) -> tuple[Converted, ...]:
    """Make the second input the current value of the variable."""
    value = node.binding(1)
    node.caller.states.current[_name(node)] = value
    return ()


@tflite_op("CALL_ONCE", kind=Kind.FOLDED)
def call_once(node: TfliteNode, g: Graph) -> tuple[Converted, ...]:
    """Inline the subgraph that assigns the initial values of variables."""
    node.inline_subgraph(node.option("init_subgraph_index"))
    return ()


def _name(node: TfliteNode) -> str:
    return node.caller.states.name(node.one_int(0))
