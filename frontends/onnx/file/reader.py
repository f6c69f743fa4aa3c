"""Parse an ONNX file with protobuf, and check the assumptions of all later steps.

The native parts of the ``onnx`` package (checker, shape inference, version converter) can end the process on a
malformed model, so they are never called here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf.message import DecodeError

from tpuconvert.frontends import sniffing
from tpuconvert.frontends.onnx.file.messages import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    TensorProto,
)
from tpuconvert.frontends.onnx.file.raw_data import without_raw_data
from tpuconvert.frontends.onnx.file.tensor_reader import IN_MEMORY, TensorReader
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.system.limits import Limits, exceeded
from tpuconvert.schema.system.mapped_pages import map_file

NEWEST_OPSET = 28
"""The newest supported opset of the default domain."""
NEWEST_IR = 14
MAPPED_BYTES = 1 << 20
"""Larger files are memory-mapped. Call ``own_constants`` to keep a graph after the file may change."""
FIRST_IR_WITH_OPSETS = 3
"""First IR version with opset imports. Older files use opset 1."""


FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a model-local function."""
Functions: TypeAlias = Mapping[FunctionKey, FunctionProto]


@dataclass(frozen=True)
class OnnxModel:
    """One parsed model.

    Attributes:
        path: path of the file, or ``IN_MEMORY``.
        proto: the whole message.
        opsets: version per domain; the default domain is the empty string.
        tensors: reader of its constants.
        functions: model-local functions by domain, name and overload.
        node_count: number of nodes, with a function counted at each of its calls.
        notes: remarks about the file for the report.
    """

    path: str
    proto: ModelProto
    opsets: dict[str, int]
    tensors: TensorReader
    functions: Functions
    node_count: int
    notes: list[str] = field(default_factory=list)

    @property
    def graph(self) -> GraphProto:
        """The main graph."""
        return self.proto.graph


def read_model(
    source: str | os.PathLike[str] | ModelProto, limits: Limits, allow_root: str | os.PathLike[str] | None = None
) -> OnnxModel:
    """Parse and check a file, or check a message that is in memory already.

    Args:
        source: path of the file, or the message, which is not modified.
        limits: bounds on sizes.
        allow_root: a directory that external data of a file may be in besides the folder of the model.

    Raises:
        CorruptInputError: the file is damaged, or is not an ONNX model.
        ResourceLimitError: the model exceeds the limits.
        UsageError: the file cannot be read.
    """
    if isinstance(source, ModelProto):
        path, proto = IN_MEMORY, source
        tensors = TensorReader(None, limits)
    else:
        file = sniffing.SourceFile.of(source)
        file.check("onnx", limits)
        path = file.path
        content = _content(path, file.size)
        proto = _parse(content, path)
        tensors = TensorReader(path, limits, content, allow_root)
    _check(proto, path, limits)
    notes = []
    if proto.ir_version > NEWEST_IR:
        notes.append(f"the file has IR version {proto.ir_version}; versions up to {NEWEST_IR} are known")
    opsets = _opsets(proto.opset_import, path)
    if not opsets:
        opsets = {"": 1}
        notes.append("the file names no opset; files of its IR version use opset 1")
    functions = {(_domain(f.domain), f.name, f.overload): f for f in proto.functions}
    if len(functions) < len(proto.functions):
        counts = Counter((_domain(f.domain), f.name, f.overload) for f in proto.functions)
        name = next(name for (_, name, _), count in counts.items() if count > 1)
        raise CorruptInputError(f"function '{name}' is defined more than once", file=os.path.basename(path))
    node_count = _count_inlined(proto.graph, functions, path, limits)
    return OnnxModel(path, proto, opsets, tensors, functions, node_count, notes)


def _parse(content: memoryview, path: str) -> ModelProto:
    """Parse a file without the bytes of its large tensors."""
    proto = ModelProto()
    try:
        proto.ParseFromString(bytes(without_raw_data(content)))
    except DecodeError as error:
        raise sniffing.corrupt_input(path, "onnx", "its protobuf encoding is broken or cut off") from error
    return proto


def _content(path: str, size: int) -> memoryview:
    """Content of a file; a large file is memory-mapped."""
    with open(path, "rb") as file:
        if size < MAPPED_BYTES:
            return memoryview(file.read())
        return memoryview(map_file(file.fileno(), path))


