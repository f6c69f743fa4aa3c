"""INT8 with ai-edge-quantizer, LiteRT's quantizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.frontends.tflite.file.reader import read_model
from tpuconvert.schema.types import Array

_SIGNATURE = "serving_default"


def quantize_litert(source: Path, target: Path, samples: Sequence[Array], *, weights: str) -> None:
    """Quantize a TFLite file: static, INT8 weights per channel, INT8 activations with min-max ranges.

    Args:
        source: a float file with one input.
        target: the file to write.
        samples: calibration samples.
        weights: name of the algorithm for the weights.
    """
    from ai_edge_quantizer import quantizer, recipe

    content, name = prepare_file(source)
    tool = quantizer.Quantizer(content, recipe.static_wi8_ai8(recipe.AlgorithmName[weights]))
    ranges = tool.calibrate({_SIGNATURE: [{name: sample} for sample in samples]})
    tool.quantize(ranges).export_model(str(target), overwrite=True)


def prepare_file(source: Path) -> tuple[bytes, str]:
    """Return a TFLite file with folded constants and a signature, as the quantizer needs it, and its input's name."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(source.read_bytes(), 0)
    _fold_constants(schema, model, source)
    graph = model.subgraphs[0]
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = _SIGNATURE, 0
    signature.inputs = [_tensor_map(schema, f"input_{index}", tensor) for index, tensor in enumerate(graph.inputs)]
    signature.outputs = [_tensor_map(schema, f"output_{index}", tensor) for index, tensor in enumerate(graph.outputs)]
    model.signatureDefs = [signature]
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output()), "input_0"


def _fold_constants(schema: Any, model: Any, source: Path) -> None:
    """Replace the DENSIFY and DEQUANTIZE nodes of FLOAT16 constants by constants: the quantizer does not fold them.

    Files of old schemas have the operators in a field that it does not read; this is changed too.
    """
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    graph, file = model.subgraphs[0], read_model(source)
    stored = file.subgraphs[0].tensors
    arrays = {tensor.index: file.data(tensor) for tensor in stored if tensor.type == "FLOAT16"}
    kinds = {schema.BuiltinOperator.DENSIFY, schema.BuiltinOperator.DEQUANTIZE}
    remaining = []
    for node in graph.operators:
        array = arrays.get(node.inputs[0])
        if model.operatorCodes[node.opcodeIndex].builtinCode not in kinds or array is None:
            remaining.append(node)
            continue
        arrays[node.outputs[0]] = array
        tensor = graph.tensors[node.outputs[0]]
        dtype = np.float16 if tensor.type == schema.TensorType.FLOAT16 else np.float32
        values, tensor.buffer = schema.BufferT(), len(model.buffers)
        values.data = np.frombuffer(array.astype(dtype).tobytes(), np.uint8)
        model.buffers.append(values)
    graph.operators = remaining


def _tensor_map(schema: Any, name: str, tensor: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, tensor
    return entry
