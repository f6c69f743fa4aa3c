"""Export folders and their errors, without the vendor's compiler."""

import json
import re
import subprocess

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.errors import UnsupportedError, UsageError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Eq
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import Chip, DType, QuantParams, Scalar, TensorType

FILES = {
    ".files.json",
    "README.md",
    "checksums.txt",
    "compile.sh",
    "expected.npz",
    "export.json",
    "inputs.npz",
    "net.mlir",
    "net_weights.npz",
    "results.npz",
    "run.py",
    "run_bmodel.py",
}


def quantized_input(graph, shape=(1, 4), name="x", zero_point=3):
    return graph.input(name, TensorType(DType.UINT8, shape), quant=QuantParams.per_tensor(0.5, zero_point, DType.UINT8))


@pytest.fixture
def graph():
    """A table look-up of an 8-bit input."""
    graph = Graph("net")
    x = quantized_input(graph)
    table = graph.constant(np.arange(256, dtype=np.uint8)[::-1].copy(), "table")
    graph.output(graph.add(Lut(), x, table, name="y"))
    return graph


def model_of(graph, chip=Chip.BM1686):
    return tc.Model(FileModel(graph, chip, "0", "int8"))


def test_files_and_manifest(graph, tmp_path):
    samples = {"x": np.array([[0, 1, 2, 255]], np.uint8)}
    result = tc.export(model_of(graph), tmp_path / "out", data=samples)
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    manifest = json.loads((tmp_path / "out" / "export.json").read_text())
    assert manifest == result.manifest
    assert manifest["chip"] == "bm1684x" and manifest["samples"] == 1
    assert [(item["device_name"], item["device_dtype"]) for item in manifest["inputs"]] == [("x", "uint8")]
    assert manifest["outputs"][0] | {"scale": None} == {
        "name": "y",
        "dtype": "uint8",
        "shape": [1, 4],
        "scale": None,
        "zero_point": manifest["outputs"][0]["zero_point"],
        "device_name": "y",
        "device_dtype": "uint8",
        "quantize": None,
        "is_exact": True,
        "rounding": 0.0,
    }
    assert np.load(tmp_path / "out" / "expected.npz")["y"].tolist() == [[[255, 254, 253, 0]]]
    assert np.array_equal(np.load(tmp_path / "out" / "inputs.npz")["x"], samples["x"][np.newaxis])


@pytest.mark.parametrize(("chip", "to"), [("bm1684", "tpu-mlir"), ("bm1684x", "tpulang")])
def test_where_programs_take_no_integers_they_get_dequantized_values(graph, chip, to, tmp_path):
    model = model_of(graph, Chip.BM1684 if chip == "bm1684" else Chip.BM1686)
    samples = {"x": np.array([[0, 1, 2, 255]], np.uint8)}
    manifest = tc.export(model, tmp_path / "out", data=samples, chip=chip, to=to).manifest
    assert [(item["device_name"], item["device_dtype"]) for item in manifest["inputs"]] == [("x_float", "float32")]
    assert np.load(tmp_path / "out" / "inputs.npz")["x_float"].tolist() == [[[-1.5, -1.0, -0.5, 126.0]]]


