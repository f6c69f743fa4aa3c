"""The operations of a source format that a reduction consists of. The search itself is the same for all formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tpuconvert.conversion.options.options import Options
from tpuconvert.reduction.result import Size
from tpuconvert.reduction.source_files import SourceFiles
from tpuconvert.reduction.trial import can_be_read

M = TypeVar("M")
"""Type of a model in memory. Operations return new models and leave their arguments as they are."""


@dataclass(frozen=True)
class NodeLinks:
    """Tensors of one node, by name.

    Args:
        name: name by which an error message identifies the node; empty if it has none.
        reads: tensors that it depends on, also within subgraphs, without duplicates. Constants may be among them.
        makes: its results.

    """

    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


class Search(Protocol[M]):
    """The part of the search that steps of one format use."""

    @property
    def model(self) -> M:
        """The smallest model so far."""

    def accept(self, candidate: M | None) -> bool:
        """Keep a candidate if it fails in the same way."""

    def call(self, function: Callable[..., dict[Any, Any]], *arguments: object) -> dict[Any, Any]:
        """Call a function in the process for trials; the result is empty if that ends the process."""


class ModelFormat(ABC, Generic[M]):
    """Operations on models of one format.

    Attributes:
        name: name of the format.
        applied: options of a conversion that ``apply`` stores in the model, so that a reduced model does not need them.
        is_rewritten: True if a loaded model is written in another form, whose failure has to be compared first.

    """

    name: str
    applied: tuple[str, ...]
    is_rewritten: bool = True

    # Files

    @abstractmethod
    def load(self, files: SourceFiles, options: Options) -> M:
        """Read a model with all its data.

        Raises:
            CorruptInputError: a file is damaged.
            ResourceLimitError: it is too large.

        """

    @abstractmethod
    def apply(
        self, model: M, options: Options, call: Callable[..., dict[Any, Any]], request: Mapping[str, Any]
    ) -> M | None:
        """Return the model with the options ``applied`` stored in it; None if that is not possible."""

    @abstractmethod
    def files(self, model: M) -> SourceFiles:
        """Return the contents of the files.

        Raises:
            ValueError: the model is too large for its format.

        """

    @abstractmethod
    def value(self, files: SourceFiles) -> Any:
        """Return the model as the result of ``reduce`` contains it."""

    # Description

    @abstractmethod
    def size(self, model: M) -> Size:
        """Return the size of a model."""

    @abstractmethod
    def operators(self, model: M) -> list[str]:
        """Names of the operators of all nodes."""

    @abstractmethod
    def links(self, model: M) -> Sequence[NodeLinks]:
        """Tensors of every node, in the order of execution."""

    @abstractmethod
    def outputs(self, model: M) -> Sequence[str]:
        """Names of the outputs."""

    @abstractmethod
    def identifying_texts(self, model: M) -> list[str]:
        """Custom operators, and texts of the source that remain."""

    # Parts

    @abstractmethod
    def extract(self, model: M, keep: Iterable[int]) -> M | None:
        """Return the model with only some nodes. Tensors of other nodes become inputs; unused tensors become outputs.

        Returns:
            None if the part has no node, or needs an input of unknown type.

        """

    @abstractmethod
    def with_outputs(self, model: M, names: Collection[str]) -> M | None:
        """Return the model with some of its outputs, and only the nodes that they depend on."""

    @abstractmethod
    def bypass(self, model: M, index: int) -> M | None:
        """Return the model without a node whose users get its first operand of the same type instead of its result."""

    # Steps

    @abstractmethod
    def prepare(self, search: Search[M], options: Mapping[str, Any]) -> None:
        """Rewrite a whole model so that parts can be extracted, and find the types of its tensors."""

    @abstractmethod
    def find_types(self, search: Search[M], options: Mapping[str, Any]) -> None:
        """Find the types of the tensors of the current model."""

    @abstractmethod
    def simplify(self, search: Search[M]) -> None:
        """Store computed constants, and remove optional operands and attributes."""

    def finish(self, search: Search[M]) -> None:
        """Complete the model after the search, before weights and names are replaced."""

    # Extents, weights and names

    def guarded(self, search: Search[M]) -> Callable[[M | None], bool]:
        """Return a function that accepts candidates which are as valid as the current model.

        A model that the frontend accepts stays one: without a part it could fail in the same way for another reason.
        """
        if not search.call(can_be_read, self.files(search.model)):
            return search.accept
        return lambda candidate: (
            candidate is not None and bool(search.call(can_be_read, self.files(candidate))) and search.accept(candidate)
        )

    @abstractmethod
    def extents(self, model: M) -> list[int]:
        """Extents above 1 of inputs and constants, the largest first."""

    @abstractmethod
    def with_extent(self, model: M, old: int, new: int) -> M | None:
        """Return the model with an extent replaced wherever it occurs; None if that is not possible."""

    @abstractmethod
    def weight_positions(self, model: M) -> Sequence[Hashable]:
        """Positions of the constants with values of a training that can be replaced."""

    @abstractmethod
    def count_other_weights(self, model: M) -> int:
        """Number of constants of several elements that cannot be replaced."""

    @abstractmethod
    def with_random_weights(self, model: M, positions: Collection[Any], seed: int) -> M:
        """Return the model with random values in some constants."""

    @abstractmethod
    def without_descriptions(self, model: M) -> M:
        """Return the model without texts and metadata that it does not need."""

    @abstractmethod
    def with_generic_names(self, model: M, *, keep_ports: bool = False) -> M:
        """Return the model with generic names: ``x0`` inputs, ``y0`` outputs, ``c0`` constants, ``t0`` other tensors.

        Args:
            model: the model.
            keep_ports: keep the names of inputs and outputs.

        """


def needed_nodes(links: Sequence[NodeLinks], tensors: Iterable[str], starts: Collection[str] = ()) -> set[int]:
    """Return the indices of the nodes that some tensors depend on.

    Args:
        links: tensors of every node.
        tensors: the tensors.
        starts: tensors that are given, so that the nodes that make them are not needed for them.

    """
    producers = {name: index for index, node in enumerate(links) for name in node.makes}
    keep: set[int] = set()
    waiting = [producers[name] for name in tensors if name in producers]
    while waiting:
        index = waiting.pop()
        if index not in keep:
            keep.add(index)
            waiting += [producers[name] for name in links[index].reads if name in producers and name not in starts]
    return keep


def part_outputs(links: Sequence[NodeLinks], chosen: Sequence[int], outputs: Collection[str]) -> list[str]:
    """Return the tensors that a part computes for others, in the order of its nodes.

    These are outputs of the model, and results that no chosen node uses but another node does; for a node whose results
    are not used at all, its first result.

    Args:
        links: tensors of every node.
        chosen: indices of the nodes of the part, in ascending order.
        outputs: names of the outputs of the model.

    """
    inside = {name for index in chosen for name in links[index].reads}
    used = {name for node in links for name in node.reads} | set(outputs)
    exported: list[str] = []
    for index in chosen:
        names = links[index].makes
        if any(name in inside for name in names):
            exported += [name for name in names if name in outputs]
        else:
            exported += [name for name in names if name in used] or list(names[:1])
    return exported


def part_inputs(links: Sequence[NodeLinks], chosen: Sequence[int]) -> list[str]:
    """Return the tensors that the nodes of a part read and do not make, in the order of their first use."""
    inner = {name for index in chosen for name in links[index].makes}
    return list(dict.fromkeys(name for index in chosen for name in links[index].reads if name not in inner))
