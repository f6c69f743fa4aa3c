"""Groups of random graphs and of the data set: validity, memory and cost."""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.grouping import reference_cost
from tests.support.grouping.exhaustive import least_cost
from tests.support.grouping.random_networks import feeds_of, random_network
from tests.support.grouping.tile_execution import run_grouped
from tests.support.networks import data_models
from tpuconvert.optimizer.grouping.group_cost import CannotCutError, group_cost
from tpuconvert.optimizer.grouping.groups import Grouping, Tiles
from tpuconvert.optimizer.grouping.planner import plan_groups, plan_nodes
from tpuconvert.optimizer.node_order import depth_first, shorten_lifetimes, total_lifetime
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.hardware import LocalMemory, hardware_of
from tpuconvert.schema.definition.op import LocalityKind
from tpuconvert.schema.graph import cost
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.graph.locality import locality_of
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.types import F32, Chip, TensorType

BM1686 = hardware_of(Chip.BM1686)
SIZES = (200, 300, 600, 1200, 3000)


def small_memory(seed: int) -> LocalMemory:
    """Memory in which the groups of a small graph must be tiled."""
    return LocalMemory(4, int(np.random.default_rng(seed).choice(SIZES)), 16)


def check_groups(graph: Graph, grouping: Grouping, chip: Chip) -> None:
    """Check the invariants of every group independently of the planner."""
    graph.validate()
    ends = [0, *(group.stop for group in grouping.groups)]
    assert all(group.first >= end for group, end in zip(grouping.groups, ends[:-1], strict=True))
    assert ends[-1] <= len(graph)
    for group in grouping.groups:
        nodes = graph.nodes[group.first : group.stop]
        assert len(nodes) >= 2
        assert all(locality_of(node, chip).kind is LocalityKind.LOCAL for node in nodes)
        assert is_connected(nodes)
        assert is_convex(graph, nodes)
        found = group_cost(
            nodes, set(graph.outputs), group.tiles, group.keeps_constants, grouping.memory, hardware_of(chip)
        )
        assert found.lane_bytes <= grouping.memory.lane_bytes
        assert found.traffic + found.repeated_bytes <= sum(cost.bytes_alone(node) for node in nodes)


def is_connected(nodes) -> bool:
    reached, ahead = {nodes[0]}, [nodes[0]]
    while ahead:
        node = ahead.pop()
        near = [user for value in node.outputs for user, _ in value.uses]
        near += [value.producer for value in node.inputs if value is not None]
        new = {other for other in near if other in nodes} - reached
        reached |= new
        ahead += new
    return len(reached) == len(nodes)


def is_convex(graph: Graph, nodes) -> bool:
    """No path leaves the group and comes back."""
    members = set(nodes)
    ahead = [user for node in nodes for value in node.outputs for user, _ in value.uses if user not in members]
    outside = set(ahead)
    while ahead:
        for value in ahead.pop().outputs:
            new = {user for user, _ in value.uses} - outside
            if new & members:
                return False
            outside |= new
            ahead += new
    return True


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 40))])
@pytest.mark.parametrize("is_integer", [True, False], ids=["int8", "float32"])
def test_random_networks_tile_by_tile(seed: int, is_integer: bool) -> None:
    """Groups executed tile by tile, with overlapping intervals, return the bytes of the whole graph."""
    graph = random_network(seed, 12, height=12, batch=1 + seed % 3, is_integer=is_integer)
    memory = small_memory(seed)
    grouping = plan_groups(graph, Chip.BM1686, memory)
    check_groups(graph, grouping, Chip.BM1686)
    for group, counted in zip(grouping.groups, run_grouped(graph, grouping, feeds_of(graph), Chip.BM1686), strict=True):
        nodes = graph.nodes[group.first : group.stop]
        found = group_cost(nodes, set(graph.outputs), group.tiles, group.keeps_constants, memory, BM1686)
        assert counted.peak <= found.lane_bytes <= memory.lane_bytes
        assert counted.stored == found.stored
        assert counted.loaded <= found.loaded  # the planner also counts constants


