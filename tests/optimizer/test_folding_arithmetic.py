"""Folding a constant node gives the bytes that the node gives at run time, with the arithmetic of each chip."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.each import each
from tests.support.operators.op_cases import Use, all_uses, equal_bits, type_of
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.runtime.native.builder.loader import extension
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.op import ALL, Op, OpKind, all_ops
from tpuconvert.schema.errors import TpuConvertError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rsubs, ScalarArithmetic, Subs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import F32, I32, Array, Chip, Scalar, TensorType

BEYOND_FLOAT = np.array([2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31), 2**30 + 1, 7, 0, -1], np.int32)
"""INT32 numbers, most of which binary32 does not have."""


def with_large_integers(use: Use) -> Use:
    """The same use with other INT32 operands, repeated from the list."""
    arrays = [a if a is None or a.dtype != np.int32 else np.resize(BEYOND_FLOAT, a.shape) for a in use.inputs]
    return Use(use.op, arrays, f"{use.name}, large integers")


FOLDABLE = [
    use for use in all_uses() if use.op.kind in (OpKind.TPU, OpKind.COMPOSITE) and use.op.is_pure and use.inputs
]
LARGE = [with_large_integers(use) for use in FOLDABLE if any(a is not None and a.dtype == np.int32 for a in use.inputs)]


def fold_node(use: Use, chip: Chip) -> list[Array] | None:
    """Fold a node of constants. Return None if it is not folded because its extents depend on data."""
    graph = Graph("constants")
    results = graph.add_all(use.op, *(None if a is None else graph.constant(a) for a in use.inputs))
    copies = [graph.add(Copy(), value) for value in results]
    for value in copies:
        graph.output(value)
    count, _ = fold_constants(graph, chip=chip)
    return [value.producer.inputs[0].array for value in copies] if count else None  # type: ignore[union-attr]


def run_node(use: Use, chip: Chip, backend: str) -> list[Array]:
    """Result of the node at run time."""
    graph = Graph("tensors")
    values = [None if a is None else graph.input(f"x{i}", type_of(a)) for i, a in enumerate(use.inputs)]
    for value in graph.add_all(use.op, *values):
        graph.output(value)
    feeds = {f"x{i}": a for i, a in enumerate(use.inputs) if a is not None}
    with Session(FileModel(graph, chip, "0"), backend=backend) as session:  # type: ignore[arg-type]
        return list(session.run(feeds).values())


@pytest.mark.parametrize("chip", list(Chip), ids=lambda chip: chip.value)
@each("use", [*FOLDABLE, *LARGE])
def test_folding_computes_what_the_chip_computes(use: Use, chip: Chip) -> None:
    try:
        wanted = run_node(use, chip, "reference")
    except TpuConvertError:
        pytest.skip("the operator does not take these integers")
    found = fold_node(use, chip)
    if found is None:
        assert any("?" in str(value) for value in use.op.infer(*(a if a is None else type_of(a) for a in use.inputs)))
        return
    for left, right in zip(found, wanted, strict=True):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert equal_bits(left, right), f"folded {left}, at run time {right}"
    # Float results of the engine may be rounded otherwise, within the contract's tolerance; integers may not.
    if extension() is not None and all(a is None or a.dtype.kind != "f" for a in (*wanted, *use.inputs)):
        for left, right in zip(found, run_node(use, chip, "native"), strict=True):
            assert equal_bits(left, right), f"folded {left}, by the engine {right}"


def test_chip_dependent_operators_use_the_target_chip() -> None:
    """The dtype tables state which integers are computed in float32 on which chips."""
    for definition in all_ops().values():
        computed = {
            (dtype, case.compute)
            for support in definition.dtypes.values()
            for case in support.cases
            for dtype in case.operands.get(ALL, ())
            if dtype.is_integer
        }
        ways = {dtype: {way for other, way in computed if other is dtype} for dtype, _ in computed}
        if any("FLOAT32" in found and len(found) > 1 for found in ways.values()):
            assert definition.chip_dependent, definition.name


def int32_sum_and_maximum(g: Graph, x: Value) -> Value:
    total = g.add(Add(), g.constant(np.array([2**24 + 1], np.int32)), g.constant(np.array([1], np.int32)))
    return g.add(Max(), x, total)


@pytest.mark.parametrize(
    ("chip", "wanted"), [(Chip.BM1682, 16777216), (Chip.BM1684, 16777216), (Chip.BM1686, 16777218)], ids=str
)
def test_adds_constants_with_the_arithmetic_of_the_chip(chip: Chip, wanted: int) -> None:
    """(2^24 + 1) + 1: float32 rounds the first operand to 2^24, and the sum 2^24 + 1 again."""
    graph = Graph("sum")
    graph.output(int32_sum_and_maximum(graph, graph.input("x", TensorType(I32, (1,)))))
    optimize(graph, chip=chip)
    assert [node.op.name for node in graph.nodes] == ["max"]
    with Session(FileModel(graph, chip, "0")) as session:
        (found,) = session.run({"x": np.array([0], np.int32)}).values()
    assert found.tolist() == [wanted]


@pytest.mark.parametrize("chip", list(Chip), ids=lambda chip: chip.value)
@pytest.mark.parametrize("op", [Adds(Scalar(I32, 0)), Subs(Scalar(I32, 0)), Muls(Scalar(I32, 1))], ids=str)
def test_neutral_scalars_round_as_the_chip_does(op: Op, chip: Chip) -> None:
    """x + 0 differs from x if INT32 is computed in float32, so that the node stays."""
    results = []
    for is_optimized in (False, True):
        graph = Graph("neutral")
        x = graph.input("x", TensorType(I32, BEYOND_FLOAT.shape))
        graph.output(graph.add(Max(), graph.add(op, x), graph.add(op, x)))
        if is_optimized:
            optimize(graph, chip=chip)
        with Session(FileModel(graph, chip, "0"), backend="reference") as session:
            results += session.run({"x": BEYOND_FLOAT}).values()
    assert equal_bits(*results), results


CHAIN: tuple[type[Op], ...] = (Adds, Subs, Rsubs, Muls, Maxs, Mins, Add, Sub, Mul, Max, Min, Clamp, Copy)
NUMBERS = (0, 1, -1, 2, 2**24 + 1, -(2**31), 2**31 - 1)


def random_integers(seed: int) -> Graph:
    """A graph of INT32 arithmetic in which operands, scalars and results repeat."""
    rng = np.random.default_rng(seed)
    graph = Graph(f"seed {seed}")
    values = [graph.input("x", TensorType(I32, BEYOND_FLOAT.shape)), graph.constant(BEYOND_FLOAT[::-1].copy())]
    for _ in range(8):
        op = CHAIN[rng.integers(len(CHAIN))]
        first, second = (values[rng.integers(len(values))] for _ in range(2))
        low, high = sorted(NUMBERS[rng.integers(len(NUMBERS))] for _ in range(2))
        if op is Clamp:
            values.append(graph.add(Clamp(min=Scalar(I32, low), max=Scalar(I32, high)), first))
        elif issubclass(op, ScalarArithmetic):
            values.append(graph.add(op(scalar=Scalar(I32, low)), first))  # type: ignore[call-arg]
        else:
            values.append(graph.add(op(), *((first,) if op is Copy else (first, second))))
    for value in values[-3:]:
        graph.output(graph.add(Copy(), value))
    return graph


@pytest.mark.parametrize("chip", list(Chip), ids=lambda chip: chip.value)
def test_rules_keep_the_integer_arithmetic_of_the_chip(chip: Chip) -> None:
    """All rules, folding and merging on INT32 graphs: the same bytes as without them."""
    for seed in range(200):
        results = []
        for is_optimized in (False, True):
            graph = random_integers(seed)
            if is_optimized:
                optimize(graph, chip=chip)
            with Session(FileModel(graph, chip, "0"), backend="reference") as session:
                results.append(list(session.run({"x": BEYOND_FLOAT}).values()))
        for left, right in zip(*results, strict=True):
            assert equal_bits(left, right), f"seed {seed}: {left} without, {right} with the optimizer"


def test_removes_neutral_float_scalars() -> None:
    graph = Graph("neutral")
    x = graph.input("x", TensorType(F32, (2,)))
    graph.output(graph.add(Copy(), graph.add(Divs(Scalar(F32, 1)), x)))
    optimize(graph)
    assert not any(node.op.name == "divs" for node in graph.nodes)


@pytest.mark.parametrize("chip", ["bm1682", "bm1684", "bm1686"])
def test_a_converted_model_computes_the_same_with_and_without_folding(chip: str, tmp_path) -> None:
    """The matmul is folded by the optimizer; shape arithmetic of the source is folded by the frontend."""
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["product"]),
        helper.make_node("Max", ["x", "product"], ["y"]),
    ]
    constants = [
        helper.make_tensor("a", TensorProto.INT32, [2], [4097, 5]),
        helper.make_tensor("b", TensorProto.INT32, [2], [4097, 3]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.INT32, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    results = []
    for disabled in ((), ("fold_constants",)):
        with tc.Session(tc.convert(path, chip=chip, disable_rules=disabled)) as session:
            results += session.run({"x": np.array([0, 1], np.int32)}).values()
    assert equal_bits(*results), results
