"""Weights in every memory order give the sums of their values: they are packed from the stored memory order."""

import itertools

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.schema.arithmetic.convolution import Window
from tpuconvert.schema.arithmetic.integer_product import integer_convolution

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

HEIGHT, WIDTH = 2, 3
ORDERS = list(itertools.permutations(range(4)))
KERNELS = [(1, 1), (3, 3), (1, 3), (3, 1), (4, 4), (2, 5), (5, 5)]
INPUTS = [1, 3, 4, 5, 17, 64, 67, 132]
OUTPUTS = [1, 7, 8, 9, 17, 30, 40, 52, 57, 64, 100, 200]


def in_order(rng, array, order):
    """Return equal values in another memory order, with gaps between elements, reversed or not."""
    steps = [int(rng.choice([1, 1, 1, 2])) for _ in order]
    shape = [array.shape[axis] * step + int(rng.integers(2)) for axis, step in zip(order, steps, strict=True)]
    memory = rng.integers(0, 256, shape, np.uint8).view(array.dtype)
    inverse = np.argsort(order)
    view = memory[tuple(slice(None, array.shape[axis] * step, step) for axis, step in zip(order, steps, strict=True))]
    view = view.transpose(inverse)
    if rng.random() < 0.2:
        view = view[::-1]
    view[...] = array
    return view


def sums_of(isa, data, weights, zero, input_zero, groups):
    """All accumulators of a convolution with stride 1 and unchanged extents, channels last, computed by the engine."""
    module = native()
    out_channels, _, kernel_h, kernel_w = weights.shape
    geometry = module.ConvGeometry(
        height=HEIGHT,
        width=WIDTH,
        in_channels=data.shape[2],
        out_height=HEIGHT,
        out_width=WIDTH,
        out_channels=out_channels,
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        pad_top=kernel_h // 2,
        pad_left=kernel_w // 2,
        groups=groups,
        in_pixel=data.shape[2],
        in_row=data.shape[2] * WIDTH,
        out_pixel=out_channels * 4,
        out_row=out_channels * 4 * WIDTH,
    )
    limits = np.iinfo(np.int32)
    epilogue = module.EpilogueSpec(low=limits.min, high=limits.max, bytes=4)
    spec = module.ConvInt8Spec(
        input=module.Place(0, 0),
        output=module.Place(1, 0),
        geometry=geometry,
        weights=weights,
        epilogue=module.Epilogue(epilogue, out_channels, isa),
        weight_zero=[zero],
        input_zero=input_zero,
    )
    step = module.conv_int8(spec, isa)
    sizes = data.size, HEIGHT * WIDTH * out_channels * 4
    start = (sizes[0] + 64 + 63) // 64 * 64
    buffers = [("arena", 0, sizes[0]), ("arena", start, sizes[1])]
    program = module.Program([step], buffers, [], start + sizes[1] + 64, 1)
    memory = program.make_memory()
    memory.read(program, 0)[:] = data.reshape(-1)
    program.run(memory, 0, 1)
    return memory.read(program, 1).view(np.int32).reshape(HEIGHT, WIDTH, out_channels).copy()


def check(isa, seed):
    rng = np.random.default_rng(seed)
    kernel = KERNELS[rng.integers(len(KERNELS))]
    inputs, outputs = int(rng.choice(INPUTS)), int(rng.choice(OUTPUTS))
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    kind = np.dtype(rng.choice(["int8", "uint8"]))
    shape = (outputs * groups, inputs, *kernel)
    values = rng.integers(0, 256, shape, np.uint8).view(kind)
    if rng.random() < 0.2:
        values[:] = np.iinfo(kind).min
    plain = 0 if kind == np.int8 else 128
    zero = int(rng.choice([plain, plain, plain, plain - 3]))
    data = rng.integers(0, 256, (HEIGHT, WIDTH, inputs * groups), np.uint8)
    input_zero = int(rng.integers(256))
    weights = in_order(rng, values, ORDERS[rng.integers(len(ORDERS))])
    got = sums_of(isa, data, weights, zero, input_zero, groups)

    below = [size // 2 for size in kernel]
    pads = (below[0], below[1], kernel[0] - 1 - below[0], kernel[1] - 1 - below[1])
    window = Window(kernel, pads=pads, groups=groups)
    expected = integer_convolution(data.transpose(2, 0, 1)[None], values, window, x_zero=input_zero, w_zero=zero)
    np.testing.assert_array_equal(got, expected[0].transpose(1, 2, 0), err_msg=f"seed {seed}: {weights.strides}")


@pytest.mark.parametrize("isa", available_isas())
def test_sample(isa):
    for seed in range(60):
        check(isa, seed)


@pytest.mark.slow
@pytest.mark.parametrize("isa", available_isas())
def test_all(isa):
    for seed in range(60, 1500):
        check(isa, seed)
