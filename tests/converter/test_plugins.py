"""Operators and converters from outside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpuconvert.plugins import load_plugins, plugins_of
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.op import OpKind, find_op
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
    load_plugins([path])  # once more does nothing
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
    done = subprocess.run(  # in a process of its own, in which nothing has asked for the operators before
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
    ],
)
def test_plugin_that_fails(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        load_plugins([path])
    assert complaint in str(caught.value)
    assert caught.value.__cause__ is not None
    path.write_text("")  # mended: nothing of the failure is left behind
    load_plugins([path])
    del sys.modules["tpuconvert_plugin_broken"]


def test_missing_file_and_other_suffix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such plugin file"):
        load_plugins([tmp_path / "absent.py"])
    (tmp_path / "plugin.txt").write_text("")
    with pytest.raises(UsageError, match="not a Python file"):
        load_plugins([tmp_path / "plugin.txt"])


def installed_plugin(folder: Path, content: str) -> dict[str, str]:
    """An environment in which a package with a plugin is installed."""
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


def test_installed_plugin_that_fails(tmp_path: Path) -> None:
    environment = installed_plugin(tmp_path, "1 / 0\n")
    done = subprocess.run([sys.executable, "-m", "tpuconvert", "ops"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "plugin acme (acme_package) failed at line 1 of acme_package.py: ZeroDivisionError" in done.stderr
