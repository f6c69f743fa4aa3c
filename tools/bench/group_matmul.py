"""Time of matmuls with group-quantized weights, against MatMulNBits of ONNX Runtime, on one processor.

    pip install '.[bench]'
    python -m tools.bench.group_matmul [--cpu 0] [--rounds 9] [--rows 1,8,128] [--sizes 1024,2048,4096]
        [--bits 4,8] [--groups 32,128] [--zero-points] [--accuracy-level 0] [--activation-type float32]

Each line is one model with a single MatMulNBits, [rows, size] x [size, size]. Both engines run it in turns in the same
process. The ratio is the median over the rounds of the time of ONNX Runtime divided by the time of tpuconvert; the
smallest and the largest ratio follow in brackets.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tpuconvert
from tools.bench.machine import facts

SECONDS = 0.05
"""Approximate time of the runs of one engine in a round."""


def make_model(
    rows: int, size: int, bits: int, group: int, has_zero_points: bool, accuracy_level: int
) -> onnx.ModelProto:
    """Return a model with one MatMulNBits and random weights."""
    rng = np.random.default_rng(size)
    groups = -(-size // group)
    constants = {
        "codes": rng.integers(0, 256, (size, groups, group * bits // 8), np.uint8),
        "scale": rng.uniform(1e-3, 1e-2, size * groups).astype(np.float32),
    }
    if has_zero_points:
        constants["zero"] = rng.integers(0, 256, size * -(-groups * bits // 8), np.uint8)
    node = helper.make_node(
        "MatMulNBits",
        ["x", *constants],
        ["y"],
        domain="com.microsoft",
        K=size,
        N=size,
        bits=bits,
        block_size=group,
        accuracy_level=accuracy_level,
    )
    graph = helper.make_graph(
        [node],
        "matmul",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, size])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def time_of(run: Callable[[], object], count: int) -> float:
    """Mean time of ``count`` runs in seconds."""
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def compare(
    model: onnx.ModelProto, rows: int, size: int, rounds: int, activation_type: str
) -> tuple[list[float], list[float]]:
    """Return the times of ONNX Runtime and of tpuconvert, by round."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.random.default_rng(0).normal(size=(rows, size)).astype(np.float32)}
    converted = tpuconvert.convert(model, packed_weights=tpuconvert.PackedWeights(activation_type=activation_type))
    with tpuconvert.Session(converted, threads=1) as session:
        runs = (lambda: peer.run(None, feeds), lambda: session.run(feeds))
        counts = [max(2, int(SECONDS / time_of(run, 2))) for run in runs]
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds + 1):
            for run, count, found in zip(runs, counts, times, strict=True):
                taken = time_of(run, count)
                if number:  # the first round warms up
                    found.append(taken)
    return times


def numbers(text: str) -> list[int]:
    """Parse integers that are separated by commas."""
    return [int(item) for item in text.split(",")]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=numbers, default=[1, 8, 128])
    parser.add_argument("--sizes", type=numbers, default=[1024, 2048, 4096])
    parser.add_argument("--bits", type=numbers, default=[4, 8])
    parser.add_argument("--groups", type=numbers, default=[32, 128])
    parser.add_argument("--zero-points", action="store_true")
    parser.add_argument("--accuracy-level", type=int, default=0, help="of MatMulNBits; 4 rounds activations to INT8")
    parser.add_argument("--activation-type", choices=("float32", "int8"), default="float32", help="of tpuconvert")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.cpu})
    for name, value in facts().items():
        print(f"{name}: {value}")
    print("\n| bits | group | rows | size | ONNX Runtime ms | tpuconvert ms | ratio |\n|---|---|---|---|---|---|---|")
    for bits, group, rows, size in itertools.product(args.bits, args.groups, args.rows, args.sizes):
        model = make_model(rows, size, bits, group, args.zero_points, args.accuracy_level)
        peer, own = compare(model, rows, size, args.rounds, args.activation_type)
        ratios = [a / b for a, b in zip(peer, own, strict=True)]
        print(
            f"| {bits} | {group} | {rows} | {size} | {statistics.median(peer) * 1e3:.3f} | "
            f"{statistics.median(own) * 1e3:.3f} | {statistics.median(ratios):.2f} "
            f"[{min(ratios):.2f}, {max(ratios):.2f}] |",
            flush=True,
        )


if __name__ == "__main__":
    main()
