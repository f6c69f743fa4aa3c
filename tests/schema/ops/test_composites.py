"""Composite operators, compared with their expansions, independent formulas and the ONNX reference evaluator."""

import math

import numpy as np
import pytest

from tests.support.each import each
from tests.support.onnx.reference import run_node, run_node_with_outputs
from tpuconvert.schema.definition.op import OpKind, all_ops
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.composite import Composite
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, Lrn, RmsNorm
from tpuconvert.schema.ops.positions import Positions
from tpuconvert.schema.ops.recurrent.functions import FUNCTIONS
from tpuconvert.schema.ops.recurrent.recurrent import Direction, Gru, Lstm, Rnn
from tpuconvert.schema.ops.recurrent.recurrent_cell import GruCell, LstmCell
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSigmoid, HardSwish, Mish, Silu, Softplus
from tpuconvert.schema.types import F32, I8, I32, U8, Chip, DType, TensorType

ACTIVATIONS = [
    Gelu(), Gelu(GeluForm.TANH), Silu(), Silu(1.702), HardSwish(), HardSigmoid(), HardSigmoid(0.0, 2.0), Mish(),
    Softplus(),
]  # fmt: skip

CASES = [
    *((op, [(2, 3, 5)]) for op in ACTIVATIONS),
    (BatchMatmul(), [(2, 3, 4), (2, 4, 5)]),
    (BatchMatmul(), [(2, 1, 3, 4), (3, 4, 5)]),
    (BatchMatmul(), [(1, 3, 4), (2, 4, 5)]),
    (BatchMatmul(right_transpose=True), [(2, 3, 4), (5, 4)]),
    (BatchMatmul(left_transpose=True), [(4, 3), (4, 5)]),
    (LayerNorm(), [(2, 3, 7)]),
    (LayerNorm(1, 1e-3), [(2, 3, 7), (3, 7), (3, 7)]),
    (LayerNorm(-1), [(5, 7), (7,), None]),
    (LayerNorm(-1), [(5, 7), None, (7,)]),
    (RmsNorm(), [(2, 3, 7), (7,)]),
    (RmsNorm(1), [(2, 3, 7)]),
    (GroupNorm(2), [(2, 6, 3, 5), (6,), (6,)]),
    (GroupNorm(6), [(2, 6, 3)]),
    (GroupNorm(1), [(2, 6), (6,)]),
    (Lrn(5, 0.5, 0.75, 2.0), [(1, 7, 3, 2)]),
    (Lrn(4), [(2, 3, 5)]),
    (Lrn(9, alpha=0.3), [(1, 4, 2, 2)]),
    (ChannelShuffle(3), [(2, 6, 2, 3)]),
    (ChannelShuffle(2), [(1, 4)]),
    (Attention(), [(2, 3, 4), (2, 5, 4), (2, 5, 6)]),
    (Attention(0.3), [(2, 3, 3, 4), (2, 1, 5, 4), (2, 1, 5, 6), (1, 1, 3, 5)]),
    (Attention(0.3, is_causal=True), [(2, 3, 4), (2, 5, 4), (2, 5, 6)]),
    (Attention(is_causal=True), [(2, 4, 4), (2, 2, 4), (2, 2, 6), (1, 4, 2)]),  # two rows without a key
    (Positions(1), [(2, 3, 4)]),
    (Positions(-1, is_reversed=True), [(2, 3, 4)]),
    (LstmCell(), [(2, 3), (2, 4), (2, 4), (3, 16), (4, 16), (1, 16)]),
    (LstmCell(), [(2, 3), (2, 4), (2, 4), (3, 16), (4, 16)]),
    (GruCell(), [(2, 3), (2, 4), (3, 12), (4, 12), (1, 12), (1, 12)]),
    (GruCell(True), [(2, 3), (2, 4), (3, 12), (4, 12), (1, 12), (1, 12)]),
    (GruCell(True), [(1, 3), (1, 1), (3, 3), (1, 3)]),
    (MatmulGroupQuantized(4, 16), [(2, 3, 40), TensorType(U8, (5, 24)), (5, 3), TensorType(U8, (5, 2)), (5,)]),
    (MatmulGroupQuantized(4, 32), [(3, 40), TensorType(U8, (5, 32)), (5, 2), (5, 2)]),
    (MatmulGroupQuantized(8, 16), [(3, 40), TensorType(U8, (5, 48)), (5, 3)]),
    (MatmulGroupQuantized(4, 16, I8), [(2, 3, 40), TensorType(U8, (5, 24)), (5, 3), TensorType(U8, (5, 2)), (5,)]),
    (MatmulGroupQuantized(4, 32, I8), [(3, 64), TensorType(U8, (5, 32)), (5, 2), (5, 2)]),
    (GatherGroupQuantized(40, 4, 16), [TensorType(I32, (5,)), TensorType(U8, (3, 24)), (3, 3), TensorType(U8, (3, 2))]),
    (GatherGroupQuantized(40, 8), [TensorType(I32, (2,)), TensorType(U8, (4, 64)), (4, 2)]),
    (Lstm(), [(3, 2, 3), (1, 16, 3), (1, 16, 4)]),
    (Lstm(Direction.BIDIRECTIONAL, cell_steps=True), [(3, 2, 3), (2, 16, 3), (2, 16, 4)]),
    (
        Lstm(Direction.BIDIRECTIONAL, clip=0.7, input_forget=True, cell_clip=0.5),
        [(3, 2, 3), (2, 16, 3), (2, 16, 4), (2, 32), None, (2, 2, 4), (2, 2, 4), (2, 12)],
    ),
    (Lstm(Direction.REVERSE), [(2, 1, 3), (1, 16, 3), (1, 16, 4), (1, 32), None, None, (1, 1, 4), (1, 12)]),
    (Lstm(), [(3, 2, 3), (1, 16, 3), (1, 16, 4), None, None, (1, 2, 4), (1, 2, 4), None, (3, 2)]),
    (Gru(Direction.REVERSE), [(3, 2, 3), (1, 12, 3), (1, 12, 4), None, None, (1, 2, 4), (3, 2)]),
    (Rnn(), [(1, 2, 3), (1, 4, 3), (1, 4, 4), None, None, (1, 2, 4), (1, 2)]),
    (Gru(), [(3, 2, 3), (1, 12, 3), (1, 12, 4), (1, 24)]),
    (Gru(Direction.REVERSE, linear_before_reset=True), [(3, 2, 3), (1, 12, 3), (1, 12, 4), (1, 24)]),
    (Gru(Direction.BIDIRECTIONAL, clip=0.4), [(3, 2, 3), (2, 12, 3), (2, 12, 4), None, None, (2, 2, 4)]),
    (Rnn(), [(1, 2, 3), (1, 4, 3), (1, 4, 4), (1, 8)]),
    *((Rnn(activations=(name,)), [(3, 2, 3), (1, 4, 3), (1, 4, 4), (1, 8), None, (1, 2, 4)]) for name in FUNCTIONS),
]

