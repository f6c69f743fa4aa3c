"""Integer adds of BM1686 with scales from calibration."""

import numpy as np
import pytest

from tests.support.quantize.networks import Net
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.graph.legality import check_graph
from tpuconvert.schema.ops.arithmetic import Add, Sub
from tpuconvert.schema.types import F32, I8, U8, Chip, QuantParams, TensorType

SHAPE = (1, 3, 16, 16)


def params(dtype, *scales, zero=0):
    return QuantParams(scales, (zero,) * len(scales), dtype, axis=1 if len(scales) > 1 else None)


def sum_of_integers(op, first: QuantParams, second: QuantParams, result: QuantParams) -> Graph:
    """Build a model whose inputs and output are integers, without conversions."""
    graph = Graph("sum")
    values = []
    for name, quant in (("a", first), ("b", second)):
        port = Port(name, quant.dtype.numpy.name, SHAPE, quant)
        values.append(graph.input(name, TensorType(F32, SHAPE), port, quant))
    y = graph.add(op, *values, name="y")
    y.quant = result
    graph.output(y, Port("y", result.dtype.numpy.name, SHAPE, result))
    new = legalize(graph, Chip.BM1686).graph
    problems = ProblemList("sum")
    check_graph(new, Chip.BM1686, problems)
    problems.raise_if_any()
    return new


SCALES = {
    "equal": (params(I8, 0.1), params(I8, 0.1), params(I8, 0.15)),
    "far apart": (params(I8, 0.1), params(U8, 0.0003), params(I8, 0.1)),
    "zero points": (params(I8, 0.07, zero=-128), params(U8, 0.05, zero=255), params(U8, 0.1, zero=90)),
    "per channel": (params(I8, 0.1, 0.02, 0.3), params(U8, 0.05, 0.06, 0.001), params(I8, 0.1, 0.05, 0.25)),
    "one per channel": (params(I8, 0.1, 0.02, 0.3), params(U8, 0.05), params(I8, 0.11)),
}


@pytest.mark.parametrize("op", [Add(), Sub()], ids=lambda op: op.name)
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES.keys())
def test_three_rescales_whose_error_is_half_a_step(op, scales):
    """The bound: half a step for the last rounding, and 255 units that divide the larger scale 2^14 times.

    Units may be coarser where channels share them, yet no more than 1/2^13 of a step.
    """
    graph = sum_of_integers(op, *scales)
    assert [node.op.name for node in graph.nodes] == ["requant_int32", "requant_int32", op.name, "requant_int32"]
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.integers(quant.dtype.min, quant.dtype.max + 1, SHAPE).astype(quant.dtype.numpy)
        for name, quant in zip("ab", scales, strict=False)
    }
    for name, quant in zip("ab", scales, strict=False):  # the limits of both types are combined
        feeds[name][0, :, 0, :2] = quant.dtype.min
        feeds[name][0, :, 0, 2:4] = quant.dtype.max
    found = Session(graph).run(feeds)["y"].astype(np.float64)
    first, second, result = (
        (np.asarray(quant.scale).reshape(1, -1, 1, 1), quant.zero_point[0], quant) for quant in scales
    )
    sign = 1 if op.name == "add" else -1
    exact = (feeds["a"].astype(np.int64) - first[1]) * first[0]
    exact = exact + sign * (feeds["b"].astype(np.int64) - second[1]) * second[0]
    wanted = np.clip(exact / result[0] + result[1], result[2].dtype.min, result[2].dtype.max)
    bound = 0.5 + 255 * np.maximum(np.maximum(first[0], second[0]) / result[0] / 16383, 2.0**-13) + 1e-6
    assert (np.abs(found - wanted) <= bound).all()


def test_operands_are_exact_multiples_that_binary32_holds():
    graph = sum_of_integers(Add(), *SCALES["zero points"])
    session = Session(graph)
    found = {}
    extremes = {"a": np.full(SHAPE, 127, np.int8), "b": np.zeros(SHAPE, np.uint8)}
    session.run(extremes, observe=lambda value, array: found.setdefault(value.name, int(array.flat[0])))
    assert found["y:operand0"] == 255 * round(0.07 / 0.1 * 2**15)  # the next power of two leaves 15 bits
    rescale = graph.nodes[-1].op
    assert (rescale.multiplier_val, rescale.shift_val) == (1 << 30, -30 - 15)
    assert found["y:operand1"] == -255 * round(0.05 / 0.1 * 2**15)
    assert 2 * 255 * 32767 < 2**24


def test_a_constant_operand_needs_no_operator_and_no_8_bits():
    net = Net()
    y = net.conv(net.x, 4, "a", relu=False)
    table = net.graph.constant(np.linspace(-900.0, 900.0, 144, dtype=np.float32).reshape(1, 4, 6, 6), "table")
    net.graph.output(net.graph.add(Add(), y, table, name="s"), None)
    graph = net.graph
    graph.find("a").quant = params(I8, 0.05)
    graph.inputs[0].quant = params(I8, 0.05)
    graph.find("s").quant = params(I8, 8.0)
    new = legalize(graph, Chip.BM1686).graph
    names = [node.op.name for node in new.nodes]
    assert names == ["requant_fp32_to_int", "conv_v2", "requant_int32", "requant_int32", "add", "requant_int32",
                     "dequant_int_to_fp32"]  # fmt: skip
    held = new.find("table")
    unit = 8.0 / 2**16  # 900 / 255 / 8 * 2^16 is the largest that stays below 2^15
    np.testing.assert_allclose(held.array * unit, table.array, atol=unit)
