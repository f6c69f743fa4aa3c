"""Faults of devices, injected into the execution of a model: every tensor that the faulty device would dump."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

import tpuconvert as tc
from tpuconvert.device import faults
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import Array, DType

Feed = Mapping[str, Array]
Results = tuple[Array, ...]


@dataclass
class Execution:
    """A model and one sample, executed by the definitions of the operators."""

    model: tc.Model
    feed: Feed

    def run(self, changed: Node | None = None, change: Callable[[Node, list[Array | None]], Results] | None = None):
        """Return every integer tensor by name; ``change`` replaces the results of one node."""
        graph = self.model.graph
        arrays: dict[Value, Array] = {value: value.array for value in graph.values if value.is_constant}
        session = tc.Session(self.model)
        bound, _ = session._bind_feeds(self.feed)
        arrays.update(zip(graph.inputs, bound, strict=True))
        for node in graph.sorted_nodes():
            operands = [None if value is None else arrays[value] for value in node.inputs]
            results = change(node, operands) if node is changed and change else self.evaluate(node.op, operands)
            arrays.update(zip(node.outputs, results, strict=True))
        return {value.name: array[None] for value, array in arrays.items() if is_dumped(value)}

    def evaluate(self, op: Op, operands: list[Array | None]) -> Results:
        return op.evaluate(*operands, chip=self.model.chip)


def is_dumped(value: Value) -> bool:
    """Return True for a tensor that a compiled program can return: accumulators are fused."""
    return not value.is_constant and value.dtype in (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)


def inject(kind: str, execution: Execution, rng: np.random.Generator) -> tuple[dict[str, Array], str] | None:
    """Return the dumps of a device with one fault, and the first tensor that is wrong. None if the model has no place.

    Args:
        kind: class of the fault.
        execution: model and sample.
        rng: selects node and extent of the fault.
    """
    if kind in (faults.PREPROCESSING, faults.RESIZE):
        return _inject_into_input(kind, execution, rng)
    right = execution.run()
    nodes = [node for node in execution.model.graph.sorted_nodes() if _fits(kind, node)]
    for index in rng.permutation(len(nodes)):
        node = nodes[index]
        change = _CHANGES[kind](execution, node, rng)
        dumps = execution.run(node, change)
        different = [name for name in right if not np.array_equal(right[name], dumps[name])]
        if different and _is_visible(kind, right[different[0]], dumps[different[0]]):
            return dumps, different[0]
    return None


def _is_visible(kind: str, right: Array, wrong: Array) -> bool:
    """Return True if the fault is more than a few elements, which any mistake could explain."""
    differing = np.count_nonzero(right != wrong)
    least = 1 if kind == faults.SATURATION else 8
    return differing >= min(least, right.size // 4 + 1) and np.unique(right).size >= 8 and right.size >= 64


def _fits(kind: str, node: Node) -> bool:
    op = node.op
    if kind == faults.LAYOUT:
        shape = node.outputs[0].shape
        return is_dumped(node.outputs[0]) and len(shape) == 4 and shape[1] > 1 and shape[2] * shape[3] > 1
    if kind == faults.STALE_WEIGHTS:
        return op.name in ("conv_v2", "matrix_mul_v2") and node.inputs[1].is_constant
    if not isinstance(op, RequantInt32) or op.out_dtype is DType.INT32:
        return False
    return kind != faults.ROUNDING or op.mode is RequantMode.MULTIPLIER_SHIFT


def _write_in_other_layout(execution: Execution, node: Node, rng: np.random.Generator):
    axes = [(0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2)][rng.integers(3)]

    def change(node: Node, operands: list[Array | None]) -> Results:
        (y, *rest) = execution.evaluate(node.op, operands)
        return (np.ascontiguousarray(y.transpose(axes)).reshape(y.shape), *rest)

    return change


def _with_other_parameters(execution: Execution, parameters: dict[str, object]):
    def change(node: Node, operands: list[Array | None]) -> Results:
        return execution.evaluate(dataclasses.replace(node.op, **parameters), operands)

    return change


def _scale(execution: Execution, node: Node, rng: np.random.Generator):
    factor = rng.choice([0.5, 0.7, 0.8, 0.9])
    return _with_other_parameters(
        execution,
        {
            "multiplier_val": int(node.op.multiplier_val * factor),
            "multiplier_vec": tuple(int(item * factor) for item in node.op.multiplier_vec),
        },
    )


def _shift_zero_point(execution: Execution, node: Node, rng: np.random.Generator):
    distance = int(rng.choice([-11, -5, 3, 9]))
    vector = tuple(item + distance for item in node.op.offset_vec)
    return _with_other_parameters(execution, {"offset_val": node.op.offset_val + distance, "offset_vec": vector})


def _round(execution: Execution, node: Node, rng: np.random.Generator):
    modes = (RoundingMode.TOWARDS_ZERO, RoundingMode.DOWN, RoundingMode.UP)
    return _with_other_parameters(execution, {"round_mode": modes[rng.integers(len(modes))]})


def _wrap(execution: Execution, node: Node, rng: np.random.Generator):
    wraps = bool(rng.integers(2))

    def change(node: Node, operands: list[Array | None]) -> Results:
        dtype = node.outputs[0].dtype.numpy
        if not wraps:  # saturates at half of the range
            (y,) = execution.evaluate(node.op, operands)
            limits = np.iinfo(dtype)
            middle = (int(limits.max) + int(limits.min)) // 2
            return (np.minimum(y, middle + limits.max // 4).astype(dtype),)
        wide = DType.INT32 if node.op.mode is not RequantMode.MULTIPLIER_SHIFT else DType.INT16
        (y,) = execution.evaluate(dataclasses.replace(node.op, out_dtype=wide), operands)
        return (y.astype(dtype),)

    return change


def _replace_weights(execution: Execution, node: Node, rng: np.random.Generator):
    def change(node: Node, operands: list[Array | None]) -> Results:
        weights = operands[1]
        noise = rng.normal(0, 0.5 * weights.astype(np.float64).std(), weights.shape)
        limits = np.iinfo(weights.dtype)
        operands[1] = np.clip(np.rint(weights + noise), limits.min, limits.max).astype(weights.dtype)
        return execution.evaluate(node.op, operands)

    return change


_CHANGES = {
    faults.LAYOUT: _write_in_other_layout,
    faults.SCALE: _scale,
    faults.ZERO_POINT: _shift_zero_point,
    faults.ROUNDING: _round,
    faults.SATURATION: _wrap,
    faults.STALE_WEIGHTS: _replace_weights,
}


def _inject_into_input(kind: str, execution: Execution, rng: np.random.Generator):
    right = execution.run()
    (name, x), *_ = execution.feed.items()
    values = x.astype(np.float64)
    if kind == faults.RESIZE:
        image_axes = [axis for axis in range(x.ndim) if x.ndim == 4 and x.shape[axis] > 3 and axis]
        if len(image_axes) < 2:
            return None
        for axis in image_axes[:2] if x.shape[1] > 3 else image_axes[-2:]:
            half = (values + np.roll(values, int(rng.choice([-1, 1])), axis)) / 2
            values = half
    else:
        low, high = values.min(), values.max()
        mistakes = [lambda v: v * 0.5, lambda v: v * 0.8 + 0.1 * (high - low), lambda v: v - 0.2 * (high - low)]
        if 3 in x.shape[1:]:
            axis = 1 if x.shape[1] == 3 else x.ndim - 1
            mistakes.append(lambda v: np.flip(v, axis))
        values = mistakes[rng.integers(len(mistakes))](values)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    wrong = Execution(execution.model, {**execution.feed, name: values.astype(x.dtype)})
    dumps = wrong.run()
    different = [name for name in right if not np.array_equal(right[name], dumps[name])]
    return (dumps, different[0]) if different else None
