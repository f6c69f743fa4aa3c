"""Patterns of the rules that fold operators into constants."""

from __future__ import annotations

from tests.support.rules.rule_draws import IMAGE, Draw, pattern
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Rsubs, Subs
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.smooth_activation import HardSigmoid
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch
from tpuconvert.schema.types import Scalar


@pattern("decompose_hard_sigmoid", IMAGE)
def _(d: Draw, x: Value) -> Value:
    op = HardSigmoid(d.one_of(0.2, 1 / 6), 0.5)
    if d.often():
        return d.add(op, d.conv(x, 3))
    return d.add(op, d.dense(d.add(Reshape((1, 144)), x), 6))


@pattern("fold_branch_scales_into_linear", IMAGE)
def _(d: Draw, x: Value) -> Value:
    padded = d.often()
    branches = [d.affine(x, shifts=not padded), x if d.often() else d.unary(x)]
    if d.often():
        branches.reverse()
    return d.conv(d.add(Concat(1), *branches), 3, padded=padded)


@pattern("fold_scale_through_concat", IMAGE)
def _(d: Draw, x: Value) -> Value:
    joined = d.add(Concat(1), *(d.conv(x, d.one_of(2, 3), kernel=1) for _ in range(int(d.rng.integers(1, 4)))))
    return d.affine(joined)


@pattern("fold_scale_into_previous_linear", IMAGE)
def _(d: Draw, x: Value) -> Value:
    kind = d.one_of("conv", "deconv", "dense", "reshaped")
    if kind == "conv":
        return d.affine(d.conv(x, d.one_of(4, 3)))
    if kind == "deconv":
        return d.affine(d.deconv(x, 3))
    y = d.dense(d.add(Reshape((1, 144)), x), 6)
    return d.affine(y if kind == "dense" else d.add(Reshape((1, 6, 1, 1)), y))


@pattern("fold_scale_into_conv_before_pad", IMAGE)
def _(d: Draw, x: Value) -> Value:
    pad = Pad(Scalar.f32(d.one_of(0, 1, -0.5)), (0, 0, 0, 0, 1, 0, 2, 1))
    y = d.add(pad, d.conv(x, 3))
    return d.add(d.one_of(Muls, Divs, Adds, Rsubs)(Scalar.f32(d.number())), y)


@pattern("fold_scale_into_next_linear", IMAGE)
def _(d: Draw, x: Value) -> Value:
    kind = d.one_of("conv", "padded", "deconv", "dense", "permuted")
    if kind == "conv":
        return d.conv(d.affine(x), 3, padded=False)
    if kind == "padded":
        return d.conv(d.affine(x, shifts=False), 3, padded=True)
    if kind == "deconv":
        return d.deconv(d.affine(x, shifts=False), 3)
    if kind == "dense":
        return d.dense(d.affine(d.add(Reshape((1, 144)), x)))
    return d.conv(d.add(Permute((0, 1, 3, 2)), d.affine(x)), 3, padded=False)


@pattern("fold_scale_through_flatten", IMAGE)
def _(d: Draw, x: Value) -> Value:
    return d.dense(d.add(Reshape((1, 144)), d.affine(x)))


@pattern("fold_scale_into_conv_after_pad", IMAGE)
def _(d: Draw, x: Value) -> Value:
    factor, shift = d.number(), d.number()
    op, pad_value = d.one_of((Muls, d.one_of(0.0, 1.0)), (Adds, shift), (Adds, 0.0), (Subs, 2.0))
    scaled = d.add(op(Scalar.f32(factor if op is Muls else shift)), x)
    return d.conv(d.add(Pad(Scalar.f32(pad_value), (0, 0, 0, 0, 1, 1, 0, 2)), scaled), 3, padded=False)


@pattern("fuse_dilated_conv", (1, 3, 8, 8))
def _(d: Draw, x: Value) -> Value:
    blocks = d.add(SpaceToBatch((2, 2), (2, 2, 2, 2)), x)
    crops = d.one_of((0, 0, 0, 0), (2, 2, 2, 2), (1, 1, 0, 2))
    return d.add(BatchToSpace((2, 2), crops), d.conv(blocks, 4, padded=False, kernel=2))


@pattern("fold_pad_into_conv", IMAGE)
def _(d: Draw, x: Value) -> Value:
    paddings = (0, 0, 0, 0, *(int(n) for n in d.rng.integers(0, 3, 4)))
    y = d.add(Pad(Scalar.f32(0), paddings), x)
    return d.conv(d.add(Permute((0, 1, 3, 2)), y) if d.often(0.3) else y, 3)


@pattern("fold_pad_into_pool", IMAGE)
def _(d: Draw, x: Value) -> Value:
    kind = d.one_of(PoolType.AVE, PoolType.MAX)
    positive = d.add(Active(ActiveType.ACTIVE_RELU), x)
    y = d.add(Pad(Scalar.f32(0), (0, 0, 0, 0, 1, 0, 1, 1)), positive)
    return d.add(Pool(stride_h=d.one_of(1, 2), stride_w=1, kernel_h=3, kernel_w=2, pooling_type=kind), y)


@pattern("fold_space_to_depth_into_conv", IMAGE)
def _(d: Draw, x: Value) -> Value:
    size = d.one_of(2, 3)
    part = 6 // size
    if d.often():
        split = d.add(Reshape((1, 4, part, size, part, size)), x)
        moved = d.add(Permute((0, *d.one_of((3, 5, 1), (1, 3, 5), (5, 3, 1)), 2, 4)), split)
        y = d.add(Reshape((1, 4 * size * size, part, part)), moved)
    else:
        places = [(row, column) for row in range(size) for column in range(size)]
        d.rng.shuffle(places)
        cuts = [Extract((0, 0, int(a), int(b)), (1, 4, 6, 6), (1, 1, size, size)) for a, b in places]
        y = d.add(Concat(1), *(d.add(cut, x) for cut in cuts))
    kernel = int(d.rng.integers(1, part + 1))
    w = d.g.constant(d.normal(3, 4 * size * size, kernel, kernel), "w")
    pads = {"pad_h_t": 1, "pad_w_l": 1, "pad_w_r": 1} if d.often() else {}
    return d.add(Conv(stride_h=d.one_of(1, 2), **pads), y, w, *([d.constant(1, 3, 1, 1)] if d.often() else []))
