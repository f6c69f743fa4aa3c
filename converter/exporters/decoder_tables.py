"""Tables of the parts of a decoder, indexed by the positions of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.errors import NO_EXACT_FORM, ProblemList, TpuConvertError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.graph_copy import copy_graph, copy_subgraph
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Array


def tabulate_positions(graph: Graph, positions: Value, rows: int, problems: ProblemList) -> None:
    """Replace floats that are computed from the positions alone by lookups in tables of them.

    Angles are products of positions and frequencies, which a chip cannot compute in 16 bits: FLOAT16 does not have the
    number 4001.

    Args:
        graph: graph of a decoder.
        positions: its input [1, new tokens].
        rows: number of positions.
        problems: gets a value that cannot be computed for so many positions.
    """
    values = _computed_values(graph, positions)
    if not values:
        return
    try:
        forward, backward = (_evaluate(graph, positions, values, order) for order in _orders(rows))
    except TpuConvertError as error:
        text = f"a table of {rows} positions cannot be computed: {error}"
        problems.add(NO_EXACT_FORM, "position_ids", values[0].name, text, "a smaller --decoder-context")
        return
    symbol = positions.shape[1]
    for value, table, reversed_table in zip(values, forward, backward, strict=True):
        axis = value.shape.index(symbol)
        if np.array_equal(np.flip(table, axis), reversed_table, equal_nan=True):
            _look_up(graph, value, positions, np.moveaxis(table, axis, 0), axis)


def _computed_values(graph: Graph, positions: Value) -> list[Value]:
    """Return floats with one row per token that follow from positions by arithmetic and that other values use."""
    reached: dict[Value, bool] = {positions: False}
    for node in graph.sorted_nodes():
        operands = [value for value in node.inputs if value is not None and not value.is_constant]
        if operands and all(value in reached or _is_table(value) for value in operands):
            sources = [value for value in operands if value in reached]
            if sources:
                is_moved = Trait.MOVES_DATA in node.op.traits or Trait.REARRANGES in node.op.traits
                computed = not is_moved or any(reached[value] for value in sources)
                reached.update(dict.fromkeys(node.outputs, computed))
    return [
        value
        for value, is_computed in reached.items()
        if is_computed
        and value.dtype.is_float
        and value.shape.count(positions.shape[1]) == 1
        and any(not set(user.outputs) <= reached.keys() for user in value.users)
    ]


def _is_table(value: Value) -> bool:
    return value.producer is not None and isinstance(value.producer.op, Constdata)


def _orders(rows: int) -> tuple[Array, Array]:
    """All positions, ascending and descending: a lookup gives equal rows for them."""
    ascending = np.arange(rows, dtype=np.int32)
    return ascending, ascending[::-1]


def _evaluate(graph: Graph, positions: Value, values: Sequence[Value], order: Array) -> list[Array]:
    """Compute values for some positions."""
    part = copy_subgraph(graph, [positions], values)
    symbol = str(positions.shape[1])
    others = {extent for value in part.values for extent in value.shape if isinstance(extent, str)}
    static = copy_graph(part, {**dict.fromkeys(others, 1), symbol: len(order)})
    with Session(static) as session:
        results = session.run({static.input_ports[0].name: order[None]})
    return [results[port.name] for port in static.output_ports]


def _look_up(graph: Graph, value: Value, positions: Value, table: Array, axis: int) -> None:
    """Replace a value by rows of a table [positions, ...] whose rows are along an axis of the value."""
    node = value.producer
    assert node is not None
    columns = np.ascontiguousarray(table).reshape(len(table), -1)
    with graph.derived_from(node):
        rows = graph.add(Constdata(), graph.constant(columns, graph.unique(f"{value.name}:table")))
        looked_up = graph.add(IndexSelect(0), rows, graph.add(Reshape((-1,)), positions))
        if any(extent != 1 for extent in table.shape[1 : axis + 1]):
            order = (*range(1, axis + 1), 0, *range(axis + 1, len(value.shape)))
            looked_up = graph.add(Permute(order), graph.add(Reshape((-1, *table.shape[1:])), looked_up))
        else:
            looked_up = graph.add(Reshape((*(1,) * axis, -1, *table.shape[axis + 1 :])), looked_up)
    graph.replace_uses(value, looked_up)


def trim_tables(graph: Graph, positions: Value, rows: int, problems: ProblemList) -> None:
    """Keep the first rows of tables that are indexed by positions only, and check that there are enough."""
    for node in graph.nodes:
        if not isinstance(node.op, IndexSelect) or node.op.dim != 0:
            continue
        table, index = node.inputs
        assert table is not None and index is not None
        step = index.producer
        is_position = index is positions or (
            step is not None and isinstance(step.op, Reshape) and step.inputs[0] is positions
        )
        source = table.producer
        if not is_position or source is None or not isinstance(source.op, Constdata):
            continue
        constant = source.inputs[0]
        assert constant is not None
        have = constant.shape[0]
        assert isinstance(have, int)
        if have < rows:
            text = f"the table '{constant.name}' has {have} positions, the context needs {rows}"
            problems.add(NO_EXACT_FORM, node.op.name, node.name, text, f"--decoder-context {have - 1}")
        elif have > rows:
            short = graph.constant(constant.array[:rows], f"{constant.name}:{rows}")
            with graph.derived_from(source):
                graph.set_input(node, 0, graph.add(Constdata(), short))
