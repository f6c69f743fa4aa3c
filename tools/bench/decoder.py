"""Time and memory of a random decoder with 4-bit weights and key-value caches, against ONNX Runtime, on one processor.

    pip install '.[bench]'
    python -m tools.bench.decoder [--cpu 0] [--rounds 7] [--layers 8] [--heads 8] [--hidden 1536] [--vocabulary 8192]
        [--activation-type int8] [--accuracy-level 4]

The decoder has MatMulNBits with groups of 32, GroupQueryAttention with rotary embeddings, and SwiGLU. Both engines run
it in turns in the same process; the time of a token is the median of 32. ONNX Runtime keeps the caches in buffers of
the largest length that are inputs and outputs at once (I/O binding); tpuconvert keeps them in the session. Ratios are
medians over the rounds of the time of ONNX Runtime divided by the time of tpuconvert, with the smallest and the largest
ratio. Memory is the resident memory of the process, without ONNX Runtime, in a session that computes a long prompt in
chunks.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import tpuconvert as tc
from tests.support.networks.decoders import MICROSOFT, Decoder
from tools.bench.machine import facts
from tpuconvert.schema.types import Array

GROUP = 32
PROMPT, STEPS, CONTEXT = 128, 32, 2048


class PackedDecoder(Decoder):
    """A decoder whose linear layers are MatMulNBits, also the last one."""

    accuracy_level = 0

    def _linear(self, x: str, name: str, rows: int, columns: int) -> str:
        groups = rows // GROUP
        self.constants[f"{name}.codes"] = self._random.integers(0, 256, (columns, groups, GROUP // 2), np.uint8)
        # The codes minus 8 have a standard deviation of 4.6.
        scale = self._random.uniform(0.5, 1.5, columns * groups) / (4.6 * np.sqrt(rows))
        self.constants[f"{name}.scale"] = scale.astype(np.float32)
        result: str = self.add(
            "MatMulNBits", [x, f"{name}.codes", f"{name}.scale"], domain="com.microsoft", K=rows, N=columns, bits=4,
            block_size=GROUP, accuracy_level=self.accuracy_level,
        )  # fmt: skip
        return result

    def _model(self) -> onnx.ModelProto:
        last, transpose = self.nodes.pop(), self.nodes.pop()
        assert [last.op_type, transpose.op_type] == ["MatMul", "Transpose"]
        logits = self._linear(last.input[0], "head", self.width, self.vocabulary)
        self.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
        model: onnx.ModelProto = super()._model()
        return model


class Peer:
    """ONNX Runtime with caches in buffers that are inputs and outputs."""

    def __init__(self, model: onnx.ModelProto, decoder: Decoder) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        shape = (1, decoder.kv_heads, PROMPT + STEPS, decoder.size)
        names = [decoder.cache_names(layer, part) for layer in range(decoder.layers) for part in ("key", "value")]
        self._caches = {pair: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)) for pair in names}
        self.length = 0

    def run(self, ids: Array) -> Array:
        """Return the logits of further tokens."""
        self.length += ids.shape[1]
        binding = self._session.io_binding()
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", np.ones((1, self.length), np.int64))
        binding.bind_output("logits")
        for (past, present), cache in self._caches.items():
            binding.bind_ortvalue_input(past, cache)
            binding.bind_ortvalue_output(present, cache)
        self._session.run_with_iobinding(binding)
        logits: Array = binding.get_outputs()[0].numpy()
        return logits


def seconds(run: Callable[[Array], object], ids: Array) -> float:
    """Wall time of a run."""
    start = time.perf_counter()
    run(ids)
    return time.perf_counter() - start


def resident() -> float:
    """Return the resident memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def print_memory(model: tc.Model, decoder: Decoder) -> None:
    """Print the memory of a session as its caches grow."""
    rng = np.random.default_rng(1)
    print("\n| tokens | caches MB | resident MB |\n|---|---|---|")
    with tc.Session(model, threads=1) as session:
        for length in range(PROMPT, CONTEXT + 1, PROMPT):
            # One token less than the capacity, which is doubled when the caches are full.
            session.run(rng.integers(0, decoder.vocabulary, (1, PROMPT - (length == PROMPT))))
            if length & (length - 1) == 0:
                caches = length * decoder.layers * 2 * decoder.kv_heads * decoder.size * 4 / 1e6
                print(f"| {length - 1} | {caches:.1f} | {resident():.1f} |", flush=True)


def compare(model: tc.Model, proto: onnx.ModelProto, decoder: Decoder, rounds: int) -> None:
    """Print the times of prefill and decode."""
    rng = np.random.default_rng(0)
    prompt, tokens = (rng.integers(0, decoder.vocabulary, (1, count)) for count in (PROMPT, STEPS))
    peer = Peer(proto, decoder)
    times: dict[str, tuple[list[float], list[float]]] = {"prefill": ([], []), "decode": ([], [])}
    with tc.Session(model, threads=1) as session:
        for number in range(rounds + 1):
            peer.length = 0
            session.reset()
            runs: tuple[Callable[[Array], object], ...] = (peer.run, session.run)
            found = {
                "prefill": [seconds(run, prompt) for run in runs],
                "decode": [
                    statistics.median(seconds(run, token) for token in np.split(tokens, STEPS, 1)) for run in runs
                ],
            }
            for phase, pair in found.items() if number else ():  # the first round warms up
                for values, value in zip(times[phase], pair, strict=True):
                    values.append(value)
    print("\n| phase | ONNX Runtime ms | tpuconvert ms | tokens/s | ratio |\n|---|---|---|---|---|")
    for phase, (peers, own) in times.items():
        ratios = [a / b for a, b in zip(peers, own, strict=True)]
        count = PROMPT if phase == "prefill" else 1
        print(
            f"| {phase} | {statistics.median(peers) * 1e3:.3f} | {statistics.median(own) * 1e3:.3f} | "
            f"{count / statistics.median(own):.0f} | {statistics.median(ratios):.2f} "
            f"[{min(ratios):.2f}, {max(ratios):.2f}] |"
        )


def main() -> None:
    """Print a table of times and one of memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--activation-type", choices=("float32", "int8"), default="int8", help="of tpuconvert")
    parser.add_argument("--accuracy-level", type=int, default=4, help="of MatMulNBits; 4 permits INT8 activations")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.cpu})
    decoder = PackedDecoder(
        MICROSOFT, args.layers, args.heads, max(1, args.heads // 2), 64, args.hidden, args.vocabulary
    )
    decoder.accuracy_level = args.accuracy_level
    proto = decoder.build()
    count = sum(2 * array.size for name, array in decoder.constants.items() if name.endswith(".codes"))
    model = tc.convert(proto, packed_weights=tc.PackedWeights(activation_type=args.activation_type))
    for name, value in facts().items():
        print(f"{name}: {value}")
    print(f"weights: {count / 1e6:.1f} million in 4 bits, width {decoder.width}, {args.layers} layers")
    print_memory(model, decoder)
    compare(model, proto, decoder, args.rounds)


if __name__ == "__main__":
    main()
