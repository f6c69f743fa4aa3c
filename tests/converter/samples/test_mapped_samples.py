"""Samples of a memory-mapped file are not kept in memory."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.paired import paired
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import F32, TensorType

ELEMENTS = 48 << 18
"""Number of elements of all samples, 48 MiB."""


def resident(path: Path) -> int:
    """Resident bytes of the mappings of a file in this process."""
    pattern = rf"^\S+ \S+ \S+ \S+ \S+ +{re.escape(str(path))}\n(?:.*\n)*?Rss: +(\d+) kB"
    found = re.findall(pattern, smaps(), re.MULTILINE)
    return 1024 * sum(map(int, found))


def smaps() -> str:
    return Path("/proc/self/smaps").read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs the mappings of Linux")
@pytest.mark.parametrize(
    ("use", "size"),
    paired(["__iter__", "check_numbers", "digest", "sorted_by_content", "with_contents"], [1 << 11, 1 << 18]),
)
def test_few_samples_are_resident(use, size, tmp_path):
    graph = Graph()
    graph.output(graph.input("x", TensorType(F32, (1, size))))
    path = tmp_path / "samples.npy"
    np.save(path, np.arange(ELEMENTS, dtype=np.float32).reshape(-1, size))
    feeds = load_feeds(path, graph.input_ports)
    if use == "__iter__":
        order = np.random.default_rng(0).permutation(len(feeds))
        feeds = feeds._selected(order.tolist())
        kept = [feed["x"] for feed in feeds if feed["x"].sum() >= 0]
    else:
        order, kept = np.zeros(0, int), []
        getattr(feeds, use)()
    assert len(feeds) == ELEMENTS // size and str(path) in smaps()
    assert resident(path) <= 12 << 20  # 4 MiB, and large pages at both ends
    # Feeds are copies, so that those kept for the refinement need no pages of the file.
    assert [array[0, 0] for array in kept] == [np.float32(index * size) for index in order]
    assert resident(path) <= 12 << 20