def test_random_networks_are_tiled_along_every_axis() -> None:
    missing = {0, 1, 2}
    for seed in range(40):
        graph = random_network(seed, 12, height=12, batch=1 + seed % 3)
        groups = plan_groups(graph, Chip.BM1686, small_memory(seed)).groups
        missing -= {axis for group in groups for axis in range(3) if group.tiles[axis] > 1}
        if not missing:
            break
    assert not missing


OF_EVERY_RUN = (0, 2, 3, 4)
"""Networks in float, and one in integers, that take less than a second each."""


@pytest.mark.parametrize(
    "seed", [seed if seed in OF_EVERY_RUN else pytest.param(seed, marks=pytest.mark.slow) for seed in range(100)]
)
def test_within_five_percent_of_exhaustive_search(seed: int) -> None:
    graph = random_network(seed, 8, is_integer=bool(seed % 2))
    memory = LocalMemory(4, int(np.random.default_rng(seed).choice([200, 300, 500, 1000])), 16)
    best = least_cost(graph, Chip.BM1686, memory)
    costs = []
    for order in random_orders(graph, 30):  # a group is consecutive, so that the order limits the groups
        graph.reorder(order)
        costs.append(cost_of(graph, plan_groups(graph, Chip.BM1686, memory), Chip.BM1686))
    assert min(costs) <= 1.05 * best  # can be lower: the search keeps the order of the graph inside a group


def random_orders(graph: Graph, count: int) -> Iterator[list[Node]]:
    """Topological orders: the order of the graph, the depth-first one, and random ones that often follow a branch."""
    yield list(graph.nodes)
    yield depth_first(graph)
    nodes = list(graph.nodes)
    producers = {node: {v.producer for v in node.inputs if v is not None and v.producer is not None} for node in nodes}
    chance = random.Random(len(nodes))
    for _ in range(count):
        order: list[Node] = []
        ready = [node for node in nodes if not producers[node]]
        while ready:
            node = ready.pop(-1 if chance.random() < 0.5 else chance.randrange(len(ready)))
            order.append(node)
            waiting = [other for other in nodes if other not in order and other not in ready]
            ready += [other for other in waiting if producers[other] <= set(order)]
        yield order


def cost_of(graph: Graph, grouping: Grouping, chip: Chip) -> float:
    """Cost of a grouping, computed by ``group_cost``."""
    nodes, outputs, total = graph.nodes, set(graph.outputs), 0.0
    grouped = set()
    for group in grouping.groups:
        members = nodes[group.first : group.stop]
        grouped.update(members)
        found = group_cost(members, outputs, group.tiles, group.keeps_constants, grouping.memory, hardware_of(chip))
        total += found.traffic + found.repeated_bytes
    return total + sum(cost.bytes_alone(node) or 0 for node in nodes if node not in grouped)


