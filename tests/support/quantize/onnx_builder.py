"""Random ONNX networks for the tests of INT8 conversion: a builder, and a comparison with the float conversion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.schema.types import Array


class OnnxNet:
    """An ONNX model under construction. Weights are seeded; shapes are those that inference finds."""

    def __init__(self, seed: int, opset: int = 17) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, int] = {}
        self.opset = opset

    def input(self, name: str, *shape: int) -> str:
        self.inputs[name] = self.shapes[name] = shape
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        array = np.asarray(array)
        self.constants.append(numpy_helper.from_array(array, name))
        self.shapes[name] = array.shape
        return name

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> str:
        return self.constant(self.rng.normal(mean, scale, shape).astype(np.float32))

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Append a node; returns its result or results."""
        index = len(self.nodes)
        names = [f"n{index}_{op.lower()}" + (f"_{part}" if outputs > 1 else "") for part in range(outputs)]
        node = helper.make_node(op, list(inputs), names, name=f"n{index}", **attributes)
        self.nodes.append(node)
        self._infer(node)
        return names[0] if outputs == 1 else names

    def channels(self, x: str) -> int:
        return self.shapes[x][1]

    def conv(self, x: str, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1, gain: float = 1.4) -> str:
        """A convolution of any number of spatial axes, with a bias, that keeps the variance about the same."""
        spatial = len(self.shapes[x]) - 2
        fan = self.channels(x) // groups * kernel**spatial
        w = self.normal(channels, self.channels(x) // groups, *[kernel] * spatial, scale=gain / fan**0.5)
        b = self.normal(channels, scale=0.2)
        pads = [kernel // 2] * 2 * spatial
        shape = {"kernel_shape": [kernel] * spatial, "strides": [stride] * spatial}
        return self.add("Conv", x, w, b, pads=pads, group=groups, **shape)

    def silu(self, x: str) -> str:
        return self.add("Mul", x, self.add("Sigmoid", x))

    def dense(self, x: str, size: int) -> str:
        fan = self.shapes[x][-1]
        product = self.add("MatMul", x, self.normal(fan, size, scale=1 / fan**0.5))
        return self.add("Add", product, self.normal(size, scale=0.2))

    def reshape(self, x: str, *shape: int) -> str:
        return self.add("Reshape", x, self.constant(np.asarray(shape, np.int64)))

    def permute(self, x: str, *order: int) -> str:
        return self.add("Transpose", x, perm=list(order))

    def model(self, *outputs: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()],
            [helper.make_tensor_value_info(n, self.types[n], self.shapes[n]) for n in outputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def samples(self, count: int, seed: int = 1000) -> list[dict[str, Array]]:
        rng = np.random.default_rng(seed)
        return [
            {name: rng.normal(size=shape).astype(np.float32) for name, shape in self.inputs.items()}
            for _ in range(count)
        ]

    def _infer(self, node: onnx.NodeProto) -> None:
        """Shapes of one node's results, from what is known of its operands."""
        known = {name: self.shapes[name] for name in node.input if name in self.shapes}
        used = [c for c in self.constants if c.name in node.input]
        types = [
            helper.make_tensor_value_info(name, self.types.get(name, TensorProto.FLOAT), shape)
            for name, shape in known.items()
            if name not in {c.name for c in used}
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
        graph = helper.make_graph([node], "one", types, results, used)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
        for value in inferred.graph.output:
            self.types[value.name] = value.type.tensor_type.elem_type
            self.shapes[value.name] = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


@dataclass(frozen=True)
class Comparison:
    """INT8 against float.

    Args:
        cosines: smallest over the samples, by output.
        model: the INT8 model.
    """

    cosines: dict[str, float]
    model: Any

    @property
    def worst(self) -> float:
        return min(self.cosines.values())


def compare(net: OnnxNet, outputs: Sequence[str], folder: Path, chip: str = "bm1686", samples: int = 16) -> Comparison:
    """Convert in float and in INT8, and run both on some of the calibration samples.

    Random networks amplify outliers: on other samples the clipping of values that calibration has not seen would
    dominate the difference.
    """
    path = Path(folder) / "net.onnx"
    path.write_bytes(net.model(*outputs).SerializeToString())
    model = tc.convert(path, chip=chip, quantize="int8", calibration=net.samples(samples))
    reference = tc.convert(path, chip=chip)
    cosines = {}
    with tc.Session(model, threads=1) as integer, tc.Session(reference, threads=1) as real:
        for feeds in net.samples(4):
            wanted, found = real.run(feeds), integer.run(feeds)
            for name in outputs:
                value = cosine(wanted[name], found[name])
                cosines[name] = min(cosines.get(name, 1.0), value)
    return Comparison(cosines, model)


def cosine(a: Array, b: Array) -> float:
    """Cosine similarity; 1 of two tensors of zeros."""
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    if not a.size or (not a.any() and not b.any()):
        return 1.0
    return float(a @ b / max(np.sqrt((a @ a) * (b @ b)), 1e-300))
