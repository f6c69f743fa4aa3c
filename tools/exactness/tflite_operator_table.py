"""Write the tables of exact and inexact operators of docs/reference/tflite.md.

    python -m tools.exactness.tflite_operator_table [--check] [--quick]

Every quantized operator is converted for BM1686 and compared with the reference kernels of ``ai-edge-litert`` on the
samples of ``tests/support/tflite/sweep.py``; this takes about five minutes. With ``--check`` nothing is written: the
exit code is 1 when the page differs from the run. ``--quick`` runs a few samples of each operator and only checks that
the page does not promise more than they show.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tests.support.tflite.integer_cases import EXCEPTIONS
from tests.support.tflite.models import serialize
from tests.support.tflite.sweep import REASONS, Sample, samples
from tools.exactness.tflite_exactness import Line, Oracle, outputs_by_name
from tools.pages.generated_file import replace_section, section

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "tflite.md"
TOOL = "tools.exactness.tflite_operator_table"
COUNT = 4
"""Seeds of the whole run; each gives every variant of every operator and type."""

COMPUTATIONS: Mapping[str, tuple[str, ...]] = {
    "exact accumulators, requantized per channel; 16-bit activations as two 8-bit convolutions if the accumulator fits "
    "32 bits": ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"),
    "the steps of the kernel in INT32": ("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "PRELU"),
    "a lookup table of all pairs of operands, with the results of the kernel": ("DIV",),
    "both operands rescaled to a unit of 2^-8, as in the kernel; the order of 16-bit integers without their scales": (
        *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"),
    ),
    "a lookup table with the results of the kernel, 65,536 entries for 16 bits": (
        *(
            "RELU",
            "RELU6",
            "RELU_N1_TO_1",
            "RELU_0_TO_1",
            "LEAKY_RELU",
            "LOGISTIC",
            "TANH",
            "HARD_SWISH",
            "GELU",
            "EXP",
        ),
        *("LOG", "ABS", "SQRT", "RSQRT"),
    ),
    "a lookup table; the kernel negates the integers, without scale and zero point": ("NEG",),
    "the lookup tables of the kernel for exponential and reciprocal, at most 65,535 elements": ("SOFTMAX",),
    "float32, rounded once, as in the kernel": ("L2_NORMALIZATION", "REDUCE_PROD", "QUANTIZE", "DEQUANTIZE"),
    "exact accumulators and a memory of 16 bits; the sum over time in float32": ("SVDF",),
    "exact accumulators, one requantization or division": (
        *("MEAN", "SUM", "AVERAGE_POOL_2D", "MAX_POOL_2D", "REDUCE_MAX", "REDUCE_MIN", "MAXIMUM", "MINIMUM"),
    ),
    "gather and the arithmetic of the kernel: 10-bit weights, float32 for UINT8": ("RESIZE_BILINEAR",),
    "order of the integers": ("ARG_MAX", "ARG_MIN", "TOPK_V2"),
    "data movement; UINT8 operands of CONCATENATION are requantized as in the kernel": (
        *(
            "CONCATENATION",
            "PACK",
            "UNPACK",
            "PAD",
            "PADV2",
            "MIRROR_PAD",
            "RESHAPE",
            "SQUEEZE",
            "EXPAND_DIMS",
            "SLICE",
        ),
        *(
            "STRIDED_SLICE",
            "SPLIT",
            "SPLIT_V",
            "TRANSPOSE",
            "TILE",
            "BROADCAST_TO",
            "GATHER",
            "GATHER_ND",
            "REVERSE_V2",
        ),
        *("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "RESIZE_NEAREST_NEIGHBOR"),
        *("SELECT", "SELECT_V2", "DYNAMIC_UPDATE_SLICE", "REVERSE_SEQUENCE"),
    ),
}
"""How the exact operators are computed; every one of them is in one entry."""

_TYPES = ("INT8", "UINT8", "INT16")

DIFFERENCES: Mapping[tuple[str, str], tuple[str, int]] = {
    **{(name.upper(), dtype): (item.reason, item.steps) for (name, dtype), item in EXCEPTIONS.items()},
    **{key: (reason, 0) for key, reason in REASONS.items()},
}
"""Reason and largest difference in the longest run so far, by inexact operator and type. A short run may show none."""


@dataclass
class Result:
    """Comparison of one operator and type with its reference kernel."""

    op: str
    dtype: str
    line: Line = field(default_factory=lambda: Line(""))
    rejected: str = ""

    @property
    def is_exact(self) -> bool:
        """Return True if nothing differs, neither here nor, as far as known, in longer runs."""
        return self.line.is_exact and (self.op, self.dtype) not in DIFFERENCES

    @property
    def is_compared(self) -> bool:
        """Return True if the kernel accepted at least one sample."""
        return bool(self.line.elements)


def compare(sample: Sample, result: Result, folder: Path) -> None:
    """Add one sample to the result. A sample that the kernel rejects does not count."""
    file = folder / "model.tflite"
    file.write_bytes(serialize(sample.model))
    try:
        oracle = Oracle(file)
        feeds = sample.feeds or oracle.random_feeds(np.random.default_rng(result.line.elements))
        want = oracle.run(feeds)
    except (ValueError, RuntimeError) as error:
        result.rejected = str(error)
        return
    with tc.Session(tc.convert(file), backend="reference") as session:
        results = list(session.run(outputs_by_name(session, feeds)).values())
    for pair in zip(results, want, strict=True):
        result.line.add(*pair)
    if result.line.problem:
        sys.exit(f"{sample.op} of {sample.dtype}: {result.line.problem}")


def run(items: Iterable[Sample]) -> list[Result]:
    """Compare all samples. Return one result per operator and type, in the order of their first samples."""
    results: dict[tuple[str, str], Result] = {}
    with tempfile.TemporaryDirectory() as folder:
        for sample in items:
            result = results.setdefault((sample.op, sample.dtype), Result(sample.op, sample.dtype))
            compare(sample, result, Path(folder))
    return [result for result in results.values() if result.is_compared]


def exact_rows(results: Iterable[Result]) -> list[str]:
    """Rows of the exact operators, grouped by their computation."""
    exact: dict[str, list[Result]] = {}
    for result in results:
        if result.is_exact:
            exact.setdefault(result.op, []).append(result)
    rows = ["| operators | computation | elements compared |", "| --- | --- | --- |"]
    for text, names in COMPUTATIONS.items():
        exact_names = [name for name in names if name in exact]
        elements = sum(result.line.elements for name in exact_names for result in exact[name])
        if exact_names:
            rows.append(
                f"| {', '.join(_operator(name, exact[name]) for name in exact_names)} | {text} | {elements:,} |"
            )
    listed = {name for names in COMPUTATIONS.values() for name in names}
    if missing := [name for name in exact if name not in listed]:
        sys.exit(f"{TOOL}: COMPUTATIONS lacks {', '.join(missing)}")
    return rows


def _operator(name: str, results: list[Result]) -> str:
    types = [dtype for dtype in _TYPES if any(result.dtype == dtype for result in results)]
    return f"`{name}`" if types == list(_TYPES) or not types else f"`{name}` ({', '.join(types)})"


def inexact_rows(results: Iterable[Result]) -> list[str]:
    """Rows of the inexact operators, with the reasons of the tests."""
    rows = [
        "| operator | type | largest difference | elements that differ | reason |",
        "| --- | --- | --- | --- | --- |",
    ]
    missing: list[str] = []
    for result in sorted(results, key=lambda item: (item.op, item.dtype)):
        if result.is_exact:
            continue
        reason, recorded = DIFFERENCES.get((result.op, result.dtype), (None, 0))
        if reason is None:
            missing.append(f"{result.op} of {result.dtype}: {result.line}")
            continue
        largest = max(int(result.line.largest), recorded)
        steps = f"{largest} step{'s' if largest != 1 else ''}"
        share = f"{result.line.different:,} of {result.line.elements:,}"
        rows.append(f"| `{result.op}` | {result.dtype} | {steps} | {share} | {reason} |")
    if missing:
        sys.exit("\n".join([f"{TOOL}: the tests have no reason for these differences:", *missing]))
    return rows


def sections(results: list[Result]) -> dict[str, list[str]]:
    """The generated sections of the page."""
    return {"exact operators": exact_rows(results), "inexact operators": inexact_rows(results)}


def broken_promises(results: Iterable[Result], text: str) -> list[str]:
    """Operators of a short run that differ although the page lists them as exact, or that the page lacks."""
    exact = section(PAGE, text, "exact operators", TOOL)
    inexact = section(PAGE, text, "inexact operators", TOOL)
    sentences = []
    for result in results:
        is_listed = f"| `{result.op}` | {result.dtype} |" in inexact
        if not is_listed and f"`{result.op}`" not in exact:
            sentences.append(f"{result.op} of {result.dtype} is in no table")
        elif not is_listed and not result.is_exact:
            sentences.append(f"{result.op} of {result.dtype} is listed as exact: {result.line}")
    return sentences


def main(arguments: list[str] | None = None) -> int:
    """Write or check the tables. Return 1 if the page is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the page is out of date")
    parser.add_argument("--quick", action="store_true", help="run a few samples, and check what they can show")
    options = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8")
    if options.quick:
        problems = broken_promises(run(samples(1)), text)
        print("\n".join(problems), file=sys.stderr if problems else sys.stdout)
        return 1 if problems else 0
    new = text
    for name, rows in sections(run(samples(COUNT))).items():
        new = replace_section(PAGE, new, name, TOOL, rows)
    if new == text:
        return 0
    if options.check:
        print(f"{PAGE.name} is out of date: run python -m {TOOL}", file=sys.stderr)
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
