"""Caffe's protobuf message types, loaded from the descriptor set in this package.

They are in a separate descriptor pool, because the process may also load another definition of the same types.
"""

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "tpuconvert.caffe"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    content = resources.files(__package__).joinpath("caffe_descriptor.desc").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(content)
    pool.AddSerializedFile(files.file[0].SerializeToString())  # the second file only names the source
    return pool


@cache
def message_class(name: str) -> Any:
    """Protobuf class of a message type, such as ``NetParameter``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def new_message(name: str) -> Any:
    """Create an empty message of a type, such as ``LayerParameter``."""
    return message_class(name)()
