"""Composite operators: operators of models that expand to several TPU operators.

A composite defines ``expand`` in addition to ``infer`` and ``reference``. It is one node in the graph and in the file,
which the runtime executes faster and with a single rounding. A chip executes its expansion; a composite is legal on a
chip if all operators of its expansion are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from tpuconvert.schema.definition.op import Op, on
from tpuconvert.schema.definition.shape_checks import format_types
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import F32, TensorType


class Composite(Op):
    """Base of composite operators, registered with ``OpKind.COMPOSITE``.

    A definition has ``infer`` and ``reference`` like every operator, and ``expand``, which adds equivalent operators to
    a graph and returns their results; absent operands are None. An expansion depends on parameters and types only,
    never on the data of constants. ``infer`` and ``expand`` raise ShapeError for types that they do not accept;
    ``expand`` also raises it if it requires the value of a symbolic extent.
    """

    dtypes = on(F32)

    expand: ClassVar[Callable[..., tuple[Value, ...]]]

    @property
    def sample_extent(self) -> int:
        """Extent that replaces every symbolic one in the check of legality."""
        return 2

    def shorter_types(self, *inputs: TensorType | None) -> tuple[TensorType | None, ...]:
        """Operand types whose expansion is shorter and contains the same operators, for the check of legality.

        An operator whose expansion repeats a part along an axis reduces the extent of this axis.
        """
        return inputs


def expansion(op: Composite, inputs: Sequence[TensorType | None], coeffs: Sequence[bool] = ()) -> Graph:
    """Create a graph that contains the expansion of a composite for operands of the given types.

    Args:
        op: the composite with its parameters.
        inputs: operand types in declaration order, None for absent ones.
        coeffs: which operands are constants, in declaration order; the graph has zeros as their data. Missing
            entries mean False.

    Raises:
        ShapeError: the composite does not accept these types, or cannot be expanded for them.

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
        ShapeError: an operand has another type.

    """
    if any(operand_type is not None and operand_type.dtype is not F32 for operand_type in types):
        raise ShapeError(f"{op.name} takes FLOAT32, got {format_types(types)}")
