"""Files beyond 2 GiB."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash

from tests.support.networks.tpum_models import describe_model, tiny_model
from tpuconvert.schema.file import file_writer
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.file_encoder import encode
from tpuconvert.schema.file.file_format import ALIGNMENT, HEADER_SIZE, FileModel, read_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip

FAR = (1 << 31) + (1 << 20)  # where the constant starts in the weight segment: beyond a signed 32-bit number


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A path on a file system on which a hole takes no space."""
    path = tmp_path / "large.tpum"
    with open(path, "wb") as file:
        file.truncate(FAR)
    blocks = getattr(os.stat(path), "st_blocks", None)
    if blocks is None or blocks * 512 > FAR // 2:
        pytest.skip("this file system has no sparse files")
    return path


@pytest.mark.slow
def test_a_constant_beyond_two_gibibytes(sparse: Path) -> None:
    model = tiny_model(elements=1000)
    tables, blobs = encode(model)
    tables = tables._replace(buffers=(tpum.Buffer(offset=FAR, size=blobs[0].size),))
    metadata = file_writer._pack(tables)
    padding = bytes(-blobs[0].size % ALIGNMENT)
    weights = FAR + blobs[0].size + len(padding)
    start = HEADER_SIZE + weights
    size = start + len(metadata)
    digest = xxhash.xxh3_128()
    zeros = bytes(1 << 20)
    for _ in range(FAR >> 20):
        digest.update(zeros)
    rest = blobs[0].bytes().tobytes() + padding + metadata
    digest.update(rest)
    sizes = (3, 128, size, start, len(metadata), HEADER_SIZE, weights)
    with open(sparse, "wb") as file:
        header = struct.pack("<8sIIQQQQQ8s16s48x", b"TPUM\r\n\x1a\n", *sizes, b"xxh3-128", digest.digest())
        file.write(header)
        file.seek(HEADER_SIZE + FAR)
        file.write(rest)
    assert sparse.stat().st_size == size > 1 << 31
    assert describe_model(read_model(sparse)) == describe_model(model)


def test_the_writer_counts_beyond_four_gibibytes() -> None:
    graph = Graph()
    for index in range(5):  # of different sizes, so that no contents are compared; they take no memory
        graph.output(graph.constant(np.broadcast_to(np.zeros((), np.float32), ((1 << 28) + index,)), "zeros"))
    tables, blobs = encode(FileModel(graph, Chip.BM1686, "1"))
    step = 1 << 30
    assert [buffer.offset for buffer in tables.buffers] == [0, step, 2 * step + 64, 3 * step + 128, 4 * step + 192]
    assert [buffer.size for buffer in tables.buffers] == [blob.size for blob in blobs]
    assert blobs[-1].size == step + 16
