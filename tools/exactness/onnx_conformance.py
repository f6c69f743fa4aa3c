"""Run the backend test suite of the ``onnx`` package through our backend interface.

    python -m tools.exactness.onnx_conformance [--operators A,B] [--write]

Every case goes through the Backend interface of ``tpuconvert.conversion.onnx_backend``: prepare, run, compare with
the tolerances of the case. The outcomes are compared with those stored in docs/inside/onnx-conformance.json;
with ``--write`` they replace them, and the page docs/inside/conformance.md is made from the stored outcomes of all
cases.
Exit code 0 if every case passed or was refused with an error message, and no outcome is another than the stored one.
"""

import argparse
import hashlib
import json
import os
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from tools.pages.generated_file import replace_part
from tpuconvert.conversion import onnx_backend
from tpuconvert.schema.errors import UNKNOWN_SHAPE, TpuConvertError, UnsupportedError, UsageError

TOOL = "tools.exactness.onnx_conformance"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside" / "conformance.md"
STORE = PAGE.with_name("onnx-conformance.json")

FILE_KINDS = ("simple", "pytorch-operator", "pytorch-converted")
"""Cases that are stored as files in the ``onnx`` package; the cases of kind ``node`` are generated."""

PASSED = {
    "direct": "converted once, all inputs open",
    "specialized": "converted with the values of inputs that decide shapes or parameters",
    "evaluated": "nothing left to run: every input was such a value",
}
"""Outcomes that count as passed."""

FAILED = ("mismatch", "error", "timeout")

_NOISE = "expects the rounding noise of its generator: 1.9e-7 where the exact result is 0"
_LENGTH = "takes extent * scale without rounding as the new length; ONNX Runtime gives what is given here"

_POSITIONS = "reads positions in a smaller tensor than the standard says; ONNX Runtime gives what is given here"

_GENERATOR = "expects the numbers of its generator, which the standard does not define"

KNOWN = {
    "test_bernoulli_double_expanded": _GENERATOR,
    "test_bernoulli_expanded": _GENERATOR,
    "test_bernoulli_seed_expanded": _GENERATOR,
    "test_dft_inverse": _NOISE,
    "test_dft_inverse_opset19": _NOISE,
    "test_maxunpool_export_with_output_shape": _POSITIONS,
    "test_resize_downsample_scales_cubic_align_corners": _LENGTH,
    "test_resize_downsample_scales_linear_align_corners": _LENGTH,
}
"""Case whose results differ -> known reason."""

REMARKS = {
    "Stored cases": (
        "The four cases with numbers beyond FLOAT32 store what happened to be in memory: additions of doubles whose",
        "operands are addresses (6.9e-310) and remains of other arrays (2.4e198, 9.0e223), and whose expected",
        "results are their sums. DOUBLE is computed as FLOAT32 here, which ends at 3.4e38. The others need strings or",
        "training, which the operator set does not have: no more can pass.",
    )
}
"""Section of the page -> additional text."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one case.

    Attributes:
        name: name of the case.
        kind: kind of the case in the suite.
        outcome: key of PASSED, ``refused``, or one of FAILED.
        operator: operator that the reason refers to.
        reason: reason for a refusal or failure, without names and numbers of the case.
        detail: first line of the message.
    """

    name: str
    kind: str
    outcome: str
    operator: str = ""
    reason: str = ""
    detail: str = ""


