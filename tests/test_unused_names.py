"""Functions, classes and constants of the package that only tests use, or nothing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.syntax_trees import statements, syntax_tree

FOLDERS = ("converter", "frontends", "optimizer", "runtime", "schema")

CALLED_BY_OTHERS = {
    "ReportDescription": "tools/pages/json_schemas.py generates a schema from it",
    "SourceRow": "tools/pages/json_schemas.py generates a schema from it",
    "TpuRow": "tools/pages/json_schemas.py generates a schema from it",
    "_repr_png_": "notebooks",
    "check_files": "the command tpuconvert-check",
    "customed_function": "plugins register functions for the operator customed_ops",
    "format_commands": "click",
    "format_epilog": "click",
    "format_options": "click",
    "format_completion": "click",
    "known_inputs": "tools/exactness/onnx_conformance.py reports them",
    "list_commands": "click",
    "pids": "tests end worker processes",
    "render": "rich",
}
"""Name -> what uses it outside of the package."""

CODES = (
    "frontends/onnx/file/element_types.py",
    "schema/arithmetic/fixed_point.py",
    "schema/ops",
)
"""Modules that list all codes of a format or of the operator set, and files of operators, which registration uses."""


def definitions(tree: ast.Module) -> Iterator[str]:
    """Names of functions, classes and constants without a decorator that registers them."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            plain = ("property", "cached_property", "staticmethod", "classmethod", "dataclass", "contextmanager")
            names = [ast.unparse(item).split("(")[0].split(".")[-1] for item in node.decorator_list]
            if all(name in plain for name in names):
                yield node.name
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_every_name_is_used(repository: Path) -> None:
    texts = {
        path: path.read_text(encoding="utf-8") for folder in FOLDERS for path in (repository / folder).rglob("*.py")
    }
    kernels = [path for path in (repository / "runtime" / "kernels").rglob("*") if path.suffix in (".cpp", ".h")]
    words = Counter(
        word
        for text in (*texts.values(), *(path.read_text("utf-8") for path in kernels))
        for word in re.findall(r"\w+", text)
    )
    unused = {
        f"{path.relative_to(repository)}: {name}"
        for path, text in texts.items()
        if not str(path.relative_to(repository)).startswith(CODES)
        for name in definitions(syntax_tree(path))
        if words[name] == 1 and not name.startswith("__") and name not in CALLED_BY_OTHERS
    }
    assert unused == set(), "remove it, or enter its user into CALLED_BY_OTHERS"
    assert [name for name in CALLED_BY_OTHERS if words[name] != 1] == [], "no longer needed in CALLED_BY_OTHERS"
