"""Layers of the first two generations in the current form.

V1 gave a layer's type as a number; V0 kept all parameters of all types in one flat message, inside a V1 layer that
holds the connections. Both functions return ``(index in the file, LayerParameter, parameters without meaning)``.

Source: what Caffe does when it loads such files.
"""

from collections.abc import Sequence
from typing import Any

from tpuconvert.frontends.caffe.messages import new_message

Upgraded = list[tuple[int, Any, list[str]]]

V1_TYPES = {
    "ABSVAL": "AbsVal",
    "ACCURACY": "Accuracy",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss",
    "CONVOLUTION": "Convolution",
    "DATA": "Data",
    "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout",
    "DUMMY_DATA": "DummyData",
    "ELTWISE": "Eltwise",
    "EUCLIDEAN_LOSS": "EuclideanLoss",
    "EXP": "Exp",
    "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col",
    "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss",
    "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN",
    "MEMORY_DATA": "MemoryData",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss",
    "MVN": "MVN",
    "NONE": "",
    "POOLING": "Pooling",
    "POWER": "Power",
    "RELU": "ReLU",
    "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss",
    "SILENCE": "Silence",
    "SLICE": "Slice",
    "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SPLIT": "Split",
    "TANH": "TanH",
    "THRESHOLD": "Threshold",
    "WINDOW_DATA": "WindowData",
}

V0_TYPES = {
    "accuracy": "Accuracy",
    "bnll": "BNLL",
    "concat": "Concat",
    "conv": "Convolution",
    "data": "Data",
    "dropout": "Dropout",
    "euclidean_loss": "EuclideanLoss",
    "flatten": "Flatten",
    "hdf5_data": "HDF5Data",
    "hdf5_output": "HDF5Output",
    "im2col": "Im2col",
    "images": "ImageData",
    "infogain_loss": "InfogainLoss",
    "innerproduct": "InnerProduct",
    "lrn": "LRN",
    "multinomial_logistic_loss": "MultinomialLogisticLoss",
    "pool": "Pooling",
    "relu": "ReLU",
    "sigmoid": "Sigmoid",
    "softmax": "Softmax",
    "softmax_loss": "SoftmaxWithLoss",
    "split": "Split",
    "tanh": "TanH",
    "window_data": "WindowData",
}

_CONV, _POOL, _DENSE, _LRN = "convolution_param", "pooling_param", "inner_product_param", "lrn_param"
_DATA, _IMAGES, _WINDOWS, _HDF5 = "data_param", "image_data_param", "window_data_param", "hdf5_data_param"
_TRANSFORM = ("Data", "transform_param"), ("ImageData", "transform_param"), ("WindowData", "transform_param")

V0_FIELDS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "num_output": ("num_output", (("Convolution", _CONV), ("InnerProduct", _DENSE))),
    "biasterm": ("bias_term", (("Convolution", _CONV), ("InnerProduct", _DENSE))),
    "weight_filler": ("weight_filler", (("Convolution", _CONV), ("InnerProduct", _DENSE))),
    "bias_filler": ("bias_filler", (("Convolution", _CONV), ("InnerProduct", _DENSE))),
    "pad": ("pad", (("Convolution", _CONV), ("Pooling", _POOL), ("Im2col", _CONV))),
    "kernelsize": ("kernel_size", (("Convolution", _CONV), ("Pooling", _POOL), ("Im2col", _CONV))),
    "stride": ("stride", (("Convolution", _CONV), ("Pooling", _POOL), ("Im2col", _CONV))),
    "group": ("group", (("Convolution", _CONV),)),
    "pool": ("pool", (("Pooling", _POOL),)),
    "dropout_ratio": ("dropout_ratio", (("Dropout", "dropout_param"),)),
    "local_size": ("local_size", (("LRN", _LRN),)),
    "alpha": ("alpha", (("LRN", _LRN),)),
    "beta": ("beta", (("LRN", _LRN),)),
    "k": ("k", (("LRN", _LRN),)),
    "source": (
        "source",
        (
            ("Data", _DATA),
            ("ImageData", _IMAGES),
            ("WindowData", _WINDOWS),
            ("HDF5Data", _HDF5),
            ("InfogainLoss", "infogain_loss_param"),
        ),
    ),
    "scale": ("scale", _TRANSFORM),
    "meanfile": ("mean_file", _TRANSFORM),
    "cropsize": ("crop_size", _TRANSFORM),
    "mirror": ("mirror", _TRANSFORM),
    "batchsize": (
        "batch_size",
        (("Data", _DATA), ("ImageData", _IMAGES), ("WindowData", _WINDOWS), ("HDF5Data", _HDF5)),
    ),
    "rand_skip": ("rand_skip", (("Data", _DATA), ("ImageData", _IMAGES))),
    "shuffle_images": ("shuffle", (("ImageData", _IMAGES),)),
    "new_height": ("new_height", (("ImageData", _IMAGES),)),
    "new_width": ("new_width", (("ImageData", _IMAGES),)),
    "concat_dim": ("concat_dim", (("Concat", "concat_param"),)),
    "det_fg_threshold": ("fg_threshold", (("WindowData", _WINDOWS),)),
    "det_bg_threshold": ("bg_threshold", (("WindowData", _WINDOWS),)),
    "det_fg_fraction": ("fg_fraction", (("WindowData", _WINDOWS),)),
    "det_context_pad": ("context_pad", (("WindowData", _WINDOWS),)),
    "det_crop_mode": ("crop_mode", (("WindowData", _WINDOWS),)),
    "hdf5_output_param": ("", (("HDF5Output", "hdf5_output_param"),)),
}
"""V0 field -> (its name now, for which types it means something and in which message it is stored)."""

