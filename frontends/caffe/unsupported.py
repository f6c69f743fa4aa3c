"""Layer types without a converter, with reasons and next steps."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tpuconvert.frontends.caffe.node import caffe_op
from tpuconvert.frontends.registry import registry
from tpuconvert.schema.text.spelling import did_you_mean

_LOSS = "measures a loss, and another layer reads it", "delete both"
_PLUGIN = "give a plugin that converts it (--plugin file.py)"
_YOLO = "forks decode boxes and drop overlapping ones in different ways"
REASONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("ContrastiveLoss", "EuclideanLoss", "HingeLoss", "InfogainLoss", "MultiBoxLoss"), _LOSS),
        "MultinomialLogisticLoss": _LOSS,
        "Correlation": ("its displacement windows have no operator", _PLUGIN),
        "DataAugmentation": ("changes images for training", "delete it: prepare the images with --preprocess"),
        "Python": ("runs arbitrary code", "give a plugin that converts this layer: --plugin file.py"),
        "Pooling3D": ("pools over volumes: no float operator does", _PLUGIN),
        "Recurrent": ("is the base of LSTM and RNN, not a layer", "name the layer that is meant"),
        "YoloDetectionOutput": (_YOLO, _PLUGIN),
        "Yolov3DetectionOutput": (_YOLO, _PLUGIN),
    }
)
"""Message and next step by layer type."""

registry("caffe").refuse({name: message for name, (message, _) in REASONS.items()})


def why_unsupported(layer: Any) -> tuple[str, str]:
    """Message and next step for a layer whose type has no converter."""
    message, hint = REASONS.get(layer.type, ("", _PLUGIN))
    if layer.type not in REASONS:
        meant = did_you_mean(layer.type, (*caffe_op.names(), *REASONS))
        hint = f"{meant}\n{hint}" if meant else hint
    if layer.type == "Python":
        message += f": {layer.python_param.layer or '(no layer)'} of module '{layer.python_param.module}'"
    return message, hint
