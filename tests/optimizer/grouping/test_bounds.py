"""Lower bounds of the planner: a group that is skipped because of its bound is not cheaper."""

import math
import random

import pytest
from random_networks import random_network

from tpuconvert.optimizer.grouping.candidates import Candidates
from tpuconvert.optimizer.grouping.facts import FactsOfGraph
from tpuconvert.optimizer.grouping.planner import plan_order
from tpuconvert.optimizer.grouping.segment import Segment
from tpuconvert.optimizer.grouping.segment_bounds import SegmentBounds
from tpuconvert.optimizer.grouping.slicing import H, rules
from tpuconvert.optimizer.grouping.tiles import CannotCutError, group_cost
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.groups import Group, Tiles
from tpuconvert.schema.hardware import LocalMemory, hardware_of
from tpuconvert.schema.types import Chip

CHIP = Chip.BM1686
HARDWARE = hardware_of(CHIP)


def random_case(seed: int) -> tuple[Graph, LocalMemory]:
    """Random graph, and a memory in which some of its groups fit untiled, some tiled, and some not at all."""
    draw = random.Random(seed)
    graph = random_network(
        seed, draw.choice((8, 12, 16)), draw.choice((8, 12, 13, 30)), draw.choice((1, 1, 2, 3)), draw.random() < 0.5
    )
    return graph, LocalMemory(draw.choice((2, 4)), draw.choice((100, 200, 300, 600, 1200, 3000, 10_000)), 16)


class Plain:
    """Planner without bounds or shared results: it evaluates every range of consecutive nodes separately."""

    def __init__(self, graph: Graph, memory: LocalMemory) -> None:
        self.graph, self.memory, self.outputs = graph, memory, set(graph.outputs)
        self.facts = FactsOfGraph(graph, graph.nodes, CHIP, HARDWARE)
        self.candidates = Candidates(memory, {shape.n for item in self.facts.facts for shape in item.use.results})

    def weight(self, first: int, stop: int) -> tuple[float, tuple[Tiles, bool]] | None:
        """Lowest cost of a range of nodes and its tiling; None if it is not a group."""
        nodes = self.graph.nodes[first:stop]
        if not is_connected(nodes):
            return None
        whole = group_cost(nodes, self.outputs, Tiles(), False, self.memory, HARDWARE)
        skips = any(cut is not None and cut.skips for node in nodes for cut in rules(node)[H] or ())
        if whole.lane_bytes <= self.memory.lane_bytes and not skips:
            return whole.objective, (Tiles(), False)
        segment = Segment(self.candidates, stop - 1)
        for item in reversed(self.facts.facts[first:stop]):
            segment.add(item)
        found = segment.best()
        return None if found is None else (found[0], self.candidates.ways[found[1]])

    def plan(self, longest: int) -> tuple[float, tuple[Group, ...]]:
        """Cost and groups of the cheapest plan."""
        best: list[tuple[float, tuple[Group, ...]]] = [(0.0, ())]
        for end in range(len(self.graph)):
            weight, groups = best[end][0] + self.facts.moved[end], best[end][1]
            for count in range(2, 1 if self.facts.is_tied(end) else min(longest, end + 1) + 1):
                first = end + 1 - count
                found = self.weight(first, end + 1)
                if found is not None and best[first][0] + found[0] < weight:
                    weight, groups = best[first][0] + found[0], (*best[first][1], Group(first, count, *found[1]))
            best.append((weight, groups))
        return best[-1]


def is_connected(nodes) -> bool:
    reached, ahead = {nodes[0]}, [nodes[0]]
    while ahead:
        node = ahead.pop()
        near = {user for value in node.outputs for user, _ in value.uses}
        near |= {value.producer for value in node.inputs if value is not None}
        new = near.intersection(nodes) - reached
        reached |= new
        ahead += new
    return len(reached) == len(nodes)


