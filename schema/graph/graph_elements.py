"""The parts of a graph: values, the nodes that connect them, ports of inputs and outputs, and source nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.system.mapped_pages import forget_pages, large_file
from tpuconvert.schema.types import Array, DType, QuantParams, Shape, TensorType


@dataclass(frozen=True)
class Source:
    """Origin of a node: base name of the source file, name and operator of the source node."""

    file: str
    node: str
    op: str

    def __str__(self) -> str:
        return f"{self.file}: {self.op} '{self.node}'"


class JoinedSources:
    """The sources of several nodes one after the other, listed when they are first read.

    Merging a chain of ten thousand nodes one by one would otherwise list ten thousand sources each time.

    Args:
        parts: the sources of the nodes.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[Sources]) -> None:
        self._parts = tuple(parts)

    def listed(self) -> tuple[Source, ...]:
        """Return every source once, in the order of the parts."""
        sources: dict[Source, None] = {}
        visited: set[int] = set()
        left: list[Sources] = [self]
        while left:
            part = left.pop()
            if isinstance(part, tuple):
                sources.update(dict.fromkeys(part))
            elif id(part) not in visited:
                visited.add(id(part))
                left += reversed(part._parts)
        return tuple(sources)


Sources: TypeAlias = tuple[Source, ...] | JoinedSources
"""Sources of a node."""


@dataclass(frozen=True)
class Deviation:
    """Known deviation of a source node's results from the standard of its format.

    Args:
        node: name of the source node.
        op: operator of the source node.
        text: the deviation and its condition, such as "values above 127 saturate instead of wrapping".
    """

    node: str
    op: str
    text: str

    def __str__(self) -> str:
        return f"{self.op} '{self.node}': {self.text}"


@dataclass(frozen=True)
class Port:
    """One graph input or output as the user sees it.

    Args:
        name: its name in the source file.
        dtype: a NumPy type name such as ``int64``; also types that no TPU operator has.
        shape: its shape in the source; () for rank 0, which becomes [1] in the graph.
        quant: quantization parameters of the port, if the source file has them.
    """

    name: str
    dtype: str
    shape: Shape
    quant: QuantParams | None = None


class KeptState(NamedTuple):
    """A pair of ports by which a source model passes state from run to run.

    Args:
        input: name of the input port that takes the state.
        output: name of the output port that is its next value.
        initial: content before the first run, in the type of the input; None if the file does not define it.
    """

    input: str
    output: str
    initial: Array | None


class Uses(dict[tuple["Node", int], None]):
    """Uses of a value: pairs of a node and the index of its operand, in the order in which they were connected.

    The pairs are the keys of a dictionary: adding, finding and removing take constant time, also for a constant with
    ten thousand uses, and iteration runs without Python calls.
    """

    __slots__ = ()

    def add(self, node: Node, index: int) -> None:
        """Add the use by operand ``index`` of ``node``."""
        self[node, index] = None

    def remove(self, node: Node, index: int) -> None:
        """Remove a use, which must exist."""
        del self[node, index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Uses, list)) and list(self) == list(other)

    def __ne__(self, other: object) -> bool:  # required because dict defines it
        return not self == other

    __hash__ = None  # not hashable because it is mutable

    def __repr__(self) -> str:
        return repr(list(self))


class DeferredQuant:
    """Quantization parameters of a value that are created at the first access.

    A session needs none, and creating them takes a tenth of the time to open a file.

    Args:
        make: creates the parameters, which must be valid.
    """

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], QuantParams | None]) -> None:
        self.make = make


class DroppedData:
    """The elements of a constant that were dropped from memory.

    Args:
        restore: replaces the data of the value by the elements, or raises an error.
    """

    __slots__ = ("restore",)

    def __init__(self, restore: Callable[[], None]) -> None:
        self.restore = restore


