"""Random ONNX nodes: one operator with random attributes, rank, opset and symbolic axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tpuconvert.schema.types import Array

CHIPS = ("bm1684", "bm1686")


@dataclass
class NodeCase:
    """A node with its inputs.

    Attributes:
        x: first input, the only one that the model does not have as a constant.
        constants: further inputs, in order; None for an empty name.
        outputs: number of outputs.
        axes: symbolic axes of x.
        other: shape of x in a second run, which differs on symbolic axes.
    """

    op: str
    opset: int
    x: Array
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: list[Array | None] = field(default_factory=list)
    outputs: int = 1
    axes: tuple[int, ...] = ()
    other: tuple[int, ...] = ()

    def __str__(self) -> str:
        shape = [f"s{axis}" if axis in self.axes else extent for axis, extent in enumerate(self.x.shape)]
        given = [None if c is None else c.tolist() if c.size < 9 else list(c.shape) for c in self.constants]
        runs = [list(self.x.shape), *([list(self.other)] if self.axes else [])]
        text = f"{self.op}-{self.opset} x={self.x.dtype}{shape} runs {runs} attributes={self.attributes}"
        return f"{text} constants={given}"

    def model(self) -> onnx.ModelProto:
        """The model, with inputs and outputs named x and y0, y1 .."""
        names = [f"c{k}" if array is not None else "" for k, array in enumerate(self.constants)]
        outputs = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.op, ["x", *names], outputs, "the_node", **self.attributes)
        shape = [f"s{axis}" if axis in self.axes else extent for axis, extent in enumerate(self.x.shape)]
        graph = helper.make_graph(
            [node],
            "net",
            [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(self.x.dtype), shape)],
            [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
            [
                numpy_helper.from_array(array, name)
                for name, array in zip(names, self.constants, strict=True)
                if array is not None
            ],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def feeds(self) -> list[Array]:
        """The input of each run."""
        if not self.axes:
            return [self.x]
        other = np.random.default_rng(1).permutation(np.resize(self.x.reshape(-1), int(np.prod(self.other))))
        return [self.x, other.reshape(self.other).astype(self.x.dtype)]


class Draw:
    """Random parts of a case."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def one_of(self, items: Sequence[Any]) -> Any:
        """An item."""
        return items[int(self.random.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def is_true(self, probability: float = 0.5) -> bool:
        """True with a probability."""
        return bool(self.random.random() < probability)

    def shape(self, low: int, high: int, largest: int = 6) -> tuple[int, ...]:
        """A shape with a rank from low to high."""
        return tuple(self.integer(1, largest) for _ in range(self.integer(low, high)))

    def array(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """Numbers from -4 to 4."""
        if np.dtype(dtype).kind == "f":
            return self.random.uniform(-4, 4, shape).astype(dtype)
        return self.random.integers(-4, 5, shape).astype(dtype)

    def axis(self, rank: int) -> int:
        """An axis, also a negative one."""
        return self.integer(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Different axes, each from the front or from the end."""
        count = self.integer(least, rank)
        chosen = self.random.permutation(rank)[:count]
        return [int(axis) - (rank if self.is_true(0.3) else 0) for axis in chosen]

    def symbolic(self, case: NodeCase, allowed: Sequence[int] | None = None, least: int = 1) -> NodeCase:
        """The case, in half of the draws with some symbolic axes."""
        axes = range(case.x.ndim) if allowed is None else allowed
        if self.is_true():
            case.axes = tuple(axis for axis in axes if self.is_true())
            other = list(case.x.shape)
            for axis in case.axes:
                other[axis] = self.integer(least, 7)
            case.other = tuple(other)
        return case


Generator = Callable[[Draw], NodeCase]
GENERATORS: dict[str, Generator] = {}


def generator(*names: str) -> Callable[[Callable[[Draw, str], NodeCase]], Callable[[Draw, str], NodeCase]]:
    """Register the generator of operators."""

    def register(function: Callable[[Draw, str], NodeCase]) -> Callable[[Draw, str], NodeCase]:
        for name in names:
            GENERATORS[name] = lambda draw, name=name: function(draw, name)  # type: ignore[misc]
        return function

    return register


def i64(items: Sequence[int]) -> Array:
    """A vector of INT64."""
    return np.array(items, np.int64)


@generator("Softmax", "LogSoftmax", "Hardmax")
def _softmax(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 5)
    attributes = {"axis": d.axis(len(shape))} if d.is_true(0.8) else {}
    return d.symbolic(NodeCase(op, d.one_of((9, 11, 12, 13, 17)), d.array(shape), attributes))


_BOUNDS = (-(2**63), -(2**31), -100, -7, -3, -2, -1, 0, 1, 2, 3, 5, 100, 2**31 - 1, 2**63 - 1)


@generator("Slice")
def _slice(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    axes = d.axes(len(shape), 1)
    starts, ends = ([d.one_of(_BOUNDS) for _ in axes] for _ in range(2))
    if d.is_true(0.3):
        ends = [d.one_of((100, 2**31 - 1, 2**63 - 1)) for _ in axes]
    opset = d.one_of((9, 10, 11, 13, 17))
    x = d.array(shape, d.one_of((np.float32, np.int32, np.int64)))
    if opset < 10:
        return d.symbolic(NodeCase(op, opset, x, {"starts": starts, "ends": ends, "axes": axes}))
    steps = [d.one_of((1, 1, 1, 2, 3, 100, -1, -2)) for _ in axes]
    steps = [1] * len(axes) if d.is_true(0.3) else steps
    return d.symbolic(NodeCase(op, opset, x, {}, [i64(starts), i64(ends), i64(axes), i64(steps)]))


@generator("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
           "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
def _reduce(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 5, 4)
    opset = d.one_of((9, 11, 12, 13, 17, 18))
    as_input = opset >= (13 if op == "ReduceSum" else 18)
    attributes: dict[str, Any] = {} if d.is_true(0.3) else {"keepdims": d.integer(0, 1)}
    constants: list[Array | None] = []
    axes = d.axes(len(shape), 1)
    if d.is_true(0.8):
        if as_input:
            constants = [i64(axes)]
            if d.is_true(0.3):
                attributes["noop_with_empty_axes"] = d.integer(0, 1)
        else:
            attributes["axes"] = [axis % len(shape) for axis in axes] if opset < 11 else axes
    elif as_input and d.is_true():
        attributes["noop_with_empty_axes"] = d.integer(0, 1)
    return d.symbolic(NodeCase(op, opset, d.array(shape), attributes, constants))


@generator("ArgMax", "ArgMin")
def _arg(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    opset = d.one_of((9, 11, 12, 13))
    axis = d.axis(len(shape))
    attributes: dict[str, Any] = {"axis": axis % len(shape) if opset < 11 else axis, "keepdims": d.integer(0, 1)}
    if opset >= 12 and d.is_true(0.3):
        attributes["select_last_index"] = 1
    x = np.round(d.array(shape))  # with equal elements
    return d.symbolic(NodeCase(op, opset, x, attributes))


@generator("Resize")
def _resize(d: Draw, op: str) -> NodeCase:
    rank = d.one_of((3, 4, 4, 4, 5))
    shape = (d.integer(1, 3), d.integer(1, 3), *d.shape(rank - 2, rank - 2, 5))
    opset = d.one_of((11, 13, 18, 19))
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    attributes: dict[str, Any] = {"coordinate_transformation_mode": d.one_of(modes)}
    mode = d.one_of(("nearest", "linear", "cubic") if rank == 4 else ("nearest", "linear"))
    attributes["mode"] = mode
    if mode == "nearest":
        rounding = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attributes["nearest_mode"] = d.one_of(rounding)
    lead: list[Any] = [1, 1]
    if d.is_true(0.6):
        scales = [*lead, *(d.one_of((0.5, 1, 1.5, 2, 3)) for _ in shape[2:])]
        if all(int(s * e) > 0 for s, e in zip(scales, shape, strict=True)):
            case = NodeCase(op, opset, d.array(shape), attributes, [None, np.array(scales, np.float32)])
            return d.symbolic(case, least=2)
    sizes = [*shape[:2], *(d.integer(1, 9) for _ in shape[2:])]
    return d.symbolic(NodeCase(op, opset, d.array(shape), attributes, [None, None, i64(sizes)]), range(2, rank), 2)


@generator("GroupNormalization")
def _group_norm(d: Draw, op: str) -> NodeCase:
    groups = d.integer(1, 3)
    channels = groups * d.integer(1, 3)
    shape = (d.integer(1, 3), channels, *d.shape(0, 3, 4))
    if len(shape) == 2:
        shape = (*shape, 3)
    opset = d.one_of((18, 21))
    count = groups if opset < 21 else channels
    constants: list[Array | None] = [d.array((count,)), d.array((count,))]
    case = NodeCase(op, opset, d.array(shape), {"num_groups": groups}, constants)
    return d.symbolic(case, [axis for axis in range(len(shape)) if axis != 1])


@generator("InstanceNormalization", "BatchNormalization")
def _channel_norm(d: Draw, op: str) -> NodeCase:
    shape = (d.integer(1, 3), d.integer(1, 4), *d.shape(1, 3, 4))
    parts = 2 if op == "InstanceNormalization" else 4
    constants: list[Array | None] = [np.abs(d.array((shape[1],))) + 0.5 for _ in range(parts)]
    case = NodeCase(op, d.one_of((9, 14, 17)), d.array(shape), {}, constants)
    return d.symbolic(case, [axis for axis in range(len(shape)) if axis != 1])


@generator("LayerNormalization")
def _layer_norm(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    own = shape[axis % len(shape) :]
    constants: list[Array | None] = [d.array(own)]
    constants += [d.array(own)] if d.is_true(0.7) else []
    case = NodeCase(op, 17, d.array(shape), {"axis": axis}, constants)
    return d.symbolic(case, range(axis % len(shape)))


@generator("MaxPool", "AveragePool", "LpPool")
def _pool(d: Draw, op: str) -> NodeCase:
    planes = d.integer(1, 3)
    shape = (d.integer(1, 2), d.integer(1, 3), *(d.integer(3, 7) for _ in range(planes)))
    opset = d.one_of((10, 11, 12, 19, 22))
    kernel = [d.integer(1, 3) for _ in range(planes)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [d.integer(1, 3) for _ in range(planes)]}
    padding = d.integer(0, 3)
    if padding == 1:
        attributes["pads"] = [d.integer(0, k - 1) for k in (*kernel, *kernel)]
    elif padding == 2:
        attributes["auto_pad"] = d.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    if d.is_true(0.3) and padding < 2 and op != "LpPool":
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and d.is_true():
        attributes["count_include_pad"] = 1
    if op == "MaxPool" and d.is_true(0.3) and padding < 2:
        attributes["dilations"] = [d.integer(1, 2) for _ in range(planes)]
    outputs = 2 if op == "MaxPool" and d.is_true(0.3) else 1
    if outputs == 2 and d.is_true(0.3):
        attributes["storage_order"] = 1
    return d.symbolic(NodeCase(op, opset, d.array(shape), attributes, outputs=outputs), least=3)


@generator("MaxUnpool")
def _unpool(d: Draw, op: str) -> NodeCase:
    planes = d.integer(1, 3)
    shape = (d.integer(1, 2), d.integer(1, 2), *(d.integer(1, 3) for _ in range(planes)))
    kernel = [d.integer(1, 3) for _ in range(planes)]
    strides = [d.integer(1, 3) for _ in range(planes)]
    made = [(extent - 1) * stride + size for extent, stride, size in zip(shape[2:], strides, kernel, strict=True)]
    total, count = int(np.prod([*shape[:2], *made])), int(np.prod(shape))
    if total < count:
        return _unpool(d, op)
    index = d.random.permutation(total)[:count].reshape(shape)
    constants: list[Array | None] = [i64(index)]
    return NodeCase(op, d.one_of((9, 11)), d.array(shape), {"kernel_shape": kernel, "strides": strides}, constants)


@generator("Conv", "ConvTranspose")
def _conv(d: Draw, op: str) -> NodeCase:
    planes, groups = d.integer(1, 3), d.integer(1, 2)
    inner, outer = groups * d.integer(1, 2), groups * d.integer(1, 2)
    shape = (d.integer(1, 2), inner, *(d.integer(3, 6) for _ in range(planes)))
    kernel = [d.integer(1, 3) for _ in range(planes)]
    first, second = (outer, inner // groups) if op == "Conv" else (inner, outer // groups)
    attributes: dict[str, Any] = {"group": groups, "strides": [d.integer(1, 2) for _ in range(planes)]}
    padding = d.integer(0, 2)
    if padding == 1:
        attributes["pads"] = [d.integer(0, k - 1) for k in (*kernel, *kernel)]
    elif padding == 2 and op == "Conv":
        attributes["auto_pad"] = d.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    if d.is_true(0.3) and padding < 2:
        attributes["dilations"] = [d.integer(1, 2) for _ in range(planes)]
    constants: list[Array | None] = [d.array((first, second, *kernel))]
    constants += [d.array((outer,))] if d.is_true() else []
    case = NodeCase(op, d.one_of((9, 11, 17)), d.array(shape), attributes, constants)
    return d.symbolic(case, [axis for axis in range(len(shape)) if axis != 1], 5)


@generator("Gather")
def _gather(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    extent = shape[axis]
    index = d.random.integers(-extent, extent, d.shape(0, 2, 3)).astype(np.int64)
    return d.symbolic(NodeCase(op, d.one_of((9, 11, 13)), d.array(shape), {"axis": axis}, [index]))


@generator("Transpose")
def _transpose(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 5)
    perm = {"perm": [int(axis) for axis in d.random.permutation(len(shape))]} if d.is_true(0.8) else {}
    return d.symbolic(NodeCase(op, 13, d.array(shape), perm))


@generator("Flatten")
def _flatten(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 5)
    axis = d.integer(-len(shape), len(shape))
    return d.symbolic(NodeCase(op, d.one_of((11, 13)), d.array(shape), {"axis": axis} if d.is_true(0.8) else {}))


@generator("Reshape")
def _reshape(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    target = list(shape) if d.is_true() else [0, *shape[1:]]
    if d.is_true(0.7):
        target[d.integer(0, len(target) - 1)] = -1
    if d.is_true(0.5) and -1 in target and len(target) > 1:
        target = [item for k, item in enumerate(target) if item == -1 or d.is_true() or k == 0]
    return d.symbolic(NodeCase(op, d.one_of((9, 13, 14)), d.array(shape), {}, [i64(target)]))


@generator("Squeeze", "Unsqueeze")
def _units(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    opset = d.one_of((11, 13))
    if op == "Squeeze":
        units = [axis for axis in range(len(shape)) if d.is_true()]
        shape = tuple(1 if axis in units else extent for axis, extent in enumerate(shape))
        axes = [axis - (len(shape) if d.is_true(0.3) else 0) for axis in units]
        allowed = [axis for axis in range(len(shape)) if axis not in units]
    else:
        count = d.integer(1, 2)
        axes = d.axes(len(shape) + count, count)[:count]
        allowed = list(range(len(shape)))
    if not axes and op == "Squeeze":
        return NodeCase(op, opset, d.array(shape))
    if opset < 13:
        return d.symbolic(NodeCase(op, opset, d.array(shape), {"axes": axes}), allowed)
    return d.symbolic(NodeCase(op, opset, d.array(shape), {}, [i64(axes)]), allowed)


@generator("Split")
def _split(d: Draw, op: str) -> NodeCase:
    shape = list(d.shape(1, 4))
    axis, parts = d.axis(len(shape)), d.integer(1, 3)
    sizes = [d.integer(0 if d.is_true(0.2) else 1, 3) for _ in range(parts)]
    opset = d.one_of((11, 13, 18))
    attributes: dict[str, Any] = {"axis": axis}
    constants: list[Array | None] = []
    if d.is_true():
        shape[axis] = sum(sizes) or 1
        sizes = sizes if sum(sizes) else [1]
        if opset < 13:
            attributes["split"] = sizes
        else:
            constants = [i64(sizes)]
    elif opset == 18:
        sizes = [1] * parts
        attributes["num_outputs"] = parts
        shape[axis] = max(shape[axis], parts)
    else:
        sizes = [1] * parts
        shape[axis] = parts * d.integer(1, 3)
    case = NodeCase(op, opset, d.array(shape), attributes, constants, len(sizes))
    return d.symbolic(case, [k for k in range(len(shape)) if k != axis % len(shape)])


@generator("Pad")
def _pad(d: Draw, op: str) -> NodeCase:
    shape = tuple(d.integer(3, 6) for _ in range(d.integer(1, 4)))
    opset = d.one_of((9, 11, 13, 18, 19))
    modes = ("constant", "reflect", "edge", "wrap") if opset >= 19 else ("constant", "reflect", "edge")
    mode = d.one_of(modes)
    pads = [d.integer(-1 if mode == "constant" else 0, 2) for _ in range(2 * len(shape))]
    if opset < 11:
        return d.symbolic(NodeCase(op, opset, d.array(shape), {"mode": mode, "pads": pads, "value": 0.5}), least=4)
    constants: list[Array | None] = [i64(pads)]
    if mode == "constant" and d.is_true():
        constants += [np.array(0.5, np.float32)]
    return d.symbolic(NodeCase(op, opset, d.array(shape), {"mode": mode}, constants), least=4)


@generator("Expand")
def _expand(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    units = tuple(1 if d.is_true() else extent for extent in shape)
    target = [extent if d.is_true(0.7) else 1 for extent in shape]
    target = [*([d.integer(1, 3)] if d.is_true(0.3) else []), *target]
    allowed = [k for k, (a, b) in enumerate(zip(units, target[-len(units) :], strict=True)) if b == 1]
    return d.symbolic(NodeCase(op, 13, d.array(units), {}, [i64(target)]), allowed)


@generator("Tile")
def _tile(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4, 4)
    return d.symbolic(NodeCase(op, 13, d.array(shape), {}, [i64([d.integer(1, 3) for _ in shape])]))


@generator("CumSum")
def _cumsum(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    attributes = {"exclusive": d.integer(0, 1), "reverse": d.integer(0, 1)}
    return d.symbolic(NodeCase(op, d.one_of((11, 14)), d.array(shape), attributes, [np.array(d.axis(len(shape)))]))


@generator("TopK")
def _topk(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    attributes = {"axis": axis, "largest": d.integer(0, 1)}
    k = d.integer(1, shape[axis])
    case = NodeCase(op, d.one_of((11, 17)), d.array(shape), attributes, [i64([k])], 2)
    return d.symbolic(case, [a for a in range(len(shape)) if a != axis % len(shape)])


@generator("DepthToSpace", "SpaceToDepth")
def _blocks(d: Draw, op: str) -> NodeCase:
    block = d.integer(1, 3)
    c, h, w = (d.integer(1, 3) for _ in range(3))
    shape = (d.integer(1, 3), c * block * block, h, w) if op == "DepthToSpace" else (1, c, h * block, w * block)
    attributes: dict[str, Any] = {"blocksize": block}
    if op == "DepthToSpace" and d.is_true():
        attributes["mode"] = d.one_of(("DCR", "CRD"))
    case = NodeCase(op, d.one_of((11, 13)), d.array(shape), attributes)
    return d.symbolic(case, (0, 2, 3) if op == "DepthToSpace" else (0,))


@generator("LRN")
def _lrn(d: Draw, op: str) -> NodeCase:
    shape = (d.integer(1, 3), d.integer(1, 6), *d.shape(2, 2))
    return d.symbolic(NodeCase(op, 13, d.array(shape), {"size": d.one_of((1, 3, 5))}), (0, 2, 3))


@generator("Trilu")
def _trilu(d: Draw, op: str) -> NodeCase:
    shape = d.shape(2, 4)
    constants: list[Array | None] = [np.array(d.integer(-3, 3))] if d.is_true(0.7) else []
    return d.symbolic(NodeCase(op, 14, d.array(shape), {"upper": d.integer(0, 1)}, constants))


@generator("Clip")
def _clip(d: Draw, op: str) -> NodeCase:
    shape = d.shape(0, 4)
    low, high = (None if d.is_true(0.3) else np.array(v, np.float32) for v in (-1.0, 1.5))
    constants: list[Array | None] = [low, high]
    while constants and constants[-1] is None:
        constants.pop()
    return d.symbolic(NodeCase(op, d.one_of((11, 13)), d.array(shape), {}, constants))


@generator("Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Greater", "Equal", "Mod")
def _binary(d: Draw, op: str) -> NodeCase:
    shape = d.shape(0, 4)
    other = [extent if d.is_true(0.7) else 1 for extent in shape][d.integer(0, len(shape)) :]
    if op != "PRelu" and d.is_true(0.3) and len(other) == len(shape):
        other = [d.integer(1, 2), *other]
    b = d.array(other)
    b = np.abs(b) + 0.5 if op in ("Div", "Mod") else np.round(b) if op == "Pow" else b
    x = d.array(shape)
    if op == "Pow":
        x = np.abs(x) + 0.5
    lead = len(shape) - len(other)
    allowed = [k for k in range(len(shape)) if k < lead or (k - lead >= 0 and other[k - lead] == 1)]
    attributes = {"fmod": 1} if op == "Mod" else {}
    return d.symbolic(NodeCase(op, 16, x, attributes, [b]), allowed)


@generator("MatMul", "Gemm")
def _matmul(d: Draw, op: str) -> NodeCase:
    k, n = d.integer(1, 5), d.integer(1, 5)
    if op == "MatMul":
        lead = d.shape(0, 3, 3)
        b = (*(lead[1:] if d.is_true(0.3) and len(lead) > 1 else ()), k, n) if d.is_true(0.8) else (k,)
        return d.symbolic(
            NodeCase(op, 13, d.array((*lead, k)), {}, [d.array(b)]), range(max(len(lead) - len(b) + 1, 0))
        )
    first, second = d.integer(0, 1), d.integer(0, 1)
    m = d.integer(1, 4)
    attributes = {"transA": first, "transB": second, "alpha": 0.5, "beta": d.one_of((0.0, 1.0, 2.0))}
    constants: list[Array | None] = [d.array((n, k) if second else (k, n))]
    if d.is_true():
        constants += [d.array(d.one_of(((n,), (1, n), ())))]
    return d.symbolic(NodeCase(op, 13, d.array((k, m) if first else (m, k)), attributes, constants), (first,))


@generator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(d: Draw, op: str) -> NodeCase:
    return d.symbolic(NodeCase(op, d.one_of((9, 13)), d.array((d.integer(1, 3), d.integer(1, 3), *d.shape(1, 3)))))


@generator("LpNormalization", "MeanVarianceNormalization")
def _normalization(d: Draw, op: str) -> NodeCase:
    shape = d.shape(1, 4)
    if op == "MeanVarianceNormalization":  # with more than one element, whose variance is not 0
        shape = (2, *d.shape(3, 3))
    attributes: dict[str, Any] = {"axes": [0, 2, 3]}
    if op == "LpNormalization":
        attributes = {"axis": d.axis(len(shape)), "p": d.integer(1, 2)}
    return d.symbolic(NodeCase(op, 13, d.array(shape), attributes), least=2)


def cases(seed: int, count: int, operators: Sequence[str] = ()) -> Iterator[tuple[NodeCase, str]]:
    """Draw cases, the operators in turn, and a chip for each."""
    names = [name for name in GENERATORS if not operators or name in operators]
    draw = Draw(seed)
    for number in range(count):
        yield GENERATORS[names[number % len(names)]](draw), CHIPS[draw.integer(0, 1)]
