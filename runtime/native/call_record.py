"""Record the calls of the extension that make the steps of a plan, and repeat them from a file.

A step is made by a function of a kernel from a spec, an object of numbers, arrays and other specs. A record of these
calls contains everything that the planner has decided, so that repeating them replaces reading the graph and planning.
Every argument of a record from a file is checked by the extension, as are those of the planner.
"""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpuconvert.schema.types import Array

Json = Any
"""A value of JSON."""

_NOT_RECORDED = ("Declined", "MappedFile", "Memory", "PackedRecord", "Program", "Step", "WinogradCost")
"""Classes of the extension whose objects are not arguments of steps."""

ELEMENT_TYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
"""Types of arrays in a record, in the notation of NumPy."""

_PLAIN = frozenset({bool, float, int, str, type(None)})
_ZERO = np.zeros(1, np.int64)

_DEPTH = 8
"""Largest nesting of specs and lists."""


@dataclass
class Call:
    """A call of the extension: the name of a function or class, and its arguments.

    ``packed`` has the packed weights of a step, which is the result of a kernel's function.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    packed: Any = None


class Recorder:
    """Stand-in for the extension module that records calls.

    Args:
        module: the extension.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._kernels = kernel_names(module)
        self._results: dict[int, tuple[Any, Call]] = {}  # with the results, so that no identity is used twice

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name not in self._kernels and name != "Program" and not is_spec(self._module, name):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            packed = self._module.PackedRecord() if name in self._kernels else None
            if packed is not None:
                packed.begin()
            try:
                result = found(*arguments, **named)
            finally:
                if packed is not None:
                    packed.end()
            self._results[id(result)] = result, Call(name, arguments, named, packed)
            return result

        return call

    def call_of(self, result: Any) -> Call | None:
        """Return the call that returned an object, or None for another object."""
        found = self._results.get(id(result))
        return None if found is None else found[1]


recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)
"""The recorder that ``loader.native`` returns instead of the extension."""


@contextlib.contextmanager
def recording(module: Any) -> Iterator[Recorder]:
    """Record the calls of the extension in the ``with`` block."""
    made = Recorder(module)
    token = recorder.set(made)
    try:
        yield made
    finally:
        recorder.reset(token)


def kernel_names(module: Any) -> frozenset[str]:
    """Names of the functions of the extension that make steps."""
    return frozenset(name for name, _ in module.kernels())


def is_spec(module: Any, name: str) -> bool:
    """Return True if this is a class of the extension whose objects are arguments of steps."""
    found = vars(module).get(name)
    return isinstance(found, type) and not issubclass(found, (enum.Enum, BaseException)) and name not in _NOT_RECORDED


class NotRecordableError(Exception):
    """A step has an argument that a file cannot contain."""


def encode(value: Any, calls: Recorder, add_array: Callable[[Array], int], packed: Any = None) -> Json:
    """Return an argument as a value of JSON.

    Args:
        value: the argument.
        calls: has the calls that made specs.
        add_array: stores an array and returns its number.
        packed: packed weights of the step; arrays that they replace are not stored.

    Raises:
        NotRecordableError: for an object of another kind.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": value.hex()}
    if isinstance(value, (tuple, list)):
        return [encode(item, calls, add_array, packed) for item in value]
    if isinstance(value, enum.Enum):
        return {"enum": [type(value).__name__, value.name]}
    if isinstance(value, np.ndarray):
        return {"array": add_array(value)}
    call = calls.call_of(value)
    if call is None:
        raise NotRecordableError(f"an argument of the type {type(value).__name__}")
    arguments = [encode(item, calls, add_array, packed) for item in call.arguments]
    named: dict[str, Json] = {}
    for name, item in call.named.items():
        if name == "weights" and packed is not None and isinstance(item, np.ndarray) and packed.replaces(item):
            named |= {name: {"replaced": [item.dtype.str, list(item.shape)]}, "are_weights_packed": True}
        else:
            named[name] = encode(item, calls, add_array, packed)
    return {"call": [call.name, arguments, named]}


class Decoder:
    """Repeat recorded calls.

    Args:
        module: the extension.
        arrays: arrays of the record.
    """

    def __init__(self, module: Any, arrays: list[Array]) -> None:
        self._module = module
        self._arrays = arrays
        self._kernels = kernel_names(module)
        self._specs: dict[str, Any] = {}

    def step(self, kernel: str, spec: Json, isa: str, packed: Any) -> Any:
        """Make a step.

        Raises:
            ValueError: the record is not valid. Functions of the extension also raise TypeError, IndexError,
                OverflowError, RuntimeError and MemoryError.
        """
        if kernel not in self._kernels:
            raise ValueError(f"there is no kernel {kernel!r}")
        made = self.value(spec)
        packed.begin()
        try:
            step = getattr(self._module, kernel)(made, isa)
        finally:
            packed.end()
        if not packed.is_used_up:
            raise ValueError(f"{kernel} does not take all of its packed weights")
        return step

    def value(self, stored: Json, depth: int = 0) -> Any:
        """Return the argument that ``encode`` has stored."""
        if stored.__class__ in _PLAIN:
            return stored
        depth += 1
        if depth > 2 * _DEPTH:
            raise ValueError("a step has too many levels of specs")
        # Most arguments are numbers: without calls for them, the steps are made in half of the time.
        if stored.__class__ is list:
            return tuple([item if item.__class__ in _PLAIN else self.value(item, depth) for item in stored])
        ((kind, content),) = stored.items()
        if kind == "call":
            name, arguments, named = content
            values = [item if item.__class__ in _PLAIN else self.value(item, depth) for item in arguments]
            fields = {key: it if it.__class__ in _PLAIN else self.value(it, depth) for key, it in named.items()}
            return self._spec(name)(*values, **fields)
        if kind == "array":
            if not isinstance(content, int) or not 0 <= content < len(self._arrays):
                raise ValueError("a step refers to an array that does not exist")
            return self._arrays[content]
        if kind == "enum":
            return self._enum(*content)
        if kind == "replaced":
            return _stand_in(*content)
        if kind == "float":
            return float.fromhex(content)
        raise ValueError(f"an argument of the unknown kind {kind!r}")

    def _spec(self, name: str) -> Any:
        found = self._specs.get(name)
        if found is None:
            if not isinstance(name, str) or not is_spec(self._module, name):
                raise ValueError(f"there is no spec {name!r}")
            found = self._specs[name] = getattr(self._module, name)
        return found

    def _enum(self, name: str, member: str) -> Any:
        found = getattr(self._module, name, None)
        if not isinstance(found, type) or not issubclass(found, enum.Enum) or member not in found.__members__:
            raise ValueError(f"there is no constant {name!r}.{member!r}")
        return found[member]


def _stand_in(dtype: str, shape: list[int]) -> Array:
    """Return an array of zeros that takes no memory, for weights that were packed before."""
    if dtype not in ELEMENT_TYPES or not all(isinstance(extent, int) and extent >= 0 for extent in shape):
        raise ValueError("weights of an unknown type or shape")
    return np.ndarray(shape, dtype, _ZERO, 0, (0,) * len(shape))  # a fifth of the time of broadcast_to
