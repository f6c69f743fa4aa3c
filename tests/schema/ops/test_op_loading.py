"""Adding a file with a decorated class to ``schema/ops`` defines an operator."""

import subprocess
import sys
from pathlib import Path

from tpuconvert.schema import ops
from tpuconvert.schema.definition.op import find_op

NEW_OPERATOR = """
from tpuconvert.schema.definition.op import Op, tpu_op


@tpu_op("brand_new")
class BrandNew(Op):
    pass
"""


def test_finds_operator_of_new_file(tmp_path: Path) -> None:
    (tmp_path / "brand_new.py").write_text(NEW_OPERATOR, encoding="utf-8")
    code = (
        f"from tpuconvert.schema import ops; ops.__path__.append({str(tmp_path)!r})\n"
        "from tpuconvert.schema.definition.op import all_ops, find_op\n"
        "assert find_op('brand_new').__name__ == 'BrandNew' and 'brand_new' in all_ops()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name_is_no_operator() -> None:
    assert find_op("no_such_operator") is None


def test_package_has_no_list_of_operators() -> None:
    assert ops.__file__ is not None
    assert "import" not in Path(ops.__file__).read_text(encoding="utf-8").split('"""')[2]
