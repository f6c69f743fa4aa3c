"""Upgrade layers of the two older prototxt formats, V0 and V1, to the current format.

V1 stores the type of a layer as an enum value. V0 stores the parameters of all layer types in one flat message, nested
in a V1 layer that has the bottoms and tops. Both functions return a list of ``(index in the file, LayerParameter,
dropped parameters)``.

Source: Caffe's code that upgrades such files when it loads them.
"""

from collections.abc import Sequence
from typing import Any

from tpuconvert.frontends.caffe.file.messages import message_class, new_message

Upgraded = list[tuple[int, Any, list[str]]]

_TYPES = (
    "AbsVal Accuracy ArgMax BNLL Concat ContrastiveLoss Convolution Data Deconvolution Dropout DummyData Eltwise "
    "EuclideanLoss Exp Flatten HDF5Data HDF5Output HingeLoss Im2col ImageData InfogainLoss InnerProduct LRN MemoryData "
    "MultinomialLogisticLoss MVN Pooling Power ReLU Sigmoid SigmoidCrossEntropyLoss Silence Slice Softmax Split TanH "
    "Threshold WindowData"
)
_V0_TYPES = (
    "accuracy bnll concat data dropout euclidean_loss flatten hdf5_data hdf5_output im2col infogain_loss innerproduct "
    "lrn multinomial_logistic_loss relu sigmoid softmax split tanh window_data"
)
_BY_LETTERS = {name.lower(): name for name in _TYPES.split()} | {"softmaxloss": "SoftmaxWithLoss", "none": ""}


def _current_type(old: str) -> str:
    """Current name of a V0 type (``euclidean_loss``) or a V1 type (``EUCLIDEAN_LOSS``)."""
    return _BY_LETTERS[old.replace("_", "").lower()]


V1_TYPES = {
    name: _current_type(name)
    for name in message_class("V1LayerParameter").DESCRIPTOR.enum_types_by_name["LayerType"].values_by_name
}
V0_TYPES = {
    **{old: _current_type(old) for old in _V0_TYPES.split()},
    **{"conv": "Convolution", "images": "ImageData", "pool": "Pooling", "softmax_loss": "SoftmaxWithLoss"},
}

_TRANSFORM = {"transform_param": "scale mean_file crop_size mirror"}
V0_PARAMETERS: dict[str, dict[str, str]] = {
    "Convolution": {"convolution_param": "num_output bias_term weight_filler bias_filler pad kernel_size stride group"},
    "InnerProduct": {"inner_product_param": "num_output bias_term weight_filler bias_filler"},
    "Pooling": {"pooling_param": "pad kernel_size stride pool"},
    "Im2col": {"convolution_param": "pad kernel_size stride"},
    "Dropout": {"dropout_param": "dropout_ratio"},
    "LRN": {"lrn_param": "local_size alpha beta k"},
    "Concat": {"concat_param": "concat_dim"},
    "Data": {"data_param": "source batch_size rand_skip"} | _TRANSFORM,
    "ImageData": {"image_data_param": "source batch_size rand_skip shuffle new_height new_width"} | _TRANSFORM,
    "WindowData": _TRANSFORM
    | {"window_data_param": "source batch_size fg_threshold bg_threshold fg_fraction context_pad crop_mode"},
    "HDF5Data": {"hdf5_data_param": "source batch_size"},
    "HDF5Output": {"": "hdf5_output_param"},
    "InfogainLoss": {"infogain_loss_param": "source"},
}
"""V0 parameters of each type, by the message that contains them in the current format ("" is the layer itself)."""

V0_RENAMED = {
    **{"biasterm": "bias_term", "kernelsize": "kernel_size", "batchsize": "batch_size", "cropsize": "crop_size"},
    **{"meanfile": "mean_file", "shuffle_images": "shuffle", "det_fg_threshold": "fg_threshold"},
    **{"det_bg_threshold": "bg_threshold", "det_fg_fraction": "fg_fraction", "det_context_pad": "context_pad"},
    "det_crop_mode": "crop_mode",
}

