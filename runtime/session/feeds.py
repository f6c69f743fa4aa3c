"""Arrays of a run: by name, or in the order of the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy.typing as npt

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import Array

ArrayLike: TypeAlias = npt.ArrayLike

Feeds: TypeAlias = Mapping[str, Any] | Sequence[Any] | npt.ArrayLike
"""One array per input name, the arrays of all inputs in a list or tuple, or the array of the first input."""


def feeds_or_named(feeds: Feeds | None, arrays: Sequence[ArrayLike], named: Mapping[str, Any]) -> Feeds:
    """Return the feeds of a call, which are the first argument or keywords.

    Raises:
        UsageError: both or none are given.

    """
    if named and (feeds is not None or arrays):
        raise UsageError(f"run has the keyword '{next(iter(named))}' and feeds, expected one of them")
    return dict(named) if feeds is None and not arrays and named else feeds  # type: ignore[return-value]  # None: checked


def feeds_by_name(inputs: Sequence[Port], feeds: Feeds, arrays: Sequence[ArrayLike]) -> Mapping[str, Array]:
    """Return one array per input name. Names in a mapping are not checked.

    Args:
        inputs: inputs of the model.
        feeds: the first argument of ``Session.run``.
        arrays: its other positional arguments.

    Raises:
        UsageError: the number of arrays differs from the number of inputs, or a call with the arguments of ONNX
            Runtime.

    """
    if isinstance(feeds, Mapping) and not arrays:
        return feeds
    names = [port.name for port in inputs]
    call = f"session.run({{{', '.join(f'{name!r}: array' for name in names)}}}) returns all outputs by name"
    for each in (feeds, *arrays):
        if each is None or isinstance(each, (str, Mapping)) or _is_list_of_names(each):
            type_name = (
                "names of outputs" if not isinstance(each, Mapping) and each is not None else type(each).__name__
            )
            raise UsageError(f"an argument of run is {type_name}, expected the arrays of the inputs only", hint=call)
    positional: list[Any] = list(feeds) if isinstance(feeds, (list, tuple)) and not arrays else [feeds, *arrays]
    if len(positional) != len(names):
        count = f"{len(positional)} array{'' if len(positional) == 1 else 's'}"
        hint = f"a list contains one array per input; {call}"
        raise UsageError(f"{count} for the inputs {', '.join(names)}", hint=hint)
    return dict(zip(names, positional, strict=True))


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(each, str) for each in value)
