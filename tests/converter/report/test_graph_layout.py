"""Blocks and layout of the graph view."""

import itertools
import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.networks.work_counts import calls_of
from tests.support.report.graph_view_cases import (
    CASES,
    Case,
    chain,
    components,
    decoder,
    fan_in,
    random_graph,
    residual,
    transformer,
    u_net,
)
from tpuconvert.report.graph_blocks import LARGEST, Blocks, find_blocks, label_blocks
from tpuconvert.report.graph_layout import BLOCK, BOX, PORT, describe_layout, lay_out, operator_kinds
from tpuconvert.report.layered_layout import BOX_GAP, LINE_GAP, Net, Plan

GRAPHS = pytest.mark.parametrize("name", CASES)


def blocks_of(case: Case) -> Blocks:
    return find_blocks(case.names, case.edges, case.vertices)


@st.composite
def graphs(draw: st.DrawFn) -> Case:
    case = Case()
    for v in range(draw(st.integers(0, 40))):
        producers = draw(st.lists(st.integers(0, v - 1), max_size=3)) if v else []
        case.node(draw(st.sampled_from(["a/b/n", "a/c/n", "d/n", "n"])), *producers)
    return case.with_ports()


def check_blocks(blocks: Blocks, case: Case) -> None:
    """Check that blocks are disjoint, connected, convex, and in topological order."""
    edges = set(_pairs(case.edges))
    assert len(blocks.names) == len(blocks.members)
    shown = [v for item in blocks.items for v in ([item] if item >= 0 else blocks.members[-1 - item])]
    assert sorted(shown) == list(range(case.vertices))
    place = {v: i for i, v in enumerate(shown)}
    # Each block is an interval of this order, and no edge goes back in it: no path leaves a block and returns.
    assert all(place[a] < place[b] for a, b in edges)
    for members in blocks.members:
        assert max(members) < len(case.names)
        reached, inside = {members[0]}, set(members)
        for _ in members:
            reached |= {b for a, b in edges if a in reached and b in inside}
            reached |= {a for a, b in edges if b in reached and a in inside}
        assert reached == inside


def _pairs(edges: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(edges[::2], edges[1::2], strict=True))


@GRAPHS
def test_blocks_are_connected_and_convex(name: str) -> None:
    case = CASES[name]() if name != "chain" else chain(1_000)
    check_blocks(blocks_of(case), case)


@GRAPHS
def test_blocks_have_bounded_size(name: str) -> None:
    assert all(len(members) <= LARGEST for members in blocks_of(CASES[name]()).members)


@settings(deadline=None, max_examples=60)
@given(graphs())
def test_blocks_of_random_graphs_are_connected_and_convex(case: Case) -> None:
    check_blocks(blocks_of(case), case)


@settings(deadline=None, max_examples=60)
@given(graphs(), st.randoms(use_true_random=False))
def test_blocks_of_random_labels_are_connected_and_convex(case: Case, random: object) -> None:
    labels = [random.choice([None, 0, 1, 2]) for _ in case.names]  # type: ignore[attr-defined]
    blocks = label_blocks(labels, case.edges, case.vertices)
    check_blocks(blocks, case)
    assert all(len({labels[v] for v in members}) == 1 for members in blocks.members)


def test_blocks_are_scopes_of_source_names() -> None:
    blocks = blocks_of(residual(18, scopes=True))
    assert blocks.names == [f"layer{i}" for i in range(6)]


def test_blocks_are_layers_of_transformer() -> None:
    blocks = blocks_of(transformer(12))
    assert blocks.names == [f"layers.{i}" for i in range(12)]
    assert {len(members) for members in blocks.members} == {23}


def test_scopes_beside_a_large_scope_are_divided_too() -> None:
    case = Case()
    x = case.node("stem")
    for stage, count in enumerate((2, 12, 2)):
        for block in range(count):
            for step in ("conv1", "relu", "conv2", "add"):
                x = case.node(f"stage{stage}/{block}/{step}", x)
    names = blocks_of(case).names
    assert names == [f"stage{stage}/{block}" for stage, count in enumerate((2, 12, 2)) for block in range(count)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("features.{block}.conv.{step}", "features/{block}"),
        ("/layer1/layer1.{block}/conv{step}/Conv", "layer1.{block}"),
        ("net/{block}/conv{step}", "net/{block}"),
        ("net/unit_{block}/conv{step}/Relu;net/unit_{block}/add", "unit_{block}"),
    ],
)
def test_scopes_of_exporters(names: str, expected: str) -> None:
    case = Case()
    x = case.node("stem/conv")
    for block in range(9):
        for step in range(6):
            x = case.node(names.format(block=block, step=step), x)
    found = blocks_of(case)
    assert found.names == [expected.format(block=block) for block in range(9)]


