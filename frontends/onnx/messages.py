"""The messages of ONNX files, made of a description that ships with the package.

The ``onnx`` package loads its checker, its shape inference and its operator schemas when it is imported, which takes
longer than converting a small network. These messages are not those of that package, and do not meet them: what is to
become one of the others goes by way of its bytes.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from tpuconvert import schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from onnx import AttributeProto as AttributeProto
    from onnx import FunctionProto as FunctionProto
    from onnx import GraphProto as GraphProto
    from onnx import ModelProto as ModelProto
    from onnx import NodeProto as NodeProto
    from onnx import OperatorSetIdProto as OperatorSetIdProto
    from onnx import SparseTensorProto as SparseTensorProto
    from onnx import TensorProto as TensorProto
    from onnx import ValueInfoProto as ValueInfoProto

NAME, PACKAGE = "tpuconvert/onnx.proto", "tpuconvert.onnx"
"""What the description calls itself."""


def message_classes() -> dict[str, Any]:
    """The classes of all messages by name."""
    with open(os.path.join(schema.__path__[0], "onnx_descriptor.desc"), "rb") as description:
        content = description.read()
    try:
        metaclass = import_module("google.protobuf.pyext.cpp_message").GeneratedProtocolMessageType
    except ImportError:  # protobuf without its compiled part
        return _by_factory(content)
    from google.protobuf.descriptor import FileDescriptor

    # What generated modules do, without the modules for text and for the variant in Python that they load.
    file = FileDescriptor(NAME, PACKAGE, serialized_pb=content)
    return {name: _class_of(kind, metaclass) for name, kind in file.message_types_by_name.items()}


def _class_of(kind: Descriptor, metaclass: Any) -> Any:
    inner = {name: _class_of(item, metaclass) for name, item in kind.nested_types_by_name.items()}
    return metaclass(kind.name, (Message,), {**inner, "DESCRIPTOR": kind, "__module__": __name__})


def _by_factory(content: bytes) -> dict[str, Any]:
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(content)
    kinds = pool.FindFileByName(NAME).message_types_by_name
    return {name: message_factory.GetMessageClass(kind) for name, kind in kinds.items()}


if not TYPE_CHECKING:
    _classes = message_classes()
    AttributeProto = _classes["AttributeProto"]
    FunctionProto = _classes["FunctionProto"]
    GraphProto = _classes["GraphProto"]
    ModelProto = _classes["ModelProto"]
    NodeProto = _classes["NodeProto"]
    OperatorSetIdProto = _classes["OperatorSetIdProto"]
    SparseTensorProto = _classes["SparseTensorProto"]
    TensorProto = _classes["TensorProto"]
    ValueInfoProto = _classes["ValueInfoProto"]
