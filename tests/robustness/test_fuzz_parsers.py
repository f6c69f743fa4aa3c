"""Cases of the verifier and the header parsers that other tests miss; ``fuzz_coverage.py`` measures all of them."""

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.support.networks.tpum_models import of_version
from tpuconvert.frontends.caffe.file import wire
from tpuconvert.frontends.sniffing import HEAD_BYTES, SourceFile, identify
from tpuconvert.frontends.tflite.file.flexbuffer import read_numbers
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file import constant_file, file_reader
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.file.file_reader import OpenModel, open_model, read_model
from tpuconvert.schema.file.file_writer import write_model
from tpuconvert.schema.file.flatbuffer_schema import Schema
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.types import F32, Chip, TensorType


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"[" * HEAD_BYTES, "text"),  # deeper than a JSON parser can go
        (b"[1, 2", "text"),
        (b"[1, 2]", "json"),
        (b'{"a": [1, ' + b"1, " * 2000, "json"),  # cut off by the length of the head
        ("ä".encode()[:1].rjust(HEAD_BYTES, b"x"), "text"),  # a character that is cut off
        (b"\xe4 in Latin-1", None),
        (b"# a comment\n\n", "text"),
        (b"\x08\x07\x01\x07" + bytes(100), None),  # the first byte of ONNX, and no field after the version
        (b"\x12\x07pytorch\x3a" + bytes(100), None),
    ],
)
def test_formats_of_unusual_heads(head: bytes, kind: str | None) -> None:
    found = identify(head[:HEAD_BYTES], len(head), "model")
    assert (found and found.id) == kind


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for read in (lambda path: SourceFile(path).head, read_model):
        with pytest.raises(UsageError, match="cannot be read"):
            read(tmp_path / ("x" * 300))
        with pytest.raises(UsageError, match="no such file"):
            read(tmp_path / "absent")
        with pytest.raises(UsageError, match="folder"):
            read(tmp_path)


def test_file_that_cannot_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.tpum").write_bytes(b"TPUM")

    def refuse(*_: object) -> None:
        raise OverflowError("too large for the address space")

    monkeypatch.setattr("tpuconvert.schema.file.file_reader.map_file", refuse)
    with pytest.raises(UsageError, match="too large for the address space"):
        read_model(tmp_path / "m.tpum")


def write(path: Path) -> Path:
    """Write a model with one constant."""
    graph = Graph("sum")
    x = graph.input("x", TensorType(F32, (2,)))
    graph.output(graph.add(Add(), x, graph.constant(np.ones(2, np.float32), "w"), name="y"))
    write_model(path, FileModel(graph, Chip.BM1686, "1"))
    return path


def data_of(model: OpenModel) -> list[float]:
    (constant,) = [value for value in model.model.graph.values if value.is_constant]
    model.drop(constant)  # a mapped file, or one below 64 KiB: the data stay readable
    found: list[float] = constant.array.tolist()
    model.close()
    return found


