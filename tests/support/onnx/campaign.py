"""Campaigns of random ONNX graphs against ONNX Runtime without graph optimization.

    python -m tests.support.onnx.campaign --seed 7 --count 5000 --mode float --chip bm1686

Each case draws a graph from its own seed (``--seed`` is the first one; without it a fresh one is drawn and printed),
converts it, and runs it with the native engine and with NumPy. In float every output must equal the output of ONNX
Runtime within the rounding errors that are measured for it, integers, shapes and types exactly. In INT8 the engines
must agree, and an output with a cosine below 0.98 must have a warning. Graphs that ONNX Runtime refuses are not
counted.

The cases run in a worker process, so that a crash of an engine is an outcome. The command prints the number of cases
per outcome, and for each finding its seed and the smallest part of the graph that still shows it. ``--only SEED``
repeats one.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import onnx

from tests.support import programs
from tests.support.fresh_seed import fresh_seed
from tests.support.onnx.random_graphs.comparison import Case, Outcome, case_of, check, reduce_case
from tests.support.onnx.random_graphs.drawing import Settings
from tests.support.onnx.random_graphs.graphs import draw_graph

MOST_SHOWN = 3
"""Reduced graphs printed per group of findings with the same cause."""


def run_case(seed: int, mode: str, chip: str) -> tuple[Outcome, Case | None]:
    """Outcome of a seed, and its graph."""
    is_int8 = mode == "int8"
    case = case_of(draw_graph(seed, Settings(is_calm=is_int8)))
    return (Outcome("no graph"), None) if case is None else (check(case, chip=chip, quantize=is_int8), case)


def describe(case: Case, outcome: Outcome, mode: str, chip: str) -> str:
    """The smallest part of a graph with the same outcome, as text."""
    options: dict[str, Any] = {"chip": chip, "quantize": mode == "int8"}
    smallest = reduce_case(case, outcome, **options)
    text = re.sub(r"= +\{[^{}]{200,}\}", "= {...}", onnx.printer.to_text(smallest.model))
    return f"{text}\n{check(smallest, **options).reason}"


def work(mode: str, chip: str, first: int, end: int) -> None:
    """Run cases in this process and print a record before and after each."""
    shown: Counter[tuple[str, str]] = Counter()
    for seed in range(first, end):
        print(json.dumps({"case": seed}), flush=True)
        outcome, case = run_case(seed, mode, chip)
        shown[outcome.kind, outcome.group] += 1
        text = ""
        if case is not None and outcome.is_finding and shown[outcome.kind, outcome.group] <= MOST_SHOWN:
            text = describe(case, outcome, mode, chip)
        record = {"done": seed, "kind": outcome.kind, "reason": outcome.reason, "group": outcome.group, "text": text}
        print(json.dumps(record), flush=True)


def records(mode: str, chip: str, first: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield a record per case. A worker that dies is replaced, and its case is a crash."""
    seed = first
    while seed < end:
        command = programs.command(__spec__.name, "--worker", mode, chip, str(seed), str(end))
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=programs.environment())
        assert worker.stdout is not None
        started = seed
        try:
            for line in worker.stdout:
                record = json.loads(line)
                if "case" in record:
                    started = record["case"]
                else:
                    seed = record["done"] + 1
                    yield record
        except GeneratorExit:  # the caller has enough
            worker.kill()
            raise
        finally:
            worker.wait()
        if seed < end:
            reason = f"the process died (exit code {worker.returncode})"
            yield {"done": started, "kind": "crash", "reason": reason, "group": reason, "text": ""}
            seed = started + 1


def run_campaign(mode: str, chip: str, first: int, count: int, seconds: float = math.inf) -> Counter[str]:
    """Run cases, for a limited time, and print the findings and the table."""
    counts: Counter[str] = Counter()
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    begun = time.monotonic()
    for record in records(mode, chip, first, first + count):
        counts[record["kind"]] += 1
        if record["kind"] not in ("equal", "no graph"):
            groups[record["kind"], record["group"]].append(record)
            if record["text"]:
                print(
                    f"seed {record['done']}: {record['kind']}: {record['reason'][:300]}\n{record['text']}\n", flush=True
                )
        if time.monotonic() - begun > seconds:
            break
    compared = sum(counts.values()) - counts["no graph"]
    last, duration = first + sum(counts.values()) - 1, time.monotonic() - begun
    print(f"{mode}, {chip}, seeds {first} to {last}: {compared} graphs, {duration:.0f} s")
    for kind, number in sorted(counts.items()):
        print(f"    {number:6d} {kind}")
    for (kind, group), found in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
        seeds = (
            ""
            if kind in ("documented", "warned")
            else ", seeds " + ", ".join(str(record["done"]) for record in found[:8])
        )
        print(f"  {len(found):5d} {kind}: {group}{seeds}")
    return counts


def main(arguments: list[str]) -> int:
    """Run a campaign and print its table."""
    if arguments[:1] == ["--worker"]:
        work(arguments[1], arguments[2], int(arguments[3]), int(arguments[4]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="seed of the first case; a fresh one by default")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--mode", choices=("float", "int8"), default="float")
    parser.add_argument("--chip", choices=("bm1684", "bm1686"), default="bm1686")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end after this time")
    parser.add_argument("--only", type=int, help="repeat one seed")
    options = parser.parse_args(arguments)
    if options.only is not None:
        outcome, case = run_case(options.only, options.mode, options.chip)
        print(outcome.kind, outcome.reason)
        if case is not None and outcome.is_finding:
            print(describe(case, outcome, options.mode, options.chip))
        return int(outcome.is_finding)
    first = fresh_seed() if options.seed is None else options.seed
    counts = run_campaign(options.mode, options.chip, first, options.count, options.seconds)
    return int(any(Outcome(kind).is_finding for kind in counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
