"""Real-valued terms in normal form: sums of products of atoms with rational coefficients.

An atom is an input element, or a function that a polynomial cannot express: a comparison, a maximum, a rounding, a
root, a reciprocal of a sum, an exponential, or an uninterpreted function. There is one object for each atom, so that
normal forms can be compared. Equal normal forms imply equal values wherever no denominator is 0; the converse is left
to Z3.
"""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

import numpy as np

Number = int | Fraction
Monomial = tuple[tuple["Atom", int], ...]
"""Powers of atoms in the order of their serial numbers; at most one exponential, with exponent 1."""

_MOST_PRODUCTS = 100
"""A product of two sums is expanded up to this number of products. Larger sums become atoms."""

_serials = itertools.count()
_interned: weakref.WeakValueDictionary[tuple[object, ...], Atom] = weakref.WeakValueDictionary()


class Atom:
    """An indivisible factor: ``kind`` names the function, ``args`` are its arguments."""

    __slots__ = ("__weakref__", "args", "kind", "serial")

    def __init__(self, kind: str, args: tuple[Term, ...]) -> None:
        self.kind, self.args, self.serial = kind, args, next(_serials)


def _atom(kind: str, *args: Term, symmetric: bool = False) -> Atom:
    keys = tuple(arg.key for arg in args)
    identity = (kind, frozenset(keys) if symmetric else keys)
    atom = _interned.get(identity)
    if atom is None:
        atom = _interned[identity] = Atom(kind, args)
    return atom


