"""Exported ONNX files: ONNX Runtime reproduces every integer, and the files have names and metadata."""

import itertools
import json

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.data_models import convert_model, is_quantized, names
from tests.support.onnx.exports import differences, export_and_run, model_of, run
from tests.support.operators.op_cases import all_cases, equal_bits, type_of
from tools.accuracy.datasets import entries
from tpuconvert.exporters.export import FORMS
from tpuconvert.exporters.form_names import FORM_NAMES
from tpuconvert.exporters.onnx_model.package import IR_VERSION, OPSET, lower_graph
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.exporters.program_digest import program_digest
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import UnsupportedError, UsageError
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.generation import NumberLike
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.smooth_activation import Silu
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import Chip, DType, QuantParams, Scalar, TensorType

pytest.importorskip("onnxruntime")
checker = pytest.importorskip("onnx.checker")
onnx = pytest.importorskip("onnx")

import_modules("tpuconvert.exporters.onnx_model.forms")

I8, U8, I16, U16, I32, F32 = DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32, DType.FLOAT32


def integers(dtype, shape, seed=0):
    """Random integers of the whole range, with both limits and 0."""
    info = np.iinfo(dtype.numpy)
    array = np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype.numpy)
    array.reshape(-1)[:3] = info.min, info.max, 0
    return array


def assert_no_limits_of_int64(exported):
    """ONNX Runtime before 1.32 computes them wrongly on processors with AVX-512."""
    inferred = onnx.shape_inference.infer_shapes(exported).graph
    wide = {info.name for info in (*inferred.value_info, *inferred.input) if info.type.tensor_type.elem_type == 7}
    found = [
        node.name for node in exported.graph.node if node.op_type in ("Clip", "Max", "Min") and node.input[0] in wide
    ]
    assert not found


class Network:
    """A graph and the arrays of its inputs."""

    def __init__(self):
        self.graph = Graph("net")
        self.feeds = {}

    def input(self, dtype, shape):
        value = self.graph.input(f"x{len(self.feeds)}", TensorType(dtype, shape))
        self.feeds[value.name] = integers(dtype, shape, len(self.feeds))
        return value

    def constant(self, dtype, *shape):
        return self.graph.constant(integers(dtype, shape, len(shape)), "weights")

    def bias(self, channels, rank=4):
        array = np.random.default_rng(5).integers(-9999, 9999, channels).astype(np.int32)
        return self.graph.constant(array.reshape((1, channels, 1, 1) if rank == 4 else -1), "bias")

    def output(self, op, *operands):
        self.graph.output(self.graph.add_all(op, *operands)[0])

    def check(self, path):
        """Export, check the file, run it, and compare every tensor bit for bit."""
        pairs = export_and_run(model_of(self.graph), self.feeds, path)
        exported = onnx.load(path)
        checker.check_model(exported, full_check=True)
        assert_no_limits_of_int64(exported)
        assert len(pairs) == len(self.graph.outputs)
        assert differences(pairs) == []


FLOAT_DIFFERENCES = {
    "matrix_mul(): binary32 would lose the 1",
    "reduce(axis_list=(0,), method=REDUCE_SUM): binary32 would lose the 1",
    "reduce(axis_list=(0,), method=REDUCE_MAX): NaN wins",
    "reduce(axis_list=(0,), method=REDUCE_MIN): NaN wins",
}
"""Cases of float models in which ONNX Runtime's float32 operator differs from the reference."""


ALL_REFUSED = {"batch_norm"}
"""Operators whose cases all return results that ONNX does not have."""


