"""The epilogue of integer linear operators against the NumPy operators, and the proof of float requantization."""

from fractions import Fraction
from math import copysign, floor

import numpy as np
import pytest

from tests.support.each import each
from tests.support.paired import paired
from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.matchers.epilogue import FLOAT, HIGH_SYMMETRIC, LOW_PRECISION, SUMS, Epilogue, bias_of
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.arithmetic.quantized_sums import high_precision_symmetric, low_precision
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, I16, I32, U8, U16, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

ROUNDINGS = [mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN]
ROWS, CHANNELS = 400, 21


def sums_for(rng, factor):
    """Sums around the results of 8 and 16 bits, ties of powers of two, and the limits of 32 bits."""
    spread = rng.choice([100 / factor, 40000 / factor, 2.0**31], (ROWS, 1))
    sums = rng.uniform(-1, 1, (ROWS, CHANNELS)) * np.minimum(spread, 2.0**31 - 1)
    sums = np.rint(sums).astype(np.int64)
    ties = rng.integers(-300, 300, sums.shape) * 2 + 1 << rng.integers(0, 20, sums.shape)
    sums = np.where(rng.random(sums.shape) < 0.3, ties, sums)
    sums[:4] = np.array([[-(2**31)], [2**31 - 1], [0], [-1]])
    return sums.astype(np.int32)


def stored(epilogue, sums):
    """Stored results, which are equal on every instruction set."""
    sums = np.ascontiguousarray(sums)
    raw, *others = (epilogue.compile(sums.shape[1], isa).apply(sums) for isa in available_isas())
    for isa, other in zip(available_isas()[1:], others, strict=True):
        np.testing.assert_array_equal(other, raw, err_msg=isa)
    if epilogue.dequantize is not None:
        return raw.view(np.float32)
    values = raw.view(f"<u{epilogue.dtype.bits // 8}").astype(np.int64) - bias_of(epilogue.dtype)
    return values.astype(epilogue.dtype.numpy)


def rescale_parameters(rng, mode, factor):
    """Multipliers of 31 bits, of a few bits (many ties) and of any kind; shifts that go with the factor, or any."""
    kind = rng.integers(0, 4, CHANNELS)
    fraction, exponent = np.frexp(rng.uniform(0.5, 2, CHANNELS) * factor)
    multiplier = np.floor(fraction * 2**31).astype(np.int64)
    few = (1 << 30) + (rng.integers(0, 4, CHANNELS) << 28)
    multiplier = np.where(kind == 1, few, multiplier)
    multiplier = np.where(kind == 2, rng.integers(-(2**31), 2**31, CHANNELS), multiplier)
    shift = exponent - (31 if mode is RequantMode.MULTIPLIER_SHIFT else 0)
    shift = np.where(kind == 3, rng.integers(-64, 32, CHANNELS), shift)
    return multiplier, np.clip(shift, -64, 0 if mode is RequantMode.TFLITE else 31)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_per_channel", [False, True])
@each(
    "mode, rounding, out",
    [(mode, RoundingMode.HALF_UP, out) for mode in RequantMode if mode < 2 for out in (I8, I16, I32)]
    + [(RequantMode.MULTIPLIER_SHIFT, rounding, out) for rounding in ROUNDINGS for out in (I8, U8, I16, U16)],
)
def test_requant_int32(mode, rounding, out, is_per_channel, seed):
    rng = np.random.default_rng([seed, mode, rounding, out.bits])
    factor = 2.0 ** rng.uniform(-20, 0)
    multiplier, shift = rescale_parameters(rng, mode, factor)
    offset = rng.integers(-200, 200, CHANNELS) if rng.random() < 0.8 else rng.integers(-(2**31), 2**31, CHANNELS)
    vectors = {"multiplier_vec": multiplier, "shift_vec": shift, "offset_vec": offset}
    values = {name.replace("_vec", "_val"): int(vector[0]) for name, vector in vectors.items()}
    vectors = {name: tuple(vector.tolist()) for name, vector in vectors.items()}
    op = RequantInt32(
        mode=mode,
        round_mode=rounding,
        out_dtype=out,
        is_mul_shift_pc=is_per_channel,
        is_offset_pc=is_per_channel,
        **(vectors if is_per_channel else values),
    )
    bias = bias_of(out)
    epilogue = Epilogue.of(
        out,
        rescale="ONE_ROUNDING" if mode is RequantMode.MULTIPLIER_SHIFT else "TWO_ROUNDINGS",
        rounding=int(rounding),
        multiplier=op.multiplier_vec if is_per_channel else (op.multiplier_val,),
        shift=op.shift_vec if is_per_channel else (op.shift_val,),
        offset=[min(value + bias, 2**31 - 1) for value in (op.offset_vec if is_per_channel else (op.offset_val,))],
    )
    sums = sums_for(rng, factor)
    np.testing.assert_array_equal(stored(epilogue, sums), op.reference(sums)[0], err_msg=f"{op} seed {seed}")


