"""Texts of TFLite models: names of tensors and operators, descriptions and metadata."""

from __future__ import annotations

from typing import Any

import tflite

from tpuconvert.frontends.tflite.file.schema import enum_names
from tpuconvert.reduction.generic_names import GenericNames
from tpuconvert.reduction.tflite_parts import compact, has_data

_NAMES = enum_names(tflite.BuiltinOperator)


def operator_name(code: Any) -> str:
    """Name of the operator of an operator code."""
    number = max(code.deprecated_builtin_code, code.builtin_code)
    name = _NAMES.get(number, f"operator {number}")
    return f"{name}:{code.custom_code or ''}" if name == "CUSTOM" else name


def without_metadata(model: Any) -> Any:
    """Return the model without metadata and their buffers."""
    return compact(model._replace(metadata=()))


def without_descriptions(model: Any) -> Any:
    """Return the model without description, metadata, debug information, and ranges of a calibration."""
    subgraphs = []
    for subgraph in model.subgraphs:
        tensors = [
            tensor
            if tensor.quantization is None
            else tensor._replace(quantization=tensor.quantization._replace(min=(), max=()))
            for tensor in subgraph.tensors
        ]
        operators = [operator._replace(debug_metadata_index=-1) for operator in subgraph.operators]
        subgraphs.append(subgraph._replace(tensors=tuple(tensors), operators=tuple(operators), debug_metadata_index=-1))
    return without_metadata(model._replace(description=None, subgraphs=tuple(subgraphs)))


def with_generic_names(model: Any, *, keep_ports: bool = False) -> Any:
    """Return the model with generic names of tensors, and subgraphs without names."""
    main = model.subgraphs[0]
    ports = [main.tensors[index].name for index in (*main.inputs, *main.outputs)] if keep_ports else []
    names = GenericNames(ports)
    subgraphs = []
    for number, subgraph in enumerate(model.subgraphs):
        inputs, outputs = set(subgraph.inputs), set(subgraph.outputs)
        tensors = []
        for index, tensor in enumerate(subgraph.tensors):
            is_port = number == 0
            letter = "x" if is_port and index in inputs else "y" if is_port and index in outputs else "t"
            letter = "c" if letter == "t" and has_data(model, tensor) else letter
            key = tensor.name if is_port else f"{number}/{tensor.name}"
            tensors.append(tensor._replace(name=names.tensor(key, letter)))
        subgraphs.append(subgraph._replace(tensors=tuple(tensors), name=None))
    return model._replace(subgraphs=tuple(subgraphs))


def identifying_texts(model: Any) -> list[str]:
    """Custom operators with the size of their options, texts in options, and names of metadata."""
    texts: dict[str, None] = {}
    for subgraph in model.subgraphs:
        for operator in subgraph.operators:
            name = operator_name(model.operator_codes[operator.opcode_index])
            if name.startswith("CUSTOM:"):
                size = len(operator.custom_options)
                texts[f"{name} with {size} bytes of options" if size else name] = None
            for options in (operator.builtin_options, operator.builtin_options2):
                for field in () if options is None else options._fields:
                    text = getattr(options, field)
                    if isinstance(text, str) and text:
                        texts[f"{field}={text}"] = None
    for entry in model.metadata:
        texts[f"metadata {entry.name or ''}"] = None
    return list(texts)
