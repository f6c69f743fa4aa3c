"""Running a model: ``Session(model).run({name: array}) -> {name: array}``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

import numpy as np

from tpuconvert.runtime.border import TensorInfo, from_value, info, to_value
from tpuconvert.runtime.plan import Plan, Step, make_plan
from tpuconvert.schema.errors import MissingExtraError, RunError, UsageError
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.types import Array, Chip

Observer = Callable[[Value, Array], None]
"""Called with every graph input and every result of a run, in the order in which they are made."""


class Runnable(Protocol):
    """What a session can run besides a path: anything with a graph and a chip."""

    @property
    def graph(self) -> Graph:
        """The program."""

    @property
    def chip(self) -> Chip:
        """The chip whose arithmetic counts."""


class Session:
    """A model ready to run. Thread-safe: runs share the plan and the constants, which nobody changes.

    Args:
        model: a model, a graph (which runs as on BM1686), or the path of a ``.tpum`` file, which is memory-mapped.
        backend: ``reference`` is the NumPy executor; ``native`` the compiled engine; ``auto`` the best there is.
        threads: of the native engine. The NumPy executor leaves threads to the BLAS library behind NumPy.

    Raises:
        UsageError: for an unknown backend.
        MissingExtraError: when the native engine is asked for and was not built.
        CorruptInputError: when the file is damaged.
    """

    def __init__(
        self,
        model: Runnable | Graph | str | os.PathLike[str],
        *,
        backend: Literal["auto", "native", "reference"] = "auto",
        threads: int | None = None,
    ) -> None:
        if backend not in ("auto", "native", "reference"):
            raise UsageError(f"unknown backend '{backend}'; there are auto, native and reference")
        if backend == "native":
            raise MissingExtraError(
                "this build of tpuconvert has no native engine", hint="use backend='auto' or backend='reference'"
            )
        if threads is not None and threads < 1:
            raise UsageError(f"threads={threads}: at least one thread is needed")
        if isinstance(model, (str, os.PathLike)):
            model = _load(model)
        self.backend: Literal["native", "reference"] = "reference"
        self.chip = Chip.BM1686 if isinstance(model, Graph) else model.chip
        self._graph = model if isinstance(model, Graph) else model.graph
        self._plan: Plan | None = make_plan(self._graph)

    @property
    def inputs(self) -> list[TensorInfo]:
        """Names, types and shapes of the inputs, in the source's order."""
        return [info(port) for port in self._graph.input_ports]

    @property
    def outputs(self) -> list[TensorInfo]:
        """Names, types and shapes of the outputs, in the source's order."""
        return [info(port) for port in self._graph.output_ports]

    def run(self, feeds: Mapping[str, Array], *, observe: Observer | None = None) -> dict[str, Array]:
        """Run the model once.

        Args:
            feeds: one array per input name.
            observe: called with every value that is computed.

        Returns:
            One array per output name, in the source's order; the caller owns them.

        Raises:
            UsageError: for missing or unknown names, and arrays that do not fit.
            RunError: naming the node whose operator could not take these values.
        """
        plan = self._open_plan()
        slots: list[Array | None] = [None] * plan.slots
        for index, constant in plan.constants:
            slots[index] = constant
        for index, value, array in zip(plan.inputs, self._graph.inputs, self._take(feeds), strict=True):
            slots[index] = array
            if observe is not None:
                observe(value, array)
        for step in plan.steps:
            results = self._run_step(step, [None if index < 0 else slots[index] for index in step.inputs])
            for index, value, array in zip(step.outputs, step.node.outputs, results, strict=True):
                slots[index] = array
                if observe is not None:
                    observe(value, array)
            for index in step.release:
                slots[index] = None
        outputs = {}
        for index, value, port in zip(plan.outputs, self._graph.outputs, self._graph.output_ports, strict=True):
            result = slots[index]
            assert result is not None, f"output '{port.name}' was released"
            outputs[port.name] = from_value(result, port, value)
        return outputs

    def close(self) -> None:
        """Let go of the plan and with it of the mapped file."""
        self._plan = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_plan(self) -> Plan:
        if self._plan is None:
            raise UsageError("the session is closed")
        return self._plan

    def _take(self, feeds: Mapping[str, Array]) -> list[Array]:
        names = [port.name for port in self._graph.input_ports]
        if set(feeds) != set(names):
            missing = [name for name in names if name not in feeds]
            unknown = [name for name in feeds if name not in names]
            parts = [f"missing inputs {missing}"] if missing else []
            parts += [f"unknown inputs {unknown}"] if unknown else []
            raise UsageError(f"{' and '.join(parts)}; the model takes {names}")
        bound: dict[str, int] = {}
        pairs = zip(self._graph.input_ports, self._graph.inputs, strict=True)
        return [to_value(feeds[port.name], port, value, bound) for port, value in pairs]

    def _run_step(self, step: Step, arrays: list[Array | None]) -> tuple[Array, ...]:
        node = step.node
        try:
            with np.errstate(all="ignore"):  # overflow to infinity and NaN are defined results
                return node.op.evaluate(*arrays, chip=self.chip)
        except Exception as error:  # whatever an operator, perhaps a custom one, cannot take: the node must be named
            source = f" (from {node.sources[0]})" if node.sources else ""
            raise RunError(f"{node.op.name} failed{source}: {error}", file=self._graph.file, node=node.name) from error


def _load(path: str | os.PathLike[str]) -> Runnable:
    from tpuconvert.schema.file_format import read_model

    return read_model(Path(path))
