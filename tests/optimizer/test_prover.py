"""The prover of the optimizer rules: it refutes wrong rules, and agrees with the references of the operators."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.support.each import check_each
from tests.support.proofs import terms
from tests.support.proofs.cases import Case, ExactDraw
from tests.support.proofs.firings import Firing, firings, firings_of_patterns, prove
from tests.support.proofs.operators import CannotInterpretError, inputs_of, run_graph
from tests.support.proofs.solver import Outcome, Solver, Translation, atoms_of, z3
from tests.support.proofs.terms import Atom, Term, evaluate, exact, number, symbol
from tests.support.sampled import sampled
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.engine.registry import Replacement, RewriteRule, Skip, rule_named, rule_names
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls, Rsubs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eqs, Ges, Gts
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.quantization.round_to_integer import Floor, Round
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import F32, I8, I16, Scalar, TensorType

CUBES = (2, 3, 3, 3)
SIGMOID = Active(ActiveType.ACTIVE_SIGMOID)
EXP = Active(ActiveType.ACTIVE_EXP)
TANH = Active(ActiveType.ACTIVE_TANH)
SQRT = Active(ActiveType.ACTIVE_SQRT)
RELU = Active(ActiveType.ACTIVE_RELU)
SQUARE = Active(ActiveType.ACTIVE_SQUARE)


def scalar(value: float) -> Scalar:
    return Scalar.f32(value)


def select(d: ExactDraw, x: Value) -> Value:
    return d.add(ConditionSelect(), d.add(Gts(scalar(0)), x), x, d.add(TANH, x))


NOT_THIS = Skip("another node is replaced")


def inner(m: Match) -> Value:
    """The first operand of the first operand."""
    return m.op.inputs[0].producer.inputs[0]


def with_inverse_order(graph: Graph, m: Match) -> Value:
    order = m.op.op.order
    return graph.add(Permute(tuple(order.index(axis) for axis in range(len(order)))), m.x)


MUTANTS: dict[str, tuple[Any, Callable[[ExactDraw, Value], Value], Callable[[Graph, Match], Replacement]]] = {
    "swapped axes": (Permute, lambda d, x: d.add(Permute((0, 2, 3, 1)), x), with_inverse_order),
    "wrong sign": (Rsubs, lambda d, x: d.add(Rsubs(scalar(2)), x), lambda g, m: g.add(Adds(scalar(-2)), m.x)),
    "dropped bias": (
        Conv,
        lambda d, x: d.add(Conv(), x, d.weights(1, 2, 3, 2, 2), d.constant(1, 2, 1, 1)),
        lambda g, m: g.add(Conv(), m.x, m.op.inputs[1]),
    ),
    "bias of another channel": (
        MatrixMul,
        lambda d, x: d.add(MatrixMul(), d.add(Reshape((6, 9)), x), d.weights(1, 9, 3), d.g.constant(_row(1, 2, 3))),
        lambda g, m: g.add(MatrixMul(), *m.op.inputs[:2], g.constant(_row(1, 3, 2))),
    ),
    "padding off by one": (
        Pad,
        lambda d, x: d.add(Pad(scalar(0), (0, 0, 0, 0, 1, 2, 0, 0)), x),
        lambda g, m: g.add(Pad(scalar(0), (0, 0, 0, 0, 2, 1, 0, 0)), m.x),
    ),
    "wrong padding value": (
        Pad,
        lambda d, x: d.add(Pad(scalar(1), (0, 0, 0, 0, 1, 2, 0, 0)), x),
        lambda g, m: g.add(Pad(scalar(0), m.op.op.paddings), m.x),
    ),
    "slice off by one": (
        Extract,
        lambda d, x: d.add(Extract((0, 0, 0, 0), (2, 3, 3, 2), (1, 1, 1, 1)), x),
        lambda g, m: g.add(Extract((0, 0, 0, 1), (2, 3, 3, 3), (1, 1, 1, 1)), m.x),
    ),
    "wrong rounding": (
        Round,
        lambda d, x: d.add(Round(), x),
        lambda g, m: g.add(Floor(), g.add(Adds(scalar(0.5)), m.x)),
    ),
    "rounding left out": (
        Cast,
        lambda d, x: d.add(Cast(F32), d.add(Cast(I8), x)),
        lambda g, m: g.add(Clamp(scalar(-128), scalar(127)), inner(m)) if m.op.op == Cast(F32) else NOT_THIS,
    ),
    "saturation left out": (
        Cast,
        lambda d, x: d.add(Cast(F32), d.add(Cast(I8), x)),
        lambda g, m: g.add(Cast(F32), g.add(Cast(I16), inner(m))) if m.op.op == Cast(F32) else NOT_THIS,
    ),
    "maximum for minimum": (Min, lambda d, x: d.add(Min(), x, d.add(TANH, x)), lambda g, m: g.add(Max(), *m.op.inputs)),
    "swapped branches": (
        ConditionSelect,
        select,
        lambda g, m: g.add(ConditionSelect(), m.op.inputs[0], m.op.inputs[2], m.op.inputs[1]),
    ),
    "relation that includes equality": (
        Gts,
        lambda d, x: d.add(Gts(scalar(0.5)), x),
        lambda g, m: g.add(Ges(scalar(0.5)), m.x),
    ),
    "wrong at one number": (
        Eqs,
        lambda d, x: d.add(Eqs(scalar(0.3125)), x),
        lambda g, m: g.add(Muls(scalar(0)), m.x),
    ),
    "negative slope": (
        Max,
        lambda d, x: d.add(Max(), x, d.add(Muls(scalar(2)), x)),
        lambda g, m: g.add(Add(), g.add(RELU, m.x), g.add(Muls(scalar(2)), g.add(Sub(), m.x, g.add(RELU, m.x)))),
    ),
    "wrong count of a mean": (
        Reduce,
        lambda d, x: d.add(Reduce((2,)), x),
        lambda g, m: g.add(Muls(scalar(1 / 4)), g.add(Reduce((2,), ReduceMethodType.REDUCE_SUM), m.x)),
    ),
    "other axis": (Softmax, lambda d, x: d.add(Softmax(2), x), lambda g, m: g.add(Softmax(3), m.x)),
    "function for its inverse": (
        Active,
        lambda d, x: d.add(SQRT, d.add(SQUARE, x)),
        lambda g, m: g.add(Muls(scalar(1)), inner(m)) if m.op.op == SQRT else NOT_THIS,
    ),
    "sum of exponentials": (
        Add,
        lambda d, x: d.add(Add(), d.add(EXP, x), d.add(EXP, x)),
        lambda g, m: g.add(EXP, g.add(Muls(scalar(2)), inner(m))),
    ),
    "one of two operands": (
        Sub,
        lambda d, x: d.add(Sub(), d.add(TANH, x), d.add(SIGMOID, x)),
        lambda g, m: g.add(Muls(scalar(1)), m.op.inputs[0]),
    ),
    "padding in a pooled maximum": (
        Pool,
        lambda d, x: d.add(_pool(1), x),
        lambda g, m: g.add(_pool(0), g.add(Pad(scalar(0), (0, 0, 0, 0, 1, 1, 1, 1)), m.x)),
    ),
    "wrong repetition": (
        Tile,
        lambda d, x: d.add(Tile((1, 1, 2, 1)), x),
        lambda g, m: g.add(Reshape((2, 3, 6, 3)), g.add(Tile((1, 1, 1, 2)), m.x)),
    ),
}
"""Kind of fault -> operator that the wrong rule replaces, the graph, and the replacement."""


def _row(*numbers: float) -> np.ndarray:
    return np.array([numbers], np.float32)


def _pool(pad: int) -> Pool:
    return Pool(stride_h=1, stride_w=1, pad_h=pad, pad_w=pad, kernel_h=2, kernel_w=2, pooling_type=PoolType.MAX)


def firing_of_mutant(name: str) -> Firing:
    operator, build, apply = MUTANTS[name]
    rule = RewriteRule(name, (p(operator, "x", name="op"),), "chip lowering", apply)
    (firing,) = firings(rule, [Case((CUBES,), build)], 1)
    return firing


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_refuted_with_numbers(name: str) -> None:
    """The counterexample makes the references of the operators differ too."""
    firing = firing_of_mutant(name)
    proof = prove(firing, Solver())
    assert proof.outcome is Outcome.REFUTED
    assert " became " in proof.failure and " at " in proof.failure
    feeds = {"x": np.zeros(CUBES, np.float32)}
    for part in proof.failure.rpartition(" at ")[2].split(", "):
        if part != "zeros":
            place, _, value = part.removeprefix("x").partition(" = ")
            feeds["x"][tuple(map(int, place.strip("[]").split(",")))] = float(value)
    before, after = (
        next(iter(Session(graph, backend="reference").run(feeds).values())) for graph in (firing.before, firing.after)
    )
    assert np.abs(before - after).max() > 1e-6


def test_a_counterexample_of_one_number_comes_from_the_solver() -> None:
    solver = Solver()
    proof = prove(firing_of_mutant("wrong at one number"), solver)
    assert solver.asked and proof.failure.endswith("1 became 0 at x[0,0,0,0] = 0.3125")


def graph_of(build: Callable[[ExactDraw, Value], Value], *shape: int) -> Graph:
    draw = ExactDraw(Graph("test"), np.random.default_rng(0))
    draw.g.output(build(draw, draw.g.input("x", TensorType(F32, shape))))
    return draw.g


def test_a_changed_shape_is_refuted() -> None:
    before, after = (graph_of(lambda d, x, to=to: d.add(Reshape(to), x), 3, 4) for to in ((2, 6), (6, 2)))
    proof = prove(Firing(before, after), Solver())
    assert proof.outcome is Outcome.REFUTED and proof.failure.endswith("(2, 6) became (6, 2)")


@pytest.mark.parametrize("factor", [1.0, 1 + 2**-23, 1 + 2**-18])
def test_only_roundings_of_constants_are_tolerated(factor: float) -> None:
    x = symbol("x")
    outcome = Solver().compare(x, x * number(Fraction(factor))).outcome
    assert outcome is {1.0: Outcome.NORMAL_FORM, 1 + 2**-23: Outcome.ROUNDING}.get(factor, Outcome.REFUTED)


def test_what_cannot_be_decided_is_not_proved() -> None:
    """An identity that the normal form and the assumptions do not have: ``sin(x)^2 + cos(x)^2 = 1``."""
    sine, cosine = (terms.function(name, symbol("x")) for name in ("sin", "cos"))
    other = terms.function("sin", symbol("y"))
    assert Solver().compare(sine * sine, sine * sine + cosine - cosine).outcome is Outcome.NORMAL_FORM
    x = symbol("x")
    sine, cosine = (terms.function(name, x) for name in ("sin", "cos"))
    assert Solver().compare(sine * sine + cosine * cosine, number(1)).outcome is Outcome.UNKNOWN
    assert Solver().compare(sine, other).outcome is Outcome.REFUTED


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.75, Fraction(3, 4)), (1 / 3, Fraction(1, 3)), (np.float32(0.1), Fraction(1, 10)), (1e-3, Fraction(1, 1000)),
     (3.0, 3), (2**-20, Fraction(1, 1 << 20)), (np.float32(2**0.5), Fraction(float(np.float32(2**0.5))))],
)  # fmt: skip
def test_number_that_a_float_denotes(value: float, expected: Fraction) -> None:
    assert exact(float(value)) == expected


def test_infinities_are_not_numbers() -> None:
    with pytest.raises(ValueError, match="give the rule a case without infinities"):
        exact(float("inf"))


def test_an_operator_without_definition_is_an_error() -> None:
    graph = graph_of(lambda d, x: d.add(Conv(), x, d.add(Extract((0,) * 4, (2, 2, 1, 1), (1,) * 4), x)), 2, 2, 3, 3)
    with pytest.raises(CannotInterpretError, match=r"conv.* has no symbolic definition for these operands"):
        run_graph(graph, inputs_of(graph, {}))


RAW: dict[str, tuple[Callable[..., Term], Callable[..., z3.ArithRef]]] = {
    "add": (Term.__add__, lambda a, b: a + b),
    "sub": (Term.__sub__, lambda a, b: a - b),
    "mul": (Term.__mul__, lambda a, b: a * b),
    "div": (lambda a, b: a / (b * b + number(1)), lambda a, b: a / (b * b + 1)),
    "max": (terms.maximum, lambda a, b: z3.If(a >= b, a, b)),
    "min": (terms.minimum, lambda a, b: z3.If(a <= b, a, b)),
    "positive": (lambda a, b: terms.positive(a - b), lambda a, b: z3.If(a > b, z3.RealVal(1), z3.RealVal(0))),
    "zero": (lambda a, b: terms.zero(a - b), lambda a, b: z3.If(a == b, z3.RealVal(1), z3.RealVal(0))),
    "choose": (lambda a, b: terms.choose(a, b, a), lambda a, b: z3.If(a > 0, b, a)),
    "floor": (lambda a, b: terms.floor(a) + b, lambda a, b: z3.ToReal(z3.ToInt(a)) + b),
    "round": (
        lambda a, b: terms.rounded(a) - b,
        lambda a, b: z3.If(a >= 0, z3.ToReal(z3.ToInt(a + z3.Q(1, 2))), -z3.ToReal(z3.ToInt(z3.Q(1, 2) - a))) - b,
    ),
}
"""Operations on terms, and the same without normal form."""


def test_normal_forms_are_equal_to_what_they_replace() -> None:
    """Random formulas, each as a term in normal form and as an expression of Z3, which proves that they are equal."""

    def check(number_: int) -> None:
        rng = np.random.default_rng(number_)
        variables = [symbol(name) for name in "xy"]
        translation = Translation(longest=1 << 10)
        pairs = [(term, translation.expression(term)) for term in variables]
        pairs += [(number(value), z3.Q(*value.as_integer_ratio())) for value in (Fraction(-3, 2), Fraction(2))]
        for _ in range(3):
            (a, raw_a), (b, raw_b) = (pairs[int(rng.integers(len(pairs)))] for _ in range(2))
            of_terms, of_raw = RAW[str(rng.choice(list(RAW)))]
            pairs.append((of_terms(a, b), of_raw(raw_a, raw_b)))
        term, raw = pairs[-1]
        solver = z3.Solver()
        solver.set("timeout", 10_000)
        solver.add(translation.expression(term) != raw)
        assert solver.check() != z3.sat, f"{raw} became {translation.expression(term)}: {solver.model()}"

    check_each(check, range(150))


@pytest.mark.parametrize("name", sampled(rule_names()))
def test_definitions_are_those_of_the_operators(name: str) -> None:
    """Symbolic results at random numbers are the results of the references, for the graphs of all rules."""
    rng = np.random.default_rng(0)
    firing = next(iter(firings_of_patterns(rule_named(name), 1)))
    assert firing is not None
    for graph in (firing.before, firing.after):
        inputs = inputs_of(graph, firing.extents)
        values: dict[Atom, float] = {}
        feeds = {}
        for value, symbols in zip(graph.inputs, inputs, strict=True):
            feeds[value.name] = rng.normal(size=symbols.shape).astype(np.float32)
            for term, item in zip(symbols.reshape(-1), feeds[value.name].reshape(-1), strict=True):
                values[atoms_of(term)[0]] = float(item)
        results = Session(graph, backend="reference").run(feeds).values()
        memory: dict[Atom, float] = {}
        for result, array in zip(results, run_graph(graph, inputs), strict=True):
            assert result.shape == array.shape
            for place in itertools.islice(np.ndindex(*result.shape), 0, None, max(1, result.size // 12)):
                found = evaluate(array[place], values, memory)
                np.testing.assert_allclose(found, result[place], rtol=1e-4, atol=1e-5)
