"""Every float operator against the reference implementation of the onnx package.

Operators that ONNX lacks are compared with an equivalent combination of its operators, or are compared in
``integer_oracles``. FLOAT16 is compared with the FLOAT32 result for the same numbers, rounded once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.support.onnx.reference import run_node_with_outputs
from tests.support.operators.integer_oracles.base import make
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.ops.interpolate import InterpolateMode, PlatForm
from tpuconvert.schema.ops.ordering import ArgMethod
from tpuconvert.schema.ops.pad import PadType
from tpuconvert.schema.ops.selection import SelectType
from tpuconvert.schema.types import F16, F32, I32, Array, Scalar

EXACT = 0.0
"""No tolerance: at most one IEEE operation, which rounds correctly."""
TWO_ULP = 2.4e-7
"""Functions evaluated in float64 here and in float32 by the reference."""
SUMS = 1e-5
"""Sums in float64 here and in float32 by the reference; relative to the largest result."""


@dataclass
class Check:
    """Expected results of an operator; the tolerance is relative to the largest expected magnitude."""

    op: Op
    inputs: list[Array | None]
    expected: list[Array]
    tolerance: float = EXACT


Checks = Callable[[str, np.random.Generator], Iterator[Check]]
CHECKS: dict[str, Checks] = {}


def checks(*names: str) -> Callable[[Checks], Checks]:
    def register(function: Checks) -> Checks:
        for name in names:
            assert name not in CHECKS, name
            CHECKS[name] = function
        return function

    return register


def onnx(op_type: str, *inputs: Array | None, count: int = 1, opset: int = 19, **attributes: Any) -> Any:
    """Evaluate one ONNX node; return its only result, or a list of ``count`` results."""
    with np.errstate(all="ignore"):
        found = run_node_with_outputs(op_type, inputs, count, opset, **attributes)
    return found[0] if count == 1 else found


def real(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(0, 3, shape).astype(np.float32)


def few(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers with many duplicates."""
    return rng.integers(-2, 3, shape).astype(np.float32)


