"""``int16`` rules on BM1686: 16-bit operands, weights and results; 8-bit forms for all other nodes; refused nodes."""

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.networks import signal_to_noise, sqnr_of_roundings
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.exporters.tpu_mlir.package import lower_for_chip
from tpuconvert.model.cost import describe_cost
from tpuconvert.schema.types import I8, I16, U8, DType

MORE_THAN_8_BITS = sqnr_of_roundings(1) + 20
"""One rounding to 8 bits leaves 41 dB, and one to 16 bits 89 dB, of which few operators in a row cost less than 28."""


def one_layer(kind: str) -> tuple[OnnxNet, str]:
    """A network of one linear operator."""
    net = OnnxNet(3)
    if kind == "matmul":
        return net, net.dense(net.input("x", 8, 64), 32)
    if kind == "conv3d":
        return net, net.conv(net.input("x", 1, 4, 6, 6, 6), 8)
    x = net.input("x", 2, 8, 12, 12)
    if kind == "deconv":
        return net, net.add("ConvTranspose", x, net.normal(8, 6, 3, 3, scale=0.1), net.normal(6), strides=[2, 2])
    groups = {"conv": 1, "grouped": 2, "depthwise": 8}[kind]
    return net, net.conv(x, 8, groups=groups)


def mixed() -> tuple[OnnxNet, dict[str, str], str]:
    """Most kinds of nodes with 16-bit forms; returns some results by name, and the output."""
    net = OnnxNet(1)
    first = net.add("Relu", net.conv(net.input("x", 2, 3, 16, 16), 12))
    second = net.silu(net.conv(first, 12))
    third = net.conv(second, 12)
    total = net.add("Add", first, third)
    largest = net.add("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2])
    mean = net.add("AveragePool", second, kernel_shape=[2, 2], strides=[2, 2])
    both = net.add("Concat", largest, mean, axis=1)
    gated = net.add("Mul", both, net.add("Sigmoid", net.conv(both, 24)))
    shifted = net.add(
        "Sub", net.add("Pad", gated, net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]))), net.normal(24, 1, 1)
    )
    output = net.dense(net.add("Flatten", net.conv(shifted, 8, groups=8)), 10)
    return net, {"first": first, "third": third, "total": total, "both": both}, output


def convert(net: OnnxNet, output: str, **options) -> tc.Model:
    return tc.convert(net.model(output), calibration=net.samples(16), **group_options(quantize="int8", **options))


def noise(net: OnnxNet, output: str, model: tc.Model) -> float:
    """SQNR of the output against float, on other samples; both engines compute the same bytes."""
    found = []
    with (
        tc.Session(tc.convert(net.model(output))) as real,
        tc.Session(model) as native,
        tc.Session(model, backend="reference") as reference,
    ):
        for feeds in net.samples(3, seed=9):
            result = native.run(feeds)[output]
            assert result.tobytes() == reference.run(feeds)[output].tobytes()
            found.append(signal_to_noise(real.run(feeds)[output], result))
    return float(np.mean(found))


def dtype_of(model: tc.Model, name: str) -> DType:
    value = model.graph.find(name)
    assert value is not None
    return value.dtype


@pytest.mark.parametrize("kind", ["conv", "grouped", "depthwise", "deconv", "conv3d", "matmul"])
def test_a_linear_operator_has_less_noise_by_tens_of_decibels(kind: str) -> None:
    """Products of the low bytes are left out: noise of about 2^-13 of the result remains, more than 70 dB."""
    net, output = one_layer(kind)
    model = convert(net, output, precision=["*=int16"])
    assert noise(net, output, model) > max(noise(net, output, convert(net, output)) + 30, 70)
    assert "1 in int16" in model.summary()


def test_all_kinds_of_nodes() -> None:
    net, names, output = mixed()
    model = convert(net, output, precision=["*=int16"])
    assert {dtype_of(model, name) for name in names.values()} == {I16}
    assert noise(net, output, model) > noise(net, output, convert(net, output)) + 25
    assert not [note for note in model.notes if note.kind == "float"]
    assert all(node.op.name != "lut" for node in model.graph.nodes)


def test_other_nodes_read_an_8_bit_form_of_the_tensor() -> None:
    """The operand of a selected node has 16 bits. Its other user reads 8, and so do the users of the result."""
    net, names, output = mixed()
    model = convert(net, output, precision=[f"{names['total']}=int16"], without=["method-search", "int16-nodes"])
    assert {name: dtype_of(model, value) for name, value in names.items()} == {
        "first": I16, "third": I16, "total": I16, "both": I8,
    }  # fmt: skip
    assert dtype_of(model, f"{names['first']}:uint8") is U8
    assert dtype_of(model, f"{names['total']}:int8") is I8
    products = [node for node in model.graph.nodes if node.op.name in ("conv_v2", "matrix_mul_v2")]
    assert len(products) == 6  # as without the rule
    # Only two tensors have 16 bits, so that the noise of the others remains. Refinement on 16 samples varies by 1 dB.
    model, plain = (convert(net, output, effort="low", precision=rules) for rules in ([f"{names['total']}=int16"], []))
    assert noise(net, output, model) > noise(net, output, plain) - 1.0  # scales per channel follow from expected errors


