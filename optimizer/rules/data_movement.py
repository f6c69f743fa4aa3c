"""Simplification of chains of data movement operators.

Reshapes, permutes, slices and channel shuffles in any order compute a strided view of their operand: see
``optimizer.strided_view``. The rule looks for cheaper forms of the same view, in this order:

- the tensor itself, or a reshape of it;
- a slice, then a reshape if needed: selecting every other channel is exported as reshape, permute, reshape, slice,
  reshape;
- a channel shuffle, then a reshape: exported as reshape, permute, reshape;
- a permute, with a reshape before and after it if needed.

A chain is replaced only by a form of lower cost (``Op.rewrite_weight``: reshape 1, slice and shuffle 2, permute 3), or
by a shorter one of equal cost. Nodes with other users do not count as saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.strided_view import View
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape

_LONGEST = 12
_MOST_AXES = 8

Form = list[Op]


def _chain(node: Node) -> list[Node]:
    """The data movement nodes from a node upwards, the last one first."""
    chain = [node]
    while len(chain) < _LONGEST:
        above = operand(chain[-1]).producer
        if above is None or not _is_move(above):
            break
        chain.append(above)
    return chain


def _is_move(node: Node) -> bool:
    """Return True for data movement of known extents that does not round: requantization is a node of its own."""
    if Trait.VIEWS not in node.op.traits or rounds(node):
        return False
    x, y = operand(node), node.output
    return x.type.is_static and y.type.is_static and 0 not in x.shape and 0 not in y.shape


def _ends_a_chain(node: Node) -> bool:
    return _is_move(node) and len(_chain(node)) > 1


@rule(p(Trait.VIEWS, name="last", reads=Trait.VIEWS, where=_ends_a_chain), stage="fuse", sees_annotations=True)
def simplify_data_movement(graph: Graph, m: Match) -> Replacement:
    """Replace a chain of reshapes, permutes, slices and channel shuffles by the cheapest equivalent."""
    chain = _chain(m.last)
    best: tuple[int, Value, Form] | None = None
    saved = 0
    is_alone = True
    for length, node in enumerate(chain, start=1):
        is_alone = is_alone and (length == 1 or graph.is_sole_use(node.output))
        saved += node.op.rewrite_weight if is_alone else 0
        x = operand(node)
        form = _cheapest(x.type.static_shape, chain[length - 1 :: -1]) if length > 1 else None
        if form is not None:
            gain = saved - sum(op.rewrite_weight for op in form)
            is_better = gain > best[0] if best is not None else gain > 0 or (gain == 0 and len(form) < length)
            if is_better:
                best = gain, x, form
    if best is None:
        return Skip("no cheaper form is known")
    return _build(graph, m.last, best[1], best[2])


def _build(graph: Graph, last: Node, x: Value, form: Form) -> Replacement:
    quant = x.quant
    if not form:
        return x
    for index, op in enumerate(form):
        x = graph.add(op, x)
        if index < len(form) - 1:
            graph.rename(x, graph.unique(f"{last.name}:moved"))
            x.quant = quant
    return x


def _cheapest(shape: tuple[int, ...], nodes: Sequence[Node]) -> Form | None:
    """Return the form of lowest cost that gives the same view as the nodes, for an operand of this shape."""
    view = View.after_all(shape, nodes)
    if view is None:
        return None
    return min(
        (form for form in _forms(shape, view) if _view_of(shape, form) == view),
        key=lambda form: sum(op.rewrite_weight for op in form),
        default=None,
    )


def _view_of(shape: tuple[int, ...], form: Form) -> View | None:
    view: View | None = View.of(shape)
    for op in form:
        if view is not None:
            view = view.through(op, op.reshape_param if isinstance(op, Reshape) else ())
    return view


def _forms(shape: tuple[int, ...], view: View) -> Iterator[Form]:
    """Yield forms that may have the wanted view. The caller checks their view."""
    target = view.shape
    last: Form = [Reshape(target)]
    if shape == target:
        yield []
    yield last
    cut = _slice(shape, view)
    if cut is not None:
        yield [cut]
        yield [cut, *last]
    if view.offset:
        return
    order = sorted(range(len(view.digits)), key=lambda k: -view.digits[k][1])
    parts = tuple(view.digits[k][0] for k in order)
    if math.prod(parts) != math.prod(shape):
        return
    turned = tuple(order.index(k) for k in range(len(order)))
    shuffle = _shuffle(shape, parts, turned)
    if shuffle is not None:
        yield [shuffle]
        yield [shuffle, *last]
    yield from _permute_form(shape, parts, turned, target)


def _slice(shape: tuple[int, ...], view: View) -> Extract | None:
    """Return the slice that begins at the offset of a view and steps through its digits, innermost axis first."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    start = [view.offset // stride % extent for stride, extent in zip(strides, shape, strict=True)]
    count, step = [1] * len(shape), [1] * len(shape)
    axis = len(shape) - 1
    for extent, stride in reversed(view.digits):
        while extent > 1:
            while axis >= 0 and stride >= strides[axis] * shape[axis]:
                axis -= 1
            if axis < 0 or stride % strides[axis]:
                return None
            step[axis] = stride // strides[axis]
            if start[axis] + (extent - 1) * step[axis] < shape[axis]:
                count[axis], extent = extent, 1
            elif step[axis] == 1 and start[axis] == 0 and extent % shape[axis] == 0:
                count[axis], extent = shape[axis], extent // shape[axis]
                stride = strides[axis] * shape[axis]
            else:
                return None
            axis -= 1
    end = [first + (n - 1) * s + 1 for first, n, s in zip(start, count, step, strict=True)]
    return Extract(tuple(start), tuple(end), tuple(step))


def _shuffle(shape: tuple[int, ...], parts: tuple[int, ...], order: tuple[int, ...]) -> ChannelShuffle | None:
    """Return the channel shuffle that exchanges the two factors of axis 1, or None if the permute is not one."""
    if not 2 <= len(shape) < _MOST_AXES:
        return None
    first = 0 if shape[0] == 1 else 1
    swapped = (*range(first), first + 1, first, *range(first + 2, len(parts)))
    if len(parts) < first + 2 or order != swapped or parts[:first] not in ((), shape[:1]):
        return None
    is_axis = parts[first] * parts[first + 1] == shape[1]
    return ChannelShuffle(parts[first]) if is_axis else None


def _permute_form(
    shape: tuple[int, ...], parts: tuple[int, ...], order: tuple[int, ...], target: tuple[int, ...]
) -> Iterator[Form]:
    """Yield a permute of the tensor, or of a reshape of it that merges the axes that move together."""
    last: Form = [Reshape(target)]
    for before in (shape, (*parts, *(1,) * (len(target) - len(parts)))):
        first: Form = [] if before == shape else [Reshape(before)]
        long = [axis for axis, extent in enumerate(before) if extent != 1]
        ones = [axis for axis, extent in enumerate(before) if extent == 1]
        if tuple(before[axis] for axis in long) != parts or len(before) > _MOST_AXES:
            continue
        moved = [long[k] for k in order]
        if len(before) == len(target) and sum(extent == 1 for extent in target) == len(ones):
            one, other = iter(ones), iter(moved)
            yield [*first, Permute(tuple(next(one if extent == 1 else other) for extent in target))]
        yield [*first, Permute((*ones, *moved)), *last]
