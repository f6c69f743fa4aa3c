"""``device_setup`` with an interpreter that plays Python 3.10, pip and the vendor's package."""

import contextlib
import json
import platform
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model as onnx_model
from tests.support.onnx.models import one, ramp, save_model
from tests.support.vendor.fake_compiler import make_fake_compiler
from tpuconvert.__main__ import main
from tpuconvert.exporters.compilation import environment as module
from tpuconvert.exporters.compilation.environment import (
    PACKAGE,
    environment_in,
    find_environment,
    require_environment,
    script_call,
)
from tpuconvert.exporters.compilation.python_search import find_python
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION
from tpuconvert.schema.errors import MissingExtraError, UsageError

Captured = pytest.CaptureFixture[str]

FAKE_PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then echo {version}; exit 0; fi
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin" "$3/{site}"
  cp "$0" "$3/bin/python"
  printf '#!%s/bin/python\\n' "$3" > "$3/bin/pip"
  printf 'home = %s\\n' "$3" > "$3/pyvenv.cfg"
  exit 0
fi
if [ "$1 $2" = "-m pip" ]; then
  echo "$@" >> "{calls}"
  case "$*" in *tpu_mlir==*)
    {pip}
    cp -r "{home}" "${{0%/bin/python}}/{site}/tpu_mlir"
    mkdir "${{0%/bin/python}}/{site}/tpu_mlir/lib/third_party"
    echo > "${{0%/bin/python}}/{site}/tpu_mlir/lib/third_party/libc.so.6";;
  esac
  exit 0
