"""Description of a model with all parts that the report shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from tpuconvert.model.cost import CostDescription, describe_cost
from tpuconvert.model.description import Description, ModelDescription, describe_graph, describe_model
from tpuconvert.model.memory import MemoryDescription, describe_memory
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import format_shape

if TYPE_CHECKING:
    from tpuconvert.model.model import Model
    from tpuconvert.verify.verification import Verification


class ReportDescription(ModelDescription):
    """A converted model with its cost and memory."""

    verification: Annotated[dict[str, Any] | None, Verification | None, "the comparison with the source"]
    cost: CostDescription
    memory: Annotated[MemoryDescription | None, "no value if extents are known only when the model runs"]


def describe_for_report(model: Model, verification: Verification | None = None, **parts: Any) -> Description:
    """Return the description of a model with its cost, its memory and the types of its constants.

    Args:
        model: the model.
        verification: its comparison with the source.
        **parts: further parts by key, as ``attribution`` and ``tuning``; None leaves a part out.

    """
    return {
        **describe_model(model.content, None if verification is None else verification.to_dict()),
        "cost": describe_cost(model),
        "memory": describe_memory(model.graph),
        "constants": constant_types(model.graph),
        **{key: part for key, part in parts.items() if part is not None},
    }


def describe_source_for_report(graph: Graph) -> Description:
    """Return the description of a source graph with the types of its constants."""
    return {**describe_graph(graph), "constants": constant_types(graph)}


def constant_types(graph: Graph) -> dict[str, str]:
    """Return name of a constant -> its type and shape as text."""
    return {
        value.name: f"{value.dtype.value}{format_shape(value.shape)}"
        for value in graph.values
        if value.data is not None
    }
