"""Extents of the inputs of a decoder with key-value caches, as far as their names and the caches determine them.

The caches are inputs such as ``past_key_values.0.key``, ``past.0.key`` or ``past_key_0``, with an output of the same
name that has ``present`` in place of ``past``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from tpuconvert.schema.graph.states import present_names

Declared = Sequence[int | str | None]


def cache_inputs(inputs: Iterable[str], outputs: Iterable[str]) -> list[str]:
    """The inputs that are caches by their names."""
    output_names = set(outputs)
    return [name for name in inputs if output_names.intersection(present_names(name))]


def assumed_extents(
    shapes: Mapping[str, Declared], outputs: Iterable[str], fixed: Collection[str]
) -> tuple[dict[str, int | str], list[str]]:
    """Values of dynamic extents of a decoder: a number, or a sum of names in the file.

    - The batch of the caches is 1, because a reshape cannot split two dynamic extents.
    - The width of ``attention_mask`` is the length of the caches plus the length of ``input_ids``.

    Args:
        shapes: shapes in the file, by input name.
        outputs: names of the outputs.
        fixed: names of extents that the caller has set.

    Returns:
        The values by name of the extent, and a note for each.
    """
    caches = [name for name in cache_inputs(shapes, outputs) if len(shapes[name]) == 4]
    if not caches:
        return {}, []
    values: dict[str, int | str] = {}
    notes: list[str] = []
    batch, _, *lengths = shapes[caches[0]][:4]
    if isinstance(batch, str) and batch not in fixed:
        values[batch] = 1
        notes.append(f"the extent '{batch}' is assumed to be 1; --input-shapes input_ids=2,sequence sets another batch")
    mask, ids = shapes.get("attention_mask", ()), shapes.get("input_ids", ())
    past = next((extent for extent in lengths if isinstance(extent, str)), None)
    if len(mask) == 2 and len(ids) == 2 and past is not None and ids[1] is not None:
        total = mask[1]
        if isinstance(total, str) and re.fullmatch(r"\w+", total) and total not in {*fixed, past, ids[1]}:
            values[total] = f"{past} + {ids[1]}"
            notes.append(f"the extent '{total}' of attention_mask is assumed to be {past} + {ids[1]}")
    return values, notes
