"""Golden vectors: inputs, and digests of every integer tensor, stored in a model file.

They show on another machine or another engine that the model still computes the same integers.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.array_files import number_type
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array

KEY = "golden"
"""Key in the metadata of a model file."""

MOST_BYTES = 1 << 24
"""Largest size of all stored inputs, before compression."""

Feed = Mapping[str, Array]


def golden_vectors(graph: Graph, feeds: Iterable[Feed] | None, count: int) -> dict[str, Any]:
    """Return the golden vectors of a graph, as plain values for the metadata.

    Args:
        graph: the graph.
        feeds: samples, of which the first ``count`` are used; random numbers if None.
        count: number of samples.

    Raises:
        UsageError: fewer samples than requested, or inputs that are too large to be stored.
    """
    samples = random_feeds(graph.input_ports, count) if feeds is None else list(itertools.islice(feeds, count))
    if len(samples) < count:
        raise UsageError(
            f"{count} golden vectors were requested, but there are {len(samples)} samples",
            hint="ask for at most that many, or give more samples",
        )
    size = sum(np.asarray(array).nbytes for feed in samples for array in feed.values())
    if size > MOST_BYTES:
        raise UsageError(
            f"the inputs of {count} golden vectors have {size} bytes, expected at most {MOST_BYTES}",
            hint="store fewer with --golden",
        )
    return {
        "inputs": [{name: _encode(np.asarray(array)) for name, array in feed.items()} for feed in samples],
        "digests": tensor_digests(graph, samples),
    }


def golden_feeds(metadata: Mapping[str, Any]) -> list[dict[str, Array]]:
    """Return the inputs of the golden vectors of a model file; none if it has no golden vectors.

    Raises:
        CorruptInputError: the stored arrays are damaged.
    """
    if KEY not in metadata:
        return []
    left = MOST_BYTES
    feeds: list[dict[str, Array]] = []
    try:
        for feed in metadata[KEY]["inputs"]:
            feeds.append({})
            for name, entry in feed.items():
                feeds[-1][name] = _decode(entry, left)
                left -= feeds[-1][name].nbytes
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, zlib.error) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CorruptInputError(f"the golden vectors cannot be read: {reason}") from error
    return feeds


def golden_digests(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the digests of the golden vectors of a model file, by tensor.

    Raises:
        CorruptInputError: there are none.
    """
    vectors = metadata.get(KEY)
    digests = vectors.get("digests") if isinstance(vectors, Mapping) else None
    if not isinstance(digests, Mapping):
        raise CorruptInputError("the golden vectors have no digests", hint="convert again with --golden")
    return digests


def changed_tensors(graph: Graph, metadata: Mapping[str, Any]) -> list[str]:
    """Run the golden inputs on this machine. Return the tensors whose integers are not the stored ones."""
    stored = golden_digests(metadata)
    digests = tensor_digests(graph, golden_feeds(metadata))
    return [name for name in {**stored, **digests} if stored.get(name) != digests.get(name)]


def tensor_digests(graph: Graph, feeds: Iterable[Feed]) -> dict[str, list[str]]:
    """Return one digest per sample for every integer tensor, in execution order."""
    digests: dict[str, list[str]] = {}

    def observe(value: Value, array: Array) -> None:
        if array.dtype.kind in "iu":
            digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
            digests.setdefault(value.name, []).append(digest[:32])

    with Session(graph, observed=True) as session:
        for feed in feeds:
            session.run(feed, observe=observe)
    return digests


def _encode(array: Array) -> dict[str, Any]:
    data = np.ascontiguousarray(array)
    packed = base64.b64encode(zlib.compress(data.tobytes(), 9)).decode("ascii")
    return {"dtype": data.dtype.name, "shape": list(data.shape), "data": packed}


def _decode(entry: Mapping[str, Any], max_bytes: int) -> Array:
    """Return a stored array of at most ``max_bytes`` bytes. A damaged file may expand to much more."""
    dtype, shape = number_type(entry["dtype"]), tuple(entry["shape"])
    data = zlib.decompressobj().decompress(base64.b64decode(entry["data"], validate=True), max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"the inputs have more than {MOST_BYTES} bytes")
    return np.frombuffer(data, dtype).reshape(shape).copy()