def test_residual_blocks_without_scopes_lie_between_cuts() -> None:
    case = residual(18, scopes=False)
    blocks = blocks_of(case)
    steps = ["conv1", "relu1", "conv2", "add", "relu2"]
    assert [[case.names[v].split("_")[1] for v in members] for members in blocks.members[:-1]] == [steps] * 17
    first, second = ([case.names[v] for v in members] for members in blocks.members[:2])
    assert blocks.names[:2] == [f"{first[0]} to {first[-1]}", f"{second[0]} to {second[-1]}"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("{op}_{v}", "Conv_0 to Add_2"), ("{v}", "Conv 0 to Add 2"), ("/a/{op}_{v}", "Conv_0 to Add_2"), ("x", "x")],
)
def test_blocks_without_scopes_are_named_by_their_nodes(name: str, expected: str) -> None:
    """PyTorch exports have names such as ``Conv_0``; names of the results of nodes without a name are numbers."""
    ops = ["Conv", "Relu", "Add"]
    layers = [{"name": name.format(op=ops[v % 3], v=v), "op": ops[v % 3], "sources": []} for v in range(60)]
    edges = [end for v in range(59) for end in (v, v + 1)]
    blocks = describe_layout(layers, edges, 60)["blocks"]
    assert all("block" not in block["name"] for block in blocks)
    first, _, last = expected.partition(" to ")
    assert blocks[0]["name"].startswith(first), blocks[0]["name"]
    assert (" to " in blocks[0]["name"]) == bool(last)


def test_many_small_scopes_are_joined() -> None:
    case = Case()
    x = case.node("stem")
    for block in range(500):
        for step in ("conv1", "relu", "conv2"):
            x = case.node(f"block{block}/{step}", x)
    blocks = blocks_of(case)
    check_blocks(blocks, case)
    assert blocks.names[:2] == ["block0 to block24", "block25 to block49"]
    assert len(blocks.members) == 20


def test_work_for_deep_scopes_is_bounded() -> None:
    case = chain(20, lambda v: "a/" * 100_000 + str(v))
    assert blocks_of(case).members
    assert sum(map(len, blocks_of(case).names)) < 1_000


def test_small_graph_has_no_blocks() -> None:
    assert blocks_of(chain(5)).members == []


def test_scope_of_whole_graph_is_no_block() -> None:
    assert blocks_of(chain(14, "model/node{}".format)).members == []


