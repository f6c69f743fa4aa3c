"""Controls of the security page: each can be removed and has a test. At night that test fails without the control."""

import ast
from pathlib import Path

import pytest

from tests.support.syntax_trees import parse, syntax_tree
from tools.release.controls import Control, check, controls


@pytest.mark.parametrize("control", controls(), ids=lambda control: control.threat)
def test_a_control_can_be_removed_and_has_a_test(control: Control, repository: Path) -> None:
    parse(control.removed)
    path, _, name = control.test.partition("::")
    tree = syntax_tree(repository / path)
    assert not name or name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_there_are_at_least_twenty() -> None:
    assert len({control.threat for control in controls()}) >= 20


@pytest.mark.slow
def test_every_control_has_a_test_that_fails_without_it() -> None:
    assert check(controls()) == []
