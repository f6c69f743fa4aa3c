"""Tests generated from an operator's definition, for ``tpuconvert op test plugin.py``.

Operands come from the definition's ``examples()``: pairs of an operator and its operands. An operand is an array, or a
shape that is filled with random numbers from a fixed seed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tpuconvert.model.model import Model, load
from tpuconvert.runtime.custom_kernel import NativeKernel
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import I8, U8, Array, Chip, DType, QuantParams, TensorType

STEPS = 2.0
"""Largest accepted difference of an integer form from the float reference, in units of the result's scale."""

Example = tuple[Op, tuple[Array, ...]]


@dataclass(frozen=True)
class Outcome:
    """Result of one test. ``passed`` is None for a test that does not apply, with the reason."""

    operator: str
    test: str
    passed: bool | None
    detail: str


class _NotApplicableError(Exception):
    """A test does not apply to the operator; the message has the reason."""


class _FailedError(Exception):
    """A test failed; the message has the reason."""


def run_tests(definitions: Iterable[type[Op]], *, require_native: bool) -> list[Outcome]:
    """Run every test of every operator."""
    return [outcome for definition in definitions for outcome in _outcomes(definition, require_native)]


def _outcomes(definition: type[Op], require_native: bool) -> Iterator[Outcome]:
    try:
        examples = list(examples_of(definition))
    except UsageError as error:
        yield Outcome(definition.name, "examples", False, str(error))
        return
    tests: tuple[tuple[str, Callable[[Op, Sequence[Array]], str]], ...] = (
        ("types", _types),
        ("reference", _reference),
        ("native", lambda op, operands: _native(op, operands, require_native)),
        ("quantized", _integer_form),
        ("save and load", _save_and_load),
    )
    for name, test in tests:
        details = []
        passed: bool | None = None
        for op, operands in examples:
            try:
                details.append(test(op, operands))
                passed = True
            except _NotApplicableError as reason:
                details.append(str(reason))
            except Exception as error:  # a plugin may raise any exception, which fails the test
                details = [f"{op}: {error if isinstance(error, _FailedError) else f'{type(error).__name__}: {error}'}"]
                passed = False
                break
        yield Outcome(definition.name, name, passed, "; ".join(dict.fromkeys(filter(None, details))))


def examples_of(definition: type[Op]) -> Iterator[Example]:
    """Yield the example operators with their operands.

    Raises:
        UsageError: the definition has no examples, or one that is not such a pair.

    """
    how = "examples() yields pairs of an operator and its operands: arrays, or shapes"
    examples = getattr(definition, "examples", None)
    if not callable(examples):
        raise UsageError(f"{definition.name} has no examples to test it with", hint=f"a static method {how}")
    random = np.random.default_rng(0)
    count = 0
    for item in examples():
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], definition)):
            raise UsageError(f"{definition.name}: an example is {item!r}", hint=how)
        op, operands = item
        yield op, tuple(_fill(operand, random) for operand in operands)
        count += 1
    if not count:
        raise UsageError(f"{definition.name} has no examples to test it with", hint=how)


def _fill(operand: Any, random: np.random.Generator) -> Array:
    array: Array = operand if isinstance(operand, np.ndarray) else random.normal(size=operand).astype(np.float32)
    return array


def _type_of(array: Array) -> TensorType:
    return TensorType(DType.of(array.dtype), array.shape)


def _same(expected: Sequence[Array], actual: Sequence[Array], what: str) -> None:
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if one.dtype != other.dtype or one.shape != other.shape:
            raise _FailedError(f"result {number} of the {what} is {_type_of(other)}, not {_type_of(one)}")
        if one.tobytes() != other.tobytes():
            unequal = np.argwhere(np.asarray(one != other))
            where = tuple(map(int, unequal[0])) if len(unequal) else ()
            raise _FailedError(
                f"result {number} of the {what} differs from the reference"
                + (f" at {where}: {other[where]!r} instead of {one[where]!r}" if len(unequal) else " in signs of zero")
            )


def _types(op: Op, operands: Sequence[Array]) -> str:
    types = op.infer(*map(_type_of, operands))
    for number, (type_, array) in enumerate(zip(types, op.evaluate(*operands), strict=True)):
        if _type_of(array) != type_:
            raise _FailedError(f"infer says {type_} for result {number}, the reference gives {_type_of(array)}")
    return ", ".join(map(str, types))


