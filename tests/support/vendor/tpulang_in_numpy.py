"""The functions of the vendor's TPULang API that exported programs call, computed with NumPy.

As module ``transform.TpuLang`` it runs a program without the vendor's package. Names and defaults of the parameters
equal the API, which a vendor test checks. ``compile`` computes the samples in ``inputs.npz`` and writes the outputs
in place of a compiled program.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import DType

TYPES = {dtype.numpy.name: dtype for dtype in DType}


class Tensor:
    """A constant, an input, or the result of a function of other tensors."""

    def __init__(self, shape=[], name=None, ttype="neuron", data=None, dtype="float32", scale=None, zero_point=None):  # noqa: B006  # as the API
        assert data is None or (data.dtype == dtype and list(data.shape) == shape)
        self.name, self.shape, self.value = name, shape, data
        self.function: Callable[..., Any] | None = None
        self.operands: tuple[Tensor, ...] = ()

    def compute(self):
        """Return the array of the tensor."""
        if self.value is None:
            self.value = self.function(*(operand.compute() for operand in self.operands))
        return self.value

    def reset(self):
        """Forget computed arrays."""
        if self.function is not None and self.value is not None:
            self.value = None
            for operand in self.operands:
                operand.reset()


class Scalar:
    def __init__(self, value, dtype="float32"):
        self.value = value


def _result(name, function, *operands):
    tensor = Tensor(name=name)
    tensor.function, tensor.operands = function, operands
    return tensor


def _mode(name):
    return RoundingMode[name.upper()]


def init(device):
    assert device in ("bm1684x", "bm1688")


def compile(name, inputs, outputs, cmp=True, refs=None, mode="f32", dynamic=False, asymmetric=False, no_save=False, opt=2, mlir_inference=True, bmodel_inference=True, log_level="normal", embed_debug_info=False, addr_mode="auto", gdma_check=False, layer_group_config="", num_core=1, enable_lghash=False, lghash_dir="", debug_dump_mode="normal", disable_topo_sort=True, enable_affine=False):  # fmt: skip  # noqa: E501
    samples = np.load("../inputs.npz")
    found = {output.name: [] for output in outputs}
    assert len(found) == len(outputs)
    for index in range(len(samples[inputs[0].name])):
        for tensor in inputs:
            tensor.value = samples[tensor.name][index]
            assert list(tensor.value.shape) == tensor.shape
        for output in outputs:
            found[output.name].append(output.compute())
        for output in outputs:
            output.reset()
    with open(f"{name}_int8.bmodel", "wb") as file:
        np.savez(file, **{key: np.stack(arrays) for key, arrays in found.items()})


def _window(stride, dilation, pad):
    names = ("stride_h", "stride_w", "dh", "dw", "pad_h_t", "pad_w_l", "pad_h_b", "pad_w_r")
    return dict(zip(names, (*stride, *dilation, *pad), strict=True))


def conv_int(input, weight, bias=None, stride=None, dilation=None, pad=None, group=1, input_zp=None, weight_zp=None, out_dtype=None, out_name=None):  # fmt: skip  # noqa: E501
    op = ConvV2(groups=group, izp_val=input_zp, kzp_val=weight_zp, has_bias=True, **_window(stride, dilation, pad))
    return _result(out_name, lambda x, w, b: op.reference(x, w, b.reshape(1, -1, 1, 1))[0], input, weight, bias)


def deconv_int(input, weight, bias=None, stride=None, dilation=None, pad=None, output_padding=None, group=1, input_zp=None, weight_zp=None, out_dtype=None, out_name=None):  # fmt: skip  # noqa: E501
    assert (group, input_zp, weight_zp, output_padding) == (1, 0, 0, None)
    op = DeconvV2(has_bias=True, **_window(stride, dilation, pad))

    def function(x, w, b):
        return op.reference(x, w.transpose(1, 0, 2, 3), b.reshape(1, -1, 1, 1))[0]

    return _result(out_name, function, input, weight, bias)


def requant_int(tensor_i, mul, shift, offset, requant_mode, out_dtype="int8", out_name=None, round_mode="half_away_from_zero", rq_axis=1, fuse_rq_to_matmul=False):  # fmt: skip  # noqa: E501
    mode = RequantMode(requant_mode)
    assert mode is RequantMode.MULTIPLIER_SHIFT or round_mode == "half_away_from_zero"
    parameters = {"multiplier_vec": tuple(mul), "shift_vec": tuple(shift), "offset_val": offset or 0}
    op = RequantInt32(
        is_mul_shift_pc=True, mode=mode, round_mode=_mode(round_mode), out_dtype=TYPES[out_dtype], **parameters
    )
    return _result(out_name, lambda x: op.reference(x)[0], tensor_i)


def _shifted(function, a, b, shift, out_dtype, round_mode, out_name):
    op = ArithmeticShift(shift=shift, rounding_mode=_mode(round_mode), out_dtype=TYPES[out_dtype])

    def compute(x, y):
        exact = function(x.astype(np.int64), y.astype(np.int64))
        assert np.abs(exact).max() < 2**31
        return op.reference(exact.astype(np.int32))[0]

    return _result(out_name, compute, a, b)


def add_shift(tensor_i0, tensor_i1, shift, out_dtype, round_mode="half_away_from_zero", is_saturate=True, out_name=None):  # fmt: skip  # noqa: E501
    return _shifted(np.add, tensor_i0, tensor_i1, shift, out_dtype, round_mode, out_name)


def sub_shift(tensor_i0, tensor_i1, shift, out_dtype, round_mode="half_away_from_zero", is_saturate=True, out_name=None):  # fmt: skip  # noqa: E501
    return _shifted(np.subtract, tensor_i0, tensor_i1, shift, out_dtype, round_mode, out_name)


def mul_shift(tensor_i0, tensor_i1, shift, out_dtype, round_mode="half_away_from_zero", is_saturate=True, out_name=None):  # fmt: skip  # noqa: E501
    return _shifted(np.multiply, tensor_i0, tensor_i1, shift, out_dtype, round_mode, out_name)


def requant_fp_to_int(tensor_i, scale, offset, requant_mode, out_dtype, out_name=None, round_mode="half_away_from_zero"):  # fmt: skip  # noqa: E501
    op = RequantFp32ToInt(scale_val=float(np.float32(1 / scale)), offset_val=offset, out_dtype=TYPES[out_dtype])
    return _result(out_name, lambda x: op.reference(x)[0], tensor_i)


def dequant_int_to_fp(tensor_i, scale, offset, out_dtype="float32", out_name=None, round_mode="half_away_from_zero"):
    op = DequantIntToFp32(scale_val=float(np.float32(scale)), offset_val=offset)
    return _result(out_name, lambda x: op.reference(x)[0], tensor_i)


def maxpool2d(input, kernel=None, stride=None, pad=None, ceil_mode=False, scale=None, zero_point=None, out_name=None, round_mode="half_away_from_zero"):  # fmt: skip  # noqa: E501
    top, left, bottom, right = pad

    def function(x):
        lowest = -np.inf if x.dtype == np.float32 else np.iinfo(x.dtype).min
        padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=lowest)
        op = Pool(kernel_h=kernel[0], kernel_w=kernel[1], stride_h=stride[0], stride_w=stride[1])
        return op.reference(padded)[0]

    return _result(out_name, function, input)


def max(tensor_i0, tensor_i1, scale=None, zero_point=None, out_dtype=None, out_name=None):
    if isinstance(tensor_i1, int):
        return _result(out_name, lambda x: np.maximum(x, np.asarray(tensor_i1, x.dtype)), tensor_i0)
    return _result(out_name, np.maximum, tensor_i0, tensor_i1)


def min(tensor_i0, tensor_i1, scale=None, zero_point=None, out_dtype=None, out_name=None):
    if isinstance(tensor_i1, int):
        return _result(out_name, lambda x: np.minimum(x, np.asarray(tensor_i1, x.dtype)), tensor_i0)
    return _result(out_name, np.minimum, tensor_i0, tensor_i1)


def lut(input, table, out_name=None):
    return _result(out_name, lambda x, entries: entries.reshape(-1)[x.view(np.uint8)], input, table)


def reshape(tensor, new_shape, out_name=None):
    return _result(out_name, lambda x: x.reshape(new_shape), tensor)


def permute(input, order, out_name=None):
    return _result(out_name, lambda x: x.transpose(order), input)


def slice(input, starts, ends, steps=None, axes=None, out_name=None):
    box = tuple(map(builtins.slice, starts, ends, steps))
    return _result(out_name, lambda x: x[box], input)


def concat(inputs, scales=None, zero_points=None, axis=0, out_name=None, dtype="float32", round_mode="half_away_from_zero"):  # fmt: skip  # noqa: E501
    return _result(out_name, lambda *arrays: np.concatenate(arrays, axis), *inputs)


def pad(input, method="constant", value=None, padding=None, out_name=None):
    assert method == "constant"
    rank = len(padding) // 2
    widths = list(zip(padding[:rank], padding[rank:], strict=True))
    return _result(out_name, lambda x: np.pad(x, widths, constant_values=int(value.value)), input)


def tile(input, reps, out_name=None):
    return _result(out_name, lambda x: np.tile(x, reps), input)


def upsample(input, scale=2, out_name=None):
    return _result(out_name, lambda x: x.repeat(scale, 2).repeat(scale, 3), input)


def softmax(input, axis, out_name=None):
    def function(x):
        powers = np.exp(x - x.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)

    return _result(out_name, function, input)


def sigmoid(input, scale=None, zero_point=None, out_name=None, round_mode="half_away_from_zero"):
    return _result(out_name, lambda x: 1 / (1 + np.exp(-x)), input)


def tanh(input, scale=None, zero_point=None, out_name=None, round_mode="half_away_from_zero"):
    return _result(out_name, np.tanh, input)


def exp(input, scale=None, zero_point=None, out_name=None):
    return _result(out_name, np.exp, input)
