"""Arithmetic, comparison and select of two or three tensors, with broadcasting and fused activations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.tflite.cases import Case, Given, f32, feed, i32, numbers

_PAIRS = {
    "equal": ((2, 3, 4, 5), (2, 3, 4, 5)),
    "last axis": ((2, 3, 4), (4,)),
    "both": ((3, 1, 5), (1, 4, 1)),
    "number": ((2, 5), ()),
    "rank": ((5,), (2, 3, 1)),
}
_OPTIONS = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}
_ACTIVATIONS = {"NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
_COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")


def _second(op: str, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Given:
    """Divisors that are not close to 0."""
    made = (
        feed(name, shape, 1, 6, dtype) if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD") else feed(name, shape, -6, 6, dtype)
    )
    return made


def _with_activation() -> Iterator[Case]:
    for op, table in _OPTIONS.items():
        for kind, (a, b) in _PAIRS.items():
            for activation, number in _ACTIVATIONS.items():
                operands = [feed(f"{op}{kind}a", a, -6, 6), _second(op, f"{op}{kind}b", b)]
                yield Case(
                    op,
                    operands,
                    table=table,
                    options={"fused_activation_function": number},
                    note=f"{kind} {activation}",
                )


def _plain() -> Iterator[Case]:
    for op in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD"):
        for kind, (a, b) in _PAIRS.items():
            if len(a) > 4 or len(b) > 4:
                continue
            yield Case(op, [feed(f"{op}{kind}a", a, -6, 6), _second(op, f"{op}{kind}b", b)], note=kind)
        yield Case(
            op,
            [feed(op, (3, 4), -90, 90, "int32"), _second(op, op + "b", (3, 4), "int32")],
            ["INT32"],
            note="int32",
        )
    for op in ("ADD", "SUB", "MUL", "DIV"):
        operands = [feed(op, (3, 4), -90, 90, "int32"), _second(op, op + "b", (4,), "int32")]
        yield Case(op, operands, ["INT32"], _OPTIONS[op], note="int32")
    for op in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"):
        operands = [feed(op, (3, 4), -90, 90, "int64"), _second(op, op + "b", (4,), "int64")]
        yield Case(op, operands, ["INT64"], _OPTIONS.get(op, ""), note="int64")


def _comparisons() -> Iterator[Case]:
    for op in _COMPARISONS:
        for kind, (a, b) in _PAIRS.items():
            if len(a) <= 4:
                left, right = (
                    feed(f"{op}{kind}a", a, -2, 2, "int32"),
                    feed(f"{op}{kind}b", b, -2, 2, "int32"),
                )
                yield Case(
                    op, [Given(left.array.astype("float32")), Given(right.array.astype("float32"))], ["BOOL"], note=kind
                )
        for dtype in ("int32", "int64"):
            yield Case(op, [feed(op, (4, 5), -3, 3, dtype), numbers("c", (5,), -3, 3, dtype)], ["BOOL"], note=dtype)
    for op in ("EQUAL", "NOT_EQUAL"):
        yield Case(
            op,
            [feed(op, (4, 5), dtype="bool"), feed(op + "b", (5,), dtype="bool")],
            ["BOOL"],
            note="bool",
        )


def _logic() -> Iterator[Case]:
    for op in ("LOGICAL_AND", "LOGICAL_OR"):
        yield Case(op, [feed(op, (4, 5), dtype="bool"), feed(op + "b", (4, 5), dtype="bool")], ["BOOL"])
        yield Case(
            op,
            [feed(op, (4, 5), dtype="bool"), feed(op + "b", (5,), dtype="bool")],
            ["BOOL"],
            note="broadcast",
        )


def _selects() -> Iterator[Case]:
    condition = feed("condition", (2, 3), dtype="bool")
    for dtype in ("float32", "int32", "int64", "bool"):
        x, y = feed("x", (2, 3), -9, 9, dtype), feed("y", (2, 3), -9, 9, dtype)
        yield Case("SELECT", [condition, x, y], [dtype.upper()], note=dtype)
        yield Case("SELECT_V2", [condition, x, feed("row", (3,), -9, 9, dtype)], [dtype.upper()], note=dtype)
    rows = [feed("rows", (2,), dtype="bool"), feed("x", (2, 3, 2)), feed("y", (2, 3, 2))]
    yield Case("SELECT", rows, note="one condition per row")
    yield Case("SELECT_V2", [feed("c", (2, 1), dtype="bool"), numbers("x", (1, 3)), f32(0)], note="constants")


def _powers() -> Iterator[Case]:
    for exponent in (0.0, 0.5, 1.0, 2.0, 3.0, 2.5, -1.0, -2.0, 7.0):
        base = feed("base", (3, 4), 0.2, 3)
        yield Case("POW", [base, f32(exponent)], atol=5e-6, note=str(exponent))
    yield Case("POW", [feed("base", (2, 4), 0.2, 3), feed("exponent", (4,))], atol=5e-6, note="run time")


def _rest() -> Iterator[Case]:
    yield Case("ADD_N", [feed(f"n{i}", (2, 5)) for i in range(4)])
    yield Case("ADD_N", [feed(f"n{i}", (2, 5), -9, 9, "int32") for i in range(2)], ["INT32"], note="int32")
    for dtype in ("int32", "int16", "int8"):
        operands = [
            feed(f"xor{dtype}", (3, 4), -100, 100, dtype),
            feed(f"xorb{dtype}", (3, 4), -100, 100, dtype),
        ]
        yield Case("BITWISE_XOR", operands, [dtype.upper()], note=dtype)
    shifted: list[Any] = [feed("shift", (3, 4), -1000, 1000, "int32"), numbers("by", (3, 4), 0, 8, "int32")]
    yield Case("RIGHT_SHIFT", shifted, ["INT32"])
    quadrants = [Given(f32(1, 1, -1, -1, 0, 0, 2, -2, 0)), Given(f32(1, -1, 1, -1, 1, -1, 0, 0, 0))]
    yield Case("ATAN2", quadrants, note="quadrants and axes")
    yield Case("ATAN2", [feed("ya", (5, 7)), feed("xa2", (5, 7))], note="random")
    yield Case("REVERSE_V2", [feed("rev", (2, 3, 4)), i32(1).reshape(1)])


CASES = [*_with_activation(), *_plain(), *_comparisons(), *_logic(), *_selects(), *_powers(), *_rest()]