_V1_OWN = ("bottom", "top", "name", "type", "layer", "blobs", "blobs_lr", "weight_decay", "param", "blob_share_mode")


def v1_to_current(layers: Sequence[Any]) -> Upgraded:
    """V1 layers in the current form."""
    upgraded: Upgraded = []
    for index, old in enumerate(layers):
        new = new_message("LayerParameter")
        _connect(new, old, old.name)
        type_name = old.DESCRIPTOR.enum_types_by_name["LayerType"].values_by_number[old.type].name
        new.type = V1_TYPES[type_name]
        new.blobs.extend(old.blobs)
        _learning_rates(new, old.blobs_lr, old.weight_decay)
        for position, shared in enumerate(old.param):
            _spec(new, position).name = shared
        for known, value in old.ListFields():
            if known.name not in _V1_OWN:
                _copy(new, known.name, value)
        upgraded.append((index, new, []))
    return upgraded


def v0_to_current(layers: Sequence[Any]) -> Upgraded:
    """V0 layers in the current form. Layers of type ``padding`` move into the convolution or pooling after them."""
    upgraded: Upgraded = []
    padding: dict[str, Any] = {}
    for index, outer in enumerate(layers):
        old = outer.layer
        if old.type == "padding" and len(outer.bottom) == 1 and len(outer.top) == 1:
            padding[outer.top[0]] = outer
            continue
        new = new_message("LayerParameter")
        _connect(new, outer, old.name)
        new.type = V0_TYPES.get(old.type, old.type)
        new.blobs.extend(old.blobs)
        _learning_rates(new, old.blobs_lr, old.weight_decay)
        dropped = _v0_parameters(new, old)
        dropped += _absorb_padding(new, padding)
        upgraded.append((index, new, dropped))
    return upgraded


def _v0_parameters(new: Any, old: Any) -> list[str]:
    """Move the flat parameters to where they stand now; returns those that mean nothing for this type."""
    dropped = []
    for known, value in old.ListFields():
        if known.name in ("name", "type", "blobs", "blobs_lr", "weight_decay"):
            continue
        name, places = V0_FIELDS.get(known.name, ("", ()))
        target = dict(places).get(new.type)
        try:
            if target is None:
                dropped.append(known.name)
            elif name:
                _copy(getattr(new, target), name, value)
            else:
                _copy(new, target, value)
        except ValueError:  # V0 took numbers that are out of range today
            dropped.append(f"{known.name}: {value}")
    return dropped


def _absorb_padding(new: Any, padding: dict[str, Any]) -> list[str]:
    """Fold the padding layers before this layer into it. Return those that it cannot absorb."""
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


def _connect(new: Any, old: Any, name: str) -> None:
    new.name = name
    new.bottom.extend(old.bottom)
    new.top.extend(old.top)


def _learning_rates(new: Any, rates: Sequence[float], decays: Sequence[float]) -> None:
    for position, rate in enumerate(rates):
        _spec(new, position).lr_mult = rate
    for position, decay in enumerate(decays):
        _spec(new, position).decay_mult = decay


def _spec(new: Any, position: int) -> Any:
    while len(new.param) <= position:
        new.param.add()
    return new.param[position]


def _copy(target: Any, name: str, value: Any) -> None:
    """Set or extend a field with a value that another message holds."""
    current = getattr(target, name)
    if hasattr(current, "extend"):
        current.extend(value if hasattr(value, "__len__") else [value])
    elif hasattr(current, "CopyFrom"):
        current.CopyFrom(value)
    else:
        setattr(target, name, value)
