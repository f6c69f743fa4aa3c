"""Command line of the tools for AArch64."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.aarch64.build import build
from tools.aarch64.costs import write_page
from tools.aarch64.environment import REPOSITORY, command, variables
from tools.aarch64.prepare import prepare
from tools.aarch64.wheel import build_wheel, test_wheel
from tools.release.package_view import make_view
from tools.release.wheel_smoke import SmokeError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.aarch64", description="Build and run the engine for AArch64."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="download the emulated system, once")
    building = commands.add_parser("build", help="cross-compile the engine")
    building.add_argument("--jobs", type=int)
    packing = commands.add_parser("wheel", help="build a wheel, and run its smoke test on every emulated processor")
    packing.add_argument("folder", type=Path, help="folder for the wheel")
    counting = commands.add_parser("costs", help="write the costs into docs/inside/kernels.md")
    counting.add_argument("--llvm-mca", default="llvm-mca", help="the program, of LLVM 19 or newer")
    counting.add_argument("--check", action="store_true", help="only print whether the page is out of date")
    running = commands.add_parser("python", help="run the emulated Python, such as with -m pytest tests/runtime/native")
    running.add_argument("--cpu", default="max", help="processor that QEMU emulates")
    running.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def main() -> int:
    """Run a command and return its exit code."""
    given = _parser().parse_args()
    if given.command == "prepare":
        print(prepare())
        return 0
    if given.command == "build":
        print(build(given.jobs))
        return 0
    if given.command == "wheel":
        wheel = build_wheel(given.folder)
        try:
            test_wheel(wheel)
        except SmokeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return 0
    build()
    if given.command == "costs":
        return write_page(given.llvm_mca, check=given.check)
    view = REPOSITORY / "build" / "view-aarch64"
    make_view(view)
    return subprocess.run(command(given.cpu, *given.arguments), env=variables(view)).returncode
