"""Errors of the commands tell the user what to do: they have a hint, or say what is expected."""

import ast
from pathlib import Path

from tests.support.syntax_trees import syntax_tree

KINDS = {"UsageError", "ResourceLimitError", "MissingExtraError"}
PASSED_ON = "UsageError(str(error))"
"""The message of an error below, which names the next step itself."""


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def test_errors_of_commands_have_a_hint(repository: Path) -> None:
    without = []
    for path in sorted((repository / "converter").rglob("*.py")):
        calls = [node for node in ast.walk(syntax_tree(path)) if isinstance(node, ast.Call) and _name(node) in KINDS]
        for call in calls:
            has_hint = any(keyword.arg == "hint" for keyword in call.keywords)
            if not has_hint and "expected" not in (text := ast.unparse(call)) and text != PASSED_ON:
                without.append(f"{path.relative_to(repository)}:{call.lineno} {text}")
    assert not without
