"""Convolutions that the fast kernels decline: run-time weights, zero points per channel, mode 2, volumes, FLOAT16."""

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.general import half
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.convolution.conv import Conv, QCalMode
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.conv3d_v2 import Conv3dV2, Deconv3dV2
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, U32, Chip, DType


class Windows:
    """Random extents, strides, dilations and pads of some spatial axes, and channels in groups."""

    def __init__(self, draft: Draft, rank: int, *, transposed: bool) -> None:
        self.groups = draft.pick(1, 1, 1, 2, 3)
        self.inputs, self.outputs = draft.small(20), draft.small(20)
        if draft.chance(0.2):
            self.inputs = self.outputs = 1
        self.extents = [draft.small(14) for _ in range(rank)]
        if draft.chance(0.2):
            self.extents[-1] = draft.number(30, 70)
        self.kernel = [draft.number(1, 4) for _ in range(rank)]
        self.strides = [draft.number(1, 3) for _ in range(rank)]
        self.dilations = [draft.pick(1, 1, 2) for _ in range(rank)]
        self.pads = []
        for axis in range(rank):
            reach = self.dilations[axis] * (self.kernel[axis] - 1) + 1
            while not transposed and reach > self.extents[axis] + 2 * (reach - 1):
                self.extents[axis] += 1
            most = (self.extents[axis] - 1) * self.strides[axis] + reach - 1 if transposed else reach
            before = draft.number(0, min(reach - 1, most))
            after = draft.number(1 - self.strides[axis] if transposed else 0, min(reach - 1, most - before))
            if not transposed:
                self.extents[axis] = max(self.extents[axis], reach - before - after)
            self.pads.append((before, after))
        self.batch = draft.pick(1, 1, 2)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, self.groups * self.inputs, *self.extents)

    def weights(self, *, transposed: bool) -> tuple[int, ...]:
        if transposed:
            return (self.groups * self.inputs, self.outputs, *self.kernel)
        return (self.groups * self.outputs, self.inputs, *self.kernel)

    @property
    def channels(self) -> int:
        return self.groups * self.outputs

    def plane(self) -> dict[str, int]:
        """Parameters of two-dimensional operators."""
        (top, bottom), (left, right) = self.pads
        return {
            "dh": self.dilations[0], "dw": self.dilations[1], "stride_h": self.strides[0], "stride_w": self.strides[1],
            "pad_h_t": top, "pad_h_b": bottom, "pad_w_l": left, "pad_w_r": right, "groups": self.groups,
        }  # fmt: skip

    def volume(self) -> dict[str, int]:
        """Parameters of conv3d_v2 and deconv3d_v2."""
        found = {"groups": self.groups}
        for axis, name in enumerate("thw"):
            found |= {f"d{name}": self.dilations[axis], f"stride_{name}": self.strides[axis]}
            found |= {f"pad_{name}_{side}": self.pads[axis][side] for side in (0, 1)}
        return found


def given(draft: Draft, dtype: DType, shape: tuple[int, ...], *, constant: bool) -> Value:
    array = half(draft, shape) if dtype is F16 else draft.data(dtype, shape)
    if dtype is F16:
        array = np.nan_to_num(array, nan=1, posinf=2, neginf=-2)
    return draft.constant(array) if constant else draft.input(dtype, shape, array)


def zero_points(draft: Draft, prefix: str, dtype: DType, channels: int) -> dict[str, object]:
    """One zero point, or one per channel."""
    if draft.chance(0.4):
        return {f"{prefix}_val": draft.pick(0, draft.number(dtype.min, dtype.max))}
    vector = draft.rng.integers(dtype.min, dtype.max, channels, endpoint=True)
    return {f"is_{prefix}_const": False, f"{prefix}_vec": tuple(vector.tolist())}


