"""Folding of a per-channel scale and bias into linear operators across a concat, a pad or a flatten.

With y = k * x + b per channel:

- After a channel concat of linear operators, each of them gets the slice of k and b of its channels.
- Before a concat that a linear operator uses, a scaled branch contributes its k and b, every other branch 1 and 0.
- pad(k * x + b, v) = k * pad(x, u) + b with k * u + b = v, if u is the same for all channels.
- Flattening [N, C, ...] to [N, C * ...] repeats k and b for every element of a channel.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tpuconvert.optimizer.affine import (
    Affine,
    Vector,
    fold_affine_after,
    fold_affine_before,
    is_affine,
    read_affine,
)
from tpuconvert.optimizer.annotations import rounds
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, Scalar

SCALED = p(Trait.AFFINE, name="op", sole_user=True, where=is_affine)


def _concatenates_channels(node: Node) -> bool:
    return isinstance(node.op, Concat) and node.op.axis % node.outputs[0].rank == 1


def _concatenates_linears(node: Node) -> bool:
    return _concatenates_channels(node) and all(
        value is not None
        and value.producer is not None
        and Trait.LINEAR in value.producer.op.traits
        and not rounds(value.producer)
        for value in node.inputs
    )


CONCATENATED_LINEARS = p(Concat, name="concat", sole_user=True, where=_concatenates_linears)


@rule(
    p(Trait.AFFINE, CONCATENATED_LINEARS, name="op", where=is_affine),
    p(Trait.AFFINE, "C", CONCATENATED_LINEARS, name="op", where=is_affine),
    stage="fold",
    formerly="fold_into_joined_products",
)
def fold_scale_through_concat(graph: Graph, m: Match) -> Replacement:
    """Fold the scale and bias after a concat into the linear operators before it."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    branches: list[Value] = []
    begin = 0
    for value in m.concat.inputs:
        if not graph.is_sole_use(value):
            return Skip("a linear operator has other users")
        linear, extent = value.producer, value.shape[1]
        part = Affine(affine.k[begin : begin + extent], affine.b[begin : begin + extent])
        folded = fold_affine_after(graph, linear, part, f"{value.name}:scaled")
        if isinstance(folded, Skip):
            return folded
        branches.append(folded)
        begin += extent
    joined = graph.add(m.concat.op, *branches)
    return (joined, None, None) if isinstance(m.op.op, BatchNorm) else joined


def _scaled_branches(node: Node) -> list[Node]:
    found = [value.producer for value in node.inputs if value is not None and len(value.uses) == 1]
    return [item for item in found if item is not None and is_affine(item)]


def _concatenates_scaled(node: Node) -> bool:
    return _concatenates_channels(node) and bool(_scaled_branches(node))


@rule(
    p(Trait.LINEAR, p(Concat, name="concat", sole_user=True, where=_concatenates_scaled), "W", name="linear"),
    stage="fold",
    formerly="fold_branches_into_product",
)
def fold_branch_scales_into_linear(graph: Graph, m: Match) -> Replacement:
    """Fold the scales of concatenated branches into the linear operator after the concat."""
    scaled = _scaled_branches(m.concat)
    branches: list[Value] = []
    k: list[Vector] = []
    b: list[Vector] = []
    for value in m.concat.inputs:
        extent = value.shape[1]
        if not isinstance(extent, int):
            return Skip("the number of channels is dynamic")
        affine = Affine(np.ones(extent), np.zeros(extent))
        if value.producer in scaled:
            if graph.is_output(value) or rounds(value.producer):
                return Skip("a scaled branch is a graph output or is quantized")
            found = read_affine(graph, value.producer, 1)
            if isinstance(found, Skip):
                return found
            affine = found
            (value,) = (item for item in value.producer.inputs if item is not None and not item.is_constant)
        branches.append(value)
        k.append(affine.k)
        b.append(affine.b)
    joined = graph.add(m.concat.op, *branches, name=f"{m.concat.output.name}:unscaled")
    return fold_affine_before(graph, m.linear, joined, Affine(np.concatenate(k), np.concatenate(b)))


