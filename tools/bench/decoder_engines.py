"""Tokens per CPU second of an exported decoder with 4-bit weights: tpuconvert, llama.cpp and ONNX Runtime, in one run.

    pip install '.[bench]'
    python -m tools.zoo.decoders make FOLDER --families smollm135m --exporters torchscript --match mask-open-caches
    python -m tools.bench.decoder_engines FOLDER/smollm135m-torchscript-mask-open-caches.onnx [FILE.tpum ...] [--cpu 0]
        [--rounds 7] [--gguf-type Q4_1] [--float-activations] [--others FILE.onnx ...]

The export is a Llama decoder of the TorchScript exporter, with `attention_mask`; `--others` are exports of the same
decoder in other forms, which llama.cpp does not need. All engines get its weights:

- tpuconvert: 4 bits in groups of 32, the tied embedding in 8 bits, INT8 activations. `Session.run`, as `tpuconvert
  generate` does. With `--float-activations` also without INT8. Further `.tpum` files, such as of other exporters, are
  measured as well.
- llama.cpp of the package `xllamacpp`: a GGUF file with Q4_1 and the tied embedding in Q8_0. Its server runs in this
  process; the times of decoding are differences of two completions.
- ONNX Runtime: the export after `matmul_nbits_quantizer` with groups of 32 and `accuracy_level` 4. The head has 4 bits,
  the embedding is in float32. Caches are passed from run to run without a copy.

Every engine runs on one thread and the same processor, in turns in one process. CPU seconds are user and system time of
the process. In each round, every engine gets prompts of 128 and 512 tokens, and generates 64 tokens after the first of
them, always the most likely one. Ratios are medians over the rounds, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Protocol

import gguf
import numpy as np
import onnx
import onnxruntime
import xllamacpp
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

import tpuconvert as tc
from tools.bench.decoder_gguf import write_gguf
from tools.bench.machine import facts
from tpuconvert.schema.types import Array

GROUP, PROMPTS, STEPS = 32, (128, 512), 64
CONTEXT = max(PROMPTS) + STEPS

OWN, OWN_FLOAT, LLAMA, RUNTIME = "tpuconvert", "tpuconvert, float activations", "llama.cpp", "ONNX Runtime"


class Engine(Protocol):
    """A decoder in one engine."""

    def seconds(self, prompt: Array, steps: int) -> tuple[float, float]:
        """CPU seconds of a prompt, which ends with the first new token, and of further tokens."""


class Own:
    """A session of tpuconvert."""

    def __init__(self, model: tc.Model) -> None:
        self._session = tc.Session(model, threads=1)
        if self._session.replanning:
            raise SystemExit(f"every token needs a new plan: {self._session.replanning}")

    def seconds(self, prompt: Array, steps: int) -> tuple[float, float]:
        """CPU seconds of a prompt and of further tokens."""
        self._session.reset()
        return timed(self._run, prompt, steps)

    def _run(self, ids: Array) -> Array:
        logits: Array = self._session.run({"input_ids": ids})["logits"]
        return logits


def packed(export: Path, activation_type: Literal["float32", "int8"]) -> tc.Model:
    """Convert an export with weights of 4 bits."""
    options = tc.PackedWeights(weight_type="int4", weight_group=GROUP, activation_type=activation_type)
    return tc.convert(export, packed_weights=options)


class Runtime:
    """A session of ONNX Runtime whose caches stay in its memory."""

    def __init__(self, model: onnx.ModelProto) -> None:
        quantizer = MatMulNBitsQuantizer(model, block_size=GROUP, is_symmetric=True, accuracy_level=4)
        quantizer.process()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            quantizer.model.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = [port for port in self._session.get_inputs() if port.name.startswith("past_key_values")]
        self._has_positions = any(port.name == "position_ids" for port in self._session.get_inputs())
        self._outputs = [port.name for port in self._session.get_outputs()]
        self._caches: dict[str, Any] = {}
        self._length = 0

    def seconds(self, prompt: Array, steps: int) -> tuple[float, float]:
        """CPU seconds of a prompt and of further tokens."""
        self._length = 0
        for port in self._inputs:
            empty = np.zeros((1, port.shape[1], 0, port.shape[3]), np.float32)
            self._caches[port.name] = onnxruntime.OrtValue.ortvalue_from_numpy(empty)
        return timed(self._run, prompt, steps)

    def _run(self, ids: Array) -> Array:
        self._length += ids.shape[1]
        feeds = {"input_ids": ids, "attention_mask": np.ones((1, self._length), np.int64)}
        if self._has_positions:
            feeds["position_ids"] = np.arange(self._length - ids.shape[1], self._length, dtype=np.int64)[None]
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        results = dict(
            zip(self._outputs, self._session.run_with_ort_values(self._outputs, values | self._caches), strict=True)
        )
        self._caches = {port.name: results[port.name.replace("past_key_values", "present")] for port in self._inputs}
        logits: Array = results["logits"].numpy()
        return logits


class Llama:
    """The server of llama.cpp in this process, without a socket."""

    def __init__(self, path: Path) -> None:
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch, parameters.n_parallel = CONTEXT, 512, 512, 1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
        parameters.cache_prompt = parameters.fit_params = False
        parameters.cache_ram_mib = parameters.n_ctx_checkpoints = parameters.verbosity = 0
        self._server = xllamacpp.Server(parameters)

    def seconds(self, prompt: Array, steps: int) -> tuple[float, float]:
        """CPU seconds of a prompt and of further tokens: the difference of a completion with and without them."""
        first = self._complete(prompt, 1)
        return first, self._complete(prompt, 1 + steps) - first if steps else 0.0

    def _complete(self, prompt: Array, tokens: int) -> float:
        request = {
            "prompt": prompt[0].tolist(),
            "n_predict": tokens,
            "samplers": ["top_k"],
            "top_k": 1,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        start = time.process_time()
        answer = self._server.handle_completions(request)
        seconds = time.process_time() - start
        timings = (json.loads(answer) if isinstance(answer, str) else answer)["timings"]
        if (timings["prompt_n"], timings["predicted_n"]) != (prompt.shape[1], tokens):
            raise SystemExit(f"llama.cpp computed other numbers of tokens: {timings}")
        return seconds


def timed(run: Callable[[Array], Array], prompt: Array, steps: int) -> tuple[float, float]:
    """CPU seconds of a prompt, and of the tokens that follow it."""
    times = [time.process_time()]
    ids = prompt
    for _ in range(1 + steps):
        ids = run(ids)[:, -1:].argmax(-1)
        times.append(time.process_time())
    return times[1] - times[0], times[-1] - times[1]


def measure(
    engines: dict[str, Engine], vocabulary: int, rounds: int, prompts: tuple[int, ...]
) -> dict[tuple[str, str], list[float]]:
    """Tokens per CPU second of all rounds but the first, by phase and engine."""
    rng = np.random.default_rng(0)
    longest = rng.integers(3, vocabulary, (1, max(prompts)), np.int64)
    rates: dict[tuple[str, str], list[float]] = {}
    names = list(engines)
    for number in range(rounds + 1):
        for length in prompts:
            steps = STEPS if length == prompts[0] else 0
            for name in names[number % len(names) :] + names[: number % len(names)]:
                prefill, decode = engines[name].seconds(longest[:, :length], steps)
                if number:  # the first round warms up
                    rates.setdefault((f"prefill of {length}", name), []).append(length / prefill)
                    if steps:
                        rates.setdefault((f"decode after {length}", name), []).append(steps / decode)
    return rates


def spread(values: Iterable[float]) -> str:
    """Median of ratios, with the smallest and the largest."""
    ratios = list(values)
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


def print_rates(rates: dict[tuple[str, str], list[float]], names: Iterable[str]) -> None:
    """Print a row per phase: tokens per CPU second of each engine, and ratios to the other engines."""
    engines = list(names)
    pairs = [
        (own, peer)
        for own in engines
        if not own.startswith((LLAMA, RUNTIME))
        for peer in (LLAMA, RUNTIME + own.removeprefix(OWN) if RUNTIME + own.removeprefix(OWN) in engines else RUNTIME)
    ]
    heads = [*engines, *(f"{own} / {peer}" for own, peer in pairs)]
    print("\n| phase | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 1) + "|")
    for phase in dict.fromkeys(phase for phase, _ in rates):
        cells = [f"{statistics.median(rates[phase, name]):.0f}" for name in engines]
        for own, peer in pairs:
            cells.append(spread(a / b for a, b in zip(rates[phase, own], rates[phase, peer], strict=True)))
        print(f"| {phase} | " + " | ".join(cells) + " |")


def main() -> None:
    """Print a table of rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path, help="ONNX file of a Llama decoder, from `tools.zoo.decoders make`")
    parser.add_argument("files", type=Path, nargs="*", help="further `.tpum` files of decoders")
    parser.add_argument(
        "--others",
        type=Path,
        nargs="+",
        default=[],
        help="exports of the same decoder, for tpuconvert and ONNX Runtime",
    )
    parser.add_argument("--cpu", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompts", type=int, nargs="+", default=PROMPTS, help="lengths; 64 tokens follow the first")
    parser.add_argument("--float-activations", action="store_true", help="measure tpuconvert without INT8, too")
    parser.add_argument("--gguf-type", default="Q4_1", help="type of the weights for llama.cpp, such as Q4_0")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.cpu})
    for name, value in facts(("xllamacpp", "gguf")).items():
        print(f"{name}: {value}")
    print(f"llama.cpp: {xllamacpp.get_system_info()}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proto = onnx.load(args.export)
        vocabulary = proto.graph.output[0].type.tensor_type.shape.dim[2].dim_value
        file = folder / "decoder.gguf"
        write_gguf(proto, file, context=CONTEXT, weights=gguf.GGMLQuantizationType[args.gguf_type])
        print(f"GGUF file: {file.stat().st_size / 1e6:.1f} MB, {args.gguf_type}")
        engines: dict[str, Engine] = {OWN: Own(packed(args.export, "int8"))}
        if args.float_activations:
            engines[OWN_FLOAT] = Own(packed(args.export, "float32"))
        engines |= {path.stem: Own(tc.load(path)) for path in args.files}
        logging.disable(logging.INFO)  # the quantizer of ONNX Runtime names every node
        engines |= {LLAMA: Llama(file), RUNTIME: Runtime(proto)}
        del proto
        for path in args.others:
            engines[f"{OWN}, {path.stem}"] = Own(packed(path, "int8"))
            engines[f"{RUNTIME}, {path.stem}"] = Runtime(onnx.load(path))
        print_rates(measure(engines, vocabulary, args.rounds, tuple(args.prompts)), engines)


if __name__ == "__main__":
    main()
