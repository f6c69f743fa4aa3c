"""Calls of the extension that the planner makes for a case: recorded, and repeated with changes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.native_cases.draft import make
from tests.support.native_cases.hostile import mutate
from tpuconvert.runtime.native.builder import builder as builder_module
from tpuconvert.runtime.native.builder.arena import footprint
from tpuconvert.runtime.native.builder.loader import available_isas, native
from tpuconvert.runtime.native.plan import NativePlan

Sizes = Sequence[tuple[str, int]]
"""Kinds and sizes of the buffers of a plan."""


@dataclass
class Call:
    """A call of the extension: a function's name and arguments, some of which are results of other calls."""

    name: str
    arguments: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)


class Recorder:
    """Wrapper of the extension that records calls."""

    def __init__(self) -> None:
        self.module = native()
        self.results: dict[int, tuple[Any, Call]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        is_enumeration = isinstance(found, type) and not hasattr(found, "__init__")
        if (
            not callable(found)
            or is_enumeration
            or name in ("Program", "Rescale", "Declined", "available_isas", "kernels")
        ):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            result = found(*arguments, **named)
            known = Call(
                name, [self.as_call(item) for item in arguments], {k: self.as_call(v) for k, v in named.items()}
            )
            self.results[id(result)] = (result, known)
            return result

        return call

    def as_call(self, value: Any) -> Any:
        """Return the recorded call that created an argument, recursively."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.as_call(item) for item in value)
        if id(value) not in self.results:
            return value
        return self.results[id(value)][1]


def leaves(value: Any, path: tuple = ()) -> list[tuple]:
    """Paths to everything in a call that can be changed."""
    if isinstance(value, Call):
        found = []
        for part in ("arguments", "named"):
            items = getattr(value, part)
            keys = range(len(items)) if isinstance(items, list) else items
            for key in keys:
                found += leaves(items[key], (*path, part, key))
        return found
    found = [path]
    if isinstance(value, (list, tuple)) and any(isinstance(item, (Call, tuple)) for item in value):
        for index, item in enumerate(value):
            found += leaves(item, (*path, "items", index))
    return found


def made(value: Any, module: Any, target: tuple | None, rng: np.random.Generator) -> Any:
    """Make a call again with the argument at ``target`` changed."""
    if isinstance(value, Call):
        parts: dict[str, Any] = {}
        for part in ("arguments", "named"):
            items = getattr(value, part)
            keys = list(range(len(items)) if isinstance(items, list) else items)
            below = target[2:] if target and target[0] == part else None
            chosen = target[1] if target and target[0] == part else None
            parts[part] = {key: made(items[key], module, below if key == chosen else None, rng) for key in keys}
        return getattr(module, value.name)(*parts["arguments"].values(), **parts["named"])
    if target is None or target:
        if isinstance(value, (list, tuple)):
            inner = {target[1]: target[2:]} if target else {}
            return type(value)(made(item, module, inner.get(index), rng) for index, item in enumerate(value))
        return value
    if isinstance(value, np.ndarray):
        return changed_array(value, rng)
    if isinstance(value, str):
        return ["", "scalar", "nonsense", value * 2, "avx2"][int(rng.integers(5))]
    if value is None:
        return None
    return mutate(value, rng, extremes=True) if rng.random() < 0.95 else None


def changed_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    choice = int(rng.integers(6))
    if choice == 0:
        return array[:-1]
    if choice == 1:
        return np.concatenate([array, array[:1]]) if array.size else np.ones(3, array.dtype)
    if choice == 2:
        return array[..., ::-1]
    if choice == 3:
        return array.astype(np.float64)
    if choice == 4 and array.size:
        limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else np.finfo(array.dtype)
        copy = array.copy()
        copy.reshape(-1)[int(rng.integers(copy.size))] = [limits.min, limits.max, 0][int(rng.integers(3))]
        return copy
    return array[:0]


def record(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Call], list[tuple[str, int]]]:
    """The steps of a case, and its buffers; every seed takes another instruction set."""
    case, recorder = make(kind, seed), Recorder()
    sizes: list[tuple[str, int]] = []
    kept: set[int] = set()
    finish = builder_module.Builder.finish

    def record_sizes(self):
        finish(self)
        sizes.extend((buffer.kind, buffer.size) for buffer in self.buffers)
        kept.update(id(entry.step) for entry in self.native_steps)

    isas = available_isas()
    with monkeypatch.context() as patched:
        patched.setattr(builder_module, "native", lambda: recorder)
        patched.setattr(builder_module.Builder, "finish", record_sizes)
        NativePlan(case.graph, case.chip.name, isas[seed % len(isas)], 1)
    # Steps of a group that was declined refer to buffers that the plan does not have.
    steps = [call for number, (_, call) in recorder.results.items() if number in kept]
    return steps, sizes


def run_alone(module: Any, step: Any, sizes: Sizes, threads: int) -> None:
    """A program of one step over buffers of these sizes, none of which share memory."""
    buffers, constants, top = [], [], 0
    for kind, size in sizes:
        buffers.append((kind, top if kind == "arena" else 0, size))
        top += footprint(size, module.SLACK) if kind == "arena" else 0
        if kind == "constant":
            constants.append(np.zeros(size + module.SLACK, np.uint8))
    program = module.Program(steps=[step], buffers=buffers, constants=constants, arena_bytes=top, threads=threads)
    memory = program.make_memory()
    outside = []
    for index, (kind, size) in enumerate(sizes):
        if kind == "external":
            outside.append(np.zeros(size, np.uint8))
            memory.set_output(program, index, outside[-1])
    program.run(memory, 0, 1)
