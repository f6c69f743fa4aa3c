"""Choice of the linear operators with 16 bits (algorithm ``int16-nodes``) for a conversion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.quantize import Legalized, Precision, forget_annotations
from tpuconvert.optimizer.quantize.lowering.wide_plan import NO_PLAN, WidePlan, plan_wide_values, takes_16_bits
from tpuconvert.optimizer.quantize.search.accuracy_floor import FEWEST as FLOOR_FEWEST
from tpuconvert.optimizer.quantize.search.accuracy_floor import (
    LARGER_SHARES,
    RUNS,
    Floor,
    FloorCandidates,
    raise_to_floor,
)
from tpuconvert.optimizer.quantize.search.float_simulation import round_operands, simulate
from tpuconvert.optimizer.quantize.search.int16_nodes import FEWEST, MOST_SAMPLES, Int16Nodes, choose_int16_nodes
from tpuconvert.optimizer.quantize.search.measuring_work import affordable_feeds
from tpuconvert.optimizer.quantize.traits import has_constant_weight, is_table
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.graph.cost import macs
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.types import Chip, QuantParams

_MOST_OF_LARGE = 12
"""Number of samples for the floor of a large network, at most a third of the calibration."""


@dataclass(frozen=True)
class Annotated:
    """Input of legalization in addition to an annotated graph.

    Args:
        reasons: nodes that stay float: the reason by the name of the first result.
        two_terms: names of linear operators whose weights are sums of two terms.
        plan: the values with 16 bits.
        narrow: parameters of the 8-bit forms of these values, by name.
    """

    reasons: Mapping[str, str]
    two_terms: Collection[str] = ()
    plan: WidePlan = NO_PLAN
    narrow: Mapping[str, QuantParams] | None = None


def find_int16_nodes(
    graph: Graph,
    max_share: float,
    feeds: FeedSource,
    precision: Precision,
    annotate: Callable[[Collection[str]], Annotated],
    legalize: Callable[[Collection[str]], Legalized],
    *,
    is_requested: bool,
) -> Int16Nodes | None:
    """Choose the nodes with 16 bits.

    Args:
        graph: calibrated float graph.
        max_share: largest share of the multiply-accumulates with 16 bits.
        feeds: calibration samples; the last ones measure the error.
        precision: precision rules. Nodes with a rule for their data type, or for the range of one of their tensors, are
            not candidates.
        annotate: annotates the graph for names of nodes with 16 bits.
        legalize: annotates and legalizes it.
        is_requested: whether the user requests 16 bits.

    """
    total = sum(macs(node, open_extent=1) or 0 for node in graph.nodes)
    linear = {node.name: node for node in graph.sorted_nodes() if has_constant_weight(node)}
    shares = {
        name: (macs(node, open_extent=1) or 0) / max(total, 1)
        for name, node in linear.items()
        if not _has_rule(node, precision)
    }
    shares = {name: share for name, share in shares.items() if share <= max_share}
    if len(feeds) < FEWEST or not shares:
        return None
    reasons = annotate(()).reasons
    plans = {name: plan_wide_values(graph, [name], reasons, Chip.BM1686) for name in shares}
    shares = {
        name: share
        for name, share in shares.items()
        if _reads_16_bits(plans[name], linear[name]) and (is_requested or _is_exportable(plans[name]))
    }
    forget_annotations(graph)

    simulate_with, isolate = _simulations(graph, annotate)
    last = list(feeds.part(max(0, len(feeds) - MOST_SAMPLES), len(feeds)))
    while True:
        with np.errstate(all="ignore"):
            choice = choose_int16_nodes(
                graph, shares, simulate_with, isolate, last, len(feeds), max_share, is_requested=is_requested
            )
        if choice is None:
            return None
        in_float = {item.node for item in legalize(choice.names).float_nodes}
        forget_annotations(graph)
        if in_float.isdisjoint(choice.names):
            return choice
        shares = {name: share for name, share in shares.items() if name not in in_float}


def find_floor(
    graph: Graph,
    max_share: float,
    feeds: FeedSource,
    judged: FeedSource,
    precision: Precision,
    annotate: Callable[[Collection[str]], Annotated],
    legalize: Callable[[Collection[str]], Legalized],
    *,
    is_float: bool = False,
) -> Floor | None:
    """Choose regions with 16 bits, or in float, if a branch of the outputs misses the target (``accuracy_floor``).

    The samples are those that are ``judged``, as many as are affordable. Other arguments are
    described in :func:`find_int16_nodes`. The result is None if all branches meet the target.
    """
    total = max(sum(macs(node, open_extent=1) or 0 for node in graph.nodes), 1)
    reasons = annotate(()).reasons
    linear: dict[str, float] = {}
    elementwise: dict[str, float] = {}
    order = []
    for node in graph.sorted_nodes():
        is_candidate = node.name not in reasons and (is_float or takes_16_bits(node))
        if is_candidate and not _has_rule(node, precision):
            group = linear if has_constant_weight(node) else elementwise
            group[node.name] = (macs(node, open_extent=1) or 0) / total
            order.append(node.name)
    forget_annotations(graph)
    simulate_with, isolate = _simulations(graph, annotate)
    few = min(_MOST_OF_LARGE, max(FLOOR_FEWEST, len(feeds) // 3))
    count = min(len(judged), max(few, affordable_feeds(graph, Chip.BM1686, next(iter(feeds)), RUNS)))
    last = list(judged.part(len(judged) - count, len(judged)))
    candidates = FloorCandidates(linear, elementwise, order)
    larger = () if is_float else LARGER_SHARES
    with np.errstate(all="ignore"):
        floor = raise_to_floor(graph, candidates, simulate_with, isolate, last, max_share, larger)
    if floor is not None and floor.names and not is_float:
        in_float = {item.node for item in legalize(floor.names).float_nodes}
        forget_annotations(graph)
        names = tuple(name for name in floor.names if name not in in_float)
        plan = annotate(names).plan
        forget_annotations(graph)
        floor = replace(floor, names=names, is_exportable=_is_exportable(plan))
    return floor


def _simulations(
    graph: Graph, annotate: Callable[[Collection[str]], Annotated]
) -> tuple[Callable[[Collection[str]], Graph], Callable[[Collection[str]], Iterator[Graph]]]:
    """Functions for float graphs that round all activations, and that round the operand of one node."""

    def simulate_with(names: Collection[str]) -> Graph:
        annotated = annotate(names)
        result = simulate(graph, annotated.plan, annotated.narrow, annotated.reasons.keys())
        forget_annotations(graph)
        return result

    def isolate(names: Collection[str]) -> Iterator[Graph]:
        annotate(())
        graphs = [round_operands(graph, name) for name in names]
        forget_annotations(graph)
        yield from graphs

    return simulate_with, isolate


def _reads_16_bits(plan: WidePlan, node: Node) -> bool:
    """Return True if a node that is selected for 16 bits has an operand with 16 bits."""
    return any(value in plan.values for value in computed_operands(node))


def _is_exportable(plan: WidePlan) -> bool:
    """Return True if both exports to the vendor's compiler have exact forms of all producers of values with 16 bits.

    TPULang has none of functions, which gather from a table of floats.
    """
    ops = (value.producer.op for value in plan.values if value.producer is not None)
    return not any(is_table(op) and op.clamp_range() is None for op in ops)


def _has_rule(node: Node, precision: Precision) -> bool:
    tensors = {value.name for value in (*computed_operands(node), *node.outputs)}
    tensors |= {user.outputs[0].name for value in node.outputs for user in value.users if user.op.clamp_range()}
    rules = (precision.asymmetric, precision.thresholds, precision.methods)
    return node.name in precision.integers or any(not tensors.isdisjoint(names) for names in rules)
