"""Steps in sequence of a model with state: every step starts with the state that the step before left."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from tpuconvert.conversion.model_building import has_integers
from tpuconvert.runtime.derived_inputs import MASK
from tpuconvert.runtime.session.session import Session
from tpuconvert.runtime.session.session_state import SessionState
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, KeptState, Port
from tpuconvert.schema.graph.states import FIXED, find_states
from tpuconvert.schema.text.plain_values import Plain
from tpuconvert.schema.types import Array
from tpuconvert.verify.difference import FLOAT_TOLERANCE, Difference
from tpuconvert.verify.oracle import Statement
from tpuconvert.verify.tensor_comparison import add_output, compare_outputs

STEPS = 3
"""Smallest number of steps of a model with state that are compared."""

Feed = dict[str, Array]


class StatePair(NamedTuple):
    """Names of the input that takes a state and of the output that is its next value."""

    input: str
    output: str


@dataclass(frozen=True)
class StateCheck(Plain, hidden=("outputs",)):
    """The steps of a model with state that were compared.

    Args:
        names: names of the states.
        is_kept: whether the model takes the states as inputs; otherwise it starts anew in every run.
        steps: number of steps in sequence that were compared.
        first_different: for a model that starts anew, the first step in which an output differs from the source, which
            keeps its state; 0 if none does.
        engine: the engine that ran these steps of the source too; empty if none did.
        problem: reason why the steps could not be compared, or not with another engine.
        outputs: for a model that starts anew, differences of the source graph with state from this engine.

    """

    names: tuple[str, ...]
    is_kept: bool
    steps: int
    first_different: int = 0
    engine: str = ""
    problem: str = ""
    outputs: tuple[Difference, ...] = ()


def state_pairs(graph: Graph) -> list[StatePair]:
    """Return the ports by which a source passes state from run to run, as stated by its file or seen in its graph."""
    if graph.states:
        return [StatePair(state.input, state.output) for state in graph.states]
    inputs, outputs = graph.input_ports, graph.output_ports
    return [StatePair(inputs[state.input].name, outputs[state.output].name) for state in find_states(graph)]


def initial_states(graph: Graph, states: Sequence[KeptState]) -> Feed:
    """Return the content of each state before the first run; zeros where the file does not define it."""
    ports = {port.name: port for port in graph.input_ports}
    contents = {}
    for state in states:
        shape = [extent for extent in ports[state.input].shape if isinstance(extent, int)]
        contents[state.input] = np.zeros(shape, ports[state.input].dtype) if state.initial is None else state.initial
    return contents


def source_steps(
    program: Graph, pairs: Sequence[StatePair], feeds: Sequence[Feed], count: int
) -> tuple[list[Feed], str]:
    """Return the complete feeds of steps in sequence, with the states that the source leaves after each step.

    The second result is the reason why there are fewer steps, or empty.

    Args:
        program: the source; for a quantized source its integer program.
        pairs: its states.
        feeds: samples, which are repeated if there are too few. The first one contains the initial states.
        count: number of steps.

    """
    growing = [state for state in find_states(program) if state.axis != FIXED]
    state = SessionState(program, find_states(program)) if growing else None
    current = {pair.input: feeds[0][pair.input] for pair in pairs}
    steps: list[Feed] = []
    with Session(program, backend="reference" if has_integers(program) else "auto") as session:
        try:
            if state is not None:
                state.assign(current)
            for sample in itertools.islice(itertools.cycle(feeds), count):
                feed, tokens = {**sample, **current}, 0
                if state is not None:
                    names = {port.name for port in state.required} | ({MASK} if not steps else set())
                    rest, tokens = state.complete({name: sample[name] for name in names & sample.keys()})
                    feed = {**rest, **state.initial(rest)} if steps else dict(sample)
                steps.append(feed)
                results = session.run(feed)
                current = {pair.input: results[pair.output] for pair in pairs}
                if state is not None:
                    state.advance(results, feed, tokens)
        except UsageError as error:  # inputs that do not follow from the number of tokens
            return steps or [dict(feeds[0])], error.message
    return steps, ""


def check_forgotten_states(
    names: tuple[str, ...],
    forgetful: Graph,
    keeping: Graph,
    feeds: Sequence[Feed],
    oracle: tuple[str, Iterator[Statement]] | None,
) -> StateCheck:
    """Compare a source that starts anew in every run with the same source with state, and this one with an engine.

    Args:
        names: names of the states.
        forgetful: the source without state, as the model was converted.
        keeping: the source with state.
        feeds: one sample for each step.
        oracle: name of another engine and its results of these steps.

    """
    pairs = state_pairs(keeping)
    initial = initial_states(keeping, keeping.states)
    steps, problem = source_steps(keeping, pairs, [{**feed, **initial} for feed in feeds], len(feeds))
    ports = [port for port in keeping.output_ports if port.name not in {pair.output for pair in pairs}]
    imported = {port.name: Difference(port.name, "output", "import") for port in ports}
    first_different = 0
    engine, statements = oracle if oracle is not None else ("", iter(()))
    backend: Literal["auto", "reference"] = "reference" if has_integers(keeping) else "auto"
    with Session(keeping, backend=backend) as with_state, Session(forgetful, backend=backend) as without_state:
        for number, (feed, step) in enumerate(zip(feeds, steps, strict=True), start=1):
            continued, anew = with_state.run(step), without_state.run(feed)
            if not first_different and not _is_equal(ports, continued, anew):
                first_different = number
            statement = next(statements, None)
            if statement is not None:
                compare_outputs(ports, continued, statement, imported)
    compared = tuple(item for item in imported.values() if item.is_used)
    return StateCheck(names, False, len(steps), first_different, engine, problem, compared)


def _is_equal(ports: Sequence[Port], one: Mapping[str, Array], two: Mapping[str, Array]) -> bool:
    for port in ports:
        difference = Difference(port.name)
        add_output(difference, port, one[port.name], port, two[port.name])
        if difference.relative > FLOAT_TOLERANCE:
            return False
    return True
