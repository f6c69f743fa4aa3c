"""The message classes of the ``onnx`` package, such as ``onnx.ModelProto``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING


def _import_generated_module() -> ModuleType:
    """Import the module of the ``onnx`` package that protoc generated, without the rest of the package.

    ``import onnx`` also loads its native checker, its shape inference and its helpers. This takes 75 ms of CPU time;
    a whole conversion of a small model takes 165 ms. protobuf keeps one class per message type, so that these are the
    classes of the ``onnx`` package too, whether it is imported earlier or later.
    """
    name = "onnx.onnx_ml_pb2"
    package = None if "onnx" in sys.modules else importlib.util.find_spec("onnx")
    spec = None if package is None else PathFinder.find_spec(name, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    _module = _import_generated_module()
    AttributeProto = _module.AttributeProto
    FunctionProto = _module.FunctionProto
    GraphProto = _module.GraphProto
    ModelProto = _module.ModelProto
    NodeProto = _module.NodeProto
    OperatorSetIdProto = _module.OperatorSetIdProto
    SparseTensorProto = _module.SparseTensorProto
    TensorProto = _module.TensorProto
    ValueInfoProto = _module.ValueInfoProto