@pytest.mark.parametrize("name", ["IS_SUPPORTED", "COPIED_BYTES"])
def test_open_models_that_are_mapped(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems without reads at an offset, and large files."""
    monkeypatch.setattr(constant_file if name == "IS_SUPPORTED" else file_reader, name, 0)
    found = open_model(write(tmp_path / "m.tpum"))
    assert found.file is None and data_of(found) == [1, 1]


def test_open_models_of_an_older_format(tmp_path: Path) -> None:
    """Their metadata come first, so that the digest cannot be computed while the constants are copied."""
    path = write(tmp_path / "m.tpum")
    path.write_bytes(of_version(2, path.read_bytes()))
    found = open_model(path)
    assert found.file is None and data_of(found) == [1, 1]


def test_open_models_of_other_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a folder or a device"):
        open_model(tmp_path)
    (tmp_path / "m.tpum").write_bytes(b"<html>")
    with pytest.raises(CorruptInputError, match="this is a web page"):
        open_model(tmp_path / "m.tpum")


def test_schema_with_a_union_of_no_tables() -> None:
    with pytest.raises(ValueError, match="union U: 'Absent' is not a table"):
        Schema({"T": ""}, {"U": ["Absent"]})


def test_flexbuffer_name_without_an_end() -> None:
    """A map of one entry whose name has no zero byte in reach."""
    name = b"n" * 300
    keys = struct.pack("<H", 302)  # the offset of the name, one entry
    body = name + bytes(2) + keys
    start_of_keys = len(name) + 2
    body += struct.pack("<H", len(body) - start_of_keys) + struct.pack("<HH", 2, 1)
    start = len(body)
    body += struct.pack("<H", 5) + bytes([1 << 2])
    body += struct.pack("B", len(body) - start)
    with pytest.raises(ValueError, match="a name without an end"):
        read_numbers(body + bytes([9 << 2 | 1, 1]))


VARINTS = [0, 1, 127, 128, 300, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


def varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def fields(content: bytes) -> list[tuple[int, int, int, bytes]]:
    return [(number, kind, value, bytes(data)) for number, kind, value, data in wire.read_fields(memoryview(content))]


@pytest.mark.parametrize("value", VARINTS)
def test_wire_numbers(value: int) -> None:
    assert wire.read_varint(memoryview(varint(value)), 0) == (value, len(varint(value)))
    signed = value - (1 << 64) if value >> 63 else value
    assert wire.read_varints(memoryview(varint(value) * 2)) == [signed, signed]
    assert fields(b"\x08" + varint(value)) == [(1, wire.VARINT, value, b"")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80", "the data end inside a number at byte 1"),
        (b"\xff" * 10, "a number of more than 64 bits"),
        (b"\xff" * 9 + b"\x7f", "a number of more than 64 bits"),
        (b"\x00\x00", "field number 0"),
        (varint(1 << 32) + b"\x00", "field number 536870912"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\x05abc", "2 bytes are missing at the end of field 1"),
        (b"\x09" + bytes(7), "1 bytes are missing"),
        (b"\x0d" + bytes(3), "the data end inside field 1"),
        (varint(100 << 3 | wire.FIXED32) + bytes(3), "1 bytes are missing at the end of field 100"),
    ],
)
def test_wire_errors(content: bytes, message: str) -> None:
    with pytest.raises(wire.WireError, match=message):
        fields(content)


def test_wire_fields_of_fixed_size() -> None:
    one = b"\x0d" + bytes([1, 2, 3, 4])
    assert fields(one) == [(1, wire.BYTES, 0, bytes([1, 2, 3, 4]))]
    assert fields(b"\x09" + bytes(range(8))) == [(1, wire.FIXED64, 0, bytes(range(8)))]
    assert fields(varint(100 << 3 | wire.FIXED32) + b"abcd") == [(100, wire.FIXED32, 0, b"abcd")]
    for count in (15, 16, 17, 64, 65, 1000):
        assert fields(one * count) == [(1, wire.BYTES, 0, bytes([1, 2, 3, 4]) * count)]
        assert fields(one * count + b"\x08\x01") == [*fields(one * count), (1, wire.VARINT, 1, b"")]
        assert fields(one * count + b"\x15wxyz") == [*fields(one * count), (2, wire.BYTES, 0, b"wxyz")]


def test_wire_arrays() -> None:
    pieces = [memoryview(np.arange(3, dtype="<f4").tobytes()), memoryview(b""), memoryview(np.float32(9).tobytes())]
    assert wire.read_array(pieces, "<f4").tolist() == [0, 1, 2, 9]
    assert wire.read_array([], "<f4").shape == (0,)
    with pytest.raises(wire.WireError, match="3 bytes do not hold elements of 4 bytes"):
        wire.read_array([memoryview(b"abc")], "<f4")
