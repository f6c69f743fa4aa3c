"""Random graphs: optimizing keeps the results, and a second run changes nothing."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rules.graphs import RELU, TANH, assert_same, conv, graph_of, run
from tpuconvert.optimizer import fit_to_chip, optimize
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Mins, Muls
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Chip, Scalar

SHAPE = (1, 2, 3, 4)
ORDERS = [(0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (2, 1, 0, 3), (3, 2, 1, 0)]
MOST_ELEMENTS = 2000


def normalize(g, x, pick):
    channels = x.shape[1]
    parts = [np.random.default_rng(pick + index).normal(size=channels).astype(np.float32) for index in range(4)]
    parts[1] = np.abs(parts[1]) + 0.1
    return g.add_all(BatchNorm(), x, *(g.constant(part) for part in parts))[0]


def with_constant(g, x, pick):
    axis = pick % 4
    shape = [extent if k == axis else 1 for k, extent in enumerate(x.shape)]
    c = g.constant(np.random.default_rng(pick).normal(size=shape).astype(np.float32))
    op = (Add(), Mul(), Sub(), Max())[pick % 4]
    return g.add(op, c, x) if pick % 3 == 0 else g.add(op, x, c)


def convolve(g, x, pick):
    groups = x.shape[1] if pick % 3 == 0 else 1
    return conv(
        g,
        x,
        groups * (1 + pick % 2),
        f"conv{pick}",
        1 + pick % 2,
        bias=pick % 4 > 0,
        groups=groups,
        pad_h_b=1,
        pad_w_r=1,
    )


def pool(g, x, pick):
    kind = (PoolType.AVE, PoolType.MAX)[pick % 2]
    return g.add(Pool(stride_h=1, stride_w=1, kernel_h=2, kernel_w=2, pad_h=1, pad_w=1, pooling_type=kind), x)


STEPS = {
    "relu": lambda g, x, pick: g.add(RELU, x),
    "tanh": lambda g, x, pick: g.add(TANH, x),
    "muls": lambda g, x, pick: g.add(Muls(Scalar.f32((0.5, 1, -2)[pick % 3])), x),
    "adds": lambda g, x, pick: g.add(Adds(Scalar.f32((0.5, 0, -2)[pick % 3])), x),
    "mins": lambda g, x, pick: g.add(Mins(Scalar.f32((0, 0.5)[pick % 2])), x),
    "permute": lambda g, x, pick: g.add(Permute(ORDERS[pick % len(ORDERS)]), x),
    "reshape": lambda g, x, pick: g.add(Reshape((x.shape[0], x.shape[2], x.shape[1], x.shape[3])), x),
    "pad": lambda g, x, pick: g.add(Pad(Scalar.f32(0), (0, 0, 0, 0, pick % 2, 1, 0, pick % 3)), x),
    "softmax": lambda g, x, pick: g.add(Softmax(pick % 4), x),
    "reduce": lambda g, x, pick: g.add(Reduce((pick % 4, (pick + 1) % 4)), x),
    "normalize": normalize,
    "constant": with_constant,
    "conv": convolve,
    "pool": pool,
    "split": lambda g, x, pick: g.add_all(Split(pick % 4, 1, (x.shape[pick % 4],)), x)[0],
}
PAIRS = {"add": Add(), "mul": Mul(), "max": Max()}


@st.composite
def programs(draw):
    """A list of steps: the operation, its operands (counted from the last value), and a random choice."""
    names = st.sampled_from([*STEPS, *PAIRS, "concat"])
    step = st.tuples(names, st.integers(0, 2), st.integers(0, 2), st.integers(0, 11))
    return draw(st.lists(step, min_size=1, max_size=14)), draw(st.integers(0, 3))


def builder_of(program):
    steps, extra = program

    def build(g, x):
        values = [x]
        for name, first, second, pick in steps:
            a, b = values[-1 - first % len(values)], values[-1 - second % len(values)]
            if int(np.prod(a.shape)) > MOST_ELEMENTS:
                continue
            if name in STEPS:
                values.append(STEPS[name](g, a, pick))
            elif name == "concat":
                if a.shape[1:] == b.shape[1:]:
                    values.append(g.add(Concat(0), a, b))
            elif a.shape == b.shape:
                values.append(g.add(PAIRS[name], a, b))
        leaving = dict.fromkeys([values[-1], values[-1 - extra % len(values)]])
        return tuple(g.add(TANH, value) if value is x else value for value in leaving)

    return build


@settings(max_examples=150, deadline=None, derandomize=True)
@given(programs())
def test_same_outputs_valid_and_at_rest(program):
    before, after = graph_of(builder_of(program), SHAPE), graph_of(builder_of(program), SHAPE)
    optimize(after)
    after.validate()
    # products of chains are rounded in another order
    expected = run(before)
    assert_same(expected, run(after), rtol=1e-4)
    assert [port.name for port in before.output_ports] == [port.name for port in after.output_ports]
    count = len(after)
    assert not any(optimize(after).fired.values()) and len(after) == count
    fit_to_chip(after, Chip.BM1682)
    after.validate()
    assert_same(expected, run(after), rtol=1e-4)
