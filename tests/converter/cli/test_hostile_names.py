"""Names in models, files and manifests cannot inject terminal sequences, CI commands or markup."""

import ast
import html.parser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.syntax_trees import syntax_tree
from tpuconvert.__main__ import main
from tpuconvert.cli.terminal import StreamedText
from tpuconvert.known_errors import explain
from tpuconvert.schema.text.visible_text import for_json, for_log, one_line

Captured = pytest.CaptureFixture[str]

ESCAPE = "\x1b]0;title\x07\x1b[31m"
COMMANDS = "a\n::error::forged\n  ::add-mask::x\n##[command]y ##vso[task.setvariable]z"
REORDERED = "\u202egnp\u2066\x9b31m\u2028<script>alert(1)</script>|`"
NAMES = (ESCAPE, COMMANDS, REORDERED)

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
"""Characters that terminals interpret, from the Unicode tables (Cc, Bidi_Control, Zl, Zp)."""

GITHUB = re.compile(r"^\s*::|##\[", re.MULTILINE)
"""Workflow commands of GitHub Actions, in both syntaxes."""

AZURE = "##vso["


def network(path: str = "net.onnx", operator: str = "Relu", names: tuple[str, str, str] = NAMES) -> str:
    """A model with two matmuls and hostile names of nodes, constants, inputs and outputs."""
    first, second, third = names
    x = helper.make_tensor_value_info(f"x{first}", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info(f"y{second}", TensorProto.FLOAT, [1, 4])
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), f"w{third}")
    nodes = [
        helper.make_node("MatMul", [f"x{first}", f"w{third}"], [f"m{third}"], name=f"product{second}"),
        helper.make_node(operator, [f"m{third}"], [f"y{second}"], name=f"last{first}{third}"),
    ]
    graph = helper.make_graph(nodes, f"graph{second}", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def check_safe(text: str) -> None:
    assert UNSAFE.search(text) is None, repr(text)
    assert GITHUB.search(text) is None, repr(text)
    assert AZURE not in text


CALLS = [
    ["convert", "net.onnx", "-o", "other.tpum"],
    ["convert", "net.onnx", "-o", "other.tpum", "--trace", "--dump-after", "canonicalize"],
    ["convert", "net.onnx", "-o", "other.tpum", "--verify", "--progress", "lines"],
    ["check", "net.onnx"],
    ["check", "unsupported.onnx"],
    ["--traceback", "check", "unsupported.onnx"],
    ["check", "net.onnx", "--inputs", COMMANDS],
    ["check", "net.onnx", "--input-shapes", f"{ESCAPE}=1,4"],
    ["check", f"{COMMANDS}.onnx"],
    ["check", "\udcff.onnx"],
    ["inspect", "net.onnx"],
    ["inspect", "net.tpum", "--cost"],
    ["inspect", "damaged\n::error::.tpum"],
    ["run", "net.tpum", "x.npy"],
    ["run", "net.tpum", f"{ESCAPE}=x.npy"],
    ["bench", "net.tpum", "--runs", "1", "--profile"],
    ["verify", "net.onnx", "net.tpum", "--min-sqnr", "1000"],
    ["diff", "net.tpum", "other.onnx", "--all"],
    ["diff", "net.tpum", "other.onnx", "--fail-on", "any"],
    ["reduce", "unsupported.onnx", "--until", "error"],
    ["reduce", "net.onnx", "--until", COMMANDS],
    ["no such command\n::error::"],
    ["convert", "net.onnx", "--quantize", COMMANDS],
]


@pytest.fixture
def hostile_files(capsys: Captured) -> None:
    network()
    network("unsupported.onnx", operator="NoSuchOperator")
    network("other.onnx", operator="Sigmoid", names=(REORDERED, ESCAPE, COMMANDS))
    np.save("x.npy", np.ones((1, 4), np.float32))
    Path("damaged\n::error::.tpum").write_bytes(b"TPUM" + bytes(200))
    assert main(["convert", "net.onnx", "-o", "net.tpum"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: ascii(" ".join(call))[:60])
def test_text_has_no_control_characters_and_no_commands(call: list[str], hostile_files: None, capsys: Captured) -> None:
    main(call)
    shown = capsys.readouterr()
    assert shown.out or shown.err
    check_safe(shown.out)
    check_safe(shown.err)


def test_a_name_cannot_add_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    network(names=("", "\nnext: tpuconvert forged", "\nwrote forged"))
    assert main(["convert", "net.onnx", "-o", "net.tpum", "--verify"]) == 0
    for call in (["inspect", "net.tpum"], ["verify", "net.onnx", "net.tpum"], ["diff", "net.onnx", "net.tpum"]):
        main(call)
    text = capsys.readouterr().out
    assert "next: tpuconvert verify net.onnx net.tpum" in text
    assert r"y\nnext: tpuconvert forged" in text
    assert not re.search(r"(?m)^(next: tpuconvert|wrote) forged", text)


def test_no_next_step_for_a_name_that_cannot_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    network("\x1b[31m.onnx", names=("", "", ""))
    assert main(["convert", "\x1b[31m.onnx", "-o", "net.tpum"]) == 0
    text = capsys.readouterr().out
    assert "wrote net.tpum" in text and "next:" not in text


@pytest.mark.parametrize(
    "call",
    [
        ["inspect", "net.tpum"],
        ["check", "unsupported.onnx"],
        ["verify", "net.onnx", "net.tpum"],
        ["diff", "other.onnx", "net.tpum"],
    ],
)
def test_json_is_safe_to_print_and_has_the_names_exactly(
    call: list[str], hostile_files: None, capsys: Captured
) -> None:
    main([*call, "--json"])
    text = capsys.readouterr().out
    check_safe(text)
    strings = set(_strings(json.loads(text)))
    assert {f"last{ESCAPE}{REORDERED}", f"y{COMMANDS}"} & strings


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


@pytest.mark.parametrize("suffix", ["txt", "json", "html"])
def test_reports_have_no_control_characters(suffix: str, hostile_files: None) -> None:
    assert main(["convert", "net.onnx", "-o", "net.tpum", "--report", f"report.{suffix}"]) == 0
    text = Path(f"report.{suffix}").read_text(encoding="utf-8")
    assert UNSAFE.search(text) is None
    if suffix == "html":
        tags: list[str] = []
        parser = html.parser.HTMLParser()
        parser.handle_starttag = lambda tag, _: tags.append(tag)  # type: ignore[method-assign]
        parser.feed(text)
        assert tags.count("script") == 2, "the data and the program"
        assert "table" in tags


@pytest.fixture
def manifest(hostile_files: None) -> None:
    """Models with hostile names, sources and nodes: one is built, one misses a limit, one is rejected."""
    models = {
        f"made {COMMANDS}": {"source": "net.onnx"},
        f"large {ESCAPE}": {"source": "net.onnx", "limits": {"size": 1}},
        f"refused {REORDERED}, a: 5%": {"source": "unsupported.onnx"},
    }
    Path("tpuconvert.yaml").write_text(yaml.safe_dump({"models": models}, sort_keys=False, allow_unicode=True))


def test_reports_of_ci_are_well_formed(manifest: None, capsys: Captured) -> None:
    assert main(["ci", "--junit", "j.xml", "--sarif", "s.sarif", "--markdown", "m.md", "--jobs", "1"]) == 3
    shown = capsys.readouterr()
    check_safe(shown.out)
    check_safe(shown.err)
    cases = ElementTree.parse("j.xml").getroot().findall("testsuite/testcase")  # fails if not XML 1.0
    assert [len(case.findall("error") + case.findall("failure")) for case in cases] == [0, 1, 1]
    markdown = Path("m.md").read_text()
    for text in (Path("j.xml").read_text(), Path("s.sarif").read_text(), markdown):
        assert UNSAFE.search(text) is None
    table = markdown.split("\n\n")[0].splitlines()
    assert len(table) == 5, "a line per model, and the heading"
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 9 for line in table), "eight cells"
    assert "<script" not in re.sub(r"(`+).+?\1", "", "".join(table)), "markup has no effect in code spans"
    uris = [
        place["physicalLocation"]["artifactLocation"]["uri"]
        for result in json.loads(Path("s.sarif").read_text())["runs"][0]["results"]
        for place in result["locations"]
    ]
    assert uris == ["net.onnx", "unsupported.onnx"]


def test_json_of_ci_has_the_names_exactly(manifest: None, capsys: Captured) -> None:
    assert main(["ci", "--json", "--jobs", "1"]) == 3
    shown = capsys.readouterr()
    check_safe(shown.out)
    check_safe(shown.err)
    assert f"made {COMMANDS}" in [model["name"] for model in json.loads(shown.out)["models"]]


def test_annotations_are_one_command_per_error(
    manifest: None, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main(["ci", "--jobs", "1"]) == 3
    lines = [line for line in capsys.readouterr().err.splitlines() if GITHUB.search(line)]
    assert len(lines) == 2
    for line in lines:
        assert UNSAFE.search(line) is None
        # Grammar of a workflow command: properties end at the first "::" and are separated by commas.
        found = re.fullmatch(r"::error file=([^,:]*),title=([^,:]*)::(.*)", line)
        assert found is not None, line
    assert "a%3A 5%25" in lines[1] and "%0A" in lines[1]


def test_markdown_block_of_code_is_not_ended_by_an_error(capsys: Captured) -> None:
    name = "x\n```\n[click](http://example.invalid)"
    network("net.onnx", operator="NoSuchOperator", names=(name, name, name))
    Path("tpuconvert.yaml").write_text(yaml.safe_dump({"models": {"m": {"source": "net.onnx", "inputs": ["````"]}}}))
    assert main(["ci", "--markdown", "m.md", "--jobs", "1"]) != 0
    lines = Path("m.md").read_text().splitlines()
    fences = [index for index, line in enumerate(lines) if re.match(r"`{3,}", line)]
    assert lines[fences[0]].removesuffix("text") == lines[fences[-1]]
    assert fences[-1] == len(lines) - 1
    longest = max(len(run) for run in re.findall("`+", "\n".join(lines[fences[0] + 1 : -1])) or [""])
    assert len(lines[-1]) > longest


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢", "plain ü 漢"),
        ("\x1b[0m", "\\x1b[0m"),
        ("a\r\nb\tc", "a\\r\nb\tc"),
        ("op::Name", "op::Name"),
        ("::error::x", "\\x3a:error::x"),
        ("a\n \u00a0::debug::x", "a\n \u00a0\\x3a:debug::x"),
        ("x ##[group]", "x \\x23#[group]"),
        ("## [heading]", "## [heading]"),
        ("##VSO[a]##teamCity[b]", "\\x23#VSO[a]\\x23#teamCity[b]"),
        ("###[x]", "#\\x23#[x]"),
        ("\ud800", "\\ud800"),
    ],
)
def test_text_for_a_log(text: str, shown: str) -> None:
    assert for_log(text) == shown


