"""Search for the cheapest set of nodes in float that reaches a goal.

Candidates are ordered by their expected benefit, the largest first. The search measures

1. the model without any of them,
2. growing prefixes of the order, until one reaches the goal,
3. by bisection the shortest prefix that reaches it,
4. that prefix without each of its candidates, the most expensive one first: those that turn out to be unnecessary are
   left out,
5. the other prefixes, until the curve of metric and cost has enough points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

POINTS = 8
"""Smallest number of measured points of a curve, if there are enough candidates."""

Chosen = frozenset[int]
"""Candidates by their position in the order."""


class BudgetSpentError(Exception):
    """There is no time for another trial."""


class Point(Protocol):
    """One measured set of candidates."""

    @property
    def metric(self) -> float:
        """The larger, the better."""

    @property
    def cost(self) -> float:
        """Share of the multiply-accumulates that are not in integers."""

    @property
    def nodes(self) -> int:
        """Number of nodes in float."""

    @property
    def is_enough(self) -> bool:
        """True if the metric reaches the goal."""


P = TypeVar("P", bound=Point)


def best_of(points: Iterable[P]) -> P:
    """Return the cheapest point that reaches the goal; if none does, the point with the best metric."""
    all_points = list(points)
    enough = [point for point in all_points if point.is_enough]
    if enough:
        return min(enough, key=lambda point: (point.cost, point.nodes, -point.metric))
    return min(all_points, key=lambda point: (-point.metric, point.cost, point.nodes))


def pareto(points: Iterable[P]) -> list[P]:
    """Return the points that no other point beats in metric and cost, the cheapest first."""
    front: list[P] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.metric, point.nodes)):
        if not front or point.metric > front[-1].metric:
            front.append(point)
    return front


def search(costs: Sequence[float], max_chosen: int, measure: Callable[[Chosen], P]) -> None:
    """Measure sets of candidates.

    Args:
        costs: expected cost of each candidate.
        max_chosen: number of first candidates that the chosen set may have. The others only serve the curve.
        measure: measures a set; measuring it again costs nothing.

    Raises:
        BudgetSpentError: raised by ``measure``.
    """
    measured: dict[Chosen, P] = {}

    def prefix(length: int) -> P:
        return of(frozenset(range(length)))

    def of(chosen: Chosen) -> P:
        measured[chosen] = point = measure(chosen)
        return point

    failed, reached = 0, None
    if prefix(0).is_enough:
        reached = 0
    else:
        for length in _growing(max_chosen):
            if prefix(length).is_enough:
                reached = length
                break
            failed = length
    if reached:
        while reached - failed > 1:
            middle = (failed + reached) // 2
            if prefix(middle).is_enough:
                reached = middle
            else:
                failed = middle
        _leave_out(frozenset(range(reached)), costs, of)
    for length in (*_growing(len(costs)), *range(1, len(costs))):
        if len(pareto(measured.values())) >= POINTS:
            break
        prefix(length)


def _growing(count: int) -> Iterator[int]:
    """Yield lengths of prefixes: 1, 2, 3, 4, 6, 8, 12, 16 ... and all candidates."""
    length = 1
    while length < count:
        yield length
        length += max(1, length // 2) if length < 4 or length & (length - 1) == 0 else length // 3
    if count:
        yield count


def _leave_out(chosen: Chosen, costs: Sequence[float], measure: Callable[[Chosen], P]) -> None:
    """Leave out the candidates without which the goal is reached too."""
    for candidate in sorted(chosen, key=lambda index: (-costs[index], -index)):
        without = chosen - {candidate}
        if measure(without).is_enough:
            chosen = without
