"""ONNX Runtime without graph optimization: whole models, and single nodes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession | None:
    """A session on the CPU, or None if ONNX Runtime refuses the model. Its exceptions have no common base class."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def run_session(
    session: onnxruntime.InferenceSession, names: Sequence[str], feeds: Mapping[str, Any]
) -> list[Any] | None:
    """Results, or None if ONNX Runtime refuses the feeds."""
    try:
        return list(session.run(list(names), dict(feeds)))
    except Exception:
        return None


Operand = tuple[str, np.dtype[Any], Sequence[int | None]]
"""Name, type and extents of a tensor."""


class NodeRunner:
    """One node as a model of its own, whose constants are initializers."""

    def __init__(self, session: onnxruntime.InferenceSession, names: Sequence[str]) -> None:
        self.session = session
        self.names = names

    @classmethod
    def of(
        cls,
        node: NodeProto,
        computed: Sequence[Operand],
        constants: Mapping[str, Any],
        opset: int,
    ) -> NodeRunner | None:
        """A runner, or None if ONNX Runtime refuses the node. ``computed``: names, types, extents."""
        model = model_of_nodes([node], computed, constants, [name for name in node.output if name], opset)
        session = session_of(model)
        return None if session is None else cls(session, [name for name in node.output if name])

    def run(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        return run_session(self.session, self.names, feeds)


def model_of_nodes(
    nodes: Sequence[NodeProto],
    computed: Sequence[Operand],
    constants: Mapping[str, Any],
    outputs: Sequence[str],
    opset: int,
) -> onnx.ModelProto:
    """A model of some nodes whose outputs have no declared type and inputs with some declared extents."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), extents)
        for name, dtype, extents in computed
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "nodes", inputs, results, tensors)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10 if opset > 18 else 8)
