"""Chains of quantized operators give the bytes of the reference kernels: fixed families, and random chains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.fresh_seed import fresh_seed
from tests.support.tflite.chain_campaign import Oracle, compare, run_campaign, run_chain
from tests.support.tflite.models import O, S, T

pytest.importorskip("ai_edge_litert.interpreter")

SAMPLE = 20
MANY = 3000
EVERY = 12
"""Step through the family of slices after activations in an ordinary run."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    found = Oracle()
    yield found
    found.close()


def tensor(name: str, shape: tuple[int, ...], scale: float, zero: int = 0, dtype: str = "INT8") -> T:
    return T(name, shape, dtype, None, (scale,), (zero,))


def i32(name: str, *values: int) -> T:
    return T(name, data=np.asarray(values, np.int32))


def check(model: S, oracle: Oracle) -> None:
    generator = np.random.default_rng(7)
    arrays = {}
    for tensor in (model.tensors[index] for index in model.inputs):
        limits = np.iinfo(tensor.type.lower())
        array = generator.integers(limits.min, limits.max, tensor.shape, endpoint=True)
        arrays[tensor.name] = array.astype(tensor.type.lower())
    assert compare(model, arrays, oracle) == ("equal", "")


FIRST = ("CONV_2D", "MAX_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
FUNCTIONS = {
    **{"RELU": (0.02, 3), "RELU6": (0.02, -128), "RELU_N1_TO_1": (0.02, 3), "LOGISTIC": (1 / 256, -128)},
    **{"TANH": (1 / 128, 0), "HARD_SWISH": (0.03, -5), "LEAKY_RELU": (0.02, 3)},
}
SLICES = {
    "first channel": ((0, 0, 0, 0), (1, 4, 5, 1), 0),
    "last channel": ((0, 0, 0, 5), (1, 4, 5, 1), 0),
    "last channel, without the axis": ((0, 0, 0, 5), (1, 4, 5), 8),
    "pixel": ((0, 1, 2, 0), (1, 1, 1, 6), 0),
    "pixel, without the axes": ((0, 1, 2, 0), (1, 6), 6),
    "row": ((0, 2, 0, 0), (1, 1, 5, 6), 0),
    "two channels": ((0, 0, 0, 4), (1, 4, 5, 2), 0),
}
FAMILY = list(itertools.product(FIRST, FUNCTIONS, SLICES, (False, True)))


def slice_after_function(first: str, function: str, part: str, *, is_shared: bool) -> S:
    """A layer, an activation, and a slice of its result; if it is shared, the result is an output too."""
    scale, zero = FUNCTIONS[function]
    begin, shape, shrunk = SLICES[part]
    channels = 4 if first == "CONV_2D" else 6
    plane = (1, 4, 5, 6)
    tensors = [tensor("x", (1, 4, 5, channels), 0.02, 3), tensor("c", plane, 0.02, 3), tensor("a", plane, scale, zero)]
    tensors += [tensor("y", shape, scale, zero), i32("begin", *begin)]
    sizes = [extent - at if shrunk or wide > 1 else 1 for extent, at, wide in zip(plane, begin, plane, strict=True)]
    kept = iter(shape)
    axes = [1 if shrunk >> axis & 1 else next(kept) for axis in range(4)]
    sizes = [min(size, axis) for size, axis in zip(sizes, axes, strict=True)]
    tensors.append(i32("end", *(at + size for at, size in zip(begin, sizes, strict=True))))
    tensors += [i32("steps", 1, 1, 1, 1), i32("size", 4, 5)]
    weights = np.random.default_rng(1).integers(-127, 128, (6, 1, 1, 4)).astype(np.int8)
    tensors.append(T("w", data=weights, scale=(0.004,) * 6, zero_point=(0,) * 6))
    bias = float(np.float32(0.02) * np.float32(0.004))
    tensors.append(T("b", data=np.zeros(6, np.int32), scale=(bias,) * 6, zero_point=(0,) * 6))
    one = {"stride_h": 1, "stride_w": 1}
    layers = {
        "CONV_2D": O("CONV_2D", [0, 8, 9], [1], "Conv2DOptions", one),
        "MAX_POOL_2D": O("MAX_POOL_2D", [0], [1], "Pool2DOptions", {**one, "filter_height": 2, "filter_width": 3}),
        "RESIZE_BILINEAR": O("RESIZE_BILINEAR", [0, 7], [1], "ResizeBilinearOptions"),
        "RESIZE_NEAREST_NEIGHBOR": O("RESIZE_NEAREST_NEIGHBOR", [0, 7], [1], "ResizeNearestNeighborOptions"),
    }
    table = {"LEAKY_RELU": ("LeakyReluOptions", {"alpha": 0.25}), "HARD_SWISH": ("HardSwishOptions", {})}
    operators = [
        layers[first],
        O(function, [1], [2], *table.get(function, ("", {}))),
        O("STRIDED_SLICE", [2, 4, 5, 6], [3], "StridedSliceOptions", {"shrink_axis_mask": shrunk}),
    ]
    return S(tensors, operators, [0], [2, 3] if is_shared else [3])


@pytest.mark.parametrize("case", FAMILY[::EVERY], ids=str)
def test_slices_of_activations(case: tuple[str, str, str, bool], oracle: Oracle) -> None:
    *names, is_shared = case
    check(slice_after_function(*names, is_shared=is_shared), oracle)


@pytest.mark.slow
def test_every_slice_of_activations(oracle: Oracle) -> None:
    for *names, is_shared in FAMILY:
        check(slice_after_function(*names, is_shared=is_shared), oracle)


@pytest.mark.parametrize("dtype", ["INT8", "UINT8", "INT16"])
@pytest.mark.parametrize("size", [(1, 1, 2), (1, 2, 1), (1, 2, 3)], ids=str)
def test_slices_of_slices_of_a_mean(size: tuple[int, int, int], dtype: str, oracle: Oracle) -> None:
    zero = 0 if dtype == "INT16" else 5
    tensors = [
        tensor("x", (1, 4, 3, 4), 0.01, zero, dtype),
        i32("axes", 1),
        tensor("m", (1, 3, 4), 0.02, 0, dtype),
        i32("b1", 0, 1, 0),
        i32("s1", 1, 2, 4),
        tensor("p", (1, 2, 4), 0.02, 0, dtype),
        i32("b2", 0, 0, 1),
        i32("s2", *size),
        tensor("y", size, 0.02, 0, dtype),
    ]
    operators = [
        O("MEAN", [0, 1], [2], "ReducerOptions"),
        O("SLICE", [2, 3, 4], [5], "SliceOptions"),
        O("SLICE", [5, 6, 7], [8], "SliceOptions"),
    ]
    check(S(tensors, operators, [0], [8]), oracle)


@pytest.mark.parametrize(
    ("dtype", "target"),
    [("INT8", "INT8"), ("INT8", "UINT8"), ("INT8", "INT16"), ("INT16", "INT8"), ("INT16", "INT16")],
)
def test_requantized_slices_in_every_place(dtype: str, target: str, oracle: Oracle) -> None:
    """SLICE and QUANTIZE as an output, before UNPACK and before a join of itself."""
    fine = 0.01 if dtype == "INT8" else 1e-4
    coarse = {"INT16": 2e-4}.get(target, 0.02)
    cut, parts = (1, 3, 4, 2), [tensor(f"u{index}", (1, 3, 2), coarse, 0, target) for index in range(4)]
    tensors = [
        tensor("x", (1, 4, 5, 2), fine, 0, dtype),
        i32("begin", 0, 1, 1, 0),
        i32("size", *cut),
        tensor("m", cut, fine, 0, dtype),
        tensor("q", cut, coarse, 0, target),
        *parts,
        tensor("z", (1, 3, 4, 4), coarse, 0, target),
    ]
    operators = [
        O("SLICE", [0, 1, 2], [3], "SliceOptions"),
        O("QUANTIZE", [3], [4], "QuantizeOptions"),
        O("UNPACK", [4], [5, 6, 7, 8], "UnpackOptions", {"num": 4, "axis": 2}),
        O("CONCATENATION", [4, 4], [9], "ConcatenationOptions", {"axis": 3}),
    ]
    for outputs in ([4], [5, 6, 7, 8], [9], [3, 4, 9]):
        check(S(tensors, operators, [0], outputs), oracle)


@pytest.mark.parametrize(
    ("dtype", "bias_type"), [("INT8", np.int32), ("UINT8", np.int32), ("INT16", np.int64), ("INT16", np.int32)]
)
def test_ties_of_fully_connected_layers(dtype: str, bias_type: type, oracle: Oracle) -> None:
    """The kernel rounds once, ties away from zero: scales that are powers of two give ties of both signs."""
    generator, limits = np.random.default_rng(3), np.iinfo(dtype.lower())
    zero = {"INT8": 3, "UINT8": 130}.get(dtype, 0)
    weight_type, weight_zero = ("uint8", 128) if dtype == "UINT8" else ("int8", 0)
    low = 1 if dtype == "UINT8" else -127
    tensors = [
        tensor("x", (8, 4), 0.25, zero, dtype),
        T(
            "w",
            data=generator.integers(low, low + 254, (64, 4)).astype(weight_type),
            scale=(0.0625,),
            zero_point=(weight_zero,),
        ),
        T("b", data=generator.integers(-900, 900, 64).astype(bias_type), scale=(0.015625,), zero_point=(0,)),
        tensor("y", (8, 64), 0.5, zero, dtype),
    ]
    options = {"quantized_bias_type": 2} if dtype == "INT16" and bias_type is np.int32 else {}
    operator = O("FULLY_CONNECTED", [0, 1, 2], [3], "FullyConnectedOptions", options)
    array = generator.integers(limits.min // 64, limits.max // 64 + 2, (8, 4)).astype(dtype.lower())
    assert compare(S(tensors, [operator], [0], [3]), {"x": array}, oracle) == ("equal", "")


@pytest.mark.parametrize("count", [SAMPLE, pytest.param(3 * SAMPLE, marks=pytest.mark.slow)])
def test_random_chains(count: int, oracle: Oracle) -> None:
    """A fixed sample; ``tflite_chain_campaign`` runs longer ones."""
    outcomes = {seed: run_chain(seed, oracle) for seed in range(count)}
    assert {seed: found for seed, found in outcomes.items() if found[0] not in ("equal", "not comparable")} == {}
    assert sum(outcome == "equal" for outcome, _ in outcomes.values()) > 0.9 * count


@pytest.mark.slow
def test_random_chains_with_a_fresh_seed() -> None:
    assert run_campaign(fresh_seed(), MANY).findings == []