ATOL = 4e-6
"""Bound for the float32 roundings of an expansion of ten to twenty operators, and for the erf polynomial."""


def random(seed, shapes):
    rng = np.random.default_rng(seed)
    return [None if found is None else random_array(rng, found) for found in types(shapes)]


def random_array(rng, found):
    if found.dtype is I32:
        return rng.integers(0, 3, found.shape, np.int32)  # indices
    if found.dtype is U8:
        return rng.integers(0, 256, found.shape, np.uint8)
    return rng.normal(size=found.shape).astype(np.float32)


def types(shapes):
    return [TensorType(F32, shape) if isinstance(shape, tuple) else shape for shape in shapes]


def run(graph, arrays, chip):
    """Evaluate a graph on ``arrays`` node by node, without a session or a plan."""
    known = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.sorted_nodes():
        operands = [None if v is None else v.data if v.is_constant else known[v] for v in node.inputs]
        known.update(zip(node.outputs, node.op.evaluate(*operands, chip=chip), strict=True))
    return [value.data if value.is_constant else known[value] for value in graph.outputs]


def run_expansion(op, arrays, coeffs):
    g = Graph("expansion")
    values, feeds = [], []
    for index, array in enumerate(arrays):
        if array is None:
            values.append(None)
        elif index in coeffs:
            values.append(g.constant(array))
        else:
            values.append(g.input("x", TensorType(DType.of(array.dtype), array.shape)))
            feeds.append(array)
    for value in op.expand(g, *values):
        g.output(value)
    g.validate()
    return g, feeds


