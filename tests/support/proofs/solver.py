"""Proof that two terms are equal: by their normal forms, else by Z3. A refutation has numbers.

What is assumed: no denominator is 0, the operand of a root is not negative, and an exponential is positive. Nothing is
assumed about the other functions.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest

from tests.support.proofs.terms import (
    Atom,
    Monomial,
    Term,
    evaluate,
    exponential,
    function,
    number,
    without_denominators,
)

z3 = pytest.importorskip("z3", reason="Z3 is not installed: pip install z3-solver")

_TIMEOUT = 5_000
"""Milliseconds for one question to Z3. The questions of the rules take 0.1 s or less."""

_LONGEST = 6
"""Number of monomials up to which the argument of a function is given to Z3."""

_POINTS = 3
_DIFFERENCE = 1e-7
"""Relative difference of two values in binary64 that refutes their equality."""

_SAME_COEFFICIENT = Fraction(1, 1 << 20)
"""Relative difference of coefficients that is explained by the rounding of folded constants to binary32."""


class Outcome(enum.Enum):
    """Result of the comparison of two terms."""

    NORMAL_FORM = "equal normal forms"
    SOLVED = "proved by Z3"
    ROUNDING = "equal except for the rounding of constants"
    REFUTED = "refuted"
    UNKNOWN = "not decided"


@dataclass
class Answer:
    """Outcome for one pair of terms. ``point`` has the numbers of a refutation, ``values`` both values there."""

    outcome: Outcome
    point: dict[str, float] = field(default_factory=dict)
    values: tuple[float, float] = (0.0, 0.0)


class Solver:
    """Compares terms. Questions that differ only in the names of variables are asked once."""

    def __init__(self) -> None:
        self.asked = 0
        self._answers: set[object] = set()

    def compare(self, one: Term, other: Term) -> Answer:
        """Prove or refute that two terms are equal for all numbers."""
        if one.key == other.key:
            return Answer(Outcome.NORMAL_FORM)
        if are_close(one, other):
            return Answer(Outcome.ROUNDING)
        refutation = _refute(one, other)
        if refutation is not None:
            return refutation
        question = _renamed(one - other)
        if question not in self._answers:
            answer = self._ask(one, other)
            if answer.outcome is not Outcome.SOLVED:
                return answer
            self._answers.add(question)
        return Answer(Outcome.SOLVED)

    def _ask(self, one: Term, other: Term) -> Answer:
        """Ask for numbers that make the difference not 0, first with variables in place of all inner sums."""
        difference = without_denominators(one - other)
        for longest in (1, _LONGEST):
            self.asked += 1
            translation = Translation(longest)
            solver = z3.Solver()
            solver.set("timeout", _TIMEOUT)
            solver.add(translation.expression(difference) != 0)
            solver.add(*translation.facts())
            result = solver.check()
            if result == z3.unsat:
                return Answer(Outcome.SOLVED)
        if result == z3.unknown:
            return Answer(Outcome.UNKNOWN)
        point = translation.point(solver.model(), atoms_of(difference))
        return _at(one, other, point) or Answer(Outcome.UNKNOWN)


class Translation:
    """Terms in the language of Z3. The argument of a function becomes a variable if it has too many monomials.

    A variable makes a statement more general: what is proved for it holds for every argument.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._atoms: dict[Atom, z3.ArithRef] = {}
        self._sums: dict[object, z3.ArithRef] = {}

    def expression(self, term: Term) -> z3.ArithRef:
        """The term as a sum of products."""
        parts = [self._product(monomial, factor) for monomial, factor in term.terms.items()]
        return z3.Sum(parts) if parts else z3.RealVal(0)

    def facts(self) -> list[z3.BoolRef]:
        """Return the assumptions about the atoms in the expressions, and about the atoms in these assumptions."""
        result: list[z3.BoolRef] = []
        position = 0
        while position < len(self._atoms):
            result += self._facts(list(self._atoms)[position])
            position += 1
        return result

    def point(self, model: z3.ModelRef, atoms: list[Atom]) -> dict[Atom, float]:
        """The numbers of a model for the variables."""
        return {atom: _as_float(model.eval(self._atom(atom), model_completion=True)) for atom in atoms if not atom.args}

    def _product(self, monomial: Monomial, factor: int | Fraction) -> z3.ArithRef:
        result: z3.ArithRef = z3.Q(*Fraction(factor).as_integer_ratio())
        for atom, n in monomial:
            for _ in range(abs(n)):
                result = result * self._atom(atom) if n > 0 else result / self._atom(atom)
        return result

    def _atom(self, atom: Atom) -> z3.ArithRef:
        if atom not in self._atoms:
            expression = self._new(atom)
            self._atoms[atom] = expression
        return self._atoms[atom]

    def _new(self, atom: Atom) -> z3.ArithRef:
        args = [self._argument(arg) for arg in atom.args]
        match atom.kind:
            case "sum" | "denominator":
                return args[0]
            case "max":
                return functools.reduce(lambda a, b: z3.If(a >= b, a, b), args)
            case "positive":
                return z3.If(args[0] > 0, z3.RealVal(1), z3.RealVal(0))
            case "zero":
                return z3.If(args[0] == 0, z3.RealVal(1), z3.RealVal(0))
            case "choose":
                return z3.If(args[0] > 0, args[1], args[2])
            case "floor":
                return z3.ToReal(z3.ToInt(args[0]))
            case kind if args and kind != "sqrt":
                return z3.Function(kind, z3.RealSort(), z3.RealSort())(args[0])
        return z3.Real(f"{atom.kind}#{atom.serial}")

    def _argument(self, term: Term) -> z3.ArithRef:
        if len(term.terms) <= self._longest:
            return self.expression(term)
        return self._sums.setdefault(term.key, z3.Real(f"sum#{len(self._sums)}"))

    def _facts(self, atom: Atom) -> list[z3.BoolRef]:
        own = self._atom(atom)
        match atom.kind:
            case "denominator":
                return [own != 0]
            case "exp":
                return [own > 0]
            case "sqrt":
                return [own >= 0, own * own == self._argument(atom.args[0])]
            case "fn:ln":
                return self._symmetry_of_softplus(own, atom.args[0])
        return []

    def _symmetry_of_softplus(self, own: z3.ArithRef, argument: Term) -> list[z3.BoolRef]:
        """``ln(1 + exp(a)) = a + ln(1 + exp(-a))``."""
        for monomial in argument.terms:
            if len(monomial) == 1 and monomial[0][0].kind == "exp":
                inner = monomial[0][0].args[0]
                if argument.key == (number(1) + exponential(inner)).key:
                    mirrored = function("ln", number(1) + exponential(-inner))
                    return [own == self.expression(inner + mirrored)]
        return []


