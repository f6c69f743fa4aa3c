"""Pooling, reductions and softmax of bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_cases.random_graphs import Drawing, needs_extension
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import OutCeilMode, PoolInt, PoolQuantMode
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import I8, I16, U8, Chip, DType

pytestmark = needs_extension
SEEDS = range(5)
DTYPES = (I8, U8)


def windows(case: Drawing) -> dict[str, int]:
    """Kernels and strides of 1 to 5."""
    kernel_h, kernel_w, stride_h, stride_w = (int(size) for size in case.rng.integers(1, 6, 4))
    return {"kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w}


def added(case: Drawing, op: Pool | PoolInt, x: Value) -> list[Value]:
    """The first result, where the windows fit."""
    try:
        return [case.graph.add_all(op, x)[0]]
    except ShapeError:
        return []


@pytest.mark.parametrize("kind", [PoolType.MAX, PoolType.AVE])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", SEEDS)
def test_pool(seed: int, dtype: DType, kind: PoolType) -> None:
    case = Drawing(seed)
    channels = int(case.rng.choice([1, 3, 16, 70]))
    results: list[Value] = []
    while len(results) < 4:
        x = case.tensor(dtype, (2, channels, *(int(extent) for extent in case.rng.integers(1, 12, 2))))
        pads = [int(pad) for pad in case.rng.integers(0, 4, 4)]
        op = Pool(
            **windows(case),
            pad_h=pads[0],
            pad_w=pads[1],
            pad_h_offset=pads[2],
            pad_w_offset=pads[3],
            pooling_type=kind,
            is_ceil_mode=bool(case.rng.integers(2)),
            is_ave_count_zero_pad=bool(case.rng.integers(2)),
        )
        results += added(case, op, x) or added(
            case, Pool(stride_h=1, stride_w=1, is_global_pooling=True, pooling_type=kind), x
        )
    case.check(*results)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", SEEDS)
def test_pool_int(seed: int, dtype: DType) -> None:
    case = Drawing(seed)
    channels = int(case.rng.choice([1, 3, 16, 70]))
    results: list[Value] = []
    for _ in range(8):
        x = case.tensor(dtype, (2, channels, *(int(extent) for extent in case.rng.integers(4, 14, 2))))
        pads = [int(pad) for pad in case.rng.integers(0, 3, 4)]
        op = PoolInt(
            **windows(case),
            pad_h_t=pads[0],
            pad_h_b=pads[1],
            pad_w_l=pads[2],
            pad_w_r=pads[3],
            is_avg_pooling=bool(case.rng.integers(2)),
            out_ceil_mode=OutCeilMode(int(case.rng.integers(2))),
            quant_mode=PoolQuantMode(int(case.rng.integers(1, 3))),
            scale=int(case.rng.integers(-(2**31), 2**31)),
            rshift=int(case.rng.choice([0, 1, 20, 35, 40, 63])),
        )
        results += added(case, op, x)
    case.check(*results)


@pytest.mark.parametrize("seed", SEEDS)
def test_maxima_of_16_bits(seed: int) -> None:
    """Windows with padding and in ceil mode."""
    case = Drawing(seed)
    results: list[Value] = []
    while len(results) < 4:
        shape = (2, int(case.rng.choice([1, 3, 16, 70])), *(int(extent) for extent in case.rng.integers(1, 14, 2)))
        pads = [int(pad) for pad in case.rng.integers(0, 3, 4)]
        padded = dict(zip(("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r"), pads, strict=True))
        op = PoolInt(
            **windows(case), **padded, is_avg_pooling=False, out_ceil_mode=OutCeilMode(int(case.rng.integers(2)))
        )
        results += added(case, op, case.tensor(I16, shape))
    case.check(*results)


def test_averages_of_16_bits() -> None:
    case = Drawing(0)
    op = PoolInt(kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, is_avg_pooling=True)
    case.check(case.graph.add(op, case.tensor(I16, (1, 3, 6, 6))))


def test_places_of_maxima() -> None:
    case = Drawing(0)
    x = case.tensor(I8, (1, 3, 6, 6))
    op = PoolInt(kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, is_avg_pooling=False)
    case.check(*case.graph.add_all(op, x))


@pytest.mark.parametrize(
    "method", [method for method in ReduceMethodType if method is not ReduceMethodType.REDUCE_PROD]
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", SEEDS)
def test_reduce(seed: int, dtype: DType, method: ReduceMethodType) -> None:
    case = Drawing(seed)
    rank = int(case.rng.integers(1, 5))
    x = case.tensor(dtype, case.shape(rank)) if rank > 2 else case.input(dtype, case.shape(rank))
    results = []
    for keep in (False, True):
        for _ in range(3):
            axes = case.rng.permutation(rank)[: int(case.rng.integers(1, rank + 1))]
            results.append(case.graph.add(Reduce(tuple(int(axis) for axis in axes), method, keep_dims=keep), x))
    results.append(case.graph.add(Reduce((), method), x))
    case.check(*results, chip=Chip.BM1686)


def test_global_averages_of_large_images() -> None:
    case = Drawing(5)
    results = []
    for dtype in DTYPES:
        x = case.channels_last(dtype, (1, 37, 112, 96))
        results.append(case.graph.add(Reduce((2, 3)), x))
        results.append(case.graph.add(Reduce((1,)), x))
        results.append(
            case.graph.add(Pool(stride_h=1, stride_w=1, is_global_pooling=True, pooling_type=PoolType.AVE), x)
        )
    case.check(*results)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [0.0, 0.003, 0.1, 3.0, 1000.0])
@pytest.mark.parametrize("channels", [1, 2, 10, 257])
def test_softmax_int(channels: int, step: float, dtype: DType) -> None:
    case = Drawing(channels)
    table = tuple(float(np.float32(np.exp(-step * index))) for index in range(256))
    results = []
    for scale, zero in ((256.0, dtype.min), (127.0, 0), (1e9, 3), (0.3, dtype.max)):
        results.append(case.graph.add(SoftmaxInt(table, scale, zero), case.tensor(dtype, (2, channels, 3, 5))))
        results.append(case.graph.add(SoftmaxInt(table, scale, zero), case.input(dtype, (3, channels))))
    nothing = SoftmaxInt((0.0,) * 256, 256.0, 5)
    case.check(*results, case.graph.add(nothing, case.input(dtype, (3, channels))))
