"""The operation forms of the export against the definitions of the installed compiler.

The compiler silently ignores attributes that it does not know.
"""

import ast
import re

import pytest

from tests.support.syntax_trees import syntax_tree
from tpuconvert.exporters.tpu_mlir.dialect import OPERATIONS

pytestmark = pytest.mark.vendor

KEPT_BY_COMPILER = {"keepdims"}
"""Attributes that the compiler writes but that its operation definitions do not contain."""


@pytest.fixture(scope="module")
def definitions(vendor):
    """Attributes of every operation, by the name in the dialect."""
    text = (vendor.home / "include/tpu_mlir/Dialect/Tpu/IR/TpuOps.td").read_text(encoding="utf-8")
    text = re.sub(r"//[^\n]*", "", text)
    found = {}
    for block in re.split(r"^(?=def |class )", text, flags=re.MULTILINE):
        name = re.match(r'def \w+ : Tpu_\w*Op<"(\w+)"', block)
        # The poolings share the definition of a class.
        names = [name[1]] if name else ["Pool2D"] if block.startswith("class Tpu_PoolOp") else []
        for item in names:
            found.setdefault(f"tpu.{item}", set()).update(re.findall(r":\s*\$(\w+)", block))
    return found


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name.startswith("tpu.")])
def test_attributes_exist(operation, definitions):
    assert OPERATIONS[operation].attributes.keys() - definitions[operation] <= KEPT_BY_COMPILER


def signatures(file):
    """Names and defaults of the parameters of all functions and constructors in a source file."""
    found = {}
    for item in ast.walk(syntax_tree(file)):
        if isinstance(item, ast.ClassDef):
            methods = [part for part in item.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
            functions = [(item.name, method) for method in methods]
        elif isinstance(item, ast.FunctionDef):
            functions = [(item.name, item)]
        else:
            continue
        for name, function in functions:
            defaults = [ast.literal_eval(default) for default in function.args.defaults]
            names = [argument.arg for argument in function.args.args]
            found[name] = (names, defaults)
    return found


def test_numpy_functions_have_the_parameters_of_tpulang(vendor, repository):
    transform = vendor.home / "python/transform"
    theirs = signatures(transform / "TpuLangConverter.py") | signatures(transform / "TpuLang.py")
    ours = {
        name: signature
        for name, signature in signatures(repository / "tests/support/vendor/tpulang_in_numpy.py").items()
        if (name[0] != "_" and "out_name" in signature[0]) or name in ("Tensor", "Scalar", "init", "compile")
    }
    assert len(ours) > 20
    assert ours == {name: theirs[name] for name in ours}
