"""Composite operators: what networks use as one thing and the operator set says with several operators.

A composite is an ordinary operator with an expansion. It stays whole in graph and file, where it runs faster and rounds
once; its expansion is what a chip runs, and what says whether the chip can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op, on
from tpuconvert.schema.shape_checks import listed
from tpuconvert.schema.types import F32, TensorType


class Composite(Op):
    """Base of composite operators, registered with ``OpKind.COMPOSITE``.

    A definition gives ``infer`` and ``reference`` like every operator, and ``expand``: add operators of the set to a
    graph that compute the same from the same operands (None for absent ones), and return their results. An expansion
    depends on parameters and types only, never on the data of constants.

    Errors: ``infer`` and ``expand`` raise ShapeError, ``expand`` also for symbolic extents that it has to know.
    """

    dtypes = on(F32)

    expand: ClassVar[Callable[..., tuple[Value, ...]]]


def expansion(op: Composite, inputs: Sequence[TensorType | None], coeffs: Sequence[bool] = ()) -> Graph:
    """The expansion of a composite for operands of these types, as a graph of its own.

    Args:
        op: the composite with its parameters.
        inputs: operand types in declaration order, None for absent ones.
        coeffs: for every operand whether it is a constant, which is then all zeros; missing entries mean it is not.

    Raises:
        ShapeError: when the composite cannot take these types, or cannot be expanded for them.

    """
    op.infer(*inputs)
    g = Graph(op.name)
    values: list[Value | None] = []
    for index, type_ in enumerate(inputs):
        if type_ is None:
            values.append(None)
        elif index < len(coeffs) and coeffs[index]:
            values.append(g.constant(np.broadcast_to(type_.dtype.numpy.type(0), type_.static_shape)))
        else:
            values.append(g.input(f"operand_{index}", type_))
    for value in op.expand(g, *values):
        g.output(value)
    return g


def check_float(op: Op, *types: TensorType | None) -> None:
    """Check that all present operands are FLOAT32.

    Raises:
        ShapeError: when one is not.

    """
    if any(found is not None and found.dtype is not F32 for found in types):
        raise ShapeError(f"{op.name} takes FLOAT32, got {listed(types)}")
