"""Names of a model cannot choose files of an export, or add markup, code or control characters to its texts."""

import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.syntax_trees import parse
from tpuconvert.text.markdown_text import code_span, table_code_span

HOSTILE = 'y\n# heading\n[link](http://example.invalid) \x1b[31m \u202e `a` | <script> $(touch PWNED) \'""" \\'


def export(folder: Path, target: str, *, name: str = "net", tensor: str = "y") -> Path:
    """Export an INT8 network of one matmul and a ReLU, from a file of a name."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])
    y = helper.make_tensor_value_info(tensor, TensorProto.FLOAT, [1, 2, 4, 4])
    weights = helper.make_tensor("w", TensorProto.FLOAT, [2, 3, 1, 1], [1.0, -1.0, 0.5, 0.25, 1.0, -0.5])
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="c"), helper.make_node("Relu", ["c"], [tensor], name="r")]
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    samples = np.random.default_rng(0).normal(size=(2, 1, 3, 4, 4)).astype(np.float32)
    model = tc.convert(path, chip="bm1686", quantize="int8", calibration=samples)
    shutil.rmtree(folder / "out", ignore_errors=True)
    tc.export(model, folder / "out", to=target, chip="bm1684x")
    return folder / "out"


@pytest.mark.parametrize("target", ["tpu-mlir", "tpulang"])
def test_hostile_names_in_texts(target: str, tmp_path: Path) -> None:
    out = export(tmp_path, target, tensor=HOSTILE)
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", readme)
    assert not re.search(r"(?m)^(# heading|\[link\])", readme)
    rows = [line for line in readme.splitlines() if "heading" in line]
    assert len(rows) == 1 and len(re.findall(r"(?<!\\)\|", rows[0])) == 6
    for path in out.glob("*.py"):
        parse(path.read_text(encoding="utf-8"))
        assert "\x1b" not in path.read_text(encoding="utf-8")
    for path in out.glob("*.sh"):
        assert "PWNED" not in path.read_text(encoding="utf-8")


NAMES = ["numpy", "run_bmodel", "json", "pyruntime_bm", "transform", "__init__", "compile_bmodel", "step-1", "expected",
         "inputs", "export", "x" * 245]  # fmt: skip


@pytest.mark.parametrize("name", ["numpy", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_programs_have_fixed_names(name: str, tmp_path: Path) -> None:
    assert {path.name for path in export(tmp_path, "tpulang", name=name).glob("*.py")} == {
        "run.py",
        "run_bmodel.py",
        "compile_bmodel.py",
    }
    out = export(tmp_path, "tpu-mlir", name=name)
    assert {path.name for path in out.glob("*.py")} == {"run.py", "run_bmodel.py"}
    (program,) = out.glob("*.mlir")
    compile_script = (out / "compile.sh").read_text()
    assert f"-o {program.name}" not in compile_script


def test_code_spans() -> None:
    assert code_span("a") == "`a`"
    assert code_span("") == "`-`"
    assert code_span("a`b``c") == "``` a`b``c ```"
    assert table_code_span("a|b") == r"`a\|b`"
