"""Cycles of the vendor's compiler for the nodes of a model: ``proof.json`` of an export that was compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from tpuconvert.exporters.compilation.cycles import CycleEstimate
from tpuconvert.exporters.compilation.proof import PROOF
from tpuconvert.exporters.program_digest import program_digest
from tpuconvert.model.model import Model
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.text.text_format import time_text

KEY = "compiled"
"""Part of a description."""

_AGAIN = "export with --compile again"


class CompiledDescription(TypedDict):
    """Estimate of the vendor's compiler, which no device has confirmed."""

    chip: str
    is_accepted: Annotated[bool, "whether the results of the simulator agree with tpuconvert's"]
    cycles: Annotated[int, "one run; computation and transfers overlap"]
    seconds: float
    compute: Annotated[list[int | None], "cycles that compute, by node; null without an operation of this name"]
    transfer: Annotated[list[int | None], "cycles that transfer, by node"]
    other_compute: Annotated[int, "cycles of operations without a node, as a cast at a border"]
    other_transfer: Annotated[int, "cycles of loads and stores, and of operations without a node"]


def read_compiled(path: str | os.PathLike[str], model: Model) -> CompiledDescription:
    """Read the cycles of the nodes of a model.

    Args:
        path: ``proof.json`` of an export of the model.
        model: the model.

    Raises:
        UsageError: the file cannot be read, is of another model, or has no cycles: the compiler wrote no profile.
        CorruptInputError: it is another file, or is damaged.
    """
    name = os.fspath(path)
    try:
        proof = parse_json(read_text(path))
    except OSError as error:
        raise UsageError(
            f"{error.strerror}", file=name, hint=f"name the {PROOF} of an export with --compile"
        ) from error
    except ValueError as error:
        raise CorruptInputError(f"not a {PROOF}: {error}", file=name, hint=_AGAIN) from error
    try:
        digest, cycles, chip, is_accepted = (proof[key] for key in ("program_digest", "cycles", "chip", "is_accepted"))
        described = None if cycles is None else _by_node(cycles, model)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptInputError(f"not a {PROOF}: {error!r}", file=name, hint=_AGAIN) from error
    if digest != program_digest(model.graph):
        raise UsageError("the proof of another model", file=name, hint=_AGAIN)
    if described is None:
        raise UsageError("without cycles: the compiler wrote no profile", file=name, hint="leave --proof out")
    return {**described, "chip": str(chip), "is_accepted": bool(is_accepted)}


def _by_node(cycles: CycleEstimate, model: Model) -> CompiledDescription:
    """Return the cycles by node: an operation has the name of the first result of its node."""
    indices = {node.name: index for index, node in enumerate(model.graph.nodes)}
    columns: dict[str, list[int | None]] = {kind: [None] * len(indices) for kind in ("compute", "transfer")}
    others = {"compute": 0, "transfer": 0}
    for layer in cycles["layers"]:
        index = indices.get(layer["tensor"])
        for kind, column in columns.items():
            count = _count(layer, kind)
            if index is None:
                others[kind] += count
            else:
                column[index] = (column[index] or 0) + count
    total = _count(cycles, "total")
    return {
        "chip": "",
        "is_accepted": False,
        "cycles": total,
        "seconds": total / (_count(cycles, "megahertz") * 1e6),
        "compute": columns["compute"],
        "transfer": columns["transfer"],
        "other_compute": others["compute"],
        "other_transfer": others["transfer"],
    }


def _count(item: Mapping[str, Any] | CycleEstimate, key: str) -> int:
    count = item[key]  # type: ignore[literal-required]
    if isinstance(count, bool) or not isinstance(count, int) or count < 0 or (key == "megahertz" and count == 0):
        raise ValueError(f"{key} is {count!r}, expected a number of cycles")
    return count


def compiled_line(compiled: Mapping[str, Any]) -> str:
    """Return one line with the time of one run."""
    text = f"{compiled['cycles']:,} cycles on {compiled['chip']}, {time_text(compiled['seconds'])}"
    agrees = "" if compiled["is_accepted"] else "; results of its program differ, so that it is not to be used"
    return f"estimate of the vendor's compiler: {text}{agrees}"