@pytest.mark.parametrize("seed", [*range(30), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(30, 300))])
def test_plan_equals_plan_without_bounds(seed: int) -> None:
    graph, memory = random_case(seed)
    longest = 5 if seed % 4 == 3 else 32
    weight, groups = Plain(graph, memory).plan(longest)
    plan = plan_order(graph, graph.nodes, CHIP, HARDWARE, memory, longest)
    assert plan.groups == groups
    assert plan.cost == pytest.approx(weight, rel=1e-12)  # sums of the same terms in another order


@pytest.mark.parametrize("seed", range(20))
def test_no_tiling_costs_less_than_bound(seed: int) -> None:
    """Compare with ``group_cost``, an independent implementation."""
    graph, memory = random_case(seed + 1000)
    plain = Plain(graph, LocalMemory(memory.lanes, 16, 16))  # no group fits untiled, so all are bounds
    draw = random.Random(seed)
    checked = 0
    for end in range(1, len(graph)):
        bounds = SegmentBounds(plain.facts.facts[: end + 1], end, plain.candidates, [None] * end)
        for count in range(2, len(bounds.costs) + 1):
            nodes = graph.nodes[end + 1 - count : end + 1]
            for tiles, keeps in draw.sample(plain.candidates.ways, 12):
                try:
                    found = group_cost(nodes, plain.outputs, tiles, keeps, memory, HARDWARE)
                except CannotCutError:
                    continue
                checked += 1
                assert bounds.costs[count - 1] <= found.objective or not is_connected(nodes)
    assert checked > 20


@pytest.mark.parametrize("seed", range(40))
def test_segment_cost_raises_bounds_of_longer_groups(seed: int) -> None:
    """The raised bounds do not exceed the costs of the longer groups."""
    graph, memory = random_case(seed + 2000)
    plain = Plain(graph, memory)
    end = len(graph) - 1
    for count in range(2, end + 1):
        bounds = SegmentBounds(plain.facts.facts, end, plain.candidates, [None] * end)
        if count > len(bounds.costs) or bounds.ways[count - 1] is not None:
            continue
        bounds.segment_cost(count)
        for longer in range(count + 1, len(bounds.costs) + 1):
            found = plain.weight(end + 1 - longer, end + 1)
            assert found is None or bounds.costs[longer - 1] <= found[0]


@pytest.mark.parametrize("seed", range(60))
def test_bounds_from_earlier_groups(seed: int) -> None:
    """Bounds derived from exact costs and bounds of earlier groups do not exceed the cost."""
    graph, memory = random_case(seed + 3000)
    plain = Plain(graph, memory)
    draw = random.Random(seed)
    before: list[SegmentBounds | None] = []
    for end in range(len(graph)):
        bounds = SegmentBounds(plain.facts.facts[: end + 1], end, plain.candidates, list(before))
        counts = [count for count, way in enumerate(bounds.ways, 1) if way is None and count > 1]
        for count in draw.sample(counts, min(len(counts), 4)):
            if bounds.ways[count - 1] is None:
                bounds.segment_cost(count, draw.choice((-math.inf, math.inf)))
        for count in counts:
            found = plain.weight(end + 1 - count, end + 1)
            assert found is None or bounds.costs[count - 1] <= found[0] * (1 + 1e-12)
        before.append(bounds if draw.random() < 0.8 else None)


@pytest.mark.parametrize("seed", range(40))
def test_groups_after_narrow_node_have_same_cost_without_reuse(seed: int) -> None:
    graph, memory = random_case(seed + 4000)
    plain = Plain(graph, memory)
    shared: list[SegmentBounds | None] = []
    for end in range(len(graph)):
        window = plain.facts.facts[: end + 1]
        alone = SegmentBounds(window, end, plain.candidates, [None] * end).whole
        shared.append(SegmentBounds(window, end, plain.candidates, list(shared)))
        assert finite_costs(shared[end].whole) == finite_costs(alone)


def finite_costs(whole) -> list[tuple[float, float, float]]:
    return [item for item in whole if item[0] < math.inf]
