"""A factor and a shift per channel reach a product across a concatenation, a pad or a flattening.

Algebra, with y = k * x + b per channel:

- Behind a concatenation of products along the channels, every product takes the part of k and b of its own channels.
- Before a concatenation that a product reads, a branch that is scaled gives its k and b, every other one 1 and 0.
- pad(k * x + b, v) = k * pad(x, u) + b, where k * u + b = v: possible when u is the same number for all channels.
- Flattening repeats the channels: reshape [N, C, ...] to [N, C * ...] gives every element the k and b of its channel.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tpuconvert.optimizer.affine import (
    Affine,
    Vector,
    fold_affine_after,
    fold_before,
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


def _joins_channels(node: Node) -> bool:
    return isinstance(node.op, Concat) and node.op.axis % node.outputs[0].rank == 1


def _joins_products(node: Node) -> bool:
    return _joins_channels(node) and all(
        value is not None
        and value.producer is not None
        and Trait.LINEAR in value.producer.op.traits
        and not rounds(value.producer)
        for value in node.inputs
    )


PRODUCTS_JOINED = p(Concat, name="concat", sole_user=True, where=_joins_products)


@rule(
    p(Trait.AFFINE, PRODUCTS_JOINED, name="op", where=is_affine),
    p(Trait.AFFINE, "C", PRODUCTS_JOINED, name="op", where=is_affine),
    stage="fold",
    formerly="fold_into_joined_products",
)
def fold_scale_through_concat(graph: Graph, m: Match) -> Replacement:
    """A factor and shift per channel behind a concatenation disappear into the products that it joins."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    branches: list[Value] = []
    begin = 0
    for value in m.concat.inputs:
        if not graph.is_sole_use(value):
            return Skip("a product has other users")
        product, extent = value.producer, value.shape[1]
        part = Affine(affine.k[begin : begin + extent], affine.b[begin : begin + extent])
        folded = fold_affine_after(graph, product, part, f"{value.name}:scaled")
        if isinstance(folded, Skip):
            return folded
        branches.append(folded)
        begin += extent
    joined = graph.add(m.concat.op, *branches)
    return (joined, None, None) if isinstance(m.op.op, BatchNorm) else joined


def _scaled_branches(node: Node) -> list[Node]:
    found = [value.producer for value in node.inputs if value is not None and len(value.uses) == 1]
    return [item for item in found if item is not None and is_affine(item)]


def _joins_scaled(node: Node) -> bool:
    return _joins_channels(node) and bool(_scaled_branches(node))


@rule(
    p(Trait.LINEAR, p(Concat, name="concat", sole_user=True, where=_joins_scaled), "W", name="product"),
    stage="fold",
    formerly="fold_branches_into_product",
)
def fold_branch_scales_into_linear(graph: Graph, m: Match) -> Replacement:
    """Branches of a concatenation that are scaled per channel give their factors to the product that reads it."""
    scaled = _scaled_branches(m.concat)
    branches: list[Value] = []
    k: list[Vector] = []
    b: list[Vector] = []
    for value in m.concat.inputs:
        extent = value.shape[1]
        if not isinstance(extent, int):
            return Skip("the number of channels is not known before the model runs")
        affine = Affine(np.ones(extent), np.zeros(extent))
        if value.producer in scaled:
            if graph.is_output(value) or rounds(value.producer):
                return Skip("a scaled branch leaves the graph, or is quantized")
            found = read_affine(graph, value.producer, 1)
            if isinstance(found, Skip):
                return found
            affine = found
            (value,) = (item for item in value.producer.inputs if item is not None and not item.is_constant)
        branches.append(value)
        k.append(affine.k)
        b.append(affine.b)
    joined = graph.add(m.concat.op, *branches, name=f"{m.concat.output.name}:unscaled")
    return fold_before(graph, m.product, joined, Affine(np.concatenate(k), np.concatenate(b)))


def _is_constant_border(node: Node) -> bool:
    return isinstance(node.op, Pad) and node.op.pad_mode is PadType.PAD_CONSTANT and node.outputs[0].dtype is F32


def _before(affine: Affine, border: float) -> float | None:
    """The number that becomes the border's, if it is the same for all channels."""
    if not affine.k.size or not affine.k.all():
        return None
    found = (border - affine.b) / affine.k
    number = float(np.float32(found[0]))
    exact = np.abs(affine.k * number + affine.b - border) <= 2.0**-22 * np.maximum(np.abs(affine.b), abs(border))
    return number if math.isfinite(number) and exact.all() else None


@rule(
    p(Conv, p(Pad, SCALED, name="pad", where=_is_constant_border, sole_user=True), "W", name="product"),
    stage="fold",
    formerly="fold_into_product_behind_pad",
)
def fold_scale_into_conv_after_pad(graph: Graph, m: Match) -> Replacement:
    """A factor and shift before a border disappear into the convolution behind it; the border gets another number."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    if any(m.pad.op.paddings[:4]):
        return Skip("it pads samples or channels")
    number = _before(affine, m.pad.op.pad_val.value)
    if number is None:
        return Skip("the border would differ between channels")
    (x,) = (value for value in m.op.inputs if value is not None and not value.is_constant)
    padded = graph.add(dataclasses.replace(m.pad.op, pad_val=Scalar.f32(number)), x, name=f"{m.pad.name}:unscaled")
    return fold_before(graph, m.product, padded, affine)


PADDED = p(
    Pad,
    p(Conv, "x", "W", name="product", sole_user=True),
    name="pad",
    where=_is_constant_border,
    sole_user=True,
)


@rule(
    p(Trait.AFFINE, PADDED, name="op", where=is_affine),
    p(Trait.AFFINE, "C", PADDED, name="op", where=is_affine),
    stage="fold",
    formerly="fold_into_product_before_pad",
)
def fold_scale_into_conv_before_pad(graph: Graph, m: Match) -> Replacement:
    """A factor and shift behind a border disappear into the convolution before it."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    if any(m.pad.op.paddings[:4]):
        return Skip("it pads samples or channels")
    borders = (affine.k * m.pad.op.pad_val.value + affine.b).astype(np.float32)
    if not borders.size or (borders != borders[0]).any() or not np.isfinite(borders[0]):
        return Skip("the border would differ between channels")
    folded = fold_affine_after(graph, m.product, affine, f"{m.op.outputs[0].name}:unpadded")
    if isinstance(folded, Skip):
        return folded
    padded = graph.add(dataclasses.replace(m.pad.op, pad_val=Scalar.f32(float(borders[0]))), folded)
    return (padded, None, None) if isinstance(m.op.op, BatchNorm) else padded


@rule(
    p(MatrixMul, p(Reshape, SCALED, name="reshape", sole_user=True), "W", name="product"),
    stage="fold",
    formerly="fold_into_product_behind_flattening",
)
def fold_scale_through_flatten(graph: Graph, m: Match) -> Replacement:
    """A factor and shift per channel before a flattening disappear into the fully connected layer behind it."""
    (x,) = (value for value in m.op.inputs if value is not None and not value.is_constant)
    flat = m.reshape.output
    if x.rank < 2 or not x.type.is_static or not flat.type.is_static or 0 in x.shape:
        return Skip("its shape is not known before the model runs")
    if flat.shape != (x.shape[0], math.prod(x.type.static_shape[1:])):
        return Skip("the reshape does more than flatten one sample")
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    each = math.prod(x.type.static_shape[2:])
    flattened = graph.add(m.reshape.op, x, name=f"{flat.name}:unscaled")
    return fold_before(graph, m.product, flattened, Affine(np.repeat(affine.k, each), np.repeat(affine.b, each)))
