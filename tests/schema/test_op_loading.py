"""Definitions are loaded when somebody asks for them, each without the others."""

import subprocess
import sys

import pytest

from tpuconvert.schema import ops
from tpuconvert.schema.op import all_ops, find_op


@pytest.mark.parametrize("name", ["conv", "add", "bm_atomic_tensor_arithmetic.BM_ADD"])
def test_a_definition_is_loaded_alone(name: str) -> None:
    code = (
        "import sys; from tpuconvert.schema.op import find_op\n"
        f"assert find_op({name!r}).name == {name!r}\n"
        "assert 'tpuconvert.schema.ops.nms' not in sys.modules and 'tpuconvert.schema.ops.ordering' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_sources_say_where_every_definition_is() -> None:
    modules = {name: definition.__module__.rpartition(".")[2] for name, definition in all_ops().items()}
    own = {
        name: module for name, module in modules.items() if all_ops()[name].__module__.startswith(f"{ops.__name__}.")
    }
    assert own.items() <= ops._modules().items()


def test_a_name_of_no_operator() -> None:
    assert find_op("no_such_operator") is None
