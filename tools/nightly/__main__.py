"""Run the pieces of the nightly run: ``python -m tools.nightly [PIECE...] [--seed N]``.

A piece is a target of the Makefile: all of them by default. They run one after the other, also after a failure, with
one seed, which is printed. ``build/nightly`` gets a log and a result per piece; the table at the end has durations and
findings. The exit code is 1 if a piece fails; a piece that cannot run on this machine fails with make's message.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.nightly.results import FOLDER, PIECES, Result, findings_of, table


def run_piece(piece: str, seed: int, folder: Path, make: Sequence[str] = ("make",)) -> Result:
    """Run a target, show its output and write it to ``PIECE.log``.

    Args:
        piece: the target.
        seed: of everything that draws fresh cases.
        folder: for the log and the result.
        make: command line of make.
    """
    start = time.monotonic()
    lines = []
    with (folder / f"{piece}.log").open("w", encoding="utf-8") as log:
        command = [*make, piece, f"SEED={seed}"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                log.write(line)
                lines.append(line)
    code = process.returncode
    result = Result(piece, seed, time.monotonic() - start, code, findings_of(lines, code))
    result.write(folder)
    return result


def main(arguments: Sequence[str]) -> int:
    """Run pieces and print their table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help=f"of {', '.join(PIECES)}; all by default")
    parser.add_argument("--seed", type=int, help="a fresh one by default")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.pieces) - set(PIECES)):
        parser.error(f"{', '.join(unknown)}: not a piece of the nightly run; the pieces are {', '.join(PIECES)}")
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = []
    for piece in options.pieces or PIECES:
        print(f"== {piece}", flush=True)
        results.append(run_piece(piece, seed, FOLDER))
    print(f"\nseed {seed}\n\n{table(results)}")
    return int(any(result.exit_code for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