@pytest.mark.parametrize("name", [name for name in lowers.operators if any(c.op.name == name for c in all_cases())])
def test_cases_of_the_operators(name, tmp_path):
    """The cases of the operator's definition, with computed operands and with constants where they are accepted."""
    exported = 0
    for case, is_constant in itertools.product([c for c in all_cases() if c.op.name == name], (False, True)):
        if str(case) in FLOAT_DIFFERENCES:
            continue
        graph = Graph(name)
        operands, feeds = [], {}
        for number, array in enumerate(case.inputs):
            declared = case.op.inputs[min(number, len(case.op.inputs) - 1)]
            if array is None:
                operands.append(None)
            elif is_constant and number and declared.coeff:
                operands.append(graph.constant(array))
            else:
                operands.append(graph.input(f"x{number}", type_of(array)))
                feeds[f"x{number}"] = array
        for value in graph.add_all(case.op, *operands):
            graph.output(value)
        try:
            tc.export(model_of(graph, case.chips[-1]), tmp_path / "net.onnx", to="onnx")
        except UnsupportedError:
            continue
        exported += 1
        found = run(tmp_path / "net.onnx", feeds).values()
        for result, expected in zip(found, case.outputs, strict=True):
            assert result.dtype == expected.dtype and result.shape == expected.shape, str(case)
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6, err_msg=str(case))
            else:
                assert equal_bits(result, expected), f"{case}: {result} instead of {expected}"
    assert exported or name in ALL_REFUSED


@pytest.mark.parametrize("dtype", [I8, U8, I16, U16], ids=lambda dtype: dtype.name)
def test_requantization_with_one_rounding(dtype, tmp_path):
    """Every rounding mode; ties, saturation, left shifts, shifts beyond the width, offsets per channel."""
    network = Network()
    x = network.input(I32, (2, 4, 40))
    network.feeds["x0"][1] = np.arange(-80, 80).reshape(4, 40)
    for mode in RoundingMode.__members__.values():
        if mode is RoundingMode.UNKNOWN:
            continue
        given = {"mode": RequantMode.MULTIPLIER_SHIFT, "round_mode": mode, "out_dtype": dtype}
        network.output(RequantInt32(shift_val=-1, **given), x)
        network.output(RequantInt32(multiplier_val=-3, shift_val=-2, offset_val=17, **given), x)
        network.output(RequantInt32(multiplier_val=2**31 - 1, shift_val=-62, **given), x)
        vectors = {"multiplier_vec": (1, 2**30 + 7, -(2**20), 0), "shift_vec": (3, -50, -24, -64)}
        offsets = {"is_offset_pc": True, "offset_vec": (0, 5, -3, 100)}
        network.output(RequantInt32(is_mul_shift_pc=True, **vectors, **offsets, **given), x)
    network.check(tmp_path / "net.onnx")


@pytest.mark.parametrize("mode", [RequantMode.TFLITE, RequantMode.TFLITE_LSHIFT], ids=lambda mode: mode.name)
@pytest.mark.parametrize("dtype", [I8, I16, I32], ids=lambda dtype: dtype.name)
def test_requantization_with_two_roundings(mode, dtype, tmp_path):
    network = Network()
    x, small = network.input(I32, (2, 4, 40)), network.input(I16, (2, 4, 40))
    network.feeds["x0"][1] = np.arange(-80, 80).reshape(4, 40)
    left = mode is RequantMode.TFLITE_LSHIFT
    for operand in (x, small):
        vectors = {"multiplier_vec": (2**30, 2**31 - 1, -(2**31), 1518500250)}
        vectors["shift_vec"] = (0, -8, -40, 13) if left else (0, -1, -64, -31)
        op = RequantInt32(is_mul_shift_pc=True, **vectors, mode=mode, offset_val=-3, out_dtype=dtype)
        network.output(op, operand)
        network.output(RequantInt32(multiplier_val=2**30, shift_val=-2, mode=mode, out_dtype=dtype), operand)
    network.check(tmp_path / "net.onnx")


