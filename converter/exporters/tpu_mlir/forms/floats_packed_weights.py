"""Lowerings of matmuls with packed weights of 4 and 8 bits. The device may round their results differently.

``tpu.A16MatMul`` dequantizes weights in the type of the activations, FLOAT16 or BFLOAT16, and sums in FLOAT32. With
FLOAT32 activations, and if FLOAT16 does not hold the scales, the program has dequantized weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor, fits, rounded_floats
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.exporters.tpu_mlir.registry import lowers_floats
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.matmul_group_quantized import STEP, MatmulGroupQuantized, unpack_codes
from tpuconvert.schema.types import Array, DType


@lowers_floats(MatmulGroupQuantized)
def matmul_group_quantized(op: MatmulGroupQuantized, node: Node, d: Lowering) -> None:
    """Lower a matmul with packed weights."""
    x, codes, scale, zero_point, bias = (*node.inputs, None, None)[:5]
    assert x is not None and codes is not None and scale is not None
    if not all(value is None or value.is_constant for value in node.inputs[1:]):
        raise NoExactForm("its weights are computed, expected constants")
    rows = d.floats(x)
    if op.activation_type is DType.INT8:
        rows = _rounded_rows(d, rows, op.group, node.output.name)
    zero_points = op.zero_points(scale.array, None if zero_point is None else zero_point.array)
    packed = _Weight(op, codes.array, scale.array, zero_points)
    if d.kind == "f32" or not packed.is_exact_in(d.kind):
        _dequantized(d, rows, packed, bias, node)
    else:
        _packed(d, rows, packed, bias, node)


class _Weight:
    """A packed weight.

    Args:
        op: the operator.
        codes: packed codes.
        scale: scales [N, G].
        zero_points: zero points [N, G].
    """

    def __init__(self, op: MatmulGroupQuantized, codes: Array, scale: Array, zero_points: Array) -> None:
        self.op = op
        self.codes = codes
        self.scale = scale
        self.zero_points = zero_points
        self.integers = np.clip(np.rint(zero_points), 0, 2**op.bits - 1)
        self.fractions = zero_points - self.integers

    def is_exact_in(self, kind: str) -> bool:
        """Return True if the type has the weights, and scales in it change none by more than rounding the weight does.

        The relative error of a scale in the normal range is at most half a unit. Smaller scales of FLOAT16 have a
        constant error, which is acceptable while the error of the largest weight of the group is below one step.
        """
        codes = unpack_codes(self.codes, self.op.bits).reshape(*self.scale.shape, self.op.group)
        largest = np.maximum(codes.max(axis=2) - self.zero_points, self.zero_points - codes.min(axis=2))
        scale = rounded_floats(self.scale, kind).astype(np.float64)
        error = np.abs(scale - self.scale)
        if not fits(largest * scale, kind):
            return False
        half_unit, step = {"f16": (2.0**-11, 2.0**-24), "bf16": (2.0**-8, 0.0)}[kind]
        return bool(((error <= half_unit * np.abs(self.scale)) | (error * largest <= step)).all())


def _packed(d: Lowering, x: Tensor, weight: _Weight, bias: Value | None, node: Node) -> None:
    """Append a product with packed weights, and a correction for the fractions of zero points.

    The operation has integer zero points. The products of the groups' sums with the fractions are subtracted.
    """
    op, y = weight.op, node.output
    count, groups = weight.scale.shape
    x = _padded_columns(d, x, groups * op.group)
    filler = -count % d.target.packed_rows
    widths = ((0, filler), (0, 0))
    operands = [
        x,
        d.module.weight(np.pad(weight.codes, widths), "ui8", f"{y.name}_codes"),
        d.float_weight(np.pad(weight.scale, widths), f"{y.name}_scales"),
        d.module.weight(np.pad(weight.integers, widths), "ui8", f"{y.name}_zero_points"),
        None if bias is None else d.float_weight(np.pad(bias.array, (0, filler)), f"{y.name}_bias"),
    ]
    shape = (*x.shape[:-1], count + filler)
    attributes: dict[str, Any] = {"q_group_size": op.group, "weight_bits": op.bits, "w_transpose": True}
    result = d.module.add("tpu.A16MatMul", operands, shape, d.kind, f"{y.name}_packed", **attributes)
    if filler:
        shape = (*shape[:-1], count)
        bounds: dict[str, Any] = {"offset": [0] * len(shape), "ends": shape, "steps": [1] * len(shape)}
        result = d.module.add("tpu.Slice", [result], shape, d.kind, f"{y.name}_rows", **bounds)
    if not weight.fractions.any():
        d.define(y, result)
        return
    sums = d.reshape(x, (*x.shape[:-1], groups, op.group), f"{y.name}_groups")
    sums = _reduced(d, sums, "ReduceSum", f"{y.name}_sums")
    factors = d.module.weight((weight.fractions * weight.scale).T, "f32", f"{y.name}_fractions")
    correction = d.module.add(
        "tpu.MatMul", [sums, factors], shape, "f32", f"{y.name}_correction", round_mode="HalfAwayFromZero"
    )
    d.add_floats("tpu.Sub", [d.as_kind(result, "f32"), correction], y, "f32")


def _dequantized(d: Lowering, x: Tensor, weight: _Weight, bias: Value | None, node: Node) -> None:
    """Append a product with weights in the type of the module."""
    codes, zero_points = weight.codes, weight.zero_points
    matrix = weight.op.weights(codes, weight.scale, zero_points.astype(np.float32), x.shape[-1])
    if not fits(matrix, d.kind):
        raise NoExactForm(f"its weights exceed the range of {d.kind}", "export with --floats bf16 or f32")
    biases = None if bias is None else d.floats(bias, "f32" if d.target.has_float32_biases else "")
    operands = [x, d.float_weight(np.ascontiguousarray(matrix.T), f"{node.output.name}_weights"), biases]
    d.add_floats("tpu.MatMul", operands, node.output, round_mode="HalfAwayFromZero")


def _rounded_rows(d: Lowering, x: Tensor, group: int, name: str) -> Tensor:
    """Append the rounding of activations to INT8 with a step per group of a row, and their dequantization."""
    depth, groups = x.shape[-1], -(-x.shape[-1] // group)
    wide = _padded_columns(d, d.as_kind(x, "f32"), groups * group)
    parts = d.reshape(wide, (*wide.shape[:-1], groups, group), f"{name}_parts")

    def step(operation: str, operands: list[Tensor], word: str, **attributes: Any) -> Tensor:
        shape = operands[0].shape
        return d.module.add(operation, operands, shape, "f32", f"{name}_{word}", **attributes)

    peaks = _reduced(d, step("tpu.Active", [parts], "magnitudes", mode="ABSVAL"), "ReduceMax", f"{name}_peaks")
    steps = step("tpu.MulConst", [peaks], "scaled_peaks", const_val=float(STEP))
    steps = step("tpu.MaxConst", [steps], "steps", const_val=float(np.finfo(np.float32).tiny))
    steps = d.reshape(steps, (*steps.shape, 1), f"{name}_step")
    integers = step("tpu.Active", [step("tpu.Div", [parts, steps], "quotients")], "integers", mode="ROUND")
    result = d.reshape(step("tpu.Mul", [integers, steps], "rounded"), wide.shape, f"{name}_rounded_rows")
    if wide.shape[-1] != depth:
        shape = (*wide.shape[:-1], depth)
        bounds: dict[str, Any] = {"offset": [0] * len(shape), "ends": shape, "steps": [1] * len(shape)}
        result = d.module.add("tpu.Slice", [result], shape, "f32", f"{name}_rounded_columns", **bounds)
    return d.as_kind(result, d.kind)


def _padded_columns(d: Lowering, x: Tensor, depth: int) -> Tensor:
    """Append zeros to each row: a whole number of groups."""
    if x.shape[-1] == depth:
        return x
    before, after = [0] * len(x.shape), [0] * len(x.shape)
    after[-1] = depth - x.shape[-1]
    shape = (*x.shape[:-1], depth)
    return d.module.add("tpu.Pad", [x], shape, x.element, f"{x.location}_padded", paddings=(*before, *after))


def _reduced(d: Lowering, x: Tensor, mode: str, location: str) -> Tensor:
    """Append a reduction of the last axis in FLOAT32."""
    axis = len(x.shape) - 1
    operand = d.as_kind(x, "f32")
    return d.module.add("tpu.Reduce", [operand], x.shape[:-1], "f32", location, axes=[axis], keepdims=False, mode=mode)
