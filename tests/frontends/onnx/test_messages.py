"""Our description of ONNX's messages against that of the installed package."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tpuconvert.frontends.onnx import messages


def _all(kinds):
    for kind in kinds:
        yield kind
        yield from _all(kind.nested_types)


def _described(field):
    inner = field.message_type or field.enum_type
    return field.number, field.type, inner and inner.name


def test_has_every_field_of_the_installed_package():
    theirs = _all(onnx.ModelProto.DESCRIPTOR.file.message_types_by_name.values())
    ours = {kind.full_name.removeprefix("tpuconvert."): kind for kind in _all(_own_kinds())}
    for kind in theirs:
        mine = ours[kind.full_name].fields_by_name
        for field in kind.fields:
            assert _described(mine[field.name]) == _described(field), "run tools/generate_onnx_descriptor.py"
        for enum in kind.enum_types:
            for value in enum.values:
                assert ours[kind.full_name].enum_values_by_name[value.name].number == value.number


def _own_kinds():
    return messages.ModelProto.DESCRIPTOR.file.message_types_by_name.values()


def test_same_messages_without_the_compiled_part_of_protobuf(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (repository / "examples" / "digits" / "digits.onnx").read_bytes()
    usual = messages.ModelProto.FromString(content)
    monkeypatch.setitem(sys.modules, "google.protobuf.pyext.cpp_message", None)
    other = messages.message_classes()["ModelProto"].FromString(content)
    assert type(other) is not type(usual)
    assert other.SerializeToString(deterministic=True) == usual.SerializeToString(deterministic=True)
    assert other.graph.node[0].op_type == usual.graph.node[0].op_type != ""


@pytest.mark.parametrize("order", [("onnx", "tpuconvert.frontends.onnx.messages"), ("", "onnx")])
def test_lives_beside_the_package(order: tuple[str, str], repository: Path) -> None:
    path = repository / "examples" / "digits" / "digits.onnx"
    code = (
        "import importlib, sys\n"
        f"for name in filter(None, {order!r}): importlib.import_module(name)\n"
        "import onnx\n"
        "from tpuconvert.frontends.onnx.messages import ModelProto\n"
        f"content = open({str(path)!r}, 'rb').read()\n"
        "assert ModelProto.FromString(content).graph.node[0].op_type\n"
        "assert onnx.load_from_string(content).graph.node[0].op_type\n"
        "assert ModelProto is not onnx.ModelProto\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_loads_little() -> None:
    code = (
        "import sys, tpuconvert.frontends.onnx.messages\n"
        "assert 'onnx' not in sys.modules and 'google.protobuf.text_format' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