def int64(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def number(value: float) -> Array:
    return np.array(value, dtype=np.float32)


# --- element by element -----------------------------------------------------------------------------------------------

BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min"}
RELATIONS = {"gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal"}


@checks(*BINARY)
def binary(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for first, second in (((2, 3, 5), (2, 3, 5)), ((2, 1, 5), (1, 3, 1)), ((7,), (1,))):
        a, b = real(rng, *first), real(rng, *second)
        yield Check(make(name), [a, b], [onnx(BINARY[name], a, b)])


@checks("adds", "subs", "muls", "divs", "maxs", "mins", "rsubs", "rdivs")
def binary_with_number(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for scalar in (0.0, 1.5, -3.25, 0.1):
        x, b = real(rng, 3, 7), number(scalar)
        op_type = BINARY[name.removeprefix("r")[:-1]]
        expected = onnx(op_type, b, x) if name.startswith("r") else onnx(op_type, x, b)
        yield Check(make(name, scalar=Scalar.f32(scalar)), [x], [expected])


@checks(*(f"stride_{name}" for name in BINARY), *(f"stride_{name}_offset" for name in BINARY))
def sampling_checks(name: str, rng: np.random.Generator) -> Iterator[Check]:
    a, b = real(rng, 4, 5, 7), real(rng, 1, 5, 7)
    stride, offset = (2, 3, 1), (1, 2, 4) if name.endswith("offset") else (0, 0, 0)
    given = {"offset": offset} if name.endswith("offset") else {}
    first = slice_axes(a, offset, a.shape, stride)
    second = slice_axes(b, (0, *offset[1:]), b.shape, (1, *stride[1:]))
    expected = onnx(BINARY[name.split("_")[1]], first, second)
    yield Check(make(name, stride=stride, **given), [a, b], [expected])


@checks("stride_cpy", "stride_cpy_offset")
def sampled_copy(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, stride, offset = real(rng, 4, 5, 7), (3, 2, 1), (1, 0, 4) if name.endswith("offset") else (0, 0, 0)
    given = {"offset": offset} if name.endswith("offset") else {}
    yield Check(make(name, stride=stride, **given), [x], [slice_axes(x, offset, x.shape, stride)])


def slice_axes(x: Array, start: Any, end: Any, step: Any) -> Array:
    axes = int64(*range(x.ndim))
    result: Array = onnx("Slice", x, int64(*start), int64(*end), axes, int64(*step))
    return result


@checks(*RELATIONS, "ne")
def relation(name: str, rng: np.random.Generator) -> Iterator[Check]:
    a, b = few(rng, 3, 1, 5), few(rng, 1, 4, 5)
    yield Check(make(name), [a, b], [holds(name, a, b)])


@checks(*(f"{name}s" for name in RELATIONS), "nes")
def relation_with_number(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = few(rng, 3, 9)
    yield Check(make(name, scalar_i1=Scalar.f32(1.0)), [x], [holds(name[:-1], x, number(1.0))])


def holds(name: str, a: Array, b: Array) -> Array:
    truth = onnx("Not", onnx("Equal", a, b)) if name == "ne" else onnx(RELATIONS[name], a, b)
    result: Array = onnx("Cast", truth, to=TensorProto.FLOAT)
    return result


@checks("axpy")
def axpy(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, y = real(rng, 3, 5), real(rng, 3, 5)
    yield Check(make(name, scalar=Scalar.f32(0.3)), [x, y], [onnx("Add", onnx("Mul", x, number(0.3)), y)])


@checks("clamp")
def clamp(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = real(rng, 5, 7)
    op = make(name, min=Scalar.f32(-1.5), max=Scalar.f32(2.25))
    yield Check(op, [x], [onnx("Clip", x, number(-1.5), number(2.25))])


EXACT_FUNCTIONS = {
    ActiveType.ACTIVE_RELU: "Relu",
    ActiveType.ACTIVE_ABSVAL: "Abs",
    ActiveType.ACTIVE_CEIL: "Ceil",
    ActiveType.ACTIVE_FLOOR: "Floor",
    ActiveType.ACTIVE_SQRT: "Sqrt",
}
ROUNDED_FUNCTIONS = {
    ActiveType.ACTIVE_TANH: "Tanh",
    ActiveType.ACTIVE_SIGMOID: "Sigmoid",
    ActiveType.ACTIVE_EXP: "Exp",
    ActiveType.ACTIVE_ELU: "Elu",
    ActiveType.ACTIVE_LN: "Log",
    ActiveType.ACTIVE_SIN: "Sin",
    ActiveType.ACTIVE_COS: "Cos",
}
OF_POSITIVE = (ActiveType.ACTIVE_SQRT, ActiveType.ACTIVE_LN, ActiveType.ACTIVE_RSQRT)


@checks("active", "active_param")
def activation(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for kind in ActiveType:
        x = real(rng, 4, 9)
        if kind in OF_POSITIVE:
            x = np.abs(x) + np.float32(0.01)
        op = None if kind is ActiveType.UNKNOWN_ACTIVE_TYPE else make(name, active_type=kind)
        if op is None:
            continue
        if kind in EXACT_FUNCTIONS:
            yield Check(op, [x], [onnx(EXACT_FUNCTIONS[kind], x)])
        elif kind in ROUNDED_FUNCTIONS:
            yield Check(op, [x], [onnx(ROUNDED_FUNCTIONS[kind], x)], TWO_ULP)
        elif kind is ActiveType.ACTIVE_SQUARE:
            yield Check(op, [x], [onnx("Mul", x, x)])
        elif kind is ActiveType.ACTIVE_RSQRT:
            yield Check(op, [x], [onnx("Reciprocal", onnx("Sqrt", x))], TWO_ULP)
        elif kind is ActiveType.ACTIVE_ROUND:
            yield Check(op, [x], [half_away(x)])
        elif name == "active":
            assert kind is ActiveType.ACTIVE_LEAKY_RELU
            yield Check(op, [x], [onnx("Relu", x)])
        else:
            sloped = make(name, active_type=kind, params=(0.125,))
            yield Check(sloped, [x], [onnx("LeakyRelu", x, alpha=0.125)], TWO_ULP)


def half_away(x: Array) -> Array:
    """Floor of the magnitude plus 1/2; ONNX Round cannot be used, because it rounds ties to even."""
    magnitude = onnx("Floor", onnx("Add", onnx("Abs", x), number(0.5)))
    result: Array = onnx("Add", onnx("Mul", onnx("Sign", x), magnitude), number(0))
    return result


@checks("ceil", "floor", "sin", "cos", "copy", "constdata")
def function(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = real(rng, 5, 11)
    op_type = "Identity" if name in ("copy", "constdata") else name.capitalize()
    yield Check(make(name), [x], [onnx(op_type, x)], TWO_ULP if name in ("sin", "cos") else EXACT)


@checks("round")
def round_half_away(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = np.concatenate([real(rng, 40), np.arange(-4, 4, 0.5, dtype=np.float32)])
    yield Check(make(name), [x], [half_away(x)])


@checks("cast")
def cast(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = rng.integers(-(2**31), 2**31, 50).astype(np.int32)
    yield Check(make(name, out_dtype=F32), [x], [onnx("Cast", x, to=TensorProto.FLOAT)])
    half = real(rng, 50).astype(np.float16)
    yield Check(make(name, out_dtype=F32), [half], [onnx("Cast", half, to=TensorProto.FLOAT)])
    y = real(rng, 50)
    yield Check(make(name, out_dtype=F16), [y], [onnx("Cast", y, to=TensorProto.FLOAT16)])
    # ONNX truncates the fraction: test integers only.
    whole = np.rint(y)
    yield Check(make(name, out_dtype=I32), [whole], [onnx("Cast", whole, to=TensorProto.INT32)])


# --- sums -------------------------------------------------------------------------------------------------------------


@checks("conv")
def conv(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for groups, stride, gap, pads in ((1, 1, 1, [0, 0, 0, 0]), (2, 2, 1, [1, 0, 2, 1]), (4, 1, 2, [2, 2, 1, 2])):
        x, w, b = real(rng, 2, 4, 7, 8), real(rng, 8, 4 // groups, 3, 2), real(rng, 8)
        fields = {
            "groups": groups, "stride_h": stride, "stride_w": stride, "dh": gap, "dw": gap,
            "pad_h_t": pads[0], "pad_w_l": pads[1], "pad_h_b": pads[2], "pad_w_r": pads[3],
        }  # fmt: skip
        attributes = {"group": groups, "strides": [stride] * 2, "dilations": [gap] * 2, "pads": pads}
        expected = onnx("Conv", x, w, b, **attributes)
        yield Check(make(name, **fields), [x, w, b.reshape(1, 8, 1, 1)], [expected], SUMS)


@checks("conv3d")
def conv3d(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for groups, stride, gap in ((1, 1, 1), (2, 2, 1), (4, 1, 2)):
        x, w, b = real(rng, 1, 4, 5, 6, 5), real(rng, 4, 4 // groups, 2, 3, 2), real(rng, 4)
        op = make(name, groups=groups, stride=(stride,) * 3, dilation=(gap,) * 3, pad=(1, 0, 1, 1, 0, 2))
        attributes = {"group": groups, "strides": [stride] * 3, "dilations": [gap] * 3, "pads": [1, 1, 0, 0, 1, 2]}
        yield Check(op, [x, w, b.reshape(1, 4, 1, 1, 1)], [onnx("Conv", x, w, b, **attributes)], SUMS)


@checks("deconv")
def deconv(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for groups, stride, pads in ((1, 1, [0, 0, 0, 0]), (2, 2, [1, 0, 1, 1]), (4, 3, [0, 1, 1, 0])):
        x, w, b = real(rng, 1, 4, 4, 5), real(rng, 4, 2, 3, 2), real(rng, 2 * groups)
        fields = {
            "groups": groups, "stride_h": stride, "stride_w": stride,
            "pad_h_t": pads[0], "pad_w_l": pads[1], "pad_h_b": pads[2], "pad_w_r": pads[3],
        }  # fmt: skip
        # The reference implementation fails for grouped deconv with more than one output per group.
        parts = zip(*(np.split(array, groups, axis) for array, axis in ((x, 1), (w, 0), (b, 0))), strict=True)
        results = [onnx("ConvTranspose", *part, strides=[stride] * 2, pads=pads) for part in parts]
        expected = np.concatenate(results, axis=1)
        yield Check(make(name, **fields), [x, w, b.reshape(1, -1, 1, 1)], [expected], SUMS)


@checks("matrix_mul")
def matrix_mul(name: str, rng: np.random.Generator) -> Iterator[Check]:
    a, b, c = real(rng, 5, 9), real(rng, 9, 4), real(rng, 1, 4)
    yield Check(make(name), [a, b], [onnx("MatMul", a, b)], SUMS)
    yield Check(make(name), [a, b, c], [onnx("Gemm", a, b, c)], SUMS)


@checks("batch_norm")
def batch_norm(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, mean, gamma, beta = real(rng, 2, 3, 4, 5), real(rng, 3), real(rng, 3), real(rng, 3)
    variance = np.abs(real(rng, 3)) + np.float32(0.1)
    expected = onnx("BatchNormalization", x, gamma, beta, mean, variance, epsilon=1e-3)
    yield Check(make(name, epsilon=1e-3), [x, mean, variance, gamma, beta], [expected, mean, variance], SUMS)


@checks("softmax")
def softmax(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for axis in (0, 1, -1):
        x = real(rng, 3, 4, 5)
        yield Check(make(name, axis=axis), [x], [onnx("Softmax", x, axis=axis)], SUMS)


@checks("reduce")
def reduce(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for method, op_type in enumerate(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")):
        for axes, keep in (((1,), True), ((0, -1), False), ((0, 1, 2), True)):
            x = real(rng, 3, 4, 5)
            expected = onnx(op_type, x, int64(*axes), keepdims=int(keep), opset=18)
            yield Check(make(name, axis_list=axes, method=method, keep_dims=keep), [x], [expected], SUMS)


@checks("pool")
def pool(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for is_average in (False, True):
        for kernel, stride, before in ((2, 2, 0), (3, 2, 1), (3, 1, 1)):
            x = real(rng, 2, 3, 7, 8)
            op = make(
                name, kernel_h=kernel, kernel_w=kernel, stride_h=stride, stride_w=stride, pad_h=before, pad_w=before,
                pooling_type=int(is_average), is_ave_count_zero_pad=False,
            )  # fmt: skip
            attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [before] * 4}
            yield Check(op, [x], [onnx("AveragePool" if is_average else "MaxPool", x, **attributes)], SUMS)
    x = real(rng, 2, 3, 5, 4)
    average = make(name, stride_h=1, stride_w=1, is_global_pooling=True, pooling_type=1)
    yield Check(average, [x], [onnx("GlobalAveragePool", x)], SUMS)


@checks("interpolate")
def interpolate(name: str, rng: np.random.Generator) -> Iterator[Check]:
    coordinates = {(False, True): "half_pixel", (True, False): "align_corners", (False, False): "asymmetric"}
    for (corners, half), mode in coordinates.items():
        for size in ((9, 6), (3, 11)):
            x = real(rng, 1, 2, 5, 7)
            op = make(
                name, size=size, platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR,
                align_corners=corners, half_pixel_centers=half,
            )  # fmt: skip
            expected = onnx(
                "Resize", x, None, None, int64(1, 2, *size), mode="linear", coordinate_transformation_mode=mode
            )
            yield Check(op, [x], [expected], SUMS)


@checks("upsample")
def upsample(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = real(rng, 1, 2, 3, 4)
    scales = np.array([1, 1, 3, 3], dtype=np.float32)
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    yield Check(make(name, scale=3), [x], [onnx("Resize", x, None, scales, **modes)])


# --- movement, choice, order ------------------------------------------------------------------------------------------


@checks("concat", "split", "interleave", "permute", "reshape", "reshape_v2", "squeeze", "expand_dims")
def arrangement(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, y = real(rng, 2, 1, 6), real(rng, 2, 1, 6)
    shape = np.array([4, -1], np.int32)
    found: dict[str, tuple[dict[str, Any], list[Array], Any]] = {
        "concat": ({"axis": 2}, [x, y], lambda: onnx("Concat", x, y, axis=2)),
        "split": ({"axis": 2, "num": 2, "size": (2, 4)}, [x], lambda: onnx("Split", x, int64(2, 4), axis=2, count=2)),
        "interleave": (
            {"axis": 2, "step": 2},
            [x, y],
            lambda: onnx("Concat", x.reshape(2, 1, 3, 1, 2), y.reshape(2, 1, 3, 1, 2), axis=3).reshape(2, 1, 12),
        ),
        "permute": ({"order": (2, 0, 1)}, [x], lambda: onnx("Transpose", x, perm=[2, 0, 1])),
        "reshape": ({"reshape_param": (0, 3, -1)}, [x], lambda: onnx("Reshape", x, int64(0, 3, -1))),
        "reshape_v2": ({}, [x, shape], lambda: onnx("Reshape", x, int64(4, -1))),
        "squeeze": ({"axis": (1,)}, [x], lambda: onnx("Squeeze", x, int64(1))),
        "expand_dims": ({"axis": 1, "ndims": 2}, [x], lambda: onnx("Unsqueeze", x, int64(1, 2))),
    }
    parameters, inputs, expected = found[name]
    result = expected()
    yield Check(make(name, **parameters), list(inputs), result if isinstance(result, list) else [result])


@checks("tile", "broadcast", "repeat", "tile_v2")
def tile(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, reps = real(rng, 2, 1, 3), (2, 3, 1)
    expected = onnx("Tile", x, int64(*reps))
    if name == "tile_v2":
        yield Check(make(name), [x, np.array(reps, np.int32)], [expected])
    else:
        yield Check(make(name, **{"times" if name == "broadcast" else "reps": reps}), [x], [expected])


@checks("extract", "extract_v2")
def extract(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, limits = real(rng, 5, 6, 7), ((1, 0, 2), (5, 6, 7), (2, 1, 3))
    expected = slice_axes(x, *limits)
    if name == "extract_v2":
        yield Check(make(name), [x, *(np.array(values, np.int32) for values in limits)], [expected])
    else:
        yield Check(make(name, start=limits[0], end=limits[1], stride=limits[2]), [x], [expected])


@checks("pad", "pad_v2")
def pad(name: str, rng: np.random.Generator) -> Iterator[Check]:
    modes = {PadType.PAD_CONSTANT: "constant", PadType.PAD_REFLECT: "reflect", PadType.PAD_EDGE: "edge"}
    for mode, text in modes.items():
        x, before, after = real(rng, 3, 4), (1, 2), (2, 0)
        value = number(1.5) if mode is PadType.PAD_CONSTANT else None
        expected = onnx("Pad", x, int64(*before, *after), *([] if value is None else [value]), mode=text)
        pairs, scalar = (1, 2, 2, 0), Scalar.f32(1.5)
        if name == "pad":
            yield Check(make(name, pad_val=scalar, paddings=pairs, pad_mode=mode), [x], [expected])
        else:
            yield Check(make(name, pad_val=scalar, pad_mode=mode), [x, np.array(pairs, np.int32)], [expected])


@checks("condition_select")
def condition_select(name: str, rng: np.random.Generator) -> Iterator[Check]:
    cond, a, b = few(rng, 3, 5), real(rng, 3, 5), real(rng, 3, 5)
    yield Check(make(name), [cond, a, b], [onnx("Where", onnx("Greater", cond, number(0)), a, b)])


@checks("select")
def select(name: str, rng: np.random.Generator) -> Iterator[Check]:
    a, b, c, d = few(rng, 3, 5), few(rng, 3, 5), real(rng, 3, 5), real(rng, 3, 5)
    for kind, op_type in ((SelectType.GREATER_THAN, "Greater"), (SelectType.GREATER_EQUAL, "GreaterOrEqual")):
        yield Check(make(name, select_type=kind), [a, b, c, d], [onnx("Where", onnx(op_type, a, b), c, d)])


@checks("masked_select")
def masked_select(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, mask = real(rng, 3, 5), few(rng, 3, 5)
    flat = onnx("Cast", mask.reshape(-1), to=TensorProto.BOOL)
    yield Check(make(name), [x, mask], [onnx("Compress", x, flat)])


@checks("where")
def where(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = few(rng, 3, 5, 2)
    yield Check(make(name), [x], [onnx("NonZero", x).T.astype(np.int32)])


@checks("index_select")
def index_select(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, index = real(rng, 3, 5), np.array([4, 0, 0, 2], np.int32)
    yield Check(make(name, dim=1), [x, index], [onnx("Gather", x, index, axis=1)])


@checks("number_like", "sequence_gen", "shape_fetch")
def generation_checks(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = real(rng, 3, 2, 4)
    if name == "shape_fetch":
        expected = onnx("Shape", x, start=1, end=3).astype(np.int32)
        yield Check(make(name, begin_axis=1, end_axis=3), [x], [expected])
    elif name == "number_like":
        filled = onnx("ConstantOfShape", int64(3, 2, 4), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5]))
        yield Check(make(name, scalar_i=Scalar.f32(2.5)), [x], [filled])
    else:
        count = onnx("Range", number(0), number(24), number(1)).reshape(3, 2, 4)
        yield Check(make(name, out_dtype=F32), [np.array([3, 2, 4], np.int32)], [count])


@checks("lut")
def lut(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, table = rng.integers(0, 256, (3, 50)).astype(np.uint8), real(rng, 256)
    yield Check(make(name), [x, table], [onnx("Gather", table, x.astype(np.int64))])


@checks("arg")
def arg(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for axis in (0, 1, -1):
        for method, op_type in ((ArgMethod.max, "ArgMax"), (ArgMethod.min, "ArgMin")):
            x = few(rng, 4, 5, 6)
            yield Check(make(name, axis=axis, method=method), [x], [onnx(op_type, x, axis=axis).astype(np.int32)])


@checks("topk", "sort", "argsort")
def ordering_checks(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for axis in (0, 1, -1):
        for descending in (True, False):
            x = real(rng, 4, 5, 6)
            k = 3 if name == "topk" else x.shape[axis]
            values, indices = onnx("TopK", x, int64(k), axis=axis, largest=int(descending), count=2)
            index = indices.astype(np.int32)
            if name == "topk":
                yield Check(make(name, k=k, axis=axis, descending=descending), [x], [values, index])
            else:
                op = make(name, dim=axis, descending=descending)
                yield Check(op, [x], [index, values] if name == "sort" else [index])


@checks("nms", "nms_v2")
def suppression(name: str, rng: np.random.Generator) -> Iterator[Check]:
    for limit in (0.0, 0.3, 0.7):
        boxes = rng.uniform(0, 10, (20, 4)).astype(np.float32)
        scores = rng.permutation(20).astype(np.float32) / 20
        lowest, most = (0.2, 5) if name == "nms_v2" else (-1.0, 20)
        picked = onnx(
            "NonMaxSuppression", boxes[None], scores[None, None], int64(most), np.float32([limit]), np.float32([lowest])
        )
        limits = {"threshold": Scalar.f32(limit)}
        if name == "nms_v2":
            limits = {"iou_threshold": Scalar.f32(limit), "score_threshold": Scalar.f32(lowest)}
        op = make(name, **limits, **({"max_output_size": most} if name == "nms_v2" else {}))
        yield Check(op, [boxes, scores], [picked[:, 2].astype(np.int32)])


@checks("dequant_int_to_fp32")
def dequantization_checks(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x = rng.integers(0, 256, (3, 50)).astype(np.uint8)
    expected = onnx("DequantizeLinear", x, number(0.1), np.array(131, np.uint8))
    yield Check(make(name, scale_val=0.1, offset_val=131), [x], [expected])


@checks("lshift", "rshift", "clshift", "crshift")
def moved_slices(name: str, rng: np.random.Generator) -> Iterator[Check]:
    x, zeros = real(rng, 2, 5, 3), np.zeros((2, 2, 3), np.float32)
    first, last = x[:, :2], x[:, 3:]
    to_low, to_high = onnx("Slice", x, int64(2), int64(5), int64(1)), onnx("Slice", x, int64(0), int64(3), int64(1))
    parts = {
        "lshift": (to_low, zeros),
        "rshift": (zeros, to_high),
        "clshift": (to_low, first),
        "crshift": (last, to_high),
    }
    yield Check(make(name, num=2), [x], [onnx("Concat", *parts[name], axis=1)])


@checks("space_to_batch", "space_to_batch_v2", "batch_to_space", "batch_to_space_v2")
def blocks(name: str, rng: np.random.Generator) -> Iterator[Check]:
    """ONNX moves blocks to channels, and this operator to the batch: exchange the two axes before and after."""
    plane, offsets = real(rng, 3, 1, 4, 6), np.zeros(4, np.int32)
    deep = onnx("SpaceToDepth", onnx("Transpose", plane, perm=[1, 0, 2, 3]), blocksize=2)
    batched = onnx("Transpose", deep, perm=[1, 0, 2, 3])
    x, expected = (plane, batched) if name.startswith("space") else (batched, plane)
    if name.endswith("v2"):
        yield Check(make(name), [x, np.array([2, 2], np.int32), offsets], [expected])
    else:
        edge = "pad" if name.startswith("space") else "crop_size"
        yield Check(make(name, block_size=(2, 2), **{edge: (0, 0, 0, 0)}), [x], [expected])


BY_PYTHON = ("requant_fp32_to_int", "softmax_int", "hw_avg", "hw_mul")
"""ONNX has no equivalent. Each float step is part of the integer specification, which the integer oracles test."""
