"""Extents of the inputs of a decoder with key-value caches, as far as their names and the caches determine them.

The caches are inputs such as ``past_key_values.0.key``, ``past.0.key`` or ``past_key_0``, with an output of the same
name that has ``present`` in place of ``past``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tpuconvert.schema.graph.states import present_names

Declared = Sequence[int | str | None]

_MASK = "attention_mask"

_OF_TOKENS = ("input_ids", "position_ids", "token_type_ids", _MASK)
"""Inputs [batch, tokens]."""


def cache_inputs(inputs: Iterable[str], outputs: Iterable[str]) -> list[str]:
    """The inputs that are caches by their names."""
    output_names = set(outputs)
    return [name for name in inputs if output_names.intersection(present_names(name))]


def assumed_extents(
    shapes: Mapping[str, Declared], outputs: Iterable[str], fixed: Mapping[str, int | str]
) -> tuple[dict[str, int | str], list[str]]:
    """Values of dynamic extents of a decoder: a number, or a sum of names in the file.

    - The batch of the caches is 1, because a reshape cannot split two dynamic extents.
    - All caches have the same length; ids, positions and masks have the same batch. Exporters may give them several
      names.
    - The width of ``attention_mask`` is the length of the caches plus the length of ``input_ids``. Without other inputs
      it is the length of ``input_ids``.

    Args:
        shapes: shapes in the file, by input name.
        outputs: names of the outputs.
        fixed: extents that the caller has set, by their names in the file.

    Returns:
        The values by name of the extent, and a note for each kind.
    """
    caches = [shapes[name] for name in cache_inputs(shapes, outputs) if len(shapes[name]) == 4]
    rows = {name: shapes[name] for name in _OF_TOKENS if len(shapes.get(name, ())) == 2}
    has_past = not shapes.keys() <= set(_OF_TOKENS)  # other inputs may be caches, also if their names do not show it
    mask = rows.pop(_MASK, None) if has_past else None
    values: dict[str, int | str] = {}
    notes: list[str] = []
    axis = next((axis for axis in (2, 3, 1) if caches and isinstance(caches[0][axis], str)), None)
    firsts = [*(shape[0] for shape in caches), *(shape[0] for shape in (*rows.values(), *filter(None, [mask])))]
    batch = _unify(firsts, fixed, values)
    past = None if axis is None else _unify([shape[axis] for shape in caches], fixed, values)
    new = _unify([shape[1] for shape in rows.values()], fixed, values)
    for value in dict.fromkeys(values.values()):
        equal = ", ".join(f"'{name}'" for name in (*(name for name, other in values.items() if other == value), value))
        notes.append(f"the extents {equal} are assumed to be equal")
    if caches and isinstance(batch, str) and batch not in fixed:
        values = {batch: 1, **values}
        notes.append(f"the extent '{batch}' is assumed to be 1; --input-shapes input_ids=2,sequence sets another batch")
    total = None if mask is None else mask[1]
    is_name = bool(caches) and isinstance(total, str) and re.fullmatch(r"\w+", total) is not None
    if is_name and isinstance(past, str) and new is not None and total not in {*fixed, past, new}:
        values[str(total)] = f"{past} + {new}"
        notes.append(f"the extent '{total}' of attention_mask is assumed to be {past} + {new}")
    return values, notes


def _unify(
    extents: Iterable[int | str | None], fixed: Mapping[str, int | str], values: dict[str, int | str]
) -> int | str | None:
    """Let extents be equal: add the one that represents them as the value of the others.

    It is a name that the caller has set, a number, or the first name. An extent that has no name in the file stays as
    it is. Names that the caller has set keep their values.

    Args:
        extents: extents in the file.
        fixed: extents that the caller has set.
        values: gets the value of each other name.
    """
    alike = dict.fromkeys(extent for extent in extents if extent is not None)
    names = [extent for extent in alike if isinstance(extent, str) and re.fullmatch(r"\w+", extent)]
    candidates: list[int | str] = [
        *(name for name in names if name in fixed),
        *(item for item in alike if isinstance(item, int)),
        *names,
    ]
    if not candidates:
        return None
    values.update({name: candidates[0] for name in names if name != candidates[0] and name not in fixed})
    return candidates[0]
