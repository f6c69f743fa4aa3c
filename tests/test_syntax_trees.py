"""Tests that read the code parse each file once per process, undisturbed by finalizers."""

import ast
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.syntax_trees import parse, syntax_tree


class _Parsing:
    """Garbage that only a collection frees, and whose finalizer parses, as printing a traceback does."""

    def __init__(self) -> None:
        self.circle = self

    def __del__(self) -> None:
        ast.parse("(1 + 2) / 0")


@pytest.fixture
def frequent_collections() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("frequent_collections")
def test_a_finalizer_that_parses_does_not_disturb() -> None:
    for _ in range(100):
        _Parsing()
        assert len(parse("x = [f(y) for y in z]\n" * 50).body) == 50
    assert gc.isenabled()


def test_a_file_is_parsed_once() -> None:
    assert syntax_tree(Path(__file__)) is syntax_tree(Path(__file__))


def test_tests_parse_with_the_helper(repository: Path) -> None:
    """A call of ``ast.parse`` beside it could fail for another test's garbage."""
    files = (repository / "tests").rglob("*.py")
    own = {"tests/test_syntax_trees.py", "tests/support/syntax_trees.py"}
    calls = {path.relative_to(repository).as_posix() for path in files if "ast.parse(" in path.read_text("utf-8")}
    assert calls == own
