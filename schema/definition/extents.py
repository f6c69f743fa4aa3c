"""Shape arithmetic on extents, which are integers or names of dynamic dimensions.

Arithmetic on a name gives a name that is the formula (``H+2``, ``3*H*W``), so that equal names mean equal extents. Sums
have a normal form: terms are sorted, so that ``past+new`` and ``new+past`` are one name, and equal terms are added up.
Names of data-dependent extents begin with ``?``; these extents may differ although their names are equal, and equal
terms of them are not added up.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.system.limits import current_limits, exceeded
from tpuconvert.schema.types import Dim, Shape, TensorType, format_shape


def unknown(op: str, axis: int | str = "") -> str:
    """Name of an extent that depends on the operands' data."""
    return f"?{op}{axis}"


_UNKNOWN = re.compile(r"\?\w+(?:\.\d+)?")


def data_dependent_names(shape: Shape) -> set[str]:
    """Names of data-dependent extents in a shape, also those in formulas."""
    return {name for extent in shape if isinstance(extent, str) for name in _UNKNOWN.findall(extent)}


def rename_extent(extent: Dim, names: Mapping[str, str]) -> Dim:
    """Replace names of data-dependent extents in an extent."""
    if isinstance(extent, int) or "?" not in extent:
        return extent
    return _UNKNOWN.sub(lambda match: names.get(match[0], match[0]), extent)


def shapes_of(types: Iterable[TensorType]) -> str:
    """Format several shapes for messages."""
    return " and ".join(format_shape(item.shape) for item in types)


def plus(*terms: Dim) -> Dim:
    """Sum of extents. The name depends neither on the order of the terms nor on their grouping."""
    number, names = 0, Counter[str]()
    for term in terms:
        if isinstance(term, int):
            number += term
        else:
            own, terms_of_name = sum_terms(term)
            number += own
            names.update(terms_of_name)
    return _format_sum(number, names)


def minus(extent: Dim, other: Dim) -> Dim | None:
    """Difference of extents; None if it has a negative term, or if the second one depends on data."""
    (number, names), (other_number, other_names) = map(sum_terms, (extent, other))
    names.subtract(other_names)
    if any("?" in name for name in other_names) or min(names.values(), default=0) < 0:
        return None
    return _format_sum(number - other_number, names)


def sum_terms(extent: Dim) -> tuple[int, Counter[str]]:
    """Split a sum into its integer and its other terms, with the integer factor of each."""
    if isinstance(extent, int):
        return extent, Counter()
    total, names = 0, Counter[str]()
    for term in split_sum(extent):
        if isinstance(term, int):
            total += term
            continue
        number, factors = factorize((term.removeprefix("-"),))
        number = -number if term.startswith("-") else number
        if not factors:
            total += number if term else 0
            continue
        (inner, *others) = factors.elements()
        if not others and inner.startswith("("):  # a multiple of a sum
            own, terms_of_sum = sum_terms(without_parentheses(inner))
            total += number * own
            names.update({name: number * count for name, count in terms_of_sum.items()})
        else:
            names[str(times(*factors.elements()))] += number
    return total, Counter({name: count for name, count in names.items() if count})


