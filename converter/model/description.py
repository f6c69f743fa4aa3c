"""Description of a model as plain values; its inputs and outputs as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias, TypedDict

from tpuconvert.model.conversion_record import KEY, Convergence, TensorStatistics, read_record
from tpuconvert.model.float_names import float_names
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.control_flow import all_graphs, subgraphs_of
from tpuconvert.schema.graph.cost import total_macs
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import Array, Chip, QuantParams, format_shape

Description: TypeAlias = "Mapping[str, Any]"
"""Description of a model or of a part of it, as plain values; the classes below have the keys."""

Shape: TypeAlias = Annotated[list[int | str], "an extent that is open has a name"]


class QuantDescription(TypedDict):
    """Quantization parameters: real = (q - zero_point) * scale."""

    scale: list[float]
    zero_point: list[int]
    dtype: str
    axis: Annotated[int | None, "of the channels, where each has a scale of its own"]


class TensorDescription(TypedDict):
    """An input, an output or a result of a node."""

    name: str
    dtype: str
    shape: Shape
    quantization: QuantDescription | None


class NoteDescription(TypedDict):
    """A note of the conversion, or of the frontend about a source."""

    kind: str
    node: str
    message: str


class SubgraphDescription(TypedDict):
    """A subgraph that the host executes."""

    node: Annotated[str, "name of the node that has the subgraph"]
    parameter: Annotated[str, "body, then_branch or else_branch"]
    nodes: int
    macs: Annotated[int | None, "multiply-accumulates of one run of the subgraph; no value if it depends on extents"]
    operators: dict[str, int]


class LayerDescription(TypedDict):
    """A node."""

    index: int
    name: str
    op: str
    parameters: str
    inputs: list[str | None]
    outputs: list[TensorDescription]
    sources: list[str]
    rules: Annotated[list[str], "names of the rewrite rules that the node comes from, the earliest first"]
    keep_float: Annotated[str | None, "name by which --keep-float selects the float node of an integer node"]


class GraphNumbers(TypedDict):
    """Numbers of a graph."""

    nodes: int
    operators: dict[str, int]
    conversions: Annotated[int, "nodes that turn integers into floats or floats into integers"]
    constant_bytes: Annotated[int, "bytes of all constants"]


class GraphDescription(GraphNumbers):
    """A graph: a source model as it is before the conversion."""

    name: str
    file: str
    metadata: dict[str, Any]
    notes: list[NoteDescription]
    inputs: list[TensorDescription]
    outputs: list[TensorDescription]
    input_values: Annotated[list[str], "names of the tensors of the inputs, as the operands of the nodes have them"]
    output_values: Annotated[list[str], "names of the tensors of the outputs, as the results of the nodes have them"]
    arithmetic: Annotated[dict[str, int], "number of nodes by element type of the first result"]
    subgraphs: Annotated[list[SubgraphDescription], "of control-flow operators, each after its node"]
    parameters: int
    layers: list[LayerDescription]


class ConversionSettings(TypedDict):
    """Settings of a conversion."""

    tool_version: str
    chip: Annotated[str, Chip]
    quantize: Annotated[str, "int8 or none"]
    preprocessing: dict[str, Any]
    plugins: list[str]
    transposes: Annotated[int, "transposes that are left"]


class ModelDescription(GraphDescription, ConversionSettings):
    """A converted model."""

    histograms: Annotated[dict[str, Any], dict[str, TensorStatistics], "calibration by name of an integer tensor"]
    convergence: Annotated[dict[str, Any] | None, Convergence | None]
    verification: dict[str, Any] | None


def describe_model(
    content: FileModel, verification: Mapping[str, Any] | None = None, *, layers: bool = True
) -> ModelDescription:
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
        "histograms": {name: statistics.to_dict() for name, statistics in record.tensors.items()} if layers else {},
        "convergence": record.convergence.to_dict() if record.convergence is not None else None,
        "verification": None if verification is None else dict(verification),
    }


def describe_graph(graph: Graph, *, layers: bool = True) -> GraphDescription:
    """Return the part of a description that depends on the graph only. Arguments as for ``describe_model``."""
    constants = [value.data for each in all_graphs(graph) for value in each.values if value.data is not None]
    return {
        "name": graph.name,
        "file": graph.file,
        "metadata": graph.metadata,
        "notes": [{"kind": "source", "node": "", "message": note} for note in graph.notes],
        "inputs": [_tensor(port.name, port.dtype, port.shape, port.quant) for port in graph.input_ports],
        "outputs": [_tensor(port.name, port.dtype, port.shape, port.quant) for port in graph.output_ports],
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
                "outputs": [_tensor(value.name, value.dtype.value, value.shape, value.quant) for value in node.outputs],
                "sources": [str(source) for source in node.sources],
                "rules": list(node.rules),
                "keep_float": None,
            }
            for index, node in enumerate(graph.nodes if layers else ())
        ],
    }


def _subgraphs(graph: Graph) -> list[SubgraphDescription]:
    """Describe the subgraphs that the host executes, each before those inside it."""
    descriptions: list[SubgraphDescription] = []
    for node in graph.nodes:
        for name, subgraph in subgraphs_of(node.op).items():
            inner = subgraph.graph
            descriptions.append(
                {
                    "node": node.name,
                    "parameter": name,
                    "nodes": len(inner),
                    "macs": total_macs(inner.nodes),
                    "operators": dict(sorted(Counter(each.op.name for each in inner.nodes).items())),
                }
            )
            descriptions += _subgraphs(inner)
    return descriptions


def _tensor(name: str, dtype: str, shape: Iterable[int | str], quant: QuantParams | None) -> TensorDescription:
    return {"name": name, "dtype": dtype, "shape": list(shape), "quantization": _quant(quant)}


def _quant(quant: QuantParams | None) -> QuantDescription | None:
    if quant is None:
        return None
    return {
        "scale": list(quant.scale),
        "zero_point": list(quant.zero_point),
        "dtype": quant.dtype.value,
        "axis": quant.axis,
    }


def _arithmetic(outputs: Iterable[Value]) -> str:
    """Return the data type in which a node computes: the type of its first result."""
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
