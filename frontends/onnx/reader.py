"""Reads an ONNX file into messages, by protobuf parsing alone, and checks what every later step relies on.

The native parts of the ``onnx`` package (checker, shape inference, version converter) can end the process on a
malformed model, so they are never called here.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path

from google.protobuf.message import DecodeError

from tpuconvert.frontends import sniffing
from tpuconvert.frontends.limits import Limits
from tpuconvert.frontends.onnx.messages import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    TensorProto,
)
from tpuconvert.frontends.onnx.tensors import TensorReader
from tpuconvert.schema.errors import CorruptInputError, ResourceLimitError
from tpuconvert.schema.light_dataclass import dataclass

NEWEST_OPSET = 28
"""The newest opset of the default domain whose meaning is known here."""
NEWEST_IR = 14
FIRST_IR_WITH_OPSETS = 3
"""Before this file version there were no opset imports: every operator had the meaning of opset 1."""


@dataclass(frozen=True)
class OnnxModel:
    """One parsed file.

    Attributes:
        path: of the file.
        proto: the whole message.
        opsets: version per domain; the default domain is the empty string.
        tensors: reads its constants.
        functions: model-local functions by domain, name and overload.
        notes: what a reader of the report should know about the file.
    """

    path: Path
    proto: ModelProto
    opsets: dict[str, int]
    tensors: TensorReader
    functions: dict[tuple[str, str, str], FunctionProto]
    notes: list[str] = field(default_factory=list)

    @property
    def graph(self) -> GraphProto:
        """The main graph."""
        return self.proto.graph


def read_model(path: str | os.PathLike[str], limits: Limits) -> OnnxModel:
    """Parse and check a file.

    Raises:
        CorruptInputError: damaged, or something other than an ONNX model.
        ResourceLimitError: larger than the limits.
        UsageError: not readable.
    """
    path = Path(path)
    data = sniffing.read_checked(path, "onnx", limits=limits)
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise sniffing.corrupt_input(path, "onnx", "its protobuf encoding is broken or cut off") from error
    missing = _missing_part(proto) or _broken_text(proto)
    if missing:
        raise sniffing.corrupt_input(path, "onnx", missing)
    _check_counts(proto, path, limits)
    notes = []
    if proto.ir_version > NEWEST_IR:
        notes.append(f"the file has IR version {proto.ir_version}; versions up to {NEWEST_IR} are known")
    opsets = _opsets(proto.opset_import, path)
    if not opsets:
        opsets = {"": 1}
        notes.append("the file names no opset; as it is older than opsets, opset 1 is meant")
    functions = {(_domain(f.domain), f.name, f.overload): f for f in proto.functions}
    return OnnxModel(path, proto, opsets, TensorReader(path, limits), functions, notes)


def _missing_part(proto: ModelProto) -> str:
    """What makes the message no model; random bytes and other protobuf files often parse without an error."""
    if not proto.HasField("graph"):
        return "it holds no graph"
    if not proto.graph.output:
        return "its graph has no outputs"
    if not (0 <= proto.ir_version < 1000):
        return f"its IR version is {proto.ir_version}"
    if proto.ir_version >= FIRST_IR_WITH_OPSETS and not proto.opset_import:
        return "it names no opset, which every ONNX file since IR version 3 does"
    for value in (*proto.graph.input, *proto.graph.output):
        if not value.name:
            return "a graph input or output has no name"
    for node in nodes_of(proto.graph):
        if not node.op_type:
            return "a node has no operator"
    return ""


def _broken_text(proto: ModelProto) -> str:
    """Names that are no UTF-8, which protobuf hands out as bytes."""
    texts: list[object] = [entry.domain for entry in proto.opset_import]
    nodes = list(nodes_of(proto.graph))
    graphs = [proto.graph, *(graph for node in nodes for graph in subgraphs(node))]
    for function in proto.functions:
        texts += [function.name, function.domain, function.overload, *function.input, *function.output]
        texts += [*function.attribute, *(entry.domain for entry in function.opset_import)]
        nodes += function.node
        nodes += [inner for node in function.node for graph in subgraphs(node) for inner in nodes_of(graph)]
    for node in nodes:
        texts += [node.name, node.op_type, node.domain, node.overload, *node.input, *node.output]
        texts += [text for attribute in node.attribute for text in (attribute.name, attribute.ref_attr_name)]
    for graph in graphs:
        texts += [graph.name, *(tensor.name for tensor in initializers(graph))]
        for value in (*graph.input, *graph.output, *graph.value_info):
            texts += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
    texts += [text for graph in graphs for t in graph.initializer for e in t.external_data for text in (e.key, e.value)]
    return "a name in it is no text" if any(isinstance(text, bytes) for text in texts) else ""


def _check_counts(proto: ModelProto, path: Path, limits: Limits) -> None:
    nodes = sum(1 for _ in nodes_of(proto.graph)) + sum(len(function.node) for function in proto.functions)
    if nodes > limits.max_nodes:
        raise ResourceLimitError(f"{nodes} nodes, more than {limits.max_nodes}", file=path.name)
    tensors = len(proto.graph.initializer) + len(proto.graph.value_info)
    if tensors > limits.max_tensors:
        raise ResourceLimitError(f"{tensors} tensors, more than {limits.max_tensors}", file=path.name)
    depth = _depth(proto.graph)
    if depth > limits.max_depth:
        raise ResourceLimitError(f"subgraphs nest {depth} deep, more than {limits.max_depth}", file=path.name)


def _opsets(imports: Iterable[OperatorSetIdProto], path: Path) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in imports:
        domain, version = _domain(entry.domain), int(entry.version)
        if version < 1:
            raise CorruptInputError(f"opset version {version} of domain '{domain}' is impossible", file=path.name)
        if opsets.setdefault(domain, version) != version:
            raise CorruptInputError(
                f"two opset versions for domain '{domain}': {opsets[domain]} and {version}", file=path.name
            )
    return opsets


def function_opsets(function: FunctionProto, model: OnnxModel) -> dict[str, int]:
    """The opsets that a local function's nodes mean: its own, or the model's where it names none."""
    return {**model.opsets, **_opsets(function.opset_import, model.path)}


def _domain(name: str) -> str:
    """``ai.onnx`` is the long name of the default domain."""
    return "" if name == "ai.onnx" else name


def node_domain(node: NodeProto) -> str:
    """The domain of a node's operator, with the default domain as the empty string."""
    return _domain(node.domain)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds as attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes of a graph and of the graphs inside it."""
    pending = [graph]
    while pending:
        for node in pending.pop().node:
            yield node
            pending.extend(subgraphs(node))


def _depth(graph: GraphProto) -> int:
    """How many graphs lie inside each other. Protobuf itself bounds this to about 30."""
    inner = [_depth(sub) for node in graph.node for sub in subgraphs(node)]
    return 1 + max(inner, default=0)


def reads_of(node: NodeProto) -> set[str]:
    """Names of the tensors that a node reads, including those its subgraphs take from outside."""
    names = {name for name in node.input if name}
    for graph in subgraphs(node):
        inside = {value.name for value in graph.input} | {tensor.name for tensor in initializers(graph)}
        for inner in graph.node:
            names |= reads_of(inner) - inside
            inside |= set(inner.output)
        names |= {value.name for value in graph.output} - inside
    return names


def initializers(graph: GraphProto) -> Iterator[TensorProto]:
    """Dense constants of a graph, and the value parts of sparse ones, which carry the name."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values


def sparse_by_name(graph: GraphProto) -> dict[str, SparseTensorProto]:
    """The sparse constants of a graph by tensor name."""
    return {sparse.values.name: sparse for sparse in graph.sparse_initializer}