@pytest.mark.parametrize(
    "text", [COMMANDS, ESCAPE, REORDERED, "##", "a ::b\n::c\n", "# ## ##vs ##vso[x", ":", " :: x", "####[x"]
)
def test_text_in_pieces_is_escaped_as_a_whole(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Divided at every two positions."""
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            output = StreamedText()
            for piece in (text[:first], text[first:second], text[second:]):
                output.write(piece)
            output.end()
            assert capsys.readouterr().out == f"{for_log(text)}\n", (first, second)


def test_only_the_beginning_of_a_command_waits(capsys: pytest.CaptureFixture[str]) -> None:
    output = StreamedText()
    for piece, shown in (
        ("a", "a"),
        (":", ":"),
        ("b ##v", "b "),
        ("x", "##vx"),
        ("\n:", "\n"),
        (";", ":;"),
        ("::", "::"),
    ):
        output.write(piece)
        assert capsys.readouterr().out == shown


def test_names_within_a_line_and_in_json() -> None:
    assert one_line("a\n\tb\x85") == "a\\n\\tb\\x85"
    document = json.dumps({"##[x]": "\x9b\u202e\ud83d ü"}, ensure_ascii=False)
    assert for_json(document).isprintable()
    assert json.loads(for_json(document)) == {"##[x]": "\x9b\u202e\ud83d ü"}


WRITERS = {
    "terminal.py": {"_write_escaped", "write_commands"},
    "json_output.py": {"write_document"},
    "completion.py": {"command"},
    "__main__.py": {"main"},  # an interrupt before the modules for output are imported
    "run_bmodel.py": {"fail", "compare"},  # separate programs that exports and plans contain
    "run.py": {"main", "compare"},
    "generate.py": {"main"},
    "run_device.py": {"main"},
}
"""Text is written only by these modules: terminal output, documents and the shell script."""


PRINTING = ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write", "traceback.print_exc")


def test_commands_write_through_one_place(repository: Path) -> None:
    found = []
    for path in (repository / "converter").rglob("*.py"):
        for function in ast.walk(syntax_tree(path)):
            if isinstance(function, ast.FunctionDef) and function.name not in WRITERS.get(path.name, ()):
                found += [
                    f"{path.name}:{call.lineno}"
                    for call in ast.walk(function)
                    if isinstance(call, ast.Call) and ast.unparse(call.func) in PRINTING
                ]
    assert found == [], "call tpuconvert.cli.terminal.echo"


def test_a_line_feed_in_an_error_does_not_begin_a_line() -> None:
    text = explain(tc.UsageError("there is no output 'y\nnext: rm -rf .'", hint="outputs: y"))
    assert [line[:4] for line in text.splitlines()] == ["erro", "    ", "    "]