class CaseTimeoutError(Exception):
    """A case took longer than allowed."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise CaseTimeoutError inside the block after this number of seconds; no effect without SIGALRM."""

    def stop(_: int, __: FrameType | None) -> None:
        raise CaseTimeoutError(f"{seconds:g} s")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def load_cases(kinds: Sequence[str]) -> list[Any]:
    """Load all cases of these kinds, in the order of their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cases with intended overflow in casts
        loaded = [case for kind in kinds for case in load_model_tests(kind=kind)]
    return sorted(loaded, key=lambda case: (case.kind, case.name))


def run_case(case: Any, seconds: float, options: dict[str, Any]) -> Outcome:
    """Run one case and return its outcome."""
    try:
        with time_limit(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            how = _compare(case, options)
    except UnsupportedError as error:
        problem = next((each for each in error.problems if each.kind is not UNKNOWN_SHAPE), error.problems[0])
        reason = _general(problem.message) or problem.kind.heading
        return Outcome(case.name, case.kind, "refused", problem.op, reason, problem.message)
    except UsageError as error:
        return Outcome(case.name, case.kind, "refused", "run", _general(error.message), error.message)
    except CaseTimeoutError as error:
        return Outcome(case.name, case.kind, "timeout", "", f"longer than {error}")
    except AssertionError as error:
        return Outcome(case.name, case.kind, "mismatch", "", KNOWN.get(case.name, "other numbers"), _first_lines(error))
    except TpuConvertError as error:
        return Outcome(case.name, case.kind, "error", "", type(error).__name__, _first_lines(error))
    except Exception as error:  # any other exception is a bug to report
        return Outcome(case.name, case.kind, "error", "", f"crash: {type(error).__name__}", _first_lines(error))
    return Outcome(case.name, case.kind, how)


def _compare(case: Any, options: dict[str, Any]) -> str:
    if case.model is not None:
        model, data_sets = case.model, case.data_sets
    else:
        model, data_sets = _read_case(Path(case.model_dir))
    prepared = onnx_backend.prepare(model, "CPU", **options)
    for inputs, expected in data_sets:
        outputs = prepared.run([_array(item) for item in inputs])
        Runner.assert_similar_outputs([_array(item) for item in expected], list(outputs), case.rtol, case.atol)
    if not prepared.known_inputs:
        return "direct"
    return "specialized" if prepared.open_inputs else "evaluated"


def _read_case(folder: Path) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """Load model and data of a case that is stored as files."""
    model = onnx.load(str(folder / "model.onnx"))
    data_sets = []
    for data in sorted(folder.glob("test_data_set*")):
        inputs = [_read(path, model.graph.input[k].type) for k, path in enumerate(_numbered_files(data, "input"))]
        outputs = [_read(path, model.graph.output[k].type) for k, path in enumerate(_numbered_files(data, "output"))]
        data_sets.append((inputs, outputs))
    return model, data_sets


def _numbered_files(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}_*.pb"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def _general(message: str) -> str:
    """Remove names and numbers from a message, to group equal reasons."""
    text = re.sub(r" \(?'[^']*'\)?", "", message)
    text = re.sub(r"\[[^\]]*\]", "[...]", text)
    return re.sub(r"\b\d{3,}\b", "N", text)


def _first_lines(error: BaseException) -> str:
    return " | ".join(line.strip() for line in str(error).splitlines() if line.strip())[:400]


def resume(path: Path | None) -> dict[str, Outcome]:
    """Return the outcomes of an earlier run. A case that was started but has no outcome crashed the process."""
    earlier: dict[str, Outcome] = {}
    if path is None or not path.exists():
        return earlier
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "begun" in entry:
            earlier[entry["begun"]] = Outcome(entry["begun"], entry["kind"], "error", "", "crash: the process ended")
        else:
            earlier[entry["name"]] = Outcome(**entry)
    return earlier


@dataclass(frozen=True)
class Store:
    """Outcomes of all cases.

    Attributes:
        version: version of the ``onnx`` package.
        reference: outcomes with the reference executor, by name.
        native: outcomes with the native engine, of the cases that passed with the reference executor.
    """

    version: str
    reference: dict[str, Outcome]
    native: dict[str, Outcome]


def read_store(path: Path = STORE) -> Store:
    """Read the stored outcomes; an empty store if there is no file."""
    if not path.exists():
        return Store(onnx.__version__, {}, {})
    content = json.loads(path.read_text(encoding="utf-8"))
    parts = [{name: Outcome(name, *fields) for name, fields in content[key].items()} for key in ("reference", "native")]
    return Store(content["onnx"], *parts)


def write_store(store: Store, path: Path = STORE) -> None:
    """Write the outcomes, one case per line; a case with nothing to say but its outcome has only this."""
    lines = [f'{{"onnx": {json.dumps(store.version)}']
    for key, outcomes in (("reference", store.reference), ("native", store.native)):
        entries = []
        for name, outcome in sorted(outcomes.items()):
            fields = [outcome.kind, outcome.outcome, outcome.operator, outcome.reason]
            while not fields[-1]:
                fields.pop()
            entries.append(f"{json.dumps(name)}: {json.dumps(fields)}")
        lines.append(f'"{key}": {{\n' + ",\n".join(entries) + "\n}")
    path.write_text(",\n".join(lines) + "}\n", encoding="utf-8")


def changes(outcomes: Sequence[Outcome], stored: Mapping[str, Outcome]) -> list[str]:
    """Return a line for each outcome that is not the stored one."""
    lines = []
    for outcome in outcomes:
        old = stored.get(outcome.name)
        if old is None:
            lines.append(f"{outcome.name}: {outcome.outcome}, not stored")
        elif asdict(outcome) | {"detail": ""} != asdict(old):
            before, now = (" ".join(filter(None, (o.outcome, o.operator, o.reason))) for o in (old, outcome))
            lines.append(f"{outcome.name}: {now}; stored: {before}: {outcome.detail}")
    return lines


def operators_of(case: Any) -> set[str]:
    """Operators of a case, also those in subgraphs and functions."""
    model = case.model if case.model is not None else onnx.load(str(Path(case.model_dir) / "model.onnx"))
    operators: set[str] = set()
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        operators.add(node.op_type)
        pending += [inner for attribute in node.attribute for inner in attribute.g.node]
    return operators


def sample(cases: Sequence[Any], stored: Mapping[str, Outcome], count: int = 1) -> list[Any]:
    """Return up to ``count`` generated cases per operator and stored outcome, the same ones at each call."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for case in sorted(cases, key=lambda case: hashlib.sha256(case.name.encode()).digest()):
        if case.model is not None and case.name in stored and len(case.model.graph.node) == 1:
            key = case.model.graph.node[0].op_type, stored[case.name].outcome
            groups.setdefault(key, []).append(case)
    return [case for group in groups.values() for case in group[:count]]


