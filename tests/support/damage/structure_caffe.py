"""Systematic changes of small Caffe networks: parameters, shapes, blobs and connections, one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.support.caffe.networks import layer, weights_message, with_input
from tests.support.caffe.opencv_cases import CASES
from tests.support.damage.structure_values import HUGE, changed_list, changed_shapes
from tpuconvert.frontends.caffe.file.messages import new_message

Change = Callable[[], bytes]

IMAGE = (1, 4, 6, 6)
DUMMY = "dummy_data_param { shape { dim: 1 dim: 4 dim: 6 dim: 6 } }"
LAYERS: list[tuple[str, str, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], str]] = [
    # type, parameters, shapes of the bottoms, shapes of the blobs, tops
    *((name, "", (IMAGE,), (), "y") for name in (
        "BNLL", "CReLU", "Dropout", "Focus", "GELU", "HardSigmoid", "HardSwish", "Hswish", "Mish", "ReLU6",
        "SigmoidCrossEntropyLoss", "Softmax", "SoftmaxLoss", "SoftmaxWithLoss", "Split", "Swish", "Threshold",
    )),
    *((name, "reorg_param { stride: 2 }", (IMAGE,), (), "y") for name in ("Reorg", "PassThrough")),
    *((name, "", (IMAGE, IMAGE), (), "y") for name in ("Maximum", "Minimum")),
    *((name, "convolution_param { num_output: 4 kernel_size: 3 }", (IMAGE,), ((4, 1, 3, 3), (4,)), "y") for name in (
        "ConvolutionDepthwise", "DepthwiseConv",
    )),
    *((name, "interp_param { height: 4 width: 9 }", (IMAGE,), (), "y") for name in (
        "BilinearInterpolation", "ResizeBilinear",
    )),
    *((name, "norm_param { across_spatial: false channel_shared: false }", (IMAGE,), ((4,),), "y") for name in (
        "L2Norm", "NormalizeBBox",
    )),
    ("Accum", "accum_param { top_height: 2 top_width: 7 }", (IMAGE,), (), "y"),
    ("ArgMax", "argmax_param { top_k: 2 out_max_val: true axis: 1 }", (IMAGE,), (), "y"),
    ("Axpy", "", ((1, 4, 1, 1), IMAGE, IMAGE), (), "y"),
    ("BN", "bn_param { bn_mode: INFERENCE }", (IMAGE,), ((4,), (4,)), "y"),
    ("BatchReindex", "", ((3, 2), (2,)), (), "y"),
    ("Bias", "", (IMAGE,), ((4,),), "y"),
    ("Clip", "clip_param { min: -1 max: 1 }", (IMAGE,), (), "y"),
    ("CuDNNBatchNorm", "", (IMAGE,), ((4,), (4,), (4,), (4,)), "y"),
    ("DeconvolutionDepthwise", "convolution_param { num_output: 4 kernel_size: 3 group: 4 }", (IMAGE,),
     ((4, 1, 3, 3), (4,)), "y"),
    ("DepthwiseConvolution", "convolution_param { num_output: 4 kernel_size: 3 group: 4 }", (IMAGE,),
     ((4, 1, 3, 3), (4,)), "y"),
    ("Embed", "embed_param { input_dim: 5 num_output: 3 }", ((1, 2),), ((5, 3), (3,)), "y"),
    ("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }", (IMAGE,), (), "y"),
    ("Filter", "", ((4, 2), (4, 1)), (), "y"),
    ("FlowWarp", "", (IMAGE, (1, 2, 6, 6)), (), "y"),
    ("Im2col", "convolution_param { kernel_size: 3 stride: 2 pad: 1 dilation: 1 }", (IMAGE,), (), "y"),
    ("Interp", "interp_param { height: 4 width: 9 pad_beg: 0 pad_end: 0 }", (IMAGE,), (), "y"),
    ("LSTM", "recurrent_param { num_output: 2 }", ((3, 1, 4), (3, 1)), ((8, 4), (8,), (8, 2)), "y"),
    ("LSTMUnit", "", ((1, 3, 2), (1, 3, 8), (1, 3)), (), "c h"),
    ("Log", "log_param { base: 10 scale: 2 shift: 5 }", (IMAGE,), (), "y"),
    ("MatMul", "", ((3, 4), (4, 5)), (), "y"),
    ("Normalize", "norm_param { across_spatial: false channel_shared: false }", (IMAGE,), ((4,),), "y"),
    ("PSROIPooling", "psroi_pooling_param { output_dim: 1 group_size: 2 spatial_scale: 0.5 }", (IMAGE, (3, 5)), (),
     "y"),
    ("Power", "power_param { power: 2 scale: 3 shift: 1 }", (IMAGE,), (), "y"),
    ("Proposal", "proposal_param { feat_stride: 12 ratio: 1 scale: 1 pre_nms_topn: 6 post_nms_topn: 2 }",
     ((1, 2, 3, 3), (1, 4, 3, 3), (1, 3)), (), "r s"),
    ("RNN", "recurrent_param { num_output: 2 }", ((3, 1, 4), (3, 1)), ((2, 4), (2,), (2, 2), (2, 2), (2,)), "y"),
    ("ROIPooling", "roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 }", (IMAGE, (3, 5)), (), "y"),
    ("Reduction", "reduction_param { operation: SUM axis: 1 coeff: 2 }", (IMAGE,), (), "y"),
    ("Region", "region_param { classes: 3 coords: 4 num: 2 }", ((1, 16, 2, 2),), (), "y"),
    ("RegionYolo", "region_yolo_param { classes: 3 coords: 4 num: 9 do_softmax: false mask: 0 mask: 1 }",
     ((1, 16, 2, 2),), (), "y"),
    ("Resample", "resample_param { type: NEAREST width: 12 height: 12 }", (IMAGE,), (), "y"),
    ("SPP", "spp_param { pyramid_height: 2 }", (IMAGE,), (), "y"),
    ("Tile", "tile_param { axis: 2 tiles: 2 }", (IMAGE,), (), "y"),
    ("Upsample", "upsample_param { scale: 2 }", (IMAGE,), (), "y"),
]  # fmt: skip


def networks() -> list[str]:
    """Networks of one layer or a few, whose learned tensors are in the prototxt."""
    found = [_network(case.text, case.blobs) for case in CASES]
    for type_, parameters, shapes, blobs, tops in LAYERS:
        inputs = [
            with_input(shape, "").replace('"x"', f'"x{k}"').replace('"in"', f'"in{k}"')
            for k, shape in enumerate(shapes)
        ]
        bottoms = " ".join(f"x{k}" for k in range(len(shapes)))
        text = "".join(inputs) + layer(type_, parameters, bottoms, tops)
        found.append(_network(text, {"layer": blobs} if blobs else {}))
    sides = "batch_size: 1 channels: 4 height: 6 width: 6"
    for type_, parameters in (("MemoryData", f"memory_data_param {{ {sides} }}"), ("DummyData", DUMMY)):
        found.append(layer(type_, parameters, "", "x", "data") + layer("ReLU", "", "x"))
    return found


def _network(text: str, blobs: dict[str, tuple[tuple[int, ...], ...]]) -> str:
    """Add the learned tensors to a text, as the first fields of their layers."""
    for name, shapes in blobs.items():
        arrays = [np.full(shape, 0.5, np.float32) for shape in shapes]
        (stored,) = weights_message({name: arrays}).layer
        stored.ClearField("name")
        stored.ClearField("type")
        start = f'layer {{ name: "{name}" '
        assert start in text
        text = text.replace(start, start + text_format.MessageToString(stored, as_one_line=True) + " ")
    return text


def changes(network: str) -> Iterator[Change]:
    """Return the changed prototxt files of a network, each as a function that makes it."""
    message: Any = new_message("NetParameter")
    try:
        text_format.Parse(network, message)
    except text_format.ParseError:  # parameters of a fork, which the schema does not have
        for found in re.finditer(r"(?<=: )-?\d+", network):
            yield from (partial(_replaced, network, found.span(), number) for number in (0, 1, -1, 7, HUGE))
        return
    for index, item in enumerate(message.layer):
        for edit in _layer_edits(item):
            yield partial(_changed, message, index, edit)


def _replaced(network: str, place: tuple[int, int], number: int) -> bytes:
    return (network[: place[0]] + str(number) + network[place[1] :]).encode()


def _changed(network: Message, index: int, edit: Callable[[Any], None]) -> bytes:
    copy: Any = new_message("NetParameter")
    copy.CopyFrom(network)
    edit(copy.layer[index])
    return text_format.MessageToString(copy).encode()


def _layer_edits(item: Any) -> Iterator[Callable[[Any], None]]:
    for name in ("bottom", "top"):
        names = list(getattr(item, name))
        for changed in (names[:-1], names[1:], [*names, *names[:1]], []):
            if changed != names:
                yield partial(_set_list, (), name, changed)
    for index, blob in enumerate(item.blobs):
        for shape in changed_shapes(tuple(blob.shape.dim)):
            yield partial(_set_blob_shape, index, shape)
        yield partial(_remove_blob, index)
    for descriptor, value in item.ListFields():
        if descriptor.name.endswith("_param") and descriptor.message_type is not None and _is_single(descriptor):
            yield partial(_clear, (), descriptor.name)
            yield from _message_edits(value, (descriptor.name,))


def _is_single(descriptor: FieldDescriptor) -> bool:
    repeated = getattr(descriptor, "is_repeated", None)  # not in protobuf 4.25, whose field label is deprecated now
    return not repeated if repeated is not None else descriptor.label != descriptor.LABEL_REPEATED


def _message_edits(message: Any, path: tuple[str, ...]) -> Iterator[Callable[[Any], None]]:
    """Return edits of all scalar fields of a message, given or not."""
    for descriptor in message.DESCRIPTOR.fields:
        name, kind = descriptor.name, descriptor.cpp_type
        if not _is_single(descriptor):
            values = list(getattr(message, name))
            if kind in _INTEGERS:
                low, high = _INTEGERS[kind]
                for numbers in changed_list(values):
                    yield partial(_set_list, path, name, [number for number in numbers if low <= number <= high])
            elif kind in _REALS:
                for reals in ([], [0.0], [-1.0] * max(len(values), 1), [float("nan")], [1e30, 1.0]):
                    yield partial(_set_list, path, name, reals)
            elif kind == FieldDescriptor.CPPTYPE_MESSAGE and name == "shape":
                for shape in changed_shapes(tuple(values[0].dim) if values else (2,)):
                    yield partial(_set_shape, path, name, shape)
        elif kind in _INTEGERS:
            low, high = _INTEGERS[kind]
            yield from (partial(_set, path, name, number) for number in (0, 1, -1, 7, HUGE) if low <= number <= high)
        elif kind in _REALS:
            yield from (partial(_set, path, name, number) for number in (0.0, -1.0, 1e30, float("nan"), float("inf")))
        elif kind == FieldDescriptor.CPPTYPE_BOOL:
            yield partial(_set, path, name, not getattr(message, name))
        elif kind == FieldDescriptor.CPPTYPE_ENUM:
            yield from (partial(_set, path, name, number) for number in descriptor.enum_type.values_by_number)


_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), HUGE),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_REALS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


def _at(item: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        item = getattr(item, name)
    return item


def _set(path: tuple[str, ...], name: str, value: Any, item: Any) -> None:
    setattr(_at(item, path), name, value)


def _clear(path: tuple[str, ...], name: str, item: Any) -> None:
    _at(item, path).ClearField(name)


def _set_list(path: tuple[str, ...], name: str, values: list[Any], item: Any) -> None:
    found = getattr(_at(item, path), name)
    del found[:]
    found.extend(values)


def _set_shape(path: tuple[str, ...], name: str, shape: tuple[int, ...], item: Any) -> None:
    found = getattr(_at(item, path), name)
    del found[:]
    found.add().dim.extend(shape)


def _set_blob_shape(index: int, shape: tuple[int, ...], item: Any) -> None:
    del item.blobs[index].shape.dim[:]
    item.blobs[index].shape.dim.extend(shape)


def _remove_blob(index: int, item: Any) -> None:
    del item.blobs[index]
