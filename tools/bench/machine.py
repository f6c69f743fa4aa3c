"""Description of the machine: processor, instruction sets, and the versions of the engines."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ENGINE_PACKAGES = ("tpuconvert", "onnxruntime", "openvino", "nncf", "ai-edge-litert", "mnn", "numpy")
INSTRUCTIONS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
"""Instruction sets by which engines select kernels, with their names in Linux."""

ABSENT = "not installed"
"""Stands for the version of a package that is absent."""


def facts(more: Sequence[str] = ()) -> dict[str, str]:
    """Return names and values for the report, with the versions of further packages."""
    described = {
        "measured": measured_on(),
        "processor": f"{_processor('model name') or platform.machine()}, {os.cpu_count()} processors",
        "instructions": ", ".join(each for each in INSTRUCTIONS if each in _flags()) or "unknown",
        "Python": platform.python_version(),
    }
    for package in (*ENGINE_PACKAGES, *more):
        try:
            described[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            described[package] = ABSENT
    return described


def measured_on() -> str:
    """Return today's date, and version and commit of tpuconvert. Pages with measured figures contain it."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    text = f"{datetime.date.today().isoformat()} with tpuconvert {metadata.version('tpuconvert')}"
    return f"{text} (commit {commit})" if commit else text


def _flags() -> list[str]:
    return (_processor("flags") or _processor("Features")).split()


def _processor(key: str) -> str:
    source = Path("/proc/cpuinfo")
    lines = source.read_text(encoding="utf-8").splitlines() if source.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.split("\t")[0] == key), "")
