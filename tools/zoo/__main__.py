"""Make models with PyTorch's exporters and convert them: ``python -m tools.zoo make FOLDER``, ``... run FOLDER``.

``make`` needs the extra ``zoo`` (PyTorch); ``run`` needs tpuconvert and onnxruntime, and no PyTorch.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.zoo.files import EXPORTERS, VARIANTS, Made


def main(arguments: Sequence[str]) -> int:
    """Make models, or convert and compare them. Return 1 if a model caused an internal error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("make", "export the networks with PyTorch"), ("run", "convert what was exported")):
        command = commands.add_parser(name, help=text)
        command.add_argument("folder", type=Path)
        command.add_argument("--networks", default="", help="names with commas; all by default")
        command.add_argument("--exporters", default=",".join((*EXPORTERS, *VARIANTS)), help="as in the page")
        command.add_argument("--opsets", default="", help="numbers with commas; all by default")
        if name == "run":
            command.add_argument("--chip", default="bm1686")
            command.add_argument("--log", type=Path, help="outcomes are appended to it; models in it are not run again")
            command.add_argument("--markdown", type=Path, help="write the page about all outcomes, and its rows")
            command.add_argument("--seconds", type=float, default=300.0, help="limit of a model's CPU time")
    given = parser.parse_args(arguments)
    networks = [name for name in given.networks.split(",") if name]
    exporters = given.exporters.split(",")
    opsets = [int(number) for number in given.opsets.split(",") if number]
    if given.command == "make":
        from tools.zoo.making import make  # PyTorch is an optional dependency

        make(given.folder, networks, exporters, opsets)
        return 0
    from tools.zoo.outcome import INTERNAL
    from tools.zoo.page import page, raw_file, raw_rows
    from tools.zoo.running import run

    outcomes = run(given.folder, networks, exporters, opsets, given.chip, given.seconds, given.log)
    if given.markdown:
        given.markdown.write_text(page(outcomes, given.folder), encoding="utf-8")
        rows = raw_rows(outcomes, Made.load(given.folder))
        given.markdown.with_suffix(".json").write_text(raw_file(rows), encoding="utf-8")
    return int(any(outcome.outcome == INTERNAL for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
