"""Small float networks after quantization: the engine must execute every form that the quantizer emits."""

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tpuconvert.optimizer.quantize import calibrate, legalize, quantize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul, Sub
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import F32, Chip, TensorType

ACTIVATIONS = (ActiveType.ACTIVE_RELU, ActiveType.ACTIVE_RELU, ActiveType.ACTIVE_TANH, ActiveType.ACTIVE_SIGMOID)


def conv(
    draft: Draft, g: Graph, x: Value, channels: int, kernel: int, *, depthwise: bool = False, stride: int = 1
) -> Value:
    inputs = x.type.static_shape[1]
    channels, groups = (inputs, inputs) if depthwise else (channels, 1)
    w = draft.rng.normal(size=(channels, inputs // groups, kernel, kernel)) / np.sqrt(inputs // groups * kernel**2)
    b = g.constant(draft.rng.normal(size=(1, channels, 1, 1)).astype(np.float32))
    around = kernel // 2
    pads = {"pad_h_t": around, "pad_h_b": around, "pad_w_l": around, "pad_w_r": around}
    op = Conv(groups=groups, stride_h=stride, stride_w=stride, **pads)
    return g.add(op, x, g.constant(w.astype(np.float32)), b)


def activate(draft: Draft, g: Graph, x: Value) -> Value:
    return g.add(Active(draft.pick(*ACTIVATIONS)), x)


def block(draft: Draft, g: Graph, x: Value) -> Value:
    """Add one layer of a network."""
    choice, channels = draft.number(0, 6), x.type.static_shape[1]
    if choice <= 1:
        y = activate(draft, g, conv(draft, g, x, channels, draft.pick(1, 3)))
        return g.add(draft.pick(Add(), Add(), Sub(), Mul()), conv(draft, g, y, channels, 3), x)
    if choice == 2:
        y = activate(draft, g, conv(draft, g, x, channels, 3, depthwise=True))
        return conv(draft, g, y, draft.small(20), 1)
    if choice == 3:
        parts = [activate(draft, g, conv(draft, g, x, draft.small(9), 1)) for _ in range(2)]
        return g.add(Concat(axis=1), *parts, x)
    if choice == 4:
        kind_of_pool = draft.pick(PoolType.MAX, PoolType.AVE)
        k = 1 if min(x.type.static_shape[2:]) < 2 else 2
        return g.add(Pool(stride_h=k, stride_w=k, kernel_h=k, kernel_w=k, pooling_type=kind_of_pool), x)
    if choice == 5:
        gate = g.add(Pool(stride_h=1, stride_w=1, is_global_pooling=True, pooling_type=PoolType.AVE), x)
        return g.add(Mul(), x, g.add(Active(ActiveType.ACTIVE_SIGMOID), conv(draft, g, gate, channels, 1)))
    if x.type.static_shape[2] < 8:
        return g.add(Max(), g.add(Upsample(2), x), g.add(Upsample(2), activate(draft, g, x)))
    return activate(draft, g, conv(draft, g, x, draft.small(20), 3, stride=2))


def float_network(draft: Draft) -> Graph:
    g = Graph("net", "net.onnx")
    x = g.input("x", TensorType(F32, (1, draft.number(1, 8), draft.number(4, 9), draft.number(4, 9))))
    x = activate(draft, g, conv(draft, g, x, draft.number(3, 17), 3))
    for _ in range(draft.number(1, 4)):
        x = block(draft, g, x)
    if draft.chance(0.5):
        x = g.add(Reshape((1, -1)), x)
        width, classes = x.type.static_shape[1], draft.number(2, 12)
        w = draft.rng.normal(size=(width, classes)) / np.sqrt(width)
        x = g.add(MatrixMul(), x, g.constant(w.astype(np.float32)), g.constant(np.zeros((1, classes), np.float32)))
        if draft.chance(0.5):
            x = g.add(Softmax(1), x)
    g.output(x)
    return g


@kind(250)
def quantized_networks(draft: Draft) -> None:
    """The whole lowered graph, from float input to float output."""
    draft.chip = draft.pick(Chip.BM1684, Chip.BM1686)
    old = float_network(draft)
    shape = old.inputs[0].type.static_shape
    samples = [{"x": draft.rng.normal(size=shape).astype(np.float32)} for _ in range(3)]
    quantize(old, calibrate(old, samples, "minmax"), draft.chip)
    draft.graph = legalize(old, draft.chip).graph

    def observe(value: Value, array: np.ndarray) -> None:
        draft.arrays[value] = array

    class Model:
        graph, chip = draft.graph, draft.chip

    feeds = {port.name: samples[0]["x"] for port in draft.graph.input_ports}
    Session(Model(), backend="reference").run(feeds, observe=observe)