def _reference(op: Op, operands: Sequence[Array]) -> str:
    copies = [operand.copy() for operand in operands]
    first = [np.array(array) for array in op.evaluate(*operands)]
    _same(first, op.evaluate(*operands), "second run")
    _same(copies, operands, "operands, which it changed: they are not what they were, and so nothing")
    return "gives the same twice"


def _native(op: Op, operands: Sequence[Array], is_required: bool) -> str:
    kernel = getattr(type(op), "native", None)
    if not isinstance(kernel, NativeKernel):
        raise _NotApplicableError("it has no native kernel")
    if not kernel.is_available:
        if is_required:
            raise _FailedError(f"{kernel.library}: no such library")
        raise _NotApplicableError(f"not built: no {kernel.library.name}")
    expected = op.evaluate(*operands)
    results = [np.empty(array.shape, array.dtype) for array in expected]
    kernel.run(op, [np.ascontiguousarray(operand) for operand in operands], results)
    _same(expected, results, "native kernel")
    return f"equals the reference ({kernel.symbol})"


def _integer_form(op: Op, operands: Sequence[Array]) -> str:
    answer = getattr(op, "quantized", None)
    if not callable(answer):
        raise _NotApplicableError("it has no integer form")
    quants = tuple(_params(operand) for operand in operands)
    integers = [params.quantize(operand) for params, operand in zip(quants, operands, strict=True)]
    real = [params.dequantize(array) for params, array in zip(quants, integers, strict=True)]
    expected = op.evaluate(*real)
    for results in (tuple(map(_params, expected)), (quants[0],) * len(expected)):
        form = answer(quants, results)
        if form is not None:
            break
    else:
        raise _NotApplicableError("it declines the scales that were tried")
    worst = 0.0
    for params, floats, codes in zip(results, expected, form.evaluate(*integers), strict=True):
        if DType.of(codes.dtype) is not params.dtype:
            raise _FailedError(f"{form.name} gives {codes.dtype}, not {params.dtype.value}")
        reachable = np.clip(floats, *params.dequantize(np.array([params.dtype.min, params.dtype.max])))
        worst = max(worst, float(np.abs(params.dequantize(codes) - reachable).max(initial=0.0)) / params.scale[0])
    if worst > STEPS:
        raise _FailedError(f"{form.name} is {worst:.2f} steps away from the float reference; {STEPS:g} are allowed")
    return f"{form.name} is within {worst:.2f} steps of the float reference"


def _params(array: Array) -> QuantParams:
    """Return parameters for symmetric INT8, or for UINT8 if no element is negative."""
    largest = float(np.abs(array).max(initial=0.0)) or 1.0
    if array.min(initial=0.0) >= 0:
        return QuantParams.per_tensor(largest / 255, 0, U8)
    return QuantParams.per_tensor(largest / 127, 0, I8)


def _save_and_load(op: Op, operands: Sequence[Array]) -> str:
    graph = Graph(op.name)
    inputs = [graph.input(f"x{number}", _type_of(operand)) for number, operand in enumerate(operands)]
    for value in graph.add_all(op, *inputs):
        graph.output(value)
    feeds = {value.name: operand for value, operand in zip(inputs, operands, strict=True)}
    expected = list(op.evaluate(*operands))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tpum"
        Model(FileModel(graph=graph, chip=Chip.BM1686, tool_version="test")).save(path)
        model = load(path)
        (node,) = model.graph.nodes
        if node.op != op:
            raise _FailedError(f"read back it is {node.op}")
        backends: tuple[Literal["reference", "auto"], ...] = ("reference", "auto")
        for backend in backends:
            with Session(model, backend=backend) as session:
                _same(expected, list(session.run(feeds).values()), f"session ({session.backend})")
    return "the file gives it back, and sessions run it"


def raise_if_failed(outcomes: Sequence[Outcome]) -> None:
    """Raise an error with the number of failed tests.

    Raises:
        ThresholdError: at least one test failed.

    """
    failed = [outcome for outcome in outcomes if outcome.passed is False]
    if failed:
        raise ThresholdError(f"{len(failed)} of {len(outcomes)} tests failed")