@pytest.mark.parametrize("with_constants", [False, True], ids=["inputs", "constants"])
@each("op, shapes", CASES)
def test_a_composite_is_its_expansion(op, shapes, with_constants):
    for seed in range(3):
        arrays = random(seed, shapes)
        g, feeds = run_expansion(op, arrays, range(1, len(arrays)) if with_constants else ())
        assert all(node.op.kind is OpKind.TPU for node in g.nodes)
        found, expected = run(g, feeds, Chip.BM1686), op.reference(*arrays)
        inferred = op.infer(*types(shapes))
        for value, one, other, type_ in zip(g.outputs, found, expected, inferred, strict=True):
            assert one.dtype == other.dtype == type_.dtype.numpy
            assert value.shape == type_.shape == one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=ATOL, err_msg=f"{op} seed {seed}")


@pytest.mark.parametrize("op", [op for op in ACTIVATIONS if op != HardSigmoid(0.0, 2.0)], ids=str)
def test_activations_at_the_ends(op):
    x = np.array([-np.inf, -1e30, -200, -90, 0, 90, 200], np.float32)
    (y,) = op.reference(x)
    assert np.isfinite(y).all()
    (at_nan,) = op.reference(np.array([np.nan], np.float32))
    assert np.isnan(at_nan).all()


def test_every_composite_has_a_case():
    integers = {"lstm_int", "gru_int", "rnn_int"}  # tests/schema/ops/recurrent/test_recurrent_int.py
    ours = {type(op).name for op, _ in CASES} | integers
    composites = {name: found for name, found in all_ops().items() if found.kind is OpKind.COMPOSITE}
    # test_symbolic_operators.py has the cases of the others, whose reference is their expansion.
    assert {name for name, found in composites.items() if not issubclass(found, DeferredOp)} == ours
    assert all(issubclass(all_ops()[name], Composite) for name in ours)


# Independent formulas, one element at a time


def softplus(x):
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


FORMULAS = [
    (Gelu(), lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2))),
    (Gelu(GeluForm.TANH), lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
    (Silu(), lambda x: x / (1 + math.exp(-x))),
    (Silu(0.5), lambda x: x / (1 + math.exp(-x / 2))),
    (HardSwish(), lambda x: 0 if x <= -3 else x if x >= 3 else x * (x + 3) / 6),
    (HardSigmoid(), lambda x: min(1.0, max(0.0, 0.2 * x + 0.5))),
    (Softplus(), softplus),
    (Mish(), lambda x: x * math.tanh(softplus(x))),
]


@pytest.mark.parametrize(("op", "formula"), FORMULAS, ids=[str(op) for op, _ in FORMULAS])
def test_activation_formulas(op, formula):
    x = np.linspace(-12, 12, 97, dtype=np.float32)
    expected = [formula(float(number)) for number in x]
    # One rounding to binary32; the written-out tanh form of gelu loses digits where it nearly cancels.
    np.testing.assert_allclose(op.reference(x)[0], expected, rtol=1e-7, atol=1e-14)


def test_channel_shuffle_deals_out():
    x = np.arange(6, dtype=np.float32).reshape(1, 6)
    assert ChannelShuffle(2).reference(x)[0].tolist() == [[0, 3, 1, 4, 2, 5]]
    assert ChannelShuffle(3).reference(x.astype(np.int8))[0].tolist() == [[0, 2, 4, 1, 3, 5]]


