"""Runs of a plan with arrays that need neither a check nor a conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tpuconvert.runtime.native.builder.results import ResultMemory
from tpuconvert.schema.types import Array


class DirectPlan:
    """A plan of native steps only, for callers with contiguous and aligned arrays of its types and shapes.

    ``run`` is thread-safe. The time per call counts: a small network runs for a few microseconds.

    Args:
        program: the native program.
        inputs: indices of the buffers of the inputs.
        outputs: indices of the buffers of the outputs.
        results: allocators of the outputs.
        run_all: runs all steps in a memory of the program.
    """

    def __init__(
        self,
        program: Any,
        inputs: Sequence[int],
        outputs: Sequence[int],
        results: Sequence[ResultMemory],
        run_all: Callable[[Any], None],
    ) -> None:
        self._program, self._inputs, self._outputs = program, inputs, outputs
        self._results, self._run_all = results, run_all
        self._idle: list[Any] = []

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Run once with one array per input. Return one new array per output."""
        try:
            memory = self._idle.pop()  # ``pop`` is atomic, so that no lock is needed.
        except IndexError:
            memory = self._program.make_memory(False)
        for index, array in zip(self._inputs, feeds, strict=True):
            memory.set_input(self._program, index, _bytes(array))
        outputs = [result.new() for result in self._results]
        for index, array in zip(self._outputs, outputs, strict=True):
            memory.set_output(self._program, index, _bytes(array))
        self._run_all(memory)
        self._idle.append(memory)
        return outputs

    def bind(self, feeds: Mapping[int, Array], results: Mapping[int, Array]) -> BoundPlan:
        """Return the plan with arrays for some inputs and outputs, by index, that stay the same in all runs."""
        return BoundPlan(self, feeds, results)

    def memory(self, feeds: Mapping[int, Array], results: Mapping[int, Array]) -> Any:
        """Make a memory in which some inputs and outputs are set."""
        memory = self._program.make_memory(False)
        self.set(memory, feeds, results)
        return memory

    def set(self, memory: Any, feeds: Mapping[int, Array], results: Mapping[int, Array]) -> None:
        """Set some inputs and outputs of a memory. The caller keeps the arrays alive."""
        for index, array in feeds.items():
            memory.set_input(self._program, self._inputs[index], _bytes(array))
        for index, array in results.items():
            memory.set_output(self._program, self._outputs[index], _bytes(array))

    def new_results(self, without: Mapping[int, Array]) -> dict[int, Array]:
        """Allocate the other outputs, by index."""
        return {index: result.new() for index, result in enumerate(self._results) if index not in without}

    def run_in(self, memory: Any) -> None:
        """Run once in a memory whose inputs and outputs are set."""
        self._run_all(memory)


class BoundPlan:
    """A plan and the memory of its runs, in which some inputs and outputs are always the same arrays.

    Not thread-safe. Setting the caches of a decoder takes longer in every run than its attention.

    Args:
        plan: the plan.
        feeds: arrays of inputs, by index.
        results: arrays of outputs, by index.
    """

    def __init__(self, plan: DirectPlan, feeds: Mapping[int, Array], results: Mapping[int, Array]) -> None:
        self._plan, self._feeds, self._results = plan, feeds, results  # the program stores addresses only
        self._memory = plan.memory(feeds, results)

    def run(self, feeds: Mapping[int, Array]) -> dict[int, Array]:
        """Run once with arrays for the other inputs, by index. Return new arrays for the other outputs, by index."""
        arrays = {index: np.require(array, None, ("C", "A")) for index, array in feeds.items()}
        outputs = self._plan.new_results(without=self._results)
        self._plan.set(self._memory, arrays, outputs)
        self._plan.run_in(self._memory)
        return outputs


def _bytes(array: Array) -> Array:
    """The bytes of a contiguous array, without a copy."""
    return np.ndarray(array.nbytes, np.uint8, array)
