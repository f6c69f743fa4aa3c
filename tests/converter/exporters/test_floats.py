"""Floating-point operators in an export for the vendor's compiler; tests/vendor compiles and runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.vendor.float_families import FAMILIES, Family, built
from tpuconvert.exporters.request import FLOATS
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.package import try_lowering
from tpuconvert.exporters.tpu_mlir.registry import lowers_floats
from tpuconvert.exporters.tpu_mlir.run_bmodel import compare_tensor
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Maxs, Muls, Subs
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Chip, DType, QuantParams, Scalar, TensorType


def test_every_form_has_a_branch() -> None:
    import_modules("tpuconvert.exporters.tpu_mlir.forms")
    covered = {node.op.name for build in FAMILIES for node in built(build).graph.nodes}
    assert set(lowers_floats.operators) <= covered


@pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)
@pytest.mark.parametrize("floats", FLOATS)
def test_nothing_is_left_to_the_host(build: Callable[[Family], None], floats: str) -> None:
    family = built(build)
    lowering = try_lowering(family.graph, TARGETS["bm1684x"], "family", floats)
    assert not lowering.without_form
    text = lowering.module.text([lowering.returned(value) for value in lowering.graph.outputs])
    assert f"x{floats}>" in text


def test_a_float_model_is_exported(tmp_path: Path) -> None:
    family = built(FAMILIES[0])
    model = tc.Model(FileModel(family.graph, Chip.BM1686, "0", "none"))
    manifest = tc.export(model, tmp_path / "out", data=[family.feed], floats="f16").manifest
    assert manifest["floats"] == "f16" and manifest["host_nodes"] == []
    assert {output["is_exact"] for output in manifest["outputs"]} == {False}
    weights = np.load(tmp_path / "out" / "family_weights.npz")
    assert {array.dtype for array in weights.values()} == {np.dtype(np.uint16), np.dtype(np.float32)}
    assert json.loads((tmp_path / "out" / "export.json").read_text()) == manifest


@pytest.mark.parametrize(("floats", "to"), [("f8", "tpu-mlir"), ("f16", "tpulang"), ("f16", "onnx")])
def test_types_that_a_form_does_not_have(floats: str, to: str, tmp_path: Path) -> None:
    model = tc.Model(FileModel(built(FAMILIES[0]).graph, Chip.BM1686, "0", "none"))
    with pytest.raises(tc.UsageError, match="floats"):
        tc.export(model, tmp_path / "out", to=to, floats=floats)
    assert not (tmp_path / "out").exists()


def test_a_program_that_would_compute_nothing_is_refused(tmp_path: Path) -> None:
    model = tc.Model(FileModel(built(FAMILIES[0]).graph, Chip.BM1686, "0", "none"))
    with pytest.raises(tc.UsageError, match="no integers to export") as error:
        tc.export(model, tmp_path / "out", to="tpulang")
    assert "quantize" in error.value.hint
    assert not (tmp_path / "out").exists()


def packed_product(scale: float, rows: int = 50, bits: int = 4) -> Graph:
    """A product with packed weights whose codes are 15, and whose scales are equal."""
    graph = Graph("packed")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 3, 64)))
    codes = graph.constant(np.full((rows, 64 * bits // 8), 255, np.uint8), "codes")
    scales = graph.constant(np.full((rows, 2), scale, np.float32), "scales")
    graph.output(graph.add(MatmulGroupQuantized(bits, 32), x, codes, scales))
    return graph


@pytest.mark.parametrize(("floats", "scale", "operation"), [
    ("f16", 1e-2, "tpu.A16MatMul"),
    ("f16", 1e-7, "tpu.MatMul"),  # 1.19e-7 or 0.6e-7 in f16, but 7e-7 is a weight
    ("bf16", 1e-7, "tpu.A16MatMul"),
    ("f32", 1e-2, "tpu.MatMul"),
])  # fmt: skip
def test_weights_stay_packed_where_the_type_holds_their_scales(floats: str, scale: float, operation: str) -> None:
    lowering = try_lowering(packed_product(scale), TARGETS["bm1688"], "packed", floats)
    (product,) = [line for line in lowering.module.lines if "MatMul" in line.operation]
    assert product.operation == operation
    weight = product.operands[1]
    assert weight is not None
    if operation == "tpu.A16MatMul":
        assert weight.shape == (64, 32)  # rows are padded to a multiple of 32
        array = lowering.module.array(weight)
        assert array is not None and array.dtype == np.uint8 and not array[50:].any()
    else:
        assert weight.shape == (64, 50) and weight.element == floats


def test_weights_beyond_the_range_of_the_type_are_named() -> None:
    lowering = try_lowering(packed_product(2e4), TARGETS["bm1688"], "packed", "f16")
    assert list(lowering.refused.values()) == ["its weights exceed the range of f16"]


def test_bm1684_computes_floats_in_one_type(tmp_path: Path) -> None:
    model = tc.Model(FileModel(built(FAMILIES[0]).graph, Chip.BM1684, "0", "none"))
    with pytest.raises(tc.UsageError, match="bm1684 does not compute floating-point operators in f16"):
        tc.export(model, tmp_path / "out", chip="bm1684", floats="f16")
    assert tc.export(model, tmp_path / "out", chip="bm1684").manifest["floats"] == "f32"


@pytest.mark.parametrize(("factor", "tolerance"), [(1.0, 1e-5), (2000.0, 1e-3)])
def test_the_bound_follows_the_network(factor: float, tolerance: float, tmp_path: Path) -> None:
    """exp(2000 x) around 1 amplifies a rounding of x by 2,000."""
    graph = Graph("steep")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 64)))
    graph.output(
        graph.add(Active(ActiveType.ACTIVE_EXP), graph.add(Muls(Scalar.f32(factor)), graph.add(Subs(Scalar.f32(1)), x)))
    )
    feed = {"x": (1 + np.random.default_rng(0).random((1, 64)) / 1000).astype(np.float32)}
    manifest = tc.export(tc.Model(FileModel(graph, Chip.BM1686, "0", "none")), tmp_path / "out", data=[feed]).manifest
    assert tolerance <= manifest["tolerance"] <= 3 * tolerance


def test_roundings_that_a_network_amplifies_are_measured(tmp_path: Path) -> None:
    """Each float is at a tie: its last place decides about the integer, which is multiplied by 50."""
    graph = Graph("ties")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 64)))
    total = graph.add(Adds(Scalar.f32(0.25)), x)
    integers = graph.add(RequantFp32ToInt(scale_val=2.0, out_dtype=DType.INT8), total)
    integers.quant = QuantParams.per_tensor(0.5, 0, DType.INT8)
    graph.output(graph.add(Muls(Scalar.f32(100)), graph.add(DequantIntToFp32(scale_val=0.5), integers)))
    feed = {"x": np.zeros((1, 64), np.float32)}
    manifest = tc.export(tc.Model(FileModel(graph, Chip.BM1686, "0", "int8")), tmp_path / "out", data=[feed]).manifest
    (output,) = manifest["outputs"]
    assert output["rounding"] == 50
    ours = np.load(tmp_path / "out" / "expected.npz")[output["name"]]
    flipped = ours + np.where(np.arange(64) % 3, 0, -50).astype(np.float32)
    assert compare_tensor(dict(manifest), ours, flipped, output).is_accepted
    assert not compare_tensor(dict(manifest), ours, ours + np.float32(400), output).is_accepted
    assert not compare_tensor(dict(manifest), ours, flipped, {**output, "rounding": 0.0}).is_accepted


@pytest.mark.parametrize(("kind", "change"), [(ActiveType.ACTIVE_ROUND, 50.0), (ActiveType.ACTIVE_FLOOR, 0.0)])
def test_floats_that_a_source_rounds_are_measured(kind: ActiveType, change: float, tmp_path: Path) -> None:
    """TFLite models with weights of 8 bits round activations as floats. A cut fraction has other neighbors.

    An element is infinite, and changes by nothing.
    """
    graph = Graph("ties")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 64)))
    graph.output(graph.add(Muls(Scalar.f32(50)), graph.add(Active(kind), graph.add(Adds(Scalar.f32(0.5)), x))))
    feed = {"x": np.where(np.arange(64) < 1, np.inf, 0).astype(np.float32)[None]}
    manifest = tc.export(tc.Model(FileModel(graph, Chip.BM1686, "0", "none")), tmp_path / "out", data=[feed]).manifest
    assert [output["rounding"] for output in manifest["outputs"]] == [pytest.approx(change * np.sqrt(63 / 64))]


def test_infinite_numbers_have_a_text(tmp_path: Path) -> None:
    """A maximum with minus infinity, as transformers clip their masks: the dialect takes the bits."""
    graph = Graph("clip")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 64)))
    graph.output(graph.add(Maxs(Scalar.f32(-np.inf)), x))
    tc.export(tc.Model(FileModel(graph, Chip.BM1686, "0", "none")), tmp_path / "out")
    assert "const_val = 0xFFF0000000000000 : f64" in (tmp_path / "out" / "clip.mlir").read_text()


@pytest.mark.parametrize(("shape", "axes", "runs"), [
    ((2, 4, 6, 5), (1, 3), [[3], [1]]),
    ((1, 4, 6, 5), (0, 2, 3), [[2, 3]]),
    ((2, 4, 1, 5), (1, 3), [[1, 2, 3]]),
    ((2, 4, 6, 5), (0, 1, 3), [[3], [0, 1]]),
    ((1, 4), (0,), []),
])  # fmt: skip
def test_reductions_of_axes_with_others_between_them(
    shape: tuple[int, ...], axes: tuple[int, ...], runs: list[list[int]]
) -> None:
    """The vendor's compiler aborts on them, or computes other results."""
    graph = Graph("reduction")
    graph.output(graph.add(Reduce(axes, keep_dims=False), graph.input("x", TensorType(DType.FLOAT32, shape))))
    lowering = try_lowering(graph, TARGETS["bm1688"], "reduction")
    operations = [line for line in lowering.module.lines if line.operation == "tpu.Reduce"]
    assert [[*line.attributes["axes"]] for line in operations] == runs
    assert lowering.returned(graph.outputs[0]).shape == graph.outputs[0].shape


