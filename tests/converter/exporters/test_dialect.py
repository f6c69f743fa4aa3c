"""The text form of the vendor compiler's dialect."""

import numpy as np
import pytest

from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.dialect import Module, quantized_element, tensor_type
from tpuconvert.schema.types import DType, QuantParams


@pytest.fixture
def module():
    return Module("net", {"module.chip": '"bm1684x"'})


def test_types():
    assert tensor_type((1, 3, 8, 8), "f32") == "tensor<1x3x8x8xf32>"
    assert quantized_element(DType.UINT8, QuantParams.per_tensor(0.5, 0, DType.UINT8)) == "!quant.uniform<u8:f32, 0.5>"
    signed = QuantParams.per_tensor(0.25, -3, DType.INT8)
    assert quantized_element(DType.INT8, signed) == "!quant.uniform<i8:f32, 0.25:-3>"
    assert quantized_element(DType.INT8, signed, scale=2.0, zero_point=0) == "!quant.uniform<i8:f32, 2.0>"


def test_text_of_a_module(module):
    x = module.input("x", (1, 2))
    table = module.weight(np.arange(256), "ui8", "table", (1, 1, 1, 256))
    y = module.add("tpu.Lut", [x, table], (1, 2), "u8", "y")
    assert module.text([y]) == (
        "#loc = loc(unknown)\n"
        'module @net attributes {module.chip = "bm1684x"} {\n'
        "  func.func @main(%arg0: tensor<1x2xf32> loc(unknown)) -> tensor<1x2xu8> {\n"
        '    %0 = "top.None"() : () -> none loc(#loc)\n'
        '    %1 = "top.Input"(%arg0) : (tensor<1x2xf32>) -> tensor<1x2xf32> loc(#loc1)\n'
        '    %2 = "top.Weight"() : () -> tensor<1x1x1x256xui8> loc(#loc2)\n'
        '    %3 = "tpu.Lut"(%1, %2) : (tensor<1x2xf32>, tensor<1x1x1x256xui8>) -> tensor<1x2xu8> loc(#loc3)\n'
        "    return %3 : tensor<1x2xu8> loc(#loc)\n"
        "  } loc(#loc)\n"
        "} loc(#loc)\n"
        '#loc1 = loc("x")\n'
        '#loc2 = loc("table")\n'
        '#loc3 = loc("y")\n'
    )


def test_attributes_have_defaults_and_kinds(module):
    x = module.input("x", (1, 2))
    y = module.add("tpu.MaxConst", [x], (1, 2), "i16", "y", const_val=1.5)
    text = module.text([y])
    assert (
        "{const_val = 1.50000000000000000e+00 : f64, do_relu = false, multiplier = 1 : si32, "
        "relu_limit = -1.00000000000000000e+00 : f64, rshift = 0 : si32}"
    ) in text


def test_missing_operands_are_none(module):
    x = module.input("x", (1, 2))
    y = module.add("tpu.Permute", [x], (2, 1), "f32", "y", order=(1, 0))
    assert '"tpu.Permute"(%1, %0) {order = [1, 0]} : (tensor<1x2xf32>, none)' in module.text([y])


def test_unused_operations_and_weights_are_left_out(module):
    x = module.input("x", (1,))
    module.weight(np.zeros(1), "si8", "unused")
    module.add("tpu.Reshape", [x], (1, 1), "f32", "dead", shape=(1, 1))
    y = module.add("tpu.Reshape", [x], (1, 1, 1), "f32", "y", shape=(1, 1, 1))
    assert module.weights([y]) == {}
    assert '"unused"' not in module.text([y]) and '"dead"' not in module.text([y])


def test_locations_are_unique(module):
    assert [module.input("x", (1,)).location for _ in range(3)] == ["x", "x_2", "x_3"]


def test_locations_are_escaped(module):
    y = module.input('a"b\\c é', (1,))
    assert 'loc("a\\22b\\5Cc \\C3\\A9")' in module.text([y])


def test_unknown_and_missing_attributes_are_internal_errors(module):
    x = module.input("x", (1,))
    with pytest.raises(AssertionError, match="no attribute"):
        module.add("tpu.Lut", [x, x], (1,), "u8", "y", roundmode="HalfUp")
    with pytest.raises(AssertionError, match="order is missing"):
        module.add("tpu.Permute", [x], (1,), "u8", "y")


def test_weights_have_to_fit(module):
    with pytest.raises(AssertionError, match="do not fit si8"):
        module.weight(np.array([128]), "si8", "w")


def test_requantization_tables():
    arguments = ([3, -5], [-7, 2], [1, -128])
    three = TARGETS["bm1684x"].requant_table(*arguments)
    assert three.dtype == np.int32
    assert three.tolist() == [[[[3, -7, 1]], [[-5, 2, -128]]]]
    two = TARGETS["bm1688"].requant_table(*arguments)
    assert two.view(np.uint32).tolist() == [[[[3, 0x0001FFF9]], [[0xFFFFFFFB, 0xFF800002]]]]
