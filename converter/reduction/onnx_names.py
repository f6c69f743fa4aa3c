"""Generic names for everything in an ONNX model that has one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpuconvert.frontends.onnx.file.messages import GraphProto, ModelProto, NodeProto, ValueInfoProto
from tpuconvert.frontends.onnx.file.reader import initializers, subgraphs
from tpuconvert.reduction.generic_names import GenericNames

ONNX_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Domains of published operators, which do not identify the author of a model."""


def without_descriptions(model: ModelProto) -> ModelProto:
    """Return the model without producer, versions, documentation and metadata."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata_props"):
        changed.ClearField(field)
    _clear_graph(changed.graph)
    for function in changed.functions:
        _clear(function)
        _clear_nodes(function.node)
    return changed


def _clear(message: Any) -> None:
    for field in ("doc_string", "metadata_props"):
        if field in message.DESCRIPTOR.fields_by_name:  # depends on the version of onnx
            message.ClearField(field)


def _clear_graph(graph: GraphProto) -> None:
    _clear(graph)
    graph.ClearField("quantization_annotation")
    for message in (*graph.input, *graph.output, *graph.value_info, *initializers(graph)):
        _clear(message)
        if isinstance(message, ValueInfoProto):
            message.type.ClearField("denotation")
            for dim in message.type.tensor_type.shape.dim:
                dim.ClearField("denotation")
    _clear_nodes(graph.node)


def _clear_nodes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        _clear(node)
        for attribute in node.attribute:
            _clear(attribute)
            if attribute.HasField("t"):
                attribute.t.name = ""
                _clear(attribute.t)
        for inner in subgraphs(node):
            _clear_graph(inner)


def with_generic_names(model: ModelProto, *, keep_ports: bool = False) -> ModelProto:
    """Return the model with generic names.

    Inputs become ``x0``, outputs ``y0``, constants ``c0``, other tensors ``t0``, nodes ``n0`` and extents ``d0``.

    Args:
        model: the model.
        keep_ports: keep the names of inputs and outputs, whose meaning some conversions derive from their names.

    """
    changed = ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    ports = [info.name for info in (*graph.input, *graph.output)] if keep_ports else []
    names = GenericNames(ports)
    for info in graph.input:
        names.tensor(info.name, "x")
    for info in graph.output:
        names.tensor(info.name, "y")
    graph.name = "reduced"
    _rename_graph(graph, names)
    _rename_functions(changed)
    return changed


def _rename_graph(graph: GraphProto, names: GenericNames) -> None:
    for tensor in initializers(graph):
        tensor.name = names.tensor(tensor.name, "c")
    for node in graph.node:
        _rename_node(node, names)
    for info in (*graph.input, *graph.output, *graph.value_info):
        info.name = names.tensor(info.name)
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names.extent(dim.dim_param)


def _rename_node(node: NodeProto, names: GenericNames) -> None:
    node.name = names.new("n") if node.name else ""
    for field in (node.input, node.output):
        for position, name in enumerate(field):
            field[position] = names.tensor(name)
    for inner in subgraphs(node):
        inner.name = "body"
        _rename_graph(inner, names)


def _rename_functions(model: ModelProto) -> None:
    """Rename local functions and their domains, and the tensors in them. Attributes keep their names."""
    keys = {(each.domain, each.name, each.overload): f"f{number}" for number, each in enumerate(model.functions)}
    domains = {key[0] for key in keys}
    others = {node.domain for node in _all_nodes(model) if (node.domain, node.op_type, node.overload) not in keys}
    local = {name: f"local{number}" for number, name in enumerate(sorted(domains - others - ONNX_DOMAINS))}
    for node in _all_nodes(model):
        key = (node.domain, node.op_type, node.overload)
        if key in keys and node.domain in local:
            node.op_type, node.overload = keys[key], ""
        node.domain = local.get(node.domain, node.domain)
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if function.domain in local:
            function.name, function.overload = keys[key], ""
        function.domain = local.get(function.domain, function.domain)
        names = GenericNames(())
        for field in (function.input, function.output):
            for position, name in enumerate(field):
                field[position] = names.tensor(name)
        for node in function.node:
            _rename_node(node, names)
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        for entry in imports:
            entry.domain = local.get(entry.domain, entry.domain)


def _all_nodes(model: ModelProto) -> list[NodeProto]:
    """Nodes of the graph, of local functions and of all subgraphs."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    nodes: list[NodeProto] = []
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += [inner for graph in subgraphs(node) for inner in graph.node]
    return nodes


def identifying_texts(model: ModelProto) -> list[str]:
    """Domains and operators that are not published, and texts in attributes of such operators."""
    texts: dict[str, None] = {}
    functions = {(each.domain, each.name) for each in model.functions}
    for node in _all_nodes(model):
        if node.domain in ONNX_DOMAINS or (node.domain, node.op_type) in functions:
            continue
        texts[f"{node.domain}:{node.op_type}"] = None
        for attribute in node.attribute:
            for text in (attribute.s, *attribute.strings):
                if text:
                    texts[f"{attribute.name}={text.decode('utf-8', 'replace')}"] = None
    return list(texts)