def _is_constant_pad(node: Node) -> bool:
    return isinstance(node.op, Pad) and node.op.pad_mode is PadType.PAD_CONSTANT and node.outputs[0].dtype is F32


def _before(affine: Affine, pad_value: float) -> float | None:
    """The pad value before the scale, if it is the same for all channels."""
    if not affine.k.size or not affine.k.all():
        return None
    found = (pad_value - affine.b) / affine.k
    number = float(np.float32(found[0]))
    exact = np.abs(affine.k * number + affine.b - pad_value) <= 2.0**-22 * np.maximum(np.abs(affine.b), abs(pad_value))
    return number if math.isfinite(number) and exact.all() else None


@rule(
    p(Conv, p(Pad, SCALED, name="pad", where=_is_constant_pad, sole_user=True), "W", name="linear"),
    stage="fold",
    formerly="fold_into_product_behind_pad",
)
def fold_scale_into_conv_after_pad(graph: Graph, m: Match) -> Replacement:
    """Fold the scale and bias before a pad into the conv after it, and adapt the pad value."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    if any(m.pad.op.paddings[:4]):
        return Skip("it pads the batch or channel axis")
    number = _before(affine, m.pad.op.pad_val.value)
    if number is None:
        return Skip("the pad value would differ between channels")
    (x,) = (value for value in m.op.inputs if value is not None and not value.is_constant)
    padded = graph.add(dataclasses.replace(m.pad.op, pad_val=Scalar.f32(number)), x, name=f"{m.pad.name}:unscaled")
    return fold_affine_before(graph, m.linear, padded, affine)


PADDED = p(
    Pad,
    p(Conv, "x", "W", name="linear", sole_user=True),
    name="pad",
    where=_is_constant_pad,
    sole_user=True,
)


@rule(
    p(Trait.AFFINE, PADDED, name="op", where=is_affine),
    p(Trait.AFFINE, "C", PADDED, name="op", where=is_affine),
    stage="fold",
    formerly="fold_into_product_before_pad",
)
def fold_scale_into_conv_before_pad(graph: Graph, m: Match) -> Replacement:
    """Fold the scale and bias after a pad into the conv before it, and adapt the pad value."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    if any(m.pad.op.paddings[:4]):
        return Skip("it pads the batch or channel axis")
    pad_values = (affine.k * m.pad.op.pad_val.value + affine.b).astype(np.float32)
    if not pad_values.size or (pad_values != pad_values[0]).any() or not np.isfinite(pad_values[0]):
        return Skip("the pad value would differ between channels")
    folded = fold_affine_after(graph, m.linear, affine, f"{m.op.outputs[0].name}:unpadded")
    if isinstance(folded, Skip):
        return folded
    padded = graph.add(dataclasses.replace(m.pad.op, pad_val=Scalar.f32(float(pad_values[0]))), folded)
    return (padded, None, None) if isinstance(m.op.op, BatchNorm) else padded


@rule(
    p(MatrixMul, p(Reshape, SCALED, name="reshape", sole_user=True), "W", name="linear"),
    stage="fold",
    formerly="fold_into_product_behind_flattening",
)
def fold_scale_through_flatten(graph: Graph, m: Match) -> Replacement:
    """Fold the scale and bias before a flatten into the fully connected layer after it."""
    (x,) = (value for value in m.op.inputs if value is not None and not value.is_constant)
    flat = m.reshape.output
    if x.rank < 2 or not x.type.is_static or not flat.type.is_static or 0 in x.shape:
        return Skip("its shape is dynamic")
    if flat.shape != (x.shape[0], math.prod(x.type.static_shape[1:])):
        return Skip("the reshape does more than flatten one sample")
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    each = math.prod(x.type.static_shape[2:])
    flattened = graph.add(m.reshape.op, x, name=f"{flat.name}:unscaled")
    return fold_affine_before(graph, m.linear, flattened, Affine(np.repeat(affine.k, each), np.repeat(affine.b, each)))