@pytest.mark.parametrize("out", [I8, U8, I16, U16])
@pytest.mark.parametrize("mode", [RequantMode.TFLITE, RequantMode.MULTIPLIER_SHIFT])
def test_dequantized(mode, out):
    rng = np.random.default_rng([mode, out.bits])
    factor = 2.0**-9
    multiplier, shift = rescale_parameters(rng, mode, factor)
    if mode is RequantMode.TFLITE and not out.is_signed:
        out = I16
    requant = RequantInt32(
        mode=mode,
        out_dtype=out,
        is_mul_shift_pc=True,
        multiplier_vec=tuple(np.abs(multiplier).tolist()),
        shift_vec=tuple(shift.tolist()),
        offset_val=3,
    )
    dequant = DequantIntToFp32(scale_val=float(np.float32(0.0123)), offset_val=-7)
    graph = Graph("dequantized")
    x = graph.input("x", TensorType(I32, (ROWS, CHANNELS)))
    graph.output(graph.add(dequant, graph.add(requant, x)))
    epilogue = SUMS
    for node in graph.sorted_nodes():
        epilogue = epilogue.followed_by(node)
    sums = sums_for(rng, factor)
    expected = dequant.reference(requant.reference(sums)[0])[0]
    np.testing.assert_array_equal(stored(epilogue, sums).view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("out", [I8, U8, I16, U16])
@pytest.mark.parametrize("factor", [2.0**-16, 2.0**-8, 0.3, 5.0])
def test_multipliers_of_24_bits(out, factor):
    """At every tie of the rounding and beside it, and where sums have more digits than binary32."""
    rng = np.random.default_rng([out.bits, int(out.is_signed)])
    fraction, exponent = np.frexp(rng.uniform(0.5, 1, CHANNELS) * factor)
    multiplier = np.floor(fraction * 2**24).astype(np.int64) << 7
    op = RequantInt32(
        mode=RequantMode.MULTIPLIER_SHIFT,
        out_dtype=out,
        is_mul_shift_pc=True,
        is_offset_pc=True,
        multiplier_vec=tuple(multiplier.tolist()),
        shift_vec=tuple((exponent - 31).tolist()),
        offset_vec=tuple(rng.integers(-100, 100, CHANNELS).tolist()),
    )
    results = rng.integers(out.min, out.max, (ROWS, CHANNELS), endpoint=True)
    ties = np.rint((results + 0.5) / (multiplier * 2.0 ** (exponent - 31))).astype(np.int64)
    sums = np.concatenate(
        [ties - 1, ties, ties + 1, sums_for(rng, factor), rng.integers(2**24 - 9, 2**24 + 9, ties.shape)]
    )
    sums = np.clip(np.concatenate([sums, -sums]), -(2**31), 2**31 - 1).astype(np.int32)
    epilogue = Epilogue.of(
        out,
        rescale="ONE_ROUNDING",
        multiplier=op.multiplier_vec,
        shift=op.shift_vec,
        offset=[value + bias_of(out) for value in op.offset_vec],
    )
    np.testing.assert_array_equal(stored(epilogue, sums), op.reference(sums)[0])
    dequant = DequantIntToFp32(scale_val=float(np.float32(0.0123)), offset_val=-7)
    graph = Graph("dequantized")
    graph.output(graph.add(dequant, graph.input("x", TensorType(out, sums.shape))))
    real = epilogue.followed_by(graph.nodes[0])
    expected = dequant.reference(op.reference(sums)[0])[0]
    np.testing.assert_array_equal(stored(real, sums).view(np.int32), expected.view(np.int32))


SCALES = [1.0, 0.75, 2.0**-7, 2.0**-7 * 1.37, 2.0**-20 * 1.999, 3.0, 1e-12, 1e-40, 1e30]


@pytest.mark.parametrize("out", [I8, U8])
@pytest.mark.parametrize("scale", SCALES)
def test_low_precision(scale, out):
    epilogue = Epilogue.of(out, rescale=LOW_PRECISION, scale=float(np.float32(scale)), narrow=(out.min, out.max))
    sums = sums_for(np.random.default_rng(1), min(scale, 1.0))
    np.testing.assert_array_equal(stored(epilogue, sums), low_precision(sums, None, scale, out))


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("out", [I8, U8, I16, U16])
@pytest.mark.parametrize("scale", SCALES)
def test_high_symmetric(scale, out, has_bias):
    rng = np.random.default_rng(2)
    bias = rng.integers(-(2**31), 2**31, CHANNELS).astype(np.int32) >> rng.integers(0, 31, CHANNELS).astype(np.int32)
    with np.errstate(over="ignore"):
        late = (bias.astype(np.float32) * np.float32(scale)).tolist() if has_bias else ()
    epilogue = Epilogue.of(out, rescale=HIGH_SYMMETRIC, scale=float(np.float32(scale)), late_bias=late)
    sums = sums_for(rng, min(scale, 1.0))
    expected = high_precision_symmetric(sums, bias if has_bias else None, scale, out)
    np.testing.assert_array_equal(stored(epilogue, sums), expected)


@pytest.mark.parametrize("out", [I8, U8, I16, U16])
@pytest.mark.parametrize("scale", [*SCALES, 0.0, -0.01, -1e-5])
def test_float(scale, out):
    sums = sums_for(np.random.default_rng(3), min(abs(scale) + 1e-6, 1.0))
    rounded = float(np.float32(scale))
    offset = 7
    op = RequantFp32ToInt(scale_val=rounded, offset_val=offset, out_dtype=out)
    epilogue = Epilogue.of(out, rescale=FLOAT, scale=rounded, offset=(offset + bias_of(out),))
    np.testing.assert_array_equal(stored(epilogue, sums), op.reference(sums.astype(np.float32))[0])

    real = RequantFp32ToInt(
        scale_val=rounded, offset_fp_val=-2.5, out_dtype=out, mode=RequantFp32Mode.SCALE_OFFSET_ROUND
    )
    epilogue = Epilogue.of(out, rescale=FLOAT, scale=rounded, late_bias=(-2.5,))
    np.testing.assert_array_equal(stored(epilogue, sums), real.reference(sums)[0])


def test_limits_and_table():
    table = np.random.default_rng(4).permutation(256).astype(np.uint8)
    epilogue = Epilogue(dtype=U8, offset=(100,), low=50, high=180, lut=table)
    sums = np.arange(-300, 300, dtype=np.int32).reshape(-1, 1)
    np.testing.assert_array_equal(stored(epilogue, sums), table[np.clip(sums + 100, 50, 180)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rescale": "ONE_ROUNDING", "multiplier": (1,)},
        {"rescale": "ONE_ROUNDING", "multiplier": (1,), "shift": (-65,)},
        {"rescale": "ONE_ROUNDING", "multiplier": (1, 2), "shift": (0,)},
        {"rescale": "ONE_ROUNDING", "multiplier": (1,), "shift": (0,), "rounding": 7},
        {"rescale": "LOW_PRECISION", "scale": 0.0},
        {"rescale": "HIGH_SYMMETRIC", "scale": float("inf")},
        {"lut": np.zeros(255, np.uint8)},
    ],
)
def test_what_the_operator_set_forbids_is_refused(wrong):
    with pytest.raises(ValueError, match="epilogue"):
        Epilogue.of(U8, **wrong).compile(3)


# --- the float form ---------------------------------------------------------------------------------------------------


def rounded_down(value):
    """Largest binary32 number that is not above an exact one."""
    nearest = np.float32(float(value)) if value else np.float32(0)
    return nearest if Fraction(float(nearest)) <= value else np.nextafter(nearest, np.float32(-np.inf))


def float_requant(form, x, offset, *, is_down):
    """A result as in int8/epilogue/epilogue.h, in exact fractions; the inner sum to nearest or downwards."""
    high, low, kink = (Fraction(float(part)) for part in form)
    exact = low * x + Fraction(copysign(float(kink), x))
    # The conversion through binary64 rounds once: all inner sums of these forms have at most 53 bits.
    assert exact == Fraction(float(exact))
    inner = rounded_down(exact) if is_down else np.float32(float(exact))
    v = floor(high * x + Fraction(float(inner)))
    return min(max((v + 1 + 2 * offset) >> 1, 0), 255)


@pytest.mark.parametrize(
    ("rescale", "rounding", "is_kinked", "seed"),
    paired(
        [
            ("ONE_ROUNDING", RoundingMode.HALF_UP, False),
            ("ONE_ROUNDING", RoundingMode.HALF_AWAY_FROM_ZERO, True),
            ("TWO_ROUNDINGS", RoundingMode.HALF_UP, True),
        ],
        range(8),
    ),
)
def test_what_is_proved_holds_for_every_sum(rescale, rounding, is_kinked, seed):
    rng = np.random.default_rng([seed, int(rounding)])
    factor = 2.0 ** rng.uniform(-4, -1.1)
    fraction, exponent = np.frexp(factor)
    # Of few bits: ties; of 31 bits: none.
    multiplier = int(fraction * 2**31) if seed % 2 else (1 << 30) + (int(rng.integers(0, 4)) << 28)
    offset, largest = int(rng.integers(-20, 275)), int(150 / factor)
    epilogue = Epilogue.of(
        U8,
        rescale=rescale,
        rounding=int(rounding),
        multiplier=(multiplier,),
        shift=(int(exponent) - (0 if rescale == "TWO_ROUNDINGS" else 31),),
        offset=(offset,),
    )
    form = epilogue.compile(1).float_requant(0, largest)
    assert form is not None and (form[2] > 0) == is_kinked
    sums = np.arange(-largest, largest + 1, dtype=np.int32).reshape(-1, 1)
    expected = stored(epilogue, sums)[:, 0].tolist()
    for is_down in (False, True):
        assert [float_requant(form, int(x), offset, is_down=is_down) for x in sums[:, 0]] == expected


@pytest.mark.parametrize(
    ("parameters", "largest"),
    [
        ({"rescale": "ONE_ROUNDING", "multiplier": (3 << 29,), "shift": (-38,)}, 1 << 24),  # sums are not exact
        ({"rescale": "ONE_ROUNDING", "multiplier": (-(3 << 29),), "shift": (-38,)}, 1000),  # falls
        ({"rescale": "ONE_ROUNDING", "multiplier": (1,), "shift": (1,)}, 1000),
        ({"rescale": "ONE_ROUNDING", "multiplier": (3 << 29,), "shift": (-38,), "rounding": 0}, 1000),
        ({"rescale": "LOW_PRECISION", "scale": 0.003, "narrow": (0, 255)}, 1000),
        ({"rescale": "HIGH_SYMMETRIC", "scale": 0.003}, 1000),
    ],
)
def test_forms_that_are_not_covered(parameters, largest):
    assert Epilogue.of(U8, **parameters).compile(1).float_requant(0, largest) is None
