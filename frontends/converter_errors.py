"""Errors of converters: every exception becomes an error that names the node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.open_extents import OpenExtentError
from tpuconvert.schema.errors import INVALID_NODE, ShapeError, TpuConvertError
from tpuconvert.schema.system.memory_errors import not_enough_memory
from tpuconvert.schema.user_code import unexpected, with_place

OF_NODE: tuple[type[Exception], ...] = (ValueError, OverflowError)
"""Exceptions that a definition of an operator raises for attributes that do not fit, and Python for numbers."""

OF_OPEN_EXTENT = (TypeError, AttributeError, ValueError)
"""Exceptions that NumPy raises if an extent is not a number."""


@contextlib.contextmanager
def translated_errors(
    operator: str,
    file: str,
    node: str,
    *,
    of_node: tuple[type[Exception], ...] = OF_NODE,
    open_extent: Callable[[], str] = str,
) -> Iterator[None]:
    """Translate the exceptions of a converter, of this package or of a plugin.

    Args:
        operator: operator of the source.
        file: name of the source.
        node: name of the node.
        of_node: exceptions that say that the node is invalid.
        open_extent: returns a symbolic extent of the operands, or an empty string if there is none.

    Raises:
        CannotConvertError: the node is invalid or not supported.
        OpenExtentError: the converter needs a number for a symbolic extent.
        ResourceLimitError: there is not enough memory.
        InternalError: the converter has a bug; PluginError if it belongs to a plugin.

    """
    try:
        yield
    except (CannotConvertError, OpenExtentError):
        raise
    except ShapeError as error:
        raise CannotConvertError(INVALID_NODE, error.message, error.hint) from error
    except TpuConvertError as error:
        error.add_place(file, node)
        raise
    except MemoryError as error:
        raise not_enough_memory("its conversion", error, file=file, node=node) from error
    except Exception as error:
        if isinstance(error, OF_OPEN_EXTENT) and (extent := open_extent()):
            raise OpenExtentError(extent) from error
        if isinstance(error, of_node):
            raise CannotConvertError(INVALID_NODE, with_place(error)) from error
        raise unexpected(f"{operator} could not be converted", error, file=file, node=node) from error
