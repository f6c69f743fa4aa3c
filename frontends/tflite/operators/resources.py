"""Resource variables: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, and CALL_ONCE, which initializes them."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.node import Converted, TfliteNode, tflite_op
from tpuconvert.frontends.tflite.states import Content, StateMode, Variable
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array, QuantParams


@tflite_op("VAR_HANDLE", kind=Kind.FOLDED)
def var_handle(node: TfliteNode, g: Graph) -> Array:
    """Handle of a resource variable."""
    variable = Variable(node.option("container", "") or "", node.option("shared_name", "") or "")
    return np.asarray(node.caller.states.handle(variable), np.int64)


@tflite_op("READ_VARIABLE", kind=Kind.FOLDED, limits="--state selects the initial value of a run")
def read_variable(node: TfliteNode, g: Graph) -> Converted:
    """Content of a variable: the last one assigned in this run, or the initial one."""
    variable = _variable(node)
    content = node.caller.states.content(variable) or _content_before_run(node, variable)
    tensor, quant = node.output_tensor(), node.output_quant()
    if content.type != tensor.type:
        raise node.fail(INVALID_NODE, f"'{variable}' holds {content.type} and is read as {tensor.type}")
    # The kernel copies the stored integers. An array gets the scale of the tensor that reads it; a computed value is a
    # real number, which must have the same scale on both sides.
    if isinstance(content.value, Value) and content.quant != quant:
        message = f"'{variable}' is assigned with the scale {_scale(content.quant)} and read with {_scale(quant)}"
        raise node.fail(INVALID_NODE, message, "export the model with one scale for each variable")
    return content.value


@tflite_op("ASSIGN_VARIABLE", kind=Kind.FOLDED)
def assign_variable(node: TfliteNode, g: Graph) -> tuple[Converted, ...]:
    """Make the second input the content of the variable."""
    value = node.constant(1) if node.is_constant(1) else node.input(1)
    node.caller.states.assign(_variable(node), Content(value, node.tensor(1).type, node.quant(1)))
    return ()


@tflite_op("CALL_ONCE", kind=Kind.FOLDED)
def call_once(node: TfliteNode, g: Graph) -> tuple[Converted, ...]:
    """Inline the subgraph that assigns the initial contents of variables; only once, however often it is called."""
    subgraph = node.option("init_subgraph_index")
    with node.caller.states.initialization(subgraph) as is_first:
        if is_first:
            node.inline_subgraph(subgraph)
    return ()


def _content_before_run(node: TfliteNode, variable: Variable) -> Content:
    """Content of a variable that this run has not assigned: a new input of the graph, or the initial content."""
    states, tensor, quant = node.caller.states, node.output_tensor(), node.output_quant()
    initial = states.initial.get(variable)
    is_assigned_by_others = variable in states.assigned_by_others
    if initial is None and (states.is_initializing or states.mode is StateMode.RESET or not is_assigned_by_others):
        hint = "other signatures assign it: pass it as an input (--state ports)" if is_assigned_by_others else ""
        raise node.fail(INVALID_NODE, f"the variable '{variable}' is read before anything is assigned to it", hint)
    started = None
    if states.is_changed(variable) and not states.is_initializing:
        shape = tensor.shape if initial is None else tuple(initial.value.shape)
        started = node.start_state(variable, tensor, shape, str(variable))
    if started is not None:
        content = Content(started, tensor.type, quant)
    else:
        assert initial is not None, "a variable without initial content is an input"
        content = initial
    if not states.is_initializing:
        states.current[variable] = content
    return content


def _variable(node: TfliteNode) -> Variable:
    variable = node.caller.states.variable(node.one_int(0))
    if variable is None:
        raise node.fail(INVALID_NODE, "input 0 is not the handle of a resource variable")
    return variable


def _scale(quant: QuantParams | None) -> str:
    return "none" if quant is None else f"{quant.scale[0]:g} and zero point {quant.zero_point[0]}"