def _check(proto: ModelProto, path: str, limits: Limits) -> None:
    """Check that the message is a valid model within the limits.

    Raises:
        CorruptInputError: it is not a model; random bytes and other protobuf files often parse without an error.
        ResourceLimitError: it exceeds a limit.
    """
    missing = _missing_part(proto)
    if missing:
        raise _corrupt(path, missing)
    nodes, graphs, depth = _contents(proto.graph)
    count = len(nodes) + sum(len(function.node) for function in proto.functions)
    if not all(node.op_type for node in nodes):
        raise _corrupt(path, "a node has no operator")
    if _has_broken_text(proto, nodes, graphs):
        raise _corrupt(path, "a name in it is not valid UTF-8")
    if count > limits.max_nodes:
        raise exceeded(f"{count:,} nodes", "max_nodes", limits, file=os.path.basename(path))
    tensors = len(proto.graph.initializer) + len(proto.graph.value_info)
    if tensors > limits.max_tensors:
        raise exceeded(f"{tensors:,} tensors", "max_tensors", limits, file=os.path.basename(path))
    if depth > limits.max_depth:
        raise exceeded(f"subgraphs nested {depth} deep", "max_depth", limits, file=os.path.basename(path))


_COUNTLESS = 10**9
"""Larger numbers of nodes are not counted."""


class _CallCount:
    """A graph or function whose nodes are being counted: the count so far, and the calls that it does not include."""

    def __init__(self, key: FunctionKey | None, nodes: list[NodeProto], functions: Functions) -> None:
        keys = [(node_domain(node), node.op_type, node.overload) for node in nodes] if functions else []
        self.key = key
        self.calls = [key for key in keys if key in functions]
        self.count = len(nodes)


def _count_inlined(graph: GraphProto, functions: Mapping[FunctionKey, FunctionProto], path: str, limits: Limits) -> int:
    """Return the number of nodes of a graph after its calls are inlined, without inlining them.

    Forty functions that call the next one twice are a small file, and 2^40 nodes.

    Raises:
        CorruptInputError: a function calls itself.
        ResourceLimitError: there are too many nodes.
    """
    counts: dict[FunctionKey, int] = {}
    stack = [_CallCount(None, _contents(graph)[0], functions)]
    open_: set[FunctionKey | None] = set()  # functions whose callees are being counted
    while True:
        top = stack[-1]
        while top.calls and top.calls[-1] in counts:
            top.count = min(top.count + counts[top.calls.pop()], _COUNTLESS)
        if top.calls:
            key = top.calls[-1]
            if key in open_:
                raise _corrupt(path, f"its function '{key[1]}' calls itself")
            body = list(functions[key].node)
            body += [inner for node in body for item in subgraphs(node) for inner in _contents(item)[0]]
            open_.add(key)
            stack.append(_CallCount(key, body, functions))
            continue
        stack.pop()
        if top.key is None:
            break
        counts[top.key] = top.count
        open_.remove(top.key)
    count = top.count
    if count > limits.max_nodes:
        size = f"{count:,} nodes" if count < _COUNTLESS else f"more than {_COUNTLESS:,} nodes"
        raise exceeded(f"{size} after its function calls are inlined", "max_nodes", limits, file=os.path.basename(path))
    return count


def _corrupt(path: str, message: str) -> CorruptInputError:
    """Return the error for a file or message that is not a valid model."""
    if path == IN_MEMORY:
        return CorruptInputError(f"not a valid ONNX model: {message}", file=path)
    return sniffing.corrupt_input(path, "onnx", message)


def _missing_part(proto: ModelProto) -> str:
    """Return the reason why the message is not a model, or an empty string."""
    if not proto.HasField("graph"):
        return "it has no graph"
    if not proto.graph.output:
        return "its graph has no outputs"
    if not (0 <= proto.ir_version < 1000):
        return f"its IR version is {proto.ir_version}"
    if proto.ir_version >= FIRST_IR_WITH_OPSETS and not proto.opset_import:
        return "it names no opset, which is required since IR version 3"
    if not all(value.name for value in (*proto.graph.input, *proto.graph.output)):
        return "a graph input or output has no name"
    counts = Counter(value.name for value in proto.graph.input)
    if twice := [name for name, count in counts.items() if count > 1]:
        return f"several graph inputs have the name '{twice[0]}'"
    return ""


