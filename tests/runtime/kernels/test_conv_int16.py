"""Convolutions with 16-bit weights of many shapes: remainders of rows, channels and depth, bands, and windows."""

import numpy as np
import pytest

from tests.runtime.kernels.test_register_tiles import run
from tests.support.each import each
from tests.support.paired import paired
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.schema.arithmetic.convolution import Window
from tpuconvert.schema.arithmetic.integer_product import integer_convolution

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

LARGEST_WORD = 32639
BYTE_ZERO = 77
THREADS = (1, 3)
SHIFT = 40


class Case:
    """A convolution with random operands and its results. The options describe the window."""

    def __init__(self, image, channels, is_wide, *, kernel=1, stride=1, pad=0, dilation=1, groups=1):
        batch, height, width = image
        inputs, outputs = channels
        self.rng = np.random.default_rng([*image, *channels, is_wide, kernel, stride, pad, dilation, groups])
        rows, columns = ((extent + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for extent in (height, width))
        self.is_wide, self.outputs = is_wide, outputs
        self.shape = batch, rows, columns, outputs
        item = 2 if is_wide else 1
        self.extents = {"batch": batch, "height": height, "width": width, "in_channels": inputs, "groups": groups}
        self.extents |= {"out_height": rows, "out_width": columns, "out_channels": outputs}
        self.extents |= {"kernel_h": kernel, "kernel_w": kernel, "stride_h": stride, "stride_w": stride}
        self.extents |= {"dilation_h": dilation, "dilation_w": dilation, "pad_top": pad, "pad_left": pad}
        pixel = inputs * item
        self.extents |= {"in_pixel": pixel, "in_row": pixel * width, "in_image": pixel * width * height}
        size = (batch, height, width, inputs)
        if is_wide:
            self.x = self.rng.integers(-32768, 32768, size).astype(np.int16)
            ends = self.rng.choice(np.array([-32768, -129, -128, 127, 128, 32639, 32640, 32767], np.int16), size)
            self.x = np.where(self.rng.random(size) < 0.2, ends, self.x)
        else:
            self.x = self.rng.integers(0, 256, size).astype(np.uint8)
        weights = (outputs, inputs // groups, kernel, kernel)
        # The sums of channel 0 are close to the largest ones.
        length = int(np.prod(weights[1:]))
        largest, rest = (33024, 1 << 14) if is_wide else (256 * 178, 128 * 178)  # of a product with high and low bytes
        most = min(127, max(1, ((1 << 31) - (1 << 22) - length * rest) // (length * largest)))
        self.high = self.rng.integers(-most, most + 1, weights).astype(np.int8)
        self.high[0] = most
        self.low = self.rng.integers(-128, 128, weights).astype(np.int8)
        self.bias = self.rng.integers(-(1 << 20), 1 << 20, outputs).astype(np.int32)
        self.window = Window((kernel, kernel), (stride, stride), (dilation, dilation), (pad,) * 4, groups)

    def product(self, x, weights):
        sums = integer_convolution(x.transpose(0, 3, 1, 2).astype(np.int16), weights, self.window)
        return sums.astype(np.int64).transpose(0, 2, 3, 1)

    def sums(self):
        if not self.is_wide:
            x = self.x.astype(np.int16) - BYTE_ZERO
            return 256 * self.product(x, self.high) + self.product(x, self.low) + self.bias
        words = np.minimum(self.x, LARGEST_WORD).astype(np.int32)
        return self.product(words, self.high) + self.product((words + 128) >> 8, self.low) + self.bias

    def expected(self, multiplier, second, second_shift, ending):
        """Results of one rounding to 16 bits, and then perhaps to bytes or float32."""
        words = np.clip((self.sums() * multiplier + (1 << (SHIFT - 1))) >> SHIFT, -32768, 32767)
        if ending == "words":
            return words.astype(np.int16)
        stored = np.clip(((words * second + (1 << (second_shift - 1))) >> second_shift) + 128, 3, 250)
        return stored.astype(np.uint8) if ending != "reals" else (stored - 5).astype(np.float32) * np.float32(0.37)

    def step(self, isa, ending):
        """Return the step, the multipliers of both roundings, and the shift of the second one."""
        module = native()
        item = {"words": 2, "reals": 4}.get(ending, 1)
        bound = max(1, int(np.abs(self.sums()).max()))
        multiplier = self.rng.integers(1 << 53, 1 << 55, self.outputs) // bound
        multiplier = np.minimum(multiplier, (1 << 31) - 1)
        bits = 30 if ending == "bytes by 30 bits" else 24  # float32 represents 24 bits exactly
        second, second_shift = self.rng.integers(1 << (bits - 1), 1 << bits, self.outputs) << (30 - bits), 37
        common = {"rescale": module.Rescale.ONE_ROUNDING, "rounding": 5}
        first = module.EpilogueSpec(
            multiplier=multiplier.astype(np.int32), shift=np.array([-SHIFT], np.int32), offset=np.array([0], np.int32),
            low=-32768, high=32767, bytes=2, **common,
        )  # fmt: skip
        reals = {"dequantize": (5, 0.37), "bytes": 4} if ending == "reals" else {"bytes": 1}
        last = module.EpilogueSpec(
            multiplier=second.astype(np.int32), shift=np.array([-second_shift], np.int32),
            offset=np.array([128], np.int32), low=3, high=250, **reals, **common,
        )  # fmt: skip
        _, rows, columns, outputs = self.shape
        pixel = outputs * item
        strides = {"out_pixel": pixel, "out_row": pixel * columns, "out_image": pixel * columns * rows}
        spec = module.ConvInt16Spec(
            input=module.Place(0, 0), output=module.Place(1, 0), geometry=module.ConvGeometry(**self.extents | strides),
            is_wide=self.is_wide, high=self.high, low=self.low, bias=self.bias,
            input_zero=0 if self.is_wide else BYTE_ZERO,
            epilogue=module.Epilogue(first, outputs),
            second=None if ending == "words" else module.Epilogue(last, outputs),
        )  # fmt: skip
        return module.conv_int16(spec, isa), multiplier, second, second_shift

    def check(self, isa, ending):
        step, *rescales = self.step(isa, ending)
        expected = self.expected(*rescales, ending)
        assert len(np.unique(expected)) > min(20, expected.size // 8)
        for threads in THREADS:
            found = run(step, [self.x.view(np.uint8)], expected.nbytes, threads)
            np.testing.assert_array_equal(found.view(expected.dtype).reshape(expected.shape), expected)


DEPTHWISE = ({"kernel": 3, "pad": 1}, {"kernel": 3, "pad": 1, "stride": 2}, {"kernel": 5, "pad": 1})
SHAPES = [
    *(pytest.param((1, 1, rows), (32, 32), {}, id=f"rows{rows}") for rows in (*range(1, 14), 31, 32, 33, 49, 113)),
    *(
        pytest.param((1, 3, 7), (20, outputs), {}, id=f"outputs{outputs}")
        for outputs in (1, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 100)
    ),
    *(
        pytest.param((2, 3, 7), (inputs, 24), {}, id=f"inputs{inputs}")
        for inputs in (1, 2, 3, 4, 5, 15, 16, 61, 63, 64, 65, 66, 68, 127, 128, 129, 260, 600)
    ),
    *(
        pytest.param((2, size, size), (inputs, 18), {"kernel": 3, "pad": 1}, id=f"window{size}x{inputs}")
        for size in (3, 7, 13, 17, 28)
        for inputs in (3, 8, 22)
    ),
    pytest.param((1, 40, 41), (24, 16), {}, id="several bands"),
    pytest.param((1, 3, 1500), (24, 16), {}, id="several bands of a row"),
    pytest.param((1, 15, 15), (24, 40), {"kernel": 3, "pad": 1, "stride": 2}, id="stride"),
    pytest.param((2, 14, 14), (33, 20), {"stride": 2}, id="pointwise with stride"),
    pytest.param((1, 23, 23), (3, 33), {"kernel": 7, "pad": 3, "stride": 2}, id="first layer"),
    pytest.param((1, 12, 26), (16, 32), {"kernel": 3, "pad": 2, "dilation": 2}, id="dilation"),
    pytest.param((1, 9, 6), (42, 66), {"kernel": 3, "pad": 1, "groups": 2}, id="groups"),
    pytest.param((1, 5, 5), (16, 20), {"kernel": 3, "pad": 4}, id="windows in the padding"),
    *(
        pytest.param((2, 11, 12), (count, count), options | {"groups": count}, id=f"depthwise{count}-{index}")
        for count in (1, 3, 8, 16, 20, 32, 50, 4099)
        for index, options in enumerate(DEPTHWISE)
        if count < 1000 or index == 0
    ),
    pytest.param((1, 130, 40), (8, 8), {"kernel": 3, "pad": 1, "groups": 8}, id="depthwise bands"),
    pytest.param((1, 21, 22), (16, 16), {"kernel": 3, "pad": 2, "dilation": 2, "groups": 16}, id="depthwise dilation"),
    pytest.param((1, 21, 22), (16, 16), {"kernel": 3, "pad": 2, "stride": 3, "groups": 16}, id="depthwise stride 3"),
]  # fmt: skip


@pytest.mark.parametrize(("isa", "is_wide"), paired(available_isas(), [True, False]))
@each("image, channels, options", SHAPES)
def test_words(image, channels, options, is_wide, isa):
    Case(image, channels, is_wide, **options).check(isa, "words")


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("is_wide", [True, False], ids=["words", "bytes"])
@pytest.mark.parametrize("ending", ["bytes", "bytes by 30 bits", "reals"])
def test_second_requantizations(ending, is_wide, isa):
    for image, channels, options in [
        ((1, 5, 9), (16, 50), {}),
        ((1, 9, 9), (16, 16), {"kernel": 3, "pad": 1, "groups": 16}),
    ]:
        Case(image, channels, is_wide, **options).check(isa, ending)