def test_lrn_agrees_with_the_example_of_the_host_function():
    """``lrn_cross_channels`` with half = 1 and k = [1, 0.1, -0.75].

    The ONNX evaluator cannot be used: its loop over channels stops at the batch size.
    """
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 4, 2)
    expected = [0.59460354, 0.8773827, 0.97098356, 0.9714088, 0.938875, 0.8971671, 1.4186935, 1.3244802]
    np.testing.assert_allclose(Lrn(3, 0.3, 0.75, 1.0).reference(x)[0].reshape(-1), expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_lrn_channel_by_channel(size):
    (x,) = random(size, [(2, 5)])
    expected = np.empty(x.shape)
    for n, c in np.ndindex(x.shape):
        window = range(max(0, c - (size - 1) // 2), min(5, c + size // 2 + 1))
        total = sum(float(x[n, k]) ** 2 for k in window)
        expected[n, c] = float(x[n, c]) / (1.5 + 0.7 / size * total) ** 0.6
    np.testing.assert_allclose(Lrn(size, 0.7, 0.6, 1.5).reference(x)[0], expected, rtol=1e-7)


def test_a_query_that_may_attend_to_nothing_gets_zeros():
    q, k, v = random(5, [(1, 2, 4), (1, 3, 4), (1, 3, 2)])
    mask = np.array([[[0, -np.inf, -np.inf], [-np.inf] * 3]], np.float32)
    (y,) = Attention().reference(q, k, v, mask)
    np.testing.assert_array_equal(y, np.stack([v[0, 0], np.zeros(2)])[None].astype(np.float32))
    g, feeds = run_expansion(Attention(), [q, k, v, mask], ())
    np.testing.assert_array_equal(run(g, feeds, Chip.BM1682)[0], y)


# The ONNX reference evaluator computes in float32: the tolerances cover a few of its roundings.


ONNX = [
    (Gelu(), [(3, 5)], "Gelu", 20, {}),
    (Gelu(GeluForm.TANH), [(3, 5)], "Gelu", 20, {"approximate": "tanh"}),
    (HardSwish(), [(3, 5)], "HardSwish", 14, {}),
    (HardSigmoid(), [(3, 5)], "HardSigmoid", 6, {"alpha": 0.2, "beta": 0.5}),
    (Softplus(), [(3, 5)], "Softplus", 1, {}),
    (Mish(), [(3, 5)], "Mish", 18, {}),
    (BatchMatmul(), [(2, 1, 3, 4), (3, 4, 5)], "MatMul", 13, {}),
    (LayerNorm(-1), [(2, 3, 7), (7,), (7,)], "LayerNormalization", 17, {"axis": -1}),
    (LayerNorm(1), [(2, 3, 7), (3, 7), (3, 7)], "LayerNormalization", 17, {"axis": 1}),
    (RmsNorm(-1), [(2, 3, 7), (7,)], "RMSNormalization", 23, {"axis": -1}),
    (GroupNorm(2), [(2, 6, 3, 5), (6,), (6,)], "GroupNormalization", 21, {"num_groups": 2}),
    (GroupNorm(6), [(2, 6, 3, 5), (6,), (6,)], "InstanceNormalization", 6, {}),
    (Attention(), [(2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)], "Attention", 23, {}),
    (Attention(0.3), [(2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6), (1, 1, 4, 5)], "Attention", 23, {"scale": 0.3}),
]


@pytest.mark.parametrize(("op", "shapes", "name", "opset", "attributes"), ONNX, ids=lambda x: str(x)[:40])
def test_onnx_agrees(op, shapes, name, opset, attributes):
    arrays = random(11, shapes)
    expected = run_node(name, arrays, opset, **attributes)
    np.testing.assert_allclose(op.reference(*arrays)[0], expected, rtol=1e-5, atol=2e-6)


def test_onnx_lstm_agrees():
    x, h, c, w, r, bias = random(3, [(2, 3), (2, 4), (2, 4), (3, 16), (4, 16), (1, 16)])
    biases = np.concatenate([bias, np.zeros_like(bias)], axis=1)
    arrays = [x[None], w.T[None], r.T[None], biases, None, h[None], c[None]]
    _, hidden, cell = run_node_with_outputs("LSTM", arrays, 3, 14, hidden_size=4)
    found = LstmCell().reference(x, h, c, w, r, bias)
    np.testing.assert_allclose(found[0], hidden[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], cell[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("linear_before_reset", [False, True])
def test_onnx_gru_agrees(linear_before_reset):
    x, h, w, r, bias, recurrent_bias = random(4, [(1, 3), (1, 4), (3, 12), (4, 12), (1, 12), (1, 12)])
    biases = np.concatenate([bias, recurrent_bias], axis=1)
    arrays = [x[None], w.T[None], r.T[None], biases, None, h[None]]
    settings = {"hidden_size": 4, "linear_before_reset": int(linear_before_reset)}
    _, hidden = run_node_with_outputs("GRU", arrays, 2, 14, **settings)
    (found,) = GruCell(linear_before_reset).reference(x, h, w, r, bias, recurrent_bias)
    np.testing.assert_allclose(found, hidden[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "shapes", "text"),
    [
        (BatchMatmul(), [(2, 3, 4), (2, 5, 6)], "number of rows of matrix_right must be 4, not 5"),
        (BatchMatmul(), [(2, 3, 4), (3, 4, 6)], "cannot broadcast"),
        (BatchMatmul(), [(3,), (3, 4)], "needs matrices"),
        (LayerNorm(3), [(2, 3)], "axis 3 does not exist"),
        (LayerNorm(), [(2, 3), (2,)], r"scale must be \[3\]"),
        (LayerNorm(), [(2, 3), (3,), (1, 3)], r"bias must be \[3\]"),
        (RmsNorm(0), [(2, 3), (3,)], r"scale must be \[2, 3\]"),
        (GroupNorm(4), [(1, 6, 2, 2)], "6 channels do not form 4 groups"),
        (GroupNorm(2), [(1, 6, 2, 2), (2,)], r"scale must be \[6\]"),
        (Lrn(3), [(6,)], "must have rank"),
        (ChannelShuffle(4), [(1, 6)], "6 channels do not form 4 groups"),
        (Attention(), [(3, 4), (5, 4), (6, 4)], "number of rows of value must be 5, not 6"),
        (Attention(), [(1, 3, 4), (5, 4), (5, 4)], "one rank"),
        (Attention(), [(3, 4), (5, 4), (5, 4), (2, 5)], "broadcast"),
        (LstmCell(), [(2, 3), (2, 4), (2, 5), (3, 16), (4, 16)], "units of cell must be 4, not 5"),
        (LstmCell(), [(2, 3), (2, 4), (2, 4), (3, 12), (4, 16)], "columns of weight must be 16, not 12"),
        (GruCell(), [(2, 3), (2, 4), (3, 12), (4, 12), (12, 1)], "bias must be"),
        (GruCell(), [(2, 3), (1, 4), (3, 12), (4, 12)], "batch of hidden must be 2, not 1"),
    ],
)
def test_shapes_that_do_not_fit(op, shapes, text):
    with pytest.raises(ShapeError, match=text):
        op.infer(*types(shapes))


@pytest.mark.parametrize("make", [lambda: GroupNorm(0), lambda: Lrn(0), lambda: ChannelShuffle(0)])
def test_parameters_that_mean_nothing(make):
    with pytest.raises(ValueError, match="is 0"):
        make()
    with pytest.raises(ValueError, match="epsilon"):
        LayerNorm(epsilon=-1.0)


def test_integers_are_refused():
    with pytest.raises(ShapeError, match="silu takes FLOAT32"):
        Silu().infer(TensorType(I8, (2,)))


# Legality

NOT_WHOLE_ON_BM1682 = {"attention"}
"""The chip has no softmax for the expansion. The masked form does not need it."""


@pytest.mark.parametrize("chip", Chip, ids=lambda chip: chip.value)
@each("op, shapes", CASES)
def test_legal_where_the_expansion_is(op, shapes, chip):
    verdict = check(op, chip, types(shapes), op.infer(*types(shapes)))
    lacks_softmax = chip is Chip.BM1682 and op.name in NOT_WHOLE_ON_BM1682 and len(shapes) == 3
    lacks_softmax = lacks_softmax and not op.is_causal
    assert (verdict.status is Status.ILLEGAL) == lacks_softmax, verdict.reason


def test_legality_tells_the_operator_inside():
    shapes = [(2, 3, 4), (2, 5, 4), (2, 5, 6)]
    verdict = check(Attention(), Chip.BM1682, types(shapes), types([(2, 3, 6)]))
    assert verdict.reason == (
        "attention consists of other operators: BM1682 does not have softmax (BM1684 and BM1686 have it)"
    )
    verdict = check(Gelu(), Chip.BM1686, types([(2,)]), types([(2,)]))
    assert verdict.status is Status.WARNING
    assert verdict.reason == "gelu consists of other operators: the vendor marks div as unfinished on BM1686"


def test_symbolic_extents_are_as_legal_as_numbers():
    shapes = [("N", 3, "4*T"), ("N", "4*T", 5)]
    verdict = check(BatchMatmul(), Chip.BM1684, types(shapes), BatchMatmul().infer(*types(shapes)))
    assert verdict.status is Status.LEGAL
    shapes = [("N", 3, 4), ("N", "T", 4), ("N", "T", 6)]
    verdict = check(Attention(), Chip.BM1682, types(shapes), types([("N", 3, 6)]))
    assert "BM1682 does not have softmax" in verdict.reason
    x = types([("N", 4)])
    assert check(LayerNorm(), Chip.BM1684, x, x).status is Status.LEGAL


def test_integers_are_illegal_in_words():
    x = [TensorType(I8, (2,))]
    assert "takes FLOAT32" in check(Silu(), Chip.BM1686, x, x).reason
    x = [TensorType(I8, (1, 4))]
    assert check(ChannelShuffle(2), Chip.BM1684, x, x).status is Status.LEGAL
