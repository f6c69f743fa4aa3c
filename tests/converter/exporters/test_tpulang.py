"""Programs of the vendor's TPULang API, run with the NumPy functions of ``tpulang_in_numpy``."""

import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support import programs
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.errors import UnsupportedError, UsageError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add, Max
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eq
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Chip, DType, QuantParams, Scalar, TensorType

I8, U8, I16, I32 = DType.INT8, DType.UINT8, DType.INT16, DType.INT32


def model_of(graph, chip=Chip.BM1686):
    return tc.Model(FileModel(graph, chip, "0", "int8"))


@pytest.fixture
def home(tmp_path):
    """Folder of a package whose TPULang API computes with NumPy."""
    package = tmp_path / "home" / "python" / "transform"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "TpuLang.py").write_text("from tests.support.vendor.tpulang_in_numpy import *\n")
    return tmp_path / "home"


def run(folder, home):
    """Run the program of an export."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(programs.ROOT), "TPU_MLIR_HOME": str(home)}
    program = folder / "compile_bmodel.py"
    return subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)


def check_results(model, folder, home, **options):
    """Export a model with every integer tensor, run the program, and compare all tensors that it returns."""
    manifest = tc.export(model, folder, to="tpulang", with_checks=True, **options).manifest
    done = run(folder, home)
    assert done.returncode == 0, done.stderr
    expected, found = np.load(folder / "expected.npz"), np.load(folder / "net.bmodel")
    for output in manifest["outputs"]:
        ours, theirs = expected[output["name"]], found[output["device_name"]]
        if ours.dtype == np.float32:
            assert np.abs(ours - theirs).max() < 1e-6, output["name"]  # a softmax in float32
        else:
            assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), output["name"]
    return manifest


def input_of(graph, dtype, shape, zero_point=0):
    quant = QuantParams.per_tensor(0.5, zero_point, dtype)
    return graph.input(f"x{len(graph.inputs)}", TensorType(dtype, shape), quant=quant)


def integers(graph, low, high, *shape, dtype="int8"):
    rng = np.random.default_rng(len(graph))
    return graph.constant(rng.integers(low, high + 1, shape).astype(dtype), "constant")


def output(graph, op, *operands, zero_point=0, only_first=False):
    """Add a node whose results, or whose first result, are outputs of the graph."""
    for value in graph.add_all(op, *operands)[: 1 if only_first else None]:
        value.quant = QuantParams.per_tensor(0.25, zero_point, value.dtype)
        graph.output(value)
    return value


def test_the_bundled_network(repository, home, tmp_path):
    digits = repository / "examples" / "digits"
    shutil.copy(digits / "digits.onnx", tmp_path / "net.onnx")
    model = tc.convert(
        str(tmp_path / "net.onnx"),
        chip="bm1684x",
        quantize="int8",
        calibration=str(digits / "calibration.npz"),
        preprocess="color=GRAY,scale=0.0625",
    )
    manifest = check_results(model, tmp_path / "out", home, chip="bm1688")
    assert (manifest["to"], manifest["chip"]) == ("tpulang", "bm1688")
    assert {"conv1/relu", "add/relu", "pool", "fc", "probability"} <= {item["name"] for item in manifest["outputs"]}


def test_linear_operators_and_requantization(home, tmp_path):
    """Zero points, groups, padding, and all modes of requantization."""
    graph = Graph("net")
    x = input_of(graph, U8, (1, 4, 7, 6), zero_point=130)
    window = {"stride_h": 2, "dw": 2, "pad_h_t": 1, "pad_w_l": 2, "pad_w_r": 1}
    op = ConvV2(groups=2, izp_val=130, has_bias=True, **window)
    bias = integers(graph, -999, 999, 1, 6, 1, 1, dtype="int32")
    sums = graph.add(op, x, integers(graph, -128, 127, 6, 2, 3, 3), bias)
    for dtype, zero_point in ((U8, 0), (I8, -7), (I16, 0)):
        modes = {"out_dtype": dtype, "offset_val": zero_point}
        output(graph, RequantInt32(shift_val=-9, mode=RequantMode.MULTIPLIER_SHIFT, **modes), sums)
        for mode in (RequantMode.TFLITE, RequantMode.TFLITE_LSHIFT):
            vectors = {"is_mul_shift_pc": True, "multiplier_vec": tuple(2**30 + 10**8 * index for index in range(6))}
            op = RequantInt32(shift_vec=(-7, -8, -9, -7, -8, -9), mode=mode, **vectors, **modes)
            output(graph, op, sums, zero_point=zero_point)
    image = input_of(graph, I8, (1, 3, 4, 5))
    wide = graph.add(DeconvV2(stride_h=2, pad_h_t=1), image, integers(graph, -128, 127, 3, 4, 3, 2))
    output(graph, RequantInt32(shift_val=-8, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8), wide)
    rows = input_of(graph, I8, (3, 5), zero_point=-5)
    columns = graph.add(MatrixMulV2(lzp_val=-5), rows, integers(graph, -128, 127, 5, 8))
    output(graph, RequantInt32(shift_val=-6, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8), columns)
    check_results(model_of(graph), tmp_path / "out", home)


@pytest.fixture
def wide_network(tmp_path):
    """ONNX file of convs with ReLU6 and max pooling before them, and samples."""
    rng = np.random.default_rng(3)
    net = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[1, 3, 16, 16] x) => (float[1, 6, 3, 3] y)
        <float low = {0}, float high = {6}> {
            first = Conv <pads = [1, 1, 1, 1]> (x, w0)
            limited = Clip (first, low, high)
            pooled = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (limited)
            second = Conv <group = 8, pads = [1, 1, 1, 1]> (pooled, w1)
            positive = Relu (second)
            y = Conv <strides = [2, 2]> (positive, w2)
        }
    """)
    for name, shape in (("w0", (8, 3, 3, 3)), ("w1", (8, 1, 3, 3)), ("w2", (6, 8, 2, 2))):
        net.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    onnx.save(net, tmp_path / "net.onnx")
    return tmp_path / "net.onnx", rng.normal(size=(8, 3, 16, 16)).astype(np.float32)


