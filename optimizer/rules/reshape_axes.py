"""The effect of a reshape on axes, and the operators that can be computed on either side of it.

A reshape divides the axes of a tensor into runs of equal products: [2, 3, 4, 5] -> [6, 4, 5] has the runs (2, 3) ->
(6), (4) -> (4) and (5) -> (5). A run of one axis on both sides is an axis that the reshape keeps. Unit axes belong to
no run. An operator can be computed after the reshape as well as before it if it is element-wise, or works along kept
axes only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tpuconvert.optimizer.engine.pattern import OperatorSet
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.normalization import LayerNorm, RmsNorm
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.softmax import Softmax

Extents = tuple[int, ...]

INDIFFERENT = OperatorSet(Trait.UNARY, Trait.BINARY, Trait.ALONG_AXES)
"""Operators that may be computed in another shape if the reshape keeps the axes that they work along."""


@dataclass(frozen=True)
class Regrouping:
    """A reshape: the runs of axes longer than 1 before and after it, and both ranks."""

    before: Extents
    after: Extents
    runs: tuple[tuple[Extents, Extents], ...]

    @staticmethod
    def of(before: Extents, after: Extents) -> Regrouping | None:
        """Return the regrouping of a reshape without extents of 0, or None if no runs have equal products."""
        left = [axis for axis, extent in enumerate(before) if extent != 1]
        right = [axis for axis, extent in enumerate(after) if extent != 1]
        runs: list[tuple[Extents, Extents]] = []
        own: tuple[list[int], list[int]] = ([], [])
        products = [1, 1]
        while left or right or own[0]:
            side = 0 if products[0] <= products[1] else 1
            axes, shape = ((left, before), (right, after))[side]
            if not axes:
                return None
            axis = axes.pop(0)
            own[side].append(axis)
            products[side] *= shape[axis]
            if products[0] == products[1]:
                runs.append((tuple(own[0]), tuple(own[1])))
                own, products = ([], []), [1, 1]
        return Regrouping(before, after, tuple(runs))

    def kept_axis(self, axis: int) -> int | None:
        """Return the axis after the reshape that equals ``axis`` before it, or None if there is none."""
        return next((after[0] for before, after in self.runs if before == (axis,) and len(after) == 1), None)

    def shape(self, before: Extents) -> Extents | None:
        """Return the shape after the reshape for a tensor of a similar shape, or None for other shapes.

        A similar shape may have other extents along kept axes, or unit axes only in a run.
        """
        if len(before) != len(self.before):
            return None
        extents_after = [1] * len(self.after)
        seen = set()
        for axes, targets in self.runs:
            seen |= set(axes)
            extents = tuple(before[axis] for axis in axes)
            if len(axes) == len(targets) == 1:
                extents_after[targets[0]] = extents[0]
            elif extents == tuple(self.before[axis] for axis in axes):
                for axis in targets:
                    extents_after[axis] = self.after[axis]
            elif any(extent != 1 for extent in extents):
                return None
        if any(extent != 1 for axis, extent in enumerate(before) if axis not in seen):
            return None
        return tuple(extents_after)

    def operator(self, node: Node) -> Op | None:
        """Return the operator that replaces an ``INDIFFERENT`` node after the reshape, or None without one."""
        op = node.op
        if Trait.ALONG_AXES not in op.traits:
            return op
        if isinstance(op, Extract):
            return self._extract(op, node)
        if isinstance(op, Reduce):
            axes = [self.kept_axis(axis % len(self.before)) for axis in op.axis_list[: op.axis_num]]
            if not op.keep_dims or None in axes:
                return None
            return Reduce(tuple(sorted(axis for axis in axes if axis is not None)), op.method)
        axis = op.attributes()["axis"] % len(self.before)
        moved = self.kept_axis(axis)
        if moved is None:
            return None
        if isinstance(op, (LayerNorm, RmsNorm)) and (axis + 1, moved + 1) != (len(self.before), len(self.after)):
            return None
        if isinstance(op, Softmax) and node.output.quant is not None and axis == 1 != moved:
            return None  # Quantized softmax has an integer form along axis 1 only.
        return dataclasses.replace(op, axis=moved)

    def _extract(self, op: Extract, node: Node) -> Extract | None:
        (x,) = node.inputs
        shape = None if x is None else self.shape(x.type.static_shape)
        if x is None or shape is None:
            return None
        start, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
        for axis, box in enumerate(zip(op.start, op.end, op.stride, strict=True)):
            moved = self.kept_axis(axis)
            if moved is not None:
                start[moved], end[moved], stride[moved] = box
            elif box != (0, x.shape[axis], 1):
                return None
        return Extract(tuple(start), tuple(end), tuple(stride))
