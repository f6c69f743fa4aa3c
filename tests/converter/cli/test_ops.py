"""``tpuconvert ops``: lists of operators, and the explanation of one operator."""

import json
from pathlib import Path

import pytest

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


def test_explains_an_operator(capsys: Captured) -> None:
    assert main(["ops", "softmax"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "softmax(tensor_i; axis) -> tensor_o"
    assert "y = exp(x - max(x)) / sum(exp(x - max(x))) along axis, in float64, rounded once." in lines
    assert "  axis  int  required  axis; negative counts from the end" in lines
    assert "  BM1682: this chip does not have it" in lines
    assert lines[lines.index("  BM1684") + 1] == "    FLOAT32"
    assert lines[lines.index("locality") + 1] == "  Local: input and output tiles may stay in on-chip memory."
    assert "  from tpuconvert.schema.ops.softmax import Softmax" in lines
    assert lines[lines.index("example") + 1] == "  softmax(axis=-1)"
    assert "``" not in "\n".join(lines)


def test_enumerations_are_listed(capsys: Captured) -> None:
    assert main(["ops", "reduce", "--chip", "bm1684"]) == 0
    out = capsys.readouterr().out
    assert "REDUCE_MEAN = 0, REDUCE_SUM = 1" in out
    assert "Local or global: may be local only for FLOAT32." in out


def test_one_chip(capsys: Captured) -> None:
    assert main(["ops", "concat", "--chip", "BM1686"]) == 0
    out = capsys.readouterr().out
    assert "BM1686: marked unfinished by the vendor: legal with a warning" in out
    assert "  BM1682" not in out


def test_json(capsys: Captured) -> None:
    assert main(["ops", "cast", "--json", "--chip", "bm1682"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["name"] == "cast"
    assert about["parameters"][0]["name"] == "out_dtype"
    assert about["parameters"][0]["default"] is None
    assert [chip["chip"] for chip in about["chips"]] == ["BM1682"]
    assert about["chips"][0]["cases"][0] == "``tensor_i`` FLOAT32; ``tensor_o`` INT32, INT8, UINT8"
    assert about["example"][0].startswith("cast(")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Softmx", "did you mean 'softmax' or 'softmax"),
        ("Matrix_M", "did you mean 'matrix_mul"),
        ("stride_", "did you mean 'stride_"),
        ("frobnicate", "tpuconvert ops lists the operators"),
    ],
)
def test_unknown_operator(name: str, hint: str, capsys: Captured) -> None:
    assert main(["ops", name]) == 2
    captured = capsys.readouterr()
    assert f"there is no TPU operator '{name}'" in captured.err
    assert hint in captured.err
    assert captured.out == ""


def test_wrong_calls(capsys: Captured) -> None:
    assert main(["ops", "softmax", "--chip", "bm1699"]) == 2
    assert "unknown chip" in capsys.readouterr().err
    assert main(["ops", "softmax", "--format", "onnx"]) == 2
    assert "--format" in capsys.readouterr().err


def test_an_operator_of_a_plugin(capsys: Captured) -> None:
    Path("gate.py").write_text(
        "from dataclasses import dataclass\n"
        "import tpuconvert as tc\n\n"
        '@tc.register_op("test_ops_gate")\n'
        "@dataclass(frozen=True)\n"
        "class Gate(tc.Op):\n"
        '    """y = x where it exceeds the limit, else 0."""\n\n'
        "    limit: float = 0.5\n"
        '    inputs = (tc.Operand("x"),)\n\n'
        "    def infer(self, x):\n"
        "        return (x,)\n",
        encoding="utf-8",
    )
    assert main(["ops", "test_ops_gate", "--plugin", "gate.py"]) == 0
    out = capsys.readouterr().out
    assert "y = x where it exceeds the limit, else 0." in out
    assert "Global: it runs on the host." in out
    assert "Custom operators" in out


def test_operators_of_a_format(capsys: Captured) -> None:
    assert main(["ops", "--format", "onnx"]) == 0
    captured = capsys.readouterr()
    lines = {line.split()[0]: line.split() for line in captured.out.splitlines()}
    assert lines["operator"] == ["operator", "domain", "versions", "kind", "limits"]
    assert lines["Softmax"][:5] == ["Softmax", "-", "1-12,", "13+", "direct"]
    assert lines["Loop"][:4] == ["Loop", "-", "1+", "host"]
    assert lines["Acos"][3] == "host"
    assert lines["Multinomial"] == ["Multinomial", "-", "-", "refused", "random", "numbers"]
    assert "refused" in captured.err


def test_operators_of_a_format_as_json(capsys: Captured) -> None:
    for source_format in ("onnx", "tflite", "caffe"):
        assert main(["ops", "--format", source_format, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert {frozenset(row) for row in rows} == {frozenset({"operator", "domain", "versions", "kind", "limits"})}
