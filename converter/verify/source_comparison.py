"""Comparison of a model with its source file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.conversion.additions.fused_preprocess import source_feeds
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import (
    fixed_arrays,
    has_original_interface,
    is_quantized_source,
    load_source,
    with_preprocessing_of,
)
from tpuconvert.model.model import Model
from tpuconvert.optimizer import fit_to_chip, optimize
from tpuconvert.optimizer.quantize import as_float, legalize
from tpuconvert.progress import SILENT, Progress
from tpuconvert.runtime.run_memory import check_run_memory
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.errors import UnsupportedError, UsageError
from tpuconvert.schema.graph.graph import Graph, KeptState
from tpuconvert.schema.graph.mapped_constants import release_constants
from tpuconvert.schema.system.gc_control import collect_dropped_graphs
from tpuconvert.schema.system.heap_memory import large_arrays_returned
from tpuconvert.schema.types import Array, Chip
from tpuconvert.verify.comparer import Comparer
from tpuconvert.verify.metrics import MetricLimit, metric
from tpuconvert.verify.opinion import OWN_READING, OracleInfo
from tpuconvert.verify.oracle import ENGINES, Hearing, find_oracles, run_first
from tpuconvert.verify.state_steps import (
    STEPS,
    StateCheck,
    check_forgotten_states,
    initial_states,
    source_steps,
    state_pairs,
)
from tpuconvert.verify.verification import Verification

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource

VERIFICATION_SAMPLES = 4
"""Default number of compared feeds. A few suffice, because each gives many elements per tensor."""


def source_program(graph: Graph, model: Model) -> Graph:
    """Return the graph with which a model is compared.

    A quantized source defines integers. They are computed by its lowering for BM1686 without the optimizer, because
    this chip can rescale as the source formats do. Any other source, and a quantized one whose model computes in float,
    is compared in float.
    """
    if model.quantize == "none" or not is_quantized_source(graph):
        return as_float(graph)
    return legalize(graph, Chip.BM1686).graph


@large_arrays_returned(1 << 18)  # weights of one session after the other
@np.errstate(all="ignore")  # Difference counts non-finite elements
def verify_source(
    model: Model,
    source: Source,
    options: Options,
    data: CalibrationSource | None = None,
    *,
    samples: int = VERIFICATION_SAMPLES,
    oracle: str = "none",
    progress: Progress = SILENT,
) -> Verification:
    """Compare a model with its source file.

    Args:
        model: the converted model.
        source: the source, in files.
        options: options of the conversion. Without preprocessing in them, the preprocessing of the model is used.
        data: samples; None uses random numbers from a fixed seed.
        samples: largest number of feeds to compare.
        oracle: another engine that runs the source too: ``auto`` for one that is installed, its name, or ``none``.
        progress: receives the stages.

    Raises:
        UsageError: the samples do not fit, or the model has another source.
        MissingExtraError: the requested engine is not installed.
        ResourceLimitError: a run would take too much memory.

    """
    progress.stage("load the source")
    options = options.for_model(model.preprocess)
    release_constants(model.graph)
    read, optimized = _load_and_release(source, options), _load_and_release(source, options)
    optimize(optimized, chip=model.chip, disabled=options.disable_rules)
    fit_to_chip(optimized, model.chip, disabled=options.disable_rules)
    is_quantized = is_quantized_source(read)
    graph, optimized = (source_program(each, model) for each in (read, optimized))
    for each in (graph, optimized, model.graph):
        check_run_memory(each)  # before another engine allocates the tensors of the source
    origin = "of random numbers" if data is None else ""
    pairs = state_pairs(read)
    names = tuple(pair.input for pair in pairs)
    feeds = _feeds(graph, options, data, samples, read.states)
    check = None
    if pairs:
        feeds, reason = source_steps(graph, pairs, feeds, max(STEPS, samples))
        check = StateCheck(names, is_kept=True, steps=len(feeds), problem=reason)
        collect_dropped_graphs(graph.constant_bytes)
    for each in (graph, optimized, model.graph):
        release_constants(each)
    runs = _EngineRuns(oracle, source, options, progress)
    hearing, reason = runs.hear(read, graph, feeds)
    said = None if hearing.oracle is None else (hearing.oracle.title, hearing.results())
    progress.stage("verify", len(feeds))
    with Comparer(graph, optimized, model, oracle=said, is_quantized_source=is_quantized, states=pairs) as comparer:
        for done, feed in enumerate(feeds, 1):
            comparer.step(feed)
            progress.advance(done)
    verification = comparer.result(origin=origin, allow_nan=options.allow_non_finite)
    if read.forgotten_states:
        check = runs.check_forgotten_states(read, graph, model, feeds)
        if verification.exactness is not None:
            exactness = replace(verification.exactness, runs="in runs from the initial state")
            verification = replace(verification, exactness=exactness)
    info = _oracle_info(hearing, verification, reason)
    if check is not None and check.is_kept and info.is_independent:
        check = replace(check, engine=f"{info.name} {info.version}")
    return replace(verification, oracle=info, state=check)


def _load_and_release(source: Source, options: Options) -> Graph:
    """Load a source, and release the pages of its mapped file, which the checks of its constants have read."""
    graph = load_source(source, options)
    release_constants(graph)
    return graph


@dataclass(frozen=True)
class _EngineRuns:
    """Runs of the source with other engines.

    Args:
        name: name of the engine, ``auto`` or ``none``.
        source: the source, in files.
        options: options of the conversion.
        progress: receives the stage.
    """

    name: str
    source: Source
    options: Options
    progress: Progress

    def hear(
        self, read: Graph, program: Graph, feeds: Sequence[dict[str, Array]], *, keeps_state: bool = False
    ) -> tuple[Hearing, str]:
        """Run the source until one engine succeeds; return also the reason why none is asked, or empty.

        Args:
            read: the source as the frontend read it.
            program: the program with which the model is compared.
            feeds: the samples.
            keeps_state: whether the samples are steps in sequence although the model forgets the state.

        """
        options, kind = self.options, self.source.format
        candidates = find_oracles(self.name, kind, self.source.name)
        if self.name == "none":
            return Hearing(None), "not requested"
        if not candidates:
            engines = [engine.distribution for engine in ENGINES.values() if engine.reads == kind]
            return Hearing(None), f"{engines[0]} is not installed" if engines else f"no other engine reads {kind} files"
        is_alike = has_original_interface(options) and (kind == "onnx" or not options.fix_inputs)
        if not is_alike:
            return Hearing(None), "other engines run the complete source, with its own inputs and outputs"
        if is_quantized_source(read) and options.tflite_rounding != "double":
            return Hearing(None), "other engines round twice"
        # Also for a source without state as it was read: state that the frontend overlooked shows as a difference.
        keeps_state = keeps_state or not read.forgotten_states
        if any(state.initial is None for state in read.states):
            return Hearing(None), "the source does not define the initial state"
        candidates = [replace(each, signature=options.signature, keeps_state=keeps_state) for each in candidates]
        self.progress.stage(f"run the source with {candidates[0].title}")
        states = {state.input for state in read.states}
        ports, inputs = [port for port in program.input_ports if port.name not in states], feeds
        if options.fuse_preprocess != "none":
            rule = with_preprocessing_of(program, options).preprocess
            assert rule is not None, "a graph without preprocessing cannot have fused preprocessing"
            ports = load_source(self.source, options.without_fused_preprocess()).input_ports
            inputs = list(source_feeds(ports[0], feeds, rule))
        return run_first(candidates, ports, inputs, fixed_arrays(options)), ""

    def check_forgotten_states(
        self, read: Graph, program: Graph, model: Model, feeds: Sequence[dict[str, Array]]
    ) -> StateCheck:
        """Run steps in sequence of a source whose state the model does not keep."""
        names = read.forgotten_states
        runs = replace(self, options=replace(self.options, state="ports"))
        try:
            keeping = load_source(self.source, runs.options)
        except UnsupportedError:
            return StateCheck(names, is_kept=False, steps=1, problem="the state cannot be passed from run to run")
        steps = list(itertools.islice(itertools.cycle(feeds), max(STEPS, len(feeds))))
        hearing, reason = runs.hear(keeping, program, steps, keeps_state=True)
        said = None if hearing.oracle is None or hearing.problem else (hearing.oracle.title, hearing.statements)
        with_state = source_program(keeping, model)
        with_state.states = keeping.states
        check = check_forgotten_states(names, program, with_state, steps, said)
        return replace(check, problem=reason or hearing.problem)


def _oracle_info(hearing: Hearing, verification: Verification, reason: str) -> OracleInfo:
    """Return the program that says what the source computes."""
    opinion = verification.opinion
    if hearing.oracle is None or opinion is None or opinion.problem:
        problem = reason or (opinion.problem if opinion is not None else "")
        return replace(OWN_READING, samples=verification.samples, problem=problem)
    return OracleInfo(hearing.oracle.name, hearing.oracle.version, True, opinion.samples)


def _feeds(
    graph: Graph,
    options: Options,
    data: CalibrationSource | None,
    samples: int,
    states: Sequence[KeptState] = (),
) -> list[dict[str, Array]]:
    """Return the first samples of the user, or random samples; states have their initial content."""
    own = {state.input for state in states}
    ports = [port for port in graph.input_ports if port.name not in own]
    if data is None:
        feeds = random_feeds(ports, samples)
    else:
        try:
            source = load_feeds(data, ports, options.preprocess, limit=samples)
        except UsageError:
            if not states:
                raise
            # Samples with states, which are replaced.
            source = load_feeds(data, graph.input_ports, options.preprocess, limit=samples)
        feeds = list(itertools.islice(source, samples))
    return [{**feed, **initial_states(graph, states)} for feed in feeds] if states else feeds


@np.errstate(all="ignore")
def measure_metrics(
    limits: Sequence[MetricLimit],
    model: Model,
    source: Source,
    options: Options,
    data: CalibrationSource | None,
    samples: int,
) -> dict[str, dict[str, float]]:
    """Return the largest value over the samples for each metric and output.

    Args:
        limits: the metrics.
        model: the converted model.
        source: the source, in files.
        options: options of the conversion.
        data: samples; None uses random numbers from a fixed seed.
        samples: largest number of feeds to compare.

    """
    options = options.for_model(model.preprocess)
    graph = source_program(load_source(source, options), model)
    ports = {port.name: port for port in model.graph.output_ports}
    largest: dict[str, dict[str, float]] = {limit.name: {} for limit in limits}

    with Session(graph) as source_session, Session(model) as model_session:
        for sample in _feeds(graph, options, data, samples):
            expected, actual = source_session.run(sample), model_session.run(sample)
            for output, port in ports.items():
                arrays = (expected[output], actual[output])
                floats = [port.quant.dequantize(array) if port.quant is not None else array for array in arrays]
                for limit in limits:
                    number = float(metric(limit.name)(*floats))
                    largest[limit.name][output] = max(largest[limit.name].get(output, number), number)
    return largest
