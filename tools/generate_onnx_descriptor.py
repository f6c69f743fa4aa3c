"""Makes schema/onnx_descriptor.desc from the installed ``onnx`` package: install the newest one first.

    python tools/generate_onnx_descriptor.py            write the file
    python tools/generate_onnx_descriptor.py --check    only say whether it is up to date (exit code 1 when it is not)

The result is a serialized FileDescriptorProto: the messages of onnx-ml.proto, in a package of our own, so that they
never meet those of the onnx package in one process. Files do not hold the names of packages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from generated_file import write_or_check
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from onnx import onnx_ml_pb2

ROOT = Path(__file__).resolve().parents[1]
DESCRIPTOR = ROOT / "schema" / "onnx_descriptor.desc"
NAME, PACKAGE = "tpuconvert/onnx.proto", "tpuconvert.onnx"


def descriptor() -> bytes:
    """The content of the file for the installed package."""
    file = FileDescriptorProto.FromString(onnx_ml_pb2.DESCRIPTOR.serialized_pb)
    _rename(file.message_type, f".{file.package}.")
    file.name, file.package = NAME, PACKAGE
    return file.SerializeToString(deterministic=True)


def _rename(messages: Iterable[DescriptorProto], prefix: str) -> None:
    for message in messages:
        for field in message.field:
            if field.type_name.startswith(prefix):
                field.type_name = f".{PACKAGE}.{field.type_name.removeprefix(prefix)}"
        _rename(message.nested_type, prefix)


def main() -> int:
    """Write or check the descriptor file."""
    description = (__doc__ or "").splitlines()[0]
    return write_or_check(DESCRIPTOR, descriptor, tool=Path(__file__).name, description=description)


if __name__ == "__main__":
    sys.exit(main())
