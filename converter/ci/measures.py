"""Convert one model of a manifest and take the measurements that limits can refer to."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.ci.manifest import DEVICE, PROGRAM, DeviceProgram, Job
from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.evaluation.evaluation import evaluate
from tpuconvert.evaluation.result import Evaluation
from tpuconvert.exporters.compilation.environment import require_environment
from tpuconvert.exporters.compilation.proof import Proof
from tpuconvert.exporters.export import export
from tpuconvert.model.accuracy_notes import KEY as ACCURACY
from tpuconvert.model.model import Model, load
from tpuconvert.plugins import load_plugins
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.chip_names import device_of
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.shape_buckets import buckets_of
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several
from tpuconvert.verify.source_comparison import verify_source
from tpuconvert.verify.verification import Verification

Measures = dict[str, Any]

ROUNDS = 7
"""Number of timing rounds. Both models are timed in turn, so that other load affects both alike."""
ROUND_SECONDS = 0.05


@dataclass(frozen=True)
class Measurement:
    """Measurements of one model.

    Args:
        measures: numbers and short texts by name, to which limits can refer.
        sections: descriptions for the report by key: ``verification``, and ``evaluation`` with labeled samples.

    """

    measures: Measures
    sections: dict[str, Any]


def convert_and_measure(job: Job, target: Path) -> Measurement:
    """Convert a model, write it, and measure it.

    Raises:
        TpuConvertError: the conversion failed.
    """
    load_plugins(job.plugins)
    if job.device is not None:
        require_environment()  # before a conversion that can take minutes
    options = Options.of(**job.options)
    started = time.perf_counter()
    device = device_of(job.options.get("chip", options.chip))
    converted = Conversion(options, job.files.get("calibration"), device=device).of_source(_source(job))
    seconds = time.perf_counter() - started
    converted.save(target)
    model = load(target)
    nodes = model.graph.nodes
    measures: Measures = {
        "seconds": round(seconds, 3),
        "size": os.path.getsize(target),
        "transposes": sum(isinstance(node.op, Permute) for node in nodes),
        "nodes": len(nodes),
        "integer_nodes": sum(all(value.dtype.is_integer for value in node.outputs) for node in nodes),
        "chip": model.chip.value,
        "quantize": model.quantize,
    }
    compared = _compare(job, model, options)
    measures.update(_fidelity(job, compared))
    sections = {"verification": compared.to_dict(), **_accuracy_of_outputs(converted)}
    if "evaluation" in job.files:
        evaluated = evaluate(model, job.files["evaluation"], metrics="top1", reference=_float_version(job))
        measures.update(_accuracy(evaluated))
        sections["evaluation"] = evaluated.to_dict()
    if "latency_ratio" in job.limits or "baseline" in job.files:
        measures.update(_latency(job, model))
    if job.device is not None:
        measures.update(_prove(job.device, model, job.files.get("data") or job.files.get("calibration")))
    return Measurement(measures, sections)


def _prove(device: DeviceProgram, model: Model, data: Path | None) -> Measures:
    """Compile a model, run it in the simulator, and compare the results, for each shape of a model with several.

    Raises:
        TpuConvertError: it does not compile.
    """
    if buckets_of(model.metadata):
        data = None  # each shape needs different samples: random ones
    with tempfile.TemporaryDirectory() as folder:
        result = export(model, Path(folder, "program"), data=data, compile=True, **dataclasses.asdict(device))
    proofs: list[Proof] = list(result.proofs.values())
    count = sum(item["tensors"] for proof in proofs for item in proof["tensors"])
    differing = [item for proof in proofs for item in proof["differing"]]
    first = f"the first is '{differing[0]['name']}': {differing[0]['difference']}" if differing else ""
    return {
        DEVICE: f"{device.chip} {count - len(differing)} of {several(count, 'tensor')}",
        PROGRAM.measure: len(differing),
        "first_device_difference": first,
    }


def _compare(job: Job, model: Model, options: Options) -> Verification:
    """Compare the tensors with the tensors of the source.

    Raises:
        OutputError: an output is NaN or dead.
    """
    data = job.files.get("data") or job.files.get("calibration")
    result = verify_source(model, _source(job), options, data, samples=job.samples, oracle="auto")
    result.check_outputs()
    return result


def _fidelity(job: Job, result: Verification) -> Measures:
    """Return the worst value of each measure over the outputs.

    Raises:
        UsageError: the job limits differing integers, but the model computes in float.
    """
    outputs = result.outputs
    first = result.first
    exactness = result.exactness
    if exactness is None and "different_integers" in job.limits:
        message = "the limit different_integers, but source or model compute in float"
        raise UsageError(message, file=str(job.files["source"]), hint="limit cosine, sqnr or difference")
    integers = {}
    if exactness is not None:
        different = exactness.different + exactness.output_different
        integers = {"different_integers": different, "exactness": exactness.verdict}
    return {
        **integers,
        "cosine": min((item.cosine for item in outputs), default=1.0),
        "difference": max((item.relative for item in outputs), default=0.0),
        "sqnr": min((item.sqnr for item in outputs), default=math.inf),
        "first_difference": "" if first is None else f"'{first.name}' ({first.op}, {first.stage})",
    }


def _accuracy_of_outputs(model: Model) -> dict[str, Any]:
    """Return a section with the names of the measured outputs, and texts about those below an accuracy limit."""
    accuracy = model.metadata.get(ACCURACY)
    if accuracy is None:
        return {}
    names = [item["name"] for item in accuracy["outputs"] if not item["is_accurate"]]
    # The last notes of this kind belong to the outputs; the choice of 16-bit nodes adds others before.
    texts = [note.message for note in model.notes if note.kind == ACCURACY]
    inaccurate = dict(zip(names, texts[len(texts) - len(names) :], strict=True))
    return {ACCURACY: {"outputs": [item["name"] for item in accuracy["outputs"]], "inaccurate": inaccurate}}


def _accuracy(evaluation: Evaluation) -> Measures:
    """Top-1 accuracy of the model and of its float version on labeled samples."""
    assert evaluation.reference is not None
    return {
        "top1": evaluation.values["top1"],
        "top1_float": evaluation.reference["top1"],
        "top1_drop": evaluation.measures()["top1_drop"],
    }


def _float_version(job: Job) -> Model:
    return Conversion(Options.of(**job.options).in_float()).of_source(_source(job))


def _latency(job: Job, model: Model) -> Measures:
    """Time per run relative to the baseline: the median ratio over rounds in which both models run in turn."""
    other = load(job.files["baseline"]) if "baseline" in job.files else _float_version(job)
    with Session(model, threads=1) as mine, Session(other, threads=1) as theirs:
        pairs = list(_rounds(mine, theirs))
    ratios = [first / second for first, second in pairs]
    return {"latency_ratio": statistics.median(ratios), "latency_s": statistics.median(first for first, _ in pairs)}


def _rounds(*sessions: Session) -> Iterator[tuple[float, ...]]:
    feeds = []
    for session in sessions:
        rng = np.random.default_rng(0)
        shapes = {
            info.name: [extent if isinstance(extent, int) else 1 for extent in info.shape] for info in session.inputs
        }
        feeds.append({
            info.name: rng.integers(0, 2, shapes[info.name]).astype(info.dtype) for info in session.inputs
        })  # fmt: skip
        session.run(feeds[-1])
    for _ in range(ROUNDS):
        yield tuple(_seconds(session, feed) for session, feed in zip(sessions, feeds, strict=True))


def _seconds(session: Session, feed: dict[str, Array]) -> float:
    """Median wall time of runs that take ``ROUND_SECONDS`` together."""
    times: list[float] = []
    started = time.perf_counter()
    while not times or time.perf_counter() - started < ROUND_SECONDS:
        before = time.perf_counter()
        session.run(feed)
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def _source(job: Job) -> Source:
    return Source(job.files["source"], job.files.get("weights"))
