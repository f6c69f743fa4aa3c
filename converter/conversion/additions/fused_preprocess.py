"""Preprocessing as the first nodes of a graph: ``--fuse-preprocess rgb``, ``fuse_preprocess="rgb"``.

The input of the converted model is pixels, uint8 [N, H, W, C], or camera planes, uint8 [N, H * 3/2, W]. The nodes
compute what :class:`Preprocess` does after resizing: colors, channel order, mean, scale and layout, in binary32. The
optimizer folds mean and scale into the first layer where the padding of this layer permits it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.preprocess import PIXEL_FORMATS, PLANE_FORMATS, Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Port, Source, Value
from tpuconvert.schema.ops.host.fit_image import METHODS, HostFitImage
from tpuconvert.schema.ops.host.yuv import HostYuv420ToRgb
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.types import Array, DType, TensorType

SUFFIX = "_pixels"
"""Appended to the name of the input. The name without it belongs to the normalized tensor, as in the source."""


def fuse_preprocess(graph: Graph, rule: Preprocess | None, pixels: str) -> None:
    """Replace the only input of a graph by pixels and the nodes that compute the input from them.

    Args:
        graph: graph of a frontend; changed in place.
        rule: preprocessing of the model.
        pixels: format of the pixels, a key of ``PIXEL_FORMATS``.

    Raises:
        UsageError: there is no preprocessing, or the graph has an input other than one float image.

    """
    option = f"fuse_preprocess={pixels}"
    if rule is None:
        raise UsageError(f"{option} without preprocessing", hint="add --preprocess color=...,mean=...,scale=...")
    if len(graph.inputs) != 1:
        names = ", ".join(port.name for port in graph.input_ports) or "none"
        raise UsageError(
            f"{option}: the model has {len(graph.inputs)} inputs ({names}), expected 1",
            file=graph.file,
            hint="leave it out, or fix the other inputs with --fix-input",
        )
    (old,), (port,) = graph.inputs, graph.input_ports
    if old.dtype is not DType.FLOAT32 or port.quant is not None:
        raise UsageError(
            f"{option}: input '{port.name}' holds {port.dtype}{' with a scale' * (port.quant is not None)}, "
            "expected floats",
            file=graph.file,
            hint="leave it out: the model normalizes pixels itself",
        )
    rule = replace(rule, fuse="").with_size_of(port.shape)
    name = old.name
    graph.rename(old, graph.unique(f"{name}.replaced"))
    with graph.source(Source(graph.file, name, "Preprocess")):
        new, computed = _add_nodes(graph, port, rule, pixels, name)
    graph.inputs[:], graph.input_ports[:] = [new], [graph.input_ports[-1]]
    graph.replace_uses(old, computed)
    graph.prune()
    graph.sort()


def source_feeds(port: Port, feeds: Sequence[Mapping[str, Array]], rule: Preprocess) -> Iterator[dict[str, Array]]:
    """Yield the inputs of the source model for samples of pixels.

    Args:
        port: input of the source model.
        feeds: samples of the model with fused preprocessing.
        rule: preprocessing of the model, with ``fuse``.

    """
    graph = Graph("preprocessing")
    plain = replace(rule, fuse="").with_size_of(port.shape)
    _, computed = _add_nodes(graph, port, plain, rule.fuse, port.name)
    graph.output(computed)
    with Session(graph, backend="reference") as session:
        for feed in feeds:
            yield session.run(feed)


def _fit(rule: Preprocess) -> HostFitImage:
    """Return the operator that fits an image of the camera into the input of the network, as on the host."""
    assert rule.camera is not None and rule.size is not None
    height, width = rule.camera
    left, top, right, bottom = rule.crop_box(width, height) if rule.fit == "crop" else (0, 0, width, height)
    inner, corner = rule.place(width, height) if rule.is_letterbox else (rule.size, (0, 0))
    return HostFitImage(
        size=rule.size,
        inner=inner,
        box=(top, left, bottom - top, right - left),
        corner=corner,
        pad=int(rule.pad),
        method=METHODS.index(rule.resize),
    )


def _add_nodes(graph: Graph, port: Port, rule: Preprocess, pixels: str, name: str) -> tuple[Value, Value]:
    """Add an input of pixels or planes and the nodes of the preprocessing. Return the input and the normalized tensor.

    Raises:
        UsageError: planes of an image with an odd height or width.

    """
    is_channels_first = rule.layout == "NCHW"
    batch = port.shape[0]
    assert rule.size is not None
    height, width = rule.camera or rule.size
    order = PIXEL_FORMATS[pixels]
    if pixels in PLANE_FORMATS:
        if height % 2 or width % 2:
            message = f"fuse_preprocess={pixels}: the image has {height} x {width} pixels"
            raise UsageError(f"{message}, expected an even height and width", file=graph.file)
        new = graph.input(f"{name}{SUFFIX}", TensorType(DType.UINT8, (batch, height * 3 // 2, width)))
        order = rule.color  # the conversion gives either order
        x = graph.add(HostYuv420ToRgb(PLANE_FORMATS[pixels], order == "BGR"), new)
    else:
        x = new = graph.input(f"{name}{SUFFIX}", TensorType(DType.UINT8, (batch, height, width, rule.channels)))
    if rule.camera is not None:
        x = graph.add(_fit(rule), x)
    if is_channels_first:
        x = emit.permute(graph, x, (0, 3, 1, 2))
    channel_axis = 1 if is_channels_first else 3
    x = emit.cast(graph, x, DType.FLOAT32)
    if order != rule.color:  # index_select has no 8-bit form on BM1686
        x = graph.add(IndexSelect(channel_axis), x, graph.constant(np.array([2, 1, 0], np.int32), "channel_order"))
    extents = [1, 1, 1, 1]
    extents[channel_axis] = -1
    mean, scale = (np.asarray(values, np.float32).reshape(extents) for values in (rule.mean, rule.scale))
    if mean.any():
        x = emit.sub(graph, x, emit.float_constant(graph, mean, "mean"))
    if (scale != 1).any():
        x = emit.mul(graph, x, emit.float_constant(graph, scale, "scale"))
    graph.rename(x, name)
    return new, x
