"""Repeated installation from a checkout that contains the files of an earlier build."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

SMALL_ENGINE = """
cmake_minimum_required(VERSION 3.18)
project(small LANGUAGES CXX)
add_library(_native MODULE small.cpp)
set_target_properties(_native PROPERTIES PREFIX "" SUFFIX ".so")
"""
"""Placeholder for the native engine, whose compilation takes minutes. Its folder is handled in the same way."""

GONE = "/nonexistent/pip-build-env/overlay/bin"

CACHE_OF_AN_EARLIER_BUILD = f"""
CMAKE_GENERATOR:INTERNAL=Ninja
CMAKE_MAKE_PROGRAM:FILEPATH={GONE}/ninja
CMAKE_COMMAND:INTERNAL={GONE}/cmake
CMAKE_CACHE_MAJOR_VERSION:INTERNAL=3
"""


@pytest.fixture
def checkout(repository: Path, tmp_path: Path) -> Path:
    """The files of the repository that determine the installation, with a small engine."""
    if os.name == "nt" or not shutil.which("c++"):
        pytest.skip("needs a C++ compiler, and names of shared libraries as on Linux")
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy2(repository / name, copy / name)
    unwanted = shutil.ignore_patterns("__pycache__", "*.so", "kernels")
    for folder in ("converter", "examples", "frontends", "optimizer", "runtime", "schema"):
        shutil.copytree(repository / folder, copy / folder, ignore=unwanted)
    kernels = copy / "runtime" / "kernels"
    kernels.mkdir()
    (kernels / "CMakeLists.txt").write_text(SMALL_ENGINE)
    (kernels / "small.cpp").write_text('extern "C" int small() { return 1; }\n')
    return copy


def pip_wheel(checkout: Path, target: Path, *options: str, **variables: str) -> tuple[int, str]:
    """Exit code and output of pip, which builds a wheel from the checkout."""
    target.mkdir()
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", *options, "-w", str(target), str(checkout)]
    done = subprocess.run(command, cwd=target, env={**os.environ, **variables}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def wheel(checkout: Path, target: Path, *options: str) -> list[str]:
    """File names in the wheel that pip builds from the checkout."""
    code, text = pip_wheel(checkout, target, *options)
    if code and ("No matching distribution" in text or "Could not find a version" in text):
        pytest.skip("no package index: the tools of an isolated build cannot be installed")
    assert code == 0, text[-3000:]
    [made] = target.glob("*.whl")
    return zipfile.ZipFile(made).namelist()


TAG = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
"""Common part of the folder names that setuptools creates in ``build``."""


@pytest.mark.slow
def test_install_where_the_cmake_cache_names_deleted_tools(checkout: Path, tmp_path: Path) -> None:
    for folder in (checkout / "build" / f"temp.{TAG}" / "native", checkout / "build" / "native"):
        folder.mkdir(parents=True)
        (folder / "CMakeCache.txt").write_text(CACHE_OF_AN_EARLIER_BUILD + f"CMAKE_CACHEFILE_DIR:INTERNAL={folder}\n")
    names = wheel(checkout, tmp_path / "made", "--no-build-isolation")
    assert any(name.startswith("tpuconvert/runtime/_native") for name in names)


def test_install_after_an_update_has_no_module_of_the_older_version(checkout: Path, tmp_path: Path) -> None:
    copied = checkout / "build" / f"lib.{TAG}" / "tpuconvert" / "frontends" / "onnx"
    copied.mkdir(parents=True)
    (copied / "removed_since.py").write_text("raise AssertionError('not part of this version')\n")
    names = wheel(checkout, tmp_path / "made", "--no-build-isolation")
    assert "tpuconvert/frontends/onnx/removed_since.py" not in names
    assert "tpuconvert/frontends/onnx/file/reader.py" in names


@pytest.mark.slow
def test_a_build_leaves_nothing_in_the_checkout(checkout: Path, tmp_path: Path) -> None:
    wheel(checkout, tmp_path / "made", "--no-build-isolation")
    assert not (checkout / "build").exists()


@pytest.mark.slow
def test_tags_of_the_wheel(checkout: Path, tmp_path: Path) -> None:
    """From Python 3.12 on, one wheel serves all later versions."""
    names = wheel(checkout, tmp_path / "made", "--no-build-isolation")
    [module] = [name for name in names if name.startswith("tpuconvert/runtime/_native")]
    [made] = (tmp_path / "made").glob("*.whl")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if sys.version_info < (3, 12) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert made.name.split("-")[2] == python
        assert module.endswith(sysconfig.get_config_var("EXT_SUFFIX"))
    else:
        assert made.name.split("-")[2:4] == ["cp312", "abi3"]
        assert module in ("tpuconvert/runtime/_native.abi3.so", "tpuconvert/runtime/_native.pyd")


def test_a_wheel_for_others_is_never_without_the_engine(checkout: Path, tmp_path: Path) -> None:
    code, text = pip_wheel(
        checkout, tmp_path / "made", "--no-build-isolation", CXX="/nonexistent/c++", TPUCONVERT_NATIVE="on"
    )
    assert code != 0
    assert "TPUCONVERT_NATIVE is on, but no C++ compiler was found (/nonexistent/c++)" in text
    assert not list((tmp_path / "made").glob("*.whl"))


@pytest.mark.slow
def test_install_twice_with_build_environments_that_are_deleted(checkout: Path, tmp_path: Path) -> None:
    first = wheel(checkout, tmp_path / "first")
    assert wheel(checkout, tmp_path / "second") == first
