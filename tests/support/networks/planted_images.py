"""Networks whose outputs are constants, so that every box, class and point in an image is known."""

from collections.abc import Mapping

import numpy as np
from PIL import Image

import tpuconvert as tc
from tests.support.onnx import models as onnx_models
from tpuconvert.schema.types import Array

SIZE = (40, 80)
"""(height, width) of the inputs."""

GRAY = (90, 90, 90)


def planted(outputs: Mapping[str, Array], preprocess: str = "color=RGB", batch: int = 1) -> tc.Model:
    """Return a model whose outputs are these arrays for any image: ``relu(mean - 1000) + constant``."""
    nodes = [
        onnx_models.one("ReduceMean", "x", outputs=["mean"]),
        onnx_models.one("Sub", "mean", "thousand", outputs=["below"]),
        onnx_models.one("Relu", "below", outputs=["zero"]),
    ]
    constants: dict[str, Array] = {"thousand": np.full(1, 1000, np.float32)}
    for name, array in outputs.items():
        flat = array.astype(np.float32)
        constants |= {f"{name}_c": flat.reshape(1, 1, 1, -1), f"{name}_s": np.array(array.shape, np.int64)}
        nodes += [
            onnx_models.one("Add", "zero", f"{name}_c", outputs=[f"{name}_flat"]),
            onnx_models.one("Reshape", f"{name}_flat", f"{name}_s", outputs=[name]),
        ]
    inputs = {"x": np.zeros((batch, 3, *SIZE), np.float32)}
    return tc.convert(onnx_models.model(nodes, inputs, list(outputs), constants), preprocess=preprocess)


def detector(*rows: tuple[int, float, tuple[float, float, float, float]], preprocess: str = "color=RGB") -> tc.Model:
    """Return a model with Caffe's DetectionOutput: rows of class, score and box from 0 to 1; classes count from 0."""
    table = [[0, index + 1, score, *box] for index, score, box in rows] or [[-1, 0, 0, 0, 0, 0, 0]]
    return planted({"y": np.array(table, np.float32)[np.newaxis, np.newaxis]}, preprocess)


def classifier(*scores: float) -> tc.Model:
    """Return a model with these scores of classes."""
    return planted({"y": np.array([scores], np.float32)})


def gray(width: int, height: int) -> Image.Image:
    """Return a gray image."""
    return Image.new("RGB", (width, height), GRAY)
