"""Builds the native engine with CMake if a C++ compiler is found. All other settings are in setup.cfg."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

SOURCE = Path(__file__).resolve().parent / "runtime" / "kernels"
SWITCH = "TPUCONVERT_NATIVE"
COMPILERS = ("c++", "g++", "clang++", "cl")
STABLE_ABI = (3, 12)  # the first Python whose stable ABI nanobind can be linked against
LEFT_OUT = "native_left_out.txt"  # beside the module; the installed package reads it (runtime/native/builder/loader.py)


def is_switched_off() -> bool:
    """Return True if the user decided against the engine."""
    return os.environ.get(SWITCH, "").lower() in ("0", "off", "no", "false")


def is_required() -> bool:
    """Return True if a package without the engine is an error. A wheel for others must never be one."""
    return os.environ.get(SWITCH, "").lower() in ("1", "on", "yes", "true")


def reason_to_leave_out() -> str:
    """Return the reason why the engine is not built, or an empty string."""
    if is_switched_off():
        return f"{SWITCH} is off"
    named = os.environ.get("CXX")
    compilers = (named.split()[0],) if named else COMPILERS
    if not any(shutil.which(compiler) for compiler in compilers):
        return f"no C++ compiler was found ({', '.join(compilers)})"
    return ""


def has_stable_abi() -> bool:
    """Return True if one module serves this Python and all later ones. Free-threaded builds have no stable ABI."""
    is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return sys.implementation.name == "cpython" and sys.version_info >= STABLE_ABI and not is_free_threaded


class BuildInNewFolder(build):
    """Builds in a temporary folder, which is removed when the program ends.

    A folder that is kept in the checkout breaks the next build. Its CMake cache names the tools of an isolated build
    environment, which pip has deleted since, and its copies of modules that the sources no longer have would be
    packed into the wheel. It saves nothing: the compiler's include paths differ in every isolated environment, so
    that everything is compiled again.
    """

    def initialize_options(self) -> None:
        """Set the folder from which setuptools derives all other build folders."""
        super().initialize_options()
        self._folder = tempfile.TemporaryDirectory(prefix="tpuconvert-build-")
        self.build_base = self._folder.name


class BuildNative(build_ext):
    """Runs CMake in a temporary folder and copies the module to the path that setuptools expects."""

    def run(self) -> None:
        """Build the engine, or print the reason why it is not built."""
        reason = reason_to_leave_out()
        self._mark(is_switched_off())
        if reason and is_required():
            raise SystemExit(f"tpuconvert: {SWITCH} is on, but {reason}")
        if reason:
            print(f"tpuconvert: {reason}; the native engine is left out and models run on NumPy", file=sys.stderr)
            self.extensions = []
        super().run()

    def _mark(self, is_left_out: bool) -> None:
        """Record in the package that the engine is left out on purpose, or remove an earlier record."""
        (extension,) = self.extensions
        mark = Path(self.get_ext_fullpath(extension.name)).resolve().with_name(LEFT_OUT)
        mark.unlink(missing_ok=True)
        if is_left_out:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(f"installed with {SWITCH}=off\n", encoding="utf-8")

    def build_extension(self, ext: Extension) -> None:
        """Configure, compile, copy."""
        build = Path(self.build_temp).resolve() / "native"
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        build.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        options = [
            f"-DPython_EXECUTABLE={sys.executable}",
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DTPUCONVERT_STABLE_ABI={'ON' if ext.py_limited_api else 'OFF'}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),  # of a cross build: the toolchain, the headers of Python
        ]
        try:
            subprocess.run(["cmake", "-S", str(SOURCE), "-B", str(build), *generator, *options], check=True)
            subprocess.run(["cmake", "--build", str(build), "--parallel"], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(
                f"tpuconvert: the native engine could not be built: {error}\n"
                f"    {SWITCH}=off pip install ... installs without it; models then run on NumPy"
            ) from error
        (module,) = build.glob("_native*.pyd" if os.name == "nt" else "_native*.so")
        shutil.copyfile(module, target)


setup(
    ext_modules=[Extension("tpuconvert.runtime._native", sources=[], py_limited_api=has_stable_abi())],
    cmdclass={"build": BuildInNewFolder, "build_ext": BuildNative},
    options={"bdist_wheel": {"py_limited_api": "cp{}{}".format(*STABLE_ABI)}} if has_stable_abi() else {},
)
