"""Inputs of a decoder that follow from the numbers of past and new tokens, and from the mask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.types import Array

MASK = "attention_mask"
"""Name of the input [batch, tokens] that is 0 for padding."""

DERIVED = {
    MASK: "1 for every token that no earlier run has masked",
    "position_ids": "the number of unmasked tokens before each new token",
    "cache_position": "the index of each new token",
    "seqlens_k": "the number of tokens, including the new ones, minus 1",
    "total_sequence_length": "the number of tokens, including the new ones",
    "past_sequence_length": "the number of tokens of earlier runs",
}
"""Inputs that a run computes if they are not given, and their values."""


def derive(name: str, mask: Array, past: int, new: int, shape: Sequence[int]) -> Array:
    """Return an input of DERIVED other than the mask, in INT64.

    Args:
        name: its name.
        mask: the mask of all tokens.
        past: number of tokens of earlier runs.
        new: number of new tokens.
        shape: of an input that is one number.
    """
    if name == "position_ids":
        before = np.cumsum(mask != 0, axis=1)[:, past:] - 1
        positions: Array = np.maximum(before, 0)
        return positions
    if name == "cache_position":
        return np.arange(past, past + new)
    number = {"seqlens_k": past + new - 1, "total_sequence_length": past + new}.get(name, past)
    return np.full(tuple(shape), number)
