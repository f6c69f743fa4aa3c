"""Upper bounds for untrusted files: every limit that a frontend checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Upper bounds, compared with sizes computed in Python integers before anything is allocated.

    Units: ``*_bytes`` are bytes, all others are counts.
    """

    max_file_bytes: int = 16 << 30  # a model file or one file of external data
    max_message_bytes: int = (2 << 30) - 1  # protobuf itself cannot hold more in one message
    max_text_bytes: int = 64 << 20  # a text description (prototxt)
    max_constant_bytes: int = 4 << 30  # one constant of the file
    max_folded_bytes: int = 64 << 20  # one tensor made by evaluating a shape-and-constant subgraph
    max_tensor_elements: int = 1 << 40  # one tensor between nodes
    max_nodes: int = 200_000
    max_tensors: int = 400_000
    max_depth: int = 64  # nested messages, subgraphs, functions
    max_rank: int = 8  # the operator set ends here
    max_unrolled_nodes: int = 50_000  # nodes made from loops and recurrent layers of static length
    max_expansion_bytes: int = 1 << 30  # constant matrices made for one lowered operator


DEFAULT_LIMITS = Limits()
