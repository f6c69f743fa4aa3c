"""Locality of nodes against the expressions of the contract, on random parameters."""

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.each import each
from tests.support.operators import contract
from tpuconvert.schema.definition.op import LocalityKind, Op, OpKind, all_ops, limited_local
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.graph.locality import locality_of, locality_of_use
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.ordering import Arg
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.tile import Broadcast, Tile
from tpuconvert.schema.types import F32, I8, I32, Chip, DType, Scalar, TensorType

CASES_PER_OPERATOR = 400
Use = tuple[Op, list[TensorType]]
Random = np.random.Generator


def numbers(rng: Random, low: int, high: int, count: int) -> tuple[int, ...]:
    return tuple(int(number) for number in rng.integers(low, high, count))


def random_type(rng: Random) -> TensorType:
    return TensorType(list(DType)[rng.integers(len(DType))], numbers(rng, 1, 5, int(rng.integers(1, 6))))


def random_axis(rng: Random, x: TensorType) -> int:
    return int(rng.integers(-x.rank, x.rank))


def random_cast(rng: Random) -> Use:
    return Cast(list(DType)[rng.integers(len(DType))]), [random_type(rng)]


def random_tile(rng: Random) -> Use:
    x = random_type(rng)
    return Tile(numbers(rng, 1, 3, x.rank)), [x]


def random_broadcast(rng: Random) -> Use:
    x = random_type(rng)
    return Broadcast(numbers(rng, 1, 3, x.rank)), [x]


def random_extract(rng: Random) -> Use:
    x = random_type(rng)
    start = numbers(rng, 0, 2, x.rank)
    start = tuple(min(first, extent - 1) for first, extent in zip(start, x.static_shape, strict=True))
    end = tuple(
        extent if rng.random() < 0.7 else first + 1 for first, extent in zip(start, x.static_shape, strict=True)
    )
    return Extract(start, end, numbers(rng, 1, 3, x.rank)), [x]


def random_concat(rng: Random) -> Use:
    x = random_type(rng)
    return Concat(random_axis(rng, x)), [x] * int(rng.integers(1, 4))


def random_pad(rng: Random) -> Use:
    x = random_type(rng)
    paddings = numbers(rng, 0, 3, 2 * x.rank)
    return Pad(paddings=tuple(0 if rng.random() < 0.7 else padding for padding in paddings), pad_val=Scalar(F32, 0)), [
        x
    ]


def random_reduce(rng: Random) -> Use:
    x = random_type(rng)
    return Reduce((random_axis(rng, x),)), [x]


def random_arg(rng: Random) -> Use:
    x = random_type(rng)
    return Arg(random_axis(rng, x)), [x]


USES: dict[str, Callable[[Random], Use]] = {
    "arg": random_arg,
    "broadcast": random_broadcast,
    "cast": random_cast,
    "concat": random_concat,
    "extract": random_extract,
    "pad": random_pad,
    "reduce": random_reduce,
    "tile": random_tile,
}

CONDITIONS = {e["name"]: e["locality"]["condition"] for e in contract.every_entry() if "condition" in e["locality"]}


def node_of(op: Op, types: list[TensorType]) -> Node:
    graph = Graph()
    graph.add_all(op, *(graph.input(f"x{number}", type_) for number, type_ in enumerate(types)))
    return graph.nodes[-1]


def evaluate_condition(condition: str, node: Node, chip: Chip) -> bool:
    """Evaluate an expression of the contract; ``global`` if it needs an axis that the tensor lacks."""
    parameters = {k: int(v) if isinstance(v, enum.IntEnum) else v for k, v in node.op.attributes().items()}
    operands = [(node.op.inputs[0].name, value) for value in node.inputs if value is not None]
    operands += [(node.op.outputs[0].name, node.outputs[0])]
    shapes: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    for name, value in operands:
        shapes.setdefault(name, value.shape)
        dtypes.setdefault(name, value.dtype.value)
    if "axis" in parameters:
        parameters["axis"] %= len(shapes[node.op.inputs[0].name])
    bits = {name: int(entry["bits"]) for name, entry in contract.document()["dtypes"].items()}
    scope = {"__builtins__": {}, "all": all, "len": len, "bits": bits.__getitem__, **parameters}
    try:
        return bool(eval(condition, {**scope, "chip": chip.value, "d": dtypes, "shape": shapes}))
    except IndexError:
        return False


