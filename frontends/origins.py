"""Source tensors that constants of a graph are computed from, looked up in the file again for a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tpuconvert.schema.finite import is_finite
from tpuconvert.schema.types import Array


class Origin(NamedTuple):
    """Origin of a constant that is not finite.

    Args:
        name: of the tensor in the file that is not finite, or of the constant itself.
        array: elements of that tensor; None where all tensors of the file that it is computed from are finite.
        maker: operator and name of the source node that computes the constant; empty for a tensor of the file.

    """

    name: str
    array: Array | None
    maker: str = ""


class Maker(NamedTuple):
    """Source node that computes a tensor.

    Args:
        title: operator and name.
        reads: names of its operands.

    """

    title: str
    reads: tuple[str, ...]


def trace(name: str, stored: Callable[[str], Array | None], maker: Callable[[str], Maker | None]) -> Origin | None:
    """Walk back from a constant to the first tensor of the file that is not finite.

    Args:
        name: of the constant.
        stored: elements of a tensor that the file holds, or None.
        maker: node that computes a tensor, or None.

    Returns:
        None if the file has no such tensor.

    """
    made = maker(name)
    title = made.title if made is not None else ""
    waiting, seen = [name], {name}
    while waiting:
        current = waiting.pop(0)
        array = stored(current)
        if array is not None and not is_finite(array):
            return Origin(current, array, title)
        node = maker(current)
        for operand in node.reads if node is not None else ():
            if operand and operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return Origin(name, None, title) if made is not None else None