@pytest.mark.parametrize("w_dtype", [I8, U8], ids=lambda dtype: f"w {dtype.name}")
@pytest.mark.parametrize("dtype", [I8, U8], ids=lambda dtype: dtype.name)
def test_convolutions(dtype, w_dtype, tmp_path):
    """Strides, dilations, groups, uneven padding, zero points of both operands."""
    network = Network()
    x = network.input(dtype, (2, 6, 9, 7))
    for x_zero, w_zero in ((0, 0), (dtype.max, w_dtype.min), (dtype.min, w_dtype.max), (3, 7)):
        for groups, columns, window in (
            (1, 5, {"pad_h_t": 1, "pad_h_b": 0, "pad_w_l": 2, "pad_w_r": 1}),
            (2, 4, {"stride_h": 2, "dh": 2, "dw": 2, "pad_h_t": 2, "pad_h_b": 2, "pad_w_l": 1}),
            (6, 6, {"stride_h": 2, "stride_w": 2, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1}),
        ):
            op = ConvV2(groups=groups, izp_val=x_zero, kzp_val=w_zero, has_bias=True, **window)
            network.output(op, x, network.constant(w_dtype, columns, 6 // groups, 3, 3), network.bias(columns))
    network.check(tmp_path / "net.onnx")


def test_long_sums_of_extreme_products(tmp_path):
    """All products have the largest magnitude, where instruction sets without 32-bit accumulation saturate."""
    network = Network()
    x = network.input(U8, (1, 64, 3, 3))
    network.feeds["x0"][...] = 255
    weights = np.full((2, 64, 3, 3), 127, np.int8)
    weights[1] = -128
    network.output(ConvV2(), x, network.graph.constant(weights, "weights"))
    rows = network.input(I8, (2, 512))
    network.feeds["x1"][...] = -128
    network.output(MatrixMulV2(lzp_val=127), rows, network.graph.constant(np.full((512, 3), -128, np.int8), "columns"))
    network.check(tmp_path / "net.onnx")


@pytest.mark.parametrize("dtype", [I8, U8], ids=lambda dtype: dtype.name)
def test_transposed_convolutions(dtype, tmp_path):
    """Strides, dilations, groups, pads larger than the kernel, negative trailing pads."""
    network = Network()
    x = network.input(dtype, (2, 4, 5, 3))
    for groups, kernel, window in (
        (1, (2, 2), {"stride_h": 2, "stride_w": 2}),
        (2, (3, 3), {"stride_h": 2, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 2, "pad_w_r": 0}),
        (4, (3, 2), {"dh": 2, "stride_w": 3, "pad_w_r": -2, "pad_h_t": 3}),
        (1, (1, 1), {"stride_h": 2, "pad_h_t": 1, "pad_h_b": -1}),
    ):
        op = DeconvV2(groups=groups, izp_val=5, kzp_val=2, has_bias=True, **window)
        network.output(op, x, network.constant(I8, 4, 3, *kernel), network.bias(3 * groups))
    network.check(tmp_path / "net.onnx")


def test_matmuls(tmp_path):
    """Constant and computed operands, transposed, batched, with zero points; biases that saturate."""
    network = Network()
    left, right = network.input(I8, (2, 3, 5, 7)), network.input(U8, (2, 3, 4, 7))
    network.output(MatrixMulV2(lzp_val=-5, rzp_val=130, is_right_trans=True), left, right)
    rows = network.input(U8, (7, 3))
    bias = network.graph.constant(np.array([2**31 - 1, -(2**31)], np.int32), "limits")
    op = MatrixMulV2(lzp_val=9, is_left_trans=True, has_bias=True)
    network.output(op, rows, network.constant(I8, 7, 2), bias)
    network.check(tmp_path / "net.onnx")


@pytest.mark.parametrize("dtype", [I8, U8], ids=lambda dtype: dtype.name)
def test_pooling(dtype, tmp_path):
    """Maxima and averages with padding, in ceil mode, with windows that do not reach the end."""
    network = Network()
    x = network.input(dtype, (1, 5, 8, 6))
    for window in (
        {"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2, "pad_h": 1, "pad_w": 1},
        {"kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 2, "is_ceil_mode": True},
        {"kernel_h": 2, "kernel_w": 2, "stride_h": 3, "stride_w": 4},
        {"stride_h": 1, "stride_w": 1, "is_global_pooling": True},
    ):
        for kind, counted in ((PoolType.MAX, True), (PoolType.AVE, True), (PoolType.AVE, False)):
            network.output(Pool(pooling_type=kind, is_ave_count_zero_pad=counted, **window), x)
    for height, width, pad in ((2, 2, 0), (4, 3, 1), (8, 6, 0)):
        window = {"kernel_h": height, "kernel_w": width, "stride_h": height, "stride_w": width, "pad_h_t": pad}
        network.output(PoolInt(is_avg_pooling=True, **window), x)
        rescale = {"quant_mode": PoolQuantMode.MULTIPLIER_SHIFT, "scale": round(2**20 / (height * width) * 1.7)}
        network.output(PoolInt(is_avg_pooling=True, rshift=20, **rescale, **window), x)
    network.check(tmp_path / "net.onnx")


@pytest.mark.parametrize("dtype", [I8, U8, I16], ids=lambda dtype: dtype.name)
def test_quantize_and_dequantize(dtype, tmp_path):
    """Ties round away from zero; NaN and infinities are defined; offsets per channel."""
    graph = Graph("net")
    x = graph.input("x", TensorType(F32, (2, 64)))
    limit = 2.0**dtype.bits
    values = [*(np.arange(-20, 20) + 0.5), *np.linspace(-limit, limit, 20), np.nan, np.inf, -np.inf, -0.0]
    for op in (
        RequantFp32ToInt(scale_val=1.0, out_dtype=dtype),
        RequantFp32ToInt(scale_val=3.1, offset_val=7, out_dtype=dtype),
        RequantFp32ToInt(is_scale_pc=True, scale_vec=tuple(np.linspace(0.1, 9, 64).tolist()), out_dtype=dtype),
    ):
        y = graph.add(op, x)
        graph.output(y)
        graph.output(graph.add(DequantIntToFp32(scale_val=0.1, offset_val=7), y))
    feeds = {"x": np.array([values, values[::-1]], np.float32)}
    assert differences(export_and_run(model_of(graph), feeds, tmp_path / "net.onnx")) == []


def test_softmax_of_integers(tmp_path):
    network = Network()
    table = tuple(np.exp(-np.arange(256) / 9).astype(np.float32).tolist())
    network.output(SoftmaxInt(table, 255.0, 0), network.input(U8, (3, 1000)))
    network.output(SoftmaxInt(table, 256.0, -128), network.input(I8, (2, 10, 3, 5)))
    network.check(tmp_path / "net.onnx")


# The file


def look_up_graph():
    """A table look-up of an 8-bit input, dequantized."""
    graph = Graph("net")
    quant = QuantParams.per_tensor(0.5, 3, U8)
    x = graph.input("x", TensorType(U8, (1, 4)), quant=quant)
    y = graph.add(Lut(), x, graph.constant(np.arange(256, dtype=np.uint8)[::-1].copy(), "table"), name="y")
    y.quant = QuantParams.per_tensor(0.25, 9, U8)
    graph.output(graph.add(DequantIntToFp32(scale_val=0.25, offset_val=9), y, name="probability"))
    return graph


def test_names_and_metadata(tmp_path):
    graph = look_up_graph()
    result = tc.export(model_of(graph), tmp_path / "net.onnx", to="onnx")
    model = onnx.load(result.path)
    assert (model.ir_version, model.opset_import[0].version) == (IR_VERSION, OPSET)
    assert [item.name for item in model.graph.input] == ["x"]
    assert [item.name for item in model.graph.output] == ["probability"]
    assert "table" in {item.name for item in model.graph.initializer}
    metadata = {item.key: item.value for item in model.metadata_props}
    assert metadata["tpuconvert.chip"] == "BM1686"
    assert metadata["tpuconvert.program_digest"] == program_digest(graph) == result.manifest["program_digest"]
    assert json.loads(metadata["tpuconvert.quantization"]) == {"y": {"scale": [0.25], "zero_point": [9]}}
    (info,) = [item for item in model.graph.value_info if item.name == "y"]
    assert {item.key: item.value for item in info.metadata_props} == {"scale": "[0.25]", "zero_point": "[9]"}
    origins = {(item.key, item.value) for node in model.graph.node for item in node.metadata_props}
    assert ("tpuconvert.operator", "lut") in origins and ("tpuconvert.node", "y") in origins


def test_with_checks_every_integer_is_an_output(tmp_path):
    tc.export(model_of(look_up_graph()), tmp_path / "net.onnx", to="onnx", with_checks=True)
    assert [item.name for item in onnx.load(tmp_path / "net.onnx").graph.output] == ["probability", "y"]


def test_same_model_gives_same_bytes(tmp_path):
    for name in ("a", "b"):
        tc.export(model_of(look_up_graph()), tmp_path / name, to="onnx")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_inputs_and_outputs_have_the_types_of_the_source(tmp_path):
    """INT64, BOOL and rank 0 at the edges; an output that is an input; one value under two names."""
    graph = Graph("net")
    x = graph.input("x", TensorType(I32, (2, 3)), Port("x", "int64", (2, 3)))
    offset = graph.input("offset", TensorType(I32, (1,)), Port("offset", "int32", ()))
    y = graph.add(Add(), x, graph.constant(np.full((1, 1), 5, np.int32), "five"), name="y")
    graph.output(y, Port("y", "int64", (2, 3)))
    graph.output(y, Port("again", "int32", (2, 3)))
    graph.output(y, Port("truth", "bool", (2, 3)))
    graph.output(offset, Port("same", "int32", ()))
    feeds = {"x": np.array([[1, 2, 3], [-5, 0, 9]], np.int64), "offset": np.array(4, np.int32)}
    pairs = export_and_run(model_of(graph), feeds, tmp_path / "net.onnx")
    checker.check_model(onnx.load(tmp_path / "net.onnx"), full_check=True)
    assert list(pairs) == ["y", "again", "truth", "same"]
    assert differences(pairs) == []


def test_composites_without_a_form_are_expanded(tmp_path):
    """Expansions of two nodes do not share names."""
    graph = Graph("net")
    x = graph.input("x", TensorType(F32, (2, 9)))
    graph.output(graph.add(Silu(), graph.add(Silu(alpha=2.0), x)))
    assert lowers.find("silu") is None
    feeds = {"x": np.linspace(-4, 4, 18, dtype=np.float32).reshape(2, 9)}
    assert differences(export_and_run(model_of(graph), feeds, tmp_path / "net.onnx"), 1e-6) == []


def test_symbolic_extents_are_kept(tmp_path):
    graph = Graph("net")
    x = graph.input("x", TensorType(U8, ("batch", 4)))
    graph.output(graph.add(Lut(), x, graph.constant(np.arange(256, dtype=np.uint8), "table")))
    tc.export(model_of(graph), tmp_path / "net.onnx", to="onnx")
    feeds = {"x": integers(U8, (3, 4))}
    assert np.array_equal(next(iter(run(tmp_path / "net.onnx", feeds).values())), feeds["x"])


# Errors


def test_every_target_has_a_name_in_the_options():
    assert tuple(FORMS) == FORM_NAMES


def test_all_nodes_without_a_form_are_reported(tmp_path):
    graph = Graph("net", file="net.onnx")
    x = graph.input("x", TensorType(F32, (1, 4)))
    for name in ("one", "two"):
        graph.output(graph.add(NumberLike(Scalar.f32(3)), x, name=name))
    with pytest.raises(UnsupportedError) as error:
        tc.export(model_of(graph), tmp_path / "net.onnx", to="onnx")
    assert [problem.node for problem in error.value.problems] == ["one", "two"]
    assert {problem.kind.id for problem in error.value.problems} == {"TC3109"}
    assert not (tmp_path / "net.onnx").exists()


def test_integers_after_a_float_convolution_are_refused(tmp_path):
    """ONNX Runtime may round the convolution differently, which would change integers."""
    graph = Graph("net")
    x = graph.input("x", TensorType(F32, (1, 1, 4, 4)))
    y = graph.add(Conv(), x, graph.constant(np.ones((1, 1, 3, 3), np.float32), "w"))
    graph.output(graph.add(RequantFp32ToInt(out_dtype=I8), y, name="integers"))
    with pytest.raises(UnsupportedError, match="rounded differently") as error:
        tc.export(model_of(graph), tmp_path / "net.onnx", to="onnx")
    assert [problem.node for problem in error.value.problems] == ["integers"]


def test_accumulators_beyond_32_bits_are_refused():
    graph = Graph("net")
    x = graph.input("x", TensorType(U8, (1, 70000)))
    graph.output(graph.add(MatrixMulV2(), x, graph.constant(np.full((70000, 1), 127, np.int8), "w")))
    with pytest.raises(UnsupportedError, match="expected at most 31"):
        lower_graph(graph, Chip.BM1686)


def test_options_of_other_targets_are_refused(tmp_path):
    model = model_of(look_up_graph())
    with pytest.raises(UsageError, match="arithmetic of the model's chip"):
        tc.export(model, tmp_path / "net.onnx", to="onnx", chip="bm1684x")
    with pytest.raises(UsageError, match="stores none"):
        tc.export(model, tmp_path / "net.onnx", to="onnx", data={"x": np.zeros((1, 4), np.uint8)})
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="not a regular file"):
        tc.export(model, tmp_path / "folder", to="onnx")


# Trained models

WITHOUT_FORM = {"retinaface_mnet_caffe": "detection_output"}
"""Models that ONNX cannot express, and the operator that it does not have."""

ISLANDS = {"text_det_en_ppocrv3_onnx"}
"""Models whose INT8 form computes hard swishes in float between integers: ONNX Runtime may round these differently."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how"), [(name, how) for name in names() for how in ("int8", "float") if name not in WITHOUT_FORM]
)
def test_trained_models(name, how, data_root, tmp_path):
    """Every integer tensor of quantized models is equal; float results agree within rounding."""
    if is_quantized(entries(data_root)[name]):
        if how == "float":
            pytest.skip("a quantized source has no float form")
        how = "source"
    model, feeds = convert_model(data_root, name, "BM1686", how)
    if how == "int8" and name in ISLANDS:
        with pytest.raises(UnsupportedError, match="may be rounded differently"):
            tc.export(model, tmp_path / "net.onnx", to="onnx")
        return
    for sample in feeds:
        pairs = export_and_run(model, sample, tmp_path / "net.onnx")
        assert any(expected.dtype.kind in "iu" for _, expected in pairs.values()) == (how != "float")
        assert differences(pairs, 5e-5 if how == "float" else 1e-6) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name in WITHOUT_FORM])
def test_models_that_onnx_cannot_express(name, data_root, tmp_path):
    model, _ = convert_model(data_root, name, "BM1686", "int8")
    with pytest.raises(UnsupportedError) as error:
        tc.export(model, tmp_path / "net.onnx", to="onnx")
    assert {problem.op for problem in error.value.problems} == {WITHOUT_FORM[name]}


def test_the_source_of_the_model_is_not_replaced(tmp_path):
    source = tmp_path / "net.onnx"
    onnx.save(model_file := _small_model(), source)
    model = tc.convert(source)
    with pytest.raises(UsageError, match="converted from this file"):
        tc.export(model, source, to="onnx")
    assert onnx.load(source) == model_file
    tc.export(model, tmp_path / "other.onnx", to="onnx")
    tc.export(model, tmp_path / "other.onnx", to="onnx")  # an earlier export is replaced


def _small_model():
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])], "net", [info("x", 1, [1, 3])], [info("y", 1, [1, 3])]
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
