"""The Winograd convolution: its results, the bound of its sums, and the choice of the kernel."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.each import each
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.arithmetic.convolution import Window
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.arithmetic.integer_product import integer_convolution
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")


@pytest.fixture
def avx512(monkeypatch):
    """Select AVX512-VNNI: the choice of the kernel depends on the instruction set."""
    if "avx512vnni" not in available_isas():
        pytest.skip("the processor has no AVX512-VNNI")
    monkeypatch.setenv("TPUCONVERT_ISA", "avx512vnni")


SLACK = 64
LARGEST_EXTREME = 114
"""Most input channels for which 255 * 9 * 128 per channel stays below 2^25."""


def geometry_of(batch, height, width, inputs, outputs, pads, result_bytes=1):
    """A dense 3x3 convolution; pads are (top, left, bottom, right)."""
    rows, columns = height + pads[0] + pads[2] - 2, width + pads[1] + pads[3] - 2
    pixel = outputs * result_bytes
    return native().ConvGeometry(
        batch=batch,
        height=height,
        width=width,
        in_channels=inputs,
        out_height=rows,
        out_width=columns,
        out_channels=outputs,
        kernel_h=3,
        kernel_w=3,
        pad_top=pads[0],
        pad_left=pads[1],
        in_pixel=inputs,
        in_row=inputs * width,
        in_image=inputs * width * height,
        out_pixel=pixel,
        out_row=pixel * columns,
        out_image=pixel * columns * rows,
    ), (batch, rows, columns, outputs)


def sums_epilogue(outputs):
    """Stores the 32-bit sums."""
    module = native()
    spec = module.EpilogueSpec(low=-(2**31), high=2**31 - 1, bytes=4)
    return module.Epilogue(spec, outputs)


def run(kernel, isa, x, weights, pads, *, threads=1, epilogue=None, result_bytes=4, other=None, **given):
    """The result of one step, [N, H, W, bytes]."""
    module = native()
    batch, height, width, inputs = x.shape
    outputs = len(weights)
    geometry, shape = geometry_of(batch, height, width, inputs, outputs, pads, result_bytes)
    spec = module.ConvInt8Spec(
        input=module.Place(0, 0),
        output=module.Place(1, 0),
        geometry=geometry,
        weights=weights,
        epilogue=epilogue or sums_epilogue(outputs),
        residual=None if other is None else residual_of(shape, given.pop("factors")),
        **given,
    )
    step = getattr(module, kernel)(spec, isa)
    sizes = [x.size, int(np.prod(shape)) * result_bytes, int(np.prod(shape))]
    starts = np.cumsum([0, *((size + SLACK + 63) // 64 * 64 for size in sizes)]).tolist()
    buffers = [("arena", start, size) for start, size in zip(starts, sizes, strict=False)]
    program = module.Program([step], buffers, [], starts[-1], threads)
    memory = program.make_memory()
    memory.read(program, 0)[:] = x.ravel()
    memory.read(program, 1)[:] = 0xA5
    if other is not None:
        memory.read(program, 2)[:] = other.ravel()
    program.run(memory, 0, 1)
    return memory.read(program, 1).copy().reshape(*shape[:3], -1)


def residual_of(shape, factors):
    """A residual add of a dense tensor."""
    module, (_, rows, columns, outputs) = native(), shape
    strides = {"pixel": outputs, "row": outputs * columns, "image": outputs * columns * rows}
    values = {"factor": factors[0], "other_factor": factors[1], "offset": [1 << 13]}
    return module.ResidualSpec(other=module.Place(2, 0), **strides, **values, shift=14, low=3, high=250)


def expected_sums(x, weights, pads, zero=0, weight_zeros=0):
    """Sums by the reference of the operator set, [N, H, W, C]."""
    window = Window((3, 3), pads=pads)
    sums = integer_convolution(x.transpose(0, 3, 1, 2), weights, window, x_zero=zero, w_zero=weight_zeros)
    return sums.astype(np.int64).transpose(0, 2, 3, 1)


SHAPES = [
    # batch, height, width, inputs, outputs, pads
    (1, 4, 4, 32, 64, (1, 1, 1, 1)),
    (2, 7, 9, 33, 65, (1, 1, 1, 1)),
    (1, 3, 3, 1, 1, (0, 0, 0, 0)),
    (1, 1, 1, 5, 8, (1, 1, 1, 1)),
    (1, 14, 13, 40, 50, (1, 0, 2, 1)),
    (3, 6, 5, 16, 130, (2, 2, 2, 2)),
    (1, 10, 30, 70, 36, (0, 3, 1, 0)),
    (1, 30, 34, 8, 16, (1, 1, 1, 1)),
    (1, 5, 6, 7, 20, (7, 8, 9, 6)),  # some tiles are entirely in the padding
    (1, 12, 12, 258, 24, (1, 1, 1, 1)),
]


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("threads", [1, 2, 4])
@each("shape", SHAPES)
def test_sums_equal_the_reference(shape, threads, isa):
    *extents, inputs, outputs, pads = shape
    rng = np.random.default_rng([*extents, inputs, outputs])
    x = rng.integers(0, 256, (*extents, inputs), np.uint8)
    weights = rng.integers(-60, 61, (outputs, inputs, 3, 3)).astype(np.int8)
    bias = rng.integers(-(2**30), 2**30, outputs).astype(np.int32)
    found = run("conv_int8_winograd", isa, x, weights, pads, threads=threads, input_zero=91, bias=bias)
    expected = expected_sums(x, weights, pads, 91) + bias
    np.testing.assert_array_equal(found.view(np.int32), expected)


def extremes(shape, kind, rng, low, high):
    """Arrays that reach the bounds of the transforms."""
    if kind == "low":
        return np.full(shape, low)
    if kind == "high":
        return np.full(shape, high)
    if kind == "random":
        return rng.choice([low, high], shape)
    return np.where(np.indices(shape).sum(axis=0) % 2, low, high)  # alternates along every axis


KINDS = ["low", "high", "alternating", "random"]


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("inputs", [1, 19, LARGEST_EXTREME])
def test_extreme_weights_and_inputs(inputs, isa):
    """Transformed values of up to 15 bits, whose products wrap modulo 2^32 many times."""
    rng = np.random.default_rng(inputs)
    for weight_kind, input_kind, zero in itertools.product(KINDS, KINDS, (0, 255)):
        weights = extremes((17, inputs, 3, 3), weight_kind, rng, -128, 127).astype(np.int8)
        x = extremes((1, 9, 6, inputs), input_kind, rng, 0, 255).astype(np.uint8)
        found = run("conv_int8_winograd", isa, x, weights, (1, 1, 1, 1), input_zero=zero).view(np.int32)
        expected = expected_sums(x, weights, (1, 1, 1, 1), zero)
        assert np.array_equal(found, expected), f"{weight_kind} weights, {input_kind} inputs, zero point {zero}"


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("zeros", [[-128], [127], [3, -128, 127, 0, 55]])
def test_weight_zero_points(zeros, isa):
    """Weights minus their zero point have 9 bits."""
    rng = np.random.default_rng(7)
    x = rng.integers(0, 256, (1, 8, 8, 21), np.uint8)
    weights = rng.choice([-128, 127, 5], (5, 21, 3, 3)).astype(np.int8)
    given = {"input_zero": 128, "weight_zero": np.asarray(zeros, np.int32)}
    found = run("conv_int8_winograd", isa, x, weights, (1, 1, 1, 1), **given).view(np.int32)
    np.testing.assert_array_equal(found, expected_sums(x, weights, (1, 1, 1, 1), 128, zeros))


def epilogues(rng, outputs):
    """Epilogues of every kind: (EpilogueSpec fields, bytes of a result)."""
    module = native()
    multiplier = rng.integers(2**29, 2**30, outputs).astype(np.int32)
    scale = {"multiplier": multiplier, "shift": np.full(outputs, -42, np.int32)}
    offset = {"offset": rng.integers(100, 140, outputs).astype(np.int32)}
    small = {"multiplier": np.full(outputs, 181, np.int32), "shift": np.full(outputs, -20, np.int32)}
    table = {"lut": rng.integers(0, 256, 256).astype(np.uint8)}
    one, two = {"rescale": module.Rescale.ONE_ROUNDING}, {"rescale": module.Rescale.TWO_ROUNDINGS}
    common = {"offset": [128]}
    return {
        "one rounding": (one | scale | offset, 1),
        "one factor": (one | small | common, 1),
        "one factor, limits, table": (one | small | common | table | {"low": 120, "high": 200}, 1),
        "two roundings": (two | scale | {"shift": np.full(outputs, -11, np.int32)} | common, 1),
        "half even": (one | small | common | {"rounding": int(RoundingMode.HALF_TO_EVEN)}, 1),
        "low precision": (
            {"rescale": module.Rescale.LOW_PRECISION, "scale": 0.0003, "narrow_low": -128, "narrow_high": 127} | common,
            1,
        ),
        "float": ({"rescale": module.Rescale.FLOAT, "scale": 0.0002} | common, 1),
        "words": (one | scale | {"low": -32768, "high": 32767, "bytes": 2}, 2),
        "dequantized": (one | small | {"low": -128, "high": 127, "bytes": 4, "dequantize": (3, 0.25)}, 4),
    }


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("outputs", [9, 30, 48, 130])
def test_epilogues_equal_those_of_the_direct_kernel(outputs, isa):
    rng = np.random.default_rng(outputs)
    module = native()
    x = rng.integers(0, 256, (1, 9, 10, 24), np.uint8)
    weights = rng.integers(-128, 128, (outputs, 24, 3, 3)).astype(np.int8)
    bias = rng.integers(-9000, 9000, outputs).astype(np.int32)
    for name, (fields, size) in epilogues(rng, outputs).items():
        epilogue = module.Epilogue(module.EpilogueSpec(**fields), outputs)
        given = {"epilogue": epilogue, "result_bytes": size, "input_zero": 100, "bias": bias}
        expected = run("conv_int8", "scalar", x, weights, (1, 1, 1, 1), **given)
        found = run("conv_int8_winograd", isa, x, weights, (1, 1, 1, 1), threads=2, **given)
        assert len(np.unique(expected)) > 20, name
        assert np.array_equal(found, expected), name


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("outputs", [9, 32, 48, 64, 100])
def test_residual_add_equals_that_of_the_direct_kernel(outputs, isa):
    rng = np.random.default_rng(outputs)
    module = native()
    x = rng.integers(0, 256, (2, 7, 6, 40), np.uint8)
    weights = rng.integers(-128, 128, (outputs, 40, 3, 3)).astype(np.int8)
    other = rng.integers(0, 256, (2, 7, 6, outputs), np.uint8)
    factors = rng.integers(-30000, 30000, outputs), rng.integers(-30000, 30000, outputs)
    for name, (fields, size) in epilogues(rng, outputs).items():
        if size != 1:
            continue
        epilogue = module.Epilogue(module.EpilogueSpec(**fields), outputs)
        given = {"epilogue": epilogue, "result_bytes": 1, "input_zero": 9, "other": other, "factors": factors}
        expected = run("conv_int8", "scalar", x, weights, (1, 1, 1, 1), **given)
        found = run("conv_int8_winograd", isa, x, weights, (1, 1, 1, 1), **given)
        assert np.array_equal(found, expected), name


def spec_of(weights, geometry):
    module = native()
    return module.ConvInt8Spec(
        input=module.Place(0, 0),
        output=module.Place(1, 0),
        geometry=geometry,
        weights=weights,
        epilogue=sums_epilogue(len(weights)),
    )


def test_sums_that_may_reach_the_bound_are_refused():
    module = native()
    for inputs, is_exact in ((LARGEST_EXTREME, True), (LARGEST_EXTREME + 1, False)):
        geometry, _ = geometry_of(1, 8, 8, inputs, 3, (1, 1, 1, 1), 4)
        weights = np.zeros((3, inputs, 3, 3), np.int8)
        weights[1] = -128
        spec = spec_of(weights, geometry)
        assert module.is_winograd_exact(spec) == is_exact
        if not is_exact:
            with pytest.raises(ValueError, match=r"a sum may reach 2\^25"):
                module.conv_int8_winograd(spec, "scalar")
    # Positive and negative weights do not add up: inputs are not negative.
    weights[1, ::2] = 127
    assert module.is_winograd_exact(spec_of(weights, geometry))


@pytest.mark.parametrize("changes", [{"stride_h": 2}, {"dilation_w": 2}, {"kernel_w": 1}, {"groups": 2}])
def test_other_windows_are_refused(changes):
    module = native()
    dense = {"in_channels": 8, "out_channels": 8, "kernel_h": 3, "kernel_w": 3, "in_pixel": 8, "out_pixel": 32}
    extents = {"height": 9, "width": 9, "out_height": 3, "out_width": 3, "in_row": 72, "out_row": 96}
    geometry = module.ConvGeometry(**dense | extents | changes)
    assert module.winograd_cost(geometry, "scalar") is None
    kernel = (3, 1) if "kernel_w" in changes else (3, 3)
    weights = np.zeros((8, 8 // changes.get("groups", 1), *kernel), np.int8)
    with pytest.raises(ValueError, match="expected a 3x3 window"):
        module.conv_int8_winograd(spec_of(weights, geometry), "scalar")


def network(channels=64, size=32, layers=2, weights_of=None):
    """3x3 convolutions with one requantization each."""
    rng = np.random.default_rng(3)
    weights_of = weights_of or (lambda shape: rng.integers(-40, 41, shape))
    graph = Graph("network")
    x = graph.input("x", TensorType(I8, (1, channels, size, size)))
    for _ in range(layers):
        weights = graph.constant(weights_of((channels, channels, 3, 3)).astype(np.int8))
        sums = graph.add(ConvV2(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1), x, weights)
        rescale = RequantInt32(multiplier_val=1 << 30, shift_val=-42, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8)
        x = graph.add(rescale, sums)
    graph.output(x)
    return graph


def kinds_of(session, size=32, channels=64):
    feed = {"x": np.random.default_rng(1).integers(-128, 128, (1, channels, size, size)).astype(np.int8)}
    return [step.kind for step in session.profile(feed)], next(iter(session.run(feed).values()))


def test_a_plan_uses_the_kernel_with_the_lower_cost(monkeypatch):
    for isa in available_isas():
        monkeypatch.setenv("TPUCONVERT_ISA", isa)
        cost = native().winograd_cost(geometry_of(1, 32, 32, 64, 64, (1, 1, 1, 1))[0], isa)
        kinds, found = kinds_of(Session(network(), backend="native", threads=1))
        assert ("winograd_int8 3x3" in kinds) == (cost.winograd < cost.direct), isa
        direct = Session(network(), backend="native", threads=1, memory_limit=600_000)
        np.testing.assert_array_equal(found, kinds_of(direct)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="how resident memory is read is Linux's")
def test_arena_and_scratch_areas_share_a_huge_page():
    """Each of them is larger than a quarter of a huge page: separate blocks would occupy two."""

    def resident():
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("RssAnon:")[1].split()[0])

    plan = NativePlan(network(size=96), "BM1686", available_isas()[-1], 4)
    before = resident()
    memories = [plan._program.make_memory(False) for _ in range(4)]
    each = (resident() - before) / len(memories)
    assert each < max(plan.arena_bytes + plan.scratch_bytes, 2 << 20) + (1 << 19)


def test_the_cost_is_a_function_of_the_shape():
    large, small = (geometry_of(1, size, size, 64, 64, (1, 1, 1, 1))[0] for size in (56, 4))
    for isa in available_isas():
        costs = [native().winograd_cost(each, isa) for each in (large, small, large)]
        assert (costs[0].direct, costs[0].winograd) == (costs[2].direct, costs[2].winograd)
        assert costs[0].weight_bytes == costs[1].weight_bytes == 36 * 64 * 64 * 2


@pytest.mark.skipif("amx" not in available_isas(), reason="the processor has no AMX")
@pytest.mark.parametrize(("size", "channels"), [(224, 64), (112, 128), (56, 64), (28, 256), (14, 512), (7, 512)])
def test_amx_stays_direct_where_avx512_may_not(size, channels):
    geometry = geometry_of(1, size, size, channels, channels, (1, 1, 1, 1))[0]
    costs = {isa: native().winograd_cost(geometry, isa) for isa in ("avx512vnni", "amx")}
    assert costs["amx"].direct < costs["amx"].winograd
    assert costs["amx"].direct < costs["avx512vnni"].direct


@pytest.mark.usefixtures("avx512")
def test_convolutions_without_a_proved_bound_stay_direct():
    """255 * 9 * 128 * 127 exceeds 2^25."""
    for value, kind in ((20, "winograd_int8 3x3"), (127, "conv_int8 3x3")):
        graph = network(128, layers=1, weights_of=lambda shape, value=value: np.full(shape, value))
        assert kind in kinds_of(Session(graph, backend="native", threads=1), channels=128)[0]


@pytest.mark.usefixtures("avx512")
def test_memory_limit():
    """Equal layers: the first ones are replaced as far as the limit permits."""

    def size_of(session):
        return sum(session.memory[name] for name in ("arena", "packed", "scratch"))

    with pytest.raises(UsageError, match=r"memory_limit=1: the plan needs \d+ bytes") as caught:
        Session(network(layers=3), backend="native", threads=1, memory_limit=1)
    least = int(str(caught.value.hint).rsplit(maxsplit=1)[-1])
    free = Session(network(layers=3), backend="native", threads=1)
    _, expected = kinds_of(free)
    counts = []
    for limit in np.linspace(least, size_of(free), 9).astype(int).tolist():
        session = Session(network(layers=3), backend="native", threads=1, memory_limit=limit)
        assert size_of(session) <= limit
        found, result = kinds_of(session)
        np.testing.assert_array_equal(result, expected)
        counts.append(found.count("winograd_int8 3x3"))
        convolutions = [kind for kind in found if "3x3" in kind]
        assert convolutions == ["winograd_int8 3x3"] * counts[-1] + ["conv_int8 3x3"] * (3 - counts[-1])
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3}
    with pytest.raises(UsageError):
        Session(network(layers=3), backend="native", threads=1, memory_limit=least - 1)
    with pytest.raises(UsageError, match="memory_limit=-1"):
        Session(network(), memory_limit=-1)
