"""What a ``.tpum`` file holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tpuconvert.schema.graph import Graph
from tpuconvert.schema.groups import Grouping
from tpuconvert.schema.types import Chip

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class LateMetadata(Mapping[str, Json]):
    """Metadata with a last entry that is made when somebody asks for its value.

    Args:
        known: all but the last.
        key: of the last.
        make: makes its value.
    """

    def __init__(self, known: Mapping[str, Json], key: str, make: Callable[[], Json]) -> None:
        self._known, self._key, self._make = {**known, key: None}, key, make
        self._is_made = False

    def __getitem__(self, key: str) -> Json:
        if key == self._key and not self._is_made:
            self._known[key] = self._make()
            self._is_made = True
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


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
