"""Run groups tile by tile with the NumPy reference, and measure memory and traffic.

Only the intervals come from the code under test. An interval that is too short gives results of the wrong shape or with
wrong elements at tile edges.
"""

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np

from tests.support.grouping.reference_cost import leaving, needed, part, rule_of
from tpuconvert.optimizer.grouping.groups import Group, Grouping
from tpuconvert.optimizer.grouping.slicing import AXES, C, H, N
from tpuconvert.schema.definition.hardware import LocalMemory
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionParams
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.types import Array, Chip

Box = tuple[tuple[int, int], ...]
"""An interval per axis N, C, H."""


@dataclass
class Counted:
    """Measured memory and traffic of a group, in bytes."""

    peak: int = 0
    loaded: int = 0
    stored: int = 0


def run_whole(graph: Graph, feeds: dict[str, Array], chip: Chip) -> dict[Value, Array]:
    """Compute every value of the graph."""
    arrays = {value: feeds[value.name] for value in graph.inputs}
    arrays |= {value: value.array for value in graph.values if value.is_constant}
    for node in graph.nodes:
        results = node.op.evaluate(*[None if value is None else arrays[value] for value in node.inputs], chip=chip)
        arrays.update(zip(node.outputs, results, strict=True))
    return arrays


def run_grouped(graph: Graph, grouping: Grouping, feeds: dict[str, Array], chip: Chip) -> list[Counted]:
    """Run groups tile by tile. Every result that leaves a group must have the bytes of the untiled run."""
    whole = run_whole(graph, feeds, chip)
    counts = []
    for group in grouping.groups:
        nodes = graph.nodes[group.first : group.stop]
        found, counted = run_tiled(nodes, group, graph, whole, grouping.memory, chip)
        for value, array in found.items():
            assert array.dtype == whole[value].dtype
            assert array.tobytes() == whole[value].tobytes(), f"'{value.name}' of {group}"
        counts.append(counted)
    return counts


def run_tiled(
    nodes: list[Node], group: Group, graph: Graph, whole: dict[Value, Array], memory: LocalMemory, chip: Chip
) -> tuple[dict[Value, Array], Counted]:
    """Run a group tile by tile and return the assembled results that leave it."""
    leave = leaving(nodes, set(graph.outputs))
    together = {value: np.empty_like(whole[value]) for value in leave}
    counted = Counted()
    made = {value for node in nodes for value in node.outputs}
    tiles = group.tiles
    for c, n, h in itertools.product(range(tiles.c), range(tiles.n), range(tiles.h)):
        index = {N: n, C: c, H: h}
        boxes = [needed(nodes, leave, axis, tiles[axis], index[axis]) for axis in AXES]
        held: dict[Value, tuple[Array, Box]] = {}
        for key in boxes[0]:
            if isinstance(key, Value) and key not in made:
                held[key] = _cut(whole[key], tuple(box[key] for box in boxes))
                counted.loaded += held[key][0].nbytes
        steps = _lanes_by_step(nodes, {key: array for key, (array, _) in held.items()}, memory)
        for step, node in enumerate(nodes):
            box = tuple(box[node.outputs[0]] for box in boxes)
            operands = []
            for slot, value in enumerate(node.inputs):
                if value is None:
                    operands.append(None)
                    continue
                wanted = _operand_box(node, slot, value, box, tiles)
                source, origin = (value.array, _all(value)) if value.is_constant else held[value]
                operands.append(_inside(source, origin, wanted))
                if value.is_constant:
                    # Filters are loaded one per lane unless resident; other constants are loaded completely.
                    steps[step] += 0 if isinstance(node.op, ConvolutionParams) else _lanes(operands[-1], memory)
            results = adapt_op(node, box, tiles).evaluate(*operands, chip=chip)
            for value, array in zip(node.outputs, results, strict=True):
                expected = tuple(stop - start for start, stop in box)[: array.ndim]
                assert array.shape[:3] == expected, f"{node.op} returns {array.shape}, expected {expected}"
                held[value] = array, box
                last = max((nodes.index(user) for user, _ in value.uses if user in nodes), default=step)
                for index_ in range(step, last + 1):
                    steps[index_] += _lanes(array, memory)
        counted.peak = max(counted.peak, *steps)
        for value in leave:
            own = tuple(part(extent, tiles[axis], index[axis]) for axis, extent in enumerate(_extents(value)))
            array = _inside(*held[value], own)
            together[value][_slices(own, array.ndim)] = array
            counted.stored += array.nbytes
    return together, counted


def _lanes_by_step(nodes: list[Node], loaded: dict[Value, Array], memory: LocalMemory) -> list[int]:
    steps = [0] * len(nodes)
    for value, array in loaded.items():
        users = [slot for slot, node in enumerate(nodes) if value in node.inputs]
        for step in range(min(users), max(users) + 1):
            steps[step] += _lanes(array, memory)
    return steps


