"""Every text of the code base with a command is printed by a case, and the command that it prints runs."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.commands.hint_texts import COMMAND, all_texts
from tpuconvert.__main__ import main
from tpuconvert.cli.group import COMMANDS, group
from tpuconvert.diff.text import hidden_text
from tpuconvert.doctor.installation import SelfTest, installation
from tpuconvert.known_errors import explain, known_error
from tpuconvert.model.accuracy_notes import AccuracyWarning
from tpuconvert.outputs.interpretation import MOST_LINES, FoundObject, Interpretation
from tpuconvert.schema.types import Array

Captured = pytest.CaptureFixture[str]

PLACEHOLDERS: dict[str, tuple[str, ...]] = {
    "MODEL": ("fixed.onnx",),
    "MODEL.tpum": ("golden.tpum",),
    "[WEIGHTS]": (),
    "FILE.tpum": ("net.tpum",),
    "OUT.tpum": ("out.tpum",),
    "DATA": ("fixed.npz",),
    "SAMPLES": ("fixed.npz",),
    "BEFORE": ("fixed.onnx",),
    "AFTER": ("net.tpum",),
    "FOLDER": ("new_plan",),
    "NUMBER": ("1000000000",),
    "...": ("inspect", "net.tpum"),
}
"""Replacements of the placeholders in a printed command."""

OPERANDS: dict[str, tuple[str, ...]] = {
    "attribute": ("fixed.onnx", "net.tpum"),
    "bench": ("net.tpum", "--runs", "1"),
    "calibrate": ("fixed.onnx", "--calibration", "fixed.npz", "-o", "ranges.json"),
    "convert": ("fixed.onnx", "-o", "out.tpum"),
    "device": ("check", "golden.tpum"),
    "device plan": ("golden.tpum", "new_plan"),
    "diff": ("fixed.onnx", "net.tpum"),
    "doctor": (),
    "inspect": ("net.tpum",),
    "ops": (),
    "passes": (),
    "run": ("net.tpum", "fixed.npz"),
    "verify": ("fixed.onnx", "net.tpum"),
}
"""Arguments that complete a command that a sentence names without its files."""

NAMES: dict[str, Callable[[], Any]] = {
    "model": lambda: tc.load("net.tpum"),
    "source": lambda: "fixed.onnx",
    "samples": lambda: "fixed.npz",
    "path": lambda: "net.tpum",
}
"""The same for the names in a call in Python."""

NOT_REACHED = {
    "next: tpuconvert export MODEL.tpum FOLDER --chip CHIP --compile{}": "after an installation of the compiler",
    "not found; exported models need it: tpuconvert device setup": "installs the vendor's compiler",
    "`tpuconvert device setup` installs the package (Linux x86-64, Python 3.10), and prints its folder.": "the same",
    "tpuconvert device setup": "the same; tests/converter/device/test_setup.py runs it with a stand-in",
    "tpuconvert {}": "the version, or one of the commands that test_next_steps.py and this table execute",
}
"""Texts without a case, with the reason."""


class Case(NamedTuple):
    """A way to print a text: a command line and its exit code, or a function that returns what is printed."""

    text: str
    print: tuple[str, ...] | Callable[[], str]
    exit_code: int = 2
    is_slow: bool = False


def read_page() -> str:
    tc.report(tc.load("net.tpum"), "page.html")
    return Path("page.html").read_text(encoding="utf-8")


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(tc.TpuConvertError) as caught:
        call()
    return str(caught.value)


def warn() -> str:
    with pytest.warns(AccuracyWarning) as caught:
        tc.convert(
            "sine.onnx", quantize=tc.Quantization(without=["coarse-nodes", "int16-nodes"]), calibration="fixed.npz"
        )
    return str(caught[0].message)


def fail_inside() -> str:
    return explain(known_error(RuntimeError("a mistake")))


def fail_self_test() -> str:
    failed = dataclasses.replace(installation(), self_test=SelfTest(samples=8, different=1))
    return error_of(failed.check)


def many_objects() -> str:
    objects = [FoundObject(0, "cat", 0.9, (0.0, 0.0, 4.0, 4.0))] * (MOST_LINES + 1)
    return "\n".join(Interpretation("yolo", (8, 8), objects=tuple(objects)).lines())


SOURCE = ("convert", "fixed.onnx", "-o", "o.tpum")
INT8 = (*SOURCE, "--quantize", "int8", "--calibration", "fixed.npz")
CASES = [
    Case("tpuconvert.attribute(model", warn),
    Case("from tpuconvert calibrate, or", ("quantize", "fixed.onnx", "-o", "o.tpum")),
    Case("tpuconvert ci {}", (*SOURCE, "--config", "manifest.yaml")),
    Case("tpuconvert inspect {}", ("convert", "net.tpum")),
    Case("tpuconvert diff BEFORE", ("diff", "fixed.onnx")),
    Case("name the model: tpuconvert doctor", ("doctor", "--data", "fixed.npz")),
    Case("tpuconvert doctor {} --data SAMPLES", ("doctor", "fixed.onnx")),
    Case("see: {} --help", ("convert", "--no-such-option")),
    Case("Ranges that tpuconvert calibrate", ("quantize", "--help"), 0),
    Case("tpuconvert {} {}", ("verify", "net.tpum")),
    Case("name the tensors as", ("device", "compare", "golden.tpum", "other.npz", "--data", "fixed.npz")),
    Case("apply the preprocessing that", ("device", "compare", "golden.tpum", "flipped.npz"), 5),
    Case("make it again: tpuconvert device", ("device", "compare", "net.tpum", "plan/expected.npz", "--plan", "plan")),
    Case("tpuconvert device plan MODEL.tpum", ("device", "compare", "golden.tpum", "plan/expected.npz", "--plan", ".")),
    Case("report it with the output of 'tp", fail_self_test),
    Case("tpuconvert doctor compares them", ("doctor", "biased.onnx", "--data", "small.npz"), 0),
    Case("the output of: tpuconvert --traceback", fail_inside),
    Case("open it with tpuconvert.load(path)", lambda: error_of(lambda: tc.convert(Path("net.tpum").read_bytes()))),
    Case("``tpuconvert passes`` lists", ("convert", "--help"), 0),
    Case("``tpuconvert device`` compares", ("convert", "--help"), 0),
    Case("tpuconvert calibrate writes", ("quantize", "fixed.onnx", "-o", "o.tpum", "--ranges", "other.json"), 4),
    Case("tpuconvert reduce {} --until", ("reduce", "unknown.onnx", "--until", "error"), 0, is_slow=True),
    Case("{}: tpuconvert inspect {} --summary", ("convert", "float.onnx", *INT8[2:]), 0),
    Case("tpuconvert ops lists", ("ops", "qqqq")),
    Case("tpuconvert verify and tpuconvert attribute", read_page),
    Case("tpuconvert verify compares", ("attribute", "qdq.onnx", "qdq.tpum")),
    Case("use 'tpuconvert run' or 'tpuconvert inspect' with it", ("check", "net.tpum"), 4),
    Case("tpuconvert passes lists all", (*SOURCE, "--disable-rule", "qqqq")),
    Case("tpuconvert inspect lists", (*INT8, "--precision", "qqqq=float32")),
    Case("convert it first: tpuconvert", ("run", "fixed.onnx", "fixed.npz"), 4),
    Case("'tpuconvert convert' has written", ("bench", "noise.tpum"), 4),
    Case("tpuconvert --limit {}=NUMBER", ("--limit", "nodes=1", "check", "fixed.onnx"), 6),
    Case("tpuconvert --traceback ... shows", ("check", "custom.onnx", "--plugin", "fails_for_hints.py")),
    Case("tpuconvert convert --trace lists", ("convert", "overflow.onnx", "-o", "o.tpum"), 3),
    Case("from others: tpuconvert diff", lambda: hidden_text(1, 1)),
    Case("more{}: tpuconvert diff", lambda: hidden_text(2, 1)),
    Case("tpuconvert run --json", many_objects),
]


def test_every_command_in_a_text_has_a_case() -> None:
    without = [
        item for item in all_texts() if COMMAND.search(item.text) and not any(c.text in item.text for c in CASES)
    ]
    assert [item for item in without if item.text not in NOT_REACHED] == []
    assert {item.text for item in without} == set(NOT_REACHED)
    unused = [case.text for case in CASES if not any(case.text in item.text for item in all_texts())]
    assert unused == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of all cases."""
    folder = tmp_path_factory.mktemp("hints")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_files()
    return folder


