"""What a ``.tpum`` file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tpuconvert.schema.graph import Graph
from tpuconvert.schema.groups import Grouping
from tpuconvert.schema.light_dataclass import dataclass
from tpuconvert.schema.types import Chip

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True)
class Note:
    """Something the user should know about a converted model.

    Args:
        kind: what sort of note it is, for example ``float`` for a node that was not quantized.
        node: name of the node it is about; empty when it is about the whole model.
        message: the reason, in a sentence.
    """

    kind: str
    node: str
    message: str


@dataclass(frozen=True)
class FileModel:
    """A converted model: the graph, and what else belongs to it.

    Args:
        graph: the program.
        chip: what it was legalized for.
        tool_version: version of tpuconvert that made it.
        quantize: the mode of quantization, such as ``int8``; ``none`` for a float model.
        preprocessing: how a picture becomes an input, as JSON values. The order of the keys is kept.
        notes: what the user should know.
        plugins: names of the plugins that define operators of the graph.
        metadata: everything else, as JSON values. The order of the keys is kept.
        grouping: which nodes run together in on-chip memory, where that was planned.
    """

    graph: Graph
    chip: Chip
    tool_version: str
    quantize: str = "none"
    preprocessing: Mapping[str, Json] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    plugins: tuple[str, ...] = ()
    metadata: Mapping[str, Json] = field(default_factory=dict)
    grouping: Grouping | None = None
