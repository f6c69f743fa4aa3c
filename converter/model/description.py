"""Description of a model as plain values; its inputs and outputs as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tpuconvert.model.conversion_record import KEY, read_record
from tpuconvert.model.float_names import float_names
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.control_flow import all_graphs, subgraphs_of
from tpuconvert.schema.graph.cost import total_macs
from tpuconvert.schema.graph.graph import Graph, Node, Port, Value
from tpuconvert.schema.types import Array, QuantParams, format_shape

Description = dict[str, Any]


def describe_model(
    content: FileModel, verification: Mapping[str, Any] | None = None, *, layers: bool = True
) -> Description:
    """Return everything that a report shows, as plain values. Without ``layers``, the list of nodes is left out."""
    record = read_record(content.graph, content.metadata)
    graph = describe_graph(content.graph, layers=layers)
    names = float_names(content.graph) if layers and content.quantize != "none" else {}
    for layer in graph["layers"]:
        layer["rules"] = list(record.rules.get(layer["index"], ()))
        layer["keep_float"] = names.get(layer["index"])
    return {
        "tool_version": content.tool_version,
        "chip": content.chip.value,
        "quantize": content.quantize,
        "preprocessing": dict(content.preprocessing),
        "plugins": list(content.plugins),
        **graph,
        "transposes": sum(node.op.name == "permute" for node in content.graph.nodes),
        "metadata": {key: value for key, value in content.metadata.items() if key != KEY},
        "notes": [{"kind": note.kind, "node": note.node, "message": note.message} for note in content.notes],
        "histograms": {name: found.to_dict() for name, found in record.tensors.items()} if layers else {},
        "convergence": record.convergence.to_dict() if record.convergence is not None else None,
        "verification": None if verification is None else dict(verification),
    }


def describe_graph(graph: Graph, *, layers: bool = True) -> Description:
    """Return the part of a description that depends on the graph only. Arguments as for ``describe_model``."""
    constants = [value.data for each in all_graphs(graph) for value in each.values if value.data is not None]
    return {
        "name": graph.name,
        "file": graph.file,
        "metadata": graph.metadata,
        "notes": [{"kind": "source", "node": "", "message": note} for note in graph.notes],
        "inputs": [_port(port) for port in graph.input_ports],
        "outputs": [_port(port) for port in graph.output_ports],
        "input_values": [value.name for value in graph.inputs],
        "output_values": [value.name for value in graph.outputs],
        "nodes": len(graph),
        "operators": dict(sorted(Counter(node.op.name for node in graph.nodes).items())),
        "arithmetic": dict(sorted(Counter(_arithmetic(node.outputs) for node in graph.nodes).items())),
        "conversions": sum(_changes_arithmetic(node) for node in graph.nodes),
        "subgraphs": _subgraphs(graph),
        "constant_bytes": _stored_bytes(constants),
        "parameters": sum(array.size for array in constants),
        "layers": [
            {
                "index": index,
                "name": node.name,
                "op": node.op.name,
                "parameters": str(node.op).removeprefix(node.op.name).strip("()"),
                "inputs": [None if value is None else value.name for value in node.inputs],
                "outputs": [_value(value) for value in node.outputs],
                "sources": [str(source) for source in node.sources],
                "rules": list(node.rules),
                "keep_float": None,
            }
            for index, node in enumerate(graph.nodes if layers else ())
        ],
    }


def _subgraphs(graph: Graph) -> list[Description]:
    """Describe the subgraphs that the host executes, each before those inside it."""
    found = []
    for node in graph.nodes:
        for name, subgraph in subgraphs_of(node.op).items():
            inner = subgraph.graph
            found.append(
                {
                    "node": node.name,
                    "parameter": name,
                    "nodes": len(inner),
                    "macs": total_macs(inner.nodes),
                    "operators": dict(sorted(Counter(each.op.name for each in inner.nodes).items())),
                }
            )
            found += _subgraphs(inner)
    return found


def _port(port: Port) -> Description:
    return {"name": port.name, "dtype": port.dtype, "shape": list(port.shape), "quantization": _quant(port.quant)}


def _value(value: Value) -> Description:
    return {
        "name": value.name,
        "dtype": value.dtype.value,
        "shape": list(value.shape),
        "quantization": _quant(value.quant),
    }


def _quant(quant: QuantParams | None) -> Description | None:
    if quant is None:
        return None
    return {
        "scale": list(quant.scale),
        "zero_point": list(quant.zero_point),
        "dtype": quant.dtype.value,
        "axis": quant.axis,
    }


def _arithmetic(outputs: Iterable[Value]) -> str:
    """Return the data type in which a node computes: that of its first result."""
    return next(iter(outputs)).dtype.value


def _changes_arithmetic(node: Node) -> bool:
    """Return True if a node only quantizes or dequantizes."""
    x, y = node.inputs[0] if node.inputs else None, node.outputs[0]
    is_conversion = node.op.name == "cast" or "quant" in node.op.name
    return is_conversion and x is not None and x.dtype.is_float != y.dtype.is_float


def port_text(port: Description) -> str:
    """Return an input or output of a model as text."""
    quant = scale_text(port["quantization"])
    return f"{port['name']}  {port['dtype']}{format_shape(port['shape'])}" + (f"  {quant}" if quant != "-" else "")


def scale_text(quant: Description | None) -> str:
    """Return scale and zero point as text; for per-channel scales, their range."""
    if quant is None:
        return "-"
    if quant["axis"] is not None:
        low, high = min(quant["scale"]), max(quant["scale"])
        return f"{low:.4g} to {high:.4g} ({len(quant['scale'])} on axis {quant['axis']})"
    zero = quant["zero_point"][0]
    return f"{quant['scale'][0]:.6g}" + (f", zero {zero}" if zero else "")


def _stored_bytes(constants: Iterable[Array]) -> int:
    """Size of constants in bytes. An array that several nodes share counts once, as in the file."""
    sizes = {(array.__array_interface__["data"][0], array.nbytes): array.nbytes for array in constants}
    return sum(sizes.values())
