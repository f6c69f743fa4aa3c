"""Operators whose kernels use the integers of a result with another scale, against LiteRT; comparisons; old weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.tflite.models import O, S, T, serialize, single
from tpuconvert.schema.errors import UnsupportedError

litert = pytest.importorskip("ai_edge_litert.interpreter")

POOL = {"padding": 0, "stride_h": 2, "stride_w": 2, "filter_height": 3, "filter_width": 2}
RESIZE = {"align_corners": False, "half_pixel_centers": True}
CASES: dict[str, tuple[list[Any], tuple[int, ...], str, dict[str, Any]]] = {
    "AVERAGE_POOL_2D": ([], (1, 2, 2, 4), "Pool2DOptions", {**POOL, "fused_activation_function": 3}),
    "MAX_POOL_2D": ([], (1, 2, 2, 4), "Pool2DOptions", {**POOL, "fused_activation_function": 1}),
    "RESIZE_BILINEAR": ([[6, 5]], (1, 6, 5, 4), "ResizeBilinearOptions", RESIZE),
    "RESIZE_NEAREST_NEIGHBOR": ([[6, 5]], (1, 6, 5, 4), "ResizeNearestNeighborOptions", RESIZE),
    "REVERSE_V2": ([[2]], (1, 4, 4, 4), "ReverseV2Options", {}),
    "SPACE_TO_DEPTH": ([], (1, 2, 2, 16), "SpaceToDepthOptions", {"block_size": 2}),
    "DEPTH_TO_SPACE": ([], (1, 8, 8, 1), "DepthToSpaceOptions", {"block_size": 2}),
    "TRANSPOSE": ([[0, 3, 1, 2]], (1, 4, 4, 4), "TransposeOptions", {}),
    "RESHAPE": ([[4, 16]], (4, 16), "ReshapeOptions", {"new_shape": (4, 16)}),
    "PAD": ([[[0, 0], [1, 0], [0, 2], [0, 0]]], (1, 5, 6, 4), "PadOptions", {}),
    "MAXIMUM": ([T("other", (1, 4, 4, 4))], (1, 4, 4, 4), "MaximumMinimumOptions", {}),
}


def run_both(model: S, arrays: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Outputs of the converted model, and of the reference kernels."""
    content = serialize(model)
    resolver = litert.OpResolverType.BUILTIN_REF
    interpreter = litert.Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], arrays[detail["name"]])
    interpreter.invoke()
    expected = [interpreter.get_tensor(item["index"]) for item in interpreter.get_output_details()]
    with tc.Session(tc.convert(content)) as session:
        found = session.run(arrays)
        return [found[port.name] for port in session.outputs], expected


@pytest.mark.parametrize("dtype", ["INT8", "UINT8", "INT16"])
@pytest.mark.parametrize("op", CASES)
def test_integers_of_results_with_other_scales(op: str, dtype: str) -> None:
    if dtype == "INT16" and op in ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE"):
        pytest.skip("the kernel does not take INT16")
    limits = np.iinfo(dtype.lower())
    x = T("x", (1, 4, 4, 4), dtype, None, (0.05,), (0 if dtype == "INT16" else 3,))
    extra, shape, table, options = CASES[op]
    y = T("y", shape, dtype, None, (0.02,), (0 if dtype == "INT16" else 7,))
    others = [
        T("other", x.shape, dtype, None, x.scale, x.zero_point)
        if isinstance(item, T)
        else T("c", data=np.asarray(item, np.int32))
        for item in extra
    ]
    data = np.random.default_rng(1).integers(limits.min, limits.max, x.shape, endpoint=True).astype(dtype.lower())
    model = single(op, [x, *others], [y], table, **options)
    names = [model.tensors[index].name for index in model.inputs]
    found, expected = run_both(model, dict.fromkeys(names, data))
    np.testing.assert_array_equal(found[0], expected[0])


