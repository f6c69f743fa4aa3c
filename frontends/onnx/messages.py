"""The messages of ONNX files: the generated classes of the ``onnx`` package, without the rest of that package.

The package loads its checker, its shape inference and its operator schemas when it is imported, which takes longer than
converting a small network. If it is loaded in the process, before or after, the classes are the same ones: protobuf
keeps one class for every message.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import AttributeProto as AttributeProto
    from onnx import FunctionProto as FunctionProto
    from onnx import GraphProto as GraphProto
    from onnx import ModelProto as ModelProto
    from onnx import NodeProto as NodeProto
    from onnx import OperatorSetIdProto as OperatorSetIdProto
    from onnx import SparseTensorProto as SparseTensorProto
    from onnx import TensorProto as TensorProto
    from onnx import ValueInfoProto as ValueInfoProto
else:

    def _generated() -> ModuleType:
        """The generated module by itself; the whole package where that has another shape."""
        package = None if "onnx" in sys.modules else importlib.util.find_spec("onnx")
        folders = None if package is None else package.submodule_search_locations
        spec = None if folders is None else PathFinder.find_spec("onnx.onnx_ml_pb2", list(folders))
        if spec is None or spec.loader is None:
            return importlib.import_module("onnx")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    _messages = _generated()
    AttributeProto = _messages.AttributeProto
    FunctionProto = _messages.FunctionProto
    GraphProto = _messages.GraphProto
    ModelProto = _messages.ModelProto
    NodeProto = _messages.NodeProto
    OperatorSetIdProto = _messages.OperatorSetIdProto
    SparseTensorProto = _messages.SparseTensorProto
    TensorProto = _messages.TensorProto
    ValueInfoProto = _messages.ValueInfoProto
