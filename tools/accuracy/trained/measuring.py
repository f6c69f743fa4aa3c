"""Measurement of networks with quantizers, each pair in a process of its own."""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tools.accuracy.trained.decoders import Outputs
from tools.accuracy.trained.engines import Run
from tools.accuracy.trained.networks import Network
from tools.accuracy.trained.quantizers import QUANTIZERS
from tools.accuracy.trained.results import Key, Row, append_row, read_rows
from tools.bench.engine_process import in_short
from tools.bench.machine import measured_on


@dataclass(frozen=True)
class Folders:
    """Folder of all files that are made, and folder of downloaded files."""

    work: Path
    cache: Path

    @property
    def results(self) -> Path:
        """File of the rows."""
        return self.work / "results.jsonl"


def keys(networks: Iterable[str], quantizers: Iterable[str], draws: Sequence[int]) -> list[Key]:
    """Return the keys of all rows. The float model has no draws."""
    return [
        (network, quantizer, setting, draw)
        for network in networks
        for quantizer in quantizers
        for setting in QUANTIZERS[quantizer].settings
        for draw in ([0] if quantizer == "float" else draws)
    ]


def measure_missing(selected: Sequence[Key], folders: Folders) -> None:
    """Measure the rows that the results do not have. A quantizer that ends its process leaves a row that says so."""
    folders.work.mkdir(parents=True, exist_ok=True)
    while missing := _missing(selected, folders):
        group = [key for key in missing if key[:2] == missing[0][:2]]
        try:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                pool.submit(measure_rows, group, folders).result()
        except BrokenProcessPool:
            left = _missing(group, folders)
            append_row(folders.results, Row(*left[0], failure="the process ended", measured=measured_on()))


def _missing(selected: Sequence[Key], folders: Folders) -> list[Key]:
    rows = read_rows(folders.results)
    return [key for key in selected if key not in rows]


def measure_rows(group: Sequence[Key], folders: Folders) -> None:
    """Measure rows of one network and one quantizer, and append them to the results."""
    network = Network(group[0][0], folders.work, folders.cache)
    for key in group:
        row = measure_row(network, key)
        append_row(folders.results, row)
        result = row.failure or f"{row.score:.1f} ± {row.error:.1f}, {row.counts}, {row.seconds:.1f} s"
        print(f"{', '.join(filter(None, map(str, key)))}: {result}", file=sys.stderr, flush=True)


def measure_row(network: Network, key: Key) -> Row:
    """Quantize a network, run it on the evaluation samples and compare it with the float model."""
    _, name, setting, draw = key
    quantizer = QUANTIZERS[name]
    if network.entry.format not in quantizer.formats:
        readable = " and ".join(quantizer.formats)
        return Row(
            *key, failure=f"reads {readable} files, this model is {network.entry.format}", measured=measured_on()
        )
    try:
        run, seconds = quantizer.open(network, draw, **quantizer.settings[setting])
        outputs, milliseconds = run_all(run, network)
        contributions = network.metric.contributions(
            list(zip(network.float_outputs, outputs, strict=True)), network.run_helper
        )
    except ImportError as error:
        return Row(*key, failure=f"not installed ({error})", measured=measured_on())
    except Exception as error:  # any exception becomes a line of the page
        return Row(*key, failure=without_folders(in_short(error), network), measured=measured_on())
    sums = contributions.sum(axis=0)
    columns = network.metric.columns
    totals = sums.reshape(-1, len(columns)).sum(axis=0)
    return Row(
        *key,
        score=round(network.metric.score(sums), 3),
        error=round(network.metric.standard_error(contributions), 3),
        counts=dict(zip(columns, (round(float(total), 4) for total in totals), strict=True)),
        seconds=round(seconds, 2),
        milliseconds=round(milliseconds, 2) if quantizer.is_timed else 0.0,
        measured=measured_on(),
    )


def without_folders(text: str, network: Network) -> str:
    """Replace the paths of the folders by their names: the record does not describe the machine."""
    for folder in (network.work, network.cache):
        for path in (folder.resolve(), folder):
            text = text.replace(str(path), folder.name)
    return text


def run_all(run: Run, network: Network) -> tuple[Sequence[Outputs], float]:
    """Return the outputs for the evaluation samples, and the median milliseconds of processor time per sample.

    With one thread this is the time on an idle machine, whatever else runs.
    """
    outputs, times = [], []
    for feed in network.evaluation:
        start = time.process_time()
        result = run(feed)
        times.append(time.process_time() - start)
        outputs.append({name: np.array(array) for name, array in result.items()})
    return outputs, 1000 * statistics.median(times)
