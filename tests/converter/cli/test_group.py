"""The command group: help, version, exit codes, and one clear message per error."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tpuconvert.__main__ import main
from tpuconvert.cli.group import COMMANDS
from tpuconvert.known_errors import explain, known_error
from tpuconvert.schema import errors

EXIT_CODES = {
    "InternalError": 1,
    "UsageError": 2,
    "UnsupportedError": 3,
    "CorruptInputError": 4,
    "ThresholdError": 5,
    "ResourceLimitError": 6,
    "MissingExtraError": 7,
    "RunError": 8,
}


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    commands = shown[shown.index("Convert:\n") :]
    listed = [line.split()[0] for line in commands.splitlines() if line.startswith("  ")]
    assert listed == list(COMMANDS)
    assert "..." not in commands  # a summary that is too long would be truncated


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: tpuconvert {command}" in shown
    assert "\\b" not in shown  # examples keep their line breaks


def test_commands_are_the_modules_of_the_folder(repository: Path) -> None:
    modules = {path.stem for path in (repository / "converter" / "cli" / "commands").glob("*.py")} - {"__init__"}
    assert modules == {name.replace("-", "_") for name in COMMANDS}, "list: COMMAND_GROUPS in converter/cli/group.py"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import tpuconvert

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tpuconvert {tpuconvert.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["convert"],
        ["convert", "a.onnx", "--nonsense"],
        ["ops", "--format", "mxnet"],
        ["run"],
        ["run", "-o"],
    ],
)
def test_wrong_calls(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error[TC2001]: ")
    command = "" if arguments == ["nonsense"] else f" {arguments[0]}"
    assert shown.err.endswith(f"see: tpuconvert{command} --help\n")


@pytest.mark.parametrize(("typed", "meant"), [("convrt", "convert"), ("inspct", "inspect"), ("verfy", "verify")])
def test_mistyped_command(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed, "x"]) == 2
    assert f"No such command '{typed}': did you mean '{meant}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--quantze int8", "--quantize"),
        ("--quantize itn8", "int8"),
        ("--progress lined", "lines"),
        ("--effort hihg", "high"),
        ("--chip bm1684y", "bm1684"),
        ("--quantize int8 --calibration-method percntile", "percentile"),
        ("--quantize int8 --calibration-method percntile:99.9", "percentile"),
        ("--quantize int8 --without balncing", "balancing"),
        ("--disable-rule merge_permute", "merge_permutes"),
        ("--quantize int8 --precision conv1=flaot32", "float32"),
    ],
)
def test_mistyped_flags_and_values(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.onnx").write_bytes(b"")
    assert main(["convert", "net.onnx", *typed.split()]) == 2
    # Click 8.2 writes the name of an option without quotes.
    assert re.search(rf"did you mean '?{re.escape(meant)}'?\?", capsys.readouterr().err.lower())


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("Usage: tpuconvert [OPTIONS] COMMAND")


@pytest.mark.parametrize("name", EXIT_CODES)
def test_exit_code_of_every_error(name: str) -> None:
    kind = getattr(errors, name)
    assert kind.exit_code == EXIT_CODES[name]
    if name != "UnsupportedError":
        text = explain(kind("what", file="net.onnx", node="conv_1", hint="do this"))
        assert text == f"error[{kind.id}]: net.onnx: node 'conv_1': what\n    do this"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (MemoryError(), 6, "this command needs more memory than there is\n    use a machine with more memory"),
        (OSError(28, "No space left on device", "out.tpum"), 6, "out.tpum: No space left on device"),
        (PermissionError(13, "Permission denied", "out.tpum"), 2, "out.tpum: Permission denied"),
        (ZeroDivisionError("division by zero"), 1, "internal error: ZeroDivisionError: division by zero"),
    ],
)
def test_errors_of_others(error: Exception, code: int, text: str) -> None:
    known = known_error(error)
    assert known.exit_code == code
    assert text in explain(known)


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tpuconvert.cli.commands.ops.ops", interrupt)
    assert main(["ops"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_shell_completion(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_TPUCONVERT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "tpuconvert ver")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert main([]) == 0
    assert capsys.readouterr().out == "plain,verify\n"


def test_traceback_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = str(tmp_path / "absent.onnx")
    assert main(["check", absent]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["--traceback", "check", absent]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_reader_that_goes_away() -> None:
    """`tpuconvert ops | head -1` exits without an error message."""
    command = [sys.executable, "-m", "tpuconvert", "ops"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=os.sep) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read().decode()
        assert process.wait() == 0
    assert "Error" not in complaint


def test_matrix_products_take_one_thread_unless_told_otherwise() -> None:
    code = "import os, tpuconvert.__main__ as m; m.main(['--version']); print(os.environ['OPENBLAS_NUM_THREADS'])"
    for given, wanted in ((None, "1"), ("3", "3")):
        environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
        environment |= {"OPENBLAS_NUM_THREADS": given} if given else {}
        shown = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout
        assert shown.splitlines()[-1] == wanted
