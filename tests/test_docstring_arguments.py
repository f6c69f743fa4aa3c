"""Arguments that docstrings describe are parameters or fields."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.syntax_trees import parse, statements, syntax_tree

FOLDERS = ("converter", "frontends", "optimizer", "runtime", "schema", "tests", "tools")
CONSTRUCTORS = ("__init__", "__new__", "__init_subclass__")


def described(docstring: str) -> list[str]:
    """Names in the section ``Args:``, without a trailing underscore, which only avoids a name of Python."""
    section = re.search(r"^Args:\n((?: +.*\n?|\n)+)", docstring, re.MULTILINE)
    if section is None:
        return []
    indent = len(section[1]) - len(section[1].lstrip(" "))
    rows = re.findall(rf"^ {{{indent}}}([\w*]+(?:, [\w*]+)*):", section[1], re.MULTILINE)
    return [name.lstrip("*").rstrip("_") for row in rows for name in row.split(", ")]


def parameters(function: ast.FunctionDef) -> set[str]:
    """Names of all parameters, without a trailing underscore."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {item.arg.rstrip("_") for item in every if item is not None}


def names_of(node: ast.FunctionDef | ast.ClassDef) -> set[str] | None:
    """Parameters of a function or of a constructor, or fields; None for a class that inherits them."""
    if isinstance(node, ast.FunctionDef):
        return parameters(node)
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name in CONSTRUCTORS]
    fields = {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    if not methods and not fields and node.bases:
        return None
    return set().union(*map(parameters, methods)) if methods else fields


def unknown_arguments(tree: ast.Module) -> Iterator[str]:
    """Yield line, definition and name for each described argument that does not exist."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = names_of(node)
            for name in described(ast.get_docstring(node) or ""):
                if names is not None and name not in names:
                    yield f"{node.lineno}: {node.name} has no argument {name}"


def test_described_arguments_exist(repository: Path) -> None:
    files = [path for folder in FOLDERS for path in sorted((repository / folder).rglob("*.py"))]
    files = [path for path in files if "Args:" in path.read_text(encoding="utf-8")]
    assert len(files) > 100
    unknown = [
        f"{path.relative_to(repository)}:{line}" for path in files for line in unknown_arguments(syntax_tree(path))
    ]
    assert unknown == []


def test_renamed_argument_is_reported() -> None:
    text = '"""Sum.\n\n    Args:\n        {}: the terms,\n            in order.\n        *more: others.\n    """'
    source = f"def total(numbers, *more):\n    {text}\n"
    assert list(unknown_arguments(parse(source.format("numbers")))) == []
    assert list(unknown_arguments(parse(source.format("given")))) == ["1: total has no argument given"]