_V1_OWN = ("bottom", "top", "name", "type", "layer", "blobs", "blobs_lr", "weight_decay", "param", "blob_share_mode")


def v1_to_current(layers: Sequence[Any]) -> Upgraded:
    """Convert V1 layers to the current format."""
    upgraded: Upgraded = []
    for index, old in enumerate(layers):
        type_name = old.DESCRIPTOR.enum_types_by_name["LayerType"].values_by_number[old.type].name
        new = _new_layer(old, old, V1_TYPES[type_name])
        for position, shared in enumerate(old.param):
            _spec(new, position).name = shared
        for field, value in old.ListFields():
            if field.name not in _V1_OWN:
                _copy(new, field.name, value)
        upgraded.append((index, new, []))
    return upgraded


def v0_to_current(layers: Sequence[Any]) -> Upgraded:
    """Convert V0 layers to the current format; fold layers of type ``padding`` into the conv or pooling after them."""
    upgraded: Upgraded = []
    padding: dict[str, Any] = {}
    for index, outer in enumerate(layers):
        old = outer.layer
        if old.type == "padding" and len(outer.bottom) == 1 and len(outer.top) == 1:
            padding[outer.top[0]] = outer
            continue
        new = _new_layer(outer, old, V0_TYPES.get(old.type, old.type))
        dropped = _v0_parameters(new, old)
        dropped += _absorb_padding(new, padding)
        upgraded.append((index, new, dropped))
    return upgraded


def _v0_parameters(new: Any, old: Any) -> list[str]:
    """Copy the flat V0 parameters to their current messages; return parameters without a meaning for this type."""
    dropped = []
    for field, value in old.ListFields():
        if field.name in ("name", "type", "blobs", "blobs_lr", "weight_decay"):
            continue
        name, messages = V0_RENAMED.get(field.name, field.name), V0_PARAMETERS.get(new.type, {})
        message = next((message for message, names in messages.items() if name in names.split()), None)
        try:
            if message is None:
                dropped.append(field.name)
            else:
                _copy(getattr(new, message) if message else new, name, value)
        except ValueError:  # V0 accepted values that are out of range in the current format
            dropped.append(f"{field.name}: {value}")
    return dropped


def _absorb_padding(new: Any, padding: dict[str, Any]) -> list[str]:
    """Fold the padding layers before this layer into it. Describe the ones that it cannot absorb."""
    dropped = []
    for position, bottom in enumerate(new.bottom):
        outer = padding.get(bottom)
        if outer is None:
            continue
        new.bottom[position] = outer.bottom[0]
        if new.type == "Convolution":
            new.convolution_param.pad.append(outer.layer.pad)
        elif new.type == "Pooling":
            new.pooling_param.pad = outer.layer.pad
        else:
            dropped.append(f"padding layer '{outer.layer.name}'")
    return dropped


def _new_layer(outer: Any, old: Any, type_name: str) -> Any:
    """Create a layer with the bottoms and tops of ``outer``, and the name, blobs and learning rates of ``old``."""
    new = new_message("LayerParameter")
    new.name, new.type = old.name, type_name
    new.bottom.extend(outer.bottom)
    new.top.extend(outer.top)
    new.blobs.extend(old.blobs)
    for position, rate in enumerate(old.blobs_lr):
        _spec(new, position).lr_mult = rate
    for position, decay in enumerate(old.weight_decay):
        _spec(new, position).decay_mult = decay
    return new


def _spec(new: Any, position: int) -> Any:
    while len(new.param) <= position:
        new.param.add()
    return new.param[position]


def _copy(target: Any, name: str, value: Any) -> None:
    """Set a field to a value of another message; a repeated field is extended by the value."""
    current = getattr(target, name)
    if hasattr(current, "extend"):
        current.extend(value if hasattr(value, "__len__") else [value])
    elif hasattr(current, "CopyFrom"):
        current.CopyFrom(value)
    else:
        setattr(target, name, value)