def test_every_condition_of_the_contract_is_tried() -> None:
    assert set(USES) == set(CONDITIONS)


@pytest.mark.parametrize("name", USES)
def test_conditions_agree_with_the_contract(name: str) -> None:
    rng = np.random.default_rng(18)
    answers = set()
    for number in range(CASES_PER_OPERATOR):
        node = node_of(*USES[name](rng))
        for chip in Chip:
            wanted, found = evaluate_condition(CONDITIONS[name], node, chip), locality_of(node, chip)
            assert found.is_local == wanted, f"use {number} of seed 18 on {chip.value}: {node.op}, {found}"
            answers.add(found.is_local)
    assert answers == {True, False}


@each("entry", contract.defined_entries(), lambda entry: entry["name"])
def test_unconditional_localities_match_contract(entry: contract.Entry) -> None:
    definition = all_ops()[entry["name"]]
    if "condition" not in entry["locality"]:
        assert definition.locality.kind.value == entry["locality"]["kind"]
        assert definition.locality.kind is not LocalityKind.LIMITED_LOCAL
        assert definition.locality.condition is None


def test_reasons() -> None:
    x = TensorType(F32, (1, 3, 4, 4))
    assert locality_of(node_of(Add(), [x, x]), Chip.BM1686).reason == "add is always local"
    assert locality_of(node_of(Permute((0, 2, 3, 1)), [x]), Chip.BM1686).reason == "permute is always global"
    joined = locality_of(node_of(Concat(-3), [x, x]), Chip.BM1684)
    assert joined.kind is LocalityKind.GLOBAL
    assert joined.reason == (
        "concat(axis=-3) on FLOAT32[1, 3, 4, 4] and FLOAT32[1, 3, 4, 4] does not meet the condition: "
        "any axis but 1; on BM1684 axis 0 of 8 and 16 bit data is global too"
    )
    cast = locality_of(node_of(Cast(I32), [x]), Chip.BM1682)
    assert cast.is_local
    assert "INT32) meets the condition: on BM1682 only FLOAT32 to INT32 is local" in cast.reason


def test_chips_differ() -> None:
    joined = node_of(Concat(0), [TensorType(I8, (2, 3))])
    assert {chip: locality_of(joined, chip).is_local for chip in Chip} == {
        Chip.BM1682: True,
        Chip.BM1684: False,
        Chip.BM1686: True,
    }


def test_a_symbolic_extent_is_not_known_to_be_taken_whole() -> None:
    for extent, local in ((3, True), ("C", False)):
        x = TensorType(F32, (1, extent))
        taken = Extract((0, 0), (1, 3), (1, 1))
        assert locality_of_use(taken, Chip.BM1686, [x], [TensorType(F32, (1, 3))]).is_local is local


def test_a_missing_axis_makes_a_node_global() -> None:
    class Third(Add):
        locality = limited_local(lambda op, ins, outs, chip: ins[0].shape[2] == 1, "axis 2 has extent 1")

    three, two = TensorType(F32, (2, 2, 1)), TensorType(F32, (2, 1))
    assert locality_of_use(Third(), Chip.BM1686, [three, three], [three]).is_local
    found = locality_of_use(Third(), Chip.BM1686, [two, two], [two])
    assert found.kind is LocalityKind.GLOBAL
    assert "lacks an axis of the condition: axis 2 has extent 1" in found.reason


def test_absent_operands_do_not_count() -> None:
    x = TensorType(F32, (1, 2))
    assert locality_of_use(Concat(0), Chip.BM1686, [None, x], [x]).is_local


def test_host_operators_are_global() -> None:
    hosts = [definition for definition in all_ops().values() if definition.kind is OpKind.HOST]
    assert hosts
    for definition in hosts:
        op = object.__new__(definition)  # parameters do not matter
        found = locality_of_use(op, Chip.BM1686, [], [])
        assert found.kind is LocalityKind.GLOBAL
        assert found.reason == f"{definition.name} runs on the host"
