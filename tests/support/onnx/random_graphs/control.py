"""Steps with subgraphs: If, Loop and Scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support.onnx.random_graphs.drawing import BOOL, F32, I64, Declined, Drawing, Value
from tests.support.onnx.random_graphs.registry import step

CALM = ("Tanh", "Relu", "Abs", "Neg", "Sigmoid", "Identity")


def _info(name: str, dtype: Any = F32, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def _chain(d: Drawing, source: str, others: list[str]) -> tuple[list[onnx.NodeProto], str]:
    """A few nodes that keep the shape of their source."""
    nodes, last = [], source
    for _ in range(d.integer(1, 2)):
        name = d.name("b")
        if others and d.chance(0.5):
            nodes.append(helper.make_node(d.choose(["Add", "Mul", "Max"]), [last, d.choose(others)], [name]))
        else:
            nodes.append(helper.make_node(d.choose(CALM), [last], [name]))
        last = name
    return nodes, last


@step(0.8)
def if_(d: Drawing) -> object:
    x = d.value((F32,))
    same = [v for v in d.values if v.dtype == F32 and v.shapes == x.shapes]
    condition = d.constant(np.asarray(d.chance(0.5))) if d.chance(0.4) else d.input(BOOL, [(), ()])
    branches, used = {}, {x.name: x}
    for key in ("then_branch", "else_branch"):
        other = d.choose(same)
        used[other.name] = other
        nodes, last = _chain(d, x.name, [other.name])
        branches[key] = helper.make_graph(nodes, key, [], [_info(last)])
    node = helper.make_node("If", [condition.name], [d.name()], name=d.name("n"), **branches)
    return d.add(node, [condition, *used.values()])


@step(0.8)
def loop(d: Drawing) -> object:
    if d.opset < 11:
        raise Declined
    x = d.value((F32,))
    trips = d.integer(0, 4)
    count = (
        d.constant(np.asarray(trips, np.int64))
        if d.chance(0.6)
        else d.input(I64, [(), ()], lambda rng, s: np.asarray(trips, np.int64))
    )
    going = d.constant(np.asarray(True))
    nodes, last = _chain(d, "state", [x.name])
    nodes.append(helper.make_node("Identity", ["going"], ["go"]))
    with_scan = d.chance(0.6)
    # without a declared shape, ONNX Runtime gives the scan output of no iteration the rank 1
    shape = x.shape if x.is_static else None
    if shape is None and not trips:
        raise Declined
    results = [_info("go", BOOL), _info(last, shape=shape)]
    if with_scan:
        nodes.append(helper.make_node(d.choose(CALM), [last], ["row"]))
        results.append(_info("row", shape=shape))
    body = helper.make_graph(nodes, "body", [_info("i", I64, []), _info("going", BOOL, []), _info("state")], results)
    outputs = [d.name() for _ in range(1 + with_scan)]
    node = helper.make_node(
        "Loop", [count.name, going.name if d.chance(0.7) else "", x.name], outputs, name=d.name("n"), body=body
    )
    return d.add(node, [count, x, *([going] if going.name in node.input else [])])


@step(0.4)
def scan(d: Drawing) -> object:
    x = d.of_rank(2, 3, dtypes=(F32,))
    shapes = [s[1:] for s in x.shapes]
    start = d.fresh(F32, shapes)
    nodes = [
        helper.make_node(d.choose(["Add", "Max"]), ["state", "part"], ["sum"]),
        helper.make_node(d.choose(CALM), ["sum"], ["row"]),
    ]
    body = helper.make_graph(nodes, "body", [_info("state"), _info("part")], [_info("sum"), _info("row")])
    more = {"scan_input_directions": [1]} if d.chance(0.3) else {}
    node = helper.make_node(
        "Scan", [start.name, x.name], [d.name(), d.name()], name=d.name("n"), body=body, num_scan_inputs=1, **more
    )
    return d.add(node, [start, x])


assert Value