def test_parts_of_a_split_with_a_scale_each() -> None:
    x = T("x", (1, 2, 6), "INT8", None, (0.05,), (3,))
    parts = [T(f"y{i}", (1, 2, 2), "INT8", None, (scale,), (i,)) for i, scale in enumerate((0.05, 0.02, 0.1))]
    data = np.random.default_rng(2).integers(-128, 128, x.shape).astype(np.int8)
    model = single("SPLIT", [T("axis", data=np.asarray(2, np.int32)), x], parts, "SplitOptions", num_splits=3)
    name = model.tensors[model.inputs[0]].name
    found, expected = run_both(model, {name: data})
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_rules_keep_the_copy_of_integers() -> None:
    """Reshaping a mean to the shape in which it was computed leaves only the copy between the scales."""
    x, mean = T("x", (1, 3, 4), "INT16", None, (2e-4,), (0,)), T("m", (1, 3), "INT16", None, (8e-5,), (0,))
    tensors = [x, T("axis", data=np.asarray([2], np.int32)), mean, T("shape", data=np.asarray([3], np.int32))]
    tensors += [T("y", (3,), "INT16", None, (1.2e-4,), (0,))]
    tensors += [T(f"p{i}", (1,), "INT16", None, (8e-5,), (0,)) for i in range(3)]
    operators = [
        O("MEAN", [0, 1], [2], "ReducerOptions", {"keep_dims": False}),
        O("RESHAPE", [2, 3], [4], "ReshapeOptions", {"new_shape": (3,)}),
        O("UNPACK", [2], [5, 6, 7], "UnpackOptions", {"num": 3, "axis": 1}),
    ]
    data = np.random.default_rng(5).integers(-9000, 9000, (1, 3, 4)).astype(np.int16)
    found, expected = run_both(S(tensors, operators, [0], [4, 5, 6, 7]), {"x": data})
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(("op", "dtype"), [("GREATER", "INT8"), ("LESS", "UINT8"), ("EQUAL", "INT16")])
def test_refuses_comparisons_of_large_scales(op: str, dtype: str) -> None:
    """The kernel shifts by a negative number of bits, and ends its process for a scale of exactly 1."""
    tensors = [T(name, (2, 3), dtype, None, (scale,), (0,)) for name, scale in (("a", 0.5), ("b", 1.0))]
    model = single(op, tensors, [T("y", (2, 3), "BOOL")], f"{op.capitalize()}Options")
    with pytest.raises(UnsupportedError, match="a scale of 1 or more") as caught:
        tc.convert(serialize(model))
    assert "DEQUANTIZE" in str(caught.value)


def test_compares_16_bit_integers_of_any_scale() -> None:
    tensors = [T(name, (2, 50), "INT16", None, (2.0,), (0,)) for name in ("a", "b")]
    model = single("GREATER", tensors, [T("y", (2, 50), "BOOL")], "GreaterOptions")
    g = np.random.default_rng(3)
    names = [model.tensors[index].name for index in model.inputs]
    found, expected = run_both(model, {name: g.integers(-9, 9, (2, 50)).astype(np.int16) for name in names})
    np.testing.assert_array_equal(found[0], expected[0])


def layer(op: str, zero_point: int = 0) -> tuple[S, dict[str, Any]]:
    """A layer with UINT8 weights and float results. -128 is not a symmetric weight: the kernels for x86 overflow."""
    g = np.random.default_rng(4)
    weights = T("w", data=g.integers(-127, 128, (5, 16)).astype(np.uint8), scale=(0.01,), zero_point=(zero_point,))
    if op == "EMBEDDING_LOOKUP":
        model = single(op, [T("x", (3,), "INT32"), weights], [T("y", (3, 16), "FLOAT32")])
        return model, {model.tensors[model.inputs[0]].name: np.asarray([4, 0, 2], np.int32)}
    x, y = T("x", (2, 16), "FLOAT32"), T("y", (2, 5), "FLOAT32")
    model = single(op, [x, weights, T("b", data=np.zeros(5, np.float32))], [y], "FullyConnectedOptions")
    return model, {model.tensors[model.inputs[0]].name: g.standard_normal((2, 16)).astype(np.float32)}


@pytest.mark.parametrize("op", ["EMBEDDING_LOOKUP", "FULLY_CONNECTED"])
def test_unsigned_weights_of_float_layers_are_signed_bytes(op: str) -> None:
    found, expected = run_both(*layer(op))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)


def test_refuses_unsigned_weights_with_a_zero_point() -> None:
    with pytest.raises(UnsupportedError, match="reads their bytes as INT8"):
        tc.convert(serialize(layer("FULLY_CONNECTED", 128)[0]))
