"""Campaign of random chains of quantized TFLite operators against LiteRT's reference kernels.

    python -m tests.support.tflite.chain_campaign --count 20000
    python -m tests.support.tflite.chain_campaign --only 4711

Each chain is converted for BM1686 and run by both engines; every integer must equal the one of the reference kernels.
The kernels run in a process of their own, because some models end it; so does the conversion. The outcome of a chain is
one of ``OUTCOMES``. The command prints their counts, and the seed and reason of each chain that is a finding.
Without ``--seed`` the first seed is random, and printed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import pickle
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tpuconvert as tc
from tests.support import programs
from tests.support.fresh_seed import fresh_seed
from tests.support.tflite.chains import arrays_of, make_chain, model_of
from tests.support.tflite.models import S, serialize

OUTCOMES = ("equal", "refused", "different", "crashed", "not comparable")
"""Results of a chain. ``not comparable``: LiteRT refuses the model or its process ends."""

FINDINGS = ("refused", "different", "crashed")

_CHANNELS_FIRST = 6
"""Every sixth model has inputs and outputs with channels first."""

_OTHER_CHIPS = 6
"""Every sixth model is also converted for the chips whose rounding differs."""

_COLLECTED = 200
"""Chains between two garbage collections."""


class Oracle:
    """The reference kernels in a process of their own, which is started again when it ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, model: bytes, arrays: dict[str, Any]) -> list[Any] | str:
        """Return the outputs in the order of the model, or the reason for which there are none."""
        if self._process is None:
            command = programs.command(__spec__.name, "--oracle")
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=programs.environment(),
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump((model, arrays), process.stdin)
            process.stdin.flush()
            found: list[Any] | str = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            self.close()
            return f"the process of the reference kernels ended with code {process.returncode}"
        return found

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            self._process.wait()
            self._process = None


def serve_oracle() -> None:
    """Run models of the standard input until it ends."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    source, target = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            model, arrays = pickle.load(source)
        except EOFError:
            return
        try:
            # Without all tensors, LiteRT lets an operator write into the buffer of a reshape that is still read.
            interpreter = Interpreter(
                model_content=model,
                experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
                experimental_preserve_all_tensors=True,
            )
            interpreter.allocate_tensors()
            for detail in interpreter.get_input_details():
                interpreter.set_tensor(detail["index"], arrays[detail["name"]])
            interpreter.invoke()
            answer: Any = [np.array(interpreter.get_tensor(item["index"])) for item in interpreter.get_output_details()]
        except (RuntimeError, ValueError) as error:
            answer = f"{error}"
        pickle.dump(answer, target)
        target.flush()


def run_chain(seed: int, oracle: Oracle) -> tuple[str, str]:
    """Return outcome and reason of the chain of a seed."""
    chain = make_chain(seed)
    subgraph, arrays = model_of(chain), arrays_of(chain, seed)
    outcome = compare(subgraph, arrays, oracle, keep_io_layout=seed % _CHANNELS_FIRST != 1)
    if outcome[0] != "equal" or seed % _OTHER_CHIPS != 2:
        return outcome
    # arg of BM1682 has no integer result.
    has_positions = any(operator.name == "ARG_MAX" for operator in subgraph.operators)
    chips = ("bm1684",) if has_positions else ("bm1684", "bm1682")
    reasons = (_on_chip(subgraph, arrays, chip) for chip in chips)
    return next((reason for reason in reasons if reason[0] != "equal"), outcome)


def _on_chip(subgraph: S, arrays: dict[str, Any], chip: str) -> tuple[str, str]:
    """Return outcome and reason on a chip that rounds in another way: shapes and types are compared."""
    model = serialize(subgraph)
    wanted = [subgraph.tensors[index] for index in subgraph.outputs]

    def check() -> str:
        results = _results(tc.convert(model, chip=chip), arrays)
        for tensor, *found in zip(wanted, *results.values(), strict=True):
            for array in found:
                if array.shape != tuple(tensor.shape) or array.dtype.name.upper() != tensor.type:
                    return f"'{tensor.name}' is {array.dtype}{array.shape}"
        return ""

    outcome, reason = _outcome(check)
    return outcome, f"{chip}: {reason}"


def compare(subgraph: S, arrays: dict[str, Any], oracle: Oracle, *, keep_io_layout: bool = True) -> tuple[str, str]:
    """Return outcome and reason of a model for BM1686."""
    model = serialize(subgraph)
    wanted = oracle.run(model, arrays)
    if isinstance(wanted, str):
        return "not comparable", wanted
    expected = wanted

    def check() -> str:
        given = arrays if keep_io_layout else {name: _channels_first(array) for name, array in arrays.items()}
        outputs = expected if keep_io_layout else [_channels_first(array) for array in expected]
        results = _results(tc.convert(model, source_options=tc.SourceOptions(keep_io_layout=keep_io_layout)), given)
        reasons = ((backend, _difference(found, outputs)) for backend, found in results.items())
        return next((f"{backend}: {reason}" for backend, reason in reasons if reason), "")

    return _outcome(check)


def _channels_first(array: Any) -> Any:
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def _results(model: tc.Model, arrays: dict[str, Any]) -> dict[str, list[Any]]:
    """Outputs of both engines, in the order of the model."""
    found = {}
    for backend in ("native", "reference"):
        with tc.Session(model, backend=backend) as session:  # type: ignore[arg-type]  # one of its names
            results = session.run(arrays)
            found[backend] = [results[port.name] for port in session.outputs]
    return found


def _outcome(check: Callable[[], str]) -> tuple[str, str]:
    """Return outcome and reason of a function that converts and runs a model, and returns what differs."""
    try:
        reason = check()
        if reason:
            return "different", reason
    except tc.InternalError as error:
        return "crashed", f"{error}"
    except tc.TpuConvertError as error:
        return "refused", f"{error}"
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error}"
    return "equal", ""


def _difference(found: list[Any], wanted: list[Any]) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} outputs, expected {len(wanted)}"
    for index, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return f"output {index}: {mine.dtype}{mine.shape}, expected {theirs.dtype}{theirs.shape}"
        apart = np.abs(mine.astype(np.float64) - theirs.astype(np.float64))
        if apart.any():
            return f"output {index}: {int((apart != 0).sum())} of {apart.size} differ, by {apart.max():g} at most"
    return ""


def describe(seed: int) -> str:
    """Operators of a chain, with the shapes and types of their results."""
    subgraph = model_of(make_chain(seed))
    lines = []
    for operator in subgraph.operators:
        names = [subgraph.tensors[index] for index in operator.inputs]
        reads = ", ".join(t.name if t.data is None else f"{t.name}{list(t.array.shape)}" for t in names)
        results = ", ".join(
            f"{t.name}:{t.type}{list(t.shape)} {[f'{s:.4g}' for s in t.scale]}{list(t.zero_point)}"
            for t in (subgraph.tensors[index] for index in operator.outputs)
        )
        options = {name: value for name, value in operator.options.items() if value}
        lines.append(f"    {operator.name}({reads}) {options or ''} -> {results}")
    outputs = ", ".join(subgraph.tensors[index].name for index in subgraph.outputs)
    inputs = ", ".join(
        f"{t.name}:{t.type}{list(t.shape)}" for t in (subgraph.tensors[index] for index in subgraph.inputs)
    )
    return "\n".join([f"    inputs {inputs}", *lines, f"    outputs {outputs}"])


@dataclass
class Result:
    """Outcomes of a campaign."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str, str]] = field(default_factory=list)
    operators: int = 0

    def add(self, record: dict[str, Any]) -> None:
        """Count a record of a worker."""
        self.counts[record["outcome"]] += 1
        self.operators += record["operators"]
        done = sum(self.counts.values())
        if done % 1000 == 0:
            print(f"{done:,} chains, {len(self.findings)} findings", file=sys.stderr, flush=True)
        if record["outcome"] in FINDINGS:
            self.findings.append((record["seed"], record["outcome"], record["reason"]))
            print(f"{record['seed']}: {record['outcome']}: {kind_of(record['reason'])}", file=sys.stderr, flush=True)