def test_a_network_with_16_bits(wide_network, home, tmp_path):
    """Bytes of operands and weights, their sums, upper limits, and maxima of 16 bits."""
    file, samples = wide_network
    model = tc.convert(file, quantize=tc.Quantization(precision=["op:conv=int16"]), calibration=samples)
    operators = {str(node.op) for node in model.graph.nodes}
    assert {"arithmetic_shift", "pool_int", "clamp"} <= {node.op.name for node in model.graph.nodes}, operators
    check_results(model, tmp_path / "out", home)


def test_other_operators(home, tmp_path):
    """Sums, tables, limits, pooling and data movement."""
    graph = Graph("net")
    x, y = (input_of(graph, dtype, (1, 6, 5, 8)) for dtype in (I8, I8))
    total = graph.add(Add(out_dtype=I32), x, y)
    output(graph, RequantInt32(shift_val=-1, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8), total)
    output(graph, Lut(), x, integers(graph, 0, 255, 256, dtype="uint8"))
    output(graph, Max(), x, y)
    wide = input_of(graph, I16, (1, 9))
    for low, high in ((0, 32767), (0, 16384), (-32768, 100)):
        output(graph, Clamp(min=Scalar(I16, low), max=Scalar(I16, high)), wide)
    output(graph, ArithmeticShift(8, RoundingMode.DOWN, out_dtype=I16), x)
    window = {"kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 2, "pad_h_t": 1}
    for dtype in (I8, I16):
        operand = input_of(graph, dtype, (1, 3, 5, 4))
        output(graph, PoolInt(is_avg_pooling=False, **window), operand, only_first=True).quant = operand.quant
    output(graph, Pool(kernel_h=3, kernel_w=2, stride_h=2, stride_w=2, pad_h=1), x)
    output(graph, Pool(kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, pooling_type=PoolType.AVE), x)
    output(graph, Permute((0, 2, 3, 1)), x)
    output(graph, Concat(axis=1), x, y)
    output(graph, Split(axis=1, num=2, size=(2, 4)), x)
    output(graph, Tile((1, 2, 1, 3)), x)
    output(graph, Upsample(scale=2), x)
    output(graph, Pad(paddings=(0, 0, 0, 0, 1, 2, 0, 3), pad_val=Scalar(I8, 0)), x)
    output(graph, Reshape((1, 5, 48)), graph.add(Reshape((1, 240)), x))
    check_results(model_of(graph), tmp_path / "out", home)


def test_consecutive_reshapes_read_the_same_tensor(tmp_path):
    """The compiler merges consecutive reshapes and renames the result."""
    graph = Graph("net")
    x = input_of(graph, I8, (1, 6, 5))
    output(graph, Reshape((5, 6)), graph.add(Reshape((1, 30)), x, name="first"))
    tc.export(model_of(graph), tmp_path / "out", to="tpulang", with_checks=True)
    lines = (tmp_path / "out" / "compile_bmodel.py").read_text().splitlines()
    assert [line.split("(")[1].split(",")[0] for line in lines if "tpul.reshape(" in line] == ["t0", "t0"]


def test_all_nodes_without_exact_form_are_reported(tmp_path):
    """Those that neither export has, and those that only TPULang does not have."""
    graph = Graph("net", file="net.onnx")
    x = input_of(graph, U8, (1, 2, 4, 4))
    output(graph, Reshape((1, 128)), graph.add(Upsample(scale=2), x, name="larger"))
    graph.output(graph.add(Eq(), x, x, name="equal"))
    offsets = {"is_offset_pc": True, "offset_vec": (1, 2), "mode": RequantMode.MULTIPLIER_SHIFT, "out_dtype": I8}
    sums = graph.add(ConvV2(), x, integers(graph, -128, 127, 2, 2, 1, 1))
    graph.output(graph.add(RequantInt32(shift_val=-8, **offsets), sums, name="offsets"))
    graph.output(graph.add(Pad(paddings=(0, 0, 0, 0, 1, 1, 1, 1), pad_val=Scalar(U8, 9)), x, name="border"))
    with pytest.raises(UnsupportedError) as error:
        tc.export(model_of(graph), tmp_path / "out", to="tpulang")
    assert error.value.exit_code == 3
    assert {problem.node for problem in error.value.problems} == {"larger", "equal", "offsets", "border"}
    assert {problem.kind.id for problem in error.value.problems} == {"TC3109"}
    assert "--to tpu-mlir" in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def table(tmp_path):
    """Folder of an export with a lookup table."""
    graph = Graph("net")
    output(graph, Lut(), input_of(graph, I8, (1, 4)), integers(graph, -128, 127, 256))
    tc.export(model_of(graph), tmp_path / "out", to="tpulang")
    return tmp_path / "out"


def test_files(table):
    assert {path.name for path in table.iterdir()} == {
        ".files.json",
        "README.md",
        "checksums.txt",
        "expected.npz",
        "export.json",
        "inputs.npz",
        "compile_bmodel.py",
        "net_weights.npz",
        "results.npz",
        "run.py",
        "run_bmodel.py",
    }
    assert "psutil" in (table / "README.md").read_text()
    assert "run compile_bmodel.py first" in (table / "run_bmodel.py").read_text()


def test_program_without_the_vendors_package(table, tmp_path):
    done = run(table, tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere', expected the folder of tpu_mlir" in done.stderr and "README.md" in done.stderr


def test_changed_files_are_detected(table, home):
    np.savez(table / "net_weights.npz")
    done = run(table, home)
    assert done.returncode == 4
    assert "net_weights.npz was changed" in done.stderr and "export the model again" in done.stderr
    assert not (table / "net.bmodel").exists()


def test_wrong_chip(tmp_path):
    graph = Graph("net")
    output(graph, Lut(), input_of(graph, I8, (1, 4)), integers(graph, -128, 127, 256))
    with pytest.raises(UsageError, match=r"no export for chip 'bm1684'\s+known are bm1684x, bm1688"):
        tc.export(model_of(graph, Chip.BM1684), tmp_path / "out", to="tpulang", chip="bm1684")
    with pytest.raises(UsageError, match="the model is for BM1684"):
        tc.export(model_of(graph, Chip.BM1684), tmp_path / "out", to="tpulang")