def _as_float(value: z3.ExprRef) -> float:
    if z3.is_rational_value(value):
        return float(value.as_fraction())
    return float(value.approx(20).as_fraction()) if z3.is_algebraic_value(value) else 0.0


def atoms_of(term: Term) -> list[Atom]:
    """All atoms of a term and of their arguments, in the order of their first occurrence."""
    reached: dict[Atom, None] = {}
    stack = [term]
    while stack:
        for monomial in stack.pop().terms:
            for atom, _ in monomial:
                if atom not in reached:
                    reached[atom] = None
                    stack += atom.args
    return list(reached)


def _renamed(term: Term) -> object:
    """The term with variables numbered in the order of their first occurrence."""
    numbers: dict[Atom, object] = {}

    def of_term(item: Term) -> object:
        return tuple(
            (factor, tuple((of_atom(atom), n) for atom, n in monomial)) for monomial, factor in item.terms.items()
        )

    def of_atom(atom: Atom) -> object:
        if atom not in numbers:
            args = tuple(of_term(arg) for arg in atom.args)
            numbers[atom] = (len(numbers), atom.kind if args else "", args)
        return numbers[atom]

    return of_term(term)


def are_close(one: Term, other: Term) -> bool:
    """Return True if the terms have the same monomials, with coefficients that differ by roundings only."""
    if one.terms.keys() != other.terms.keys():
        return False
    pairs = ((factor, other.terms[monomial]) for monomial, factor in one.terms.items())
    return all(abs(a - b) <= _SAME_COEFFICIENT * max(abs(a), abs(b)) for a, b in pairs)


def _refute(one: Term, other: Term) -> Answer | None:
    """Compare the values at a few random points, at integers and at halves: rounding and equality depend on these."""
    variables = [atom for atom in atoms_of(one - other) if not atom.args]
    rng = np.random.default_rng(len(variables))
    for _ in range(_POINTS):
        for point in (rng.normal(size=len(variables)) * 2, rng.integers(-6, 7, len(variables)) / 2):
            answer = _at(one, other, dict(zip(variables, map(float, point), strict=True)))
            if answer is not None:
                return answer
    return None


def _at(one: Term, other: Term, point: dict[Atom, float]) -> Answer | None:
    memory: dict[Atom, float] = {}
    try:
        values = tuple(evaluate(term, point, memory) for term in (one, other))
    except (ArithmeticError, ValueError):  # outside of the domain of a function
        return None
    if abs(values[0] - values[1]) <= _DIFFERENCE * max(1.0, *map(abs, values)):
        return None
    return Answer(Outcome.REFUTED, {atom.kind: value for atom, value in point.items()}, (values[0], values[1]))
