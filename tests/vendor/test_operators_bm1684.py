"""Every form that is exported for BM1684 with edge values in the vendor's simulator: ties, saturation, odd shapes.

The operators of a family are branches of one graph, so that they are compiled together.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.vendor.vendor_tools import Vendor, model_of, random_integers
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.shift_arithmetic import MulsShift
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Array, Chip, DType, QuantParams, Scalar, TensorType

I8, U8, I16, F32 = DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT32

pytestmark = pytest.mark.vendor


class Family:
    """A graph of branches, and the arrays of its inputs."""

    def __init__(self) -> None:
        self.graph = Graph("family")
        self.feeds: dict[str, Array] = {}
        self.rng = np.random.default_rng(5)

    def input(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        """Add an input with random elements of the whole range. Its scale is a power of two."""
        value = self.graph.input(
            f"x{len(self.feeds)}", TensorType(dtype, shape), quant=QuantParams.per_tensor(0.5, 0, dtype)
        )
        self.feeds[value.name] = random_integers(shape, dtype.numpy, len(self.feeds))
        return value

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int8") -> Value:
        """Add a constant with random integers in low..high."""
        return self.graph.constant(self.rng.integers(low, high + 1, shape).astype(dtype), "constant")

    def add(self, op: Op, *operands: Value) -> None:
        """Add a node whose results are graph outputs with a scale."""
        for value in self.graph.add_all(op, *operands):
            value.quant = QuantParams.per_tensor(0.25, 0, value.dtype)
            self.graph.output(value)

    def check(self, vendor: Vendor, folder) -> None:
        """Compile the graph, run it in the simulator, and compare every integer tensor."""
        model = model_of(self.graph, Chip.BM1684)
        assert vendor.differences(model, [self.feeds], "bm1684", folder / "export") == []


@pytest.mark.parametrize("dtype", [I8, U8], ids=["int8", "uint8"])
def test_bm1684_convolutions(dtype, vendor, tmp_path):
    """Strides, dilations, groups and uneven padding; sums reach both limits of 8 bits, shifts have ties."""
    family = Family()
    x = family.input(dtype, (1, 6, 9, 7))
    for groups, columns, window in (
        (1, 5, {"pad_h_t": 1, "pad_h_b": 0, "pad_w_l": 2, "pad_w_r": 1}),
        (2, 4, {"stride_h": 2, "stride_w": 1, "dh": 2, "dw": 2, "pad_h_t": 2, "pad_h_b": 2, "pad_w_l": 1}),
        (6, 6, {"stride_h": 2, "stride_w": 2, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1}),
    ):
        for out in (I8, U8):
            for shift, limit in ((0, 1), (1, 1), (3, 2), (9, 127), (14, 127)):
                weights = family.integers(-limit, limit, columns, 6 // groups, 3, 3)
                most = min(32767, 64 << shift)
                bias = family.integers(-most, most, 1, columns, 1, 1, dtype="int16")
                family.add(Conv(groups=groups, scale=2.0**-shift, out_dtype=out, **window), x, weights, bias)
    family.check(vendor, tmp_path)


def test_bm1684_averages(vendor, tmp_path):
    """Averages are depthwise convolutions with equal weights, also over a whole image with a large stride."""
    family = Family()
    for dtype in (I8, U8):
        x = family.input(dtype, (1, 5, 24, 20))
        for height, width, stride, shift in ((2, 2, 2, 8), (3, 4, 3, 10), (24, 20, 24, 15)):
            ones = family.graph.constant(np.full((5, 1, height, width), 77, np.int8), "weights")
            op = Conv(groups=5, stride_h=stride, stride_w=stride, scale=2.0**-shift, out_dtype=dtype)
            family.add(op, x, ones)
    family.check(vendor, tmp_path)


@pytest.mark.parametrize("rows", [1, 3])
def test_bm1684_matmul(rows, vendor, tmp_path):
    """Fully connected layers with up to 2100 unsigned inputs, of which all sums have the same sign."""
    family = Family()
    for dtype, inputs, shift in ((I8, 37, 7), (U8, 37, 7), (U8, 1568, 13), (U8, 2100, 13)):
        x = family.input(dtype, (rows, inputs))
        for out in (I8, U8):
            weights, bias = family.integers(-20, 40, inputs, 10), family.integers(-32768, 32767, 1, 10, dtype="int16")
            family.add(MatrixMul(scale=2.0**-shift, out_dtype=out), x, weights, bias)
    family.check(vendor, tmp_path)


def scaled(family: Family, x: Value, multiplier: int, shift: int) -> Value:
    return family.graph.add(MulsShift(scalar=Scalar(I8, multiplier), shift=shift, out_dtype=I16), x)


def test_bm1684_sums(vendor, tmp_path):
    """Both operands are rescaled and rounded; sums saturate, also from rescaled values above 8 bits."""
    family = Family()
    for left, right in ((I8, I8), (I8, U8), (U8, U8)):
        a, b = family.input(left, (1, 6, 5, 4)), family.input(right, (1, 6, 5, 4))
        for first, second in (((64, 6), (64, 7)), ((127, 7), (1, 1)), ((99, 4), (101, 5)), ((64, 9), (127, 12))):
            for op in (Add(out_dtype=I8), Add(out_dtype=U8), Sub(out_dtype=I8)):
                family.add(op, scaled(family, a, *first), scaled(family, b, *second))
    family.check(vendor, tmp_path)


def test_bm1684_broadcast_sums(vendor, tmp_path):
    """An operand with one element per channel."""
    family = Family()
    a, b = family.input(I8, (1, 6, 5, 4)), family.input(U8, (1, 6, 1, 1))
    for out in (I8, U8):
        family.add(Add(out_dtype=out), scaled(family, a, 70, 6), scaled(family, b, 90, 7))
    family.check(vendor, tmp_path)


def test_bm1684_products(vendor, tmp_path):
    """Products of two tensors, of equal shape and broadcast."""
    family = Family()
    a, b = family.input(I8, (1, 6, 5, 4)), family.input(U8, (1, 6, 5, 4))
    c, channel = family.input(I8, (1, 6, 5, 4)), family.input(U8, (1, 6, 1, 1))
    for left, right in ((a, b), (a, c), (a, channel)):
        for multiplier, shift in ((64, 13), (127, 14), (1, 7), (97, 12)):
            exact = family.graph.add(Mul(out_dtype=I16), left, right)
            family.add(MulsShift(scalar=Scalar(I8, multiplier), shift=shift, out_dtype=I8), exact)
    family.check(vendor, tmp_path)


def test_bm1684_tables(vendor, tmp_path):
    """Tables of tensors of rank 2 and 4."""
    family = Family()
    for shape in ((1, 4, 3, 7), (2, 50)):
        for operand in (family.input(I8, shape), family.input(U8, shape)):
            for dtype, low in (("int8", -128), ("uint8", 0)):
                family.add(Lut(), operand, family.integers(low, low + 255, 256, dtype=dtype))
    family.check(vendor, tmp_path)


def test_bm1684_maximum_pooling(vendor, tmp_path):
    """Padding and ceil mode."""
    family = Family()
    for dtype in (I8, U8):
        x = family.input(dtype, (1, 5, 8, 6))
        family.add(Pool(kernel_h=3, kernel_w=3, stride_h=2, stride_w=2, pad_h=1, pad_w=1), x)
        family.add(Pool(kernel_h=3, kernel_w=2, stride_h=2, stride_w=2, is_ceil_mode=True), x)
    family.check(vendor, tmp_path)


def test_bm1684_data_movement(vendor, tmp_path):
    """Operators that only move elements, for ranks 2 and 4, odd extents and steps."""
    family = Family()
    x, other = family.input(I8, (1, 6, 5, 7)), family.input(I8, (1, 3, 5, 7))
    rows = family.input(I8, (2, 9))
    for order in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2)):
        family.add(Permute(order), x)
    family.add(Concat(axis=1), x, other)
    family.add(Concat(axis=1), rows, rows)
    family.add(Concat(axis=2), x, x)
    family.add(Split(axis=1, num=3, size=(1, 2, 3)), x)
    family.add(Extract((0, 1, 1, 0), (1, 6, 5, 7), (1, 2, 3, 2)), x)
    family.add(Reshape((1, 30, 7, 1)), x)
    family.add(Reshape((1, 210)), x)
    family.add(Tile((1, 2, 1, 3)), other)
    family.add(Upsample(scale=2), x)
    family.add(Pad(paddings=(0, 0, 0, 0, 1, 2, 0, 3), pad_val=Scalar(I8, -77)), x)
    family.check(vendor, tmp_path)


def test_bm1684_casts(vendor, tmp_path):
    """Conversions from and to float32, with ties and saturation."""
    family = Family()
    for dtype in (I8, U8):
        real = family.graph.input(f"real_{dtype.name}", TensorType(F32, (1, 40)))
        values = np.concatenate([np.arange(-10, 10) + 0.5, np.linspace(-300, 300, 20)])
        family.feeds[real.name] = (values * 0.25).astype(np.float32).reshape(1, 40)
        scaled_real = family.graph.add(Muls(Scalar.f32(4.0)), real)
        y = family.graph.add(Cast(dtype), scaled_real)
        y.quant = QuantParams.per_tensor(0.25, 0, dtype)
        family.graph.output(y)
        family.graph.output(family.graph.add(Muls(Scalar.f32(0.25)), family.graph.add(Cast(F32), y)))
    family.check(vendor, tmp_path)
