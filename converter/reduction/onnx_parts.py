"""Parts of ONNX models: subgraphs of chosen nodes, nodes replaced by an operand, and other simplifications.

Every function returns a new model and leaves its argument as it is. No function checks that the result is a valid
model: a trial does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tpuconvert.frontends.onnx.file.messages import FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto
from tpuconvert.frontends.onnx.file.reader import initializers, reads_of, subgraphs
from tpuconvert.reduction.model_format import NodeLinks, needed_nodes, part_inputs, part_outputs


@dataclass(frozen=True)
class TensorInfo:
    """Element type and shape of a tensor.

    Args:
        code: number of the element type in ONNX.
        shape: extents; text is a symbolic extent.

    """

    code: int
    shape: tuple[int | str, ...]

    def to_proto(self, name: str) -> ValueInfoProto:
        """Return the message for a graph input. An extent that is a formula gets a name."""
        info = ValueInfoProto(name=name)
        info.type.tensor_type.elem_type = self.code
        info.type.tensor_type.shape.SetInParent()
        for extent in self.shape:
            dim = info.type.tensor_type.shape.dim.add()
            if isinstance(extent, int):
                dim.dim_value = extent
            else:
                dim.dim_param = (
                    extent if extent.isidentifier() else f"d{hashlib.sha256(extent.encode()).hexdigest()[:8]}"
                )
        return info

    @staticmethod
    def from_proto(info: ValueInfoProto) -> TensorInfo | None:
        """Return type and shape, or None if it is not a tensor, or an extent is unknown."""
        tensor = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not tensor.HasField("shape") or not tensor.elem_type:
            return None
        shape: list[int | str] = []
        for dim in tensor.shape.dim:
            if dim.HasField("dim_value"):
                shape.append(dim.dim_value)
            elif dim.dim_param:
                shape.append(dim.dim_param)
            else:
                return None
        return TensorInfo(tensor.elem_type, tuple(shape))


Infos = Mapping[str, TensorInfo]


def extract(model: ModelProto, keep: Iterable[int], infos: Infos) -> ModelProto | None:
    """Return the model with only some nodes. Tensors of other nodes become inputs; unused tensors become outputs.

    Args:
        model: the whole model.
        keep: indices of nodes.
        infos: type of each tensor that may become an input.

    Returns:
        The part, or None if it has no node, or needs an input of unknown type.

    """
    chosen = sorted(keep)
    if not chosen:
        return None
    graph = model.graph
    nodes = [graph.node[index] for index in chosen]
    links = node_links(model)
    constants = {tensor.name for tensor in initializers(graph)}
    outside = [name for name in part_inputs(links, chosen) if name not in constants]
    graph_inputs = {info.name: info for info in graph.input}
    if any(name not in graph_inputs and name not in infos for name in outside):
        return None
    part = _copy_head(model)
    part.graph.node.extend(nodes)
    needed = {name for index in chosen for name in links[index].reads}
    results = {name for index in chosen for name in links[index].makes}
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed)
    part.graph.sparse_initializer.extend(each for each in graph.sparse_initializer if each.values.name in needed)
    order = [name for name in graph_inputs if name in set(outside)]
    for name in (*order, *(name for name in outside if name not in graph_inputs)):
        part.graph.input.append(graph_inputs[name] if name in graph_inputs else infos[name].to_proto(name))
    outputs = {info.name: info for info in graph.output}
    infos_of = {info.name: info for info in graph.value_info}
    for name in part_outputs(links, chosen, outputs):
        info = outputs.get(name) or infos_of.get(name)
        if info is None:
            info = infos[name].to_proto(name) if name in infos else ValueInfoProto(name=name)
        part.graph.output.append(info)
    part.graph.value_info.extend(info for info in graph.value_info if info.name in results)
    return drop_unused_imports(part)


def node_links(model: ModelProto) -> list[NodeLinks]:
    """Return the tensors of every node: its inputs in order, then those that its subgraphs use from outside."""
    links = []
    for node in model.graph.node:
        names = list(dict.fromkeys(name for name in node.input if name))
        reads = (*names, *sorted(reads_of(node) - set(names)))
        links.append(NodeLinks(node.name, reads, tuple(name for name in node.output if name)))
    return links


def _copy_head(model: ModelProto) -> ModelProto:
    """Return a copy of everything but the contents of the graph."""
    part = ModelProto(ir_version=model.ir_version, model_version=model.model_version, domain=model.domain)
    part.producer_name, part.producer_version = model.producer_name, model.producer_version
    part.opset_import.extend(model.opset_import)
    part.metadata_props.extend(model.metadata_props)
    part.functions.extend(model.functions)
    part.graph.name = model.graph.name
    return part


def drop_unused_imports(model: ModelProto) -> ModelProto:
    """Remove, in place, local functions that no node calls, and imports of domains without a node."""
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    called: dict[tuple[str, str, str], FunctionProto] = {}
    waiting = list(model.graph.node)
    domains = set()
    while waiting:
        node = waiting.pop()
        key = (node.domain, node.op_type, node.overload)
        domains.add(node.domain)
        for graph in subgraphs(node):
            waiting += graph.node
        if key in functions and key not in called:
            called[key] = functions[key]
            waiting += functions[key].node
    used = [each for each in model.functions if (each.domain, each.name, each.overload) in called]
    del model.functions[:]
    model.functions.extend(used)
    imports = [each for each in model.opset_import if each.domain in ("", "ai.onnx") or each.domain in domains]
    del model.opset_import[:]
    model.opset_import.extend(imports)
    return model


def with_stored_constants(model: ModelProto) -> ModelProto | None:
    """Return the model in which the tensors of Constant nodes are initializers; None if there are no such nodes."""
    changed = ModelProto()
    changed.CopyFrom(model)
    outputs = {info.name for info in model.graph.output}
    nodes = []
    for node in changed.graph.node:
        is_tensor = node.op_type == "Constant" and [attribute.name for attribute in node.attribute] == ["value"]
        if not is_tensor or node.domain not in ("", "ai.onnx") or node.output[0] in outputs:
            nodes.append(node)
            continue
        tensor = changed.graph.initializer.add()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = node.output[0]
    if len(nodes) == len(changed.graph.node):
        return None
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def bypass(model: ModelProto, index: int, infos: Infos) -> ModelProto | None:
    """Return the model without a node whose users get its first operand of the same type instead of its result.

    Returns:
        None if the node has several results, or no such operand.

    """
    node = model.graph.node[index]
    results = [name for name in node.output if name]
    if len(results) != 1 or results[0] not in infos or any(info.name == results[0] for info in model.graph.output):
        return None
    constants = {tensor.name for tensor in initializers(model.graph)}
    operands = [name for name in node.input if name and name not in constants and infos.get(name) == infos[results[0]]]
    return None if not operands else _without(model, index, results[0], operands[0])


def _without(model: ModelProto, index: int, result: str, operand: str) -> ModelProto:
    changed = ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[index]
    for node in changed.graph.node:
        rename_reads(node, {result: operand})
    keep_used_constants(changed.graph)
    return drop_unused_imports(changed)


def rename_reads(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename, in place, tensors that a node and its subgraphs use."""
    for position, name in enumerate(node.input):
        if name in names:
            node.input[position] = names[name]
    for graph in subgraphs(node):
        for inner in graph.node:
            rename_reads(inner, names)
        for info in graph.output:
            info.name = names.get(info.name, info.name)


