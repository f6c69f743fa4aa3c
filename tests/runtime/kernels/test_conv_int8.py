"""The step of an integer convolution, made directly: what it computes, and that it never leaves its buffers."""

import numpy as np
import pytest

from tests.support.each import each
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.runtime.native.matchers.convolution import axis_phases
from tpuconvert.schema.arithmetic.convolution import Window
from tpuconvert.schema.arithmetic.integer_product import integer_convolution

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

HEIGHT, WIDTH, IN, OUT = 5, 6, 7, 9
INPUT, OUTPUT = 3 + 80 * (HEIGHT - 1) + 11 * (WIDTH - 1) + IN, 2 + 100 * (HEIGHT - 1) + 13 * (WIDTH - 1) + OUT
SLACK = 64


def geometry_of(**changes):
    """A 3x3 convolution whose input and output are slices of wider tensors, in channels and in rows."""
    contiguous = {
        "height": HEIGHT,
        "width": WIDTH,
        "in_channels": IN,
        "out_height": HEIGHT,
        "out_width": WIDTH,
        "out_channels": OUT,
        "kernel_h": 3,
        "kernel_w": 3,
        "pad_top": 1,
        "pad_left": 1,
        "in_pixel": 11,
        "in_row": 80,
        "out_pixel": 13,
        "out_row": 100,
    }
    return native().ConvGeometry(**contiguous | changes)


def step_of(geometry, weights, isa="scalar", *, input_at=3, **given):
    module = native()
    epilogue = given.pop("epilogue", module.Epilogue(module.EpilogueSpec(offset=[20]), OUT))
    spec = module.ConvInt8Spec(
        input=module.Place(0, input_at),
        output=module.Place(1, 2),
        geometry=geometry,
        weights=weights,
        epilogue=epilogue,
        **given,
    )
    return module.conv_int8(spec, isa)


def run(step, data, threads=1):
    """The bytes of the output buffer, which held 0xA5 before."""
    module = native()
    sizes = len(data), OUTPUT
    starts = 0, (sizes[0] + SLACK + 63) // 64 * 64
    total = starts[1] + (sizes[1] + SLACK + 63) // 64 * 64
    buffers = [("arena", start, size) for start, size in zip(starts, sizes, strict=True)]
    program = module.Program([step], buffers, [], total, threads)
    memory = program.make_memory()
    memory.read(program, 0)[:] = data
    memory.read(program, 1)[:] = 0xA5
    program.run(memory, 0, 1)
    return memory.read(program, 1).copy()


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_slices_of_wider_tensors(isa, threads):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, INPUT, np.uint8)
    weights = rng.integers(-3, 4, (OUT, IN, 3, 3)).astype(np.int8)
    got = run(step_of(geometry_of(), weights, isa, input_zero=5), data, threads)

    x = np.lib.stride_tricks.as_strided(data[3:], (1, IN, HEIGHT, WIDTH), (0, 1, 80, 11))
    window = Window((3, 3), pads=(1, 1, 1, 1))
    sums = integer_convolution(x, weights, window, x_zero=5)
    expected = np.full(OUTPUT, 0xA5, np.uint8)
    view = np.lib.stride_tricks.as_strided(expected[2:], (1, OUT, HEIGHT, WIDTH), (0, 1, 100, 13))
    view[:] = np.clip(sums + 20, 0, 255)
    np.testing.assert_array_equal(got, expected)


