"""Networks of the benchmark; their weights and inputs come from seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tools.bench.builder import NetworkBuilder, Tensor
from tools.bench.classifiers import mobilenet_v2, resnet18, resnet50, vgg16
from tools.bench.detector import yolov5n
from tools.bench.images import hidden_states, natural_images, normalize
from tools.bench.transformers import bert_layer, vit_tiny
from tpuconvert.schema.types import Array

SEED = 2026
SAMPLES = 16
"""Number of calibration samples; the first one is the input of the measurement."""


@dataclass(frozen=True)
class Network:
    """One network of the benchmark.

    Args:
        name: name in tables, and stem of the files.
        build: function that adds the nodes of the network.
        samples: function of (count, seed) that returns inputs.
        input: name of the input.
        opset: operator set version of the ONNX file.
        fitted_on: number of inputs from which batch norm statistics are computed.
        is_transformer: True if other engines need their settings for transformers.
        is_image: True if the input is an image [1, 3, H, W].
    """

    name: str
    build: Callable[[NetworkBuilder, Tensor], Tensor]
    samples: Callable[[int, int], Array]
    input: str = "input"
    opset: int = 13
    fitted_on: int = 4
    is_transformer: bool = False
    is_image: bool = True


def _synthetic_classes(count: int, seed: int) -> Array:
    return normalize(natural_images(count, 224, seed))


NETWORKS = {
    network.name: network
    for network in (
        Network("resnet50", resnet50, _synthetic_classes),
        Network("resnet18", resnet18, _synthetic_classes),
        Network("vgg16", vgg16, _synthetic_classes, fitted_on=1),
        Network("mobilenetv2", mobilenet_v2, _synthetic_classes),
        Network("mobilenetv2_32", mobilenet_v2, lambda count, seed: normalize(natural_images(count, 32, seed))),
        Network("yolov5n", yolov5n, lambda count, seed: natural_images(count, 320, seed), input="images"),
        Network("vit_tiny", vit_tiny, _synthetic_classes, opset=17, fitted_on=1, is_transformer=True),
        Network(
            "bert_layer",
            bert_layer,
            lambda count, seed: hidden_states(count, 128, 768, seed),
            input="hidden",
            opset=17,
            fitted_on=1,
            is_transformer=True,
            is_image=False,
        ),
    )
}


def write_network(network: Network, path: Path) -> None:
    """Build a network and write its ONNX file."""
    g = NetworkBuilder(network.name, network.opset, SEED)
    x = g.input(network.input, network.samples(network.fitted_on, SEED + 1))
    g.save(path, network.build(g, x))


def write_samples(network: Network, path: Path) -> None:
    """Write the inputs, one per row of the first axis."""
    np.save(path, network.samples(SAMPLES, SEED + 2))
