"""Results of an integer convolution at the thresholds: the smallest sum of each result, and the sum below it."""

import ctypes
import ctypes.util
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from tests.support.each import each
from tests.support.paired import paired
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

LARGE, ZERO = 38, 128
"""Number of inputs: several with weight 127 and one with weight 1. The zero point of all inputs."""
LARGEST = LARGE * 127 * 127
FLUSH_TO_ZERO, DENORMALS_ARE_ZERO = 0x8000, 0x0040


def inputs_with(sums):
    """Bytes of one pixel for each sum: [sum][input]."""
    quotients, rests = np.divmod(sums, 127)
    most, more = np.divmod(np.abs(quotients), LARGE)
    shares = most[:, None] + (np.arange(LARGE) < more[:, None])
    return np.concatenate([np.sign(quotients)[:, None] * shares, rests[:, None]], axis=1) + ZERO


def results(sums, multiplier, shift, offset, limits):
    """floor(sum * multiplier * 2^-shift + offset + 1/2), for every sum and channel."""
    half = (2 * offset + 1) << (shift - 1)
    return np.clip((sums[:, None] * multiplier + half) >> shift, *limits)


def thresholds(multiplier, shift, offset):
    """Smallest sum of each result of each channel, limited to sums that inputs can have."""
    wanted = ((2 * (np.arange(1, 256)[:, None] - offset) - 1) << (shift - 1)).astype(object)
    found = np.array(
        [-(-numerator // m) for row in wanted for numerator, m in zip(row, multiplier.tolist(), strict=True)]
    )
    return found[np.abs(found) < LARGEST].astype(np.int64)


def convolve(sums, multiplier, shift, offset, limits, isa, table=None):
    module, out = native(), len(multiplier)
    extents = {"in_channels": LARGE + 1, "out_channels": out, "width": len(sums), "out_width": len(sums)}
    strides = {"in_pixel": LARGE + 1, "in_row": (LARGE + 1) * len(sums), "out_pixel": out, "out_row": out * len(sums)}
    epilogue = module.EpilogueSpec(
        rescale=module.Rescale.ONE_ROUNDING,
        multiplier=multiplier.astype(np.int32),
        shift=(-shift).astype(np.int32),
        offset=offset.astype(np.int32),
        low=limits[0],
        high=limits[1],
        lut=table,
    )
    weights = np.full((out, LARGE + 1, 1, 1), 127, np.int8)
    weights[:, LARGE] = 1
    spec = module.ConvInt8Spec(
        input=module.Place(0, 0),
        output=module.Place(1, 0),
        geometry=module.ConvGeometry(**extents | strides),
        weights=weights,
        epilogue=module.Epilogue(epilogue, out),
        input_zero=ZERO,
    )
    step = module.conv_int8(spec, isa)
    sizes = len(sums) * (LARGE + 1), len(sums) * out
    start = (sizes[0] + 127) // 64 * 64
    buffers = [("arena", 0, sizes[0]), ("arena", start, sizes[1])]
    program = module.Program([step], buffers, [], start + (sizes[1] + 127) // 64 * 64, 1)
    memory = program.make_memory()
    memory.read(program, 0)[:] = inputs_with(sums).astype(np.uint8).ravel()
    program.run(memory, 0, 1)
    return memory.read(program, 1).reshape(len(sums), out).copy()


def channels(rng, count, factor):
    """Multipliers of 24 bits of every size, among them some with few digits."""
    fraction, exponent = np.frexp(rng.uniform(0.5, 1.5, count) * factor)
    multiplier = np.floor(fraction * 2**24).astype(np.int64)
    multiplier[::5] &= -(2**19)
    return multiplier, (24 - exponent).astype(np.int64), rng.integers(-40, 296, count)


@pytest.mark.parametrize(
    ("isa", "limits", "count"), paired(available_isas(), [((0, 255),), ((128, 255),), ((3, 200),)], [64, 21, 37])
)
@each("factor", [0.9, 0.03, 2.0**-9, 2.0**-12, 2.0**-16])
def test_every_threshold(isa, limits, factor, count):
    rng = np.random.default_rng([count, round(-np.log2(factor))])
    multiplier, shift, offset = channels(rng, count, factor)
    at = thresholds(multiplier, shift, offset)
    sums = np.concatenate([rng.permutation(at)[:4000], rng.integers(-LARGEST, LARGEST, 64), [-LARGEST, 0, LARGEST]])
    sums = np.clip(np.concatenate([sums, sums - 1]), -LARGEST, LARGEST)
    expected = results(sums, multiplier, shift, offset, limits)
    np.testing.assert_array_equal(convolve(sums, multiplier, shift, offset, limits, isa), expected)
    table = rng.permutation(256).astype(np.uint8)
    np.testing.assert_array_equal(convolve(sums, multiplier, shift, offset, limits, isa, table), table[expected])


@contextmanager
def small_numbers_taken_for_zero():
    """Rounding modes that math libraries may leave set in a thread."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    before, changed = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    library.fegetenv(before)
    library.fegetenv(changed)
    changed[7] |= FLUSH_TO_ZERO | DENORMALS_ARE_ZERO
    library.fesetenv(changed)
    try:
        yield
        library.fegetenv(changed)
    finally:
        library.fesetenv(before)
    assert changed[7] & (FLUSH_TO_ZERO | DENORMALS_ARE_ZERO) == FLUSH_TO_ZERO | DENORMALS_ARE_ZERO


@pytest.mark.skipif(sys.platform != "linux" or "avx2" not in available_isas(), reason="made for glibc on x86")
@pytest.mark.parametrize("isa", available_isas())
def test_a_mode_of_the_caller_changes_nothing(isa):
    rng = np.random.default_rng(7)
    multiplier, shift, offset = channels(rng, 64, 2.0**-9)
    sums = rng.integers(-60000, 60000, 500)
    expected = results(sums, multiplier, shift, offset, (0, 255))
    with small_numbers_taken_for_zero():
        assert np.float32(1e-38) * np.float32(1e-3) == 0
        found = convolve(sums, multiplier, shift, offset, (0, 255), isa)
    np.testing.assert_array_equal(found, expected)
