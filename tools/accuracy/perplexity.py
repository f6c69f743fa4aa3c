"""Perplexity of a decoder on tokens, with and without packed weights."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

import tpuconvert as tc
from tpuconvert.schema.types import Array

LENGTH = 256
"""Tokens of a sample."""

SETTINGS = (
    ("float32", False, False),
    ("int8", False, False),
    ("int4", False, False),
    ("int4", False, True),
    ("int4", True, False),
    ("int4", True, True),
)
"""Types of the weights, zero points, and samples for the rounding."""


def samples_of(tokens: Array, count: int) -> Array:
    """Return samples at evenly spread positions, [count, LENGTH]."""
    starts = np.linspace(0, len(tokens) - LENGTH, count).astype(np.int64)
    samples: Array = tokens[starts[:, None] + np.arange(LENGTH)].astype(np.int64)
    return samples


def feeds_of(path: Path, samples: Array) -> list[dict[str, Array]]:
    """Return the inputs of a decoder for each sample: its tokens, a mask, positions, and empty caches."""
    graph = onnx.load(path, load_external_data=False).graph
    shapes = {port.name: [axis.dim_value for axis in port.type.tensor_type.shape.dim] for port in graph.input}
    empty = {name: np.zeros((1, shape[1], 0, shape[3]), np.float32) for name, shape in shapes.items() if len(shape) > 2}
    fixed = {"attention_mask": np.ones((1, LENGTH), np.int64), "position_ids": np.arange(LENGTH)[None]}
    fixed = {name: array for name, array in fixed.items() if name in shapes}
    return [{"input_ids": row[None], **fixed, **empty} for row in samples]


def perplexity(model: tc.Model, samples: Array) -> float:
    """Return the exponential of the mean negative log likelihood of all tokens but the first ones."""
    total, count = 0.0, 0
    with tc.Session(model) as session:
        for row in samples:
            session.reset()
            logits = session.run({"input_ids": row[None]})["logits"][0, :-1].astype(np.float64)
            logits -= logits.max(axis=1, keepdims=True)
            chosen = np.take_along_axis(logits, row[1:, None], 1)[:, 0]
            total += float((np.log(np.exp(logits).sum(axis=1)) - chosen).sum())
            count += len(chosen)
    return math.exp(total / count)


def rows(folder: Path, held_out: int, calibration: int) -> Iterator[str]:
    """Yield a line of the table for each setting, with groups of 32.

    Args:
        folder: has ``decoder.onnx``, and ``tokens.npz`` with the parts ``training`` and ``held_out``.
        held_out: number of samples of the held-out text.
        calibration: number of samples of the text of the training, for the rounding.
    """
    path = folder / "decoder.onnx"
    with np.load(folder / "tokens.npz") as tokens:
        test = samples_of(tokens["held_out"], held_out)
        feeds = feeds_of(path, samples_of(tokens["training"], calibration))
    reference = 0.0
    for kind, has_zero, has_samples in SETTINGS:
        start = time.process_time()
        options = tc.PackedWeights(weight_type=kind, weight_zero_points=has_zero)
        model = tc.convert(path, packed_weights=options, calibration=feeds if has_samples else None)
        seconds = time.process_time() - start
        result = perplexity(model, test)
        if kind == "int8":
            reference = result
        change = f"{100 * (result / reference - 1):+.2f}%" if reference else "-"
        zero, samples = "yes" if has_zero else "no", len(feeds) if has_samples else "no"
        cells = (kind, zero, samples, f"{result:.3f}", change, bits_per_weight(model), f"{seconds:.0f}")
        yield f"| {' | '.join(map(str, cells))} |"


def bits_per_weight(model: tc.Model) -> str:
    """Mean bits of the weights of the packed matmuls and tables, with their scales; 32 without packed ones."""
    found = [re.search(r"([\d.]+) bits per weight", note.message) for note in model.notes]
    return next((match[1] for match in found if match), "32")
