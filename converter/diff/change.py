"""One difference between two models, and the categories of differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tpuconvert.diff.constants import ConstantDifference
from tpuconvert.schema.text.plain_values import Keyword, Plain

CATEGORIES: Mapping[str, str] = {
    "interface": "inputs and outputs: names, order, shapes, types",
    "settings": "chip, quantization, preprocessing, plugins, options of the conversion",
    "precision": "nodes that compute in other arithmetic, such as INT8 instead of float",
    "nodes": "nodes that were added, removed, moved, fused, decomposed or have another operator",
    "attributes": "parameters of operators",
    "types": "shapes and data types of results",
    "scales": "scales and zero points",
    "constants": "weights, biases and tables",
    "notes": "notes of the conversion, such as nodes that stay in float",
    "metadata": "description of the model",
    "names": "names of tensors",
}
"""Category -> its contents. Text reports have this order: by the likely effect on a user."""

Category: TypeAlias = Annotated[str, Keyword("enum", tuple(CATEGORIES))]

ACTIONS = ("added", "removed", "changed", "moved", "replaced", "renamed", "reordered", "rewired")


@dataclass(frozen=True)
class Change(Plain, hidden=("severity",)):
    """One difference.

    Args:
        category: a key of ``CATEGORIES``.
        action: one of ``ACTIONS``.
        name: name of the node, tensor or setting, in the second model if both have it.
        what: the changed property, such as ``attribute stride_h`` or ``operand filter``; may be empty.
        before: the property in the first model, as text.
        after: the property in the second model, as text.
        follows: True for a consequence of another change, such as the shapes after a resized input.
        severity: size of the change within its category; the largest are shown first.
        nodes_before: indices of the nodes in the first model.
        nodes_after: indices of the nodes in the second model.
        measured: differences of the elements, for constants of one shape.

    """

    category: Category
    action: Annotated[str, Keyword("enum", ACTIONS)]
    name: str
    what: str = ""
    before: str = ""
    after: str = ""
    follows: bool = False
    severity: float = 0.0
    nodes_before: tuple[int, ...] = ()
    nodes_after: tuple[int, ...] = ()
    measured: ConstantDifference | None = None
