"""Matching of nodes: determinism, symmetry, and the time it takes."""

import random

import numpy as np
import pytest

from tpuconvert.diff.hash_matching import HashMatcher
from tpuconvert.diff.matching import longest_common_subsequence, match_graphs
from tpuconvert.diff.node_pairs import UNMATCHED
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.types import DType, TensorType

KINDS = (ActiveType.ACTIVE_RELU, ActiveType.ACTIVE_TANH, ActiveType.ACTIVE_SIGMOID)


def random_graph(seed: int, size: int, without: frozenset[int] = frozenset(), prefix: str = "n") -> Graph:
    """A graph of random nodes. A node in ``without`` is replaced by its first operand."""
    rng = random.Random(seed)
    graph = Graph("random")
    values = [graph.input("x", TensorType(DType.FLOAT32, (1, 4)))]
    for index in range(size):
        first, second = (values[-1 - min(rng.randrange(4), len(values) - 1)] for _ in range(2))
        kind, constant = rng.randrange(3), np.full((1, 4), rng.random(), np.float32)
        if index in without:
            values.append(first)
        elif kind == 0:
            values.append(graph.add(Add(), first, second, name=f"{prefix}{index}"))
        elif kind == 1:
            values.append(graph.add(Active(rng.choice(KINDS)), first, name=f"{prefix}{index}"))
        else:
            values.append(graph.add(Mul(), first, graph.constant(constant), name=f"{prefix}{index}"))
    graph.output(values[-1])
    graph.prune()
    return graph


@pytest.mark.parametrize("seed", range(20))
def test_equal_graphs_match_completely(seed: int) -> None:
    """Every node matches an equal one, with the same names and with others."""
    before = random_graph(seed, 60)
    for prefix in ("n", "other"):
        found = match_graphs(before, random_graph(seed, 60, prefix=prefix))
        assert UNMATCHED not in found.partner
        names = [(found.first.names[a], found.second.names[b]) for a, b in found.pairs]
        assert all(a.removeprefix("n") == b.removeprefix(prefix) for a, b in names), seed


@pytest.mark.parametrize("seed", range(20))
def test_removed_nodes_are_the_unmatched_ones(seed: int) -> None:
    """Up to three removed nodes do not affect the others. Weights are unique, so that the result is unambiguous."""
    whole = random_graph(seed, 80)
    kept = {int(node.name.removeprefix("n")) for node in whole.nodes if isinstance(node.op, Mul)}
    gone = frozenset(random.Random(seed).sample(sorted(kept)[:-1], 3))
    found = match_graphs(whole, random_graph(seed, 80, gone, prefix="other"))
    missing = {int(found.first.names[a].removeprefix("n")) for a, b in enumerate(found.partner) if b == UNMATCHED}
    assert missing == gone & {int(name.removeprefix("n")) for name in found.first.names}
    assert UNMATCHED not in found.origin


def test_matching_is_deterministic_and_symmetric() -> None:
    before, after = random_graph(1, 100), random_graph(1, 100, frozenset([20, 40, 60]))
    first, again, back = match_graphs(before, after), match_graphs(before, after), match_graphs(after, before)
    assert first.partner == again.partner
    assert {(b, a) for a, b in first.pairs} == set(back.pairs)


def test_work_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many nodes, with removed ones in the same number of places, need about twice as many hashes."""
    counts = []
    for size in (1000, 2000):
        calls: list[object] = []
        number = HashMatcher._number
        monkeypatch.setattr(HashMatcher, "_number", lambda self, key, n=number, c=calls: (c.append(0), n(self, key))[1])
        gone = frozenset(range(100, size, size // 4))
        match_graphs(random_graph(3, size), random_graph(3, size, gone, prefix="other"))
        monkeypatch.undo()
        counts.append(len(calls))
    assert counts[1] < 3 * counts[0], counts


def test_longest_common_subsequence() -> None:
    assert longest_common_subsequence([1, 2, 3, 4], [2, 9, 4]) == [(1, 0), (3, 2)]
    assert longest_common_subsequence([], [1]) == []
    rng = random.Random(0)
    for _ in range(50):
        first, second = ([rng.randrange(3) for _ in range(rng.randrange(12))] for _ in range(2))
        pairs = longest_common_subsequence(first, second)
        assert all(first[a] == second[b] for a, b in pairs)
        assert sorted(pairs) == pairs
        assert len(pairs) == _length(first, second)


def _length(first: list[int], second: list[int]) -> int:
    if not first or not second:
        return 0
    if first[-1] == second[-1]:
        return 1 + _length(first[:-1], second[:-1])
    return max(_length(first[:-1], second), _length(first, second[:-1]))
