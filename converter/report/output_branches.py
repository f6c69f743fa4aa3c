"""Branches of an output: the tensors that a concatenation joins to it, such as boxes and scores of a detector.

The error of the largest values hides the error of the others in the SQNR of the whole output: boxes in pixels have a
million times the power of scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpuconvert.model.description import Description
from tpuconvert.verify.difference import LAYER_SQNR

_MOST = 8
"""Largest number of branches that are shown; a concatenation of more is a list and not a choice of branches."""

_BOX = 4
"""Numbers of a box."""


@dataclass(frozen=True)
class Branch:
    """A compared tensor that is a part of an output.

    Args:
        entry: its comparison with the source.
        output: name of the output.
        part: the part of the output, as ``[:, 0:4]``; empty if the shapes do not show it.
        content: ``boxes`` or ``scores``; empty if the shapes do not show it.

    """

    entry: Description
    output: str
    part: str
    content: str

    @property
    def label(self) -> str:
        """The words for the branch in a sentence."""
        return f"{self.content or 'branch'} of '{self.output}'"


def output_branches(description: Description) -> dict[str, list[Branch]]:
    """Return name of an output -> its branches, for the outputs that a concatenation ends and that were compared."""
    layers: Mapping[str, Description] = {entry["name"]: entry for entry in description["verification"]["layers"]}
    shapes = {value["name"]: value["shape"] for layer in description["layers"] for value in layer["outputs"]}
    shapes |= {port["name"]: port["shape"] for port in description["outputs"]}
    branches = {}
    for output in description["verification"]["outputs"]:
        last = layers.get(output["name"])
        if last is None or last["op"] != "concat" or not 1 < len(last["reads"]) <= _MOST:
            continue
        if all(name in layers for name in last["reads"]):
            parts = _parts(shapes.get(output["name"]), [shapes.get(name) for name in last["reads"]])
            branches[output["name"]] = [
                Branch(layers[name], output["name"], *part) for name, part in zip(last["reads"], parts, strict=True)
            ]
    return branches


def compared_outputs(description: Description) -> list[tuple[str, Description]]:
    """Return the words and the comparison of each output, or of its branches if it has some."""
    branches = output_branches(description)
    shown: list[tuple[str, Description]] = []
    for output in description["verification"]["outputs"]:
        parts = [(branch.label, branch.entry) for branch in branches.get(output["name"], ())]
        shown += parts or [(f"'{output['name']}'", output)]
    return shown


def misses_limit(verification: Description, entry: Description) -> bool:
    """Return True if the SQNR of a tensor of a quantized model is below the limit."""
    sqnr = entry["sqnr_db"]
    return bool(verification["is_quantized"]) and sqnr is not None and sqnr < LAYER_SQNR


def _parts(whole: list[int] | None, parts: list[list[int] | None]) -> list[tuple[str, str]]:
    """Return the part of the output and the content of each operand of a concatenation."""
    nothing = [("", "")] * len(parts)
    if whole is None:
        return nothing
    comparable = [part for part in parts if part is not None and len(part) == len(whole)]
    axes = {axis for part in comparable for axis in range(len(whole)) if part[axis] != whole[axis]}
    if len(comparable) != len(parts) or len(axes) != 1:
        return nothing
    (axis,) = axes
    extents = [part[axis] for part in comparable]
    if not all(isinstance(extent, int) for extent in extents) or sum(extents) != whole[axis]:
        return nothing
    texts = []
    start = 0
    for extent in extents:
        texts.append("[" + ":, " * axis + f"{start}:{start + extent}]")
        start += extent
    contents = [""] * len(parts)
    if len(parts) > 1 and extents.count(_BOX) == 1:
        contents[extents.index(_BOX)] = "boxes"
        contents = [content or ("scores" if len(parts) == 2 else "") for content in contents]
    return list(zip(texts, contents, strict=True))
