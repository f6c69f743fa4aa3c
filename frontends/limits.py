"""Resource limits that the frontends check, because model files are untrusted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Upper bounds. Sizes are computed as Python integers and checked before memory is allocated.

    Units: ``*_bytes`` are bytes, all others are counts.
    """

    max_file_bytes: int = 16 << 30  # a model file or one file of external data
    max_message_bytes: int = (2 << 30) - 1  # the largest message that protobuf can parse
    max_text_bytes: int = 64 << 20  # a text description (prototxt)
    max_constant_bytes: int = 4 << 30  # one constant of the file
    max_folded_bytes: int = 64 << 20  # one result of an operator that is evaluated during the conversion
    max_tensor_elements: int = 1 << 40  # one tensor between nodes
    max_nodes: int = 200_000
    max_tensors: int = 400_000
    max_depth: int = 64  # nesting of messages, subgraphs or functions
    max_rank: int = 8  # largest rank of the TPU operators
    max_unrolled_nodes: int = 50_000  # nodes from unrolled loops and recurrent layers
    max_loop_iterations: int = 1_000_000  # iterations of a loop that the host executes
    max_expansion_bytes: int = 1 << 30  # constants that the conversion of one operator computes


DEFAULT_LIMITS = Limits()
