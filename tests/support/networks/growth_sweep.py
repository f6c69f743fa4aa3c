"""Growth of the work with each countable thing of a model: how often the work doubles when the model doubles.

    python -m tests.support.networks.growth_sweep [--count 1000] [--only NAME]

Every model of ``growth_models`` is converted, saved, loaded, opened and run with twice and four times ``count`` nodes,
operands, names and so on. The exponent is the logarithm to base 2 of the ratio of the work: 1 is linear. The command
measures CPU time, which includes work in C. The test counts calls instead, which depend on the code only.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tpuconvert as tc
from tests.support.networks.growth_models import MODELS

Measure = Callable[[Callable[[], Any]], tuple[float, Any]]
"""Runs a function and returns its work and its result."""


def cpu_time(work: Callable[[], Any]) -> tuple[float, Any]:
    """Run a function. Return its CPU seconds and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def calls(work: Callable[[], Any]) -> tuple[float, Any]:
    """Run a function. Return the number of calls of Python and C functions, and the result."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return count, result


def work_of(name: str, size: int, folder: Path, measure: Measure) -> dict[str, float]:
    """Work of each step from a model file to the results of a run."""
    source, target = folder / "model.onnx", folder / "model.tpum"
    onnx.save(MODELS[name](size), source)
    work = {}
    work["convert"], model = measure(lambda: tc.convert(source))
    work["save"], _ = measure(lambda: model.save(target))
    work["load"], model = measure(lambda: tc.load(target))
    work["open"], session = measure(lambda: tc.Session(model))
    ports = model.graph.input_ports
    feeds = {p.name: np.ones([e if isinstance(e, int) else 2 for e in p.shape], p.dtype) for p in ports}
    with session:
        work["run"], _ = measure(lambda: session.run(feeds))
    return work


def exponents(name: str, size: int, folder: Path, measure: Measure) -> dict[str, tuple[float, float]]:
    """Work of the largest model, and the exponent between the two largest ones, by step."""
    work_of(name, 4, folder, measure)  # imports modules and fills caches
    smaller, larger = (work_of(name, size * factor, folder, measure) for factor in (2, 4))
    return {step: (larger[step], math.log2(larger[step] / max(smaller[step], 1e-6))) for step in larger}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", choices=sorted(MODELS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in [arguments.only] if arguments.only else MODELS:
            found = exponents(name, arguments.count, Path(folder), cpu_time)
            steps = [f"{step} {seconds:.2f} s ({exponent:.1f})" for step, (seconds, exponent) in found.items()]
            print(f"{name:44}", *steps, flush=True)


if __name__ == "__main__":
    main()