def keep_used_constants(graph: GraphProto) -> None:
    """Remove, in place, initializers and inputs that no node uses."""
    used = {name for node in graph.node for name in reads_of(node)} | {info.name for info in graph.output}
    constants = [each for each in graph.initializer if each.name in used]
    del graph.initializer[:]
    graph.initializer.extend(constants)
    inputs = [each for each in graph.input if each.name in used]
    del graph.input[:]
    graph.input.extend(inputs)
    sparse = [each for each in graph.sparse_initializer if each.values.name in used]
    del graph.sparse_initializer[:]
    graph.sparse_initializer.extend(sparse)


def with_outputs(model: ModelProto, names: Collection[str], infos: Infos) -> ModelProto | None:
    """Return the model with some of its outputs, and only the nodes that they depend on."""
    part = extract(model, needed_nodes(node_links(model), names), infos)
    if part is None:
        return None
    outputs = [info for info in model.graph.output if info.name in names]
    own_outputs = {info.name for info in model.graph.output}
    outputs += [ValueInfoProto(name=name) for name in names if name not in own_outputs]
    del part.graph.output[:]
    part.graph.output.extend(outputs)
    return part


def without_attribute(model: ModelProto, index: int, name: str) -> ModelProto:
    """Return the model in which an attribute of a node has its default."""
    changed = ModelProto()
    changed.CopyFrom(model)
    node = changed.graph.node[index]
    attributes = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(attributes)
    return changed


def without_input(model: ModelProto, index: int, position: int) -> ModelProto:
    """Return the model in which an optional operand of a node is absent."""
    changed = ModelProto()
    changed.CopyFrom(model)
    node = changed.graph.node[index]
    node.input[position] = ""
    while node.input and not node.input[-1]:
        del node.input[-1]
    keep_used_constants(changed.graph)
    return changed
