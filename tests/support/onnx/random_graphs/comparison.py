"""Convert a random graph, run it with both engines, and compare it with ONNX Runtime."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

import tpuconvert as tc
from tests.support.onnx.random_graphs.drawing import BINDINGS, Drawing, Step, reads
from tests.support.onnx.random_graphs.refusals import is_about_extents, is_documented, is_own_form
from tests.support.onnx.random_graphs.runtime import run_session, session_of
from tests.support.onnx.random_graphs.tolerances import TRIALS, deviations, difference
from tpuconvert.runtime.native.builder import loader

ENGINES = ("reference", *(("native",) if loader.extension() is not None else ()))
MOST_TRIALS = 40
LOWEST_COSINE = 0.98
Shapes = Mapping[str, tuple[int, ...]]
SAMPLES, COMPARED = 22, 4
"""Samples of a calibration beside the feeds, and how many of them are compared too. All that is compared is calibrated:
the tensors are small, and a value beyond the calibrated range, which is clipped, would dominate the error.
"""


@dataclass(frozen=True)
class Outcome:
    """Result of a case, with the reason.

    ``equal``; ``warned``: different or inaccurate, and a warning of the conversion says so; ``documented``: refused by
    a limit that a page states; ``no graph``: ONNX Runtime refuses it. The others are findings: ``different``,
    ``inaccurate`` without a warning, ``own form``: refused by a form or a table of a chip, ``refused``, ``crash``.
    """

    kind: str
    reason: str = ""

    @property
    def is_finding(self) -> bool:
        return self.kind not in ("equal", "no graph", "documented", "warned")

    @property
    def group(self) -> str:
        """The reason without names and numbers, which is equal for equal causes."""
        text = re.sub(r"'[^']*'", "'..'", self.reason)
        text = re.sub(r"\[[^\[\]]*\]|\(\)", "[..]", re.sub(r"np\.\w+\(([^()]*)\)|\([-\d, ]+\)", "N", text))
        return re.sub(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?(, )?", "N", text)[:200]


@dataclass
class Case:
    """A model, or a part of it, with feeds and what ONNX Runtime computes."""

    drawing: Drawing
    steps: Sequence[Step]
    model: onnx.ModelProto
    feeds: list[dict[str, Any]] = field(default_factory=list)
    expected: list[dict[str, Any]] = field(default_factory=list)

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self.model.graph.output]


def case_of(d: Drawing, steps: Sequence[Step] | None = None, outputs: Sequence[str] | None = None) -> Case | None:
    """The whole graph, or a part whose operands are inputs; None if ONNX Runtime refuses it or it is empty."""
    part = list(d.steps if steps is None else steps)
    if not part:
        return None
    if steps is None:
        model = d.model()
        feeds = [d.feeds(model, binding) for binding in range(BINDINGS)]
    else:
        model, feeds = part_of(d, part, outputs or ())
    return with_expected(d, part, model, feeds) if model.graph.output else None


def with_expected(
    d: Drawing, steps: Sequence[Step], model: onnx.ModelProto, feeds: Sequence[dict[str, Any]]
) -> Case | None:
    """A case with the results of ONNX Runtime; None if it refuses the model or all feeds."""
    session = session_of(model)
    if session is None:
        return None
    names = [value.name for value in model.graph.output]
    case = Case(d, steps, model)
    for feed in feeds:
        results = run_session(session, names, feed)
        if results is not None and all(isinstance(array, np.ndarray) for array in results):
            case.feeds.append(feed)
            case.expected.append(dict(zip(names, results, strict=True)))
    return case if case.feeds else None


def part_of(d: Drawing, steps: Sequence[Step], outputs: Sequence[str]) -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A model of some steps; what they read of other steps are its inputs."""
    by_name = {value.name: value for value in d.values}
    written = {name for step in steps for name in step.node.output}
    read = [name for step in steps for name in reads(step.node)]
    open_names = [name for name in dict.fromkeys(read) if name not in written and name not in d.constants]
    names = [name for step in steps for name in step.node.output if name and (name not in read or name in outputs)]
    model = d.model(names)
    del model.graph.node[:]
    style = [v for v in d.constants.values() if v.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v.arrays[0], v.name) for v in style)
    model.graph.node.extend(step.node for step in steps)
    del model.graph.input[:]
    model.graph.input.extend(d.declare(by_name[name]) for name in open_names)
    feeds = [{name: by_name[name].arrays[b] for name in open_names} for b in range(BINDINGS)]
    return model, feeds


