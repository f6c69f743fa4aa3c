"""Input layers, training data layers (which become graph inputs), and learned tensors used as data."""

from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends.caffe.node import CaffeNode, Declared, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value

_PREPARATION = ("source", "scale", "mean_file", "mirror")
"""Parameters of a data layer that state the source and the preprocessing of its images."""


@caffe_op("Input", kind=Kind.FOLDED)
def input_layer(node: CaffeNode, g: Graph) -> Sequence[Declared]:
    """Graph inputs with the shapes in the prototxt."""
    shapes = [tuple(int(d) for d in shape.dim) for shape in node.params("input_param").messages("shape")]
    return [Declared(shape) for shape in _one_per_top(node, shapes)]


@caffe_op("MemoryData", kind=Kind.FOLDED)
def memory_data(node: CaffeNode, g: Graph) -> Sequence[Declared]:
    """Graph input for data in memory; labels become a second input only if an inference layer reads them."""
    p = node.params("memory_data_param")
    shape = tuple(p.whole(name) for name in ("batch_size", "channels", "height", "width"))
    return _data_and_labels(node, shape, shape[0])


@caffe_op("ImageData", kind=Kind.FOLDED)
def image_data(node: CaffeNode, g: Graph) -> Sequence[Declared]:
    """Graph input for images, with the size to which they are cropped or resized."""
    p = node.params("image_data_param")
    batch, height, width = p.whole("batch_size"), p.whole("new_height"), p.whole("new_width")
    channels = 3 if p.flag("is_color") else 1
    crop = _crop_size(node, p)
    p.ignore(*_PREPARATION, "rand_skip", "shuffle", "root_folder")
    if crop:
        height = width = crop
    return _data_and_labels(node, (batch, channels, height, width) if height and width else None, batch)


@caffe_op("WindowData", kind=Kind.FOLDED)
def window_data(node: CaffeNode, g: Graph) -> Sequence[Declared]:
    """Graph input for image windows, with the size to which they are cropped."""
    p = node.params("window_data_param")
    batch, crop = p.whole("batch_size"), _crop_size(node, p)
    p.ignore(*_PREPARATION, "root_folder", "cache_images")
    p.ignore("fg_threshold", "bg_threshold", "fg_fraction", "context_pad", "crop_mode")
    return _data_and_labels(node, (batch, 3, crop, crop) if crop else None, batch)


@caffe_op("Data", "HDF5Data", "AnnotatedData", "VideoData", kind=Kind.FOLDED)
def data(node: CaffeNode, g: Graph) -> Sequence[Declared]:
    """Graph inputs for a database. Only it contains their shape: an option must state it unless images are cropped."""
    batch = crop = 0
    for name in ("data_param", "hdf5_data_param", "annotated_data_param"):
        p = node.params(name)
        if p.has("batch_size"):
            batch = p.whole("batch_size")
        if name == "data_param":
            crop = _crop_size(node, p)
        p.ignore(*_PREPARATION, "rand_skip", "shuffle")
        p.ignore("backend", "force_encoded_color", "prefetch", "label_map_file")
    if not (crop and batch):
        return _data_and_labels(node, None, batch)
    channels, is_given = _channels(node)
    if not is_given:
        shown = f"{batch},{channels},{crop},{crop}"
        node.notes.append(
            f"layer '{node.name}' does not specify the number of channels of its images: {channels} are assumed "
            f"(--input-shapes {node.output_names[0]}={shown})"
        )
    return _data_and_labels(node, (batch, channels, crop, crop), batch)


def _channels(node: CaffeNode) -> tuple[int, bool]:
    """Number of channels of database images (default: 3), and True if the layer states it."""
    transform = node.params("transform_param")
    if transform.flag("force_gray"):
        return 1, True
    return 3, transform.flag("force_color") or len(transform.floats("mean_value")) == 3


@caffe_op("DummyData", kind=Kind.FOLDED)
def dummy_data(node: CaffeNode, g: Graph) -> Sequence[Declared | Value]:
    """Constant for each top with a constant filler, graph input for the others."""
    p = node.params("dummy_data_param")
    shapes = [tuple(int(d) for d in shape.dim) for shape in p.messages("shape")]
    legacy = [p.ints(name) for name in ("num", "channels", "height", "width")]
    if not shapes and all(legacy):
        shapes = [tuple(int(d) for d in dims) for dims in zip(*legacy, strict=True)]
    fillers = p.messages("data_filler")
    results: list[Declared | Value] = []
    for index, shape in enumerate(_one_per_top(node, shapes)):
        filler = fillers[index if len(fillers) > 1 else 0] if fillers else None
        if filler is None or filler.type != "constant" or shape is None:
            results.append(Declared(shape))
        else:
            node.budget(shape, "data")
            results.append(node.constant(np.full(shape, filler.value, np.float32), "data"))
    return results


@caffe_op("Parameter", kind=Kind.FOLDED)
def parameter(node: CaffeNode, g: Graph) -> Value:
    """Learned tensor as a constant."""
    shape = tuple(int(d) for d in node.params("parameter_param").group("shape").ints("dim"))
    return node.constant(node.weight(0, shape, "parameter"), "parameter")


def _one_per_top(node: CaffeNode, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...] | None]:
    count = len(node.output_names)
    if not shapes:
        return [None] * count
    if len(shapes) not in (1, count):
        raise node.fail(f"{len(shapes)} shapes for {count} tops", kind=INVALID_NODE)
    return [shapes[index if len(shapes) == count else 0] for index in range(count)]


def _data_and_labels(node: CaffeNode, shape: tuple[int, ...] | None, batch: int) -> list[Declared]:
    """Declare the first top as data and the others as labels with one element per image."""
    transform = node.params("transform_param")
    prepared = [name for name in ("scale", "mean_file", "mean_value") if transform.has(name)]
    if prepared:
        settings = ", ".join(prepared)
        node.notes.append(f"layer '{node.name}' prepares its images ({settings}): give the same with --preprocess")
    transform.ignore("mirror", "crop_size", "force_color", "force_gray")
    labels = Declared((batch,) if batch else None, needed=False)
    return [Declared(shape, needed=False), *[labels] * (len(node.output_names) - 1)]


def _crop_size(node: CaffeNode, p: Parameters) -> int:
    """Read ``crop_size`` from ``transform_param``, or in older files from the parameters of the layer."""
    return node.params("transform_param").whole("crop_size") or p.whole("crop_size")
