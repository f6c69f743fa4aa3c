"""Caffe's message types, loaded from the descriptor set that ships with the package.

The types are in a separate pool, so that they do not conflict with those of another program in the same process.
"""

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "tpuconvert.caffe"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    content = resources.files("tpuconvert.schema").joinpath("caffe_descriptor.desc").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(content)
    pool.AddSerializedFile(files.file[0].SerializeToString())  # the second entry is the name of the source text
    return pool


@cache
def message_class(name: str) -> Any:
    """The message class of that name, such as ``NetParameter``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def new_message(name: str) -> Any:
    """An empty message of that type."""
    return message_class(name)()