def check(case: Case, *, chip: str, quantize: bool, input_shapes: Shapes | None = None) -> Outcome:
    """Convert the model of a case and compare its results; with numbers for symbolic axes if it needs them."""
    is_fixed = input_shapes is not None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return _check_int8(case, chip, input_shapes) if quantize else _check_float(case, chip, input_shapes)
        except tc.InternalError as error:
            return Outcome("crash", _text(error))
        except tc.TpuConvertError as error:
            outcome = _refusal(case, error, chip, quantize)
            shapes = {name: array.shape for name, array in case.feeds[0].items()}
            has_elements = all(extent > 0 for shape in shapes.values() for extent in shape)
            if (
                shapes
                and has_elements
                and outcome.kind == "documented"
                and not is_fixed
                and is_about_extents(outcome.reason)
            ):
                fixed = Case(case.drawing, case.steps, case.model, case.feeds[:1], case.expected[:1])
                other = check(fixed, chip=chip, quantize=quantize, input_shapes=shapes)
                return other if other.is_finding else outcome
            return outcome
        except Exception as error:
            return Outcome("crash", f"{type(error).__name__}: {error}")


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())


def _refusal(case: Case, error: tc.TpuConvertError, chip: str, quantize: bool) -> Outcome:
    problems = list(getattr(error, "problems", ()))
    reasons = [f"{p.kind.heading}: {p.op}: {p.message}" for p in problems] or [
        f"{type(error).__name__}: {error.message}"
    ]
    for reason in reasons:
        if is_own_form(reason):
            return Outcome("own form", reason)
    for reason in reasons:
        if not is_documented(reason):
            return Outcome("refused", reason)
    is_at_run = isinstance(error, tc.RunError)
    if quantize and not is_at_run and check(case, chip=chip, quantize=False).kind == "equal":
        return Outcome("own form", f"{reasons[0]} (but not in float)")
    return Outcome("documented", reasons[0])


def _check_float(case: Case, chip: str, input_shapes: Shapes | None) -> Outcome:
    converted = tc.convert(case.model, chip=chip, source_options=tc.SourceOptions(input_shapes=input_shapes))
    for engine in ENGINES:
        with tc.Session(converted, backend=engine, threads=1) as session:
            for feeds, expected in zip(case.feeds, case.expected, strict=True):
                found = session.run(feeds)
                reason = compare(case, feeds, expected, found) or against_declared(converted, found)
                if reason:
                    if chip == "bm1684" and _is_near_tie(case, expected, found):
                        return Outcome("documented", "docs/reference/onnx.md, Quantized models: near ties of BM1684")
                    warned = [note for note in converted.notes if note.kind == "deviation"]
                    return (
                        Outcome("warned", warned[0].message) if warned else Outcome("different", f"{engine}: {reason}")
                    )
    return Outcome("equal")