def summary(outcomes: Sequence[Outcome]) -> Counter[str]:
    """Count the cases by outcome, with the total of passed cases as ``passed``."""
    counts = Counter(outcome.outcome for outcome in outcomes)
    counts["passed"] = sum(counts[how] for how in PASSED)
    return counts


def markdown(store: Store) -> str:
    """Return the page with all counts and reasons."""
    version, outcomes, native = store.version, _ordered(store.reference), _ordered(store.native)
    lines = [
        "# ONNX conformance",
        "",
        f"The backend test suite of the `onnx` package {version}, run by `tpuconvert.conversion.onnx_backend` with the",
        "reference executor. Written by `python -m tools.exactness.onnx_conformance --write`, which stores the outcome",
        "of each case in `onnx-conformance.json`.",
        "",
        "In these tests every tensor is a model input, including those that are constants in practice because they",
        "determine shapes or attributes (axes, pads, sizes, quantization scales). The Backend interface receives the",
        "arrays of a run and converts the model at that time: an input that must be known for the conversion becomes a",
        "constant with the value of that run, and the model is converted again if the value changes.",
        "`tpuconvert convert` never does this and reports such a model.",
        "",
    ]
    for title, kinds in (("Generated cases (node)", ("node",)), ("Stored cases", FILE_KINDS)):
        chosen = [outcome for outcome in outcomes if outcome.kind in kinds]
        if chosen:
            lines += _section(title, chosen)
    if native:
        lines += _native_section(native)
    return "\n".join(lines).rstrip("\n") + "\n"


