"""``tpuconvert.device_setup``: install the vendor's compiler and simulator."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.exporters.compilation.environment import HOME_VARIABLE, default_folder, environment_in
from tpuconvert.exporters.compilation.installation import check_environment, install_environment, log_of
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.progress import SILENT, Progress
from tpuconvert.text.result import Result


@dataclass(frozen=True, repr=False)
class DeviceSetup(Result):
    """An installation of the vendor's compiler and simulator, which works.

    Args:
        folder: the virtual environment.
        home: folder of the package tpu_mlir, the value of the variable TPU_MLIR_HOME.
        python: interpreter that has the package.
        version: version of the package.
        is_new: whether this call installed it; otherwise it was complete before, and was checked again.
        is_default: whether ``export --compile`` uses it without TPU_MLIR_HOME.
        seconds: wall time.

    """

    folder: Path
    home: Path
    python: Path
    version: str
    is_new: bool
    is_default: bool
    seconds: float

    def lines(self) -> list[str]:
        """Return the folder, what was checked, and the next step."""
        verb = "installed" if self.is_new else "is installed"
        state = f"tpu_mlir {self.version} {verb} in {self.folder} ({self.seconds:.0f} s)"
        checked = f"checked: compiler and simulator of {', '.join(TARGETS)}"
        variable = "" if self.is_default else f", with {HOME_VARIABLE}={self.home}"
        return [state, checked, f"next: tpuconvert export MODEL.tpum FOLDER --chip CHIP --compile{variable}"]


def device_setup(
    folder: str | os.PathLike[str] | None = None, *, python: str | None = None, progress: Progress = SILENT
) -> DeviceSetup:
    """Install the vendor's compiler and simulator from PyPI into a virtual environment, and check them.

    Needs Linux on x86-64, Python 3.10 and 1.5 GB of disk space. A complete installation is only checked.

    Args:
        folder: The virtual environment. Default: a folder in the cache folder of the user. An incomplete installation
            leaves nothing; a folder with other files is an error.
        python: A Python 3.10. Default: one on the PATH, or one that pyenv or uv installed.
        progress: Receives the steps.

    Returns:
        The installation.

    Raises:
        UsageError: The folder has other files, or the system or the interpreter cannot be used.
        MissingExtraError: There is no Python 3.10, pip failed, or the installed compiler does not work.
        ResourceLimitError: The disk is full.

    """
    started = time.monotonic()
    default = default_folder()
    target = default if folder is None else Path(folder).absolute()
    environment = environment_in(target)
    is_new = environment is None
    if environment is None:
        environment = install_environment(target, python, progress=progress)
    else:
        check_environment(environment, log_of(target), progress)
    log_of(target).unlink(missing_ok=True)
    return DeviceSetup(
        target,
        environment.home,
        environment.python,
        environment.version,
        is_new,
        target == default,
        round(time.monotonic() - started, 1),
    )
