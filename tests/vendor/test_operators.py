"""Every exported form with edge values in the vendor's simulator: ties, saturation, zero points, odd shapes.

The operators of a family are branches of one graph, so that they are compiled together.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.vendor.vendor_tools import Vendor, model_of, random_integers
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls, Rsubs, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Array, DType, QuantParams, Scalar, TensorType

I8, U8, I16, U16, I32, F32 = DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32, DType.FLOAT32

pytestmark = [pytest.mark.vendor, pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])]

ONE_ROUNDING, DOUBLE, DOUBLE_LEFT = RequantMode.MULTIPLIER_SHIFT, RequantMode.TFLITE, RequantMode.TFLITE_LSHIFT


class Family:
    """A graph of branches, and the arrays of its inputs.

    Args:
        to: name of the export target.
    """

    def __init__(self, to: str) -> None:
        self.to = to
        self.graph = Graph("family")
        self.feeds: dict[str, Array] = {}
        self.rng = np.random.default_rng(11)

    @property
    def has_all_forms(self) -> bool:
        """True for the target that has an exact form of every branch."""
        return self.to == "tpu-mlir"

    def input(self, dtype: DType, shape: tuple[int, ...], zero_point: int = 0) -> Value:
        """Add an input with random elements of the whole range. Its scale is a power of two."""
        quant = QuantParams.per_tensor(0.5, zero_point, dtype)
        value = self.graph.input(f"x{len(self.feeds)}", TensorType(dtype, shape), quant=quant)
        self.feeds[value.name] = random_integers(shape, dtype.numpy, len(self.feeds))
        return value

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int8") -> Value:
        """Add a constant with random integers in low..high."""
        return self.graph.constant(self.rng.integers(low, high + 1, shape).astype(dtype), "constant")

    def add(self, op: Op, *operands: Value, zero_point: int = 0, only_first: bool = False) -> Value:
        """Add a node; its 8- and 16-bit results, or the first one, are graph outputs with a scale."""
        for value in self.graph.add_all(op, *operands)[: 1 if only_first else None]:
            if value.dtype in (I8, U8, I16, U16):
                value.quant = QuantParams.per_tensor(0.25, zero_point, value.dtype)
                self.graph.output(value)
        return value

    def requantize(self, accumulator: Value, bound: int) -> None:
        """Add all modes of requantization of an accumulator; results reach the limits of their types.

        Args:
            accumulator: INT32, with channels on axis 1.
            bound: approximate largest magnitude of its elements.
        """
        channels = accumulator.type.static_shape[1]
        for dtype, zero_point in ((I8, 0), (U8, 0), (I8, -7), (U8, 130), (I16, 0), (I16, 77)):
            shift = -(24 + max(bound.bit_length() - dtype.bits, 0))
            multipliers = tuple(int(item) for item in self.rng.integers(1 << 22, 1 << 25, channels))
            vectors = {"is_mul_shift_pc": True, "multiplier_vec": multipliers, "shift_vec": (shift,) * channels}
            modes = {"mode": ONE_ROUNDING, "offset_val": zero_point, "out_dtype": dtype}
            self.add(RequantInt32(**vectors, **modes), accumulator, zero_point=zero_point)
            # a multiplier of 1: every second sum is a tie
            self.add(RequantInt32(shift_val=-1, **modes), accumulator, zero_point=zero_point)
        if self.has_all_forms:
            offsets = tuple(int(item) for item in self.rng.integers(-30, 30, channels))
            vectors = {"is_offset_pc": True, "offset_vec": offsets}
            self.add(RequantInt32(shift_val=-8, mode=ONE_ROUNDING, out_dtype=I8, **vectors), accumulator)
        for mode in (DOUBLE, DOUBLE_LEFT):
            for dtype, zero_point in ((I8, -7), (I16, 0)):
                multipliers = tuple(int(item) for item in self.rng.integers(1 << 30, 1 << 31, channels))
                shift = -max(bound.bit_length() - dtype.bits, 0)
                vectors = {"is_mul_shift_pc": True, "multiplier_vec": multipliers, "shift_vec": (shift,) * channels}
                op = RequantInt32(**vectors, mode=mode, offset_val=zero_point, out_dtype=dtype)
                self.add(op, accumulator, zero_point=zero_point)

    def check(self, vendor: Vendor, chip: str, folder, *, with_checks: bool = True) -> None:
        """Compile the graph, run it in the simulator, and compare every integer tensor, or the outputs only."""
        model, target = model_of(self.graph), folder / "export"
        assert vendor.differences(model, [self.feeds], chip, target, to=self.to, with_checks=with_checks) == []


@pytest.mark.parametrize("dtype", [I8, U8], ids=["int8", "uint8"])
def test_convolutions(dtype, chip, to, vendor, tmp_path):
    """Strides, dilations, groups, uneven padding and zero points; sums reach both limits of 8 bits."""
    family = Family(to)
    x = family.input(dtype, (1, 6, 9, 7), zero_point=3)
    plain = family.input(dtype, (1, 6, 9, 7))
    for operand, zero in ((x, 3), (plain, 0)):
        for groups, columns, window in (
            (1, 5, {"pad_h_t": 1, "pad_h_b": 0, "pad_w_l": 2, "pad_w_r": 1}),
            (2, 4, {"stride_h": 2, "stride_w": 1, "dh": 2, "dw": 2, "pad_h_t": 2, "pad_h_b": 2, "pad_w_l": 1}),
            (6, 6, {"stride_h": 2, "stride_w": 2, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1}),
        ):
            op = ConvV2(groups=groups, izp_val=zero, has_bias=True, **window)
            weights = family.integers(-128, 127, columns, 6 // groups, 3, 3)
            bias = family.integers(-9999, 9999, 1, columns, 1, 1, dtype="int32")
            family.requantize(family.graph.add(op, operand, weights, bias), 1 << 18)
    family.check(vendor, chip, tmp_path)


def test_wide_strides(chip, vendor, tmp_path):
    """Strides above 15, with kernels that are longer, shorter and no multiple of the stride, and padding."""
    family = Family("tpu-mlir")
    for dtype, zero in ((I8, 3), (U8, 0)):
        x = family.input(dtype, (1, 2, 40, 70), zero_point=zero)
        for groups, kernel, window in (
            (1, (1, 40), {"stride_w": 16, "pad_w_l": 5, "pad_w_r": 3}),
            (1, (20, 3), {"stride_h": 18, "stride_w": 17, "pad_h_t": 2, "pad_w_r": 2}),
            (2, (2, 16), {"stride_w": 32}),
        ):
            op = ConvV2(groups=groups, izp_val=zero, **window)
            weights = family.integers(-128, 127, 4, 2 // groups, *kernel)
            family.requantize(family.graph.add(op, x, weights), 1 << 18)
    family.check(vendor, chip, tmp_path)


def test_weight_zero_points(chip, to, vendor, tmp_path):
    """UINT8 weights with a zero point, as UINT8 files of TFLite have them."""
    family = Family(to)
    x = family.input(U8, (1, 5, 6, 6), zero_point=128)
    weights = family.integers(0, 255, 7, 5, 3, 3, dtype="uint8")
    op = ConvV2(izp_val=128, kzp_val=131, pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1)
    family.requantize(family.graph.add(op, x, weights), 1 << 19)
    depthwise = family.integers(0, 255, 5, 1, 3, 3, dtype="uint8")
    family.requantize(family.graph.add(ConvV2(groups=5, izp_val=128, kzp_val=97), x, depthwise), 1 << 17)
    family.check(vendor, chip, tmp_path)


def test_matmul_and_deconv(chip, to, vendor, tmp_path):
    """Fully connected layers with zero points, and transposed convolutions."""
    family = Family(to)
    x = family.input(I8, (3, 37), zero_point=-5)
    op = MatrixMulV2(lzp_val=-5, has_bias=True)
    weights, bias = family.integers(-128, 127, 37, 10), family.integers(-999, 999, 10, dtype="int32")
    family.requantize(family.graph.add(op, x, weights, bias), 1 << 18)
    for dtype in (I8, U8):  # operands without a scale
        plain = family.graph.add(Reshape((3, 37)), family.input(dtype, (1, 3, 37)))
        family.requantize(family.graph.add(MatrixMulV2(), plain, weights), 1 << 18)
    image = family.input(U8, (1, 4, 5, 3))
    for window in ({"stride_h": 2, "stride_w": 2}, {"pad_h_t": 1, "pad_h_b": 1, "stride_w": 2}):
        kernel = family.integers(-128, 127, 4, 6, 3, 2)
        family.requantize(family.graph.add(DeconvV2(**window), image, kernel), 1 << 18)
    family.check(vendor, chip, tmp_path)


def test_computed_products(chip, vendor, tmp_path):
    """Products of two computed tensors, as in attention."""
    family = Family("tpu-mlir")
    for left, right in ((I8, I8), (U8, I8)):
        for is_transposed in (False, True):
            a = family.input(left, (16, 40))
            b = family.input(right, (24, 40) if is_transposed else (40, 24))
            family.requantize(family.graph.add(MatrixMulV2(is_right_trans=is_transposed), a, b), 1 << 18)
    family.check(vendor, chip, tmp_path)


def test_grouped_deconv(chip, to, vendor, tmp_path):
    """Groups are written as one group with zeros between them."""
    family = Family(to)
    image = family.input(U8, (1, 4, 5, 3))
    for groups, columns in ((2, 3), (4, 1)):
        op = DeconvV2(groups=groups, stride_h=2, stride_w=2)
        family.requantize(family.graph.add(op, image, family.integers(-128, 127, 4, columns, 2, 2)), 1 << 17)
    family.check(vendor, chip, tmp_path)


@pytest.mark.parametrize("dtype", [I8, U8], ids=["int8", "uint8"])
def test_accumulators_that_are_not_returned(dtype, chip, vendor, tmp_path):
    """Requantizations whose accumulator has no other use, which the compiler fuses into the node before."""
    family = Family("tpu-mlir")
    full, deep = {"pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1}, {"groups": 64}
    strides = {"stride_h": 2, "stride_w": 2}
    shapes = ((1, 64, 12, 12), (1, 120, 20, 20), (2, 64, 3, 3), (1, 8, 3, 3))
    image, many, point, few = (family.input(dtype, shape) for shape in shapes)
    for op, x, kernel, inputs in (
        (ConvV2(), image, (8, 64, 1, 1), 64),
        (ConvV2(**full), image, (8, 64, 3, 3), 576),
        (ConvV2(**full, **strides), image, (8, 64, 3, 3), 576),
        (ConvV2(**full, **deep), image, (64, 1, 3, 3), 9),
        (ConvV2(**full, **deep, **strides), image, (64, 1, 3, 3), 9),
        (ConvV2(**deep), image, (64, 1, 5, 5), 25),
        (ConvV2(groups=120, **strides), many, (120, 1, 5, 5), 25),
        (ConvV2(groups=4), image, (8, 16, 3, 3), 144),
        (ConvV2(), point, (24, 64, 3, 3), 576),
        (ConvV2(groups=8), few, (8, 1, 3, 3), 9),
        (DeconvV2(**strides), image, (64, 6, 2, 2), 64),
        (MatrixMulV2(), family.input(dtype, (3, 37)), (37, 10), 37),
        (MatrixMulV2(), family.input(dtype, (1, 2048)), (2048, 64), 2048),
    ):
        weights = family.integers(-128, 127, *kernel)
        for results, zero_point in ((I8, 0), (U8, 0), (I8, -7), (U8, 130), (I16, 0), (I16, 77)):
            accumulator = family.graph.add(op, x, weights)
            channels = accumulator.type.static_shape[1]
            multipliers = tuple(int(item) for item in family.rng.integers(1 << 22, 1 << 25, channels))
            shift = -(24 + max((inputs << 14).bit_length() // 2 + 7 - results.bits, 0))
            vectors = {"is_mul_shift_pc": True, "multiplier_vec": multipliers, "shift_vec": (shift,) * channels}
            requantization = RequantInt32(**vectors, mode=ONE_ROUNDING, offset_val=zero_point, out_dtype=results)
            family.add(requantization, accumulator, zero_point=zero_point)
    family.check(vendor, chip, tmp_path, with_checks=False)


def test_exact_sums(chip, to, vendor, tmp_path):
    """Residual sums without intermediate rounding, with broadcast, differences and products."""
    family = Family(to)
    a, b = family.input(I8, (1, 6, 5, 4)), family.input(U8, (1, 6, 5, 4))
    channel = family.input(I8, (1, 6, 1, 1))
    for left, right in ((a, b), (a, channel)):
        for multipliers in ((5, 9), (1 << 10, 3333)):
            sides = [
                family.graph.add(RequantInt32(multiplier_val=m, shift_val=31, mode=DOUBLE_LEFT, out_dtype=I32), side)
                for m, side in zip(multipliers, (left, right), strict=True)
            ]
            for op in (Add(out_dtype=I32), Sub(out_dtype=I32)):
                total = family.graph.add(op, *sides)
                for dtype in (I8, U8, I16):
                    shift = max(1, max(multipliers).bit_length() - (dtype.bits - 8))
                    family.add(RequantInt32(shift_val=-shift, mode=ONE_ROUNDING, out_dtype=dtype), total)
    product = family.graph.add(Mul(out_dtype=I32), a, b)
    family.requantize(product, 1 << 15)
    family.check(vendor, chip, tmp_path)


def test_element_wise(chip, to, vendor, tmp_path):
    """Tables, limits, extremes, shifts with both roundings, and saturating casts."""
    family = Family(to)
    a, b = family.input(I8, (1, 4, 3, 7)), family.input(I8, (1, 4, 3, 7))
    unsigned, wide = family.input(U8, (1, 4, 3, 7)), family.input(I16, (1, 4, 3, 7))
    for operand in (a, unsigned):
        for dtype in ("int8", "uint8"):
            low = -128 if dtype == "int8" else 0
            family.add(Lut(), operand, family.integers(low, low + 255, 256, dtype=dtype))
    for op in (Max(), Min()):
        family.add(op, a, b)
    for low, high in ((0, 32767), (0, 16384), (-32768, 100)):
        family.add(Clamp(min=Scalar(I16, low), max=Scalar(I16, high)), wide)
    family.add(ArithmeticShift(shift=8, rounding_mode=RoundingMode.DOWN, out_dtype=I16), a)
    for rounding in (RoundingMode.HALF_UP, RoundingMode.HALF_AWAY_FROM_ZERO):
        for shift in (-1, -3, 2):
            family.add(ArithmeticShift(shift=shift, rounding_mode=rounding, out_dtype=I8), wide)
            family.add(ArithmeticShift(shift=shift, rounding_mode=rounding, out_dtype=I16), wide)
    for operand, dtype in ((wide, I8), (wide, U8), (a, U8), (unsigned, I8), (a, I16), (unsigned, I16)):
        family.add(Cast(dtype), operand)
    for op in (Adds, Subs, Rsubs):
        for operand, number in ((a, 100), (a, -3), (wide, 20000)):
            family.add(op(Scalar(operand.dtype, number), out_dtype=operand.dtype), operand)
        for number in (7, 2**31 - 5):  # the sum saturates
            family.requantize(
                family.graph.add(op(Scalar(I32, number)), family.graph.add(Mul(out_dtype=I32), a, b)), 1 << 15
            )
    family.requantize(family.graph.add(Muls(Scalar(I32, -77)), family.graph.add(Mul(out_dtype=I32), a, b)), 1 << 21)
    family.check(vendor, chip, tmp_path)


def test_pooling(chip, to, vendor, tmp_path):
    """Maxima with padding and in ceil mode; averages with ties, also of negative sums."""
    family = Family(to)
    for dtype in (I8, U8):
        # TPULang pads with the zero point.
        x = family.input(dtype, (1, 5, 8, 6), zero_point=4 if family.has_all_forms else 0)
        for window in (
            {"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2, "pad_h": 1, "pad_w": 1},
            {"kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 2, "is_ceil_mode": True},
        ):
            family.add(Pool(**window), x)
        maximum = {"kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 2, "is_avg_pooling": False}
        family.add(PoolInt(**maximum), x, only_first=True)
        edges = {"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2, "pooling_type": PoolType.AVE}
        family.add(Pool(is_ceil_mode=True, **edges), x)
        for counts_padding in (False, True):
            family.add(Pool(pad_h=1, pad_w=1, is_ave_count_zero_pad=counts_padding, **edges), x)
        for height, width in ((2, 2), (4, 3), (8, 6), (5, 4)):  # the last one does not reach the last elements
            window = {"kernel_h": height, "kernel_w": width, "stride_h": height, "stride_w": width}
            family.add(Pool(pooling_type=PoolType.AVE, **window), x)
            family.add(PoolInt(is_avg_pooling=True, **window), x)
            scale = round(2**20 / (height * width) * 0.7)
            family.add(
                PoolInt(
                    is_avg_pooling=True, quant_mode=PoolQuantMode.MULTIPLIER_SHIFT, scale=scale, rshift=20, **window
                ),
                x,
            )
    wide = family.input(I16, (1, 5, 8, 6))
    pooled = family.add(PoolInt(pad_h_t=1, **maximum), wide, only_first=True)
    pooled.quant = wide.quant
    family.check(vendor, chip, tmp_path)


@pytest.mark.parametrize("with_checks", [True, False])
def test_large_averages(with_checks, chip, vendor, tmp_path):
    """Averages of the whole image, and of windows that overlap, are products with ones."""
    family = Family("tpu-mlir")
    for dtype in (I8, U8):
        for shape, height, width, stride in (
            ((2, 24, 28, 28), 28, 28, 28),
            ((1, 3, 80, 80), 80, 80, 80),
            ((1, 5, 1, 1000), 1, 1000, 1),
            ((1, 24, 40, 42), 20, 21, 20),
        ):
            x = family.input(dtype, shape, zero_point=3)
            window = {"kernel_h": height, "kernel_w": width, "stride_h": stride, "stride_w": stride}
            family.add(PoolInt(is_avg_pooling=True, **window), x)
            family.add(Pool(pooling_type=PoolType.AVE, **window), x)
    family.check(vendor, chip, tmp_path, with_checks=with_checks)


def test_data_movement(chip, to, vendor, tmp_path):
    """Operators that only move elements, for ranks 2 to 4, odd extents and steps."""
    family = Family(to)
    x, other = family.input(I8, (1, 6, 5, 7), zero_point=9), family.input(I8, (1, 3, 5, 7), zero_point=-2)
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
    number = -77 if family.has_all_forms else 9
    family.add(Pad(paddings=(0, 0, 0, 0, 1, 2, 0, 3), pad_val=Scalar(I8, number)), x)
    family.check(vendor, chip, tmp_path)


def test_softmax_and_casts(chip, to, vendor, tmp_path):
    """Softmax of integers through a table; conversions from and to float32 at the edges of the graph."""
    family = Family(to)
    x = family.input(U8, (2, 10))
    table = tuple(float(np.float32(np.exp(-index * 0.1))) for index in range(256))
    if family.has_all_forms:
        family.add(SoftmaxInt(table=table, scale=255.0, zero_point=0), x)
    for dtype in (I8, U8, I16):
        real = family.graph.input(f"real_{dtype.name}", TensorType(F32, (1, 40)))
        limit = 2.0**dtype.bits
        values = np.concatenate([np.arange(-10, 10) + 0.5, np.linspace(-limit, limit, 20)])
        family.feeds[real.name] = (values * 0.25).astype(np.float32).reshape(1, 40)
        y = family.graph.add(RequantFp32ToInt(scale_val=4.0, out_dtype=dtype), real)
        y.quant = QuantParams.per_tensor(0.25, 0, dtype)
        family.graph.output(y)
        family.graph.output(family.graph.add(DequantIntToFp32(scale_val=0.25), y))
    family.check(vendor, chip, tmp_path)
