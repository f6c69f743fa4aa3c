"""Arena offsets: buffers alive together never overlap, and the arena is near the least that can be."""

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.arena import footprint, lower_bound, place
from tpuconvert.runtime.native.builder.storage import Buffer

SLACK = 64


def random_buffers(seed, count=60, steps=40):
    random = np.random.default_rng(seed)
    buffers = []
    for index in range(count):
        first = int(random.integers(steps))
        last = min(first + int(random.integers(6)), steps - 1)
        buffers.append(Buffer(index, "arena", int(random.integers(1, 100_000)), first, last))
    return buffers


@pytest.mark.parametrize("seed", range(20))
def test_buffers_alive_together_do_not_overlap(seed):
    buffers = random_buffers(seed)
    size = place(buffers, SLACK)
    for a in buffers:
        assert a.arena_offset + a.size + SLACK <= size
        for b in buffers:
            if a is not b and a.first <= b.last and b.first <= a.last:
                apart = a.arena_offset + a.size + SLACK <= b.arena_offset
                assert apart or b.arena_offset + b.size + SLACK <= a.arena_offset


def test_a_chain_needs_two_neighbours():
    sizes = [1000, 5000, 3000, 4000]
    buffers = [Buffer(i, "arena", size, i, i + 1) for i, size in enumerate(sizes)]
    bound = lower_bound(buffers, 5, SLACK)
    assert bound == footprint(5000, SLACK) + footprint(3000, SLACK)
    assert place(buffers, SLACK) == bound
