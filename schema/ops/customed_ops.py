"""customed_ops: a user-defined operator, executed by the function that is registered for its ``op_type``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.op import ALL, GLOBAL, Op, Operand, case, on, todo, tpu_op
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import F32, NUMBERS, Array, TensorType

_ANY = case({ALL: NUMBERS})


class CustomedFunction(Protocol):
    """Function registered for an ``op_type``; ``param`` is the operator's parameter block, or None."""

    def infer(self, param: bytes | None, *types: TensorType) -> Sequence[TensorType]:
        """Return the types of the results."""

    def compute(self, param: bytes | None, *arrays: Array) -> Sequence[Array]:
        """Compute the results."""


_FUNCTIONS: dict[int, CustomedFunction] = {}

Function = TypeVar("Function", bound=CustomedFunction)


def customed_function(op_type: int) -> Callable[[Function], Function]:
    """Return a decorator that registers a function for an ``op_type``.

    Raises:
        UsageError: another function is registered for it.
    """

    def register(function: Function) -> Function:
        if op_type in _FUNCTIONS:
            raise UsageError(f"customed_ops: op_type {op_type} is registered twice", hint="choose another number")
        _FUNCTIONS[op_type] = function
        return function

    return register


@tpu_op("customed_ops")
class CustomedOps(Op):
    """Call the function registered for ``op_type``.

    The function also infers shapes and data types of the results.
    Units: ``param_size`` in bytes; None means the whole of ``param``.
    Errors: UsageError if no function is registered.
    """

    op_type: int
    param: bytes | None = None
    param_size: int | None = None

    is_pure = False  # nothing is known about registered functions

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i", variadic=True),)
    outputs = (Operand("tensor_o", variadic=True),)
    dtypes = on(case({ALL: (F32,)}), bm1684=(_ANY,), bm1686=todo(_ANY))
    locality = GLOBAL

    def __post_init__(self) -> None:
        if self.param_size is not None and self.param_size != len(self.param or b""):
            raise ValueError(f"customed_ops: param_size is {self.param_size}, param has {len(self.param or b'')} bytes")

    @property
    def function(self) -> CustomedFunction:
        """The registered function.

        Raises:
            UsageError: no function is registered.
        """
        if self.op_type not in _FUNCTIONS:
            raise UsageError(
                f"customed_ops: no function is registered for op_type {self.op_type}",
                hint="load the plugin that registers it (--plugin)",
            )
        return _FUNCTIONS[self.op_type]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return tuple(self.function.infer(self.param, *types))

    def reference(self, *arrays: Array) -> tuple[Array, ...]:
        return tuple(self.function.compute(self.param, *arrays))
