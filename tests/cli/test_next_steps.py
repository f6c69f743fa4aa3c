"""Every step that a command prints can be taken: the commands run, and the options exist."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.cli.conversion_options import NEEDED_AGAIN
from tpuconvert.cli.group import COMMANDS, group
from tpuconvert.cli.option_hints import options_of, qualify_options
from tpuconvert.options import declaration

Captured = pytest.CaptureFixture[str]
PACKAGE = Path(tc.__file__).resolve().parents[1]
FOLDERS = ("converter", "frontends", "optimizer", "runtime", "schema")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
ALL_OPTIONS = {option for command in COMMANDS for option in options_of(command)} | {
    option for parameter in group.params for option in parameter.opts
}
OTHER_PROGRAMS = {"--force-reinstall", "--no-cache-dir", "--upgrade", "--nthreads", "--nworkers", "--help"}


def texts_of(path: Path) -> list[tuple[int, str]]:
    """Text constants of a module without docstrings, with their lines. Fields of f-strings are replaced by ``{}``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings, parts, found = set(), set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr):
            docstrings.add(id(node.body[0].value))
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
    for node in ast.walk(tree):
        if id(node) in docstrings | parts:
            continue
        if isinstance(node, ast.JoinedStr):
            found.append((node.lineno, "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append((node.lineno, node.value))
    return found


TEXTS = [
    (f"{path.relative_to(PACKAGE)}:{line}", text)
    for folder in FOLDERS
    for path in sorted((PACKAGE / folder).rglob("*.py"))
    for line, text in texts_of(path)
]


def test_options_in_texts_exist() -> None:
    unknown = {
        (place, option)
        for place, text in TEXTS
        for option in OPTION.findall(text)
        if option not in ALL_OPTIONS | OTHER_PROGRAMS and "{}" not in text[text.index(option) + len(option) :][:2]
    }
    assert not unknown


def test_commands_in_texts_have_the_options() -> None:
    wrong = []
    for place, text in TEXTS:
        for command, rest in re.findall(r"\btpuconvert ([a-z][a-z-]*)((?: [^\n'();:]+)?)", text):
            if command in COMMANDS:
                wrong += [
                    (place, command, o) for o in OPTION.findall(rest) if o not in options_of(command) | {"--help"}
                ]
    assert not wrong


@pytest.mark.parametrize("command", NEEDED_AGAIN)
def test_repeated_options_are_those_of_the_command(command: str) -> None:
    flags = {
        (declaration(name).flags or f"--{name.replace('_', '-')}").split("/")[0]
        for name in NEEDED_AGAIN[command]
        if name != "plugins"
    }
    assert flags | {"--plugin"} <= options_of(command)


def test_options_of_other_commands_are_named_with_their_command() -> None:
    text = "give samples with --data, or end the model earlier (convert --outputs); tpuconvert verify a b --oracle none"
    assert qualify_options(text, ["verify", "a", "b"]) == text
    found = qualify_options("end the model earlier: --outputs; give --data", ["bench", "m.tpum"])
    assert found == "end the model earlier: convert --outputs; give verify --data"


def save(path: Path, shape: list[int | str], inputs: int = 1) -> Path:
    names = [f"x{i}" for i in range(inputs)]
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "v": np.ones((4, 3, 1, 1), np.float32)}
    nodes = [helper.make_node("Conv", [name, "w"], [f"c{name}"], pads=[1] * 4) for name in names]
    nodes += [helper.make_node("Sum", [f"c{name}" for name in names], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights["w"], "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    samples = {name: rng.standard_normal((8, 3, 8, 8)).astype(np.float32) for name in names}
    np.savez(path.with_suffix(".npz"), **samples)
    return path


INT8 = ("--quantize", "int8", "--calibration")
SHAPES = ("--input-shapes", "x0=1,3,8,8")
CONVERSIONS = {
    "float": (("fixed.onnx",), ()),
    "float, verified": (("fixed.onnx",), ("--verify",)),
    "float, verified, report": (("fixed.onnx",), ("--verify", "--html", "r.html")),
    "int8": (("fixed.onnx",), (*INT8, "fixed.npz")),
    "int8, verified": (("fixed.onnx",), (*INT8, "fixed.npz", "--verify")),
    "int8, verified, report": (("fixed.onnx",), (*INT8, "fixed.npz", "--verify", "--html", "r.html")),
    "shapes": (("open.onnx",), SHAPES),
    "shapes, int8, report": (("open.onnx",), (*SHAPES, *INT8, "open.npz", "--verify", "--html", "r.html")),
    "open size": (("open.onnx",), ()),
    "two inputs": (("two.onnx",), (*INT8, "two.npz", "--verify")),
    "outputs": (("fixed.onnx",), ("--outputs", "s")),
    "dash": (("-dash.onnx",), ("--verify",)),
    "space": (("with space.onnx",), (*INT8, "fixed.npz")),
    "tflite": (("digits.tflite",), ("--verify",)),
    "caffe": (("digits.prototxt", "digits.caffemodel"), ("--verify",)),
    "bm1684": (("fixed.onnx",), (*INT8, "fixed.npz", "--chip", "bm1684")),
}


@pytest.fixture
def folder(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("digits.tflite", "digits.prototxt", "digits.caffemodel"):
        (tmp_path / name).write_bytes((digits / name).read_bytes())
    content = save(tmp_path / "fixed.onnx", [1, 3, 8, 8]).read_bytes()
    save(tmp_path / "open.onnx", [1, 3, "height", "width"])
    save(tmp_path / "two.onnx", [1, 3, 8, 8], inputs=2)
    for name in ("-dash.onnx", "with space.onnx"):
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("name", CONVERSIONS)
def test_the_next_step_of_a_conversion_runs(name: str, folder: Path, capsys: Captured) -> None:
    files, options = CONVERSIONS[name]
    assert main(["convert", "-o", "o.tpum", *options, "--", *files]) == 0
    (line,) = re.findall(r"(?m)^next: (.+)$", capsys.readouterr().out)
    words = shlex.split(line)
    assert words[0] == "tpuconvert"
    assert main(words[1:]) == 0, capsys.readouterr().err


def test_verification_of_an_open_size_names_an_option_of_convert(folder: Path, capsys: Captured) -> None:
    assert main(["convert", "open.onnx", "-o", "o.tpum", "--verify"]) == 2
    shown = capsys.readouterr().err
    assert set(OPTION.findall(shown)) <= options_of("convert") and "--input-shapes x0=" in shown


def test_errors_in_python_name_arguments(folder: Path, capsys: Captured) -> None:
    program = (
        "import tpuconvert as tc\ntry: tc.convert('fixed.onnx', quantize='int8')\nexcept tc.UsageError as e: print(e)"
    )
    shown_in_python = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "--" not in shown_in_python and "calibration" in shown_in_python
    assert main(["convert", "fixed.onnx", "-o", "o.tpum", "--quantize", "int8"]) == 2
    assert "--calibration" in capsys.readouterr().err


def test_shapes_may_be_one_text(folder: Path) -> None:
    assert tc.convert("open.onnx", input_shapes="x0=1,3,8,8").graph.input_ports[0].shape == (1, 3, 8, 8)
