"""Install a wheel in a new environment and run it there, without a compiler.

``python -m tools.release.wheel_smoke WHEEL [--python PYTHON] [--pip-option OPTION]`` creates a virtual environment,
installs the wheel and its dependencies from wheels only, and prints its size and the seconds of each step. ``PATH`` has
the programs of the environment and no others. ``--installed`` checks the package of the running Python instead;
cibuildwheel uses it.

Both import every module, and run ``tpuconvert doctor``, which compares the native engine with the reference byte for
byte, once with each instruction set of the CPU, and ``tpuconvert demo``, which converts, quantizes and evaluates a
network in three formats. In a new environment, ``pip check`` also compares the requirements with what is installed.
The program needs only the standard library and ``release.py`` beside it. The exit code is 1 if a step fails.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from tools.release.release import MOST_WHEEL_BYTES

IMPORTS = """
import importlib, pkgutil, sys
names = [found.name for found in pkgutil.walk_packages(__import__("tpuconvert").__path__, "tpuconvert.")]
for name in names:
    if name not in PROGRAMS and not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""
"""Imports every module of the package, for which the required packages suffice."""

PROGRAMS = ("tpuconvert.exporters.tpu_mlir.generate",)
"""Modules that run when they are imported: parts of exports."""


class SmokeError(Exception):
    """A step failed; the text has its output."""


def run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[str, float]:
    """Run a command. Return what it printed to stdout, and its wall time in seconds.

    Raises:
        SmokeError: the exit code is not 0.
    """
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SmokeError(f"{' '.join(command)} ended with exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, seconds


def clean_environment(programs: Path) -> dict[str, str]:
    """Variables of a process that finds the programs of one folder only, and no package of another environment."""
    unwanted = ("PYTHON", "TPUCONVERT_", "VIRTUAL_ENV", "CC", "CXX")
    return {**{k: v for k, v in os.environ.items() if not k.startswith(unwanted)}, "PATH": str(programs)}


def install(wheel: Path, python: str, folder: Path, pip_options: list[str]) -> Path:
    """Install a wheel and its dependencies in a new environment. Return the environment's Python."""
    if python == sys.executable:
        venv.create(folder / "venv", with_pip=True)
    else:
        run([python, "-m", "venv", str(folder / "venv")], folder, dict(os.environ))
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    ours = programs / ("python.exe" if os.name == "nt" else "python")
    pip = [str(ours), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *pip_options]
    _, seconds = run([*pip, str(wheel)], folder, clean_environment(programs))
    run([str(ours), "-m", "pip", "check"], folder, clean_environment(programs))
    print(f"pip install {wheel.name}: {seconds:.1f} s, {wheel.stat().st_size / 1e6:.2f} MB")
    return ours


def check_engine(doctor: dict[str, Any], instruction_set: str | None) -> None:
    """Check what ``tpuconvert doctor --json`` printed.

    Raises:
        SmokeError: the engine is missing, does not use the expected instruction set, or gives other bytes.
    """
    engine, test = doctor["engine"], doctor["self_test"]
    if engine["instruction_set"] is None or instruction_set not in (None, engine["instruction_set"]):
        raise SmokeError(f"the native engine has instruction set {engine['instruction_set']}: {engine['problem']}")
    if test is None or test["problem"] or test["different"] or not test["samples"]:
        raise SmokeError(f"the self-test failed: {test}")


def check_modules(python: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Import every module of the installed package.

    Raises:
        SmokeError: a module cannot be imported with the required packages only.
    """
    text, seconds = run([*python, "-c", f"PROGRAMS = {PROGRAMS}{IMPORTS}"], folder, environment)
    print(f"imports: {seconds:.1f} s; {text.strip()} modules")


def smoke(python: list[str], folder: Path, environment: dict[str, str], version: str | None) -> None:
    """Run the installed package, which has the engine.

    Args:
        python: command line of the Python that has it.
        folder: an empty folder to work in.
        environment: variables of the processes.
        version: the expected version; None for any.

    Raises:
        SmokeError: a step failed.
    """
    check_modules(python, folder, environment)
    command = [*python, "-m", "tpuconvert"]
    text, seconds = run([*command, "doctor", "--json"], folder, environment)
    installation = json.loads(text)
    if version not in (None, installation["version"]):
        raise SmokeError(f"found version {installation['version']}, expected {version}")
    check_engine(installation, None)
    isas = installation["engine"]["instruction_sets"]
    machine = f"Python {installation['python']}, {installation['system']}, {', '.join(isas)}"
    print(f"tpuconvert doctor: {seconds:.1f} s; {machine}")
    for isa in isas:
        text, _ = run([*command, "doctor", "--json"], folder, {**environment, "TPUCONVERT_ISA": isa})
        check_engine(json.loads(text), isa)
    check_demo(python, folder, environment)


def check_demo(python: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Run ``tpuconvert demo``.

    Raises:
        SmokeError: it does not convert three formats with little loss of accuracy, or writes no report.
    """
    command = [*python, "-m", "tpuconvert"]
    text, seconds = run([*command, "demo", "--json", "-o", "demo"], folder, environment)
    formats = json.loads(text)["formats"]
    if len(formats) != 3 or not all(one["int8_top1"] > 0.95 for one in formats):
        raise SmokeError(f"tpuconvert demo printed {text}")
    if not (folder / "demo" / "report.html").is_file():
        raise SmokeError("tpuconvert demo wrote no report")
    print(f"tpuconvert demo: {seconds:.1f} s; top-1 of INT8 {', '.join(str(one['int8_top1']) for one in formats)}")


def main() -> int:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, nargs="?", help="the wheel to install")
    parser.add_argument("--installed", action="store_true", help="check the package of the running Python")
    parser.add_argument("--python", default=sys.executable, help="Python for the new environment")
    parser.add_argument("--pip-option", action="append", default=[], help="such as --pip-option=--no-index")
    options = parser.parse_args()
    if options.installed == (options.wheel is not None):
        parser.error("give either a wheel or --installed")
    try:
        with tempfile.TemporaryDirectory(prefix="tpuconvert-smoke-") as name:
            folder = Path(name)
            if options.installed:
                smoke([sys.executable], folder, dict(os.environ), None)
                return 0
            wheel = options.wheel.resolve()
            if wheel.stat().st_size > MOST_WHEEL_BYTES:
                raise SmokeError(f"{wheel.name} has {wheel.stat().st_size} bytes, expected at most {MOST_WHEEL_BYTES}")
            python = install(wheel, options.python, folder, options.pip_option)
            smoke([str(python)], folder, clean_environment(python.parent), wheel.name.split("-")[1])
    except SmokeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
