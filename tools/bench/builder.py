"""A writer of ONNX networks that runs every node when it is added.

The builder carries sample activations along. A BatchNormalization therefore gets the statistics of its actual
input, and a network of any depth has activations in a sane range, without a second pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tpuconvert.schema.types import Array

IR_VERSION = 8


@dataclass(frozen=True)
class Tensor:
    """A value of the network: its name, and its data for the samples."""

    name: str
    samples: Array

    @property
    def channels(self) -> int:
        """Extent of the second axis."""
        return int(self.samples.shape[1])


class NetworkBuilder:
    """Adds nodes one by one, with weights from a seed.

    Args:
        name: of the network.
        opset: of ONNX.
        seed: of all weights.
    """

    def __init__(self, name: str, opset: int, seed: int) -> None:
        self.name = name
        self.opset = opset
        self.random = np.random.default_rng(seed)
        self._inputs: list[Tensor] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def input(self, name: str, samples: Array) -> Tensor:
        """Declare the network's input; ``samples`` may be a larger batch than the 1 of the network."""
        self._inputs.append(Tensor(name, samples))
        return self._inputs[-1]

    def constant(self, array: Array, label: str) -> Tensor:
        """Add a constant."""
        name = f"{label}.{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return Tensor(name, array)

    def add(self, kind: str, *operands: Tensor | None, **attributes: Any) -> Tensor:
        """Add a node with one result."""
        return self.add_all(kind, 1, *operands, **attributes)[0]

    def add_all(self, kind: str, results: int, *operands: Tensor | None, **attributes: Any) -> list[Tensor]:
        """Add a node with several results, and run it on the samples."""
        label = f"{kind.lower()}_{len(self._nodes)}"
        names = [label if results == 1 else f"{label}.{index}" for index in range(results)]
        node = helper.make_node(kind, [x.name if x else "" for x in operands], names, name=label, **attributes)
        self._nodes.append(node)
        present = {x.name: x for x in operands if x}
        constants = [self._constants[name] for name in present if name in self._constants]
        variables = {name: x.samples for name, x in present.items() if name not in self._constants}
        arrays = self._run(node, variables, constants)
        return [Tensor(name, array) for name, array in zip(names, arrays, strict=True)]

    def save(self, path: Path, *outputs: Tensor) -> None:
        """Write the network with batch 1."""
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [self._declare(x) for x in self._inputs],
            [self._declare(x) for x in outputs],
            list(self._constants.values()),
        )
        onnx.save(self._model(graph), path)

    def _declare(self, x: Tensor) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(x.name, TensorProto.FLOAT, (1, *x.samples.shape[1:]))

    def _model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = IR_VERSION
        return model

    def _run(self, node: onnx.NodeProto, variables: dict[str, Array], constants: list[onnx.TensorProto]) -> list[Array]:
        import onnxruntime

        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in variables.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        model = self._model(helper.make_graph([node], "node", inputs, outputs, constants))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found: list[Array] = session.run(list(node.output), variables)
        return found
