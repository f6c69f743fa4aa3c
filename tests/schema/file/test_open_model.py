"""Models that are opened so that their constants can be dropped from memory."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file import constant_file, file_reader
from tpuconvert.schema.file.file_format import MAGIC, FileModel, read_model, write_model
from tpuconvert.schema.file.file_reader import OpenModel, open_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.types import F32, Array, Chip, TensorType

pytestmark = pytest.mark.skipif(not constant_file.IS_SUPPORTED, reason="files cannot be read at an offset here")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a model that adds constants, of which each has a number of elements."""

    def write_constants(*counts: int) -> Path:
        graph = Graph("sum")
        value = graph.input("x", TensorType(F32, (1,)))
        for index, count in enumerate(counts):
            numbers = np.arange(count, dtype=np.float32) + index
            value = graph.add(Add(), value, graph.constant(numbers, f"c{index}"), name=f"y{index}")
        graph.output(graph.add(Add(), value, value, name="y"))
        write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1686, "1"))
        return tmp_path / "m.tpum"

    return write_constants


def test_locations_of_the_large_constants_only(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(1, 64)
    for limit, expected in ((4 * 64, ["c1"]), (4 * 64 + 1, []), (1, ["c0", "c1"])):
        monkeypatch.setattr(constant_file, "PIECE", limit)
        opened = open_model(path)
        assert sorted(value.name for value in opened.buffers) == expected
        opened.close()


def test_size_of_a_file_that_is_mapped(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(64)
    for limit, is_mapped in ((path.stat().st_size, True), (path.stat().st_size + 1, False)):
        monkeypatch.setattr(file_reader, "COPIED_BYTES", limit)
        opened = open_model(path)
        assert (opened.file is None) is is_mapped
        opened.close()


def test_a_model_without_constants(write: Callable[..., Path]) -> None:
    opened = open_model(write())
    assert opened.file is not None and opened.buffers == {}
    opened.close()


def test_constants_of_a_mapped_file_give_their_pages_back(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[Array] = []
    monkeypatch.setattr(file_reader, "forget_pages", forgotten.append)
    path = write(64)
    mapped = OpenModel(read_model(path))
    for value in mapped.model.graph.values:
        mapped.drop(value)
    assert [array.size for array in forgotten] == [64]
    copied = open_model(path)
    small = next(value for value in copied.model.graph.values if value.name == "c0")
    copied.drop(small)
    assert len(forgotten) == 1 and small.array.tolist() == list(range(64))
    copied.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name here")
@pytest.mark.parametrize("read", [open_model, read_model])
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "pipe.tpum"
    os.mkfifo(path)
    errors: list[BaseException] = []

    def read_pipe() -> None:
        try:
            read(path)
        except UsageError as error:
            errors.append(error)

    thread = threading.Thread(target=read_pipe, daemon=True)
    thread.start()
    thread.join(30)
    assert "not a model file" in str(errors[0])


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"", "it is empty"),
        (MAGIC[:4] + b"\n", "its first bytes were changed"),
        (MAGIC[:2], "its first bytes were changed"),
        (MAGIC[:3] + b"x", "this is not a .tpum file"),
        (b"\x1c\0\0\0TFL3", "this is a TFLite model"),
        (b"\x1c\0\0TFL3\0", "this is not a .tpum file"),
        (b"\x1c\0\0\0\0TFL3", "this is not a .tpum file"),
        (b"\x1c\0\0\0TFL2", "this is not a .tpum file"),
        *(
            (b"\x08\x07" + tag, "this looks like an ONNX model")
            for tag in (b"\x12", b"\x1a", b"\x22", b"\x3a", b"\x42")
        ),
        (b"\x08\x12\x07\x07", "this is not a .tpum file"),
        (b"\x08\x07\x07\x12", "this is not a .tpum file"),
        (b"\x09\x07\x12", "this is not a .tpum file"),
        (b"name: 'net'", "this looks like a Caffe prototxt"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html>", "this is a web page"),
        (b"version https://git-lfs.github.com/spec/v1", "this is a Git LFS pointer"),
    ],
)
def test_first_bytes_of_other_files(tmp_path: Path, start: bytes, words: str) -> None:
    path = tmp_path / "m.tpum"
    path.write_bytes(start + b"." * 100 if start not in (b"", MAGIC[:2]) else start)
    for read in (read_model, open_model):
        with pytest.raises(CorruptInputError, match=words):
            read(path)
