"""Syntax trees of Python sources, one per file and process, for tests that read the code."""

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path


@functools.cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which callers do not change.

    The trees of the whole package take 1.3 s to make, and 230 MB.
    """
    return parse(path.read_text(encoding="utf-8"), str(path))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module or function and all of its statements.

    ``ast.walk``, which yields expressions too, takes several times as long.
    """
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):  # the body of a lambda is an expression
                pending += inner


def parse(source: str, name: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of a text, made without garbage collections.

    CPython 3.11 counts the depth of the conversion in one variable of the interpreter. A collection runs finalizers. If
    one fails, its traceback is printed with carets, which ``traceback`` finds with ``ast.parse``. The outer conversion
    then ends with ``SystemError: AST constructor recursion depth mismatch``.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source, name)
    finally:
        if was_enabled:
            gc.enable()
