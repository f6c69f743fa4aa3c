"""UINT8 weights of float layers, as early converters wrote them: their bytes are INT8 without zero point."""

from __future__ import annotations

import dataclasses

from tpuconvert.frontends.tflite.file.reader import Operator, Subgraph, Tensor

_LAYERS = frozenset(
    {"FULLY_CONNECTED", "CONV_2D", "SVDF", "RNN", "LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "UNIDIRECTIONAL_SEQUENCE_LSTM"}
    | {"BIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_LSTM"}
)
"""Layers whose kernels read UINT8 weights as INT8 if the activations, their first input, are FLOAT32."""

UNSIGNED_WEIGHTS = (
    "UINT8 weights with a zero point, or that another operator reads too; the TFLite kernel reads their bytes as INT8",
    "export the model with INT8 weights",
)


def has_unsigned_weights(subgraph: Subgraph, operator: Operator) -> bool:
    """Return True if a layer computes in float with quantized weights of type UINT8."""
    return any(_is_unsigned(subgraph.tensors[index]) for index in _weights(subgraph, operator))


def with_signed_weights(subgraph: Subgraph) -> Subgraph:
    """Return the subgraph with type INT8 for every UINT8 constant that only float layers read."""
    layers = {operator.index: set(_weights(subgraph, operator)) for operator in subgraph.operators}
    weights = set[int]().union(*layers.values())
    others = {index for one in subgraph.operators for index in one.inputs if index not in layers[one.index]}
    signed = weights - others - set(subgraph.outputs)
    tensors = [
        dataclasses.replace(tensor, type="INT8")
        if tensor.index in signed and _is_unsigned(tensor) and not _has_zero_point(tensor)
        else tensor
        for tensor in subgraph.tensors
    ]
    return dataclasses.replace(subgraph, tensors=tuple(tensors))


def _is_unsigned(tensor: Tensor) -> bool:
    return tensor.type == "UINT8" and tensor.quantization is not None


def _has_zero_point(tensor: Tensor) -> bool:
    return tensor.quantization is not None and any(tensor.quantization.zero_point)


def _weights(subgraph: Subgraph, operator: Operator) -> list[int]:
    """Inputs of a layer with float activations, without absent ones; none for other operators."""
    present = [index for index in operator.inputs if index >= 0]
    ends = operator.outputs if operator.name == "EMBEDDING_LOOKUP" else present if operator.name in _LAYERS else ()
    return present if ends and subgraph.tensors[ends[0]].type == "FLOAT32" else []
