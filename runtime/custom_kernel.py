"""Native kernels of custom operators: a C function in a shared library, called through ctypes.

The interface is ``include/tpuconvert_custom.h``. As with a plugin, the user chooses the code that runs: a plugin names
the library, a model file cannot.
"""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.schema.definition.op import Op, OpKind
from tpuconvert.schema.errors import RunError, UsageError
from tpuconvert.schema.file.tpum_tables import DType as StoredDType
from tpuconvert.schema.types import Array, DType, Scalar

_MESSAGE_BYTES = 512


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("elements", ctypes.c_int64),
        ("data", ctypes.c_void_p),
    )


class _Parameter(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("text", ctypes.c_char_p),
        ("integers", ctypes.POINTER(ctypes.c_int64)),
        ("reals", ctypes.POINTER(ctypes.c_double)),
        ("count", ctypes.c_int64),
    )


class _Kind(enum.IntEnum):
    """Values of ``kind`` of a parameter; see the header."""

    NONE = 0
    INTEGER = 1
    REAL = 2
    TEXT = 3
    INTEGERS = 4
    REALS = 5


def include_folder() -> Path:
    """The folder of ``tpuconvert_custom.h``, for a C compiler's ``-I``."""
    return Path(__file__).with_name("include")


class NativeKernel:
    """C function that computes an operator; its definition contains ``native = NativeKernel(...)``.

    Its results must equal the results of the reference; ``tpuconvert op test`` compares the bytes. Without the library
    the reference runs instead, which is slower.

    Args:
        symbol: name of the function.
        library: the shared library, or a pattern such as ``folder/_gate*.so``, of which the first match is used.
            Patterns are useful because the names of compiled Python extensions differ between machines.

    """

    def __init__(self, symbol: str, library: str | Path) -> None:
        self.symbol = symbol
        self.library = Path(library)
        self._function: Any = None

    @property
    def path(self) -> Path | None:
        """File of the library, or None if it does not exist."""
        if self.library.is_file():
            return self.library
        return next(iter(sorted(self.library.parent.glob(self.library.name))), None)

    @property
    def is_available(self) -> bool:
        """True if the library exists."""
        return self.path is not None

    def _load(self) -> Any:
        """Return the C function. The library is loaded at the first call.

        Raises:
            UsageError: if the library cannot be loaded or has no such function.

        """
        if self._function is None:
            path = self.path
            if path is None:
                raise UsageError(f"{self.library}: no such library", hint="build the kernel of the plugin first")
            try:
                function = getattr(ctypes.CDLL(os.path.abspath(path)), self.symbol)
            except (OSError, AttributeError) as error:
                raise UsageError(f"{path}: {error}", hint="build the kernel of the plugin again") from error
            tensors, parameters = ctypes.POINTER(_Tensor), ctypes.POINTER(_Parameter)
            number = ctypes.c_int32
            function.argtypes = [tensors, number, tensors, number, parameters, number, ctypes.c_char_p, ctypes.c_int64]
            function.restype = ctypes.c_int
            self._function = function
        return self._function

    def run(self, op: Op, operands: Sequence[Array | None], results: Sequence[Array]) -> None:
        """Compute an operator.

        Args:
            op: operator, with its parameters as attributes.
            operands: contiguous arrays, None for absent ones.
            results: contiguous arrays that are written to.

        Raises:
            RunError: if the kernel reports an error.
            UsageError: if the library cannot be loaded, or a parameter has an unsupported type.

        """
        function = self._load()
        keep: list[Any] = []
        parameters = [_parameter(op, name, value, keep) for name, value in op.attributes().items()]
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        failed = function(
            *_vector(_Tensor, [_tensor(array, keep) for array in operands]),
            *_vector(_Tensor, [_tensor(array, keep) for array in results]),
            *_vector(_Parameter, parameters),
            message,
            _MESSAGE_BYTES,
        )
        if failed:
            why = message.value.decode("utf-8", "replace") or f"it returned {failed}"
            raise RunError(f"the native kernel of {op.name} gave up: {why}")


def kernel_of(op: Op) -> NativeKernel | None:
    """Return the native kernel of a custom operator, or None if it has none or the library does not exist."""
    if op.kind is not OpKind.CUSTOM:
        return None
    kernel = getattr(type(op), "native", None)
    return kernel if isinstance(kernel, NativeKernel) and kernel.is_available else None


def _vector(kind: Any, items: list[Any]) -> tuple[Any, int]:
    return (kind * len(items))(*items), len(items)


def _tensor(array: Array | None, keep: list[Any]) -> _Tensor:
    if array is None:
        return _Tensor()
    assert array.flags.c_contiguous, "kernels take contiguous arrays"
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    keep += [array, shape]
    dtype = StoredDType[DType.of(array.dtype).name]
    return _Tensor(int(dtype), array.ndim, shape, array.size, array.ctypes.data)


def _parameter(op: Op, name: str, value: Any, keep: list[Any]) -> _Parameter:
    """Convert a parameter to its C representation.

    Raises:
        UsageError: if its type has no equivalent in C.

    """
    parameter = _Parameter(name=name.encode())
    value = value.value if isinstance(value, Scalar) else value
    if isinstance(value, DType):
        value = int(StoredDType[value.name])
    if isinstance(value, (bool, int, np.integer)):
        parameter.kind, parameter.integer = _Kind.INTEGER, int(value)
    elif isinstance(value, float):
        parameter.kind, parameter.real = _Kind.REAL, value
    elif isinstance(value, str):
        parameter.kind, parameter.text = _Kind.TEXT, value.encode()
    elif isinstance(value, tuple) and all(isinstance(item, (bool, int)) for item in value):
        parameter.kind, parameter.integers, parameter.count = (
            _Kind.INTEGERS,
            (ctypes.c_int64 * len(value))(*value),
            len(value),
        )
    elif isinstance(value, tuple) and all(isinstance(item, (bool, int, float)) for item in value):
        parameter.kind, parameter.reals, parameter.count = (
            _Kind.REALS,
            (ctypes.c_double * len(value))(*value),
            len(value),
        )
    elif value is not None:
        kind = type(value).__name__
        raise UsageError(f"{op.name}: a native kernel cannot be given the parameter {name}, which is a {kind}")
    keep.append(parameter)
    return parameter