class Term:
    """A polynomial: coefficient of each monomial. Exponents may be negative."""

    __slots__ = ("_key", "terms")

    def __init__(self, terms: dict[Monomial, Number]) -> None:
        self.terms = terms
        self._key: frozenset[tuple[Monomial, Number]] | None = None

    @property
    def key(self) -> frozenset[tuple[Monomial, Number]]:
        """The normal form as a hashable value."""
        if self._key is None:
            self._key = frozenset(self.terms.items())
        return self._key

    @property
    def constant(self) -> Number | None:
        """The value if the term is a number, else None."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def __add__(self, other: Term) -> Term:
        return combine([(1, self), (1, other)])

    def __sub__(self, other: Term) -> Term:
        return combine([(1, self), (-1, other)])

    def __neg__(self) -> Term:
        return scale(self, -1)

    def __mul__(self, other: Term) -> Term:
        for one, two in ((self, other), (other, self)):
            if (number := one.constant) is not None:
                return scale(two, number)
        if min(len(self.terms), len(other.terms)) > 1 and len(self.terms) * len(other.terms) > _MOST_PRODUCTS:
            return _factor(self) * _factor(other)
        result: dict[Monomial, Number] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = _times(left, right)
                result[monomial] = result.get(monomial, 0) + a * b
        return _without_zeros(result)

    def __truediv__(self, other: Term) -> Term:
        return self * reciprocal(other)


def _factor(term: Term) -> Term:
    """A sum as an atom, which a product does not expand."""
    leading = term.terms[min(term.terms, key=_order)]
    return scale(_of_atom(_atom("sum", scale(term, Fraction(1) / leading))), leading)


def _without_zeros(terms: dict[Monomial, Number]) -> Term:
    return Term({monomial: factor for monomial, factor in terms.items() if factor})


def number(value: float | Number) -> Term:
    """The term of a number. A float denotes the rational of ``exact``."""
    value = exact(value) if isinstance(value, (float, np.floating)) else value
    return Term({(): value} if value else {})


@functools.lru_cache(maxsize=1 << 16)
def exact(value: float) -> Number:
    """The number that a float constant denotes.

    It is the float itself if this is a multiple of 2^-12. Else it is a fraction with a small denominator that rounds to
    the float in binary32, if that cannot be a coincidence, and otherwise the float. So the float nearest to 1/3 denotes
    1/3 before and after a rule, and rounding of constants to binary32 is not counted as a difference.
    """
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a real number: give the rule a case without infinities")
    fraction = Fraction(value)
    if fraction.denominator <= 1 << 12:
        return fraction.numerator if fraction.denominator == 1 else fraction
    simple = fraction.limit_denominator(1 << 12)
    gap = float(np.spacing(np.float32(abs(value))))
    if np.float32(float(simple)) == np.float32(value) and simple.denominator**2 * gap < 1 / 8:
        return simple
    return fraction


def symbol(name: str) -> Term:
    """A new variable."""
    return Term({((Atom(name, ()), 1),): 1})


def combine(parts: Iterable[tuple[Number, Term]]) -> Term:
    """Sum of terms with factors."""
    result: dict[Monomial, Number] = {}
    for factor, term in parts:
        for monomial, own in term.terms.items():
            result[monomial] = result.get(monomial, 0) + factor * own
    return _without_zeros(result)


def scale(term: Term, factor: Number) -> Term:
    """``factor * term``."""
    if factor == 1:
        return term
    return Term({monomial: own * factor for monomial, own in term.terms.items()} if factor else {})


def _monomial(powers: dict[Atom, int]) -> Monomial:
    """Normal form of a product: all exponentials become one."""
    exponentials = [(atom, n) for atom, n in powers.items() if atom.kind == "exp" and n]
    if exponentials and (len(exponentials) > 1 or exponentials[0][1] != 1):
        for atom, _ in exponentials:
            del powers[atom]
        argument = combine((n, atom.args[0]) for atom, n in exponentials)
        if argument.terms:
            powers[_atom("exp", argument)] = 1
    return tuple(sorted(((atom, n) for atom, n in powers.items() if n), key=_serial))


def _serial(item: tuple[Atom, int]) -> int:
    return item[0].serial


def _times(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, n in right:
        powers[atom] = powers.get(atom, 0) + n
    return _monomial(powers)


def _of_atom(atom: Atom, exponent: int = 1) -> Term:
    return Term({((atom, exponent),): 1})


def reciprocal(term: Term) -> Term:
    """``1 / term``. Common factors and exponentials of a sum are taken out first, which makes the rest unique."""
    if not term.terms:
        raise ZeroDivisionError("a denominator is 0 for all inputs")
    if len(term.terms) == 1:
        ((monomial, factor),) = term.terms.items()
        inverse = Fraction(1) / factor
        return Term({_monomial({atom: -n for atom, n in monomial}): _plain(inverse)})
    content, rest = _content(term)
    leading = rest.terms[min(rest.terms, key=_order)]
    atom = _atom("denominator", scale(rest, Fraction(1) / leading))
    outside = Term({_monomial({atom: -n for atom, n in content}): _plain(Fraction(1) / leading)})
    return outside * _of_atom(atom, -1)


def _plain(value: Number) -> Number:
    return value.numerator if value.denominator == 1 else value


def _order(monomial: Monomial) -> tuple[tuple[int, int], ...]:
    return tuple((atom.serial, n) for atom, n in monomial)


def _content(term: Term) -> tuple[Monomial, Term]:
    """Split a sum into the common factor of its monomials and the rest."""
    powers: dict[Atom, int] = {}
    for atom in {atom for monomial in term.terms for atom, _ in monomial if atom.kind != "exp"}:
        powers[atom] = min(dict(monomial).get(atom, 0) for monomial in term.terms)
    arguments = [_exponent(monomial) for monomial in term.terms]
    shared: dict[Monomial, Number] = {}
    for monomial in {item for argument in arguments for item in argument.terms}:
        shared[monomial] = min(argument.terms.get(monomial, 0) for argument in arguments)
    argument = _without_zeros(shared)
    if argument.terms:
        powers[_atom("exp", argument)] = 1
    content = _monomial(powers)
    inverse = _monomial({atom: -n for atom, n in content})
    return content, Term({_times(monomial, inverse): factor for monomial, factor in term.terms.items()})


def _without_exponential(term: Term) -> Term:
    """Divide a sum by the common exponential of its monomials, which is not 0."""
    content, _ = _content(term)
    return _divided(term, {atom: n for atom, n in content if atom.kind == "exp"})


def without_denominators(term: Term) -> Term:
    """Divide a sum by common factors that are not 0: exponentials and denominators."""
    content, _ = _content(term)
    return _divided(term, {atom: n for atom, n in content if n < 0 or atom.kind == "exp"})


def _divided(term: Term, factors: dict[Atom, int]) -> Term:
    inverse = _monomial({atom: -n for atom, n in factors.items()})
    return Term({_times(monomial, inverse): factor for monomial, factor in term.terms.items()})


def _exponent(monomial: Monomial) -> Term:
    return next((atom.args[0] for atom, _ in monomial if atom.kind == "exp"), Term({}))


INFINITY = symbol("infinity")
"""Variable in place of infinities in constants: what is proved holds for every large number in their place."""

LOWEST = -(10**30)
"""Numbers below this one hide a score: their exponential is 0, and adding a score does not change them."""


def exponential(term: Term) -> Term:
    """``exp(term)``; ``exp(a) * exp(b)`` becomes ``exp(a + b)``, and a hidden score has the exponential 0."""
    if not term.terms:
        return number(1)
    if _is_hidden(term):
        return number(0)
    for monomial, factor in term.terms.items():
        atom = monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 and factor == 1 else None
        if atom is not None and atom.kind == "choose" and any(map(_is_hidden, atom.args[1:])):
            condition, one, other = atom.args
            rest = term - _of_atom(atom)
            return condition * exponential(rest + one) + (number(1) - condition) * exponential(rest + other)
    return _of_atom(_atom("exp", term))


def _infinity(term: Term) -> Number:
    (monomial,) = INFINITY.terms
    return term.terms.get(monomial, 0)


def _is_hidden(term: Term) -> bool:
    return term.terms.get((), 0) <= LOWEST or _infinity(term) < 0


def _is_positive(term: Term) -> bool:
    factors = {atom for monomial in term.terms for atom, _ in monomial}
    return bool(term.terms) and min(term.terms.values()) > 0 and all(atom.kind == "exp" for atom in factors)


def root(term: Term) -> Term:
    """Square root. A factor that is the square of a rational number is taken out."""
    if not term.terms:
        return term
    leading = term.terms[min(term.terms, key=_order)]
    outside = _rational_root(abs(leading))
    if outside is None:
        return _of_atom(_atom("sqrt", term))
    inside = scale(term, 1 / (outside * outside))
    return number(_plain(outside)) if inside.constant == 1 else scale(_of_atom(_atom("sqrt", inside)), _plain(outside))


def _rational_root(value: Number) -> Fraction | None:
    fraction = Fraction(value)
    roots = math.isqrt(fraction.numerator), math.isqrt(fraction.denominator)
    is_square = roots[0] ** 2 == fraction.numerator and roots[1] ** 2 == fraction.denominator
    return Fraction(*roots) if is_square else None


def function(name: str, term: Term) -> Term:
    """An uninterpreted function: equal arguments have equal values."""
    return _of_atom(_atom(f"fn:{name}", term))


def maximum(*items: Term) -> Term:
    """The largest of several terms. Nested maxima are joined, and operands that differ by a number are compared."""
    if any(_infinity(item) >= 0 for item in items):
        items = tuple(item for item in items if _infinity(item) >= 0)
    operands: dict[object, Term] = {}
    for item in items:
        atom = _sole_atom(item)
        for operand in atom.args if atom is not None and atom.kind == "max" else (item,):
            shape = frozenset((monomial, factor) for monomial, factor in operand.terms.items() if monomial)
            other = operands.get(shape)
            if other is None or other.terms.get((), 0) < operand.terms.get((), 0):
                operands[shape] = operand
    if len(operands) == 1:
        return next(iter(operands.values()))
    return _of_atom(_atom("max", *operands.values(), symmetric=True))


def minimum(*items: Term) -> Term:
    """The smallest of several terms."""
    return -maximum(*(-item for item in items))


def _sole_atom(term: Term) -> Atom | None:
    if len(term.terms) != 1:
        return None
    ((monomial, factor),) = term.terms.items()
    return monomial[0][0] if factor == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None


def positive(term: Term) -> Term:
    """1 if the term is greater than 0, else 0."""
    if (value := term.constant) is not None:
        return number(int(value > 0))
    if (infinity := _infinity(term)) != 0:
        return number(int(infinity > 0))
    if _is_positive(term):
        return number(1)
    atom = _sole_atom(term)
    if atom is not None and atom.kind in ("positive", "zero"):
        return term
    leading = abs(term.terms[min(term.terms, key=_order)])
    return _of_atom(_atom("positive", scale(term, Fraction(1) / leading)))


def zero(term: Term) -> Term:
    """1 if the term is 0, else 0."""
    if (value := term.constant) is not None:
        return number(int(value == 0))
    if _is_positive(term) or _infinity(term) != 0:
        return number(0)
    term = _without_exponential(term)
    leading = term.terms[min(term.terms, key=_order)]
    return _of_atom(_atom("zero", scale(term, Fraction(1) / leading)))


def choose(condition: Term, one: Term, other: Term) -> Term:
    """``one`` where the condition is greater than 0, else ``other``."""
    condition = positive(condition)
    if (value := condition.constant) is not None:
        return one if value > 0 else other
    return one if one.key == other.key else _of_atom(_atom("choose", condition, one, other))


def floor(term: Term) -> Term:
    """The largest integer that is not above the term."""
    if (value := term.constant) is not None:
        return number(math.floor(value))
    if is_integral(term):
        return term
    return _of_atom(_atom("floor", term))


def is_integral(term: Term) -> bool:
    """Return True if the term has integer values only."""
    return all(
        isinstance(factor, int) and all(n > 0 and _is_integral(atom) for atom, n in monomial)
        for monomial, factor in term.terms.items()
    )


def _is_integral(atom: Atom) -> bool:
    if atom.kind in ("choose", "max"):
        return all(map(is_integral, atom.args))
    return atom.kind in ("floor", "positive", "zero")


def rounded(term: Term) -> Term:
    """The nearest integer; ties away from zero."""
    if is_integral(term):
        return term
    half = number(Fraction(1, 2))
    return choose(positive(-term), -floor(half - term), floor(term + half))


def evaluate(term: Term, values: Mapping[Atom, float], memory: dict[Atom, float]) -> float:
    """The value in binary64 for numbers in place of the variables, 0 where there is none.

    ``memory`` has the values of atoms that are computed already, for the same numbers.
    """
    total = 0.0
    for monomial, factor in term.terms.items():
        product = float(factor)
        for atom, n in monomial:
            product *= _value(atom, values, memory) ** n
        total += product
    return total


def _value(atom: Atom, values: Mapping[Atom, float], memory: dict[Atom, float]) -> float:
    if atom not in memory:
        args = [evaluate(arg, values, memory) for arg in atom.args]
        memory[atom] = VALUES[atom.kind](*args) if atom.args else values.get(atom, 0.0)
    return memory[atom]


VALUES: dict[str, Callable[..., float]] = {
    "sum": lambda x: x,
    "denominator": lambda x: x,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "max": max,
    "positive": lambda x: float(x > 0),
    "zero": lambda x: float(x == 0),
    "choose": lambda condition, one, other: one if condition > 0 else other,
    "floor": math.floor,
    "fn:tanh": math.tanh,
    "fn:ln": math.log,
    "fn:sin": math.sin,
    "fn:cos": math.cos,
}
"""Value of each kind of atom in binary64."""
