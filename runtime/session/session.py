"""Execution of models: ``Session(model).run({name: array}) -> {name: array}``."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, Protocol, Self

import numpy as np

from tpuconvert.runtime.native.builder.loader import chosen_isa, extension
from tpuconvert.runtime.native.statistics.observers import StatisticsObserver
from tpuconvert.runtime.reference.node_evaluation import NodeEvaluation, RunGraph
from tpuconvert.runtime.reference.plan import Observer, Plan, make_plan, run_plan
from tpuconvert.runtime.reference.profile import StepProfile, profile_reference
from tpuconvert.runtime.session import batches
from tpuconvert.runtime.session.border import InputShapeError, TensorInfo, from_value, info, to_value
from tpuconvert.runtime.session.direct_run import DirectRun, direct_run
from tpuconvert.runtime.session.feeds import ArrayLike, Feeds, feeds_by_name, feeds_or_named
from tpuconvert.runtime.session.loaded_files import LoadedFile, open_file
from tpuconvert.runtime.session.partial_run import Change, PartialRuns
from tpuconvert.runtime.session.session_state import SessionState
from tpuconvert.runtime.session.state_run import run_in_place, run_with_state
from tpuconvert.runtime.threads import available_threads
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.graph.shape_buckets import buckets_of, extents_of, format_bucket, format_buckets
from tpuconvert.schema.system.memory_errors import RUN_HINT, MemoryErrors, too_large_run
from tpuconvert.schema.types import Array, Chip, format_shape

if TYPE_CHECKING:
    from tpuconvert.runtime.native.plan import NativePlan
    from tpuconvert.runtime.native.plans import Plans
    from tpuconvert.runtime.native.split_plans import SplitPlans


class Runnable(Protocol):
    """Interface of an object that a session can run: a graph and a chip."""

    @property
    def graph(self) -> Graph:
        """The program."""

    @property
    def chip(self) -> Chip:
        """The chip whose arithmetic is computed."""


class ReplanningWarning(UserWarning):
    """A session makes a native plan for every length of the key-value caches."""


class Session:
    """A model ready to run. Thread-safe: runs share the plan and the constants, which are immutable.

    A model with symbolic extents accepts any values for them; the native engine makes a plan per set of values and
    keeps those used last.

    Args:
        model: a model, a graph (which runs as on BM1686), or the path of a ``.tpum`` file.
            Sessions that have the same file open share its weights, packed plan and threads.
        backend: ``reference`` is the NumPy executor, ``native`` the compiled engine, ``auto`` the fastest available.
        threads: of the native engine; None for the number of available CPUs. If as many runs overlap, each of them uses
            one thread. Results do not depend on it. The BLAS library of NumPy determines the threads of the NumPy
            executor.
        observed: True if all runs will have an observer: no plan with fused kernels is made beforehand, which saves the
            packed copy of the weights.
        memory_limit: largest size in bytes of a plan of the native engine: arena, scratch memory and packed weights.
            Winograd convolutions, whose weights take eight times their memory, are used as far as the limit permits,
            those with the largest gain per byte first. None for no limit. Results do not depend on it. A model with
            data-dependent extents has a plan for each part of the graph.

    Raises:
        UsageError: for an unknown backend, and for a plan that does not fit the memory limit.
        MissingExtraError: for the native backend if the engine was not built.
        CorruptInputError: if the file is damaged.
        ResourceLimitError: if there is not enough memory.
    """

    def __init__(
        self,
        model: Runnable | Graph | str | os.PathLike[str],
        *,
        backend: Literal["auto", "native", "reference"] = "auto",
        threads: int | None = None,
        observed: bool = False,
        memory_limit: int | None = None,
    ) -> None:
        if backend not in ("auto", "native", "reference"):
            raise UsageError(f"unknown backend '{backend}'; there are auto, native and reference")
        if threads is not None and threads < 1:
            raise UsageError(f"threads={threads}: at least one thread is needed")
        if memory_limit is not None and memory_limit < 0:
            raise UsageError(f"memory_limit={memory_limit}: expected a number of bytes of at least 0")
        self._threads = threads or available_threads()
        self._memory_limit = memory_limit
        self._file: LoadedFile | None = None
        if isinstance(model, (str, os.PathLike)):
            self._file = open_file(model)
            model = self._file.opened.model
        self._model = model
        self.chip = Chip.BM1686 if isinstance(model, Graph) else model.chip
        self._graph = model if isinstance(model, Graph) else model.graph
        states = () if isinstance(model, Graph) else getattr(model, "states", ())
        self._state = SessionState(self._graph, states) if states else None
        self._buckets = buckets_of(getattr(model, "metadata", {}))
        self._bucket_extents = [extents_of(bucket, self._graph.input_ports) for bucket in self._buckets]
        self._native: Plans | SplitPlans | None = None
        with MemoryErrors("preparing the model", self._graph.file, RUN_HINT):
            if backend != "reference":
                self._native = self._native_plans(backend == "native")
            if self._native is not None and not observed:
                self._native.prepare()
        self.backend: Literal["native", "reference"] = "reference" if self._native is None else "native"
        self._direct = self._find_direct_run() if self._native is not None and not observed else None
        self._is_open = True
        self._has_warned = False
        self._parts: PartialRuns | None = None
        self._reference: Plan | None = None
        # No method of the session, which would keep the session alive.
        plan_subgraph = partial(_plan_subgraph, self.chip, self._threads, memory_limit)
        self._evaluate = NodeEvaluation(self.chip, self._graph.file, None if self._native is None else plan_subgraph)

    def _find_direct_run(self) -> DirectRun | None:
        """Return an object for runs without conversions, for a model with one plan without references."""
        plan = None if self._state or self._buckets or self._native is None else self._native.direct_plan
        return None if plan is None else direct_run(self._graph, plan)

    def _native_plans(self, is_wanted: bool) -> Plans | SplitPlans | None:
        """Return the native plans, or None if ``auto`` falls back to the reference."""
        if not is_wanted and extension() is None:
            return None
        isa = chosen_isa()
        plans = {} if self._file is None else self._file.plans
        key = (isa, self._threads, self._memory_limit)
        if key not in plans:
            states = () if self._state is None else self._state.states
            settings = self.chip.name, isa, self._threads, states, self._memory_limit, self._bucket_extents
            drop = None if self._file is None else self._file.opened.drop
            plans[key] = _planner().plans_of(self._graph, *settings, drop)
        return plans[key]

    @property
    def threads(self) -> int:
        """Number of threads of the native engine; 1 for the NumPy executor."""
        return self._threads if self.backend == "native" else 1

    @property
    def inputs(self) -> list[TensorInfo]:
        """Names, types and shapes of the inputs without states, in the source's order."""
        return [info(port) for port in (self._state or self._graph_ports).inputs]

    @property
    def outputs(self) -> list[TensorInfo]:
        """Names, types and shapes of the outputs without states, in the source's order."""
        return [info(port) for port in (self._state or self._graph_ports).outputs]

    @property
    def states(self) -> list[TensorInfo]:
        """Names, types and shapes of the inputs that the session keeps between runs, such as key-value caches."""
        return [] if self._state is None else self._state.tensors

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the states by input name: empty before the first run. Assign a mapping to replace them.

        Raises:
            UsageError: at an assignment, for a model without states, other names, or shapes that do not fit.
        """
        if self._state is None:
            return {}
        with self._state.lock:
            return self._state.arrays()

    @state.setter
    def state(self, arrays: Mapping[str, Array]) -> None:
        state = self._require_state()
        with state.lock:
            state.assign(arrays)

    @property
    def length(self) -> int:
        """Number of tokens in the key-value caches; 0 for a model without states."""
        return 0 if self._state is None else self._state.length

    @property
    def replanning(self) -> str:
        """Reason why the native engine makes a plan for every length of the caches; empty if one plan serves all."""
        return "" if self._state is None or self._native is None else self._native.reason

    def reset(self) -> None:
        """Return to the initial state: caches without tokens.

        Raises:
            UsageError: for a model without states.
        """
        state = self._require_state()
        with state.lock:
            state.reset()

    def truncate(self, length: int) -> None:
        """Remove the last tokens from the key-value caches, so that the next run continues after the first ``length``.

        The caches stay where they are: nothing is copied.

        Args:
            length: number of tokens to keep.

        Raises:
            UsageError: for a model without states, for more tokens than the caches have, and for a model with a state
                of fixed shape, unless ``length`` is 0 or all tokens.
        """
        state = self._require_state()
        with state.lock:
            state.truncate(length)

    def _require_state(self) -> SessionState:
        self._check_open()
        if self._state is None:
            hint = "convert a decoder with key-value caches with state='auto'"
            raise UsageError("the model keeps no state between runs", hint=hint)
        return self._state

    @property
    def _graph_ports(self) -> _Ports:
        return _Ports(self._graph.input_ports, self._graph.output_ports)

    def __repr__(self) -> str:
        name = self._graph.file or self._graph.name
        threads = f", {self.threads} thread{'' if self.threads == 1 else 's'}" if self.backend == "native" else ""
        tensors = "; ".join(
            f"{what} {', '.join(f'{each.name} {each.dtype}{format_shape(each.shape)}' for each in ports)}"
            for what, ports in (("inputs", self.inputs), ("outputs", self.outputs))
        )
        state = "" if self._is_open else ", closed"
        return f"<Session: {name} for {self.chip.value}, {self.backend}{threads}{state}; {tensors}>"

    def run(
        self,
        feeds: Feeds | None = None,
        *arrays: ArrayLike,
        outputs: Sequence[str] | None = None,
        change: Mapping[str, Change] = MappingProxyType({}),
        observe: Observer | None = None,
        borrow: bool = False,
        **named: ArrayLike,
    ) -> dict[str, Array]:
        """Run the model once, or once for each batch if there are more samples than its batch size.

        Batches run in parallel, one on each thread, if the native engine runs all nodes and the memory of all threads
        is at most 1 GiB.

        A model with states appends to them: the feeds contain the new tokens only, and inputs that follow from the
        length of the caches, such as ``attention_mask`` and ``position_ids``, may be left out. A run whose feeds
        contain all states does not use the states of the session.

        Args:
            feeds: one array per input name. Or the arrays in the order of the inputs, in a list or as arguments:
                ``run(x)``, ``run(x, y)``, ``run([x, y])``. Types are converted if the conversion is lossless
                (``schema/graph/input_types.py``); uint8 for a float input is refused, as images need preprocessing.
            arrays: the arrays of further inputs, if ``feeds`` is the array of the first input.
            named: arrays by input name, instead of a mapping: ``run(input_ids=ids)``.
            outputs: names of outputs or of computed tensors, which ``tpuconvert inspect`` lists. Only the nodes that
                they need are run, and only the inputs that they need have to be given. None for the outputs of the
                model. Not for a model with states.
            change: functions by name of a computed tensor. Each gets the array of its tensor and returns the one that
                the nodes after it read. Not for a model with states.
            observe: callback with every input and every computed value. The native engine uses a second plan without
                fusion for such runs; a model with data-dependent extents runs its NumPy references.
            borrow: True if the callback neither keeps nor changes the arrays. They may then be views of memory that
                later steps overwrite, in any memory order, which saves copies.

        Returns:
            One array per output name, in the source's order. No later run changes them.

        Raises:
            UsageError: for missing or unknown names, wrong shapes or types, and incomplete batches.
            RunError: if an operator cannot compute these values; names the node.
            ResourceLimitError: if there is not enough memory.

        Example:
            >>> session = tc.Session(tc.convert("digits.onnx"), threads=1)
            >>> x = np.zeros((1, 1, 8, 8), np.float32)
            >>> session.run({"image": x})["probability"].shape
            (1, 10)
            >>> session.run(np.zeros((32, 1, 8, 8), np.float32))["probability"].shape
            (32, 10)
        """
        if outputs is not None or change:
            return self._run_part(feeds, arrays, named, outputs, change, observe)
        try:
            if self._direct is not None and observe is None and not arrays:
                results = self._direct.run(named or feeds) if not named or feeds is None else None
                if results is not None:
                    return results
            return self._run_checked(feeds, arrays, named, observe, borrow=borrow)
        except MemoryError as error:
            raise too_large_run(error, file=self._graph.file) from error

    def _run_part(
        self,
        feeds: Feeds | None,
        arrays: tuple[ArrayLike, ...],
        named: Mapping[str, ArrayLike],
        outputs: Sequence[str] | None,
        change: Mapping[str, Change],
        observe: Observer | None,
    ) -> dict[str, Array]:
        """Run the part of the model that computes some tensors, with other tensors changed."""
        self._check_open()
        if self._state is not None:
            hint = "convert the model with state='ports' (--state ports), and give the states as inputs"
            raise UsageError("outputs and change are not possible for a model with states", hint=hint)
        if observe is not None or isinstance(outputs, str):
            message = "observe together with outputs or change" if observe else f"outputs is the text '{outputs}'"
            raise UsageError(message, hint="give a list of names, and no observer")
        if self._parts is None:
            settings = {"backend": self.backend, "threads": self._threads, "memory_limit": self._memory_limit}
            self._parts = PartialRuns(self._graph, self.chip, partial(Session, **settings))  # type: ignore[arg-type]
        given = feeds_by_name(self._graph.input_ports, feeds_or_named(feeds, arrays, named), arrays)
        return self._parts.run(given, outputs, change)

    # Overflow to infinity and NaN are defined results; they may also occur in parameters of a plan.
    @np.errstate(all="ignore")
    def _run_checked(
        self,
        feeds: Feeds | None,
        arrays: tuple[ArrayLike, ...],
        named: Mapping[str, ArrayLike],
        observe: Observer | None,
        *,
        borrow: bool,
    ) -> dict[str, Array]:
        """Run with checks and conversions of all feeds."""
        self._check_open()
        state = self._state
        checked_feeds = feeds_or_named(feeds, arrays, named)
        complete = feeds_by_name(self._graph.input_ports if state is None else state.required, checked_feeds, arrays)
        if state is not None and not state.is_given(complete):
            if self._native is not None and self._native.caches is not None and observe is None:
                return run_in_place(state, self._native, complete, self._evaluate)
            self._warn_of_replanning(state)
            return run_with_state(state, complete, lambda feeds: self._run_once(feeds, observe, borrow=borrow))
        return self._run_once(complete, observe, borrow=borrow)

    def _warn_of_replanning(self, state: SessionState) -> None:
        """Issue one warning if further tokens need further plans."""
        if state.length and not self._has_warned and self.replanning:
            self._has_warned = True
            text = f"every run of {self._graph.name} makes a new plan, which takes most of its time: {self.replanning}"
            warnings.warn(text, ReplanningWarning, stacklevel=5)

    def _run_once(self, feeds: Mapping[str, Array], observe: Observer | None, *, borrow: bool) -> dict[str, Array]:
        """Run the model with feeds for all inputs of the graph, and return all outputs of the graph."""
        try:
            values, extents = self._bind_feeds(feeds)
        except InputShapeError as mismatch:
            parts = batches.split(feeds, self._graph.input_ports, self._graph.output_ports, mismatch)
            results = None if observe is not None else self._run_batch(feeds, parts)
            if results is None:
                return batches.join([self._run_once(part, observe, borrow=borrow) for part in parts])
            return self._to_outputs(results)
        if observe is None and self._native is not None:
            results = self._native.plan(extents).run(values, self._evaluate)
        elif observe is None or self._native is None or (plan := self._native.observed_plan(extents)) is None:
            results = self._run_reference(values, observe)
        else:
            results = self._observe(plan, values, observe, borrow)
        return self._to_outputs(results)

    def _to_outputs(self, results: Sequence[Array]) -> dict[str, Array]:
        ports = zip(results, self._graph.outputs, self._graph.output_ports, strict=True)
        return {port.name: from_value(result, port, value) for result, value, port in ports}

    def _run_batch(self, feeds: Mapping[str, Array], parts: Sequence[Mapping[str, Array]]) -> list[Array] | None:
        """Run the parts of a batch in parallel, or return None if that is not possible."""
        if self._native is None or len(parts) < 2:
            return None
        _, extents = self._bind_feeds(parts[0])
        plan = self._native.batch_plan(extents, len(parts))
        if plan is None:
            return None
        bound: dict[str, int] = {}
        arrays = []
        for port, value in zip(self._graph.input_ports, self._graph.inputs, strict=True):
            shape = (len(feeds[port.name]), *port.shape[1:])
            arrays.append(to_value(feeds[port.name], replace(port, shape=shape), value, bound))
        return plan.run_batch(arrays, len(parts), self._evaluate)

    @np.errstate(all="ignore")
    def profile(self, feeds: Mapping[str, Array]) -> list[StepProfile]:
        """Run once and return the time of each step of the plan.

        Raises:
            UsageError: as ``run``.
        """
        self._check_open()
        if self._native is None:
            return profile_reference(lambda arrays, observe: self.run(arrays, observe=observe), feeds)
        with MemoryErrors("running the model", self._graph.file, RUN_HINT):
            arrays, extents = self._bind_feeds(feeds)
            return self._native.plan(extents).profile(arrays, self._evaluate, time.perf_counter)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of the native plan: ``arena``, ``arena_lower_bound``, ``packed``, ``scratch``.

        Empty for the NumPy executor. With symbolic extents, these are the sizes for the last run; the result is empty
        before the first run.
        """
        plan = None if self._native is None else self._native.latest
        if plan is None:
            return {}
        return {
            "arena": plan.arena_bytes,
            "arena_lower_bound": plan.arena_lower_bound,
            "packed": plan.packed_bytes,
            "scratch": plan.scratch_bytes,
        }

    @property
    def reference_nodes(self) -> list[str]:
        """Names of the nodes that run their NumPy reference: all of them without the native engine.

        With symbolic extents, these are the nodes of the last run; the result is empty before the first run.
        """
        if self._native is None:
            return [node.name for node in self._graph.nodes]
        plan = self._native.latest
        return [] if plan is None else [node.name for node in plan.reference_nodes]

    @property
    def reference_reasons(self) -> dict[str, str]:
        """The reasons why ``reference_nodes`` have no native kernel, by node name."""
        if self._native is None:
            return dict.fromkeys(self.reference_nodes, "the session runs without the native engine")
        plan = self._native.latest
        return {} if plan is None else plan.reference_reasons

    def close(self) -> None:
        """Release the plan and the memory-mapped file."""
        self._is_open = False
        self._native = self._reference = self._file = self._direct = self._parts = None

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        """Refuse copies and pickles: plans and states belong to one session.

        Raises:
            UsageError: always.
        """
        raise UsageError("a session cannot be copied or pickled", hint="open another one for the same model")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError("the session is closed")

    def _observe(self, plan: NativePlan, arrays: list[Array], observe: Observer, borrow: bool) -> list[Array]:
        for value, array in zip(self._graph.inputs, arrays, strict=True):
            observe(value, array)
        if borrow and isinstance(observe, StatisticsObserver):
            return plan.run_with_statistics(arrays, self._evaluate, observe)

        def forward_to_observer(value: Value, array: Array) -> None:
            # With symbolic extents, the plan has a copy of the graph, whose values are other objects.
            observe(self._graph.find(value.name) or value, array)

        return plan.run(arrays, self._evaluate, forward_to_observer, borrow=borrow)

    def _run_reference(self, arrays: list[Array], observe: Observer | None) -> list[Array]:
        if self._reference is None:
            self._reference = make_plan(self._graph)
        if observe is not None:
            for value, array in zip(self._graph.inputs, arrays, strict=True):
                observe(value, array)
        # Copy: a result may be a constant, an input, or a view of an observed array.
        return [np.array(array) for array in run_plan(self._reference, arrays, self._evaluate, observe)]

    def _bind_feeds(self, feeds: Mapping[str, Array]) -> tuple[list[Array], dict[str, int]]:
        """Return the feeds in the graph's order and types, and the values of the symbolic extents."""
        names = [port.name for port in self._graph.input_ports]
        if set(feeds) != set(names):
            missing = [name for name in names if name not in feeds]
            unknown = [name for name in feeds if name not in names]
            parts = [f"missing inputs {missing}"] if missing else []
            parts += [f"unknown inputs {unknown}"] if unknown else []
            raise UsageError(f"{' and '.join(parts)}; the model takes {names}")
        bound: dict[str, int] = {}
        pairs = zip(self._graph.input_ports, self._graph.inputs, strict=True)
        values = [to_value(feeds[port.name], port, value, bound) for port, value in pairs]
        if self._buckets and bound not in self._bucket_extents:
            shapes = {port.name: np.shape(feeds[port.name]) for port in self._graph.input_ports}
            raise UsageError(
                f"the inputs have the shapes {format_bucket(shapes)}, which are none of the model's buckets",
                hint=f"its buckets: {format_buckets(self._buckets)}; resize or pad the inputs, or convert with more",
            )
        return values, bound


def _plan_subgraph(chip: Chip, threads: int, memory_limit: int | None, graph: Graph) -> RunGraph:
    """Return the function that runs a subgraph by native plans."""
    settings = chip.name, chosen_isa(), threads
    run: RunGraph = _planner().SplitPlans(graph, *settings, is_subgraph=True, memory_limit=memory_limit).run
    return run


def _planner() -> ModuleType:
    # Start-up cost: importing the planner and its matchers takes 40 ms, which conversions do not need.
    from tpuconvert.runtime.native import split_plans

    return split_plans


class _Ports(NamedTuple):
    """Inputs and outputs of a session without states."""

    inputs: list[Port]
    outputs: list[Port]
