"""Small ONNX networks in which INT8 fails at one known node."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 12, 12)
CLASSES = 10


class Network:
    """A network of convolutions with random weights from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def conv(self, name: str, x: str, inputs: int, outputs: int) -> str:
        """Add a 3x3 conv called ``name`` and its ReLU. Return the result of the ReLU."""
        weights = self.random.normal(size=(outputs, inputs, 3, 3)) / np.sqrt(inputs * 4.5)
        self.constants |= {f"{name}/weight": weights, f"{name}/bias": self.random.normal(size=outputs) * 0.1}
        operands = [x, f"{name}/weight", f"{name}/bias"]
        self.nodes.append(helper.make_node("Conv", operands, [name], name=name, pads=[1] * 4))
        self.nodes.append(helper.make_node("Relu", [name], [f"{name}/relu"], name=f"{name}/relu"))
        return f"{name}/relu"

    def classify(self, x: str, channels: int) -> None:
        """Add the mean over the image and a fully connected layer, with the scores as output."""
        self.constants |= {"fc/weight": self.random.normal(size=(channels, CLASSES)), "fc/bias": np.zeros(CLASSES)}
        self.nodes.append(helper.make_node("GlobalAveragePool", [x], ["mean"], name="mean"))
        self.nodes.append(helper.make_node("Flatten", ["mean"], ["flat"], name="flat"))
        self.nodes.append(helper.make_node("Gemm", ["flat", "fc/weight", "fc/bias"], ["scores"], name="fc"))

    def save(self, path: Path) -> Path:
        """Write the network."""
        constants = [numpy_helper.from_array(np.float32(array), name) for name, array in self.constants.items()]
        ports = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", SHAPE), ("scores", (1, CLASSES)))
        ]
        graph = helper.make_graph(self.nodes, "network", ports[:1], ports[1:], constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path


def weight_outlier(path: Path, seed: int) -> Path:
    """Write a network whose conv ``broken`` has huge weights for an input channel that is always 0.

    In float they have no effect. In INT8 they determine the scale of the weights, so that the others become 0.
    """
    network = Network(seed)
    x = network.conv("first", "x", 3, 16)
    x = network.conv("second", x, 16, 16)
    network.constants["second/bias"][5] = -50.0
    x = network.conv("broken", x, 16, 16)
    network.constants["broken/weight"][:, 5] = 60.0 * np.sign(network.constants["broken/weight"][:, 5])
    network.classify(network.conv("last", x, 16, 16), 16)
    return network.save(path)


def mixed_ranges(path: Path, seed: int) -> Path:
    """Write a network with a concat of two tensors, the first 300 times as small as the second and as important.

    The concat has one scale, in which the first tensor becomes 0.
    """
    network = Network(seed)
    x = network.conv("first", "x", 3, 8)
    parts = [network.conv(name, x, 8, 8) for name in ("small", "large")]
    for name in ("small/weight", "small/bias"):
        network.constants[name] /= 300.0
    network.nodes.append(helper.make_node("Concat", parts, ["joined"], name="joined", axis=1))
    last = network.conv("last", "joined", 16, 16)
    network.constants["last/weight"][:, :8] *= 300.0
    network.classify(last, 16)
    return network.save(path)


def loud_channel(path: Path, seed: int) -> Path:
    """Write a network with one channel 400 times as large as the others, which a pool moves to a matmul ``scores``.

    The matmul undoes the factor, so that all channels are as important. The tensor has one scale, in which the small
    channels become 0.
    """
    network = Network(seed)
    x = network.conv("last", network.conv("first", "x", 3, 8), 8, 8)
    factors = np.where(np.arange(8) == 5, 400.0, 1.0)
    network.constants["last/weight"] *= factors[:, np.newaxis, np.newaxis, np.newaxis]
    network.constants["last/bias"] *= factors
    inputs = 8 * SHAPE[2] * SHAPE[3] // 4
    weights = network.random.normal(size=(8, inputs // 8, CLASSES)) / factors[:, np.newaxis, np.newaxis]
    network.constants |= {"fc/weight": weights.reshape(inputs, CLASSES), "fc/bias": np.zeros(CLASSES)}
    network.nodes.append(helper.make_node("MaxPool", [x], ["pool"], name="pool", kernel_shape=[2, 2], strides=[2, 2]))
    network.nodes.append(helper.make_node("Flatten", ["pool"], ["flat"], name="flat"))
    network.nodes.append(helper.make_node("Gemm", ["flat", "fc/weight", "fc/bias"], ["scores"], name="fc"))
    return network.save(path)


def samples(seed: int, count: int = 24) -> list[np.ndarray]:
    """Return random samples for these networks, [1, 3, 12, 12] each."""
    return list(np.random.default_rng(seed).normal(size=(count, *SHAPE)).astype(np.float32))