def test_same_model_gives_same_program(graph, tmp_path):
    for name in ("a", "b"):
        tc.export(model_of(graph), tmp_path / name)
    for file in ("net.mlir", "export.json", "compile.sh", "README.md"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_all_nodes_without_exact_form_are_reported(tmp_path):
    graph = Graph("net", file="net.onnx")
    x = quantized_input(graph, zero_point=0)
    for name in ("first", "second"):
        graph.output(graph.add(Eq(), x, x, name=name))
    with pytest.raises(UnsupportedError) as error:
        tc.export(model_of(graph), tmp_path / "out")
    assert error.value.exit_code == 3
    assert [problem.node for problem in error.value.problems] == ["first", "second"]
    assert {problem.kind.id for problem in error.value.problems} == {"TC3109"}
    assert not (tmp_path / "out").exists()


def test_nodes_after_a_reported_one_are_not_reported(tmp_path):
    graph = Graph("net")
    x = quantized_input(graph, zero_point=0)
    y = graph.add(Eq(), x, x, name="equal")
    graph.output(graph.add(Reshape((4, 1)), y, name="after"))
    with pytest.raises(UnsupportedError) as error:
        tc.export(model_of(graph), tmp_path / "out")
    assert [problem.node for problem in error.value.problems] == ["equal"]


def test_open_extents_are_refused(tmp_path):
    graph = Graph("net")
    x = quantized_input(graph, ("batch", 4))
    graph.output(graph.add(Lut(), x, graph.constant(np.zeros(256, np.uint8), "table")))
    with pytest.raises(UnsupportedError, match="--input-shapes"):
        tc.export(model_of(graph), tmp_path / "out")


def test_wrong_chip(graph, tmp_path):
    with pytest.raises(UsageError, match="needs one for BM1684"):
        tc.export(model_of(graph), tmp_path / "out", chip="bm1684")
    with pytest.raises(UsageError, match="no export for chip 'bm1682'"):
        tc.export(model_of(graph), tmp_path / "out", chip="bm1682")
    with pytest.raises(UsageError, match="unknown form 'coreml'"):
        tc.export(model_of(graph), tmp_path / "out", to="coreml")


def test_an_earlier_export_is_replaced(graph, tmp_path):
    tc.export(model_of(graph), tmp_path / "out")
    (tmp_path / "out" / "net.bmodel").write_text("old")
    tc.export(model_of(graph), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_folders_are_kept(graph, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").write_bytes(b"1")
    with pytest.raises(UsageError, match="other files"):
        tc.export(model_of(graph), folder)
    assert (folder / "cat.jpg").read_bytes() == b"1"
    with pytest.raises(UsageError, match="it is a file"):
        tc.export(model_of(graph), folder / "cat.jpg")


def test_a_tensor_is_reshaped_once(tmp_path):
    """The compiler merges equal reshapes: one of the names would be missing among the results."""
    graph = Graph("net")
    x = quantized_input(graph, (1, 16), zero_point=0)
    for name in ("first", "second"):
        weights = graph.constant(np.ones((16, 16), np.int8), f"{name}_weights")
        total = graph.add(MatrixMulV2(), x, weights, name=f"{name}:int32")
        op = RequantInt32(shift_val=-4, mode=RequantMode.MULTIPLIER_SHIFT, offset_val=5 * (name == "second"))
        x = graph.add(op, total, name=name)
        x.quant = QuantParams.per_tensor(0.5, 5 * (name == "second"), DType.INT8)
    graph.output(x)
    tc.export(model_of(graph), tmp_path / "out", chip="bm1688", with_checks=True)
    lines = (tmp_path / "out/net.mlir").read_text().splitlines()
    reshapes = [re.findall(r"(%\d+)\).*-> (\S+)", line)[0] for line in lines if '"tpu.Reshape"' in line]
    assert len(reshapes) == len(set(reshapes)) > 1


def test_files_of_others_are_not_replaced(tmp_path):
    graph = Graph("net")
    graph.output(graph.add(Muls(Scalar.f32(2)), graph.input("x", TensorType(DType.FLOAT32, (1, 4)))))
    target = tmp_path / "out"
    tc.export(model_of(graph), target)
    tc.export(model_of(graph), target)
    (target / "net.bmodel").write_text("compiled by compile.sh")
    tc.export(model_of(graph), target)
    for name in ("notes.txt", "mine.log"):
        (target / name).write_text("mine")
        with pytest.raises(UsageError, match=f"no export wrote: {name}"):
            tc.export(model_of(graph), target)
        assert (target / name).read_text() == "mine"
        (target / name).unlink()


def test_an_export_with_an_input_in_it_is_kept(graph, tmp_path):
    out = tmp_path / "out"
    tc.export(model_of(graph), out)
    model_of(graph).save(out / "net.tpum")
    np.savez(out / "data.npz", x=np.zeros((1, 4), np.float32))
    kept = {path.name: path.read_bytes() for path in out.iterdir()}
    for source, data in ((out / "net.tpum", None), (model_of(graph), out / "data.npz")):
        with pytest.raises(UsageError, match="this folder would be replaced"):
            tc.export(source, out, data=data)
    assert main(["export", str(out / "net.tpum"), str(out), "--chip", "bm1684x"]) == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == kept


def test_the_log_of_a_compilation_replaces_no_input(graph, tmp_path):
    model = tmp_path / "out.compile.log"
    model_of(graph).save(tmp_path / "net.tpum")
    model.write_bytes((tmp_path / "net.tpum").read_bytes())
    with pytest.raises(UsageError, match="this file is read"):
        tc.export(model, tmp_path / "out", compile=True)
    assert model.read_bytes() == (tmp_path / "net.tpum").read_bytes()


def test_a_folder_with_the_name_of_the_log_is_found_before_the_compilation(graph, tmp_path):
    (tmp_path / "out.compile.log").mkdir()
    with pytest.raises(UsageError, match="a folder where the output of a compiler that fails is written"):
        tc.export(model_of(graph), tmp_path / "out", compile=True)
    assert not (tmp_path / "out").exists()


def test_compile_script_without_compiler(graph, tmp_path):
    tc.export(model_of(graph), tmp_path / "out")
    done = subprocess.run(
        [tmp_path / "out" / "compile.sh"], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 2
    assert "TPU_MLIR_HOME is ''" in done.stderr and "README.md" in done.stderr


def test_changed_files_are_detected(graph, tmp_path):
    tc.export(model_of(graph), tmp_path / "out")
    compiler = tmp_path / "home" / "bin" / "tpuc-opt"
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\nexit 0\n")
    compiler.chmod(0o755)
    (tmp_path / "out" / "net.mlir").write_text("changed")
    environment = {"PATH": "/usr/bin:/bin", "TPU_MLIR_HOME": str(tmp_path / "home")}
    done = subprocess.run([tmp_path / "out" / "compile.sh"], capture_output=True, text=True, env=environment)
    assert done.returncode == 4
    assert "export the model again" in done.stderr


def problem_of(graph, tmp_path):
    """Export a graph with one node that has no exact form. Return the reason."""
    with pytest.raises(UnsupportedError) as error:
        tc.export(model_of(graph), tmp_path / "out")
    (problem,) = error.value.problems
    return problem.message


def test_tables_of_16_bits_are_refused(tmp_path):
    graph = Graph("net")
    x = quantized_input(graph)
    graph.output(graph.add(Lut(), x, graph.constant(np.zeros(256, np.int16), "table")))
    assert "table has type INT16" in problem_of(graph, tmp_path)


def test_shifts_to_the_right_that_round_down_are_refused(tmp_path):
    graph = Graph("net")
    x = graph.input("x", TensorType(DType.INT8, (1, 4)), quant=QuantParams.per_tensor(0.5, 0, DType.INT8))
    graph.output(graph.add(ArithmeticShift(-2, RoundingMode.DOWN, out_dtype=DType.INT16), x))
    assert "it rounds DOWN" in problem_of(graph, tmp_path)


def test_zero_points_per_channel_are_in_the_table(tmp_path):
    """The type has none then: the compiler would use it for all channels."""
    graph = Graph("net")
    x = graph.input("x", TensorType(DType.INT8, (1, 2, 3, 3)), quant=QuantParams.per_tensor(0.5, 0, DType.INT8))
    weights = graph.constant(np.ones((2, 2, 1, 1), np.int8), "weights")
    op = RequantInt32(
        multiplier_val=3, shift_val=-4, mode=RequantMode.MULTIPLIER_SHIFT, is_offset_pc=True, offset_vec=(1, 2)
    )
    y = graph.add(op, graph.add(ConvV2(), x, weights), name="y")
    y.quant = QuantParams.per_tensor(0.25, 1, DType.INT8)
    graph.output(y)
    tc.export(model_of(graph), tmp_path / "out")
    table = np.load(tmp_path / "out/net_weights.npz")["y_requant"]
    assert table.reshape(2, 3).tolist() == [[3, -4, 1], [3, -4, 2]]
    (line,) = [line for line in (tmp_path / "out/net.mlir").read_text().splitlines() if "RequantIntAxis" in line]
    assert "-> tensor<1x2x3x3x!quant.uniform<i8:f32, 0.25>>" in line


@pytest.mark.parametrize(("scale", "zero_point"), [(255.0, 0), (100.0, 7)])
def test_softmax_has_the_scale_of_its_parameters(scale, zero_point, tmp_path):
    """The type in the module follows the operator, whatever the scale of the value is."""
    graph = Graph("net")
    x = quantized_input(graph, (1, 10))
    op = SoftmaxInt(tuple(np.exp(-np.arange(256) / 8).astype(np.float32).tolist()), scale, zero_point)
    y = graph.add(op, x, name="y")
    y.quant = QuantParams.per_tensor(0.25, 3, DType.UINT8)
    graph.output(y)
    tc.export(model_of(graph), tmp_path / "out")
    (line,) = [line for line in (tmp_path / "out/net.mlir").read_text().splitlines() if "tpu.Softmax" in line]
    suffix = f":{zero_point}" if zero_point else ""
    assert f"-> tensor<1x10x!quant.uniform<u8:f32, {1 / scale!r}{suffix}>>" in line


@pytest.mark.parametrize(("multipliers", "refused"), [((1 << 20, 3 << 20), False), ((3, 5), True)])
def test_operands_of_exact_sums_are_whole_multiples(multipliers, refused, tmp_path):
    """A factor per channel; one with a fraction would be rounded, which the sum is not."""
    graph = Graph("net")
    x = graph.input("x", TensorType(DType.INT8, (1, 2, 3, 3)), quant=QuantParams.per_tensor(0.5, 0, DType.INT8))
    op = RequantInt32(
        is_mul_shift_pc=True,
        multiplier_vec=multipliers,
        shift_vec=(15, 16),
        mode=RequantMode.TFLITE_LSHIFT,
        out_dtype=DType.INT32,
    )
    total = graph.add(Add(), graph.add(op, x, name="left"), graph.add(op, x, name="right"))
    graph.output(graph.add(RequantInt32(shift_val=-4, mode=RequantMode.MULTIPLIER_SHIFT), total))
    if refused:
        with pytest.raises(UnsupportedError, match="expected multiples"):
            tc.export(model_of(graph), tmp_path / "out")
    else:
        tc.export(model_of(graph), tmp_path / "out")
        weights = np.load(tmp_path / "out/net_weights.npz")
        assert weights["left_factor"].reshape(-1).tolist() == [16, 96]


def test_a_single_window_has_no_stride(tmp_path):
    """A global average has a stride of its extent, which the compiler accepts up to 15 only."""
    graph = Graph("net")
    x = quantized_input(graph, (1, 3, 16, 10), zero_point=0)
    op = PoolInt(kernel_h=16, kernel_w=10, stride_h=16, stride_w=10, is_avg_pooling=True)
    graph.output(graph.add(op, x))
    tc.export(model_of(graph), tmp_path / "out")
    assert "kernel_shape = [16, 10]" in (text := (tmp_path / "out/net.mlir").read_text())
    assert "strides = [1, 1]" in text


def test_a_large_average_is_a_product_with_ones(tmp_path):
    """The compilers get convolutions with such kernels wrong. Each column has the elements of a window."""
    graph = Graph("net")
    x = quantized_input(graph, (1, 2, 20, 42), zero_point=0)
    op = PoolInt(kernel_h=20, kernel_w=21, stride_h=20, stride_w=20, is_avg_pooling=True)
    graph.output(graph.add(op, x, name="mean"))
    tc.export(model_of(graph), tmp_path / "out")
    text = (tmp_path / "out/net.mlir").read_text()
    assert "tpu.MatMul" in text and "tpu.Conv2D" not in text
    columns = np.load(tmp_path / "out/net_weights.npz")["mean_windows"].reshape(20, 42, 2)
    expected = np.zeros((20, 42, 2))
    expected[:, :21, 0] = expected[:, 20:41, 1] = 1
    np.testing.assert_array_equal(columns, expected)


@pytest.mark.parametrize(("chip", "operation"), [("bm1684x", "tpu.Conv2D"), ("bm1688", "tpu.MatMul")])
def test_sums_of_one_element_are_a_product_on_bm1688(chip, operation, tmp_path):
    """Convolutions that sum all elements of their operand are wrong in groups of its compiler."""
    graph = Graph("net")
    x = quantized_input(graph, (1, 4, 3, 3), zero_point=0)
    weights = graph.constant(np.arange(-36, 36, dtype=np.int8).reshape(4, 2, 3, 3), "weights")
    total = graph.add(ConvV2(groups=2), x, weights, name="total")
    graph.output(graph.add(RequantInt32(shift_val=-4, mode=RequantMode.MULTIPLIER_SHIFT, offset_val=5), total))
    tc.export(model_of(graph), tmp_path / "out", chip=chip)
    assert operation in (tmp_path / "out/net.mlir").read_text()
    if chip == "bm1688":
        columns = np.load(tmp_path / "out/net_weights.npz")["total_columns"].reshape(4, 9, 4)
        dense = np.zeros((4, 9, 4))
        dense[:2, :, :2] = np.arange(-36, 0).reshape(2, 2, 9).transpose(1, 2, 0)
        dense[2:, :, 2:] = np.arange(0, 36).reshape(2, 2, 9).transpose(1, 2, 0)
        np.testing.assert_array_equal(columns, dense)


@pytest.mark.parametrize(("chip", "is_apart"), [("bm1684x", False), ("bm1688", True)])
def test_requantizations_that_are_fused_wrong_stay_apart(chip, is_apart, tmp_path):
    """BM1688 gets UINT8 with a zero point wrong in a convolution: the sums have another use before."""
    graph = Graph("net")
    x = quantized_input(graph, (1, 4, 6, 6), zero_point=0)
    total = graph.add(ConvV2(), x, graph.constant(np.ones((8, 4, 3, 3), np.int8), "weights"))
    op = RequantInt32(shift_val=-4, mode=RequantMode.MULTIPLIER_SHIFT, offset_val=130, out_dtype=DType.UINT8)
    y = graph.add(op, total)
    y.quant = QuantParams.per_tensor(0.5, 130, DType.UINT8)
    graph.output(y)
    tc.export(model_of(graph), tmp_path / "out", chip=chip)
    assert ("tpu.BinaryShift" in (tmp_path / "out/net.mlir").read_text()) == is_apart


def test_flat_tensors_are_cast_in_rows(tmp_path):
    """Chips transfer a flat tensor element by element, and rows at once."""
    graph = Graph("net")
    x = graph.input("x", TensorType(DType.INT32, (2, 6, 5, 7)))
    numbers = graph.constant(np.arange(500, dtype=np.float32), "numbers")
    chosen = graph.add(IndexSelect(dim=0), numbers, graph.add(Reshape((-1,)), x))
    graph.output(graph.add(Reshape((2, 6, 5, 7)), graph.add(Cast(DType.INT16), chosen)))
    tc.export(model_of(graph), tmp_path / "out", data={"x": np.zeros((1, 2, 6, 5, 7), np.int32)})
    (cast,) = re.findall(r'"tpu.Cast".* : \(tensor<([0-9x]+)xf32>', (tmp_path / "out/net.mlir").read_text())
    assert cast == "1x60x7"


def test_integers_with_a_scale_become_floats_without_it(tmp_path):
    """The compilers apply the scale of a type in every cast: scales per channel need a type without one."""
    graph = Graph("net")
    x = quantized_input(graph, (1, 2, 3, 3), zero_point=3)
    op = DequantIntToFp32(is_scale_pc=True, scale_vec=(0.5, 0.25), is_offset_pc=True, offset_vec=(3, 1))
    graph.output(graph.add(op, x))
    tc.export(model_of(graph), tmp_path / "out")
    text = (tmp_path / "out/net.mlir").read_text()
    casts = re.findall(r"with_scale = false.* : \(tensor<[0-9x]+x([^)]*)>\) -> tensor<\S+f32>", text)
    assert casts == ["!quant.uniform<u8:f32, 1.0>"]
