"""Models of every quantized TFLite operator for comparison with the reference kernels: the page of exactness and tests.

A sample is one operator on inputs that are chosen for it: all integers of the type for unary operators, all pairs for
binary ones of 8 bits, and random integers for the others. Scales and zero points come from ``tflite_integer_cases``.
Binary operators also get one operand twice, constants, operands that broadcast, and ranks 1 to 5.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.tflite.cases import Case, all_cases
from tests.support.tflite.integer_cases import ALL, CASES, NUMPY, extents, like, q, scale, zero
from tests.support.tflite.models import O, S, T, single
from tests.support.tflite.reference import arrays_of, subgraph_of

Arrays = list[np.ndarray[Any, Any]]
Maker = Callable[[np.random.Generator, str], S]


@dataclass(frozen=True)
class Sample:
    """One model with the inputs to run it on; without inputs, random ones are drawn."""

    op: str
    dtype: str
    model: S
    feeds: Arrays | None = None


_NAMES = {
    **{"conv_with_32_bit_sums": "CONV_2D", "add_powers_of_two": "ADD", "quantize_reals": "QUANTIZE"},
    **{"batch_matmul_broadcast": "BATCH_MATMUL", "fully_connected_computed": "FULLY_CONNECTED"},
}
_UNARY = (
    *("logistic", "tanh", "hard_swish", "leaky_relu", "relu", "relu6", "relu_n1_to_1", "relu_0_to_1", "gelu", "exp"),
    *("abs_", "rsqrt", "sqrt", "log", "neg", "quantize", "dequantize"),
)
_BINARY = (
    *("add", "sub", "mul", "div", "squared_difference", "maximum", "minimum"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
)
_DRAWS = 4  # samples with random integers, where all of them cannot be tried
_NOT_NEGATIVE = ("sqrt", "rsqrt")
REASONS = {
    ("DIV", "INT16"): "the kernel's reciprocal comes from fixed-point iterations, and quotients near 0 overflow in it",
    ("PRELU", "INT16"): "TensorFlow writes 8 bits only; the kernel of the package gives other numbers",
    **dict.fromkeys(
        (("REDUCE_PROD", "INT8"), ("REDUCE_PROD", "INT16")),
        "the kernel rescales after each factor; computed in binary32",
    ),
}
"""Reasons for inexact operators that ``tflite_integer_cases`` has no case of."""
EXTRA: dict[str, tuple[Maker, tuple[str, ...]]] = {}
"""Further makers: operators that only need inputs other than random integers, or no test of their own."""


def _extra(*types: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        EXTRA[maker.__name__] = (maker, types)
        return maker

    return register


def _plain(g: np.random.Generator, dtype: str, around: float = 0.05) -> T:
    return q(g, dtype, (1, 16, 16, 1), around if dtype != "INT16" else around / 200)


@_extra("INT8", "INT16")
def sqrt(g: np.random.Generator, dtype: str) -> S:
    x = dataclasses.replace(_plain(g, dtype), zero_point=(-128 if dtype == "INT8" else 0,))
    return single("SQRT", [x], [T("", x.shape, dtype, None, (scale(g, x.scale[0] ** 0.5 / 8),), (zero(g, dtype),))])


@_extra("INT16")
def rsqrt(g: np.random.Generator, dtype: str) -> S:
    x = dataclasses.replace(_plain(g, dtype, 0.2), zero_point=(0,))
    return single("RSQRT", [x], [T("", x.shape, dtype, None, (scale(g, 0.001),), (0,))])


@_extra("INT8", "INT16")
def neg(g: np.random.Generator, dtype: str) -> S:
    x = _plain(g, dtype)
    return single("NEG", [x], [like(x, x.shape)], "NegOptions")


@_extra("INT16")
def gelu(g: np.random.Generator, dtype: str) -> S:
    x = _plain(g, dtype, 0.03)
    y = T("", x.shape, dtype, None, (scale(g, x.scale[0]),), (0,))
    return single("GELU", [x], [y], "GeluOptions", approximate=bool(g.integers(2)))


@_extra(*ALL)
def div(g: np.random.Generator, dtype: str) -> S:
    a, b = _plain(g, dtype), _plain(g, dtype)
    y = T("", a.shape, dtype, None, (scale(g, a.scale[0] / b.scale[0] / 20),), (zero(g, dtype),))
    return single("DIV", [a, b], [y], "DivOptions", fused_activation_function=int(g.choice([0, 0, 1, 3])))


def _comparison(name: str) -> Maker:
    def maker(g: np.random.Generator, dtype: str) -> S:
        a, b = _plain(g, dtype), _plain(g, dtype)
        if g.random() < 0.4:
            b = like(a, b.shape)
        return single(name, [a, b], [T("", a.shape, "BOOL")])

    return maker


for _name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
    EXTRA[_name.lower()] = (_comparison(_name), ALL)


@_extra("INT8", "INT16")
def batch_matmul_broadcast(g: np.random.Generator, dtype: str) -> S:
    batch, other = [
        ((2, 3), (1, 3)),
        ((1, 3), (2, 3)),
        ((2, 1), (1, 3)),
        ((2, 3), (3,)),
        ((3,), (1,)),
        ((2, 3), (1, 1)),
    ][int(g.integers(6))]
    m, k, p = extents(g, 6, 12, 6)
    around = 0.05 if dtype == "INT8" else 3e-4
    adj_x, adj_y = (bool(g.integers(2)) for _ in range(2))
    a = q(g, dtype, (*batch, k, m) if adj_x else (*batch, m, k), around)
    b = q(g, dtype, (*other, p, k) if adj_y else (*other, k, p), around)
    spread = 50 if dtype == "INT8" else 12000
    full = np.broadcast_shapes(batch, other)
    y = T("", (*full, m, p), dtype, None, (scale(g, a.scale[0] * b.scale[0] * spread * np.sqrt(k)),), (zero(g, dtype),))
    return single("BATCH_MATMUL", [a, b], [y], "BatchMatMulOptions", adj_x=adj_x, adj_y=adj_y)


@_extra("INT8")
def fully_connected_computed(g: np.random.Generator, dtype: str) -> S:
    rows, ic, oc = extents(g, 4, 24, 8)
    x = q(g, dtype, (rows, ic))
    w = T("", (oc, ic), dtype, None, (scale(g, 0.02),), (0,))
    y = T("", (rows, oc), dtype, None, (scale(g, x.scale[0] * w.scale[0] * 60 * np.sqrt(ic)),), (zero(g, dtype),))
    return single("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions")


@_extra("INT16")
def prelu(g: np.random.Generator, dtype: str) -> S:
    x, y = (q(g, dtype, (1, 4, 4, 5), 1e-3) for _ in range(2))
    data = g.integers(-30000, 30000, (1, 1, 5)).astype(np.int16)
    slope = T("slope", data=data, scale=(scale(g, 2e-5),), zero_point=(0,))
    return single("PRELU", [x, slope], [y])


@_extra("INT8", "INT16")
def reduce_prod(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, (2, 3, 4), 0.02 if dtype == "INT8" else 1e-4)
    y = T("", (2, 4), dtype, None, (scale(g, 0.01 if dtype == "INT8" else 1e-4),), (zero(g, dtype),))
    return single("REDUCE_PROD", [x, T("axes", data=np.asarray([1], np.int32))], [y], "ReducerOptions")


@_extra(*ALL)
def topk_v2(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, (3, 8))
    return single("TOPK_V2", [x, T("k", data=np.asarray(3, np.int32))], [like(x, (3, 3)), T("", (3, 3), "INT32")])


@_extra(*ALL)
def gather(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, (5, 4))
    return single(
        "GATHER", [x, T("i", data=np.asarray([4, 0, 2], np.int32))], [like(x, (3, 4))], "GatherOptions", axis=0
    )


@_extra(*ALL)
def gather_nd(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, (5, 4))
    return single("GATHER_ND", [x, T("i", data=np.asarray([[4, 1], [0, 3]], np.int32))], [like(x, (2,))])


@_extra(*ALL)
def select_v2(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, (3, 4))
    condition = T("c", data=np.asarray([True, False, False, True]))
    return single("SELECT_V2", [condition, x, like(x, (3, 4))], [like(x, (3, 4))])


@_extra(*ALL)
def select(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, (3, 4))
    condition = T("", (3, 4), "BOOL")
    return single("SELECT", [condition, x, like(x, (3, 4))], [like(x, (3, 4))])


@_extra(*ALL)
def reverse_sequence(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, (3, 4))
    lengths = T("n", data=np.asarray([1, 4, 2], np.int32))
    return single("REVERSE_SEQUENCE", [x, lengths], [like(x, (3, 4))], "ReverseSequenceOptions", seq_dim=1, batch_dim=0)


@_extra(*ALL)
def dynamic_update_slice(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, (3, 4))
    start = T("s", data=np.asarray([1, 2], np.int32))
    return single("DYNAMIC_UPDATE_SLICE", [x, like(x, (2, 2)), start], [like(x, (3, 4))])


@_extra("INT8")
def svdf(g: np.random.Generator, dtype: str) -> S:
    """The integer form: 8-bit activations, a 16-bit state that starts with zeros."""
    units, rank, memory, size = 4, 1, 5, 6
    count = units * rank
    x = q(g, dtype, (2, size))
    weights = g.integers(-127, 128, (count, size)).astype(np.int8)
    feature = T("f", data=weights, scale=(scale(g, 0.02),), zero_point=(0,))
    time = T("t", data=g.integers(-3000, 3000, (count, memory)).astype(np.int16), scale=(2.0**-12,), zero_point=(0,))
    state = T("s", (2, memory * count), "INT16", None, (scale(g, 2e-3),), (0,), variable=True)
    unit = float(np.float32(np.float32(state.scale[0]) * np.float32(time.scale[0])))
    bias = T("b", data=g.integers(-2000, 2000, units).astype(np.int32), scale=(unit,), zero_point=(0,))
    y = T("", (2, units), dtype, None, (scale(g, 0.05),), (zero(g, dtype),))
    return single("SVDF", [x, feature, time, bias, state], [y], "SVDFOptions", rank=rank, fused_activation_function=1)


# --- variants ---------------------------------------------------------------------------------------------------------


def _maker(name: str, dtype: str) -> Maker | None:
    for table in (CASES, EXTRA):
        maker, types = table.get(name, (None, ()))
        if maker is not None and dtype in types:
            return maker
    return None


def _split(count: int, rank: int) -> tuple[int, ...]:
    """Factorize a power of two into ``rank`` extents."""
    bits = count.bit_length() - 1
    parts = [bits // rank + (1 if axis < bits % rank else 0) for axis in range(rank)]
    return tuple(2**part for part in parts)


def _integers(dtype: str, g: np.random.Generator) -> np.ndarray[Any, Any]:
    limits = np.iinfo(NUMPY[dtype])
    return g.permutation(np.arange(limits.min, limits.max + 1)).astype(NUMPY[dtype])


def _with_shapes(model: S, shapes: dict[int, tuple[int, ...]]) -> S:
    tensors = [dataclasses.replace(t, shape=shapes.get(i, t.shape)) for i, t in enumerate(model.tensors)]
    return dataclasses.replace(model, tensors=tensors)


def _unary_sample(name: str, dtype: str, seed: int) -> Sample | None:
    """All integers of the type, in a tensor of rank 1 to 5."""
    maker = _maker(name, dtype)
    if maker is None:
        return None
    g = np.random.default_rng([seed, 3])
    model = maker(g, dtype)
    shape = _split(2 ** (8 if dtype != "INT16" else 16), 1 + seed % 5)
    data = _integers(dtype, g)
    if name in _NOT_NEGATIVE and dtype == "INT16":
        data = np.where(data < 0, -1 - data, data).astype(data.dtype)
    return Sample(model.operators[0].name, dtype, _with_shapes(model, {0: shape, 1: shape}), [data.reshape(shape)])


def _binary_sample(name: str, dtype: str, seed: int, variant: int) -> Sample | None:
    """All pairs (variant 0), the operand twice (1), a constant (2 to 4), or random operands that broadcast (5)."""
    maker = _maker(name, dtype)
    if maker is None:
        return None
    g = np.random.default_rng([seed, variant, 4])
    model = maker(g, dtype)
    (operator,) = model.operators
    a, b, y = model.tensors
    data, other = _integers(dtype, g)[:256], _integers(dtype, g)[:256]
    rank = 1 + seed % 5
    shape = _split(256, rank)
    left, right, full = data.reshape(shape), other.reshape(shape), shape
    inputs, places = [0, 1], [0, 1]
    if variant == 0:
        full = (*(1,) * (rank % 3), 256, 256)
        left, right = data.reshape(*full[:-1], 1)[..., :1], other.reshape(1, 256)
        left = left if left.shape[:-1] == full[:-1] else data.reshape((*full[:-2], 256, 1))
    elif variant == 1:
        inputs, places = [0], [0, 0]
        b = like(a, shape)
    elif variant == 5:
        lead = [1] * rank
        lead[-1] = shape[-1]
        right = other[: shape[-1]].reshape(lead if seed % 2 else shape[-1:])
        if seed % 3 == 0:
            left, right = right, left
    if name == "div":  # the kernel rejects the integer 0, and leaves the divisor 0 undefined
        point = b.zero_point[0]
        safe = right if variant != 1 else left
        safe = np.where((safe == 0) | (safe == point), 1 if point != 1 else 2, safe).astype(safe.dtype)
        left, right = (left, safe) if variant != 1 else (safe, safe)
    tensors = [dataclasses.replace(t, name=n) for t, n in ((a, "a"), (b, "b"), (y, "y"))]
    shapes = {0: left.shape, 1: right.shape, 2: full}
    feeds = [left, right][: len(inputs)]
    if variant in (2, 3, 4):
        number = 0 if variant == 4 and name != "div" else 1
        array = (left, right)[number]
        array = array.reshape(-1)[: 1 if variant == 2 else shape[-1]]
        array = array.reshape((1,) if variant == 2 else (shape[-1],))
        tensors[number] = dataclasses.replace(tensors[number], data=array)
        inputs, feeds = [1 - number], [(right, left)[number]]
        shapes.pop(number)
    operators = [O(operator.name, places, [2], operator.table, operator.options, operator.version)]
    return Sample(operator.name, dtype, _with_shapes(S(tensors, operators, inputs, [2]), shapes), feeds)


def source_name(name: str) -> str:
    """Name of the source operator of a maker."""
    return _NAMES.get(name, name.strip("_").upper())


def _moved(case: Case) -> Sample:
    types = [array.dtype.name.upper() for array in arrays_of(case)]
    dtype = next((t for t in types if t in NUMPY), "FLOAT32")
    return Sample(case.op, dtype, subgraph_of(case), arrays_of(case))


def samples(count: int, names: frozenset[str] = frozenset()) -> Iterator[Sample]:
    """Yield ``count`` samples of each variant of each operator and type, or of the named source operators only."""

    def is_wanted(name: str) -> bool:
        return not names or source_name(name) in names

    for seed in range(count):
        for dtype in ALL:
            for name in filter(is_wanted, _UNARY):
                found = _unary_sample(name, dtype, seed)
                yield from () if found is None else (found,)
            for name in filter(is_wanted, _BINARY):
                for variant in range(6):
                    found = _binary_sample(name, dtype, seed, variant)
                    yield from () if found is None else (found,)
        for table in (CASES, EXTRA):
            for name, (maker, types) in table.items():
                if not is_wanted(name) or name in (*_UNARY, *_BINARY):
                    continue
                for dtype, number in itertools.product(types, range(_DRAWS)):
                    model = maker(np.random.default_rng([seed, number, zlib.crc32(name.encode())]), dtype)
                    yield Sample(model.operators[0].name, dtype, model)
    yield from (_moved(case) for case in all_cases() if case.scale and (not names or case.op in names))
