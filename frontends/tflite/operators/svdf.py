"""SVDF: a filter over time whose weights are factorized to low rank (singular value decomposition)."""

from __future__ import annotations

from tpuconvert.frontends import emit
from tpuconvert.frontends.tflite import hybrid
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import slice_box
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul


@tflite_op("SVDF", limits="constant weights")
def svdf(node: TfliteNode, g: Graph) -> Value:
    """Project the input, append the projection to a memory of the last steps, and weight the memory over time."""
    rank, feature, time = node.option("rank"), node.real(1), node.real(2)
    shape, filters = node.shape(0), node.shape(1)[0]
    if rank < 1 or filters % rank or time.ndim != 2 or time.shape[0] != filters or feature.shape[1:] != shape[1:]:
        message = f"rank {rank}, weights {list(feature.shape)} and {list(time.shape)} for {list(shape)}"
        raise node.fail(INVALID_NODE, message)
    batch, length = shape[0], time.shape[1]
    state = node.quant(4) if node.has_input(4) else None
    is_integer = node.is_quantized and state is not None
    weights = node.permute(1, (1, 0))
    x = hybrid.round_activations(
        node, g, node.input(0), asymmetric=bool(node.option("asymmetric_quantize_inputs", False))
    )
    projection = g.add(MatrixMul(), x, weights)
    projection.quant = state if is_integer else None  # the integer kernel saturates the memory to 16 bits
    newest = reshape(g, projection, (batch, filters, 1))
    before = node.state(4)
    if before is None:  # the memory is zero except for the newest step
        memory = g.add(Mul(), newest, emit.float_constant(g, time[None, :, -1:], "last_weights"))
    else:
        every = newest
        if length > 1:
            older = reshape(g, before, (batch, filters, length))
            older = slice_box(g, older, [range(batch), range(filters), range(1, length)])
            older.quant = newest.quant
            every = g.add(Concat(axis=2), older, newest)
            every.quant = newest.quant
        node.set_state(4, reshape(g, every, (batch, filters * length)))
        memory = g.add(Mul(), every, emit.float_constant(g, time[None], "time_weights"))
    units = filters // rank
    filled = 1 if before is None else length
    y = emit.total(g, reshape(g, memory, (batch, units, rank * filled)), (2,), keep_dims=False)
    if node.has_input(3):
        y = g.add(Add(), y, emit.float_constant(g, node.real(3).reshape(1, units), "bias"))
    if is_integer:  # the integer kernel only saturates
        node.ignore_option("fused_activation_function")
        return y
    return node.activate(y)