def _lanes(array: Array, memory: LocalMemory) -> int:
    """Bytes of one lane: channels are distributed over lanes, and each plane begins at an aligned address."""
    n, c = (*array.shape, 1, 1)[:2]
    plane = array.nbytes // max(n * c, 1)
    rows = (plane + memory.row_bytes - 1) // memory.row_bytes
    return n * ((c + memory.lanes - 1) // memory.lanes) * rows * memory.row_bytes


def _extents(value: Value) -> tuple[int, ...]:
    return (*value.type.static_shape, 1, 1, 1)[:3]


def _all(value: Value) -> Box:
    return tuple((0, extent) for extent in _extents(value))


def _slices(box: Box, rank: int) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in box)[:rank]


def _cut(array: Array, box: Box) -> tuple[Array, Box]:
    return np.ascontiguousarray(array[_slices(box, array.ndim)]), box


def _inside(array: Array, origin: Box, wanted: Box) -> Array:
    """Extract a box from a tile that must contain it."""
    moved = []
    for (first, last), (start, stop) in zip(origin, wanted, strict=True):
        assert first <= start <= stop <= last, f"{wanted} is not in {origin}"
        moved.append((start - first, stop - first))
    return np.ascontiguousarray(array[_slices(tuple(moved), array.ndim)])


def _operand_box(node: Node, slot: int, value: Value, box: Box, tiles) -> Box:
    found = list(_all(value))
    for axis in AXES:
        cut = rule_of(node, axis, tiles[axis])[slot]
        if cut is not None:
            found[cut.axis] = tuple(map(int, cut.of(*box[axis], _extents(value)[cut.axis])))
    return tuple(found)


def adapt_op(node: Node, box: Box, tiles) -> Op:
    """Operator for one tile: without the padding of other tiles, with the parameters of its channels."""
    op = node.op
    if tiles.c > 1:
        op = _with_channels(node, op, *box[C])
    if tiles.h == 1:
        return op
    start, stop = box[H]
    x = node.inputs[0]
    assert x is not None
    if isinstance(op, ConvolutionParams):
        kernel = node.inputs[1].type.static_shape[2]
        reach = op.dh * (kernel - 1) + 1
        if op.weight_layout == "IOHW":
            low, high = map(int, rule_of(node, H, tiles.h)[0].of(start, stop, _extents(x)[H]))
            top = start + op.pad_h_t - low * op.stride_h
            bottom = (high - low - 1) * op.stride_h + reach - top - (stop - start)
            return dataclasses.replace(op, pad_h_t=top, pad_h_b=bottom)
        before, after = _overhang(start, stop, op.stride_h, op.pad_h_t, reach, _extents(x)[H])
        return dataclasses.replace(op, pad_h_t=before, pad_h_b=after)
    if isinstance(op, Pool) and not op.is_global_pooling:
        before, after = _overhang(start, stop, op.stride_h, op.pad_h, op.kernel_h, _extents(x)[H])
        after = min(after, op.pad_h + op.pad_h_offset)
        return dataclasses.replace(op, pad_h=before, pad_h_offset=after - before)
    if isinstance(op, PoolInt):
        before, after = _overhang(start, stop, op.stride_h, op.pad_h_t, op.kernel_h, _extents(x)[H])
        return dataclasses.replace(op, pad_h_t=before, pad_h_b=min(after, op.pad_h_b))
    if isinstance(op, Extract):
        length = (stop - 1 - start) * op.stride[H] + 1
        return dataclasses.replace(
            op, start=(*op.start[:H], 0, *op.start[H + 1 :]), end=(*op.end[:H], length, *op.end[H + 1 :])
        )
    return op


def _overhang(start: int, stop: int, stride: int, pad: int, reach: int, extent: int) -> tuple[int, int]:
    """Rows of padding before and after the image that the windows of a tile reach."""
    return max(pad - start * stride, 0), max((stop - 1) * stride - pad + reach - extent, 0)


def _with_channels(node: Node, op: Op, start: int, stop: int) -> Op:
    """Restrict per-channel vectors to the channels of a tile."""
    changes: dict[str, object] = {}
    for item in dataclasses.fields(op):
        value = getattr(op, item.name)
        is_of_results = item.name.endswith("_vec") and item.name != "izp_vec"
        if is_of_results and len(value) == _extents(node.outputs[0])[C] > 1:
            changes[item.name] = value[start:stop]
    if isinstance(op, ConvolutionParams) and op.groups > 1:  # depthwise, the only tiled form of groups
        changes["groups"] = stop - start
        if getattr(op, "izp_vec", ()):
            changes["izp_vec"] = op.izp_vec[start:stop]
    return dataclasses.replace(op, **changes) if changes else op
