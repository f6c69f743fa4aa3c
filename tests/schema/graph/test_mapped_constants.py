"""Constants in large mapped files: aligned copies can be freed and read again."""

import os
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.graph.mapped_constants import release_constants
from tpuconvert.schema.system import mapped_pages
from tpuconvert.schema.system.mapped_pages import map_file
from tpuconvert.schema.types import Array

COUNT = 1 << 19


def unaligned_view(path: Path, monkeypatch: pytest.MonkeyPatch) -> Array:
    """Return FLOAT32 at byte 1 of a file, as in an ONNX file."""
    monkeypatch.setattr(mapped_pages, "COPIED_BYTES", 0)
    monkeypatch.setattr(mapped_pages, "STAYING_MAPPED", 1 << 20)
    path.write_bytes(b"\0" + np.arange(COUNT, dtype=np.float32).tobytes())
    with path.open("rb") as file:
        return np.ndarray((COUNT,), np.float32, np.frombuffer(map_file(file.fileno(), path), np.uint8), 1)


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="files are not mapped in this way")
def test_an_aligned_copy_is_freed_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = unaligned_view(tmp_path / "weights", monkeypatch)
    graph = Graph("constant")
    value = graph.constant(view, "w")
    graph.output(value)
    twin = copy_graph(graph).find("w")
    assert twin is not None
    assert twin.data is value.data is view
    copied = value.array
    assert copied.flags.aligned
    assert value.data is copied
    release_constants(graph)
    assert value.data is view
    np.testing.assert_array_equal(value.array, np.arange(COUNT))


def test_a_constant_in_memory_is_kept() -> None:
    graph = Graph("constant")
    value = graph.constant(np.arange(4, dtype=np.float32), "w")
    graph.output(value)
    before = value.array
    release_constants(graph)
    assert value.array is before
