"""Opsets in which converters do the same: between them, no other converter is selected and no version compared."""

import ast
import inspect
import textwrap
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.support.onnx.cases.case import FIRST_OPSET, Case
from tests.support.syntax_trees import parse
from tpuconvert.frontends.onnx.node import folds, onnx_op

MOST = 99
"""Larger numbers are not opsets."""

FRONTEND = "tpuconvert.frontends.onnx."


def selections(case: Case, newest: int) -> Iterator[Case]:
    """Yield the case in the newest opset of each group of opsets in which converters do the same."""
    groups = {selected(version.op, version.opset): version for version in case.in_all_versions(newest)}
    yield from groups.values()


def selected(op: str, opset: int) -> tuple[Any, ...]:
    """Return what the converter and the evaluator of an operator can notice of the opset."""
    found: list[Any] = []
    for registry in (onnx_op, folds):
        entry = registry.find(op, version=opset)
        if entry is None:
            found.append(None)
        else:
            limits = version_limits(entry.converter)
            found.append((entry.since, bisect_right(limits, opset)))
    return tuple(found)


@cache
def version_limits(converter: FunctionType) -> tuple[int, ...]:
    """Return the opsets at which a comparison in a converter, or in a function that it calls, changes.

    A limit that is an argument is one of the numbers in these functions: all of them count, which are more.
    """
    limits: set[int] = set()
    functions = _called(converter)
    for function in functions:
        for node in _comparisons(function):
            number = _number(node.comparators[0], function) if _is_version(node.left) else None
            numbers = {item for each in functions for item in _numbers(each)} if number is None else {number}
            limits |= numbers | {item + 1 for item in numbers if not isinstance(node.ops[0], ast.Lt | ast.GtE)}
    return tuple(sorted(limits))


@cache
def _comparisons(function: FunctionType) -> list[ast.Compare]:
    """Return the comparisons of a version in a function; several converters call the same one."""
    source = textwrap.dedent(inspect.getsource(function))
    nodes = ast.walk(parse(source)) if "version" in source else ()
    compared = [node for node in nodes if isinstance(node, ast.Compare)]
    return [node for node in compared if any(map(_is_version, (node.left, *node.comparators)))]


def _called(converter: FunctionType) -> list[FunctionType]:
    """Return a function of the frontend and those that it, or what it calls, names."""
    functions = [converter]
    for function in functions:  # grows
        names = set(_names(function.__code__))
        held = [function.__globals__.get(name) for name in names]
        modules = [item for item in held if isinstance(item, ModuleType) and item.__name__.startswith(FRONTEND)]
        held += [getattr(module, name, None) for module in modules for name in names]
        held += [cell.cell_contents for cell in function.__closure__ or ()]
        for item in held:
            is_ours = isinstance(item, FunctionType) and item.__module__.startswith(FRONTEND)
            if is_ours and item not in functions:
                functions.append(item)
    return functions


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_version(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "version"


def _number(node: ast.expr, function: FunctionType) -> int | None:
    value = function.__globals__.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
    return value if isinstance(value, int) else None


def _numbers(function: FunctionType) -> Iterator[int]:
    """Yield the numbers that a function passes to another: constants, values from around it, and defaults."""
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    for item in (*_constants(function.__code__), *held, *(function.__defaults__ or ())):
        if isinstance(item, int) and FIRST_OPSET < item <= MOST:
            yield item


def _constants(code: CodeType) -> Iterator[Any]:
    for item in code.co_consts:
        yield from _constants(item) if isinstance(item, CodeType) else item if isinstance(item, tuple) else (item,)
