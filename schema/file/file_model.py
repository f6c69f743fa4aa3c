"""Contents of a ``.tpum`` file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.states import State
from tpuconvert.schema.types import Chip

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class LateMetadata(Mapping[str, Json]):
    """Metadata mapping whose last entry is computed when it is first accessed.

    Args:
        entries: all entries except the last.
        key: key of the last entry.
        make: computes the value of the last entry.
    """

    def __init__(self, entries: Mapping[str, Json], key: str, make: Callable[[], Json]) -> None:
        self._entries, self._key, self._make = {**entries, key: None}, key, make
        self._is_made = False

    def __getitem__(self, key: str) -> Json:
        if key == self._key and not self._is_made:
            self._entries[key] = self._make()
            self._is_made = True
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True)
class Note:
    """A remark for the user about a converted model.

    Args:
        kind: kind of the remark, for example ``float`` for a node that was not quantized.
        node: name of the node; empty if the remark concerns the whole model.
        message: the reason, in a sentence.
    """

    kind: str
    node: str
    message: str


@dataclass(frozen=True)
class FileModel:
    """A converted model: the graph and its description.

    Args:
        graph: the program.
        chip: target chip.
        tool_version: version of tpuconvert that wrote the model.
        quantize: the mode of quantization, such as ``int8``; ``none`` for a float model.
        preprocessing: preprocessing of images, as JSON values. The order of the keys is kept.
        notes: remarks for the user.
        plugins: names of the plugins that define operators of the graph.
        metadata: everything else, as JSON values. The order of the keys is kept.
        states: tensors that a session keeps between runs.
    """

    graph: Graph
    chip: Chip
    tool_version: str
    quantize: str = "none"
    preprocessing: Mapping[str, Json] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    plugins: tuple[str, ...] = ()
    metadata: Mapping[str, Json] = field(default_factory=dict)
    states: tuple[State, ...] = ()
