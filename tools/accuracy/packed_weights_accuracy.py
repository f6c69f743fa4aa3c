"""Accuracy of packed weights: cosine similarity of the logits of a random decoder, or perplexity of a trained one.

    python -m tools.accuracy.packed_weights_accuracy [--width 256] [--layers 4] [--samples 24]
    python -m tools.accuracy.packed_weights_accuracy --decoder FOLDER [--samples 32]

Prints a table. For a random decoder with outlier channels: weight type, group size, zero points, activation type,
samples, cosine similarity to the float model, and the share of tokens with the same largest logit. For a decoder of
``python -m tools.zoo.decoders train FOLDER``: perplexity of held-out text, its change from 8 bits, bits per weight, and
seconds of CPU of the conversion. Samples for the rounding are text that the decoder was trained on.
"""

from __future__ import annotations

import argparse
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tools.accuracy.perplexity import rows
from tpuconvert.schema.types import Array

VOCABULARY = 500
HEADS = 4
OUTLIERS = 4
"""Channels per layer whose activations are 20 times as large, as in trained language models."""


class DecoderBuilder:
    """Collects nodes and constants of a decoder with random weights."""

    def __init__(self, width: int) -> None:
        self.random = np.random.default_rng(0)
        self.width = width
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: Array) -> str:
        """Add a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{op}_{name}", **attributes))
        return name

    def linear(self, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        """Add a linear layer without bias."""
        weight = self.random.normal(size=(inputs, outputs)) * gain / math.sqrt(inputs)
        return self.add("MatMul", x, self.constant(weight.astype(np.float32)))

    def norm(self, x: str) -> str:
        """Add a layer normalization with outlier channels."""
        scale = self.random.uniform(0.5, 1.5, self.width).astype(np.float32)
        scale[self.random.choice(self.width, OUTLIERS, replace=False)] *= 20
        zeros = self.constant(np.zeros(self.width, np.float32))
        return self.add("LayerNormalization", x, self.constant(scale), zeros, axis=-1)

    def heads(self, x: str) -> str:
        """Split the channels into heads."""
        shape = self.constant(np.array([0, -1, HEADS, self.width // HEADS], np.int64))
        return self.add("Transpose", self.add("Reshape", x, shape), perm=[0, 2, 1, 3])

    def layer(self, x: str) -> str:
        """Add attention and a gated feed-forward network, both with residuals."""
        width, normal = self.width, self.norm(x)
        query, key, value = (self.heads(self.linear(normal, width, width)) for _ in range(3))
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[0, 1, 3, 2]))
        factor = self.constant(np.array(1 / math.sqrt(width // HEADS), np.float32))
        scores = self.add("Add", self.add("Mul", scores, factor), "mask")
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        joined = self.constant(np.array([0, -1, width], np.int64))
        mixed = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = self.add("Add", x, self.linear(mixed, width, width, 0.5))
        inner = self.linear(self.norm(x), width, 4 * width)
        inner = self.add("Mul", inner, self.add("Sigmoid", inner))
        return self.add("Add", x, self.linear(inner, 4 * width, width, 0.5))


def make_decoder(width: int, layers: int) -> onnx.ModelProto:
    """Return a decoder for token ids and an additive mask; the number of tokens is dynamic."""
    g = DecoderBuilder(width)
    table = g.constant(g.random.normal(size=(VOCABULARY, width)).astype(np.float32))
    x = g.add("Gather", table, "ids")
    for _ in range(layers):
        x = g.layer(x)
    g.linear(g.norm(x), width, VOCABULARY)
    g.nodes[-1].output[0] = "logits"
    ports = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "T"]),
        helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, "T", "T"]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, "T", VOCABULARY]),
    ]
    graph = helper.make_graph(g.nodes, "decoder", ports[:2], ports[2:], g.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def make_feeds(count: int, tokens: int, seed: int) -> list[dict[str, Array]]:
    """Return random tokens with a causal mask."""
    rng = np.random.default_rng(seed)
    mask = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)[None, None]
    return [{"ids": rng.integers(0, VOCABULARY, (1, tokens)), "mask": mask} for _ in range(count)]


def logits_of(model: tc.Model, feeds: list[dict[str, Array]]) -> Array:
    """Return the logits of all tokens."""
    with tc.Session(model) as session:
        return np.concatenate([session.run(feed)["logits"][0] for feed in feeds]).astype(np.float64)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--samples", type=int, help="default 24, or 32 for --decoder")
    parser.add_argument("--decoder", type=Path, help="folder with decoder.onnx and tokens.npz")
    parser.add_argument("--held-out", type=int, default=64, help="samples of 256 tokens for --decoder")
    args = parser.parse_args()
    if args.decoder is not None:
        print("| weights | zero points | samples | perplexity | change from int8 | bits per weight | CPU seconds |")
        print("|---" * 7 + "|")
        for row in rows(args.decoder, args.held_out, args.samples or 32):
            print(row, flush=True)
        return
    decoder = make_decoder(args.width, args.layers)
    test, samples = make_feeds(6, 48, 1), make_feeds(args.samples or 24, 32, 2)
    exact = logits_of(tc.convert(decoder), test)
    print("| weights | group | zero points | activations | samples | cosine | same token |")
    print("|---|---|---|---|---|---|---|")
    for kind, group, zero, activations, calibration in itertools.product(
        ("int4", "int8"), (32, 128), (False, True), ("float32", "int8"), (None, samples)
    ):
        model = tc.convert(
            decoder,
            calibration=calibration,
            packed_weights=tc.PackedWeights(
                weight_type=kind, weight_group=group, weight_zero_points=zero, activation_type=activations
            ),
        )
        logits = logits_of(model, test)
        cosine = (logits * exact).sum() / math.sqrt((logits**2).sum() * (exact**2).sum())
        same = (logits.argmax(axis=1) == exact.argmax(axis=1)).mean()
        has_zero, count = "yes" if zero else "no", "no" if calibration is None else len(calibration)
        print(f"| {kind} | {group} | {has_zero} | {activations} | {count} | {cosine:.4f} | {same:.1%} |", flush=True)


if __name__ == "__main__":
    main()
