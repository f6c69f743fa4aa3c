"""A network with 8-bit weights and float activations, FastestDet, against the reference kernels of TensorFlow Lite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.frontends import tflite
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.types import Array, Chip

pytest.importorskip("ai_edge_litert.interpreter")

from tools.exactness.tflite_exactness import CHANNELS_FIRST, Oracle


@pytest.fixture(scope="module")
def folder(data_root: Path) -> Path:
    found = data_root / "reported" / "fastestdet_tflite"
    if not found.is_dir():
        pytest.skip("the data set has no reported models")
    return found


def test_every_hybrid_layer_has_the_kernels_result(folder: Path) -> None:
    """Layer by layer: each gets the reference kernels' operands, so that nothing adds up.

    The kernel multiplies integers, the graph rounded activations and weights, so that each result has the rounding
    error of a binary32 sum: below 2^-20 of the range of the result. One activation that is rounded to another integer
    changes a result by about 2^-10 of it.
    """
    oracle = Oracle(folder / "model.tflite", keeps_tensors=True)
    image = np.load(folder / "reference.npz")["in0"]
    oracle.run([image])
    known = oracle.tensors()
    graph = tflite.load(folder / "model.tflite", hybrid="dynamic")
    values: dict[Value, Array] = {graph.inputs[0]: image}
    layers = worst = 0.0
    for node in graph.sorted_nodes():
        operands = [None if x is None else x.array if x.is_constant else values[x] for x in node.inputs]
        for value, result in zip(node.outputs, node.op.evaluate(*operands, chip=Chip.BM1686), strict=True):
            name = value.name.removesuffix(CHANNELS_FIRST)
            want = known.get(name)
            values[value] = result
            if want is None or want.dtype != np.float32 or want.size != result.size:
                continue
            if value.name != name:
                want = np.moveaxis(want, -1, 1)
            values[value] = want.reshape(result.shape)
            if any(item.op in ("CONV_2D", "DEPTHWISE_CONV_2D") for item in node.sources):
                layers += 1
                worst = max(worst, float(np.abs(result - values[value]).max() / np.ptp(want)))
    assert layers >= 39
    assert worst < 2.0**-20


def test_the_result_is_as_near_as_the_kernels_are_to_themselves(folder: Path) -> None:
    """Activations are rounded 39 times in a row, and one that is nearly halfway between two integers may go either way.

    Half of the pixels moved by one unit in the last place change the reference kernels' own result by 0.2 to 0.4 of a
    range of 6.7. Sums in another order cannot be closer.
    """
    oracle = Oracle(folder / "model.tflite")
    stored = np.load(folder / "reference.npz")
    image = stored["in0"]
    (want,) = oracle.run([image])
    assert np.array_equal(want, stored["out0"])  # these kernels computed the reference of the data set
    moved = []  # root mean square of the differences
    for seed in range(6):
        up = np.random.default_rng(seed).random(image.shape) < 0.5
        (other,) = oracle.run([np.where(up, np.nextafter(image, np.float32(np.inf)), image)])
        moved.append(float(np.sqrt(np.mean((other - want) ** 2))))
    with tc.Session(tc.convert(folder / "model.tflite")) as session:
        (found,) = session.run({session.inputs[0].name: image}).values()
    assert float(np.sqrt(np.mean((found - want) ** 2))) <= 1.5 * max(moved)