def _format_sum(number: int, names: Mapping[str, int]) -> Dim:
    """Format a sum: sorted terms and the integer, with a common factor in front of parentheses."""
    names = {name: count for name, count in names.items() if count}
    if not names:
        return number
    is_data_dependent = any("?" in name for name in names)
    divisor = 1 if is_data_dependent else math.gcd(number, *names.values())
    if divisor > 1 and len(names) + bool(number) > 1:
        return times(divisor, _format_sum(number // divisor, {name: count // divisor for name, count in names.items()}))
    parts = []
    for name in sorted(names, key=lambda name: (names[name] < 0, name)):
        count = names[name]
        terms = [name] * abs(count) if "?" in name else [str(times(abs(count), name))]
        parts += terms if count > 0 else [f"-{term}" for term in terms]
    return _bounded("+".join(parts).replace("+-", "-") + (f"{number:+d}" if number else ""))


def times(*factors: Dim) -> Dim:
    """Product of extents. The name does not depend on the order of the factors."""
    number, names = factorize(factors)
    if not names or number == 0:
        return number
    _check_characters(sum(len(name) * count for name, count in names.items()))
    sorted_names = sorted(names.elements())
    if number == 1 and len(sorted_names) == 1:
        return without_parentheses(sorted_names[0])
    return "*".join([str(number), *sorted_names] if number != 1 else sorted_names)


def ceil_div(extent: Dim, step: int) -> Dim:
    """Extent divided by an integer, rounded up."""
    if isinstance(extent, int):
        return -(-extent // step)
    return extent if step == 1 else _bounded(f"ceil({_factor(extent)}/{step})")


def scaled_floor(extent: str, factor: float) -> str:
    """Return the formula of a symbolic extent times a number, rounded down."""
    return _bounded(f"floor({_factor(extent)}*{factor!r})")


def exact_div(extent: Dim, divisor: int) -> Dim:
    """Extent divided by ``divisor``, of which it is a multiple. The caller has checked this for integers."""
    if isinstance(extent, int):
        return extent // divisor
    number, names = factorize((extent,))
    if number % divisor == 0:
        return times(number // divisor, *names.elements())
    return _bounded(f"{_factor(extent)}/{divisor}")


def _bounded(formula: str) -> str:
    """Return a formula. A file of a kilobyte can double it in each of its nodes, by a Concat of a tensor with itself.

    Raises:
        ResourceLimitError: it is too long.
    """
    _check_characters(len(formula))
    return formula


def _check_characters(count: int) -> None:
    if count > current_limits().max_extent_characters:
        raise exceeded(f"an extent whose formula has {count:,} characters", "max_extent_characters")


def factorize(extents: Iterable[Dim]) -> tuple[int, Counter[str]]:
    """Factorize the product of extents into an integer and names with their multiplicities."""
    number, names = 1, Counter[str]()
    for extent in extents:
        if isinstance(extent, int):
            number *= extent
            continue
        for part in _split_product(extent):
            if part.isdecimal():
                number *= int(part)
            else:
                names[_factor(part)] += 1
    return number, names


def may_equal(first: Dim, second: Dim) -> bool:
    """Return False only if the extents are known to differ."""
    return first == second or isinstance(first, str) or isinstance(second, str)


def merge(first: Dim, second: Dim) -> Dim:
    """Merge two extents that must be equal: the integer if one of them is an integer."""
    return second if isinstance(first, str) and isinstance(second, int) else first


def merge_shapes(op: str, *types: TensorType) -> Shape:
    """Merge the shapes of operands that must have equal shapes.

    Raises:
        ShapeError: ranks or extents are known to differ.
    """
    shape = types[0].shape
    for other in types[1:]:
        if len(other.shape) != len(shape) or not all(map(may_equal, shape, other.shape)):
            raise ShapeError(f"{op} needs equal shapes, got {shapes_of(types)}")
        shape = tuple(map(merge, shape, other.shape))
    return shape


def broadcast_shapes(op: str, first: TensorType, second: TensorType) -> Shape:
    """Broadcast the shapes of two operands of equal rank.

    Raises:
        ShapeError: ranks differ, or extents on one axis differ and neither is 1.
    """
    if first.rank != second.rank:
        raise ShapeError(f"{op} needs operands of equal rank, got {shapes_of((first, second))}")
    extents = []
    for a, b in zip(first.shape, second.shape, strict=True):
        if a == b or b == 1:
            extents.append(a)
        elif a == 1:
            extents.append(b)
        elif isinstance(a, str) and isinstance(b, str):
            extents.append(f"max({min(a, b)},{max(a, b)})")  # wrong only for 1 and 0, which broadcast to 0
        elif isinstance(a, str) or isinstance(b, str):
            extents.append(merge(a, b))
        else:
            raise ShapeError(f"{op} cannot broadcast {shapes_of((first, second))}")
    return tuple(extents)


def normalize_axis(op: str, axis: int, x: TensorType) -> int:
    """Return a non-negative axis.

    Raises:
        ShapeError: the tensor has no such axis.
    """
    if not -x.rank <= axis < x.rank:
        raise ShapeError(f"{op}: axis {axis} does not exist in {format_shape(x.shape)}")
    return axis % x.rank


def normalize_axes(op: str, axes: Sequence[int], x: TensorType) -> tuple[int, ...]:
    """Return non-negative axes in the given order.

    Raises:
        ShapeError: an axis does not exist or occurs twice.
    """
    normalized = tuple(normalize_axis(op, axis, x) for axis in axes)
    if len(set(normalized)) != len(normalized):
        raise ShapeError(f"{op}: axes {list(axes)} name one axis of {format_shape(x.shape)} twice")
    return normalized


def with_extent(shape: Shape, axis: int, extent: Dim) -> Shape:
    """Shape with another extent on one axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


def check_length(op: str, name: str, values: Sequence[object], count: int, x: TensorType) -> None:
    """Check that a parameter has the number of values that the tensor requires.

    Raises:
        ShapeError: it has more or fewer values.
    """
    if len(values) != count:
        raise ShapeError(f"{op}: {name} {values} needs {count} values for {format_shape(x.shape)}")


def evaluate_extent(formula: str, numbers: Mapping[str, int]) -> int:
    """Evaluate an extent that is a formula of names.

    Raises:
        ShapeError: a name has no number, a division is not exact, or the text is not a formula of this module.
    """
    try:
        extent = _evaluate(ast.parse(formula, mode="eval").body, numbers)
        if extent.denominator == 1:
            return extent.numerator
        raise ShapeError(f"the extent {formula} is {extent} for {dict(numbers)}, which is not an integer")
    except (SyntaxError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        # the parser raises these errors for a text that is nested too deeply or has a null character
        raise ShapeError(f"the extent {formula} has no value for {dict(numbers)}") from error


def substitute(formula: str, extents: Mapping[str, Dim]) -> Dim:
    """Replace names in a formula by extents. The result is an integer if all of them are.

    Raises:
        ShapeError: as ``evaluate_extent``.
    """
    numbers = {name: extent for name, extent in extents.items() if isinstance(extent, int)}
    if len(numbers) == len(extents):
        return evaluate_extent(formula, numbers)
    return plus(*(_rename(term, extents) if isinstance(term, str) else term for term in split_sum(formula)))


def _rename(term: str, extents: Mapping[str, Dim]) -> Dim:
    """Replace names in a term of a sum."""
    if term in extents:
        return extents[term]
    text = _bounded(re.sub(r"[^\W\d]\w*\b(?!\()", lambda match: _factor(str(extents.get(match[0], match[0]))), term))
    return times(text)


def is_formula(formula: str, names: Iterable[str]) -> bool:
    """Return True if an extent can be evaluated when these names have numbers."""
    try:
        evaluate_extent(formula, dict.fromkeys(names, 1))
    except ShapeError:
        return False
    return True


def _evaluate(part: ast.expr, numbers: Mapping[str, int]) -> Fraction:
    match part:
        case ast.Name(name):
            return Fraction(numbers[name])
        case ast.Constant(int() | float() as number):
            return Fraction(number)
        case ast.UnaryOp(ast.USub(), value):
            return -_evaluate(value, numbers)
        case ast.BinOp():
            operations = []  # a sum of hundreds of terms is as many levels deep on its left side
            while isinstance(part, ast.BinOp):
                operations.append(part)
                part = part.left
            total = _evaluate(part, numbers)
            for operation in reversed(operations):
                total = _combine(operation.op, total, _evaluate(operation.right, numbers))
            return total
        case ast.Call(ast.Name(name), arguments):
            return _call(name, [_evaluate(argument, numbers) for argument in arguments])
    raise TypeError(type(part).__name__)


def _combine(sign: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    match sign:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
    raise TypeError(type(sign).__name__)


def _call(name: str, arguments: Sequence[Fraction]) -> Fraction:
    match name, len(arguments):
        case "ceil", 1:
            return Fraction(math.ceil(arguments[0]))
        case "floor", 1:
            return Fraction(math.floor(arguments[0]))
        case "max", 2:
            return max(arguments)
        case "min", 2:
            return min(arguments)
    raise TypeError(name)


def names_in_formula(formula: str) -> set[str]:
    """Names of extents in a formula, without names of functions."""
    return set(re.findall(r"[^\W\d]\w*\b(?!\()", formula))


def _factor(name: str) -> str:
    """Format a name as a factor of a product, with parentheses if it is a sum."""
    return f"({name})" if any(sign in "+-" for sign in _outside_parentheses(name)) else name


def split_sum(formula: str) -> list[Dim]:
    """Split a formula at the plus signs and the final number outside of parentheses."""
    parts, depth = [""], 0
    for letter in formula:
        depth += (letter == "(") - (letter == ")")
        if letter in "+-" and depth == 0:
            parts.append("-" if letter == "-" else "")
        else:
            parts[-1] += letter
    return [int(part) if part.lstrip("-").isdecimal() else part for part in parts]


def without_parentheses(factor: str) -> str:
    """Remove the parentheses that ``_factor`` added."""
    return factor[1:-1] if factor.startswith("(") and not _outside_parentheses(factor[:-1]) else factor


def _split_product(name: str) -> list[str]:
    """Split a product that ``times`` formatted into its factors."""
    if any(sign in "+-/" for sign in _outside_parentheses(name)):
        return [name]
    parts, depth = [""], 0
    for letter in name:
        depth += (letter == "(") - (letter == ")")
        if letter == "*" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def _outside_parentheses(name: str) -> str:
    depth, letters = 0, []
    for letter in name:
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            letters.append(letter)
    return "".join(letters)