def _contents(graph: GraphProto) -> tuple[list[NodeProto], list[GraphProto], int]:
    """Return all nodes of a graph and its subgraphs, all these graphs, and the depth of nesting."""
    nodes: list[NodeProto] = []
    graphs: list[GraphProto] = []
    level, depth = [graph], 0
    while level:
        depth += 1
        graphs += level
        added = [node for item in level for node in item.node]
        nodes += added
        level = [inner for node in added for inner in subgraphs(node)]
    return nodes, graphs, depth


def _has_broken_text(proto: ModelProto, nodes: list[NodeProto], graphs: list[GraphProto]) -> bool:
    """Return True if a name is not valid UTF-8: protobuf returns such strings as bytes."""
    texts: list[object] = [entry.domain for entry in proto.opset_import]
    nodes, graphs = list(nodes), list(graphs)
    for function in proto.functions:
        texts += [function.name, function.domain, function.overload, *function.input, *function.output]
        texts += [*function.attribute, *(entry.domain for entry in function.opset_import)]
        nodes += function.node
        nodes += [inner for node in function.node for graph in subgraphs(node) for inner in _contents(graph)[0]]
    for node in nodes:
        texts += (node.name, node.op_type, node.domain, node.overload, *node.input[:], *node.output[:])
        for attribute in node.attribute[:]:
            texts += (attribute.name, attribute.ref_attr_name)
    for graph in graphs:
        texts += [graph.name, *(tensor.name for tensor in initializers(graph))]
        for value in (*graph.input, *graph.output, *graph.value_info):
            texts += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
        texts += [text for t in graph.initializer for entry in t.external_data for text in (entry.key, entry.value)]
    return bytes in set(map(type, texts))


def _opsets(imports: Iterable[OperatorSetIdProto], path: str) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in imports:
        domain, version = _domain(entry.domain), int(entry.version)
        if version < 1:
            raise CorruptInputError(
                f"opset version {version} of domain '{domain}' is impossible", file=os.path.basename(path)
            )
        if opsets.setdefault(domain, version) != version:
            raise CorruptInputError(
                f"two opset versions for domain '{domain}': {opsets[domain]} and {version}", file=os.path.basename(path)
            )
    return opsets


def function_opsets(function: FunctionProto, model: OnnxModel) -> dict[str, int]:
    """Opset versions for the nodes of a local function: its imports, or the imports of the model if it has none."""
    return {**model.opsets, **_opsets(function.opset_import, model.path)}


def other_opsets(function: FunctionProto, model: OnnxModel) -> dict[str, int]:
    """Opset versions of a local function, by domain, that differ from the model."""
    own = _opsets(function.opset_import, model.path)
    return {domain: version for domain, version in own.items() if model.opsets.get(domain, version) != version}


def operators_of(function: FunctionProto, domain: str) -> set[str]:
    """Operators of a domain that the nodes of a function have, also those in its subgraphs."""
    inner = (node for own in function.node for graph in subgraphs(own) for node in _contents(graph)[0])
    return {node.op_type for node in (*function.node, *inner) if node_domain(node) == domain}


def _domain(name: str) -> str:
    """Return a domain in its short form: ``ai.onnx`` is the long name of the default domain."""
    return "" if name == "ai.onnx" else name


def node_domain(node: NodeProto) -> str:
    """Domain of a node's operator; an empty string for the default domain."""
    return _domain(node.domain)


_WITHOUT_GRAPHS = frozenset(
    {
        *(AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING, AttributeProto.TENSOR),
        *(AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS, AttributeProto.TENSORS),
    }
)
"""Attribute types without graphs. Before IR version 2 the type is not stored, and all attributes are searched."""


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Graphs that are attributes of a node."""
    for attribute in node.attribute[:]:  # iterating over a copy of a repeated field is faster than over the field
        if attribute.type not in _WITHOUT_GRAPHS:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def reads_of(node: NodeProto) -> set[str]:
    """Names of the input tensors of a node, including those that its subgraphs use from outside."""
    names = set(node.input[:])
    names.discard("")
    for graph in subgraphs(node):
        inside = {value.name for value in graph.input} | {tensor.name for tensor in initializers(graph)}
        for inner in graph.node:
            names |= reads_of(inner) - inside
            inside |= set(inner.output)
        names |= {value.name for value in graph.output} - inside
    return names


def initializers(graph: GraphProto) -> Iterator[TensorProto]:
    """Dense initializers of a graph, and the values of the sparse ones, which have the name."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values


def sparse_by_name(graph: GraphProto) -> dict[str, SparseTensorProto]:
    """Sparse initializers of a graph by tensor name."""
    return {sparse.values.name: sparse for sparse in graph.sparse_initializer}
