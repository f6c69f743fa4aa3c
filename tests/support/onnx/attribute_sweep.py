"""A sweep of random ONNX nodes (``attribute_cases``) against onnxruntime.

``python -m tests.support.onnx.attribute_sweep [--seed N] [--count N] [--operators A,B]`` runs a sweep.
Its seed is fresh by default.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

import tpuconvert as tc
from tests.support.fresh_seed import fresh_seed
from tests.support.onnx.attribute_cases import NodeCase, cases
from tpuconvert.schema.errors import TpuConvertError, UnsupportedError
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case: ``same``, ``refused``, ``no oracle`` (onnxruntime has no result), or ``wrong``."""

    kind: str
    text: str = ""


def run_oracle(proto: onnx.ModelProto, feeds: Sequence[Array]) -> list[list[Array] | None]:
    """Results of onnxruntime without optimization for each input; None for an error."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    untyped = onnx.ModelProto()
    untyped.CopyFrom(proto)
    for value in untyped.graph.output:
        value.ClearField("type")
    try:
        session = onnxruntime.InferenceSession(untyped.SerializeToString(), settings, ["CPUExecutionProvider"])
    except Exception:  # its exceptions have no common class
        return [None] * len(feeds)
    found: list[list[Array] | None] = []
    for x in feeds:
        try:
            found.append([np.asarray(item) for item in session.run(None, {"x": x})])
        except Exception:  # as above; the case is counted as one without an oracle
            found.append(None)
    return found


def run_case(case: NodeCase, chip: str) -> Outcome:
    """Convert a case for a chip, run it, and compare with onnxruntime."""
    proto, feeds = case.model(), case.feeds()
    expected = run_oracle(proto, feeds)
    if all(item is None for item in expected):
        return Outcome("no oracle")
    try:
        model = tc.convert(proto, chip=chip)
    except UnsupportedError as error:
        problem = error.problems[0]
        return Outcome("refused", f"{problem.kind.heading}: {problem.message}")
    except Exception as error:
        return Outcome("wrong", f"conversion: {type(error).__name__}: {error}")
    with tc.Session(model, threads=1) as session:
        for x, wanted in zip(feeds, expected, strict=True):
            if wanted is None:
                continue
            try:
                found = session.run({"x": x})
            except TpuConvertError as error:
                if not all(item.size for item in wanted):
                    return Outcome("refused", "a run whose result is empty")
                return Outcome("wrong", f"run with {list(x.shape)}: {error}")
            except Exception as error:
                return Outcome("wrong", f"run with {list(x.shape)}: {type(error).__name__}: {error}")
            for k, want in enumerate(wanted):
                if text := difference(found[f"y{k}"], want):
                    return Outcome("wrong", f"y{k} of {list(x.shape)}: {text}")
    return Outcome("same")


def difference(got: Array, want: Array) -> str:
    """Text about the difference of two arrays, empty if they are equal up to the rounding of sums in another order."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if not want.size:
        return ""
    if want.dtype.kind != "f":
        return "" if np.array_equal(got, want) else f"{int((got != want).sum())} of {want.size} integers differ"
    largest = float(np.max(np.abs(want), initial=0.0, where=np.isfinite(want)))
    good = np.isclose(got, want, rtol=1e-3, atol=1e-4 * max(largest, 0.1), equal_nan=True)
    return "" if good.all() else f"{int((~good).sum())} of {want.size} values differ"


def main(arguments: Sequence[str]) -> int:
    """Run a sweep; print each wrong case, and the refusals by reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="a fresh one by default")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--operators", default="")
    parser.add_argument("--refused", action="store_true", help="print every refused case")
    given = parser.parse_args(arguments)
    seed = fresh_seed() if given.seed is None else given.seed
    print(f"seed {seed}")
    counts: Counter[str] = Counter()
    refusals: Counter[tuple[str, str]] = Counter()
    for case, chip in cases(seed, given.count, [name for name in given.operators.split(",") if name]):
        outcome = run_case(case, chip)
        counts[outcome.kind] += 1
        if outcome.kind == "wrong":
            print(f"WRONG {chip} {case}: {outcome.text}", flush=True)
        elif outcome.kind == "refused":
            refusals[case.op, outcome.text] += 1
            if given.refused:
                print(f"refused {chip} {case}: {outcome.text}")
    for (op, text), number in sorted(refusals.items()):
        print(f"{number:5} refused {op}: {text}")
    print(dict(counts))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    sys.exit(main(sys.argv[1:]))
