"""Two-dimensional convolution and transposed convolution by matmul, tile by tile.

The input of a tile is padded and converted once, its windows are gathered into the columns of a matrix (im2col), and
one matmul per group of channels computes the result. A tile consists of some images, groups or rows of the result, so
that the size of the columns is bounded.

The caller chooses the type in which the products are computed: binary64 for floating point, and for integers a type in
which every partial sum is exact (see ``integer_product``).

Source: docs/inside/semantics.md, sections 4 and 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tpuconvert.schema.types import Array

if TYPE_CHECKING:
    import numpy.typing as npt

_TILE_BYTES = 4 << 20
"""Size of the gathered columns of one tile, exceeded only if a single row of one group is larger."""


class Window(NamedTuple):
    """Geometry of a convolution. Pairs are (vertical, horizontal); pads are (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns that one window covers, including the gaps of dilation."""
        (kh, kw), (dh, dw) = self.kernel, self.dilations
        return dh * (kh - 1) + 1, dw * (kw - 1) + 1

    def forward(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the result of a convolution."""
        (top, left, bottom, right), (rows, columns), (sh, sw) = self.pads, self.reach, self.strides
        return (height + top + bottom - rows) // sh + 1, (width + left + right - columns) // sw + 1

    def backward(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the result of a transposed convolution."""
        (top, left, bottom, right), (rows, columns), (sh, sw) = self.pads, self.reach, self.strides
        return (height - 1) * sh + rows - top - bottom, (width - 1) * sw + columns - left - right


class _Tile(NamedTuple):
    images: slice
    groups: slice
    rows: slice


def convolve(
    x: Array,
    w: Array,
    window: Window,
    out: npt.DTypeLike,
    *,
    bias: Array | None = None,
    zero: Array | int = 0,
    pad: int = 0,
    chunk: int | None = None,
) -> Array:
    """Convolution whose products are computed in the type of ``w``.

    Shapes: x [N, ic, H, W] of any type, w [oc, ic/groups, kh, kw], bias [oc], zero scalar or [ic]; the result is
    [N, oc, oh, ow] of type ``out``.

    Args:
        x: the images.
        w: the kernels, in the type to compute in.
        window: the geometry.
        out: type of the result, to which each final sum is converted.
        bias: added to every sum, in the type of the sums.
        zero: zero point, subtracted from every image element but not from ``pad``.
        pad: value of the elements around the image.
        chunk: number of products that are summed in the type of ``w``; the sums of the chunks are added in binary64.

    """
    groups = window.groups
    images, height, width = x.shape[0], *window.forward(*x.shape[2:])
    result = np.empty((images, groups, w.shape[0] // groups, height, width), dtype=out)
    kernels = w.reshape(groups, w.shape[0] // groups, -1)
    biases = None if bias is None else bias.reshape(groups, -1, 1)
    gather = _Gather(x, window, w.dtype, zero, pad)
    for tile in _tiles(images, groups, height, gather.row_bytes):
        sums = _product(kernels[tile.groups], gather.columns(tile), chunk)
        if biases is not None:
            sums += biases[tile.groups]
        count = tile.images.stop - tile.images.start
        shaped = sums.reshape(*sums.shape[:2], count, -1, width)
        result[tile.images, tile.groups, :, tile.rows] = shaped.transpose(2, 0, 1, 3, 4)
    return result.reshape(images, w.shape[0], height, width)


def _product(kernels: Array, columns: Array, chunk: int | None) -> Array:
    depth = kernels.shape[2]
    if chunk is None or depth <= chunk:
        single: Array = np.matmul(kernels, columns)
        return single
    sums = np.zeros((*kernels.shape[:2], columns.shape[2]))
    for start in range(0, depth, chunk):
        sums += np.matmul(kernels[:, :, start : start + chunk], columns[:, start : start + chunk])
    return sums


def _tiles(images: int, groups: int, rows: int, row_bytes: int) -> Iterator[_Tile]:
    """Split the result into tiles whose columns take at most ``_TILE_BYTES``, but at least one row of one group each.

    ``row_bytes`` is the size of the columns for one row of one group.
    """
    fit = max(_TILE_BYTES // row_bytes, 1)  # rows of one group that fit
    some_rows = min(fit, rows)
    some_groups = min(max(fit // rows, 1), groups)
    some_images = max(fit // (rows * groups), 1)
    for image in range(0, images, some_images):
        at = slice(image, min(image + some_images, images))
        for group in range(0, groups, some_groups):
            of = slice(group, min(group + some_groups, groups))
            for row in range(0, rows, some_rows):
                yield _Tile(at, of, slice(row, min(row + some_rows, rows)))


class _Gather:
    """Gather the windows of tiles into matrix columns, in buffers that all tiles share."""

    def __init__(self, x: Array, window: Window, dtype: np.dtype[Any], zero: Array | int, pad: int) -> None:
        self._x = x
        self._window = window
        self._zero = np.asarray(zero).astype(dtype).reshape(-1, 1, 1)
        self._shifted = bool(np.any(self._zero))
        top, left, bottom, right = window.pads
        channels, height, width = x.shape[1:]
        self._channels = channels // window.groups
        self._width = window.forward(height, width)[1]
        self._inside = (slice(top, top + height), slice(left, left + width))
        self._is_view = window.kernel == (1, 1) and window.strides == (1, 1) and not any(window.pads)
        self._pad = pad
        self._padded = np.empty((0, channels, height + top + bottom, width + left + right), dtype)
        self._loaded = slice(0, 0)
        self._columns = np.empty(0, dtype)

    @property
    def row_bytes(self) -> int:
        """Size of the columns for one row of the result in one group of channels."""
        kh, kw = self._window.kernel
        size: int = self._channels * kh * kw * self._width * self._padded.itemsize
        return max(size, 1)

    def columns(self, tile: _Tile) -> Array:
        """Columns of a tile. Shape: [groups, channels * kh * kw, images * rows * width]."""
        self._load(tile.images)
        groups, images, rows = (part.stop - part.start for part in (tile.groups, tile.images, tile.rows))
        channels = slice(tile.groups.start * self._channels, tile.groups.stop * self._channels)
        if self._is_view and images == 1:
            flat = self._padded[0, channels, tile.rows]
            return flat.reshape(groups, self._channels, rows * self._width)
        (kh, kw), (sh, sw), (dh, dw) = self._window.kernel, self._window.strides, self._window.dilations
        source = self._padded[:, channels, tile.rows.start * sh :]
        image, channel, down, right = source.strides
        windows = as_strided(
            source,
            (groups, self._channels, kh, kw, images, rows, self._width),
            (channel * self._channels, channel, down * dh, right * dw, image, down * sh, right * sw),
            writeable=False,
        )
        if self._columns.size < windows.size:
            self._columns = np.empty(windows.size, self._padded.dtype)
        gathered = self._columns[: windows.size].reshape(windows.shape)
        np.copyto(gathered, windows)
        return gathered.reshape(groups, self._channels * kh * kw, -1)

    def _load(self, images: slice) -> None:
        """Pad and convert some images, unless the previous tile had the same images."""
        if images == self._loaded:
            return
        count = images.stop - images.start
        if count != len(self._padded):
            self._padded = np.full((count, *self._padded.shape[1:]), self._pad, self._padded.dtype)
        inside = self._padded[:, :, self._inside[0], self._inside[1]]
        if self._shifted:
            np.subtract(self._x[images], self._zero, out=inside, dtype=inside.dtype, casting="unsafe")
        else:
            inside[...] = self._x[images]
        self._loaded = images


def convolve_transposed(
    x: Array, w: Array, window: Window, out: npt.DTypeLike, *, bias: Array | None = None, zero: Array | int = 0
) -> Array:
    """Transposed convolution in binary64: every image element adds its multiple of the kernel to the result.

    A negative trailing pad appends rows or columns that receive only the bias.

    Shapes: x [N, ic, H, W] of any type, w [ic, oc/groups, kh, kw] of any type, bias [oc], zero scalar or [ic]; the
    result is [N, oc, oh, ow] of type ``out``.
    """
    groups, (kh, kw), (sh, sw), (dh, dw) = window.groups, window.kernel, window.strides, window.dilations
    images, inputs, height, width = x.shape
    outputs = w.shape[1]
    top, left, bottom, right = window.pads
    reach_down, reach_right = window.reach
    full_height = (height - 1) * sh + reach_down + max(-bottom, 0)
    full_width = (width - 1) * sw + reach_right + max(-right, 0)
    tall, wide = window.backward(height, width)
    result = np.empty((images, groups * outputs, tall, wide), dtype=out)
    # [groups, kh * kw * oc, ic]: one matmul gives the products of every element with every kernel position.
    kernels = w.astype(np.float64).reshape(groups, inputs // groups, outputs, kh, kw).transpose(0, 3, 4, 2, 1)
    kernels = np.ascontiguousarray(kernels).reshape(groups, kh, kw, outputs, inputs // groups)
    shift = np.asarray(zero, dtype=np.float64).reshape(-1, 1, 1)
    for image in range(images):
        columns = (x[image].astype(np.float64) - shift).reshape(groups, inputs // groups, height * width)
        full = np.zeros((groups, outputs, full_height, full_width))
        for i in range(kh):
            for j in range(kw):
                part = np.matmul(kernels[:, i, j], columns).reshape(groups, outputs, height, width)
                down, along = i * dh, j * dw
                full[:, :, down : down + (height - 1) * sh + 1 : sh, along : along + (width - 1) * sw + 1 : sw] += part
        cut = full.reshape(-1, full_height, full_width)[:, top : top + tall, left : left + wide]
        result[image] = cut if bias is None else cut + bias.reshape(-1, 1, 1)
    return result
