"""Every quantized operator gives the bytes of the TensorFlow Lite reference kernels, on generated models."""

from __future__ import annotations

import math
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tests.support.tflite.integer_cases import CASES, EXCEPTIONS, NUMPY
from tests.support.tflite.models import O, S, T, serialize, single
from tpuconvert.schema.types import Array

litert = pytest.importorskip("ai_edge_litert.interpreter")

from tools.exactness.tflite_exactness import Line, Oracle, outputs_by_name  # noqa: E402 - needs the interpreter

PAIRS = [(name, dtype) for name, (_, types) in CASES.items() for dtype in types]
ORDINARY, MANY = 3, 40


def compare(folder: Path, model: S, seed: object, line: Line, backends: tuple[str, ...]) -> Line:
    """The outputs of a model on random inputs, added to a line."""
    file = folder / "model.tflite"
    file.write_bytes(serialize(model))
    oracle, generator = Oracle(file), np.random.default_rng(zlib.crc32(repr(seed).encode()))
    converted = tc.convert(file)
    feeds = oracle.random_feeds(generator)
    want = oracle.run(feeds)
    for backend in backends:
        with tc.Session(converted, backend=backend) as session:  # type: ignore[arg-type]  # a parameter
            for found, expected in zip(session.run(outputs_by_name(session, feeds)).values(), want, strict=True):
                line.add(found, expected)
                assert not line.problem, (seed, line.problem)
    return line


def check(folder: Path, name: str, dtype: str, seeds: range, backends: tuple[str, ...]) -> None:
    make, _ = CASES[name]
    line = Line(name)
    for seed in seeds:
        model = make(np.random.default_rng([seed, 1]), dtype)
        compare(folder, model, (name, dtype, seed), line, backends)
        allowed = EXCEPTIONS.get((name, dtype))
        assert line.largest <= (allowed.steps if allowed else 0), (name, dtype, seed, line.largest)
    assert line.elements, "something is compared"
    if allowed:
        assert line.different <= max(allowed.share * line.elements, 2)


@pytest.mark.parametrize(("name", "dtype"), sampled(PAIRS))
def test_generated_models(name: str, dtype: str, tmp_path: Path) -> None:
    check(tmp_path, name, dtype, range(ORDINARY), ("reference",))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_many_generated_models(name: str, dtype: str, tmp_path: Path) -> None:
    check(tmp_path, name, dtype, range(ORDINARY, MANY), ("reference", "native"))


def near_ties(factor: float, g: np.random.Generator) -> Array:
    """Sums that are near ties after the multiplication, and the limits of the range."""
    halves = (np.arange(-300, 300) + 0.5) / factor
    near = np.concatenate([np.floor(halves), np.ceil(halves)]).astype(np.int64)
    return np.unique(np.clip(near, -(2**31) + 1, 2**31 - 1))[: g.integers(500, 1200)]


@pytest.mark.parametrize("kind", ["CONV_2D", "FULLY_CONNECTED"])
@pytest.mark.parametrize("exponent", [-14, -9, -4, -1, 0])
def test_products_near_ties(kind: str, exponent: int, tmp_path: Path) -> None:
    """One sum per channel, set through the bias: multipliers near powers of two, small and large shifts."""
    g = np.random.default_rng(exponent + 40)
    for mantissa in (0.5, 0.5000001, 0.75, 0.9999999, float(g.uniform(0.5, 1))):
        factor = mantissa * 2.0**exponent
        bias = near_ties(factor, g).astype(np.int32)
        unit = float(np.float32(0.01))
        x = T("", (1, 1, 1, 1) if kind == "CONV_2D" else (1, 1), "INT8", None, (1.0,), (0,))
        shape = (bias.size, 1, 1, 1) if kind == "CONV_2D" else (bias.size, 1)
        w = T("w", data=np.ones(shape, np.int8), scale=(unit,), zero_point=(0,))
        b = T("b", data=bias, scale=(unit,), zero_point=(0,))
        y = T("", (), "INT8", None, (float(np.float32(unit / factor)),), (int(g.integers(-20, 20)),))
        options = {"stride_h": 1, "stride_w": 1} if kind == "CONV_2D" else {}
        table = "Conv2DOptions" if kind == "CONV_2D" else "FullyConnectedOptions"
        line = compare(tmp_path, single(kind, [x, w, b], [y], table, **options), factor, Line(kind), ("reference",))
        assert line.is_exact, (factor, str(line))


def rounded_twice(x: int, factor: float) -> int:
    """The kernels' rescale in Python integers: 31 bits rounded half up, the rest half away from zero."""
    fraction, exponent = math.frexp(factor)
    high = math.floor(Fraction(x * round(fraction * 2**31), 2**31) + Fraction(1, 2))
    rest = Fraction(high) * Fraction(2) ** exponent
    return math.floor(abs(rest) + Fraction(1, 2)) * (1 if rest >= 0 else -1)


@pytest.mark.parametrize("dtype", ["INT8", "INT16"])
def test_sums_of_signed_integers(dtype: str, tmp_path: Path) -> None:
    """The reference kernel of the package reads signed integers as unsigned bytes: this one is computed by hand."""
    g = np.random.default_rng(5)
    x_scale, y_scale, x_zero, y_zero = 0.05, 0.11, -3 if dtype == "INT8" else 0, 7 if dtype == "INT8" else 0
    x = T("", (4, 9), dtype, None, (x_scale,), (x_zero,))
    y = T("", (4,), dtype, None, (y_scale,), (y_zero,))
    model = single("SUM", [x, T("axes", data=np.asarray([1], np.int32))], [y], "ReducerOptions", keep_dims=False)
    file = tmp_path / "model.tflite"
    file.write_bytes(serialize(model))
    limits = np.iinfo(NUMPY[dtype])
    data = g.integers(limits.min // 4, limits.max // 4, (4, 9)).astype(NUMPY[dtype])
    factor = float(np.float32(x_scale)) / float(np.float32(y_scale))
    sums = (data.astype(np.int64) - x_zero).sum(axis=1).tolist()
    want = np.clip([rounded_twice(total, factor) + y_zero for total in sums], limits.min, limits.max)
    with tc.Session(tc.convert(file)) as session:
        (found,) = session.run({session.inputs[0].name: data}).values()
    assert found.tolist() == want.tolist()


def test_forms_end_at_their_own_operator(tmp_path: Path) -> None:
    """A float network before a quantization is not part of its pattern, even if its values have several users."""
    count = 60
    tensors = [T(f"t{index}", (4,)) for index in range(count + 1)]
    operators = [O("ADD", [index, index], [index + 1], "AddOptions") for index in range(count)]
    tensors.append(T("y", (4,), "INT8", None, (0.5,), (0,)))
    model = S(tensors, [*operators, O("QUANTIZE", [count], [count + 1])], [0], [count + 1])
    (tmp_path / "model.tflite").write_bytes(serialize(model))
    converted = tc.convert(tmp_path / "model.tflite")
    with tc.Session(converted) as session:
        (found,) = session.run({"t0": np.full(4, 2.0**-count, np.float32)}).values()
    assert found.tolist() == [2] * 4


def test_every_exception_is_of_a_case() -> None:
    assert set(EXCEPTIONS) <= set(PAIRS)
