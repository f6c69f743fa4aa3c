"""The operation forms of the export against the definitions of the installed compiler.

The compiler silently ignores attributes that it does not know.
"""

import re

import pytest

from tpuconvert.exporters.tpu_mlir.dialect import KEPT_BY_COMPILER, OPERATIONS

pytestmark = pytest.mark.vendor


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
