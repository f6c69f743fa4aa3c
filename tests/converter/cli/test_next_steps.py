"""Every step that a command prints can be taken: the commands run, and the options exist."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.commands.hint_texts import OPTION, all_texts, foreign_options
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.cli.conversion_options import NEEDED_AGAIN
from tpuconvert.cli.group import COMMANDS, group
from tpuconvert.cli.option_hints import options_of, qualify_options
from tpuconvert.conversion.options.options import declaration
from tpuconvert.schema import option_style

Captured = pytest.CaptureFixture[str]
ALL_OPTIONS = {option for command in COMMANDS for option in options_of(command)} | {
    option for parameter in group.params for option in parameter.opts
}
OTHER_PROGRAMS = {
    *("--force-reinstall", "--no-cache-dir", "--upgrade", "--nthreads", "--nworkers", "--help"),
    *("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile", "--no-deps", "--mlir-disable-threading"),
    "--bmodel",
}


def test_options_in_texts_exist() -> None:
    unknown = {
        (place, option)
        for place, text in all_texts()
        for option in OPTION.findall(text)
        if option not in ALL_OPTIONS | OTHER_PROGRAMS and "{}" not in text[text.index(option) + len(option) :][:2]
    }
    assert not unknown


def test_commands_in_texts_have_the_options() -> None:
    wrong = []
    for place, text in all_texts():
        for command, rest in re.findall(r"\btpuconvert ([a-z][a-z-]*)((?: [^\n'();:]+)?)", text):
            if command in COMMANDS:
                wrong += [
                    (place, command, o) for o in OPTION.findall(rest) if o not in options_of(command) | {"--help"}
                ]
    assert not wrong


def test_sentences_that_begin_with_a_command_name_its_options() -> None:
    """Such as "convert it with --golden 2"."""
    verb = re.compile(rf"(?:^|[(:] ?|\bor )({'|'.join(sorted(COMMANDS, key=len, reverse=True))}) (?![{{'=])")
    wrong = []
    for place, text in all_texts():
        for clause in re.split(r"; |, or ", text):
            if found := verb.search(clause):
                rest = OPTION.findall(clause[found.end() :])
                wrong += [(place, found[1], option) for option in rest if option not in options_of(found[1])]
    assert not wrong


def test_options_in_texts_are_arguments_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands for a shell in a text keep their options."""
    monkeypatch.setattr(option_style, "_is_command_line", False)
    public = [getattr(tc, name) for name in tc.__all__]
    methods = [member for item in public if isinstance(item, type) for member in vars(item).values()]
    functions = [item for item in (*public, *methods, tc.Session) if inspect.isfunction(item) or item is tc.Session]
    arguments = {name for item in functions for name in inspect.signature(item).parameters}
    unknown = set()
    for place, text in all_texts():
        if place.startswith("converter/cli/") or OPTION.fullmatch(text):
            continue
        named = Counter(OPTION.findall(text)) - Counter(OPTION.findall(option_style.in_style(text)))
        unknown |= {(place, option) for option in named if option_style.in_style(option) not in arguments}
    assert not unknown


def test_commands_in_errors_of_python_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(option_style, "_is_command_line", False)
    text = "install it again: pip install --force-reinstall --no-cache-dir tpuconvert"
    assert option_style.in_style(text) == text
    assert option_style.in_style("register it: --plugin FILE.py") == "register it: plugins=FILE.py"


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


def test_options_of_other_commands_are_found() -> None:
    call = ["bench", "m.tpum", "--runs", "3"]
    assert foreign_options("give a sample: --input FILE.npz, or samples with --data", call) == ["--data"]
    assert foreign_options("verify --data, bench --runs=3, pip install --upgrade x; --limit nodes=3", call) == []


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


def append(path: Path, content: bytes, nodes: list[onnx.NodeProto], **constants: Any) -> None:
    """Write a model with further nodes; the result of the last one is its output."""
    model = onnx.load_from_string(content)
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items())
    model.graph.output[0].name = nodes[-1].output[0]
    onnx.save(model, path)


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
    "quantized source": (("qdq.onnx",), ("--verify",)),
    "quantized source, samples": (("qdq.onnx",), ("--verify", "--html", "r.html")),
    "inaccurate": (("sine.onnx",), (*INT8, "fixed.npz")),
}


@pytest.fixture
def folder(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("digits.tflite", "digits.prototxt", "digits.caffemodel"):
        (tmp_path / name).write_bytes((digits / name).read_bytes())
    content = save(tmp_path / "fixed.onnx", [1, 3, 8, 8]).read_bytes()
    save(tmp_path / "open.onnx", [1, 3, "height", "width"])
    save(tmp_path / "two.onnx", [1, 3, 8, 8], inputs=2)
    ends = [helper.make_node("Mul", ["s", "scale"], ["d"]), helper.make_node("Sin", ["d"], ["z"])]
    append(tmp_path / "sine.onnx", content, ends, scale=np.float32(30))
    ends = [helper.make_node("QuantizeLinear", ["y", "scale", "zero"], ["q"])]
    ends += [helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["z"])]
    append(tmp_path / "qdq.onnx", content, ends, scale=np.float32(0.1), zero=np.int8(0))
    for name in ("-dash.onnx", "with space.onnx"):
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("name", sampled(CONVERSIONS, every=2))
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


def test_hints_in_json_name_the_command_of_an_option(folder: Path, capsys: Captured) -> None:
    """``inspect`` has no --allow-root."""
    model = onnx.load("fixed.onnx")
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../weights.bin")
    onnx.save(model, "external.onnx")
    assert main(["inspect", "external.onnx", "--json"]) == 4
    printed = capsys.readouterr()
    hint = json.loads(printed.out)["error"]["hint"]
    assert "convert --allow-root" in hint and hint in printed.err


def test_errors_in_python_name_arguments(folder: Path, capsys: Captured) -> None:
    program = (
        "import tpuconvert as tc\ntry: tc.convert('fixed.onnx', quantize='int8')\nexcept tc.UsageError as e: print(e)"
    )
    shown_in_python = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "--" not in shown_in_python and "calibration" in shown_in_python
    assert main(["convert", "fixed.onnx", "-o", "o.tpum", "--quantize", "int8"]) == 2
    assert "--calibration" in capsys.readouterr().err


def test_shapes_may_be_one_text(folder: Path) -> None:
    assert tc.convert("open.onnx", source_options=tc.SourceOptions(input_shapes="x0=1,3,8,8")).graph.input_ports[
        0
    ].shape == (1, 3, 8, 8)
