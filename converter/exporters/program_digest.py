"""Digest of a graph, by which an export or a dump is matched with its model."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.system.content_digest import Digest


def program_digest(graph: Graph) -> str:
    """Return the digest of the operators, types, scales and constants of a graph, as hexadecimal text.

    Source names and notes are not included, because they do not change results.
    """
    digest = Digest()
    numbers: dict[Value, int] = {}

    def describe(value: Value | None) -> str:
        if value is None:
            return "-"
        if value not in numbers:
            numbers[value] = len(numbers)
            if value.is_constant:
                digest.update(np.ascontiguousarray(value.array).tobytes())
        return f"{numbers[value]}:{value.type}:{value.quant}"

    for value in graph.inputs:
        digest.update(f"input {value.name} {describe(value)}\n".encode())
    for node in graph.nodes:
        operands = ", ".join(map(describe, node.inputs))
        results = ", ".join(map(describe, node.outputs))
        digest.update(f"{node.op!r} {operands} -> {results}\n".encode())
    for value in graph.outputs:
        digest.update(f"output {value.name} {describe(value)}\n".encode())
    return digest.hexdigest()
