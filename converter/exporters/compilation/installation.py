"""Installation of the vendor's compiler and simulator into a virtual environment."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tpuconvert.exporters.compilation.compiler import Compiler, CompilerFailure
from tpuconvert.exporters.compilation.environment import (
    MARKER,
    PACKAGE,
    Environment,
    default_folder,
    environment_in,
    find_environment,
)
from tpuconvert.exporters.compilation.processes import run_program
from tpuconvert.exporters.compilation.python_search import find_python
from tpuconvert.exporters.compilation.simulator import SimulatorFailure, simulate
from tpuconvert.exporters.folder import write_folder
from tpuconvert.exporters.request import Request
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION
from tpuconvert.exporters.tpu_mlir.package import export_tpu_mlir
from tpuconvert.installed import version
from tpuconvert.model.model import Model
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.errors import MissingExtraError, ResourceLimitError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.system.file_errors import is_disk_full
from tpuconvert.schema.system.temporary_files import temporary_folder
from tpuconvert.schema.types import DType, QuantParams, TensorType

PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile")

REQUIREMENTS: Sequence[Sequence[str]] = (("numpy==1.24.3",), ("--no-deps", f"tpu_mlir=={COMPILER_VERSION}"))
"""Arguments of pip, one list per call. Of the requirements of the package, compiler and simulator need only NumPy."""

SYSTEM_LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0")
"""Libraries of Ubuntu 22.04 in the package. Under the loader of another system its programs crash with them."""

INSTALL_SECONDS = 3600.0
"""Time limit of a call of pip: the package has 312 MB."""

CHECK_SECONDS = 120.0
"""Time limit of each step of the check, which takes a second."""


def log_of(folder: Path) -> Path:
    """Return the file beside an installation with the output of its steps, which stays if one fails."""
    return folder.with_name(f"{folder.name}.log")


def install_environment(
    folder: Path,
    python: str | None = None,
    *,
    requirements: Sequence[Sequence[str]] = REQUIREMENTS,
    progress: Progress = SILENT,
) -> Environment:
    """Install the vendor's package into a folder, completely or not at all, and check it.

    Args:
        folder: a new folder, or one of an earlier installation, which is replaced.
        python: a Python 3.10; by default one is searched.
        requirements: arguments of pip, one list per call; they install the package too.
        progress: receives the steps.

    Raises:
        UsageError: the folder has other files, or the system or the interpreter cannot be used.
        MissingExtraError: there is no Python 3.10, pip failed, or the check failed.
        ResourceLimitError: the disk is full.
    """
    interpreter = find_python(python)
    log = log_of(folder)

    def write(staging: Path) -> None:
        log.write_bytes(b"")
        _install(staging, interpreter, requirements, log, progress)
        _rename_in_scripts(staging, Path(os.path.realpath(folder)))
        environment = Environment(staging / PACKAGE, staging / "bin" / "python", COMPILER_VERSION)
        check_environment(environment, log, progress)
        content = {"tpu_mlir": COMPILER_VERSION, "python": str(interpreter), "glibc": platform.libc_ver()[1]}
        (staging / MARKER).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    write_folder(folder, write, MARKER, keeps_others=False)
    environment = environment_in(folder)
    assert environment is not None, f"{folder} is complete"
    return environment


def _install(
    staging: Path, interpreter: Path, requirements: Sequence[Sequence[str]], log: Path, progress: Progress
) -> None:
    progress.stage("create a virtual environment")
    _run([str(interpreter), "-m", "venv", str(staging)], staging, log, "the virtual environment cannot be created")
    for arguments in requirements:
        names = " ".join(argument for argument in arguments if not argument.startswith("-"))
        progress.stage(f"install {names}")
        command = [str(staging / "bin" / "python"), *PIP, *arguments]
        _run(command, staging, log, f"pip cannot install {names}")
        progress.report(f"installed {names}")
    home = staging / PACKAGE
    unused = home / "lib" / "unused"
    unused.mkdir(exist_ok=True)
    for name in SYSTEM_LIBRARIES:
        library = home / "lib" / "third_party" / name
        if library.exists():
            library.rename(unused / name)


def _run(command: Sequence[str], staging: Path, log: Path, failure: str) -> None:
    """Run a command of the installation.

    Raises:
        MissingExtraError: it failed.
        ResourceLimitError: the disk is full.
    """
    ended = run_program(command, log, folder=staging, limit=INSTALL_SECONDS)
    if ended.code == 0:
        return
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if any("No space left on device" in line for line in lines):
        raise ResourceLimitError(f"{failure}: the disk is full", file=str(staging.parent), hint="free 1.5 GB")
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    reason = f"it needed more than {INSTALL_SECONDS:g} s" if ended.code is None else "".join(errors[-1:])
    hint = f"the whole output is in {log}; check the connection and the package index of pip, then run it again"
    raise MissingExtraError(f"{failure}: {reason}", hint=hint)


def _rename_in_scripts(staging: Path, folder: Path) -> None:
    """Replace the path of the staging folder in the scripts of a virtual environment, which is renamed later."""
    old, new = str(staging).encode(), str(folder).encode()
    for script in [*(staging / "bin").iterdir(), staging / "pyvenv.cfg"]:
        if script.is_symlink() or script.stat().st_size > 1 << 20:
            continue
        content = script.read_bytes()
        if old in content:
            script.write_bytes(content.replace(old, new))


def check_environment(environment: Environment, log: Path, progress: Progress = SILENT) -> None:
    """Compile a program of one operator for each chip, and run it in the simulator.

    Raises:
        MissingExtraError: this failed, or an integer is wrong.
        ResourceLimitError: the disk is full.
    """
    progress.stage("check the compiler and the simulators")
    try:
        with temporary_folder(log.with_name(f"{log.name}.check")) as folder:
            for chip in TARGETS:
                _check_chip(environment, chip, Path(folder), log)
    except (CompilerFailure, SimulatorFailure, OSError) as error:
        if isinstance(error, OSError) and is_disk_full(error):
            raise ResourceLimitError(
                "the check cannot be written: the disk is full", file=str(log.parent), hint="free space, then try again"
            ) from error
        text = f"the installed compiler does not work: {error}"
        raise MissingExtraError(text, hint=f"the whole output is in {log}") from error


def _check_chip(environment: Environment, chip: str, folder: Path, log: Path) -> None:
    name = f"check_{chip}"
    graph = Graph(name)
    quant = QuantParams.per_tensor(0.5, 0, DType.UINT8)
    x = graph.input("x", TensorType(DType.UINT8, (1, 4, 1, 1)), quant=quant)
    table = np.arange(256, dtype=np.uint8)[::-1].copy()
    y = graph.add(Lut(), x, graph.constant(table, "table"), name="y")
    y.quant = quant
    graph.output(y)
    model = Model(FileModel(graph, TARGETS[chip].chip, version(), "int8"))
    samples = {"x": np.array([0, 1, 2, 255], np.uint8).reshape(1, 4, 1, 1)}
    export_tpu_mlir(Request(model, folder / chip, chip, samples))
    Compiler(environment, CHECK_SECONDS, log).compile(folder / chip, name, 2, folder / chip / f"{name}.bmodel")
    results = simulate(environment, folder / chip, log, CHECK_SECONDS).results
    if results["y"].reshape(-1).tolist() != table[[0, 1, 2, 255]].tolist():
        raise SimulatorFailure(f"computes {results['y'].reshape(-1).tolist()} for {chip}, expected [255, 254, 253, 0]")


def obtain_environment(progress: Progress = SILENT) -> Environment:
    """Return the installed compiler: the one that TPU_MLIR_HOME names, or in the default folder, where it is installed.

    Raises:
        UsageError: TPU_MLIR_HOME names a folder without the compiler, or the system cannot run it.
        MissingExtraError: it cannot be installed.
        ResourceLimitError: the disk is full.
    """
    environment = find_environment()
    if environment is None:
        folder = default_folder()
        progress.report(f"the vendor's compiler is not installed: installing it into {folder}")
        environment = install_environment(folder, progress=progress)
    return environment