def _is_near_tie(case: Case, expected: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return True if integers of quantized operators differ by one, and nothing else does."""
    is_quantized = any(step.node.op_type.startswith("QLinear") for step in case.steps)
    return is_quantized and all(
        found[name].shape == want.shape and np.abs(found[name].astype(float) - want.astype(float)).max(initial=0) <= 1
        for name, want in expected.items()
        if want.dtype.kind in "iu"
    )


def compare(case: Case, feeds: Mapping[str, Any], expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The first difference of an output. A difference is confirmed by more trials for its tolerance."""
    if list(found) != case.outputs:
        return f"outputs {list(found)}, expected {case.outputs}"
    for trials in (0, TRIALS, MOST_TRIALS):
        limits = deviations(case.drawing, case.steps, feeds, expected, trials, case.drawing.seed)
        texts = [(name, difference(found[name], expected[name], limits[name])) for name in case.outputs]
        differing = [f"output '{name}' of {producer(case, name)}: {text}" for name, text in texts if text]
        if not differing:
            return ""
    return differing[0]


def producer(case: Case, name: str) -> str:
    return next((step.node.op_type for step in case.steps if name in step.node.output), "the inputs")


def against_declared(model: tc.Model, found: Mapping[str, Any]) -> str:
    """A difference between results and the types that the converted model declares."""
    for port in model.graph.output_ports:
        array = found[port.name]
        extents = port.shape
        fits = len(extents) == array.ndim and all(
            not isinstance(e, int) or e == size for e, size in zip(extents, array.shape, strict=True)
        )
        if not fits or array.dtype.name != str(port.dtype):
            return f"output '{port.name}' declared {port.dtype} {extents}, computed {array.dtype} {array.shape}"
    return ""


def _check_int8(case: Case, chip: str, input_shapes: Shapes | None) -> Outcome:
    samples = case.drawing.further_feeds(case.model, SAMPLES)
    converted = tc.convert(
        case.model,
        chip=chip,
        quantize="int8",
        calibration=[*case.feeds, *samples],
        source_options=tc.SourceOptions(input_shapes=input_shapes),
    )
    feeds = [*case.feeds, *samples[:COMPARED]]
    results = []
    for engine in ENGINES:
        with tc.Session(converted, backend=engine, threads=1) as session:
            results.append([session.run(feed) for feed in feeds])
    for found in results[0]:
        reason = against_declared(converted, found)
        if reason:
            return Outcome("different", reason)
    session = session_of(case.model)
    assert session is not None
    for feed, one, other in zip(feeds, *results, strict=True) if len(results) > 1 else ():
        for name in case.outputs:
            reason = _engines_differ(one[name], other[name])
            if reason and not _is_sensitive(case, feed, name, one[name], other[name]):
                return Outcome("different", f"engines: output of {producer(case, name)}: {reason}")
    further = [run_session(session, case.outputs, feed) for feed in samples[:COMPARED]]
    expected = [*case.expected, *(dict(zip(case.outputs, arrays or (), strict=False)) for arrays in further)]
    pairs = [(want, got) for want, got in zip(expected, results[0], strict=True) if want]
    is_warned = False
    for name in case.outputs:
        for want, got in pairs:
            if (got[name].shape, got[name].dtype) != (want[name].shape, want[name].dtype):
                found, right = got[name], want[name]
                return Outcome("different", f"{found.dtype} {found.shape}, expected {right.dtype} {right.shape}")
        if pairs[0][0][name].dtype.kind != "f":
            continue
        similarity = cosine(*(np.concatenate([pair[k][name].ravel() for pair in pairs]) for k in (1, 0)))
        if similarity < LOWEST_COSINE:
            if _is_sensitive(case, case.feeds[0], name, pairs[0][1][name], pairs[0][0][name]):
                continue
            is_warned = True
            if not has_warning(converted, name):
                return Outcome("inaccurate", f"output '{name}' of {producer(case, name)}: cosine {similarity:.3f}")
    return Outcome("warned", "accuracy") if is_warned else Outcome("equal")


def _is_sensitive(case: Case, feed: Mapping[str, Any], name: str, one: Any, other: Any) -> bool:
    """Return True if errors of a float's last place make such a difference, as in the remainder of a large number."""
    session = session_of(case.model)
    arrays = None if session is None else run_session(session, case.outputs, feed)
    if one.dtype.kind != "f" or arrays is None:
        return False
    expected = {name: dict(zip(case.outputs, arrays, strict=True))[name]}
    moved = deviations(case.drawing, case.steps, feed, expected, MOST_TRIALS, case.drawing.seed)[name]
    return not difference(one, other, moved)


def has_warning(model: tc.Model, name: str) -> bool:
    """Return True if the conversion warns about an output, or about a node whose result is known to deviate."""
    return any(
        note.kind == "deviation" or (note.kind == "accuracy" and name in (note.node, *re.findall(r"\w+", note.message)))
        for note in model.notes
    )


def cosine(a: Any, b: Any) -> float:
    """Cosine similarity; 1 for two arrays of zeros. Elements that are the same infinity, or both NaN, do not count."""
    a, b = a.astype(float).ravel(), b.astype(float).ravel()
    counts = ~((np.isnan(a) & np.isnan(b)) | (np.isinf(a) & (a == b)))
    a, b = a[counts], b[counts]
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else float(np.allclose(a, b, atol=1e-6))


def _engines_differ(one: Any, other: Any) -> str:
    """Parts in float may round differently, by a few units in the last place of the largest element."""
    if one.dtype.kind != "f":
        return "" if np.array_equal(one, other) else f"{int((one != other).sum())} of {one.size} differ"
    finite = np.abs(one[np.isfinite(one)].astype(float))
    limit = 1e-5 * float(finite.max(initial=0.0)) + 1e-30
    with np.errstate(all="ignore"):
        same = (one == other) | (np.isnan(one) & np.isnan(other)) | (np.abs(one.astype(float) - other) <= limit)
    return "" if same.all() else f"{int((~same).sum())} of {same.size} differ, by {np.abs(one - other).max()}"


def reduce_case(case: Case, outcome: Outcome, **options: Any) -> Case:
    """Remove steps for as long as the outcome stays the same."""
    steps, best = list(case.steps), case
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for k in reversed(range(len(steps))):
            rest = steps[:k] + steps[k + 1 :]
            smaller = case_of(case.drawing, rest, case.outputs)
            if smaller is None:
                continue
            other = check(smaller, **options)
            if other.kind == outcome.kind and (outcome.kind == "different" or other.group == outcome.group):
                steps, best, is_smaller = rest, smaller, True
    return best