EDGES = [
    {"size": 7, "kernel": 3, "pad": 1},
    {"size": 14, "kernel": 3, "pad": 1, "stride": 2},
    {"size": 6, "kernel": 3, "pad": 4},  # some windows are entirely in the padding
    {"size": 9, "kernel": 3, "pad": 2, "dilation": 2},
    {"size": 11, "kernel": 5, "pad": 2},
    {"size": 8, "kernel": 7, "pad": 3, "stride": 2},
    {"size": 3, "kernel": 5, "pad": 2},  # no result sees the whole window
]


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [(8, 64), (32, 24), (3, 40), (3, 64), (64, 192)])
@each("edges", EDGES)
def test_windows_that_leave_the_input(edges, channels, threads, isa):
    """Two images, whose results at the edges need only a part of the window."""
    size, kernel, pad = edges["size"], edges["kernel"], edges["pad"]
    stride, dilation = edges.get("stride", 1), edges.get("dilation", 1)
    results = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    (inputs, outputs), module = channels, native()
    extents = {"batch": 2, "height": size, "width": size, "in_channels": inputs}
    extents |= {"out_height": results, "out_width": results, "out_channels": outputs}
    window = {"kernel_h": kernel, "kernel_w": kernel, "stride_h": stride, "stride_w": stride}
    window |= {"dilation_h": dilation, "dilation_w": dilation, "pad_top": pad, "pad_left": pad}
    strides = {"in_pixel": inputs, "in_row": inputs * size, "in_image": inputs * size * size}
    strides |= {"out_pixel": outputs, "out_row": outputs * results, "out_image": outputs * results * results}
    geometry = module.ConvGeometry(**extents | window | strides)

    rng = np.random.default_rng([size, kernel, inputs, outputs])
    x = rng.integers(0, 256, (2, size, size, inputs), np.uint8)
    weights = rng.integers(-128, 128, (outputs, inputs, kernel, kernel)).astype(np.int8)
    multiplier, shift = rng.integers(2**23, 2**24, outputs), np.full(outputs, -36)
    bias = rng.integers(-9000, 9000, outputs).astype(np.int32)
    rescale = module.EpilogueSpec(
        rescale=module.Rescale.ONE_ROUNDING,
        multiplier=multiplier.astype(np.int32),
        shift=shift.astype(np.int32),
        offset=np.full(outputs, 100, np.int32),
    )
    spec = module.ConvInt8Spec(
        input=module.Place(0, 0),
        output=module.Place(1, 0),
        geometry=geometry,
        weights=weights,
        epilogue=module.Epilogue(rescale, outputs),
        input_zero=77,
        bias=bias,
    )
    step = module.conv_int8(spec, isa)
    sizes = x.size, 2 * outputs * results * results
    start = (sizes[0] + SLACK + 63) // 64 * 64
    buffers = [("arena", 0, sizes[0]), ("arena", start, sizes[1])]
    program = module.Program([step], buffers, [], start + (sizes[1] + SLACK + 63) // 64 * 64, threads)
    memory = program.make_memory()
    memory.read(program, 0)[:] = x.ravel()
    program.run(memory, 0, 1)

    by_axis = Window((kernel, kernel), (stride, stride), (dilation, dilation), (pad,) * 4)
    sums = integer_convolution(x.transpose(0, 3, 1, 2), weights, by_axis, x_zero=77).astype(np.int64)
    sums += bias[:, None, None]
    expected = np.clip((sums * multiplier[:, None, None] + (201 << 35)) >> 36, 0, 255)
    np.testing.assert_array_equal(
        memory.read(program, 1).reshape(2, results, results, outputs), expected.transpose(0, 2, 3, 1)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"height": 0},
        {"stride_h": 0},
        {"dilation_w": -1},
        {"pad_top": -1},
        {"groups": 2},
        {"groups": 0},
        {"in_pixel": -11},
        {"out_pixel": OUT - 1},
        {"in_row": 1 << 40},
        {"in_image": 1 << 62, "batch": 3},
        {"out_row": (1 << 63) - 1},
        {"dilation_h": 1 << 30, "stride_h": 1 << 30},
        {"out_height": (1 << 31) - 1, "out_width": (1 << 31) - 1},
        {"kernel_h": 5},
    ],
)
def test_geometries_that_do_not_fit_are_refused(changes):
    with pytest.raises(ValueError, match="conv_int8"):
        step_of(geometry_of(**changes), np.zeros((OUT, IN, 3, 3), np.int8))


@pytest.mark.parametrize(
    "changes", [{"height": HEIGHT + 1}, {"width": WIDTH + 8}, {"in_row": 81}, {"out_height": 6}, {"out_row": 101}]
)
def test_a_step_that_would_leave_its_buffers_is_refused(changes):
    with pytest.raises(ValueError, match="leave its buffer"):
        run(step_of(geometry_of(**changes), np.zeros((OUT, IN, 3, 3), np.int8)), np.zeros(INPUT, np.uint8))


def test_sums_that_may_leave_32_bits_are_refused():
    module = native()
    channels = 70_000
    geometry = module.ConvGeometry(in_channels=channels, out_channels=1, in_pixel=channels, out_pixel=1)
    weights = np.full((1, channels, 1, 1), 127, np.int8)
    epilogue = module.Epilogue(module.EpilogueSpec(), 1)
    with pytest.raises(OverflowError, match="32 bits"):
        step_of(geometry, weights, epilogue=epilogue)
    step_of(geometry, weights // 2, epilogue=epilogue)


@pytest.mark.parametrize(
    "given",
    [
        {"input_zero": 256},
        {"bias": np.zeros(OUT - 1, np.int32)},
        {"weight_zero": np.zeros(2, np.int32)},
        {"weight_zero": np.full(1, 128, np.int32)},
    ],
)
def test_parameters_that_do_not_fit_are_refused(given):
    with pytest.raises(ValueError, match="conv_int8"):
        step_of(geometry_of(), np.zeros((OUT, IN, 3, 3), np.int8), **given)


@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (3, 1), (5, 7), (2**31 - 1, 0), (2**31 - 1, 2**30)])
def test_phases_of_transposed_convolutions_cover_every_result_once(stride, pad):
    """A stride that a file states may be any number: phases without results must not even be counted."""
    results = 6
    found = axis_phases(4, results, 3, stride, pad)
    covered = [phase.start + stride * index for phase in found for index in range(phase.count)]
    assert sorted(covered) == list(range(results))


@pytest.mark.parametrize("stride", [2**30, 2**31 - 1])
def test_a_row_of_one_result_may_have_any_stride(stride):
    """Only results have coordinates: the offsets of a stride's further multiples would leave 32 bits."""
    rng = np.random.default_rng(5)
    several_tiles = {"batch": 6, "in_image": 0, "out_row": OUT, "out_image": HEIGHT * OUT}
    pixel = {"kernel_h": 1, "kernel_w": 1, "pad_top": 0, "pad_left": 0}
    geometry = geometry_of(out_width=1, stride_w=stride, **several_tiles, **pixel)
    weights = rng.integers(-127, 128, (OUT, IN, 1, 1)).astype(np.int8)
    data = rng.integers(0, 256, INPUT).astype(np.uint8)
    expected, *others = [run(step_of(geometry, weights, isa), data) for isa in available_isas()]
    assert (expected != 0xA5).any() and all(np.array_equal(found, expected) for found in others)
