"""Large mapped files, which are read through a descriptor when their constants are copied."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import xxhash

from tests.support.networks.tpum_models import AllKinds
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file.file_format import FileModel, read_model, write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.system import mapped_pages
from tpuconvert.schema.system.content_digest import CHUNK
from tpuconvert.schema.system.mapped_pages import MappedFile, aligned_buffer, file_place, map_file
from tpuconvert.schema.types import F32, Array, Chip, TensorType

SIZE = 3 * CHUNK + 4321
PLACES = [(0, 1), (13, CHUNK), (64, CHUNK - 5), (CHUNK - 1, 2 * CHUNK + 3), (4096, 0), (SIZE - 7, 7), (5, SIZE - 5)]
"""Offset and size of constants: across the pieces in which a file is written, at its ends, of no bytes."""

needs_preadv = pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system cannot read at an offset of a file")


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """The bytes of ``tmp_path/source.bin``."""
    data = np.random.default_rng(7).integers(0, 256, SIZE, np.uint8).tobytes()
    (tmp_path / "source.bin").write_bytes(data)
    return data


def map_array(path: Path) -> Array:
    with path.open("rb") as file:
        return np.frombuffer(map_file(file.fileno(), path), np.uint8)


def model_of(data: Array) -> FileModel:
    graph = Graph("parts")
    x = graph.input("x", TensorType(F32, (1,)))
    for number, (start, size) in enumerate(PLACES):
        graph.output(graph.add(AllKinds(), x, graph.constant(data[start : start + size], f"w{number}")))
    graph.output(graph.constant(data[: 1 << 20].reshape(1 << 10, 1 << 10).T, "not contiguous"))
    return FileModel(graph, Chip.BM1684, "0")


@needs_preadv
def test_constants_of_a_large_file_are_written_as_those_in_memory(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path / "memory.tpum", model_of(np.frombuffer(content, np.uint8)))
    wanted = (tmp_path / "memory.tpum").read_bytes()
    write_model(tmp_path / "small.tpum", model_of(map_array(tmp_path / "source.bin")))
    assert (tmp_path / "small.tpum").read_bytes() == wanted
    monkeypatch.setattr(mapped_pages, "COPIED_BYTES", 1)
    data, reads, read = map_array(tmp_path / "source.bin"), [], MappedFile.read_into

    def counted(self: MappedFile, start: int, part: memoryview) -> None:
        reads.append((start, len(part)))
        read(self, start, part)

    monkeypatch.setattr(MappedFile, "read_into", counted)
    write_model(tmp_path / "large.tpum", model_of(data))
    assert (tmp_path / "large.tpum").read_bytes() == wanted
    assert sum(size for _, size in reads) == sum(size for _, size in PLACES)
    reads.clear()
    write_model(tmp_path / "again.tpum", read_model(tmp_path / "large.tpum"))
    assert (tmp_path / "again.tpum").read_bytes() == wanted and reads
    write_model(tmp_path / "again.tpum", read_model(tmp_path / "again.tpum"))  # over the file that is read
    assert (tmp_path / "again.tpum").read_bytes() == wanted


def test_finds_offset_of_view(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_place(np.frombuffer(content, np.uint8)) is None
    assert file_place(map_array(tmp_path / "source.bin")) is None, "a small file"
    monkeypatch.setattr(mapped_pages, "COPIED_BYTES", 1)
    data = map_array(tmp_path / "source.bin")
    for view in (data[100:], data.data[100:], data[100:500].view(np.float32).reshape(10, 10)):
        location = file_place(view)
        assert location is not None and location[1] == 100


@needs_preadv
def test_reports_file_truncated_while_read(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_pages, "COPIED_BYTES", 1)
    location = file_place(map_array(tmp_path / "source.bin"))
    assert location is not None
    os.truncate(tmp_path / "source.bin", 2 * CHUNK)
    part = aligned_buffer(CHUNK)
    location[0].read_into(CHUNK, part)
    assert part == content[CHUNK : 2 * CHUNK]
    assert location[0].is_at(tmp_path / "source.bin") and not location[0].is_at(tmp_path / "absent.bin")
    with pytest.raises(UsageError, match=r"source\.bin: it was truncated"):
        location[0].read_into(CHUNK + 1, part)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list open files")
def test_no_file_stays_open(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_pages, "COPIED_BYTES", 1)
    assert content

    def count_open_files() -> int:
        gc.collect()
        named = (os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
        return sum(name == str(tmp_path / "source.bin") for name in named)

    data = map_array(tmp_path / "source.bin")
    assert count_open_files() == 2  # one of the mapping itself
    del data
    assert count_open_files() == 0
    with (tmp_path / "source.bin").open("wb") as file, pytest.raises(ValueError, match="empty"):
        MappedFile(file.fileno(), "source.bin")
    assert count_open_files() == 0


ORDERS = {
    "as it lies": lambda locations: locations,
    "backwards": lambda locations: locations[::-1],
    "overlapping": lambda locations: [
        (max(0, start - 700), min(size + 900, SIZE - start)) for start, size in locations
    ],
    "with gaps": lambda locations: locations[::3],
    "the end": lambda locations: locations[-1:],
    "not at all": lambda locations: [],
}


@needs_preadv
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("step", [CHUNK, 70_000], ids=["pieces", "parts"])
def test_the_digest_is_that_of_the_whole_file(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch, order: str, step: int
) -> None:
    monkeypatch.setattr(mapped_pages, "COPIED_BYTES", 1)
    location = file_place(map_array(tmp_path / "source.bin"))
    assert location is not None
    file, buffer = location[0], aligned_buffer(2 * CHUNK)
    file.read_into(0, buffer[:5000])  # before the digest is requested
    digest = file.digest_while_reading()
    for start, size in ORDERS[order]([(start, min(step, SIZE - start)) for start in range(0, SIZE, step)]):
        file.read_into(start, buffer[:size])
        assert buffer[:size] == content[start : start + size]
    assert digest() == digest() == xxhash.xxh3_128(content).hexdigest()
    assert file.digest_while_reading()() == digest()


@needs_preadv
def test_reads_ordered_parts_once(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_pages, "COPIED_BYTES", 1)
    location = file_place(map_array(tmp_path / "source.bin"))
    assert location is not None
    digest = location[0].digest_while_reading()
    buffer, reads, preadv = aligned_buffer(CHUNK), [], os.preadv

    def counted(descriptor: int, parts: list[memoryview], start: int) -> int:
        reads.append(len(parts[0]))
        return preadv(descriptor, parts, start)

    monkeypatch.setattr(os, "preadv", counted)
    for start in range(1000, SIZE, CHUNK + 1000):  # with the bytes between the constants
        location[0].read_into(start, buffer[: SIZE - start])
    assert digest() == xxhash.xxh3_128(content).hexdigest()
    assert sum(reads) == SIZE
