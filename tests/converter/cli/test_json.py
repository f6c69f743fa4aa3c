"""``--json``: the output of every command matches its published schema, and stdout contains nothing else."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from tests.support import programs
from tests.support.commands.json_calls import CALLS, prepare, strict
from tpuconvert.__main__ import main
from tpuconvert.cli.group import COMMANDS, group
from tpuconvert.cli.json_output import to_json

Captured = pytest.CaptureFixture[str]
WITHOUT_JSON = {"completion"}
"""Commands without a schema: their output is a shell script."""


def schema(repository: Path, name: str) -> Any:
    path = repository / "docs" / "reference" / "schemas" / f"{name}.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_command_has_json_and_a_schema(repository: Path) -> None:
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        for leaf in leaves:
            assert any("--json" in parameter.opts for parameter in leaf.params) == (name not in WITHOUT_JSON), name
    assert set(CALLS) == set(COMMANDS) - WITHOUT_JSON
    files = {
        path.name.removesuffix(".schema.json") for path in (repository / "docs" / "reference" / "schemas").iterdir()
    }
    assert files == {*CALLS, "error", "proof", "report"}
    for name in files:
        jsonschema.Draft202012Validator.check_schema(schema(repository, name))


def test_schemas_are_made_of_the_result_classes() -> None:
    command = programs.command("tools.pages.json_schemas", "--check")
    done = subprocess.run(command, env=programs.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run_command(call: list[str], capsys: Captured) -> tuple[int, str, str]:
    """Exit code and both outputs. A call with a plugin runs in a process for it, because the plugin stays loaded."""
    if any(word.endswith(".py") for word in call):
        command = [sys.executable, "-m", "tpuconvert", *call]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr
    capsys.readouterr()
    code = main(call)
    return code, *capsys.readouterr()


@pytest.mark.slow
def test_outputs_are_as_their_schemas_say(repository: Path, digits: Path, capsys: Captured) -> None:
    prepare(digits)
    for name, calls in CALLS.items():
        checker = jsonschema.Draft202012Validator(strict(schema(repository, name)))
        for call in calls:
            code, shown, told = run_command([*call, "--json"], capsys)
            assert "error" not in shown[:20], f"{call}: {told}"
            checker.validate(json.loads(shown, parse_constant=_refuse))
            assert code in (0, 4, 5), f"{call}: {told}"
            assert code == 0 or "error" in told


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (["convert"], 2),
        (["convert", "absent.onnx"], 2),
        (["nonsense"], 2),
        (["run", "damaged.tpum", "x.npy"], 4),
        (["check", "damaged.tpum"], 4),
        (["ci", "absent.yaml"], 2),
        (["op", "test", "absent.py"], 2),
        (["ops", "nonsense"], 2),
    ],
)
def test_errors_are_documents_too(call: list[str], code: int, repository: Path, capsys: Captured) -> None:
    Path("damaged.tpum").write_bytes(b"TPUM but no more")
    assert main([*call, "--json"]) == code
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    jsonschema.validate(told, schema(repository, "error"))
    assert told["error"]["exit_code"] == code
    assert shown.err.startswith(f"error[{told['error']['id']}]: ")
    assert main(call) == code
    assert capsys.readouterr().out == ""


def test_numbers_that_json_does_not_have_are_null() -> None:
    assert json.loads(to_json({"a": [float("nan"), 1.5, (float("inf"),)]})) == {"a": [None, 1.5, [None]]}
