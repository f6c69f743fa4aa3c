"""Columns of the nodes in the data of the report, and the values of tensors in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypedDict

from tpuconvert.model.description import Description
from tpuconvert.operators.attribute_text import short_lists
from tpuconvert.report.compiled_cycles import KEY
from tpuconvert.report.rounding import round_number
from tpuconvert.schema.types import DType

Columns = dict[str, list[Any]]

Scale: TypeAlias = Annotated[
    float | list[float] | None, "per tensor: the scale; per channel: [lowest, highest, number of scales, axis]"
]
ZeroPoint: TypeAlias = Annotated[int | list[int] | None, "per channel: [lowest, highest] if they differ"]
ValueRange: TypeAlias = Annotated[tuple[float, float] | None, "[lowest, highest] value that the integers represent"]


class PortData(TypedDict):
    """An input or output of the graph."""

    name: str
    dtype: str
    shape: list[int | str]
    scale: Scale
    zero_point: ZeroPoint


class ResultData(PortData):
    """A result of a node after the first one."""

    range: ValueRange


class NodeColumns(TypedDict, total=False):
    """One entry per node in each column. Columns without any value are absent."""

    name: Annotated[list[str], "name of the first result, unique in the model"]
    op: Annotated[list[str], "operator"]
    parameters: Annotated[list[str | None], "attributes of the operator; of long lists the length and range"]
    dtype: Annotated[list[str], "element type of the first result"]
    shape: Annotated[list[list[int | str]], "shape of the first result; a symbolic extent is a name"]
    scale: Annotated[list[Scale], "scale of the first result"]
    zero_point: Annotated[list[ZeroPoint], "zero point of the first result"]
    range: Annotated[list[ValueRange], "values that the first result can represent; null for floats and accumulators"]
    constants: Annotated[list[list[str] | None], "types of the constant operands"]
    sources: Annotated[list[list[str] | None], "operator and name of the source nodes"]
    rules: Annotated[list[list[str] | None], "rewrite rules that the node comes from, the earliest first"]
    keep_float: Annotated[list[str | None], "name by which --keep-float selects the float node of an integer node"]
    macs: Annotated[list[int | None], "multiply-accumulates; null if extents are unknown"]
    bytes: Annotated[list[int | None], "global-memory traffic of the node alone"]
    seconds: Annotated[list[float], "least time on the chip, of the node alone"]
    compute_cycles: Annotated[list[int | None], "cycles that compute, estimate of the vendor's compiler"]
    transfer_cycles: Annotated[list[int | None], "cycles that transfer; the compiler overlaps them"]
    live_bytes: Annotated[list[int], "bytes of tensors that are live while the node runs"]
    group: Annotated[list[int | None], "index in groups"]
    stage: Annotated[list[str | None], "stage that introduced the difference from the source; same without one"]
    sqnr: Annotated[list[float | None], "SQNR of the first result against the source, in dB; null without difference"]
    cosine: Annotated[list[float | None], "cosine similarity to the tensor of the source"]
    max_difference: Annotated[list[float | None], "largest difference from the tensor of the source"]
    relative_difference: Annotated[list[float | None], "largest difference as a share of the range"]
    noise_added: Annotated[list[float | None], "noise that the step adds, as a share of the power of the tensor"]
    clipped: Annotated[list[float | None], "share of the values beyond the largest integer"]
    integers: Annotated[list[int | None], "number of integers compared with a quantized source"]
    different: Annotated[list[int | None], "number of integers that differ"]
    steps: Annotated[list[int | None], "largest difference of integers"]
    not_finite: Annotated[list[int | None], "number of elements that are NaN or infinite"]
    isolated: Annotated[list[float | None], "SQNR at the outputs if only this node is in integers, in dB"]
    isolated_cosine: Annotated[list[float | None], "cosine similarity at the outputs if only this node is in integers"]
    flips: Annotated[list[float | None], "share of the classes that change if only this node is in integers"]
    weights_only: Annotated[list[float | None], "SQNR for the error of weights and integer arithmetic, in dB"]
    activations_only: Annotated[list[float | None], "SQNR for the error of quantized operands, in dB"]
    accumulated: Annotated[list[float | None], "SQNR of the result in the model, in dB"]
    cause: Annotated[list[str | None], "weights or activations: the larger part of the error"]
    fix: Annotated[list[str | None], "options of convert that remove the larger part of the error"]


_SCALE_DIGITS = 7
"""Significant digits of a scale: the bits of float32."""

_ACTIVATION_BITS = 16
"""Widest integer type, in bits, that has a range. Wider integers are accumulators."""

_NODE_COLUMNS: dict[str, Callable[[Description, Mapping[str, str]], Any]] = {
    "name": lambda layer, _: layer["name"],
    "op": lambda layer, _: layer["op"],
    "parameters": lambda layer, _: short_lists(layer["parameters"]) or None,
    "dtype": lambda layer, _: _result(layer)["dtype"],
    "shape": lambda layer, _: _result(layer)["shape"],
    "scale": lambda layer, _: _scale(_result(layer)["quantization"]),
    "zero_point": lambda layer, _: _zero_point(_result(layer)["quantization"]),
    "range": lambda layer, _: _range(_result(layer)),
    "constants": lambda layer, texts: [texts[name] for name in layer["inputs"] if name in texts] or None,
    "sources": lambda layer, _: [source.split(": ", 1)[-1] for source in layer["sources"]] or None,
    "rules": lambda layer, _: layer.get("rules") or None,
    "keep_float": lambda layer, _: layer.get("keep_float") or None,
}
"""Column -> its entry for a layer of the description and the texts of the constants by their names."""

_COST_COLUMNS = ("macs", "bytes", "seconds", "group")

_COMPILED_COLUMNS = {"compute_cycles": "compute", "transfer_cycles": "transfer"}
"""Column -> key of the cycles of a compiled program."""

_MEMORY_COLUMN = "live_bytes"

_VERIFICATION_COLUMNS = {
    "stage": "stage",
    "sqnr": "sqnr_db",
    "cosine": "cosine",
    "max_difference": "max_absolute",
    "relative_difference": "relative",
    "noise_added": "noise_added",
    "clipped": "clipped",
    "integers": "integers",
    "different": "different",
    "steps": "steps",
    "not_finite": "not_finite",
}
"""Column -> key of a compared tensor."""


_ATTRIBUTION_COLUMNS: dict[str, Callable[[Description], Any]] = {
    "isolated": lambda node: round_number(node["isolated"]["sqnr_db"]),
    "isolated_cosine": lambda node: round_number(node["isolated"]["cosine"], 7),
    "flips": lambda node: round_number(node["isolated"]["flips"]),
    "weights_only": lambda node: round_number(node["from_weights"]["sqnr_db"]),
    "activations_only": lambda node: round_number(node["from_activations"]["sqnr_db"]),
    "accumulated": lambda node: round_number(node["accumulated_sqnr_db"]),
    "cause": lambda node: node["cause"],
    "fix": lambda node: node["rule"],
}
"""Column -> its entry for a node of the attribution."""

COLUMNS = (
    *_NODE_COLUMNS,
    *_COST_COLUMNS,
    *_COMPILED_COLUMNS,
    _MEMORY_COLUMN,
    *_VERIFICATION_COLUMNS,
    *_ATTRIBUTION_COLUMNS,
)
"""Names of all columns; a report has those with a value."""


def node_columns(description: Description, indices: Mapping[str, int]) -> Columns:
    """Return the columns of the nodes, without those that have no value.

    Args:
        description: the description of a model.
        indices: name of a tensor -> index of its node.

    """
    columns = _node_columns(description)
    columns |= _verification_columns(description, indices)
    columns |= _attribution_columns(description, indices)
    return {name: column for name, column in columns.items() if any(entry is not None for entry in column)}


def _node_columns(description: Description) -> Columns:
    layers, texts = description["layers"], description.get("constants", {})
    columns: Columns = {name: [entry(layer, texts) for layer in layers] for name, entry in _NODE_COLUMNS.items()}
    if "cost" in description:
        costs = description["cost"]["layers"]
        columns |= {name: [round_number(cost[name], 3) for cost in costs] for name in _COST_COLUMNS}
    if KEY in description:
        columns |= {name: description[KEY][key] for name, key in _COMPILED_COLUMNS.items()}
    if description.get("memory"):
        columns[_MEMORY_COLUMN] = description["memory"][_MEMORY_COLUMN]
    return columns


def _result(layer: Description) -> Description:
    first: Description = layer["outputs"][0]
    return first


def _verification_columns(description: Description, indices: Mapping[str, int]) -> Columns:
    verification = description.get("verification")
    if not verification:
        return {}
    is_first = {layer["name"] for layer in description["layers"]}
    columns: Columns = {name: [None] * len(description["layers"]) for name in _VERIFICATION_COLUMNS}
    has_integers = verification["exactness"] is not None
    for entry in verification["layers"]:
        if entry["name"] not in is_first:
            continue
        for name, key in _VERIFICATION_COLUMNS.items():
            columns[name][indices[entry["name"]]] = round_number(entry[key])
    for name in ("integers", "different", "steps"):
        if not has_integers:
            del columns[name]
    if not any(columns["not_finite"]):
        del columns["not_finite"]
    if not verification["is_quantized"]:
        del columns["noise_added"], columns["clipped"]
    return columns


def _attribution_columns(description: Description, indices: Mapping[str, int]) -> Columns:
    attribution = description.get("attribution")
    if not attribution:
        return {}
    columns: Columns = {name: [None] * len(description["layers"]) for name in _ATTRIBUTION_COLUMNS}
    for node in attribution["nodes"]:
        index = indices.get(node["name"])
        if index is None:
            continue
        for name, entry in _ATTRIBUTION_COLUMNS.items():
            columns[name][index] = entry(node)
    return columns


def more_results(layers: Sequence[Description]) -> dict[str, Any]:
    """Return index -> the results of a node after the first one."""
    return {
        str(index): [
            {
                "name": value["name"],
                "dtype": value["dtype"],
                "shape": value["shape"],
                "scale": _scale(value["quantization"]),
                "zero_point": _zero_point(value["quantization"]),
                "range": _range(value),
            }
            for value in layer["outputs"][1:]
        ]
        for index, layer in enumerate(layers)
        if len(layer["outputs"]) > 1
    }


def describe_port(port: Description) -> dict[str, Any]:
    """Return an input or output of the graph."""
    quant = port["quantization"]
    return {
        "name": port["name"],
        "dtype": port["dtype"],
        "shape": port["shape"],
        "scale": _scale(quant),
        "zero_point": _zero_point(quant),
    }


def _scale(quant: Description | None) -> Any:
    """Return the scale; for per-channel scales the lowest, the highest, their number and the axis."""
    if quant is None:
        return None
    scales = [round_number(scale, _SCALE_DIGITS) for scale in quant["scale"]]
    return scales[0] if quant["axis"] is None else [min(scales), max(scales), len(scales), quant["axis"]]


def _zero_point(quant: Description | None) -> Any:
    """Return the zero point; the lowest and the highest if channels differ."""
    if quant is None:
        return None
    zeros = sorted(set(quant["zero_point"]))
    return zeros[0] if len(zeros) == 1 else [zeros[0], zeros[-1]]


def _range(value: Description) -> list[Any] | None:
    """Return the lowest and the highest value that the integers of a tensor represent; None for accumulators."""
    bounds = _value_range(value)
    return None if bounds is None else [round_number(bounds[0], 4), round_number(bounds[1], 4)]


def _value_range(value: Description) -> tuple[float, float] | None:
    """Return the lowest and the highest dequantized value of an integer tensor; None for accumulators and floats."""
    quant = value["quantization"]
    if quant is None or DType(value["dtype"]).bits > _ACTIVATION_BITS:
        return None
    pairs = list(zip(quant["scale"], quant["zero_point"], strict=True))
    dtype = DType(quant["dtype"])
    return min((dtype.min - zero) * scale for scale, zero in pairs), max(
        (dtype.max - zero) * scale for scale, zero in pairs
    )