fi
exec {python} "$@"
"""


def write_python(
    path: Path, home: Path = Path("absent"), *, version: str = "3.10.0", calls: Path = Path("/dev/null"), pip: str = ":"
) -> str:
    """Write an interpreter whose pip runs a command and then installs a folder as the package tpu_mlir."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = FAKE_PYTHON.format(
        version=version, site=PACKAGE.parent, calls=calls, pip=pip, home=home, python=sys.executable
    )
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cache folder of a user who has no interpreter."""
    for variable in ("TPU_MLIR_HOME", "VENDOR_PYTHON", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(shutil, "which", lambda name, **_: name if "/" in name and Path(name).exists() else None)
    return tmp_path / "cache" / "tpuconvert"


def test_the_installation_is_complete_and_found(cache: Path, tmp_path: Path) -> None:
    home = make_fake_compiler(tmp_path / "wheel" / "tpu_mlir").home
    python = write_python(tmp_path / "python3.10", home, calls=tmp_path / "calls")
    result = tc.device_setup(python=python)
    assert result.is_new and result.is_default and result.folder == cache / f"tpu_mlir-{COMPILER_VERSION}"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[-1] for call in calls] == ["numpy==1.24.3", f"tpu_mlir=={COMPILER_VERSION}"]
    assert "--no-deps" in calls[1]
    assert (result.home / "lib" / "unused" / "libc.so.6").exists()
    assert not (result.home / "lib" / "third_party" / "libc.so.6").exists()
    # The folder was made under another name.
    assert (result.folder / "bin" / "pip").read_text() == f"#!{result.folder}/bin/python\n"
    assert (result.folder / "pyvenv.cfg").read_text() == f"home = {result.folder}\n"
    assert [path.name for path in cache.iterdir()] == [result.folder.name]
    environment = find_environment()
    assert environment == environment_in(result.folder) == require_environment()
    assert not tc.device_setup(python=python).is_new
    assert [path.name for path in cache.iterdir()] == [result.folder.name]


def test_the_call_of_a_script_installs_the_compiler_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache / f"tpu_mlir-{COMPILER_VERSION}"
    call = f"TPU_MLIR_HOME={folder}/lib/python3.10/site-packages/tpu_mlir ./compile.sh"
    assert script_call(Path("compile.sh")) == f"tpuconvert device setup && {call}"
    home = make_fake_compiler(tmp_path / "wheel" / "tpu_mlir").home
    tc.device_setup(python=write_python(tmp_path / "python3.10", home))
    assert script_call(Path("compile.sh")) == call
    assert script_call(Path("run.py"), "a b", is_python=True).endswith(f" {folder}/bin/python run.py 'a b'")
    monkeypatch.setenv("TPU_MLIR_HOME", str(home))
    monkeypatch.setenv("VENDOR_PYTHON", "/usr/bin/python3.10")
    assert script_call(Path("out/compile.sh")) == "out/compile.sh"
    assert script_call(Path("run.py"), is_python=True) == "/usr/bin/python3.10 run.py"


@pytest.mark.slow
def test_the_first_compilation_installs_the_compiler(cache: Path, tmp_path: Path, capsys: Captured) -> None:
    home = make_fake_compiler(tmp_path / "wheel" / "tpu_mlir").home
    write_python(tmp_path / "user" / ".pyenv" / "versions" / "3.10.4" / "bin" / "python3.10", home)
    model = save_model(onnx_model([one("Relu", "x")], {"x": ramp(1, 4)}, ["y"]), tmp_path)
    converted = str(tmp_path / "net.tpum")
    assert main(["convert", str(model), "-o", converted, "--chip", "bm1684x"]) == 0
    for chip in ("bm1688", "bm1684x"):
        capsys.readouterr()
        assert main(["export", converted, str(tmp_path / chip), "--chip", chip, "--compile", "--json"]) == 0
        printed = capsys.readouterr()
        is_first = chip == "bm1688"
        assert (
            f"not installed: installing it into {cache / f'tpu_mlir-{COMPILER_VERSION}'}" in printed.err
        ) == is_first
        assert json.loads(printed.out)["proofs"][chip]["chip"] == chip
    # A wrong call installs nothing.
    shutil.rmtree(cache)
    assert main(["export", converted, str(tmp_path / "out"), "--chip", "bm1684", "--compile"]) == 2
    assert not cache.exists()


def test_a_failing_installation_leaves_nothing_but_its_log(cache: Path, tmp_path: Path, capsys: Captured) -> None:
    pip = "echo 'ERROR: No matching distribution found' ; exit 1"
    python = write_python(tmp_path / "python3.10", pip=pip)
    assert main(["device", "setup", "--python", python, "--progress", "none"]) == 7
    error = capsys.readouterr().err
    log = cache / f"tpu_mlir-{COMPILER_VERSION}.log"
    assert "pip cannot install tpu_mlir" in error and "ERROR: No matching distribution found" in error
    assert str(log) in error and log.is_file()
    assert [path.name for path in cache.iterdir()] == [log.name]


def test_a_compiler_that_does_not_work_is_not_installed(cache: Path, tmp_path: Path, capsys: Captured) -> None:
    home = make_fake_compiler(tmp_path / "wheel" / "tpu_mlir", wrong_at=[2]).home
    python = write_python(tmp_path / "python3.10", home)
    assert main(["device", "setup", str(tmp_path / "out"), "--python", python, "--progress", "none"]) == 7
    assert "the installed compiler does not work: the simulator computes [2, 254, 253, 0]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_other_folder_is_not_replaced(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").write_bytes(b"1")
    with pytest.raises(UsageError, match="the folder has other files in it"):
        tc.device_setup(folder, python=write_python(tmp_path / "python3.10"))
    assert [path.name for path in folder.iterdir()] == ["cat.jpg"]


def test_json(cache: Path, tmp_path: Path, repository: Path, capsys: Captured) -> None:
    home = make_fake_compiler(tmp_path / "wheel" / "tpu_mlir").home
    python = write_python(tmp_path / "python3.10", home)
    assert main(["device", "setup", str(tmp_path / "out"), "--python", python, "--progress", "none", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(
        document, json.loads((repository / "docs" / "reference" / "schemas" / "device.schema.json").read_text())
    )
    assert document["folder"] == str(tmp_path / "out") and document["version"] == COMPILER_VERSION
    assert document["is_new"] and not document["is_default"]


def test_interpreters_of_pyenv_and_uv_are_found(cache: Path, tmp_path: Path) -> None:
    write_python(tmp_path / "user" / ".pyenv" / "versions" / "3.10.4" / "bin" / "python3.10", version="3.9.1")
    folder = tmp_path / "user" / ".local" / "share" / "uv" / "python" / "cpython-3.10.18-linux-x86_64-gnu"
    python = write_python(folder / "bin" / "python3.10")
    assert find_python(None) == Path(python)


def test_without_an_interpreter_the_next_step_is_named(cache: Path, tmp_path: Path) -> None:
    python = write_python(tmp_path / "user" / ".pyenv" / "versions" / "3.10.4" / "bin" / "python3.10", version="3.9.1")
    with pytest.raises(MissingExtraError, match=rf"none was found on the PATH: {python} is Python 3\.9\.1") as error:
        find_python(None)
    assert "uv python install 3.10" in error.value.hint
    with pytest.raises(UsageError, match=r"is Python 3\.9\.1; expected Python 3\.10 with venv"):
        find_python(python)
    with pytest.raises(UsageError, match="does not run"):
        find_python(str(tmp_path / "absent"))


def test_other_systems_are_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="Linux on x86-64 only"):
        find_python(None)


def test_a_folder_of_another_version_is_not_used(cache: Path, tmp_path: Path) -> None:
    make_fake_compiler(tmp_path / PACKAGE)
    (tmp_path / module.MARKER).write_text('{"tpu_mlir": "1.0"}')
    assert environment_in(tmp_path) is None
    (tmp_path / module.MARKER).write_text(json.dumps({"tpu_mlir": COMPILER_VERSION}))
    assert environment_in(tmp_path) is not None


def test_variables_name_an_installation(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_environment() is None
    with pytest.raises(MissingExtraError, match="TPU_MLIR_HOME is not set") as missing:
        require_environment()
    assert "tpuconvert device setup" in missing.value.hint
    made = make_fake_compiler(tmp_path / "vendor" / "tpu_mlir")
    (tmp_path / "vendor" / f"tpu_mlir-{COMPILER_VERSION}.dist-info").mkdir()
    monkeypatch.setenv("TPU_MLIR_HOME", str(made.home))
    with pytest.raises(UsageError, match=r"no Python 3\.10 with NumPy") as error:
        find_environment()
    assert "VENDOR_PYTHON" in error.value.hint
    monkeypatch.setenv("VENDOR_PYTHON", str(made.python))
    environment = find_environment()
    assert environment is not None
    assert (environment.home, environment.python, environment.version) == (made.home, made.python, COMPILER_VERSION)
    monkeypatch.setenv("TPU_MLIR_HOME", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="which has no bin/tpuc-opt"):
        find_environment()


def test_no_module_of_the_current_folder_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("numpy", "venv", "ensurepip"):
        Path(f"{name}.py").write_text("open('executed', 'w')")
    made = make_fake_compiler(tmp_path / "vendor" / "tpu_mlir")
    monkeypatch.setenv("TPU_MLIR_HOME", str(made.home))
    monkeypatch.setenv("VENDOR_PYTHON", sys.executable)
    with contextlib.suppress(UsageError):  # where this is not Python 3.10
        find_environment()
    with contextlib.suppress(UsageError):
        find_python(sys.executable)
    assert not Path("executed").exists()
