"""Data movement: every byte is copied to the right position, for all memory orders."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tests.support.native_cases.random_graphs import INTEGERS, Drawing, check, needs_extension
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import RunError, UsageError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.concat import Concat, Interleave, Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import F16, F32, I8, I32, U8, DType, Scalar, TensorType

pytestmark = needs_extension
DTYPES = (*INTEGERS, F32, F16)
SEEDS = range(12)


def draw_case(seed: int) -> tuple[Drawing, DType]:
    """A random graph and the element type for its seed."""
    return Drawing(seed), DTYPES[seed % len(DTYPES)]


@pytest.mark.parametrize("seed", SEEDS)
def test_permutations_and_reshapes(seed: int) -> None:
    case, dtype = draw_case(seed)
    rank = int(case.rng.integers(1, 6))
    x = case.input(dtype, case.shape(rank))
    order = tuple(int(axis) for axis in case.rng.permutation(rank))
    y = case.graph.add(Permute(order), x)
    flat = case.graph.add(Reshape((-1,)), y)
    again = case.graph.add(Reshape(y.type.static_shape), flat)
    back = case.graph.add(Permute(tuple(int(axis) for axis in np.argsort(order))), again)
    wide = case.graph.add(ExpandDims(1, 2), back)
    case.check(y, flat, case.graph.add(Squeeze((1, 2)), wide), case.graph.add(Copy(), wide))


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 5), (2, 77), (3, 1001), (4, 64), (16, 16), (33, 65), (127, 50), (64, 3)]
)
@pytest.mark.parametrize("dtype", [I8, U8, DType.INT16, I32])
def test_transposition(rows: int, columns: int, dtype: DType) -> None:
    case = Drawing(rows * columns)
    x = case.input(dtype, (3, rows, columns))
    case.check(case.graph.add(Permute((0, 2, 1)), x), case.graph.add(Permute((1, 0, 2)), x))


def test_large_copies_are_divided_among_threads() -> None:
    case = Drawing(0)
    x = case.input(I8, (2, 70, 61, 67))
    case.check(case.graph.add(Permute((0, 2, 3, 1)), x), case.graph.add(Copy(), x))


@pytest.mark.parametrize("seed", SEEDS)
def test_concat_and_split(seed: int) -> None:
    case, dtype = draw_case(seed)
    shape, axis = case.shape(4), int(case.rng.integers(4))

    def part(extent: int) -> Value:
        return case.tensor(dtype, (*shape[:axis], extent, *shape[axis + 1 :]))

    y = case.graph.add(Concat(axis), part(3), case.constant(dtype, part(2).shape), part(4))
    parts = case.graph.add_all(Split(axis, 3, (2, 1, 6)), y)
    again = case.graph.add_all(Split(axis - 4, 3), y)
    case.check(y, *parts, *again, case.graph.add(Concat(axis), *reversed(parts)))


@pytest.mark.parametrize("seed", SEEDS)
def test_extract(seed: int) -> None:
    case, dtype = draw_case(seed)
    rank = int(case.rng.integers(1, 6))
    x = case.tensor(dtype, case.shape(rank)) if rank > 2 else case.input(dtype, case.shape(rank))
    results = []
    for _ in range(4):
        start = tuple(int(case.rng.integers(extent)) for extent in x.type.static_shape)
        end = tuple(
            int(case.rng.integers(low, extent)) + 1 for low, extent in zip(start, x.type.static_shape, strict=True)
        )
        stride = tuple(int(step) for step in case.rng.integers(1, 4, rank))
        results.append(case.graph.add(Extract(start, end, stride), x))
    one = int(case.rng.integers(rank))
    for step in (1, 2):
        start = tuple(int(axis == one and x.shape[axis] > 1) for axis in range(rank))
        steps = tuple(step if axis == one else 1 for axis in range(rank))
        results.append(case.graph.add(Extract(start, x.type.static_shape, steps), x))
    case.check(*results, *(case.graph.add(Reshape((-1,)), value) for value in results))


@pytest.mark.parametrize("mode", PadType)
@pytest.mark.parametrize("seed", SEEDS)
def test_pad(seed: int, mode: PadType) -> None:
    case, dtype = draw_case(seed)
    x = case.tensor(dtype, tuple(int(extent) for extent in case.rng.integers(3, 7, 4)))
    paddings = tuple(int(count) for count in case.rng.integers(0, 3, 8))
    value = Scalar(dtype, 0.25 if dtype.is_float else dtype.min)
    y = case.graph.add(Pad(value, paddings, mode), x)
    case.check(y, case.graph.add(Pad(value, (0,) * 8, mode), x))


@pytest.mark.parametrize("seed", SEEDS)
def test_repetition(seed: int) -> None:
    case, dtype = draw_case(seed)
    x = case.tensor(dtype, case.shape(4, 5))
    tiled = case.graph.add(Tile(tuple(int(count) for count in case.rng.integers(1, 4, 4))), x)
    case.check(tiled, case.graph.add(Upsample(2), x), case.graph.add(Upsample(3), x), case.graph.add(Upsample(1), x))


@pytest.mark.parametrize("seed", SEEDS)
def test_channels_change_places(seed: int) -> None:
    case, dtype = draw_case(seed)
    x = case.tensor(dtype, (2, 6, *case.shape(2)))
    shuffled = [case.graph.add(ChannelShuffle(groups), x) for groups in (1, 2, 3, 6)]
    moved = [case.graph.add(kind(num), x) for kind in (Lshift, Rshift, Clshift, Crshift) for num in (0, 2, 6, 8)]
    case.check(*shuffled, *moved, case.graph.add(Interleave(1, 3), x, case.tensor(dtype, x.shape)))


@pytest.mark.parametrize("size", [(1, 1), (5, 9), (14, 6), (40, 31)])
@pytest.mark.parametrize("options", [{}, {"half_pixel_centers": True}, {"align_corners": True}])
def test_nearest_pixel(size: tuple[int, int], options: dict[str, bool]) -> None:
    case = Drawing(7)
    results = []
    for dtype in (F32, U8):
        for channels in (1, 5):
            op = Interpolate(size=size, platform=PlatForm.TENSORFLOW, method=InterpolateMode.NEAREST, **options)
            results.append(case.graph.add(op, case.tensor(dtype, (2, channels, 7, 13))))
    case.check(*results)


def test_index_select() -> None:
    case = Drawing(8)
    x = case.tensor(F32, (4, 5, 6, 3))
    picks = [case.graph.constant(np.array(positions, np.int32)) for positions in ([2, 0, 0], [1])]
    case.check(*(case.graph.add(IndexSelect(dim), x, pick) for dim in range(4) for pick in picks))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_an_index_that_the_model_computes_fails_as_the_reference_does(dim: int) -> None:
    graph = Graph("g", "g.onnx")
    x = graph.input("x", TensorType(F32, (3, 4, 5)))
    index = graph.input("index", TensorType(I32, (3,)))
    graph.output(graph.add(IndexSelect(dim), x, index, name="picked"))
    extent = x.type.static_shape[dim]
    rng = np.random.default_rng(3)
    with Session(graph, backend="native", threads=2) as native, Session(graph, backend="reference") as reference:
        for wrong in (extent, -1, 2**31 - 1, -(2**31)):
            feeds = {"x": rng.random((3, 4, 5), np.float32), "index": np.array([0, wrong, -7], np.int32)}
            with pytest.raises(RunError) as expected:
                reference.run(feeds)
            for run in (native.run, native.profile):
                with pytest.raises(RunError) as found:
                    run(feeds)
                assert str(found.value) == str(expected.value)
        feeds["index"] = np.array([extent - 1, 0, 0], np.int32)
        np.testing.assert_array_equal(*(next(iter(run(feeds).values())) for run in (native.run, reference.run)))


def test_a_table_stays_where_it_lies() -> None:
    """Slices of a constant are read from its own memory: an embedding may be most of a model."""
    graph = Graph()
    table = graph.constant(np.random.default_rng(0).random((50_000, 16), np.float32))
    graph.output(graph.add(IndexSelect(0), table, graph.input("index", TensorType(I32, (4,)))))
    plan = NativePlan(graph, "bm1686", available_isas()[0], 1)
    assert not plan.reference_nodes
    tracemalloc.start()
    NativePlan(graph, "bm1686", available_isas()[0], 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < table.array.nbytes / 4


def test_an_index_outside_fails_as_the_reference_does() -> None:
    case = Drawing(9)
    x = case.input(F32, (4, 5))
    case.graph.output(case.graph.add(IndexSelect(0), x, case.graph.constant(np.array([4], np.int32))))
    with pytest.raises(UsageError, match="outside"):
        check(case.graph, case.feeds)