class Value:
    """One tensor between nodes.

    Args:
        name: unique in the graph; the name of the source tensor if the value equals that tensor.
        type: data type and shape.
        data: the elements of a constant, or None.
        quant: quantization parameters. On a FLOAT32 value they are an annotation, from the source file or from
            calibration; on an integer value they define the dequantized values.
        stored: the original integers of an annotated constant, whose ``data`` are the dequantized values.
    """

    __slots__ = ("_data", "_quant", "_view", "name", "producer", "stored", "type", "uses")

    def __init__(
        self,
        name: str,
        type_: TensorType,
        data: Array | None = None,
        quant: QuantParams | None = None,
        stored: Array | None = None,
    ) -> None:
        self.name = name
        self.type = type_
        self._data: Array | DroppedData | None = data
        self._view: Array | None = None  # unaligned view of a large mapped file, of which ``_data`` is a copy
        self._quant: QuantParams | DeferredQuant | None = quant
        self.stored = stored
        self.producer: Node | None = None
        self.uses = Uses()

    @property
    def data(self) -> Array | None:
        """The elements of a constant, or None."""
        while self._data.__class__ is DroppedData:
            self._data.restore()
        return self._data  # type: ignore[return-value]

    @data.setter
    def data(self, data: Array | DroppedData | None) -> None:
        self._data, self._view = data, None

    @property
    def quant(self) -> QuantParams | None:
        """Quantization parameters, or None."""
        if self._quant.__class__ is DeferredQuant:
            self._quant = self._quant.make()
        return self._quant  # type: ignore[return-value]

    @quant.setter
    def quant(self, quant: QuantParams | DeferredQuant | None) -> None:
        self._quant = quant

    @property
    def dtype(self) -> DType:
        """Data type of the elements."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """Extents; some of them may be symbolic."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.type.shape)

    @property
    def is_constant(self) -> bool:
        """True for a constant, which is a value with data."""
        return self._data is not None

    @property
    def array(self) -> Array:
        """The data of a constant, aligned in memory. The value must be a constant.

        ``data`` may be an unaligned view into a file; it is copied at the first access through this property.
        """
        data = self.data
        assert data is not None, f"value '{self.name}' is not constant"
        if not data.flags.aligned:
            view = None if large_file(data) is None else data
            self.data = data = data.copy()
            self._view = view
        return data

    def release_memory(self) -> None:
        """Free the aligned copy of a constant in a large mapped file, or the pages of a constant in a mapped file.

        The next access reads them again.
        """
        if self._view is not None:
            self.data = self._view
        for array in (self._data, self.stored):
            if isinstance(array, np.ndarray):
                forget_pages(array)

    @property
    def users(self) -> list[Node]:
        """The nodes that have the value as operand, each once, in the order in which they were connected."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    def __repr__(self) -> str:
        return f"Value({self.name!r}, {self.type})"


class Node:
    """One use of an operator, with its operands and its results.

    Args:
        op: the operator.
        inputs: the operands.
        outputs: the results.
        sources: the source nodes that it comes from, listed when they are first read.
        rules: names of the rewrite rules that it comes from, the earliest first. Files have them in the record of the
            conversion.
    """

    __slots__ = ("inputs", "op", "outputs", "rules", "unlisted_sources")

    def __init__(
        self,
        op: Op,
        inputs: tuple[Value | None, ...],
        outputs: tuple[Value, ...],
        sources: Sources,
        rules: tuple[str, ...] = (),
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.unlisted_sources = sources
        self.rules = rules

    @property
    def sources(self) -> tuple[Source, ...]:
        """The source nodes that the node comes from."""
        sources = self.unlisted_sources
        if isinstance(sources, JoinedSources):
            sources = self.unlisted_sources = sources.listed()
        return sources

    @sources.setter
    def sources(self, sources: tuple[Source, ...]) -> None:
        self.unlisted_sources = sources

    @property
    def name(self) -> str:
        """Name of the first result, which is unique in the graph."""
        return self.outputs[0].name

    @property
    def output(self) -> Value:
        """The only result of a node with one result."""
        (value,) = self.outputs
        return value

    def __repr__(self) -> str:
        reads = ", ".join(value.name if value else "-" for value in self.inputs)
        return f"Node({self.op} : {reads} -> {', '.join(value.name for value in self.outputs)})"
