"""Comparison of a model with its source: run both on the same samples, and compare every tensor that both have.

A difference is attributed to one of four stages. If another engine that can run the source file is installed, its
results are compared with the source graph first: a difference there comes from the import.

A source that is quantized defines integers. They are computed by its integer program: every node of the source graph
lowered separately, without the optimizer, run by the NumPy reference. Model and source are then compared integer by
integer (``exactness``), and the similarity of outputs is computed against these integers.

Values match by name. Integers are dequantized for the comparison. A tensor ``t`` of a channels-last source that is
channels-first in the graph is called ``t:nchw``; its axes are permuted back before the comparison. A tensor with
another shape in the graph is called ``t:reshaped``. Three programs run: the source graph as the frontend read it, the
same graph optimized in float, and the model. A difference that is present in the optimized graph comes from the
optimizer. Any other difference comes from quantization, or in a float model from legalization.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from tpuconvert.conversion.model_building import has_integers
from tpuconvert.model.model import Model
from tpuconvert.runtime.reference.plan import Observer
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.control_flow import all_graphs, subgraphs_of
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.mapped_constants import release_constants
from tpuconvert.schema.system.gc_control import collect_dropped_graphs
from tpuconvert.schema.types import Array
from tpuconvert.verify.difference import AS_READ, FLOAT_TOLERANCE, SAME, Difference
from tpuconvert.verify.exactness import OWN_PROGRAM, Exactness
from tpuconvert.verify.opinion import Opinion
from tpuconvert.verify.oracle import OracleError, Statement
from tpuconvert.verify.output_checks import EngineOutput, output_problems, output_statistics
from tpuconvert.verify.output_tasks import OutputRuns
from tpuconvert.verify.state_steps import StatePair
from tpuconvert.verify.tensor_comparison import (
    CHANNELS_FIRST,
    RESHAPED,
    Comparison,
    SourceTensors,
    add_output,
    compare_outputs,
    pair_outputs,
)
from tpuconvert.verify.verification import Thresholds, Verification

Feed = Mapping[str, Array]

SEPARATE_BYTES = 1 << 28
"""Size of the constants of all programs from which their sessions are open one at a time."""


class EngineComparer:
    """Comparison of the source graph with another engine that runs the source file.

    Args:
        name: name and version of the engine.
        statements: its results, one per feed; fewer if the engine has a limit.
        source: the source graph, or its integer program.
        tensors: tensors of the source graph for the present feed.
        states: states that are passed from one feed to the next.
        is_quantized_source: whether the source file is quantized.
    """

    def __init__(
        self,
        name: str,
        statements: Iterator[Statement],
        source: Graph,
        tensors: SourceTensors,
        states: Sequence[StatePair],
        *,
        is_quantized_source: bool,
    ) -> None:
        self.name, self._statements, self._source = name, statements, source
        self._has_integers = has_integers(source)
        self._hears_model = is_quantized_source and not self._has_integers
        self._is_exact, self._problem = not is_quantized_source, ""
        self._tensors = Comparison(tensors)
        ports = source.output_ports
        self._ports = [port for port in ports if port.name not in {state.output for state in states}]
        self._differences = {port.name: Difference(port.name, "output", "import") for port in ports}
        statistics = zip(ports, output_statistics(source), output_statistics(source), strict=True)
        self.outputs = {port.name: EngineOutput(engine, reading) for port, engine, reading in statistics}
        self._contradictions: list[str] = []

    def step(self, expected: Feed, results: Feed) -> None:
        """Compare the next statement with the outputs of the source graph, or with the outputs of the model."""
        if self._problem:
            return
        try:
            statement = next(self._statements, None)
        except OracleError as error:
            self._problem, statement = str(error), None
        if statement is None:
            return
        self._is_exact &= not statement.rounds
        if self._is_exact or self._has_integers:
            self._tensors.compare_source(self._source, statement.tensors)
        outputs = results if self._hears_model else expected
        self._contradictions += compare_outputs(self._ports, outputs, statement, self._differences)
        for port, array in pair_outputs(self._ports, statement):
            self.outputs[port.name].engine.add(array)
            self.outputs[port.name].reading.add(outputs[port.name])

    def result(self, deviations: Sequence[str]) -> Opinion:
        """Return the comparison of all feeds. ``deviations`` are deviations of the source nodes from the standard."""
        tensors = tuple(self._tensors.by_name.values())
        outputs = tuple(item for item in self._differences.values() if item.is_used)
        faults = [item.contradiction for item in self.outputs.values() if item.contradiction]
        return Opinion(
            engine=self.name,
            tensors=tensors,
            outputs=outputs,
            is_exact=self._is_exact,
            problem=self._problem,
            exactness=Exactness.of(self.name, tensors, outputs, deviations) if self._has_integers else None,
            samples=max((item.engine.samples for item in self.outputs.values()), default=0),
            contradictions=tuple(f"{text} {self.name}" for text in dict.fromkeys([*self._contradictions, *faults])),
        )


class Comparer:
    """Comparison of a model with its source, as a context manager: ``step`` for each sample, then ``result``.

    A few samples suffice, because every tensor has many elements. The sessions of programs with large constants are
    open one at a time, because each has a packed copy of them.

    Args:
        source: the graph of the frontend; for a quantized source its integer program.
        optimized: the source graph after the optimizer.
        model: the model.
        oracle: name of another engine, and its results for the samples.
        is_quantized_source: whether the source file is quantized.
        states: states that each program passes from one feed to the next. The feeds contain the feeds of the source.

    Raises:
        UsageError: the inputs or outputs of the model differ from the source.

    """

    def __init__(
        self,
        source: Graph,
        optimized: Graph,
        model: Model,
        *,
        oracle: tuple[str, Iterator[Statement]] | None = None,
        is_quantized_source: bool = False,
        states: Sequence[StatePair] = (),
    ) -> None:
        _check_same_ports(source, model)
        self._source, self._optimized, self._model, self._states = source, optimized, model, states
        self._has_integers = has_integers(source)
        self._tensors = SourceTensors()
        self._middle, self._final = Comparison(self._tensors), Comparison(self._tensors)
        self._outputs = [Difference(port.name, "output") for port in model.graph.output_ports]
        self._statistics = output_statistics(source), output_statistics(model.graph)
        self._engine: EngineComparer | None = None
        if oracle is not None:
            is_quantized = is_quantized_source
            self._engine = EngineComparer(*oracle, source, self._tensors, states, is_quantized_source=is_quantized)
        is_rounded = model.quantize != "none" and not self._has_integers
        self._runs = OutputRuns(source, model.graph) if is_rounded else None
        self._carried: list[dict[str, Array]] = [{}, {}]
        self._samples = 0
        self._sessions: tuple[Session, ...] = ()
        self._stack = ExitStack()

    def __enter__(self) -> Comparer:
        graphs = self._source, self._optimized, self._model.graph
        if sum(graph.constant_bytes for graph in graphs) < SEPARATE_BYTES:
            self._sessions = tuple(self._stack.enter_context(self._open(index)) for index in range(len(graphs)))
        return self

    def _open(self, index: int) -> Session:
        """Open a session of the source, the optimized source or the model."""
        if index:
            return Session((self._optimized, self._model)[index - 1], observed=True)
        # The reference defines the integers of a quantized source: the oracle must not depend on the native engine.
        return Session(self._source, backend="reference" if self._has_integers else "auto", observed=True)

    def _run(self, index: int, feed: Feed, observe: Observer) -> dict[str, Array]:
        if self._sessions:
            return self._sessions[index].run(feed, observe=observe)
        with self._open(index) as session:
            results = session.run(feed, observe=observe)
        graph = (self._source, self._optimized, self._model.graph)[index]
        release_constants(graph)
        collect_dropped_graphs(graph.constant_bytes)
        return results

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def step(self, feed: Feed) -> None:
        """Run the three programs on one sample, and compare their tensors."""
        self._tensors.clear()
        expected = self._run(0, feed, self._tensors.remember)
        halfway = self._run(1, {**feed, **self._carried[0]}, self._middle.compare)
        results = self._run(2, {**feed, **self._carried[1]}, self._final.compare)
        self._carried = [{state.input: each[state.output] for state in self._states} for each in (halfway, results)]
        if self._engine is not None:
            self._engine.step(expected, results)
        ports = zip(self._source.output_ports, self._model.graph.output_ports, strict=True)
        for index, (source_port, port) in enumerate(ports):
            theirs, mine = expected[source_port.name], results[port.name]
            add_output(self._outputs[index], source_port, theirs, port, mine)
            self._statistics[0][index].add(theirs)
            self._statistics[1][index].add(mine)
        if self._runs is not None:
            self._runs.add(feed, expected, results)
        self._samples += 1

    def result(self, *, origin: str = "", allow_nan: bool = False) -> Verification:
        """Return the comparison of all samples.

        Args:
            origin: origin of random samples, as text after "4 samples"; empty for samples of the user.
            allow_nan: whether NaN is accepted in an output if source and model both have it.

        Raises:
            UsageError: there was no sample.

        """
        if not self._samples:
            raise UsageError("there are no samples to compare with", hint="give at least one")
        self._attribute_differences()
        layers, engine = tuple(self._final.by_name.values()), self._engine
        deviations = [str(item) for each in all_graphs(self._source) for item in each.deviations]
        opinion = None if engine is None else engine.result(deviations)
        integers = None if opinion is None else opinion.exactness
        if integers is not None and integers.different + integers.output_different:
            deviations.append(integers.verdict)
        exactness = Exactness.of(OWN_PROGRAM, layers, self._outputs, deviations) if self._has_integers else None
        name, heard = ("", {}) if engine is None else (engine.name, engine.outputs)
        return Verification(
            file=self._model.graph.file or self._model.graph.name,
            samples=self._samples,
            layers=layers,
            outputs=tuple(self._outputs),
            is_quantized=self._model.quantize != "none",
            unmatched=len(self._final.unmatched),
            origin=origin,
            opinion=opinion,
            exactness=exactness,
            tasks=() if self._runs is None or origin else self._runs.compare(),
            output_problems=tuple(output_problems(*self._statistics, allow_nan=allow_nan, engine=name, heard=heard)),
            defaults=Thresholds.default(self._model, exactness),
        )

    def _attribute_differences(self) -> None:
        """Set the noise that each tensor adds, and the stage from which each difference comes."""
        by_name = self._final.by_name
        for difference in by_name.values():
            before = max((by_name[name].noise for name in difference.reads), default=0.0)
            makes_noise = math.isfinite(before) and not difference.moves  # a part can be noisier than the whole
            difference.added = max(0.0, difference.noise - before) if makes_noise else 0.0
        deviating = _deviating_tensors(self._source)
        is_quantized = self._model.quantize != "none" and not self._has_integers
        for difference in (*by_name.values(), *self._outputs):
            difference.stage = _stage(difference, self._middle.by_name.get(difference.name), is_quantized)
            if difference.stage == SAME and difference.name in deviating:
                difference.stage = AS_READ


def _deviating_tensors(graph: Graph) -> set[str]:
    """Names of tensors and outputs that depend on a node with a known deviation from the standard."""
    deviating = {(item.node, item.op) for each in all_graphs(graph) for item in each.deviations}
    reached: set[Value] = set()
    for node in graph.sorted_nodes():
        is_own = any((source.node, source.op) in deviating for source in node.sources)
        bodies = [graph for body in subgraphs_of(node.op).values() for graph in all_graphs(body.graph)]
        is_own = is_own or any(body.deviations for body in bodies)
        if is_own or any(value in reached for value in node.inputs):
            reached.update(node.outputs)
    outputs = {port.name for port, value in zip(graph.output_ports, graph.outputs, strict=True) if value in reached}
    return outputs | {value.name.removesuffix(CHANNELS_FIRST).removesuffix(RESHAPED) for value in reached}


def _stage(difference: Difference, optimized: Difference | None, is_quantized: bool) -> str:
    if difference.max_absolute == 0.0:
        return SAME
    if optimized is not None and optimized.relative > FLOAT_TOLERANCE:
        return "optimize"
    if is_quantized:
        return "quantize"
    if optimized is not None and optimized.max_absolute > 0.0:
        return "optimize"
    return "legalize"


def _check_same_ports(source: Graph, model: Model) -> None:
    for what, mine, theirs in (
        ("inputs", source.input_ports, model.graph.input_ports),
        ("outputs", source.output_ports, model.graph.output_ports),
    ):
        if [port.name for port in mine] != [port.name for port in theirs]:
            raise UsageError(
                f"the {what} differ: the source has {[port.name for port in mine]}, "
                f"the model {[port.name for port in theirs]}",
                hint="give the same files, --inputs and --outputs as for the conversion",
            )
