"""Integer convolutions of many shapes: remainders of rows, channels and depth of the register tiles."""

import numpy as np
import pytest

from tests.support.each import each
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.schema.arithmetic.convolution import Window
from tpuconvert.schema.arithmetic.integer_product import integer_convolution

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

SLACK = 64
INPUT_ZERO = 77
THREADS = (1, 2, 4)


def aligned(size):
    return (size + SLACK + 63) // 64 * 64


def run(step, buffers, result_bytes, threads):
    """Run a step on buffers of bytes. Return the last buffer, which receives the result."""
    module = native()
    sizes = [buffer.size for buffer in buffers] + [result_bytes]
    starts = np.cumsum([0, *map(aligned, sizes)])
    places = [("arena", int(start), size) for start, size in zip(starts, sizes, strict=False)]
    program = module.Program([step], places, [], int(starts[-1]), threads)
    memory = program.make_memory()
    for index, buffer in enumerate(buffers):
        memory.read(program, index)[:] = buffer.ravel()
    memory.read(program, len(buffers))[:] = 0xA5
    program.run(memory, 0, 1)
    return memory.read(program, len(buffers)).copy()


class Case:
    """A convolution with random operands.

    Args:
        image: batch, height and width of the input.
        channels: input and output channels.
        kernel: height and width of the window.
        stride: step of the window, in both directions.
        pad: padding at the top and at the left.
        pad_end: padding at the bottom and at the right, `pad` by default.
        dilation: distance of the elements of the window.
        groups: number of groups of channels.
    """

    def __init__(self, image, channels, kernel=1, *, stride=1, pad=0, pad_end=None, dilation=1, groups=1):
        self.rng = np.random.default_rng([*image, *channels, kernel, stride, pad, dilation, groups])
        pad_end = pad if pad_end is None else pad_end
        self.batch, height, width = image
        self.inputs, self.outputs = channels
        self.rows, self.columns = (
            (extent + pad + pad_end - dilation * (kernel - 1) - 1) // stride + 1 for extent in (height, width)
        )
        extents = {"batch": self.batch, "height": height, "width": width, "in_channels": self.inputs}
        extents |= {"out_height": self.rows, "out_width": self.columns, "out_channels": self.outputs, "groups": groups}
        extents |= {"kernel_h": kernel, "kernel_w": kernel, "stride_h": stride, "stride_w": stride}
        extents |= {"dilation_h": dilation, "dilation_w": dilation, "pad_top": pad, "pad_left": pad}
        self.extents = extents | {
            "in_pixel": self.inputs,
            "in_row": self.inputs * width,
            "in_image": self.inputs * width * height,
        }
        self.x = self.rng.integers(0, 256, (self.batch, height, width, self.inputs), np.uint8)
        shape = (self.outputs, self.inputs // groups, kernel, kernel)
        self.weights = self.rng.integers(-128, 128, shape).astype(np.int8)
        self.bias = self.rng.integers(-9000, 9000, self.outputs).astype(np.int32)
        window = Window((kernel, kernel), (stride, stride), (dilation, dilation), (pad, pad, pad_end, pad_end), groups)
        sums = integer_convolution(self.x.transpose(0, 3, 1, 2), self.weights, window, x_zero=INPUT_ZERO)
        self.sums = (sums.astype(np.int64) + self.bias[:, None, None]).transpose(0, 2, 3, 1)

    @property
    def pixels(self):
        return self.batch * self.rows * self.columns

    def geometry(self, item=1):
        pixel = self.outputs * item
        strides = {"out_pixel": pixel, "out_row": pixel * self.columns, "out_image": pixel * self.columns * self.rows}
        return native().ConvGeometry(**self.extents | strides)

    def step(self, isa, epilogue, item=1, **given):
        module = native()
        spec = module.ConvInt8Spec(
            input=module.Place(0, 0),
            output=module.Place(2 if "residual" in given else 1, 0),
            geometry=self.geometry(item),
            weights=self.weights,
            epilogue=module.Epilogue(epilogue, self.outputs),
            input_zero=INPUT_ZERO,
            bias=self.bias,
            **given,
        )
        return module.conv_int8(spec, isa)

    def bytes_of_sums(self, isa, threads):
        epilogue = native().EpilogueSpec(low=-(2**31), high=2**31 - 1, bytes=4)
        found = run(self.step(isa, epilogue, 4), [self.x], 4 * self.pixels * self.outputs, threads)
        return found.view(np.int32).reshape(self.sums.shape)


SHAPES = [
    *(pytest.param((1, 1, rows), (64, 64), {}, id=f"rows{rows}") for rows in (*range(1, 18), 31, 32, 33, 49, 113)),
    *(
        pytest.param((1, 3, 7), (40, outputs), {}, id=f"outputs{outputs}")
        for outputs in (1, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 49, 63, 64, 65, 80, 81, 96, 97, 112, 128, 144, 190)
    ),
    *(
        pytest.param((2, 3, 7), (inputs, 24), {}, id=f"inputs{inputs}")
        for inputs in (1, 2, 3, 4, 5, 15, 16, 60, 61, 63, 64, 65, 66, 68, 96, 127, 128, 129, 192, 193, 260, 1025)
    ),
    *(
        pytest.param((2, size, size), (inputs, 48), {"kernel": 3, "pad": 1}, id=f"window{size}x{inputs}")
        for size in (3, 7, 13, 14, 16, 17, 20, 28)
        for inputs in (3, 24, 32, 64, 66)
    ),
    pytest.param((1, 15, 15), (64, 80), {"kernel": 3, "pad": 1, "stride": 2}, id="stride"),
    pytest.param((2, 14, 14), (33, 64), {"kernel": 1, "stride": 2}, id="pointwise with stride"),
    pytest.param((1, 23, 23), (3, 64), {"kernel": 7, "pad": 3, "stride": 2}, id="first layer"),
    pytest.param((1, 12, 26), (16, 32), {"kernel": 3, "pad": 2, "dilation": 2}, id="dilation"),
    pytest.param((1, 9, 14), (64, 64), {"kernel": 3, "pad": 1, "groups": 2}, id="groups"),
    pytest.param((1, 9, 6), (132, 66), {"kernel": 3, "pad": 1, "groups": 2}, id="groups with a remainder"),
    pytest.param((2, 9, 14), (32, 64), {"kernel": 3, "pad": 1, "groups": 16}, id="merged groups"),
    pytest.param((1, 5, 5), (64, 32), {"kernel": 3, "pad": 4}, id="windows in the padding"),
    # Only the last windows of a row leave the input.
    pytest.param((1, 6, 64), (32, 48), {"kernel": 3, "pad_end": 1, "stride": 2}, id="padding at the end"),
    pytest.param((1, 6, 14), (28, 8), {"kernel": 3, "pad_end": 2, "groups": 2}, id="groups with padding at the end"),
]


@pytest.mark.parametrize("isa", available_isas())
@each("image, channels, options", SHAPES)
def test_sums(image, channels, options, isa):
    case = Case(image, channels, **options)
    for threads in THREADS:
        np.testing.assert_array_equal(case.bytes_of_sums(isa, threads), case.sums)


SOME = [
    ((1, 1, 37), (72, 144), {}),
    ((2, 14, 14), (64, 80), {"kernel": 3, "pad": 1}),
    ((1, 7, 7), (65, 64), {"kernel": 3, "pad": 1}),
    ((1, 6, 9), (24, 16), {}),
    ((1, 6, 9), (24, 25), {}),
    ((1, 7, 9), (24, 40), {}),
    ((1, 7, 9), (24, 8), {}),
]


def epilogue_of(case, kind):
    """Return the epilogue of a kind, and its results for the sums of a case."""
    module, scale = native(), 2.0**-7 * 64 / case.inputs
    bits = 35
    if kind == "words":
        bits -= 7
    multiplier = case.rng.integers(int(scale * 2 ** (bits - 1)), int(scale * 2**bits), case.outputs)
    limits = {"low": 3, "high": 250}
    if kind == "exact factor":  # 8 significant bits: one float factor is exact
        multiplier = multiplier >> 20 << 20
    if kind == "words":
        limits = {"low": -30000, "high": 32000, "bytes": 2}
    given = {"multiplier": multiplier.astype(np.int32), "offset": np.full(case.outputs, 120, np.int32)}
    if kind == "two roundings":
        given |= {"rescale": module.Rescale.TWO_ROUNDINGS, "shift": np.full(case.outputs, 31 - bits)}
    else:
        given |= {"rescale": module.Rescale.ONE_ROUNDING, "shift": np.full(case.outputs, -bits)}
    if kind == "lookup table":
        given["lut"] = case.rng.permutation(256).astype(np.uint8)
    return module.EpilogueSpec(**given, **limits)


def results_of(case, epilogue, isa, threads, item=1, **given):
    buffers = [case.x, given["other"]] if "other" in given else [case.x]
    residual = {"residual": given["residual"]} if "residual" in given else {}
    return run(case.step(isa, epilogue, item, **residual), buffers, case.pixels * case.outputs * item, threads)


@pytest.mark.parametrize("kind", ["exact factor", "one rounding", "two roundings", "lookup table", "words"])
@pytest.mark.parametrize(("image", "channels", "options"), SOME)
def test_epilogues(image, channels, options, kind):
    """Every instruction set has the bytes of the scalar implementation."""
    case = Case(image, channels, **options)
    epilogue, item = epilogue_of(case, kind), 2 if kind == "words" else 1
    expected = results_of(case, epilogue, "scalar", 1, item)
    assert len(np.unique(expected)) > 50
    for isa in available_isas():
        for threads in THREADS:
            found = results_of(case, epilogue, isa, threads, item)
            np.testing.assert_array_equal(found, expected, f"{isa}, {threads} threads")


@pytest.mark.parametrize("kind", ["exact factor", "one rounding"])
@pytest.mark.parametrize(("image", "channels", "options"), SOME)
def test_residual_adds(image, channels, options, kind):
    case = Case(image, channels, **options)
    epilogue = epilogue_of(case, kind)
    strides = {"pixel": case.outputs, "row": case.outputs * case.columns}
    residual = native().ResidualSpec(
        other=native().Place(1, 0),
        **strides | {"image": case.outputs * case.columns * case.rows},
        factor=case.rng.integers(50, 90, case.outputs).astype(np.int32),
        other_factor=case.rng.integers(50, 90, case.outputs).astype(np.int32),
        offset=case.rng.integers(-3000, 3000, case.outputs).astype(np.int32),
        shift=7,
        low=5,
        high=240,
    )
    other = case.rng.integers(0, 256, case.pixels * case.outputs).astype(np.uint8)
    given = {"residual": residual, "other": other}
    expected = results_of(case, epilogue, "scalar", 1, **given)
    assert len(np.unique(expected)) > 50
    for isa in available_isas():
        for threads in THREADS:
            found = results_of(case, epilogue, isa, threads, **given)
            np.testing.assert_array_equal(found, expected, f"{isa}, {threads} threads")