@pytest.mark.parametrize("is_comparison", [False, True])
def test_selections_of_a_number(is_comparison: bool) -> None:
    """The compiler reads beyond a constant of one element, and selects by a condition that is not 0."""
    graph = Graph("selection")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 64)))
    condition = graph.add(Gts(Scalar.f32(1)), x) if is_comparison else x
    graph.output(graph.add(ConditionSelect(), condition, x, graph.constant(np.float32([-7]), "number")))
    lowering = try_lowering(graph, TARGETS["bm1688"], "selection", "f16")
    (selection,) = [line for line in lowering.module.lines if line.operation == "tpu.Where"]
    assert selection.attributes["y_is_const"] and selection.attributes["y_const_val"] == -7
    assert [line.operation for line in lowering.module.lines].count("tpu.CompareConst") == 1


@pytest.mark.parametrize(("floats", "largest"), [("f32", -1e39), ("f16", -65504), ("bf16", -3.3895314e38)])
def test_numbers_of_masks_stay_finite(floats: str, largest: float) -> None:
    """(1 - mask) times the lowest number of float32: 0 times minus infinity is not a number."""
    graph = Graph("mask")
    lowest = float(np.finfo(np.float32).min)
    graph.output(graph.add(Muls(Scalar.f32(lowest)), graph.input("x", TensorType(DType.FLOAT32, (1, 64)))))
    lowering = try_lowering(graph, TARGETS["bm1688"], "mask", floats)
    (product,) = [line for line in lowering.module.lines if line.operation == "tpu.MulConst"]
    assert product.attributes["const_val"] == pytest.approx(max(lowest, largest), rel=1e-7)
