"""Time LSTM and GRU layers: one operator, its unrolled form, and ONNX Runtime; in float and in INT8.

The runs of all forms are interleaved. Inputs are sums of sinusoids with noise; the cosine is the smallest one to the
float network on samples that calibration did not see. With one thread, times are CPU times, which other programs on the
machine affect less than wall times.

Usage: recurrent_bench.py [--threads N] [--repeats N]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert import Session
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.types import Array

_GATES = {"LSTM": 4, "GRU": 3}
_SHAPES = ((16, 1, 128, 128), (100, 1, 64, 128), (100, 8, 64, 128), (50, 1, 256, 256))
"""Steps, batch, input size and units."""


def layer(kind: str, steps: int, batch: int, size: int, units: int) -> ModelProto:
    """One layer with random weights."""
    rng = np.random.default_rng(0)
    rows = _GATES[kind] * units
    arrays = {
        "W": rng.normal(size=(1, rows, size)) * size**-0.5,
        "R": rng.normal(size=(1, rows, units)) * units**-0.5,
        "B": rng.normal(size=(1, 2 * rows)) * 0.1,
    }
    extra: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", *arrays], ["y"], hidden_size=units, **extra)],
        kind,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, batch, size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (steps, 1, batch, units))],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def waves(seed: int, steps: int, batch: int, size: int) -> Array:
    """Sums of sinusoids with noise: inputs with the structure of a signal."""
    rng = np.random.default_rng(seed)
    time_of_step = np.arange(steps)[:, None, None]
    bounds = ((0.02, 0.3), (0.0, 6.0), (0.3, 1.5))
    frequency, phase, height = (rng.uniform(low, high, (1, batch, size)) for low, high in bounds)
    signal: Array = height * np.sin(6.28 * frequency * time_of_step + phase)
    signal += rng.normal(0, 0.1, (steps, batch, size))
    return signal.astype(np.float32)


def milliseconds(runs: list[Callable[[], object]], repeats: int, clock: Callable[[], float]) -> list[float]:
    """Median time of each function; the functions are interleaved, after three calls that are not measured."""
    times: list[list[float]] = [[] for _ in runs]
    for index in range(repeats + 3):
        for run, seconds in zip(runs, times, strict=True):
            start = clock()
            run()
            if index >= 3:
                seconds.append(clock() - start)
    return [statistics.median(seconds) * 1000 for seconds in times]


def cosine(exact: Session, session: Session, samples: list[dict[str, Array]]) -> float:
    """Smallest cosine similarity between the output and the output of the float network."""
    cosines = []
    for feeds in samples:
        pair = [next(iter(item.run(feeds).values())).ravel().astype(np.float64) for item in (exact, session)]
        cosines.append(pair[0] @ pair[1] / np.sqrt((pair[0] @ pair[0]) * (pair[1] @ pair[1])))
    return float(min(cosines))


def main() -> None:
    """Print one row per layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    clock = time.process_time if options.threads == 1 else time.perf_counter
    print(
        "layer steps batch size units  nodes: float unrolled int8 unrolled  cosine: int8 unrolled  "
        "ms: float unrolled onnxruntime int8 unrolled"
    )
    for kind in _GATES:
        for shape in _SHAPES:
            proto = layer(kind, *shape)
            samples = [{"x": waves(seed, *shape[:3])} for seed in range(12)]
            quantized: dict[str, Any] = {"quantize": "int8", "calibration": samples[4:]}
            models = [
                tc.convert(proto, strict_set=is_unrolled, **group_options(**quantization))
                for quantization in ({}, quantized)
                for is_unrolled in (False, True)
            ]
            session_options = onnxruntime.SessionOptions()
            session_options.intra_op_num_threads = options.threads
            content, providers = proto.SerializeToString(), ["CPUExecutionProvider"]
            oracle = onnxruntime.InferenceSession(content, session_options, providers=providers)
            with contextlib.ExitStack() as stack:
                sessions = [stack.enter_context(Session(model, threads=options.threads)) for model in models]
                feeds = samples[0]
                runs: list[Callable[[], object]] = [functools.partial(session.run, feeds) for session in sessions]
                runs.insert(2, functools.partial(oracle.run, None, feeds))
                times = milliseconds(runs, options.repeats, clock)
                cosines = [cosine(sessions[0], session, samples[:4]) for session in sessions[2:]]
            counts = [len(model.graph.nodes) for model in models]
            texts = [f"{item:.5f}" for item in cosines] + [f"{item:.3f}" for item in times]
            print(kind, *shape, *counts, *texts, sep="\t", flush=True)


if __name__ == "__main__":
    main()
