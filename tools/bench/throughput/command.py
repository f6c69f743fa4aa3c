"""The command ``python -m tools.bench throughput``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.bench.machine import facts
from tools.bench.models import int8_model
from tools.bench.networks import NETWORKS
from tools.bench.throughput.measuring import measure_load
from tools.bench.throughput.page import Cell, page
from tools.bench.throughput.servers import SERVERS, Service


def main(arguments: Sequence[str]) -> int:
    """Measure the selected networks under the selected loads, and print the page or write it."""
    options = _parser().parse_args(arguments)
    cells = [
        _measure(options, network, clients, batch)
        for network in options.networks
        for clients in options.clients
        for batch in options.batches
        if batch == 1 or clients <= len(options.cpus)
    ]
    shown = ["--networks", ",".join(options.networks), "--clients", ",".join(map(str, options.clients))]
    shown += ["--batches", ",".join(map(str, options.batches))]
    shown += ["--rounds", str(options.rounds), "--seconds", f"{options.seconds:g}"]
    text = page(cells, facts(), shlex.join(["python", "-m", "tools.bench", "throughput", *shown]), len(options.cpus))
    if options.markdown is None:
        print(text)
    else:
        options.markdown.write_text(text, encoding="utf-8")
    return 0


def _measure(options: argparse.Namespace, network: str, clients: int, batch: int) -> Cell:
    print(f"{network}: {clients} clients, batch {batch}", file=sys.stderr, flush=True)
    model = int8_model(network, options.work, "native")
    services = [
        Service(job.engine, job.label, job.model, job.feeds, len(options.cpus), batch, clients)
        for job in model.jobs
        if job.engine in SERVERS
    ]
    return Cell(
        network, clients, batch, tuple(measure_load(services, list(options.cpus), options.rounds, options.seconds))
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench throughput", description="Images per second and latency with several clients."
    )
    processors = tuple(sorted(os.sched_getaffinity(0)))[:2]
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="folder of the files (%(default)s)")
    parser.add_argument("--networks", type=_names, default=("resnet50", "mobilenetv2"), help="of the benchmark")
    parser.add_argument("--clients", type=_numbers, default=(1, 2, 4, 8), help="numbers of clients, such as 1,2")
    parser.add_argument("--batches", type=_numbers, default=(1, 4, 16), help="images of a request, such as 1,16")
    parser.add_argument("--cpus", type=_numbers, default=processors, help="processors to pin to, such as 0,1")
    parser.add_argument("--rounds", type=int, default=5, help="turns of every engine (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.3, help="that a turn takes about (%(default)s)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page, instead of printing it")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in NETWORKS:
            raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(NETWORKS)}")
    return names