def test_data_movement_between_selected_nodes_keeps_16_bits() -> None:
    net = OnnxNet(0)
    first = net.conv(net.input("x", 1, 4, 8, 8), 8)
    moved = net.add("Flatten", net.add("Clip", first, net.constant(np.float32(-1)), net.constant(np.float32(2))))
    output = net.dense(moved, 16)
    model = convert(net, output, precision=[f"{first}=int16", f"{output}=int16"])
    assert dtype_of(model, moved) is I16
    assert noise(net, output, model) > MORE_THAN_8_BITS


def test_large_sums_have_a_larger_unit() -> None:
    """5,000 inputs with equal weights: 256 * top would exceed 32 bits."""
    net = OnnxNet(0)
    x = net.input("x", 2, 5000)
    weight = net.constant(np.full((5000, 4), 0.01, np.float32) * np.array([1, -1, 0.5, 0.7], np.float32))
    output = net.add("Add", net.add("MatMul", x, weight), net.normal(4))
    model = convert(net, output, precision=["*=int16"])
    assert any(node.name.endswith(":shrunk") for node in model.graph.nodes)
    assert noise(net, output, model) > MORE_THAN_8_BITS - 10  # the larger unit


def test_a_file_and_the_cost(tmp_path: Path) -> None:
    """Three matmuls of bytes at the rate of INT8: a 16-bit convolution takes three times the MACs."""
    net, output = one_layer("conv")
    model = convert(net, output, precision=["*=int16"])
    model.save(tmp_path / "net.tpum")
    loaded = tc.load(tmp_path / "net.tpum")
    assert noise(net, output, loaded) == noise(net, output, model)
    assert describe_cost(loaded)["macs"] == 3 * describe_cost(convert(net, output))["macs"]


def test_refused_nodes_are_named() -> None:
    net, output = one_layer("conv")
    label = net.add("Softmax", output, axis=1)
    with pytest.raises(tc.UsageError, match="stays in float: 8-bit probabilities"):
        convert(net, label, precision=[f"{label}=int16"])
    net = OnnxNet(0)
    first = net.conv(net.input("x", 1, 3, 8, 8), 4)
    output = net.conv(first, 4)
    with pytest.raises(tc.UsageError, match=f"'{output}' takes 8-bit operands"):
        convert(net, output, precision=[f"{first}=int16"], chip="bm1684")


@pytest.mark.parametrize("form", ["tpu-mlir", "tpulang", "onnx"])
def test_exporters_export_or_name_the_node(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, _, output = mixed()
    convert(net, output, precision=["*=int16"]).save(tmp_path / "net.tpum")
    code = main(["export", str(tmp_path / "net.tpum"), str(tmp_path / "out"), "--to", form])
    assert code == 0 or (code == 3 and "no exact form" in capsys.readouterr().err)


def test_the_vendors_compiler_has_exact_forms_of_16_bits() -> None:
    net, _, output = mixed()
    model = convert(net, output, precision=["*=int16"], exact_on="bm1684x")
    assert lower_for_chip(model).integer_values() and "in int16" in model.summary()


def test_all_operators_without_a_16_bit_form_are_named() -> None:
    net = OnnxNet(0)
    small, factors = net.conv(net.input("x", 1, 3, 8, 8), 4), net.constant(np.float32([1, 1, 2, 2]))
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    large = net.add("Resize", small, "", factors, **nearest)
    output = net.add("Softmax", net.conv(large, 4), axis=1)
    with pytest.raises(tc.UsageError, match=r"no int16 form of softmax, upsample \(2 nodes\)") as refused:
        convert(net, output, precision=["*=int16"])
    assert "'op:softmax=int8', 'op:upsample=int8'" in str(refused.value.hint)
    model = convert(net, output, precision=["*=int16", "op:softmax=int8", "op:upsample=int8"])
    assert "2 in int16" in model.summary()


@pytest.mark.parametrize(("function", "entries"), [("HardSwish", 4097), ("Sigmoid", 4097), ("Exp", 65537)])
def test_functions_gather_from_the_smallest_table_that_is_exact_enough(function: str, entries: int) -> None:
    """A steep function needs more entries. No result is off by more than a sixteenth of an 8-bit step."""
    net = OnnxNet(2)
    first = net.conv(net.input("x", 1, 4, 8, 8), 8)
    y = net.add(function, net.add("Mul", first, net.constant(np.float32(4.0 if function == "Exp" else 1.0))))
    output = net.conv(y, 6)
    without = {"without": ["coarse-nodes", "method-search"]}
    model = convert(net, output, precision=["*=int16"], **without)
    tables = [value for value in model.graph.values if value.is_constant and value.name.startswith("table:")]
    assert [value.shape for value in tables] == [(entries,)]
    assert noise(net, output, model) > noise(net, output, convert(net, output, **without)) + 12


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("form", ["tpu-mlir", "tpulang"])
def test_sums_and_products_are_exported(operator: str, form: str, tmp_path: Path) -> None:
    """Operands are multiplied by whole numbers, of which the vendor's compiler has an exact form."""
    net = OnnxNet(5)
    x = net.input("x", 1, 4, 8, 8)
    output = net.conv(net.add(operator, net.conv(x, 8), net.conv(x, 8)), 6)
    model = convert(net, output, precision=["*=int16"])
    tc.export(model, tmp_path / "out", to=form)
    assert noise(net, output, model) > MORE_THAN_8_BITS
