"""No module outside ``schema/ops`` lists operators, in a table or in a call of ``isinstance``.

Facts about operators are in their definitions. A separate list is easily forgotten when an operator is added. The
traits that replace such lists are members of ``tpuconvert.schema.definition.op.Trait``; facts that depend on parameters
are methods of ``Op``.
"""

import ast
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.syntax_trees import parse, syntax_tree
from tpuconvert.schema.definition.op import Op, Trait, all_ops

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("converter", "frontends", "optimizer", "runtime", "schema")
DEFINITIONS = ROOT / "schema" / "ops"
FEWEST = 3

ALLOWED: dict[str, str] = {
    "converter/exporters/tpu_mlir/dialect.py: OPERATIONS": "names of attributes of the vendor's operations",
    "frontends/open_extents.py: FUNCTIONS": "functions in formulas of extents",
    "frontends/onnx/folding/shapes.py: _COMBINATIONS": "values of an ONNX attribute",
    "frontends/value_bounds.py: _RULES": "operators with a rule of interval arithmetic in this module",
    "runtime/native/matchers/any_elements.py: _WITHOUT_OVERFLOW": "operations of the kernel any_elements",
}
"""Tables that are not lists of operators, as ``path: name``, each with the reason."""


def operator_classes() -> set[str]:
    """Class names of all definitions and of their abstract base classes."""
    return {
        base.__name__ for op in all_ops().values() for base in op.__mro__ if issubclass(base, Op) and base is not Op
    }


def tables(tree: ast.Module, names: set[str], classes: set[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Find the module-level and class-level collections of at least ``FEWEST`` operators.

    Args:
        tree: of a module.
        names: strings that represent an operator.
        classes: identifiers of operator classes.

    Yields:
        Line, name of the collection, operators.
    """
    for target, value in assignments(tree.body):
        found: dict[str, None] = {}
        for node in ast.walk(value):
            for item in elements(node):
                if isinstance(item, ast.Constant) and item.value in names:
                    found[str(item.value)] = None
                elif isinstance(item, ast.Name | ast.Attribute) and last_name(item) in classes:
                    found[last_name(item)] = None
        if len(found) >= FEWEST:
            yield value.lineno, ast.unparse(target), list(found)


def assignments(body: Iterable[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from assignments(statement.body)
        elif isinstance(statement, ast.Assign):
            yield statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield statement.target, statement.value


def elements(node: ast.AST) -> list[ast.expr | None]:
    """Members of a literal collection. For a dict, its keys and values."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return list(node.elts)
    if isinstance(node, ast.Dict):
        return [*node.keys, *node.values]
    if isinstance(node, ast.Call):
        return list(node.args)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):  # a union of types
        return [*elements(node.left), node.left, node.right]
    return []


def last_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def checks(tree: ast.Module, classes: set[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Find the calls of ``isinstance`` and ``issubclass`` with at least ``FEWEST`` operator classes.

    Yields:
        Line, source text, operators.
    """
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            listed = [item for item in ast.walk(node.args[1]) if isinstance(item, ast.Name | ast.Attribute)]
            found = [last_name(item) for item in listed if last_name(item) in classes]
            if len(found) >= FEWEST:
                yield node.lineno, ast.unparse(node), found


def product_files() -> list[Path]:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in paths if DEFINITIONS not in path.parents)


def test_finds_checks_of_operators():
    source = """
    isinstance(op, (Add, Sub, ops.Mul))
    isinstance(op, Add | Sub | Mul)
    issubclass(kind, (Add, (Sub, Mul)))
    isinstance(op, (Add, Sub, Other))
    """
    assert [line for line, _, _ in checks(parse(textwrap.dedent(source)), {"Add", "Sub", "Mul"})] == [2, 3, 4]


def test_no_check_lists_operators():
    classes = operator_classes()
    problems = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in product_files()
        for line, text, _ in checks(syntax_tree(path), classes)
    ]
    hint = f"use a trait of the operators ({', '.join(Trait.__members__)}), a method of Op, or their base class"
    assert not problems, "\n".join([*problems, hint])


def test_finds_tables_of_operators():
    source = """
    A = frozenset({"add", "sub", "mul"})
    B: dict = {Add: 1, Sub: 2, ops.Mul: 3}
    class Some:
        C = (*("add", "sub"), "mul")
    D = ("add", "sub", "else")
    E = Kinds(Add, Sub, Mul)
    F = Add | Sub | Mul
    """
    found = tables(parse(textwrap.dedent(source)), {"add", "sub", "mul"}, {"Add", "Sub", "Mul"})
    assert [(line, name) for line, name, _ in found] == [(2, "A"), (3, "B"), (5, "C"), (7, "E"), (8, "F")]


def test_no_module_lists_operators():
    names, classes = set(all_ops()), operator_classes()
    unused, problems = set(ALLOWED), []
    for path in product_files():
        place = path.relative_to(ROOT)
        quoted = names if place.parts[0] == "frontends" else names | classes  # source formats have an operator Conv too
        for line, target, operators in tables(syntax_tree(path), quoted, classes):
            if f"{place}: {target}" in ALLOWED:
                unused.discard(f"{place}: {target}")
            else:
                problems.append(f"{place}:{line}: {target} lists {len(operators)} operators: {', '.join(operators)}")
    hint = f"declare the fact in schema/ops, as one of {', '.join(Trait.__members__)} or as a method of Op"
    assert not problems, "\n".join([*problems, hint])
    assert not unused, f"no longer needed in ALLOWED: {sorted(unused)}"
