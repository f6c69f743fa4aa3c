"""The command ``python -m tools.bench accuracy``: measure what is missing, and write the page."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import shlex
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tools.bench.accuracy.page import page
from tools.bench.accuracy.quantizers import OURS, TOOLS, measure
from tools.bench.accuracy.results import Key, Row, append_row, missing_keys, read_rows, remove_rows
from tools.bench.accuracy.subjects import Subject, subject_names
from tools.bench.engine_process import in_short
from tools.bench.machine import facts

RESULTS = "accuracy.jsonl"
PACKAGES = ("ai-edge-quantizer",)
FRESH = ("ours", "failed", "all")


def main(arguments: Sequence[str]) -> int:
    """Measure the selected networks with the selected tools, and print the page or write it."""
    given = _parser().parse_args(arguments)
    given.work.mkdir(parents=True, exist_ok=True)
    results = given.work / RESULTS
    if given.fresh == "all":
        results.unlink(missing_ok=True)
    elif given.fresh is not None:
        remove_rows(results, lambda row: row.tool == OURS if given.fresh == "ours" else bool(row.error))
    names = given.networks or subject_names()
    for name, tool in itertools.product(names, given.tools or TOOLS):
        _measure_apart(name, tool, given.work)
    rows = [row for row in read_rows(results).values() if row.network in names]
    chosen = ["--networks", *names] if given.networks else []
    command = shlex.join(["python", "-m", "tools.bench", "accuracy", *chosen])
    text = page(rows, facts(PACKAGES), command)
    if given.markdown is None:
        print(text)
    else:
        given.markdown.write_text(text, encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench accuracy", description="Accuracy of INT8: tpuconvert and other quantizers."
    )
    parser.add_argument("--work", type=Path, default=Path("build/bench-accuracy"), help="folder of files and results")
    parser.add_argument("--networks", nargs="+", choices=subject_names(), metavar="NAME", help="networks to measure")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, help="tools to measure")
    parser.add_argument("--fresh", choices=FRESH, help="measure tpuconvert, what failed, or everything again")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page, instead of printing it")
    return parser


def _keys(name: str, tool: str) -> list[Key]:
    return [(name, tool, setting) for setting in TOOLS[tool].settings]


def _measure_apart(name: str, tool: str, work: Path) -> None:
    """Measure all settings of a tool in another process: tools may run out of memory, or end the process."""
    while missing := missing_keys(_keys(name, tool), read_rows(work / RESULTS)):
        spawn = multiprocessing.get_context("spawn")
        try:
            with ProcessPoolExecutor(1, spawn) as pool:
                pool.submit(measure_settings, name, tool, work).result()
        except BrokenProcessPool:
            left = missing_keys(missing, read_rows(work / RESULTS))
            append_row(work / RESULTS, Row(*left[0], error="the process ended"))


def measure_settings(name: str, tool: str, work: Path) -> None:
    """Measure the settings of a tool that have no row, and append the rows to the results."""
    subject = Subject(name, work)
    for key in missing_keys(_keys(name, tool), read_rows(work / RESULTS)):
        append_row(work / RESULTS, row := _row(subject, key))
        print(f"{', '.join(key)}: {row.error or row.numbers}", file=sys.stderr, flush=True)


def _row(subject: Subject, key: Key) -> Row:
    _, tool, setting = key
    source = subject.entry["format"]
    if source not in TOOLS[tool].formats:
        return Row(*key, error=f"it reads {' and '.join(TOOLS[tool].formats)} files, this network is {source}")
    start = time.monotonic()
    try:
        numbers = measure(subject, tool, setting)
    except ImportError as error:
        return Row(*key, error=f"not installed ({error})")
    except Exception as error:  # any exception becomes a line of the page
        return Row(*key, error=in_short(error))
    return Row(*key, numbers, seconds=round(time.monotonic() - start, 1))
