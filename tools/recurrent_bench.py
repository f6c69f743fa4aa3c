"""Time LSTM and GRU layers: one operator, its unrolled form, and ONNX Runtime.

Usage: recurrent_bench.py [--threads N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tpuconvert as tc

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


def milliseconds(run: Callable[..., object], *arguments: object, repeats: int = 30) -> float:
    """Median wall time of ``run(*arguments)``, after three runs that are not measured."""
    times = []
    for index in range(repeats + 3):
        start = time.perf_counter()
        run(*arguments)
        if index >= 3:
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def main() -> None:
    """Print one row per layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    print("layer steps batch size units  nodes unrolled  ms: operator unrolled onnxruntime")
    for kind in _GATES:
        for shape in _SHAPES:
            proto = layer(kind, *shape)
            feeds = {"x": np.random.default_rng(1).normal(size=shape[:3]).astype(np.float32)}
            models = [tc.convert(proto), tc.convert(proto, strict_set=True)]
            times = []
            for model in models:
                with tc.Session(model, threads=threads) as session:
                    times.append(milliseconds(session.run, feeds))
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            content, providers = proto.SerializeToString(), ["CPUExecutionProvider"]
            oracle = onnxruntime.InferenceSession(content, options, providers=providers)
            times.append(milliseconds(oracle.run, None, feeds))
            counts = [len(model.graph.nodes) for model in models]
            print(kind, *shape, *counts, *(f"{item:.3f}" for item in times), sep="\t")


if __name__ == "__main__":
    main()