def run_campaign(first: int, count: int, seconds: float = float("inf")) -> Result:
    """Run chains in worker processes; a worker that dies is a crash of the chain that it had begun."""
    result, seed, until = Result(), first, time.monotonic() + seconds
    while seed < first + count and time.monotonic() < until:
        words = ["--worker", str(seed), str(first + count)]
        command = programs.command(__spec__.name, *words, options=("-X", "faulthandler"))
        worker = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=programs.environment()
        )
        for record in _records(worker):
            if "outcome" in record:
                result.add(record)
            seed = record["seed"] + ("outcome" in record)
            if time.monotonic() > until:
                worker.terminate()
                break
        else:
            worker.wait()
            if seed < first + count:
                reason = f"the process ended with code {worker.returncode}"
                result.add({"seed": seed, "outcome": "crashed", "reason": reason, "operators": 0})
                seed += 1
        worker.communicate()
    return result


def _records(worker: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert worker.stdout is not None
    for line in worker.stdout:
        yield json.loads(line)


def serve_worker(first: int, end: int) -> None:
    """Run chains in this process, and print a record before and after each."""
    oracle = Oracle()
    gc.disable()  # conversions of small models would take twice as long
    try:
        for seed in range(first, end):
            if seed % _COLLECTED == 0:
                gc.collect()
            print(json.dumps({"seed": seed}), flush=True)
            outcome, reason = run_chain(seed, oracle)
            operators = len(make_chain(seed).operators)
            record = {"seed": seed, "outcome": outcome, "reason": reason, "operators": operators}
            print(json.dumps(record), flush=True)
    finally:
        oracle.close()


def kind_of(reason: str) -> str:
    """Shorten a reason to its kind: no names, numbers or shapes."""
    text = re.sub(r"'[^']*'|\[[^]]*\]|\([^)]*\)", "_", " ".join(reason.split()))
    return re.sub(r"\d+", "N", text)[:150]


def main(arguments: list[str]) -> int:
    """Run a campaign. Return 1 if there is a finding."""
    if arguments[:1] == ["--oracle"]:
        serve_oracle()
        return 0
    if arguments[:1] == ["--worker"]:
        serve_worker(int(arguments[1]), int(arguments[2]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="of the first chain; fresh by default")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the time after which no chain begins")
    parser.add_argument("--only", type=int, help="describe and run the chain of this seed")
    given = parser.parse_args(arguments)
    if given.only is not None:
        oracle = Oracle()
        outcome, reason = run_chain(given.only, oracle)
        oracle.close()
        print(f"{given.only}: {outcome} {reason}\n{describe(given.only)}")
        return int(outcome in FINDINGS)
    first = fresh_seed() if given.seed is None else given.seed
    print(f"seeds {first} to {first + given.count - 1}", flush=True)
    result = run_campaign(first, given.count, given.seconds)
    print(", ".join(f"{result.counts[name]:,} {name}" for name in OUTCOMES), f"({result.operators:,} operators)")
    kinds: dict[str, list[tuple[int, str]]] = {}
    for seed, outcome, reason in result.findings:
        kinds.setdefault(f"{outcome}: {kind_of(reason)}", []).append((seed, reason))
    for kind, cases in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(cases)} x {kind}\n    seeds {', '.join(str(seed) for seed, _ in cases[:8])}")
        print(f"    {' '.join(cases[0][1].split())[:300]}")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