CONV = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4)
RELU = helper.make_node("Relu", ["c"], ["y"])


def save(path: str, nodes: Sequence[NodeProto], shape: Sequence[int | str] = (1, 3, 8, 8), **constants: Array) -> None:
    """Write a model with the input x."""
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    ends = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", ports, ends, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def write_files() -> None:
    rng = np.random.default_rng(1)
    samples = rng.standard_normal((8, 3, 8, 8)).astype(np.float32)
    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    one = np.float32(1)
    np.savez("fixed.npz", x=samples)
    np.savez("small.npz", x=samples * np.float32(1e-6))
    save("fixed.onnx", [CONV, RELU], w=w)
    save("open.onnx", [CONV, RELU], (1, 3, "height", "width"), w=w)
    flat = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "v"], ["y"])]
    save("large.onnx", flat, v=rng.standard_normal((192, 128)).astype(np.float32))
    save("biased.onnx", [helper.make_node("Conv", ["x", "w", "b"], ["c"]), RELU], w=w, b=np.ones(4, np.float32))
    thirty = helper.make_node("Mul", ["c", "thirty"], ["d"])
    save("sine.onnx", [CONV, thirty, helper.make_node("Sin", ["d"], ["y"])], w=w, thirty=30 * one)
    save("unknown.onnx", [CONV, helper.make_node("Unknown", ["c"], ["y"], domain="acme")], w=w)
    save("custom.onnx", [CONV, helper.make_node("Fails", ["c"], ["y"], domain="acme")], w=w)
    large = [helper.make_node("Sinh", ["hundred"], ["d"]), helper.make_node("Mul", ["x", "d"], ["y"])]
    save("overflow.onnx", large, hundred=100 * one)
    steps = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"])]
    steps += [helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["c"]), RELU]
    steps += [helper.make_node("QuantizeLinear", ["y", "scale", "zero"], ["r"])]
    steps += [helper.make_node("DequantizeLinear", ["r", "scale", "zero"], ["z"])]
    save("qdq.onnx", steps, scale=np.float32(0.1), zero=np.int8(0))
    floats = ["Erf", "Sin", "Cos", "Atan", "Asinh", "Acosh", "Tan", "Asin", "Sinh"]
    names = ["c", *(f"t{i}" for i in range(len(floats)))]
    chain = [helper.make_node(op, [a], [b]) for op, a, b in zip(floats, names, names[1:], strict=False)]
    save("float.onnx", [CONV, *chain], w=w)
    ranges = tc.calibrate("fixed.onnx", calibration="fixed.npz")
    ranges.save("ranges.json")
    tc.quantize("fixed.onnx", ranges=ranges).save("net.tpum")
    golden = tc.convert("fixed.onnx", quantize="int8", calibration="fixed.npz", golden=1)
    golden.save("golden.tpum")
    tc.device_plan(golden, "plan")
    for name in ("qdq", "open"):
        tc.convert(f"{name}.onnx").save(f"{name}.tpum")
    np.savez("other.npz", other=np.zeros(3))
    with np.load("plan/expected.npz") as expected:
        np.savez("flipped.npz", **{**expected, "x:int8": expected["x:int8"][:, :, ::-1]})
    Path("other.json").write_text("{}", "utf-8")
    Path("noise.tpum").write_bytes(rng.bytes(500))
    Path("manifest.yaml").write_text("models: {net: {source: fixed.onnx, output: ci.tpum}}\n", "utf-8")
    Path("fails_for_hints.py").write_text(
        "import tpuconvert as tc\n\n\n@tc.register_converter('onnx', 'Fails', domain='acme')\n"
        "def convert(node, g):\n    return 1 / 0\n",
        "utf-8",
    )


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.slow] if c.is_slow else [], id=c.text) for c in CASES]
)
def test_the_printed_command_runs(
    case: Case, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    shown = printed_by(case, capsys)
    texts = {item.text for item in all_texts() if case.text in item.text}
    printed = next(filter(None, (re.search(pattern_of(text), shown) for text in texts)), None)
    assert printed is not None, f"{texts} is not in: {shown}"
    line = " ".join(printed[0].split()) + " " * printed[0][-1:].isspace() + shown[printed.end() :].split("\n")[0]
    calls = list(calls_in(line))
    assert calls
    for call in calls:
        code = run_call(call)
        assert code == 0, f"{call}: {capsys.readouterr().err}"


CALLS = {
    (*SOURCE, "--quantize", "int8"): ("--calibration", "fixed.npz"),
    ("convert", "large.onnx", "-o", "o.tpum", "--activation-type", "int8"): ("--weight-type int4", ""),
    ("convert", "open.onnx", "-o", "o.tpum", "--verify"): ("--input-shapes x=...", "1,3,8,8"),
    ("check", "unknown.onnx"): ("--outputs c", ""),
    ("convert", "unknown.onnx", "-o", "o.tpum"): ("--outputs c", ""),
    ("verify", "open.onnx", "open.tpum"): ("--data", "fixed.npz"),
    ("bench", "open.tpum"): ("--input", "fixed.npz"),
}
"""Calls that fail -> the option in the hint, and what a user gives where it has no value or dots."""


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_the_call_succeeds_with_the_option_of_its_hint(
    call: tuple[str, ...], files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    assert main(list(call)) in (2, 3)
    printed, value = CALLS[call]
    assert printed in capsys.readouterr().err.split("\n", 1)[1]
    words = printed.replace("...", value).split()
    assert main([*call, *words, *([value] if len(words) == 1 else [])]) == 0, capsys.readouterr().err


def printed_by(case: Case, capsys: Captured) -> str:
    """Run a case and return what it prints."""
    if not isinstance(case.print, tuple):
        return case.print()
    code = main(list(case.print))
    output = capsys.readouterr()
    assert code == case.exit_code, output.err
    return output.out + output.err


def pattern_of(text: str) -> str:
    """Return the expression of a text whose fields have values and whose lines are wrapped."""
    return r"\s+".join(re.escape(word).replace(r"\{\}", ".*?") for word in text.replace("``", "").split())


def calls_in(line: str) -> Iterator[str | list[str]]:
    """Yield the calls in Python and the words of the commands in a line."""
    for found in re.finditer(r"\btpuconvert(?:\.\w+\([^)]*\)| (?=[a-z-]))", line):
        if not found[0].endswith(" "):
            yield found[0]
            continue
        before, rest = line[: found.start()][-1:], line[found.end() :]
        words = words_of(rest.split(before)[0] if before in ("'", "`") else rest)
        if words:
            yield words


def words_of(rest: str) -> list[str]:
    """Return the words of a command as a user writes them. It ends before the next word of the sentence."""
    words: list[str] = []
    command: click.Command = group
    names: list[str] = []
    has_operands = takes_value = False
    try:
        items = shlex.split(rest)
    except ValueError:  # an apostrophe of the sentence
        items = rest.split()
    for item in items:
        word = item.rstrip(",;:") if item.startswith("...") else item.rstrip(",;:.")
        if takes_value:
            name, equals, value = word.rpartition("=")
            words.append(name + equals + PLACEHOLDERS.get(value, (value,))[0])
            takes_value = False
        elif word.startswith("-"):
            words.append(word)
            takes_value = any(word in p.opts and not getattr(p, "is_flag", False) for p in command.params)
        elif isinstance(command, click.Group) and (word in COMMANDS if command is group else word in command.commands):
            command = command.get_command(click.Context(command), word) or command
            names.append(word)
            words.append(word)
        elif word in PLACEHOLDERS or Path(word).exists():
            words += replacement(word)
            has_operands = True
        else:
            break
        if word != item:
            break
    return words if has_operands or not words else [*words, *OPERANDS.get(" ".join(names), ())]


def replacement(word: str) -> tuple[str, ...]:
    """Return what a user writes for a word."""
    return PLACEHOLDERS.get(word, (word,))


def run_call(call: str | list[str]) -> int:
    """Run a command, or a call in Python."""
    if isinstance(call, list):
        return main(call)
    names = {name: value() for name, value in NAMES.items()}
    eval(call, {"tpuconvert": tc, **names})
    return 0