@pytest.mark.parametrize("seed", range(20))
def test_plan_cost_equals_group_cost(seed: int) -> None:
    graph = random_network(seed, 14, height=12, batch=1 + seed % 2, is_integer=bool(seed % 3))
    memory = small_memory(seed + 1)
    plan = plan_nodes(graph, Chip.BM1686, BM1686, memory)
    # One computes the recomputation from ratios, the other from integer multiply-accumulates.
    assert plan.cost == pytest.approx(cost_of(graph, Grouping(memory, plan.groups), Chip.BM1686), rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_group_cost_equals_reference(seed: int) -> None:
    """Compare with loops over all tiles, for random groups and tilings."""
    graph = random_network(seed, 10, height=9, batch=1 + seed % 3, is_integer=bool(seed % 2))
    draw = np.random.default_rng(seed)
    for _ in range(30):
        first = int(draw.integers(len(graph) - 1))
        nodes = graph.nodes[first : int(draw.integers(first + 1, len(graph))) + 1]
        tiling = Tiles(*draw.choice([(1, 1, 3), (2, 1, 1), (1, 2, 5), (3, 1, 4), (1, 1, 9), (1, 4, 1)]).tolist())
        arguments = nodes, set(graph.outputs), tiling, bool(draw.integers(2)), small_memory(seed), BM1686
        found = []
        for implementation in (group_cost, reference_cost.group_cost):
            try:
                found.append(implementation(*arguments))
            except CannotCutError as error:
                found.append(str(error))
        assert found[0] == found[1]


def test_results_do_not_depend_on_the_order() -> None:
    first, second = (random_network(3, 12) for _ in range(2))
    shorten_lifetimes(second)
    one, other = (Session(graph).run(feeds_of(graph)) for graph in (first, second))
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


def chain(count: int) -> Graph:
    g = Graph("chain")
    x = g.input("x", TensorType(F32, (1, 8, 32, 32)))
    for _ in range(count):
        w = g.constant(np.zeros((8, 8, 3, 3), np.float32))
        x = g.add(Conv(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1), x, w)
        x = g.add(Active(ActiveType.ACTIVE_RELU), x)
    g.output(x)
    return g


def test_no_groups_without_memory() -> None:
    assert plan_groups(chain(3), Chip.BM1686, LocalMemory(1, 16, 16)).groups == ()


def test_nodes_around_a_conv_that_does_not_fit_are_grouped() -> None:
    g = Graph("large filters")
    relu = Active(ActiveType.ACTIVE_RELU)
    x = g.add(relu, g.add(relu, g.input("x", TensorType(F32, (1, 64, 8, 4)))))
    x = g.add(Conv(), x, g.constant(np.zeros((4, 64, 3, 3), np.float32)))  # one filter has 2,304 bytes
    g.output(g.add(relu, g.add(relu, x)))
    groups = plan_groups(g, Chip.BM1686, LocalMemory(4, 1000, 16)).groups
    assert [(group.first, group.count) for group in groups] == [(0, 2), (3, 2)]


def test_dynamic_extents_are_in_no_group() -> None:
    g = Graph("open")
    x = g.input("x", TensorType(F32, ("N", 8, 4, 4)))
    g.output(g.add(Active(ActiveType.ACTIVE_RELU), g.add(Active(ActiveType.ACTIVE_RELU), x)))
    assert plan_groups(g, Chip.BM1686).groups == ()


def test_long_chain_evaluates_few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    from tpuconvert.optimizer.grouping import planner

    evaluated = []
    segment = planner.Segment
    monkeypatch.setattr(planner, "Segment", lambda *a: evaluated.append(1) or segment(*a))
    graph = chain(2000)
    grouping = plan_groups(graph, Chip.BM1686)
    assert sum(group.count for group in grouping.groups) == len(graph)
    assert len(evaluated) < 100  # not one for each of 4,000 nodes


def test_groups_of_networks_that_are_all_different_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    from tpuconvert.optimizer.grouping import planner

    monkeypatch.setattr(planner, "PATIENCE", 3)
    graph = random_network(5, 60)
    grouping = plan_groups(graph, Chip.BM1686)
    assert all(group.count <= planner.SHORTEST for group in grouping.groups if group.first > 40)
    check_groups(graph, grouping, Chip.BM1686)


@pytest.mark.slow
@pytest.mark.parametrize("name", data_models.names())
def test_models_of_the_data_set(data_root, name: str) -> None:
    model, _ = data_models.convert_model(data_root, name, "bm1686", "source")
    check_groups(model.graph, plan_groups(model.graph, Chip.BM1686), Chip.BM1686)


def test_nodes_of_interleaved_branches_are_ordered_by_branch() -> None:
    g = Graph("branches")
    x = g.input("x", TensorType(F32, (1, 8, 4, 4)))
    relu = Active(ActiveType.ACTIVE_RELU)
    branches = [x, x, x]
    for _ in range(5):
        branches = [g.add(relu, branch) for branch in branches]
    for branch in branches:
        g.output(branch)
    before = total_lifetime(g.nodes)
    shorten_lifetimes(g)
    g.validate()
    assert total_lifetime(g.nodes) < before
    assert all(second.inputs[0] is first.output for first, second in zip(g.nodes[:5], g.nodes[1:5], strict=False))
