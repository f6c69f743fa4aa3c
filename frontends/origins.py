"""Find the source tensor that causes infinite or NaN elements in a constant of the graph, for error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tpuconvert.schema.arithmetic.finite import is_finite
from tpuconvert.schema.types import Array


class Origin(NamedTuple):
    """Origin of a constant that is not finite.

    Args:
        name: name of the tensor in the file that is not finite; of the constant, if all its source tensors are finite.
        array: elements of the tensor that is not finite; None if all source tensors are finite.
        maker: operator and name of the source node that computes the constant; empty if the file stores the constant.

    """

    name: str
    array: Array | None
    maker: str = ""


class Maker(NamedTuple):
    """Source node that computes a tensor.

    Args:
        title: operator and name of the node.
        reads: names of its operands.

    """

    title: str
    reads: tuple[str, ...]


def trace(name: str, stored: Callable[[str], Array | None], maker: Callable[[str], Maker | None]) -> Origin | None:
    """Search the operands of a constant, breadth first, for a stored tensor that is not finite.

    Args:
        name: name of the constant.
        stored: returns the elements of a tensor that the file stores, else None.
        maker: returns the node that computes a tensor, else None.

    Returns:
        The origin; None if all stored tensors are finite and no node computes the constant.

    """
    producer = maker(name)
    title = producer.title if producer is not None else ""
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
    return Origin(name, None, title) if producer is not None else None
