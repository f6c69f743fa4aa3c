"""Convolutions and matmuls, with 32-bit results and in the three calculation modes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import assume

from tests.support.operators.integer_oracles.base import (
    BYTES,
    SCALES,
    SMALL,
    Example,
    Sampler,
    Tensor,
    example,
    f32,
    made,
    make,
    nearest_int32,
    oracle,
    positions,
    rrs,
    saturate,
)
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, U32, Chip, DType

ByIndex = Callable[[int], int]


@dataclass
class Geometry:
    """A convolution over any number of spatial axes; pads are pairs, before and after."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    groups: int

    def plane(self, x: Tensor, w: Tensor, transposed: bool = False) -> tuple[int, ...]:
        """Spatial extents of the result."""
        extents = []
        for n, k, step, gap, (before, after) in zip(
            x.shape[2:], w.shape[2:], self.strides, self.dilations, self.pads, strict=True
        ):
            reach = gap * (k - 1) + 1
            grown = (n - 1) * step + reach - before - after
            extents.append(grown if transposed else (n + before + after - reach) // step + 1)
        return tuple(extents)

    def sums(
        self, x: Tensor, w: Tensor, x_zero: ByIndex, w_zero: ByIndex, pad: ByIndex | None = None
    ) -> dict[tuple[int, ...], int]:
        """The exact convolution of (x - x_zero) and (w - w_zero); padding holds ``pad``, else the zero point of x."""
        outputs, inputs = w.shape[:2]
        found = {}
        for index in positions((x.shape[0], outputs, *self.plane(x, w))):
            n, o, *position = index
            total = 0
            for c, *tap in positions((inputs, *w.shape[2:])):
                channel = o // (outputs // self.groups) * inputs + c
                at = [
                    i * step - before + k * gap
                    for i, k, step, gap, (before, _) in zip(
                        position, tap, self.strides, self.dilations, self.pads, strict=True
                    )
                ]
                if all(0 <= i < extent for i, extent in zip(at, x.shape[2:], strict=True)):
                    value = x.at((n, channel, *at))
                else:
                    value = x_zero(channel) if pad is None else pad(channel)
                total += (value - x_zero(channel)) * (w.at((o, c, *tap)) - w_zero(o))
            found[index] = total
        return found

    def transposed_sums(self, x: Tensor, w: Tensor, x_zero: ByIndex, w_zero: ByIndex) -> dict[tuple[int, ...], int]:
        """The transposed convolution: every element of x adds a multiple of the kernel."""
        outputs = w.shape[1] * self.groups
        found = dict.fromkeys(positions((x.shape[0], outputs, *self.plane(x, w, True))), 0)
        for n, c, *position in positions(x.shape):
            for o, *tap in positions(w.shape[1:]):
                out = c // (x.shape[1] // self.groups) * w.shape[1] + o
                at = [
                    i * step - before + k * gap
                    for i, k, step, gap, (before, _) in zip(
                        position, tap, self.strides, self.dilations, self.pads, strict=True
                    )
                ]
                if (n, out, *at) in found:
                    found[n, out, *at] += (x.at((n, c, *position)) - x_zero(c)) * (w.at((c, o, *tap)) - w_zero(out))
        return found


def no_zero(index: int) -> int:
    return 0


def geometry(s: Sampler, axes: int, transposed: bool = False) -> tuple[Geometry, Tensor, Tensor]:
    """Draw a small convolution, its input and its weights; every third one is depthwise."""
    groups, per_input, per_output = s.number(1, 3), s.number(1, 2), s.number(1, 2)
    if s.number(0, 2) == 0:
        per_input = per_output = 1
    strides = s.numbers(1, 2, axes)
    pads = []
    for step in strides:
        before, after = s.numbers(0, 2, 2)
        if transposed and s.flag():
            after = -s.number(0, step - 1)
        pads.append((before, after))
    found = Geometry(strides, s.numbers(1, 2, axes), tuple(pads), groups)
    kernel, plane = s.numbers(1, 3 if axes == 2 else 2, axes), s.numbers(1, 4 if axes == 2 else 3, axes)
    outer = (groups * per_input, per_output) if transposed else (groups * per_output, per_input)
    x = s.tensor(s.choice(BYTES), (s.number(1, 2), groups * per_input, *plane))
    w = s.tensor(s.choice(BYTES), (*outer, *kernel))
    assume(all(extent >= 1 for extent in found.plane(x, w, transposed)))
    return found, x, w


def flat(found: Geometry) -> dict[str, Any]:
    """The parameters of the two-dimensional operators."""
    (top, bottom), (left, right) = found.pads
    return {
        "dh": found.dilations[0], "dw": found.dilations[1], "stride_h": found.strides[0],
        "stride_w": found.strides[1], "pad_h_t": top, "pad_h_b": bottom, "pad_w_l": left, "pad_w_r": right,
        "groups": found.groups,
    }  # fmt: skip


def deep(found: Geometry) -> dict[str, Any]:
    """The parameters of the three-dimensional operators."""
    parameters: dict[str, Any] = {"groups": found.groups}
    for axis, step, gap, (before, after) in zip("thw", found.strides, found.dilations, found.pads, strict=True):
        parameters |= {f"d{axis}": gap, f"stride_{axis}": step, f"pad_{axis}_0": before, f"pad_{axis}_1": after}
    return parameters


# --- 32-bit results ---------------------------------------------------------------------------------------------------


def zero_points(s: Sampler, prefix: str, dtype: DType, count: int) -> tuple[dict[str, Any], ByIndex]:
    """Draw a zero point or one per channel, in the range of the operand."""
    if s.flag():
        value = s.integer(dtype) if s.flag() else 0
        return {f"{prefix}_val": value}, lambda index: value
    vector = tuple(s.integer(dtype) for _ in range(count))
    return {f"is_{prefix}_const": False, f"{prefix}_vec": vector}, lambda index: vector[index]


def wide_result(s: Sampler) -> tuple[DType | None, DType]:
    return s.out((I32, U32), I32)


def wide_bias(s: Sampler, shape: Sequence[int]) -> Tensor | None:
    return s.tensor(s.choice((I32, U32)), shape) if s.flag() else None


@oracle("conv_v2", "conv3d_v2", "deconv_v2", "deconv3d_v2")
def exact_convolution(name: str, s: Sampler) -> Example:
    axes = 3 if "3d" in name else 2
    transposed = name.startswith("deconv")
    found, x, w = geometry(s, axes, transposed)
    outputs = w.shape[1] * found.groups if transposed else w.shape[0]
    x_fields, x_zero = zero_points(s, "izp", x.dtype, x.shape[1])
    w_fields, w_zero = zero_points(s, "kzp", w.dtype, outputs)
    bias = wide_bias(s, (1, outputs, *(1,) * axes))
    asked, out = wide_result(s)
    sums = found.transposed_sums(x, w, x_zero, w_zero) if transposed else found.sums(x, w, x_zero, w_zero)
    shape = (x.shape[0], outputs, *found.plane(x, w, transposed))
    value = made(out, shape, lambda i: saturate(sums[i] + (bias.values[i[1]] if bias else 0), out))
    parameters = (deep if axes == 3 else flat)(found) | x_fields | w_fields
    op = make(name, has_bias=bias is not None, out_dtype=asked, **parameters)
    return example(op, [x, w, bias], value)


def transpose(matrix: Tensor) -> Tensor:
    """Transpose the last two axes."""
    shape = (*matrix.shape[:-2], matrix.shape[-1], matrix.shape[-2])
    return made(matrix.dtype, shape, lambda i: matrix.at((*i[:-2], i[-1], i[-2])))


@oracle("matrix_mul_v2", "fc_int")
def exact_product(name: str, s: Sampler) -> Example:
    m, k, n = s.number(1, 4), s.number(1, 7), s.number(1, 4)
    batch = s.shape(0, 3, 2) if name == "matrix_mul_v2" else (s.number(1, 3),)
    left = s.tensor(s.choice(BYTES), (*batch, m, k))
    right = s.tensor(s.choice(BYTES), (*(batch if name == "matrix_mul_v2" else ()), k, n))
    prefixes = ("lzp", "rzp") if name == "matrix_mul_v2" else ("izp", "kzp")
    left_fields, left_zero = zero_points(s, prefixes[0], left.dtype, m)
    right_fields, right_zero = zero_points(s, prefixes[1], right.dtype, n)
    bias = wide_bias(s, (n,))
    asked, out = wide_result(s)

    def value(index: tuple[int, ...]) -> int:
        *outer, i, j = index
        inner = outer if name == "matrix_mul_v2" else []
        terms = (
            (left.at((*outer, i, d)) - left_zero(i)) * (right.at((*inner, d, j)) - right_zero(j)) for d in range(k)
        )
        return saturate(sum(terms) + (bias.values[j] if bias else 0), out)

    expected = made(out, (*batch, m, n), value)
    flags = {flag: s.flag() for flag in (("is_left_trans", "is_right_trans") if batch_is_free(name) else ())}
    if name == "fc_int":
        flags["weight_trans"] = s.flag()
    first = transpose(left) if flags.get("is_left_trans") else left
    second = transpose(right) if flags.get("is_right_trans") or flags.get("weight_trans") else right
    op = make(name, has_bias=bias is not None, out_dtype=asked, **flags, **left_fields, **right_fields)
    return example(op, [first, second, bias], expected)


def batch_is_free(name: str) -> bool:
    return name == "matrix_mul_v2"


# --- calculation modes ------------------------------------------------------------------------------------------------


@dataclass
class Rescale:
    """Compute the last steps of docs/inside/semantics.md, section 7, for one result at a time."""

    mode: int
    scale: float
    out: DType
    output_zero: int = 0

    @property
    def s(self) -> float:
        return f32(self.scale)

    @property
    def ceil(self) -> int:
        return 1 - math.frexp(self.s)[1] if self.s <= 1 else 0

    @property
    def floor(self) -> int:
        mantissa, exponent = math.frexp(self.s)
        if self.s > 1:
            return 0
        return 1 - exponent if mantissa == 0.5 else -exponent

    def low(self, total: int, bias: int) -> int:
        r = saturate(rrs(saturate(total + bias, I32), self.ceil), self.out)
        remainder = math.ldexp(self.s, self.ceil)
        return r if remainder == 1 else saturate(rrs(r * int(remainder * 128), 7), self.out)

    def scaled(self, r: int, shift: int) -> float:
        return f32(math.ldexp(f32(r * self.s), shift))

    def high(self, total: int, bias: float, late: bool) -> int:
        r = saturate(rrs(saturate(total + (0 if late else int(bias)), I32), self.ceil), I16)
        t = self.scaled(r, self.ceil)
        if late:
            t = f32(t + f32(f32(bias) * self.s))
        return saturate(nearest_int32(t), self.out)

    def asymmetric(self, total: int, zero_total: int, bias: float, zero_product: int, real: bool, shift: int) -> int:
        b2 = f32(f32(bias) - f32(zero_product)) if real else saturate(int(bias) - zero_product, I32)
        p1 = saturate(rrs(saturate(total, I32), shift), I16)
        p2 = saturate(rrs(saturate(zero_total, I32), shift), I16)
        t = self.scaled(saturate(p1 - p2, I16), shift)
        t = f32(t + f32(f32(b2) * self.s))
        return saturate(nearest_int32(t) + self.output_zero, self.out)

    def depthwise(self, exact: int, bias: float, real: bool) -> int:
        t = f32(f32(exact) + bias) if real else f32(exact + int(bias))
        return saturate(nearest_int32(f32(t * self.s)) + self.output_zero, self.out)


def mode_parameters(
    s: Sampler, left: DType, right: DType, modes: Sequence[int], late: Sequence[DType]
) -> tuple[Rescale, dict[str, Any], DType | None]:
    """A requantization, its attributes, and the type of the bias or None."""
    mode = s.choice(modes)
    asked, out = s.out((I8, U8) if mode == 0 else SMALL, left)
    scale = s.draw(SCALES)
    rescale = Rescale(mode, scale, out, s.integer(out) if mode == 2 else 0)
    fields = {
        "mode": mode, "scale": scale, "out_dtype": asked, "output_zero_point": rescale.output_zero,
        "left_zero_point": s.integer(left) if mode == 2 else 0,
        "right_zero_point": s.choice((0, s.integer(right))) if mode == 2 else 0,
    }  # fmt: skip
    return rescale, fields, s.choice((None, I16, U16, *(late if mode else ())))


BIASES = {I32, F32}


def bias_tensor(s: Sampler, dtype: DType | None, shape: Sequence[int]) -> Tensor | None:
    if dtype is None:
        return None
    if dtype is F32:
        values = [f32(s.number(-(2**20), 2**20) / s.choice((1, 2, 3, 64))) for _ in positions(shape)]
        return Tensor(F32, tuple(shape), values)
    return s.tensor(dtype, shape)


@oracle("conv")
def convolution(name: str, s: Sampler) -> Example:
    found, x, w = geometry(s, 2)
    rescale, fields, bias_dtype = mode_parameters(s, x.dtype, w.dtype, (0, 1, 2), (I32, F32))
    bias = bias_tensor(s, bias_dtype, (1, w.shape[0], 1, 1))
    zero_x, zero_w = fields["left_zero_point"], fields["right_zero_point"]
    centred = Tensor(w.dtype, w.shape, [zero_w] * len(w.values))
    plain = found.sums(x, w, no_zero, no_zero, lambda c: zero_x)
    zero_sums = found.sums(x, centred, no_zero, no_zero, lambda c: zero_x)
    exact = found.sums(x, w, lambda c: zero_x, lambda o: zero_w)
    is_depthwise = x.shape[1] == w.shape[0] == found.groups
    real, late = bias_dtype is F32, bias_dtype in BIASES
    products = [zero_x * sum(w.at((o, *tap)) - zero_w for tap in positions(w.shape[1:])) for o in range(w.shape[0])]

    def value(index: tuple[int, ...], chip: Chip) -> int:
        b = bias.values[index[1]] if bias else 0
        if rescale.mode == 0:
            return rescale.low(plain[index], b)
        if is_depthwise and chip is Chip.BM1684:
            return rescale.depthwise(exact[index], b, real)
        if rescale.mode == 1:
            return rescale.high(plain[index], b, late)
        return rescale.asymmetric(plain[index], zero_sums[index], b, products[index[1]], real, rescale.floor)

    shape = (x.shape[0], w.shape[0], *found.plane(x, w))
    op = make(name, **flat(found), **fields)
    return Example(
        op, [x, w, bias], lambda chip: [made(rescale.out, shape, lambda i: value(i, chip))], (False, True, True)
    )


@oracle("deconv")
def transposed_convolution(name: str, s: Sampler) -> Example:
    found, x, w = geometry(s, 2, transposed=True)
    outputs = w.shape[1] * found.groups
    rescale, fields, bias_dtype = mode_parameters(s, x.dtype, w.dtype, (0,), ())
    bias = bias_tensor(s, bias_dtype, (1, outputs, 1, 1))
    sums = found.transposed_sums(x, w, no_zero, no_zero)
    shape = (x.shape[0], outputs, *found.plane(x, w, True))
    value = made(rescale.out, shape, lambda i: rescale.low(sums[i], bias.values[i[1]] if bias else 0))
    return example(make(name, **flat(found), **fields), [x, w, bias], value)


@oracle("matrix_mul")
def product(name: str, s: Sampler) -> Example:
    m, k, n = s.number(1, 4), s.number(1, 9), s.number(1, 4)
    left, right = s.tensor(s.choice((I8, U8)), (m, k)), s.tensor(s.choice((I8, U8)), (k, n))
    rescale, fields, bias_dtype = mode_parameters(s, left.dtype, right.dtype, (0, 1, 2), (I32,))
    bias = bias_tensor(s, bias_dtype, (1, n))
    zero_left, zero_right = fields["left_zero_point"], fields["right_zero_point"]

    def value(index: tuple[int, ...]) -> int:
        i, j = index
        b = bias.values[j] if bias else 0
        row, column = [left.at((i, d)) for d in range(k)], [right.at((d, j)) for d in range(k)]
        total = sum(a * c for a, c in zip(row, column, strict=True))
        if rescale.mode == 0:
            return rescale.low(total, b)
        if rescale.mode == 1:
            return rescale.high(total, b, bias_dtype in BIASES)
        zero_product = zero_left * sum(c - zero_right for c in column)
        return rescale.asymmetric(total, sum(row) * zero_right, b, zero_product, False, rescale.ceil)

    op = make(name, **fields)
    return example(op, [left, right, bias], made(rescale.out, (m, n), value), constants=(False, True, True))
