"""Classification of the first tensor in which a device differs from the model.

The operands of that tensor are right, as it is the first that differs. The nodes between them and the tensor are
evaluated again with one mistake at a time: another rounding, wrapping in place of saturation, another order of axes. A
mistake that explains every element exactly is named. Else the relation between both tensors decides.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.cost import macs
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.interpolate import Interpolate
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Array, Chip, DType

LAYOUT = "layout"
SCALE = "scale"
ZERO_POINT = "zero point"
ROUNDING = "rounding"
SATURATION = "saturation"
STALE_WEIGHTS = "stale weights"
RESIZE = "resize"
PREPROCESSING = "preprocessing"
UNKNOWN = "unknown"

_RESIZES = (Interpolate, Upsample)

# Thresholds of the tests by similarity. tests/converter/device/test_faults.py injects 215 faults into five networks:
# all have the right class, and keep it if one threshold moves inside the range in its comment.

LEAST_ELEMENTS = 8
"""Fewer elements decide no relation: a line has two parameters, and a few elements lie near some line by chance. Range
of the corpus: 2 to 32."""

LEAST_VALUES = 4
"""Fewer different expected integers decide no relation, for the same reason. Range of the corpus: 2 to 16."""

LEAST_PER_CHANNEL = 4
"""Fewer elements per channel and sample decide no relation per channel. Range of the corpus: 1 to 16."""

ROUNDING_ERROR = 0.75
"""Largest distance from the line in units of both sides: each is rounded once, by at most a half, and the fitted line
is off by the rest. Range of the corpus: 0.6 to 1.1."""

LEAST_ON_LINE = 0.99
"""Smallest share of the elements within this distance; those beyond saturated between two nodes. Range of the corpus:
0.97 to 0.999."""

LEAST_FITTED = 0.9
"""Smallest share of the elements in channels with a line; other channels have too few different integers. Range of the
corpus: 0.3 to 0.999."""

LEAST_SCALE = 0.03
"""Smallest difference of a slope from 1: the slope of a line through rounded integers is off by about 0.01. Range of
the corpus: 0.007 to 0.06."""

LEAST_SHIFT = 1.5
"""Smallest shift in integers: another rounding shifts them by up to one. Range of the corpus: 0.4 to 2.2."""

LEAST_CORRELATION = 0.25
"""Smallest correlation of an input with the expected one if only its resize differs. Range of the corpus: 0.13 to
0.37."""

_ADVICE = {
    LAYOUT: "write the tensor in the axis order that the next stage expects",
    SCALE: "compile the program from this model file; check the multiplier and shift of this tensor",
    ZERO_POINT: "compile the program from this model file; check the zero point of this tensor",
    ROUNDING: "set the rounding mode of the operation; a misspelled attribute name selects the default",
    SATURATION: "check the element type of the result, and that the operation saturates",
    STALE_WEIGHTS: "export and compile this model file again; the program has the weights of another one",
    RESIZE: "check the coordinates (align_corners, half pixel) and the method of the resize",
    PREPROCESSING: "apply the preprocessing that 'tpuconvert inspect' shows: color order, mean, scale and size",
    UNKNOWN: "export with --with-checks, which returns every integer tensor, and compare again",
}


@dataclass(frozen=True)
class Fault:
    """Explanation of a difference.

    Attributes:
        kind: the class, such as ``rounding``.
        text: the observation, one sentence.
        hint: the next step.
        is_exact: True if the mistake explains every element of the tensor.
    """

    kind: str
    text: str
    hint: str
    is_exact: bool = False


@dataclass(frozen=True)
class Evidence:
    """Evidence about the first tensor that differs.

    Attributes:
        value: the tensor.
        expected: its expected integers.
        actual: the integers of the device.
        nodes: the nodes between tensors that are equal on the device and this one, in execution order.
        arrays: expected arrays of all values that the nodes use.
        chip: chip of the model.
        from_input: True if the tensor depends on the inputs of the graph alone, through conversions.
    """

    value: Value
    expected: Array
    actual: Array
    nodes: Sequence[Node]
    arrays: Mapping[Value, Array]
    chip: Chip
    from_input: bool


def classify(evidence: Evidence) -> Fault:
    """Return the most probable fault. Tests that explain every element come before those by similarity."""
    tests: tuple[Callable[[Evidence], Fault | None], ...] = (
        _permuted_elements,
        _other_rounding,
        _lost_saturation,
        _affine_relation,
        _small_differences,
    )
    for test in tests:
        fault = test(evidence)
        if fault is not None:
            return fault
    return _by_operator(evidence)


def _fault(kind: str, text: str, *, is_exact: bool = False) -> Fault:
    return Fault(kind, text, _ADVICE[kind], is_exact)


# Mistakes that explain every element


def _permuted_elements(e: Evidence) -> Fault | None:
    """Explain elements in another order: permuted axes, mirrored axes, or an axis in blocks."""
    if np.ptp(e.expected) == 0 or not np.array_equal(np.sort(e.actual, axis=None), np.sort(e.expected, axis=None)):
        return None
    names = "NCHW" if e.expected.ndim == 4 else "NC" if e.expected.ndim == 2 else None
    for axes in itertools.permutations(range(e.expected.ndim)):
        moved = np.transpose(e.expected, axes)
        if np.array_equal(moved.reshape(-1), e.actual.reshape(-1)):
            order = "".join(names[axis] for axis in axes) if names else str(axes)
            return _fault(
                LAYOUT, f"the elements are in the order {order}, expected {names or 'the model order'}", is_exact=True
            )
        if np.array_equal(np.transpose(e.actual.reshape(moved.shape), np.argsort(axes)), e.expected):
            return _fault(LAYOUT, "the elements are in another axis order", is_exact=True)
    for axis in range(e.expected.ndim):
        if np.array_equal(np.flip(e.expected, axis), e.actual):
            if e.from_input and axis in (1, e.expected.ndim - 1) and e.expected.shape[axis] == 3:
                return _fault(PREPROCESSING, "the color channels are in reverse order (RGB and BGR)", is_exact=True)
            return _fault(LAYOUT, f"axis {axis} is reversed", is_exact=True)
    return _fault(LAYOUT, "all elements exist, in another order", is_exact=True)


ROUNDINGS = tuple(mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN)


def _other_rounding(e: Evidence) -> Fault | None:
    """Explain the difference by one node that rounds in another way."""
    for node in e.nodes:
        for name, mode in _rounding_parameters(node.op):
            for other in ROUNDINGS:
                if other != mode and _is_explained(e, node, {name: other}):
                    text = f"'{node.name}' rounds as {other.name}, expected {mode.name}"
                    return _fault(ROUNDING, text, is_exact=True)
    return None


def _rounding_parameters(op: Op) -> Iterator[tuple[str, RoundingMode]]:
    for item in dataclasses.fields(op):
        parameter = getattr(op, item.name)
        if isinstance(parameter, RoundingMode):
            yield item.name, parameter


def _lost_saturation(e: Evidence) -> Fault | None:
    """Explain integers that wrap, or saturate at other limits."""
    expected, actual = e.expected.astype(np.int64), e.actual.astype(np.int64)
    low, high = int(actual.min()), int(actual.max())
    clipped = np.clip(expected, low, high)
    if np.array_equal(clipped, actual):
        return _fault(SATURATION, f"the integers saturate at {low}..{high}", is_exact=True)
    limits = np.iinfo(e.expected.dtype)
    differs = expected != actual
    at_limit = (expected == limits.min) | (expected == limits.max)
    wide = _without_saturation(e)
    if wide is not None:
        wrapped = wide.astype(e.expected.dtype)
        if np.array_equal(wrapped, e.actual):
            return _fault(SATURATION, "integers beyond the type wrap around instead of saturating", is_exact=True)
    if at_limit[differs].all():
        return _fault(SATURATION, "only elements that are at a limit of their type differ")
    return None


def _without_saturation(e: Evidence) -> Array | None:
    """Return the INT32 or INT16 result of the last node where its operator can compute one."""
    node = e.value.producer
    if node is None or not any(item.name == "out_dtype" for item in dataclasses.fields(node.op)):
        return None
    for dtype in (DType.INT32, DType.INT16):
        if dtype.bits > e.value.dtype.bits:
            result = _evaluate(e, node, {"out_dtype": dtype})
            if result is not None:
                return result
    return None


def _is_explained(e: Evidence, node: Node, changes: Mapping[str, Any]) -> bool:
    result = _evaluate(e, node, changes)
    return result is not None and np.array_equal(result, e.actual)


def _evaluate(e: Evidence, changed: Node, changes: Mapping[str, Any]) -> Array | None:
    """Evaluate the nodes with other parameters of one node. None if the operator does not accept them."""
    arrays = dict(e.arrays)
    start = list(e.nodes).index(changed) if changed in e.nodes else 0
    try:
        for node in e.nodes[start:]:
            op = dataclasses.replace(node.op, **changes) if node is changed else node.op
            operands = [None if value is None else arrays[value] for value in node.inputs]
            arrays.update(zip(node.outputs, op.evaluate(*operands, chip=e.chip), strict=True))
    except (ValueError, KeyError):
        return None
    return arrays[e.value]


# Similarity


def _affine_relation(e: Evidence) -> Fault | None:
    """Explain elements that are scaled or shifted, all alike or all of a channel alike."""
    inside = _inside(e)
    tensor = _fit(e.expected[inside], e.actual[inside])
    if tensor is not None:
        return _affine_fault(e, [tensor], "")
    axis = _channel_axis(e.expected)
    if axis is None:
        return None
    expected, actual, mask = (np.moveaxis(array, axis, 0) for array in (e.expected, e.actual, inside))
    fits = [_fit(a[m], b[m]) for a, b, m in zip(expected, actual, mask, strict=True)]
    fitting = [fit for fit in fits if fit is not None]
    fitted = sum(int(m.sum()) for fit, m in zip(fits, mask, strict=True) if fit is not None)
    if not fitting or fitted < LEAST_FITTED * int(mask.sum()):
        return None
    return _affine_fault(e, fitting, " per channel")


def _inside(e: Evidence) -> Array:
    """Return a mask of the elements that are at no limit of the type on either side."""
    limits = np.iinfo(e.expected.dtype)
    is_unsaturated = (e.expected > limits.min) & (e.expected < limits.max)
    inside: Array = is_unsaturated & (e.actual > e.actual.min()) & (e.actual < e.actual.max())
    return inside


def _channel_axis(array: Array) -> int | None:
    return 1 if array.ndim in (2, 4) and array.shape[1] > 1 and array[0, 0].size >= LEAST_PER_CHANNEL else None


def _fit(expected: Array, actual: Array) -> tuple[float, float] | None:
    """Return slope and intercept of ``actual = slope * expected + intercept``, if that is true within a rounding."""
    if expected.size < LEAST_ELEMENTS or np.unique(expected).size < LEAST_VALUES:
        return None
    x, y = expected.astype(np.float64), actual.astype(np.float64)
    deviation = x - x.mean()
    slope = float((deviation * (y - y.mean())).sum() / (deviation**2).sum())
    intercept = float(y.mean() - slope * x.mean())
    residual = np.abs(y - (slope * x + intercept))
    # Each side is rounded once: half a unit of the wanted integers counts `slope` times.
    tolerance = ROUNDING_ERROR * (1 + abs(slope))
    return (slope, intercept) if slope != 0 and (residual <= tolerance).mean() > LEAST_ON_LINE else None


def _affine_fault(e: Evidence, fits: Sequence[tuple[float, float]], where: str) -> Fault | None:
    slopes, intercepts = (np.array(part) for part in zip(*fits, strict=True))
    slope, intercept = float(np.median(slopes)), float(np.median(intercepts))
    is_scaled, is_shifted = np.abs(slopes - 1).max() > LEAST_SCALE, np.abs(intercepts).max() > LEAST_SHIFT
    if not is_scaled and not is_shifted:
        return None
    if e.from_input:
        text = f"the input is {slope:.3g} times the expected one{where}, plus {intercept:.3g} integer units"
        return _fault(PREPROCESSING, text)
    if not is_scaled:
        return _fault(ZERO_POINT, f"the integers are shifted by {intercept:.3g}{where}")
    return _fault(SCALE, f"the integers are {slope:.3g} times the expected ones{where}")


def _small_differences(e: Evidence) -> Fault | None:
    difference = np.abs(e.expected.astype(np.int64) - e.actual.astype(np.int64))
    if difference.max() <= 1 and not e.from_input:
        share = np.count_nonzero(difference) / difference.size
        return _fault(ROUNDING, f"{share:.1%} of the elements differ by 1")
    return None


def _by_operator(e: Evidence) -> Fault:
    """Name what can differ in this operator, because no relation between the integers was found."""
    if e.from_input:
        similar = _correlation(e.expected, e.actual)
        if similar > LEAST_CORRELATION:
            return _fault(RESIZE, f"the input is similar to the expected one (correlation {similar:.2f}), not equal")
        return _fault(PREPROCESSING, "the input differs from the expected one")
    if any(isinstance(node.op, _RESIZES) for node in e.nodes):
        return _fault(RESIZE, "the elements of a resized tensor differ")
    if any(macs(node) for node in e.nodes):
        channels = _differing_channels(e)
        return _fault(STALE_WEIGHTS, f"{channels} differ, without a relation to the expected integers")
    return _fault(UNKNOWN, "the elements differ without a relation to the expected integers")


def _correlation(a: Array, b: Array) -> float:
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm else 0.0


def _differing_channels(e: Evidence) -> str:
    if e.expected.ndim < 2:
        return "the elements"
    differs = (e.expected != e.actual).any(axis=tuple(axis for axis in range(e.expected.ndim) if axis != 1))
    return f"{int(differs.sum())} of {differs.size} channels"
