"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.bench.machine import facts
from tools.bench.markdown import page
from tools.bench.networks import NETWORKS
from tools.bench.parts import PARTS, Settings
from tools.bench.results import Report


def main() -> int:
    """Run the selected parts, print the page and write the files."""
    given = _parser().parse_args()
    _make_fresh(given.work, given.fresh)
    settings = Settings(
        given.work,
        given.networks,
        given.models,
        given.cpus,
        given.rounds,
        given.seconds,
        given.backend,
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    report = Report(facts(), shlex.join(["python", "-m", "tools.bench", *_arguments()]), title=given.title)
    for name in given.parts:
        report.parts.append(PARTS[name](settings))
    text = page(report)
    print(text)
    if given.markdown is not None:
        given.markdown.write_text(text, encoding="utf-8")
    if given.json is not None:
        given.json.write_text(json.dumps(dataclasses.asdict(report), indent=2) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description="Our engine against ONNX Runtime, OpenVINO and LiteRT, in turns."
    )
    processors = tuple(sorted(os.sched_getaffinity(0)))[:2]
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="folder of the files (%(default)s)")
    parser.add_argument("--parts", type=_NameList(PARTS), default=tuple(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--networks", type=_NameList(NETWORKS), default=(), help=f"of {','.join(NETWORKS)}")
    parser.add_argument("--models", type=_names, default=(), help="trained models, by the manifest's names")
    parser.add_argument("--cpus", type=_numbers, default=processors, help="processors to pin to, such as 0,1")
    parser.add_argument("--rounds", type=int, default=9, help="turns of every engine (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="that a turn takes about (%(default)s)")
    parser.add_argument("--backend", default="auto", choices=("auto", "native", "reference"), help="of our engine")
    parser.add_argument("--fresh", choices=("ours", "all"), help="remove our models, or all files, first")
    parser.add_argument("--title", default="Benchmarks", help="of the page (%(default)s)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    return parser


def _make_fresh(folder: Path, what: str | None) -> None:
    if what == "all":
        shutil.rmtree(folder, ignore_errors=True)
    elif what == "ours":
        for path in folder.rglob("*.tpum"):
            path.unlink()


def _arguments() -> list[str]:
    """Command line of the call without the options for paths."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--work", "--markdown", "--json", "--fresh", "--title"):
        parser.add_argument(name)
    return parser.parse_known_args()[1]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


class _NameList:
    """Comma-separated list of known names."""

    def __init__(self, possible: Mapping[str, object]) -> None:
        self._possible = possible

    def __call__(self, text: str) -> tuple[str, ...]:
        names = _names(text)
        for name in names:
            if name not in self._possible:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(self._possible)}")
        return names