def check_plan(plan: Plan, nets: Sequence[Net], widths: Sequence[int], producers: Sequence[int]) -> None:
    """Check that boxes and lines of one layer are apart, and that producers are above their users."""
    spots: dict[int, list[tuple[int, int]]] = {}
    for layer, x, width in zip(plan.layer, plan.x, widths, strict=True):
        spots.setdefault(layer, []).append((x, width // 2))
        assert x - width // 2 >= 0
        assert x + width // 2 <= plan.width
    for (_, *users), trunk, producer in zip(nets, plan.trunks, producers, strict=True):
        assert all(plan.layer[producer] < plan.layer[user] for user in users)
        assert len(trunk) in (0, max(plan.layer[user] for user in users) - plan.layer[producer] - 1)
        for depth, x in enumerate(trunk, plan.layer[producer] + 1):
            spots.setdefault(depth, []).append((x, 0))
    assert len(plan.gaps) == max(plan.layer, default=-1) + 1
    for row in spots.values():
        for (left, half), (right, other) in itertools.pairwise(sorted(row)):
            assert right - left >= half + other + (BOX_GAP if half and other else LINE_GAP)


def check_layout(case: Case) -> None:
    layout = lay_out(case.names, case.edges, case.vertices)
    sizes = [BLOCK if item < 0 else BOX if item < len(case.names) else PORT for item in layout.items]
    place = {v: i for i, item in enumerate(layout.items) for v in _nodes_of(layout, item)}
    check_plan(*layout.top, [size[0] for size in sizes], [place[net[0]] for net in layout.top[1]])
    for block in layout.blocks:
        plan, nets = layout.plans[block.plan]
        widths = [0] * len(block.entries) + [BOX[0]] * len(block.nodes) + [0] * len(block.exits)
        check_plan(plan, nets, widths, [net[0] for net in nets])
        assert {plan.layer[i] for i in range(len(block.entries))} <= {0}
        assert len(set(plan.layer[len(widths) - len(block.exits) :])) <= 1
    drawn = set()
    for v, *items in layout.top[1]:
        drawn |= {(v, user) for item in items for user in _nodes_of(layout, layout.items[item])}
    for block in layout.blocks:
        inside = [*block.entries, *block.nodes, *block.exits]
        last = len(inside) - len(block.exits)
        drawn |= {(inside[a], inside[b]) for a, *users in layout.plans[block.plan][1] for b in users if b < last}
    assert set(_pairs(case.edges)) <= drawn


def _nodes_of(layout: object, item: int) -> list[int]:
    return [item] if item >= 0 else layout.blocks[-1 - item].nodes  # type: ignore[attr-defined, no-any-return]


@GRAPHS
def test_boxes_are_apart_and_producers_above_users(name: str) -> None:
    check_layout(CASES[name]())


@settings(deadline=None, max_examples=60)
@given(graphs())
def test_boxes_of_random_graphs_are_apart(case: Case) -> None:
    check_layout(case)


@GRAPHS
def test_layout_is_deterministic(name: str) -> None:
    first, second = CASES[name](), CASES[name]()
    assert lay_out(first.names, first.edges, first.vertices) == lay_out(second.names, second.edges, second.vertices)


def test_chain_is_straight() -> None:
    layout = lay_out((case := chain(12)).names, case.edges, case.vertices)
    assert len(set(layout.top[0].x)) == 1


def test_many_operands_of_a_node_are_in_several_rows() -> None:
    case = Case()
    x = case.node("stem")
    case.node("concat", *(case.node(f"branch{i}", x) for i in range(200)))
    layout = lay_out(case.names, case.edges, case.vertices, [None] * len(case.names))
    plan, nets = layout.top
    check_plan(plan, nets, [BOX[0]] * len(layout.items), [layout.items.index(net[0]) for net in nets])
    rows = [plan.layer.count(layer) for layer in range(max(plan.layer) + 1)]
    assert len(rows) == 15 and max(rows) == 16 and sum(rows) == 202
    assert plan.width < 8_000  # 200 boxes side by side are 39,600 wide


def test_rows_that_fit_are_not_divided() -> None:
    case = Case()
    x = case.node("stem")
    case.node("concat", *(case.node(f"branch{i}", x) for i in range(32)))
    layout = lay_out(case.names, case.edges, case.vertices, [None] * len(case.names))
    assert max(layout.top[0].layer) == 2


def test_main_path_beside_skip_is_straight() -> None:
    layout = lay_out((case := residual(18, scopes=False)).names, case.edges, case.vertices)
    plan, _ = layout.plans[layout.blocks[1].plan]
    (trunk,) = (trunk for trunk in plan.trunks if len(trunk) > 1)
    assert len(set(plan.x)) == 1
    assert len(set(trunk)) == 1


def test_main_path_beside_shared_tensors_is_straight() -> None:
    layout = lay_out((case := decoder(12)).names, case.edges, case.vertices)
    plan, nets = layout.top
    blocks = [place for place, item in enumerate(layout.items) if item < 0]
    assert [block.name for block in layout.blocks] == [f"layers.{i}" for i in range(12)]
    assert len({plan.x[place] for place in blocks}) == 1
    (mask,) = (trunk for (v, *_), trunk in zip(nets, plan.trunks, strict=True) if v == case.names.index("mask/expand"))
    assert len(set(mask)) == 1


def test_inputs_are_above_their_users() -> None:
    layout = lay_out((case := decoder(12)).names, case.edges, case.vertices)
    plan, nets = layout.top
    for v, *users in nets:
        source = layout.items.index(v) if v in layout.items else None
        if source is not None and v >= len(case.names):
            assert plan.layer[source] == min(plan.layer[user] for user in users) - 1


def test_skips_of_u_net_have_separate_straight_lines() -> None:
    case = u_net(4)
    layout = lay_out(case.names, case.edges, case.vertices, [None] * len(case.names))
    skips = [trunk for trunk in layout.top[0].trunks if len(trunk) > 1]
    assert len(skips) == 4
    assert all(len(set(trunk)) == 1 for trunk in skips)
    assert len({trunk[0] for trunk in skips}) == 4
    plan = layout.top[0]
    assert len({plan.x[v] for v, item in enumerate(layout.items) if item < len(case.names)}) == 1


def test_equal_blocks_share_a_plan() -> None:
    layout = lay_out((case := transformer(12)).names, case.edges, case.vertices)
    assert len(layout.plans) == 1
    assert len(layout.blocks) == 12


def test_node_without_operands_is_in_the_block_of_its_users() -> None:
    case = Case()
    x = case.node("stem")
    for i in range(18):
        scope = f"layer{i // 3}/{i % 3}/"
        table = case.node(f"table{i}")
        y = case.node(f"{scope}lookup", x, table)
        y = case.node(f"{scope}conv", y)
        x = case.node(f"{scope}add", x, y)
    layout = lay_out(case.names, case.edges, case.vertices)
    tables = {v for v, name in enumerate(case.names) if name.startswith("table")}
    blocks = [set(block.nodes) for block in layout.blocks]
    assert len(blocks) > 1
    assert tables <= set().union(*blocks)
    for table in tables:
        assert any({table, table + 1} <= block for block in blocks)


def test_blocks_by_group() -> None:
    case = chain(30)
    layout = lay_out(case.names, case.edges, case.vertices, [None] * 10 + ["group 0"] * 12 + ["group 1"] * 8)
    assert [block.name for block in layout.blocks] == ["group 0", "group 1"]
    assert [len(block.nodes) for block in layout.blocks] == [12, 8]


def test_kinds_of_operators() -> None:
    kinds = {
        "linear": ["conv", "conv_v2", "matrix_mul", "fc_int", "deconv_v2", "batch_matmul", "attention"],
        "arithmetic": ["add", "muls", "rdivs", "add_shift", "max"],
        "activation": ["active", "clamp", "gelu", "lut"],
        "conversion": ["cast", "requant_int32", "dequant_int_to_fp32"],
        "data movement": ["reshape", "permute", "concat", "split", "pad"],
        "other": ["pool", "softmax", "layer_norm", "reduce", "no_such_operator"],
    }
    expected = {name: kind for kind, names in kinds.items() for name in names}
    assert operator_kinds(expected) == expected


def test_description_has_scopes_of_sources_and_groups() -> None:
    case = residual(18, scopes=True)
    layers = [
        {"name": f"t{v}", "op": "conv", "sources": [f"m.onnx: Conv '{name}'"], "group": v // 10 if v < 20 else None}
        for v, name in enumerate(case.names)
    ]
    layout = describe_layout(layers, case.edges, case.vertices)
    assert [block["name"] for block in layout["blocks"]] == [f"layer{i}" for i in range(6)]
    assert [block["name"] for block in layout["groups"]["blocks"]] == ["group 0", "group 1"]
    assert layout["kinds"] == {"conv": "linear"}
    without = describe_layout([{**layer, "group": None} for layer in layers], case.edges, case.vertices)
    assert "groups" not in without
    assert json.loads(json.dumps(without)) == without, "plain values"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain", "random", "transformer"])
def test_layout_of_10_000_nodes_is_small(name: str) -> None:
    case = {"chain": chain, "random": lambda count: random_graph(count, 3), "transformer": transformer}[name](
        435 if name == "transformer" else 10_000
    )
    layout = lay_out(case.names, case.edges, case.vertices)
    assert len(json.dumps(layout.to_dict(), separators=(",", ":"))) < 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [chain, fan_in, lambda count: components(count // 4), lambda count: random_graph(count, 5)],
    ids=["chain", "fan-in", "components", "random"],
)
def test_work_grows_linearly(build: object) -> None:
    def work(count: int) -> int:
        case = build(count)  # type: ignore[operator]
        return calls_of(lambda: lay_out(case.names, case.edges, case.vertices))

    # Twice the nodes take twice the calls. Smaller graphs have smaller blocks, which take fewer calls per node.
    assert work(4_000) < 2.6 * work(2_000)
