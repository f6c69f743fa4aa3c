"""Distinct names of data-dependent extents, so that extents of equal names are equal."""

from __future__ import annotations

from tpuconvert.schema.definition.extents import data_dependent_names, rename_extent, unknown
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.type_inference import OperandTypes, TypeInference
from tpuconvert.schema.types import TensorType


class DistinctExtents:
    """Renames the data-dependent extents that operators create: ``?where``, ``?where.1``, ``?where.2``."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def rename(
        self, op: Op, types: tuple[TensorType, ...], operands: OperandTypes, inference: TypeInference
    ) -> tuple[TensorType, ...]:
        """Return the result types of a node with new names for the extents that its operator creates."""
        result_names = _names(types)
        if not result_names:
            return types
        operand_names = _names(operands)
        created = result_names - operand_names
        places: set[tuple[int, int]] = set()
        if any(name.startswith(unknown(op.name)) for name in result_names & operand_names):
            places = _created_places(op, operands, inference)
            created |= {name for result, axis in places for name in data_dependent_names((types[result].shape[axis],))}
        names = {}
        for name in sorted(created):
            count = self._counts[name] = self._counts.get(name, -1) + 1
            names[name] = f"{name}.{count}" if count else name
        others = {name: new for name, new in names.items() if name not in operand_names}
        return tuple(
            TensorType(
                type_.dtype,
                tuple(
                    rename_extent(extent, names if (result, axis) in places else others)
                    for axis, extent in enumerate(type_.shape)
                ),
            )
            for result, type_ in enumerate(types)
        )


def _names(types: OperandTypes) -> set[str]:
    return {name for type_ in types if type_ is not None for name in data_dependent_names(type_.shape)}


def _created_places(op: Op, operands: OperandTypes, inference: TypeInference) -> set[tuple[int, int]]:
    """Return (result, axis) of the extents that an operator creates, although an operand has an extent of that name.

    A slice of a slice is an example. The names of the operands are replaced by names that no operator creates.
    """
    markers = {name: unknown("", number) for number, name in enumerate(sorted(_names(operands)))}
    marked = tuple(
        None if type_ is None else TensorType(type_.dtype, tuple(rename_extent(e, markers) for e in type_.shape))
        for type_ in operands
    )
    return {
        (result, axis)
        for result, type_ in enumerate(inference.infer(op, marked))
        for axis, extent in enumerate(type_.shape)
        if data_dependent_names((extent,)) - set(markers.values())
    }
