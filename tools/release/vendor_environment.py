"""Install the vendor's compiler with more packages: ``python -m tools.release.vendor_environment FOLDER [OPTIONS]``.

``tpuconvert device setup`` installs what the compiler and the simulator need. This adds what the package's TPULang API
imports; with ``--calibration``, what its programs model_transform and run_calibration import for an ONNX model: all
requirements of its extra onnx, and PyTorch, which they import and, with their default options, do not call. PyTorch's
build without CUDA is enough: with the default index of pip it is several GB.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.exporters.compilation.environment import environment_in
from tpuconvert.exporters.compilation.installation import REQUIREMENTS, install_environment
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION
from tpuconvert.schema.errors import TpuConvertError

TPULANG = (
    "filelock",
    "flatbuffers==24.12.23",
    "opencv-python-headless==4.8.0.76",
    "pandas==2.0.3",
    "Pillow==10.0.0",
    "plotly==5.15.0",
    "psutil",
    "rich",
    "tqdm==4.65.0",
)
"""Packages that the TPULang API imports."""

CALIBRATION = ("filelock", "flatbuffers==24.12.23", "psutil", "torch==2.11.0", f"tpu_mlir[onnx]=={COMPILER_VERSION}")
"""Packages for calibration. No extra lists filelock, flatbuffers and psutil. torch has the version of its extra."""


def main() -> int:
    """Install the packages into a virtual environment, unless it is complete."""
    parser = argparse.ArgumentParser(description="install the vendor's compiler and simulator")
    parser.add_argument("folder", type=Path, help="the virtual environment")
    parser.add_argument("--python", help="a Python 3.10 (default: one of the PATH, pyenv or uv)")
    parser.add_argument("--calibration", action="store_true", help="with the packages of the vendor's calibration")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    if environment_in(folder) is not None:
        return 0
    first, *others = REQUIREMENTS
    requirements = [CALIBRATION] if arguments.calibration else [(*first, *TPULANG), *others]
    try:
        with show_progress("lines") as progress:
            install_environment(folder, arguments.python, requirements=requirements, progress=progress)
    except TpuConvertError as error:
        print(f"vendor_environment.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
