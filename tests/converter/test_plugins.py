"""Operators and converters of plugins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sampled import sampled
from tpuconvert.plugins import load_plugins, plugins_of
from tpuconvert.schema.definition.op import OpKind, find_op
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import DType, TensorType

PLUGIN = '''
from dataclasses import dataclass
import numpy as np
import tpuconvert as tc


@tc.register_op("{name}")
@dataclass(frozen=True)
class Operator(tc.Op):
    """y = x * factor."""

    factor: float = 2.0

    inputs = (tc.Operand("x"),)

    def infer(self, x):
        return (x,)

    def reference(self, x):
        return (x * np.float32(self.factor),)
'''


def test_operator_of_a_plugin(tmp_path: Path) -> None:
    path = tmp_path / "acme_one.py"
    path.write_text(PLUGIN.format(name="acme_one"))
    load_plugins([path])
    load_plugins([path])  # loading it again has no effect
    definition = find_op("acme_one")
    assert definition is not None
    assert definition.kind is OpKind.CUSTOM
    g = Graph()
    g.output(g.add(definition(), g.input("x", TensorType(DType.FLOAT32, (1,)))))
    assert plugins_of(g) == ["acme_one"]


def test_two_operators_of_one_name(tmp_path: Path) -> None:
    for file in ("acme_first.py", "acme_second.py"):
        (tmp_path / file).write_text(PLUGIN.format(name="acme_twice"))
    load_plugins([tmp_path / "acme_first.py"])
    with pytest.raises(UsageError, match="'acme_twice' is defined twice"):
        load_plugins([tmp_path / "acme_second.py"])


def test_operator_that_hides_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "acme_conv.py").write_text(PLUGIN.format(name="conv"))
    done = subprocess.run(  # in a separate process, in which the operators have not been loaded yet
        [
            sys.executable,
            "-c",
            f"from tpuconvert.plugins import load_plugins; load_plugins([r'{tmp_path}/acme_conv.py'])",
        ],
        capture_output=True,
        text=True,
    )
    assert "operator 'conv' is defined twice" in done.stderr


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "acme_same.py").write_text("")
    load_plugins([tmp_path / "a" / "acme_same.py"])
    with pytest.raises(UsageError, match="another plugin of this name is loaded"):
        load_plugins([tmp_path / "b" / "acme_same.py"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("\n1 / 0\n", "failed at line 2 of broken.py: ZeroDivisionError"),
        ("def f(:\n", "SyntaxError"),
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("\n\nimport json\njson.loads('{')\n", "failed at line 4 of broken.py"),
        ("\nimport sys\nsys.exit('stop')\n", "broken.py failed at line 3 of broken.py: SystemExit: stop"),
        ("\n\ndef f(:\n", "failed at line 3 of broken.py: SyntaxError"),
        ("import tpuconvert\nraise tpuconvert.ShapeError('odd')\n", "broken.py failed at line 2 of broken.py: odd"),
    ],
)
def test_plugin_that_fails(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        load_plugins([path])
    assert complaint in str(caught.value)
    assert caught.value.__cause__ is not None
    path.write_text("")  # after the repair, no effect of the failure remains
    load_plugins([path])
    del sys.modules["tpuconvert_plugin_broken"]


def test_missing_file_and_other_suffix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.py: no such file"):
        load_plugins([tmp_path / "absent.py"])
    for name in ("acme_suffix.py", "acme_suffix.txt"):
        (tmp_path / name).write_text("")
    load_plugins([tmp_path / "acme_suffix.py"])
    with pytest.raises(UsageError, match="not a Python file"):  # also if a plugin of this name is loaded
        load_plugins([tmp_path / "acme_suffix.txt"])


def installed_plugin(folder: Path, content: str) -> dict[str, str]:
    """An environment with an installed package that contains a plugin."""
    (folder / "acme_package.py").write_text(content)
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tpuconvert.plugins]\nacme = acme_package\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_plugin_of_an_installed_package(tmp_path: Path) -> None:
    environment = installed_plugin(tmp_path, PLUGIN.format(name="acme_installed"))
    command = [sys.executable, "-m", "tpuconvert", "ops", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert '"acme_installed"' in done.stdout, done.stderr


FAILURES = [
    ("1 / 0\n", "failed at line 1 of acme_package.py: ZeroDivisionError"),
    ("import sys\nsys.exit(0)\n", "failed at line 2 of acme_package.py: SystemExit: 0"),
    ("def f(:\n", "failed at line 1 of acme_package.py: SyntaxError"),
    ("import no_such_module_anywhere\n", "failed at line 1 of acme_package.py: ModuleNotFoundError"),
    ("class Unusual(BaseException): ...\nraise Unusual\n", "failed at line 2 of acme_package.py: Unusual: Unusual"),
]


def call(environment: dict[str, str], *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpuconvert", *arguments]
    return subprocess.run(command, env={**environment, **more}, capture_output=True, text=True)


@pytest.mark.parametrize(("content", "complaint"), sampled(FAILURES, every=2))
def test_installed_plugin_that_fails_is_named_and_left_out(tmp_path: Path, content: str, complaint: str) -> None:
    environment = installed_plugin(tmp_path, content)
    done = call(environment, "ops", "--json")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert done.stderr.startswith(f"warning: plugin acme (acme_package) {complaint}")
    assert done.stderr.endswith("; going on without it\n")
    assert '"conv"' in done.stdout


def test_conversion_goes_on_without_a_plugin_that_fails(tmp_path: Path, repository: Path) -> None:
    environment = installed_plugin(tmp_path, "1 / 0\n")
    model = str(repository / "examples" / "digits" / "digits.onnx")
    target = tmp_path / "net.tpum"
    done = call(environment, "convert", model, "-o", str(target))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("plugin acme") == 1, "told once, though several parts of a conversion load plugins"
    assert target.is_file()


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [(["--no-plugins"], {}), ([], {"TPUCONVERT_PLUGINS": "none"}), ([], {"TPUCONVERT_PLUGINS": "other"})],
)
def test_installed_plugins_are_not_loaded(tmp_path: Path, arguments: list[str], variables: dict[str, str]) -> None:
    environment = installed_plugin(tmp_path, "raise AssertionError('was loaded')\n")
    info = tmp_path / "acme-1.0.dist-info" / "entry_points.txt"
    (tmp_path / "other_package.py").write_text(PLUGIN.format(name="acme_other"))
    info.write_text(info.read_text() + "other = other_package\n")
    done = call(environment, "ops", "--json", *arguments, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert ('"acme_other"' in done.stdout) == (variables.get("TPUCONVERT_PLUGINS") == "other")


def test_installed_plugin_that_is_asked_for_by_name_has_to_load(tmp_path: Path) -> None:
    environment = installed_plugin(tmp_path, "1 / 0\n")
    done = call(environment, "ops", TPUCONVERT_PLUGINS="acme")
    assert done.returncode == 2
    assert "plugin acme (acme_package) failed at line 1 of acme_package.py: ZeroDivisionError" in done.stderr
    done = call(environment, "ops", TPUCONVERT_PLUGINS="acme, absent")
    assert done.returncode == 2
    assert "TPUCONVERT_PLUGINS names 'absent', which is not installed" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["--version"], ["completion", "bash"]])
def test_help_does_not_load_plugins(tmp_path: Path, arguments: list[str]) -> None:
    done = call(installed_plugin(tmp_path, "raise AssertionError('was loaded')\n"), *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_of_a_plugin_is_no_part_of_a_document(tmp_path: Path) -> None:
    environment = installed_plugin(tmp_path, "print('hello from acme')\n")
    done = call(environment, "ops", "--json")
    assert json.loads(done.stdout)
    assert "hello from acme" in done.stderr


def test_python_gets_a_warning_for_an_installed_plugin_that_fails(tmp_path: Path) -> None:
    code = (
        "import warnings, tpuconvert.plugins as p\n"
        "with warnings.catch_warnings(record=True) as found:\n"
        "    warnings.simplefilter('always')\n"
        "    p.load_plugins(); p.load_plugins()\n"
        "assert [w.category for w in found] == [p.PluginWarning], found\n"
    )
    environment = installed_plugin(tmp_path, "1 / 0\n")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_command_that_loads_plugins_can_leave_them_out() -> None:
    import click

    from tpuconvert.cli.group import COMMANDS, group

    context = click.Context(group)
    without = []
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        for leaf in leaves:
            if "--no-plugins" not in [word for parameter in leaf.params for word in parameter.opts]:
                without.append(name)
    assert without == ["device", "completion"]  # its command setup installs the vendor's compiler