@kind(600)
def exact_conv_any(draft: Draft) -> None:
    """conv_v2, deconv_v2 and their volumes."""
    is_volume, is_transposed = draft.chance(0.5), draft.chance(0.4)
    windows = Windows(draft, 3 if is_volume else 2, transposed=is_transposed)
    x_type, w_type = draft.pick(I8, U8), draft.pick(I8, U8)
    x = draft.input(x_type, windows.shape)
    w = given(draft, w_type, windows.weights(transposed=is_transposed), constant=draft.chance(0.5))
    has_bias, out = draft.chance(0.6), draft.pick(I32, I32, I32, U32)
    further = zero_points(draft, "izp", x_type, windows.shape[1]) | zero_points(draft, "kzp", w_type, windows.channels)
    kinds = {(0, 0): ConvV2, (0, 1): DeconvV2, (1, 0): Conv3dV2, (1, 1): Deconv3dV2}
    op = kinds[is_volume, is_transposed](
        **(windows.volume() if is_volume else windows.plane()), has_bias=has_bias, out_dtype=out, **further
    )
    operands = [x, w]
    if has_bias:
        shape = (1, windows.channels, *(1 for _ in windows.kernel))
        operands.append(given(draft, draft.pick(I32, I32, U32), shape, constant=draft.chance(0.5)))
    draft.add(op, *operands)


@kind(500)
def conv_of_modes(draft: Draft) -> None:
    """conv and deconv in the three calculation modes, with weights computed at run time in some cases."""
    draft.chip = draft.pick(Chip.BM1684, Chip.BM1686)
    is_transposed = draft.chance(0.2)
    windows = Windows(draft, 2, transposed=is_transposed)
    mode = QCalMode.LowPrecisionSymmetric if is_transposed else QCalMode(draft.pick(0, 1, 2, 2))
    x_type, w_type = draft.pick(I8, U8), draft.pick(I8, U8)
    x = draft.input(x_type, windows.shape)
    is_constant = mode == QCalMode.HighPrecisionAsymmetric or draft.chance(0.3)
    w = given(draft, w_type, windows.weights(transposed=is_transposed), constant=is_constant)
    scale = float(2.0 ** -draft.number(0, 18) * draft.pick(1.0, draft.rng.uniform(0.5, 1.0), 3.0))
    further: dict[str, object] = {}
    if mode == QCalMode.HighPrecisionAsymmetric:
        further = {
            "left_zero_point": draft.pick(0, draft.number(x_type.min, x_type.max)),
            "right_zero_point": draft.pick(0, draft.number(w_type.min, w_type.max)),
            "output_zero_point": draft.number(0, 9),
        }
    out = draft.pick(I8, U8) if mode == QCalMode.LowPrecisionSymmetric else draft.pick(I8, U8, I16, U16)
    op = (Deconv if is_transposed else Conv)(**windows.plane(), scale=scale, mode=mode, out_dtype=out, **further)
    operands = [x, w]
    if draft.chance(0.6):
        late = () if mode == QCalMode.LowPrecisionSymmetric else (I32, F32)
        dtype = draft.pick(I16, U16, *late)
        operands.append(given(draft, dtype, (1, windows.channels, 1, 1), constant=draft.chance(0.5)))
    draft.add(op, *operands)


@kind(300)
def float_conv_any(draft: Draft) -> None:
    """conv, deconv and conv3d of FLOAT32 with weights computed at run time, and of FLOAT16."""
    form = draft.pick("conv", "deconv", "conv3d")
    windows = Windows(draft, 3 if form == "conv3d" else 2, transposed=form == "deconv")
    dtype = draft.pick(F32, F32, F16)
    x = given(draft, dtype, windows.shape, constant=False)
    w = given(draft, dtype, windows.weights(transposed=form == "deconv"), constant=draft.chance(0.3))
    if form == "conv3d":
        pads = tuple(pad for pair in windows.pads for pad in pair)
        op = Conv3d(windows.groups, tuple(windows.dilations), pads, tuple(windows.strides))
    else:
        op = (Deconv if form == "deconv" else Conv)(**windows.plane())
    operands = [x, w]
    if draft.chance(0.6):
        shape = (1, windows.channels, *(1 for _ in windows.kernel))
        operands.append(given(draft, dtype, shape, constant=draft.chance(0.5)))
    draft.add(op, *operands)