def _ordered(outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    """Return the outcomes in the order of the cases."""
    return sorted(outcomes.values(), key=lambda outcome: (outcome.kind, outcome.name))


def _section(title: str, outcomes: Sequence[Outcome]) -> list[str]:
    counts = summary(outcomes)
    lines = [f"## {title}", ""]
    if title in REMARKS:
        lines += [*REMARKS[title], ""]
    lines += ["| outcome | cases |", "|---|---|", f"| all | {len(outcomes)} |"]
    lines.append(f"| passed | {counts['passed']} |")
    lines += [f"| - {text} | {counts[how]} |" for how, text in PASSED.items()]
    lines.append(f"| refused with a reason | {counts['refused']} |")
    lines += [f"| {name} | {counts[name]} |" for name in FAILED]
    return [*lines, "", *_reasons(outcomes), ""]


def _native_section(outcomes: Sequence[Outcome]) -> list[str]:
    counts = summary(outcomes)
    lines = [
        "## Native engine",
        "",
        f"Of the {len(outcomes)} cases that pass with the reference executor {counts['passed']} pass with",
        '`backend="native"`. With `backend="auto"` all do: what the engine does not take runs with the reference.',
        "",
    ]
    return [*lines, *_reasons(outcomes), ""] if counts["passed"] < len(outcomes) else lines


def _reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a table of the cases that did not pass, the most frequent reason first."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.outcome not in PASSED:
            reasons.setdefault((outcome.outcome, outcome.operator, outcome.reason), []).append(outcome.name)
    lines = ["| cases | outcome | operator | reason | for example |", "|---|---|---|---|---|"]
    ordered = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    for (end, operator, reason), names in ordered:
        escaped = reason.replace("|", "\\|")
        lines.append(f"| {len(names)} | {end} | {operator} | {escaped} | `{names[0]}` |")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Run the cases and print the outcomes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--select", default="", help="only cases whose name matches this regular expression")
    parser.add_argument("--operators", default="", help="only cases with one of these operators, separated by commas")
    parser.add_argument("--kind", action="append", help="node, simple, pytorch-operator, pytorch-converted")
    parser.add_argument("--reference-only", action="store_true", help="do not run what passed with the native engine")
    parser.add_argument("--chip", default="bm1686")
    parser.add_argument("--shard", default="1/1", help="K/N: every N-th case, from the K-th on")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of a case")
    parser.add_argument("--log", type=Path, help="outcomes are appended to it; cases that are in it are not run again")
    parser.add_argument("--write", action="store_true", help="store the outcomes, and write the page")
    parser.add_argument("--verbose", action="store_true", help="print every case that did not pass")
    options = parser.parse_args(arguments)
    part, parts = (int(number) for number in options.shard.split("/"))
    every = load_cases(("node", *FILE_KINDS))
    selected = {name for name in options.operators.split(",") if name}
    cases = [
        case for case in every if re.search(options.select, case.name) and case.kind in (options.kind or case.kind)
    ]
    cases = [case for case in cases if not selected or selected & operators_of(case)][part - 1 :: parts]
    earlier = resume(options.log)
    outcomes = []
    begun = time.monotonic()
    for case in cases:
        if case.name not in earlier:
            _append(options.log, {"begun": case.name, "kind": case.kind})
            earlier[case.name] = run_case(case, options.seconds, {"backend": "reference", "chip": options.chip})
            _append(options.log, asdict(earlier[case.name]))
        outcomes.append(outcome := earlier[case.name])
        if options.verbose and outcome.outcome not in PASSED:
            print(f"{outcome.outcome}: {outcome.name}: {outcome.operator} {outcome.reason}: {outcome.detail}")
    native = [] if options.reference_only else native_outcomes(cases, outcomes, options.seconds, options.chip)
    stored = read_store()
    different = [*changes(outcomes, stored.reference), *(f"native: {line}" for line in changes(native, stored.native))]
    for line in different:
        print(line)
    if options.write:
        write_page(stored, every, outcomes, native)
    counts = summary(outcomes)
    for kind in dict.fromkeys(entry.kind for entry in outcomes):
        of_kind = summary([entry for entry in outcomes if entry.kind == kind])
        print(f"{kind}: " + ", ".join(f"{name} {count}" for name, count in sorted(of_kind.items())))
    if native:
        passed = summary(native)["passed"]
        print(f"native engine: {passed} of {len(native)}")
    print(f"{len(outcomes)} cases in {time.monotonic() - begun:.0f} s: {counts['passed']} passed")
    failed = [entry.name for entry in (*outcomes, *native) if entry.outcome in FAILED and entry.name not in KNOWN]
    return int(bool(failed) or (bool(different) and not options.write))


def write_page(stored: Store, cases: Sequence[Any], outcomes: Sequence[Outcome], native: Sequence[Outcome]) -> None:
    """Replace the stored outcomes of the cases of a run, remove cases that no longer exist, and write the page."""
    names = {case.name for case in cases}
    run = {outcome.name for outcome in outcomes}
    plain = [
        {outcome.name: replace(outcome, detail="") for outcome in group if outcome.name in names}
        for group in (
            [*stored.reference.values(), *outcomes],
            [*(outcome for outcome in stored.native.values() if outcome.name not in run), *native],
        )
    ]
    store = Store(onnx.__version__, *plain)
    write_store(store)
    PAGE.write_text(replace_part(PAGE, "conformance", TOOL, markdown(store)), encoding="utf-8")


def native_outcomes(cases: Sequence[Any], outcomes: Sequence[Outcome], seconds: float, chip: str) -> list[Outcome]:
    """Run the cases that passed again, on the native engine. Return the outcomes."""
    passed = {outcome.name for outcome in outcomes if outcome.outcome in PASSED}
    options = {"backend": "native", "chip": chip}
    return [run_case(case, seconds, options) for case in cases if case.name in passed]


def _append(path: Path | None, entry: dict[str, Any]) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # names of cases are text of others
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
