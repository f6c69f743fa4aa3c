"""channel_shuffle: a composite that interleaves the channels of all groups."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.op import Operand, OpKind, Trait, on, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.composite import Composite
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.types import F16, F32, NUMBERS, Array, TensorType


@tpu_op("channel_shuffle", OpKind.COMPOSITE)
class ChannelShuffle(Composite):
    """Channel ``i * groups + j`` of y is channel ``j * (C / groups) + i`` of x.

    Shapes: x [N, C, ...] with C a multiple of ``groups``, y the same.
    Source: Zhang et al., ShuffleNet; Caffe ShuffleChannel.
    """

    groups: int

    # at most seven axes, because the expansion has one more
    inputs = (Operand("tensor_i", tuple(range(2, 8)), layout="NCHW"),)
    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=(*NUMBERS, F16))
    traits = Trait.VIEWS
    rewrite_weight = 2

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"channel_shuffle: groups is {self.groups}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the number of channels is a multiple of ``groups``."""
        check_ranks(self, x)
        channels = x.shape[1]
        if isinstance(channels, int) and channels % self.groups:
            raise ShapeError(f"{self.name}: {channels} channels do not form {self.groups} groups, got {x}")
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        """Reorder the channels."""
        split = x.reshape(x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:])
        return (np.ascontiguousarray(split.swapaxes(1, 2)).reshape(x.shape),)

    def expand(self, g: Graph, x: Value) -> tuple[Value]:
        """Reshape, permute, reshape."""
        shape = f.extents(self, x)
        split = f.reshape(g, x, (shape[0], self.groups, shape[1] // self.groups, *shape[2:]))
        return (f.reshape(g, f.permute(g, split, (0, 2, 1, *range(3, split.rank))), shape),)
