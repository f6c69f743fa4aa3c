"""Engines that run model files, with one thread: ONNX Runtime, LiteRT and OpenVINO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.accuracy.trained.decoders import Outputs
from tools.accuracy.trained.samples import Feed
from tpuconvert.schema.types import Array

Run = Callable[[Feed], Outputs]
"""Function that runs a model on one sample."""


def open_onnxruntime(path: Path) -> Run:
    """Open an ONNX file."""
    import onnxruntime  # optional: the extra 'bench'

    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(None, feed), strict=True))


def open_litert(path: Path, source: Path | None = None, shapes: Mapping[str, Sequence[int]] | None = None) -> Run:
    """Open a TFLite file. Inputs and outputs that are quantized are converted from and to float.

    Args:
        path: the file.
        source: file whose names of inputs and outputs, in the same order, are used for this file.
        shapes: shapes of the inputs, where the file has dynamic extents.
    """
    from ai_edge_litert.interpreter import Interpreter  # optional: the extra 'bench'

    inputs, outputs = litert_names(source or path)
    interpreter = Interpreter(str(path), num_threads=1)
    for name, detail in zip(inputs, interpreter.get_input_details(), strict=True):
        if shapes and name in shapes:
            interpreter.resize_tensor_input(detail["index"], list(shapes[name]))
    interpreter.allocate_tensors()
    ports, results = interpreter.get_input_details(), interpreter.get_output_details()

    def run(feed: Feed) -> Outputs:
        for name, detail in zip(inputs, ports, strict=True):
            interpreter.set_tensor(detail["index"], _to_integers(feed[name], detail))
        interpreter.invoke()
        arrays = [_to_floats(interpreter.get_tensor(detail["index"]), detail) for detail in results]
        return dict(zip(outputs, arrays, strict=True))

    return run


def litert_names(path: Path) -> tuple[list[str], list[str]]:
    """Return the names of the inputs and outputs of a TFLite file: the names of its signature, if it has one."""
    from ai_edge_litert.interpreter import Interpreter  # optional: the extra 'bench'

    interpreter = Interpreter(str(path))
    inputs = {detail["index"]: detail["name"] for detail in interpreter.get_input_details()}
    outputs = {detail["index"]: detail["name"] for detail in interpreter.get_output_details()}
    for key in interpreter.get_signature_list():
        runner = interpreter.get_signature_runner(key)
        inputs |= {detail["index"]: name for name, detail in runner.get_input_details().items()}
        outputs |= {detail["index"]: name for name, detail in runner.get_output_details().items()}
    return list(inputs.values()), list(outputs.values())


def open_openvino(path: Path, outputs: Sequence[str]) -> Run:
    """Open a file of OpenVINO.

    Args:
        path: the file.
        outputs: names of its outputs, in their order.
    """
    import openvino  # optional: the extra 'bench'

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = openvino.Core().compile_model(path, "CPU", settings)

    def run(feed: Feed) -> Outputs:
        results = compiled(feed)
        return {name: np.array(results[index]) for index, name in enumerate(outputs)}

    return run


def _to_integers(x: Array, detail: Mapping[str, Any]) -> Array:
    """Quantize an input, if the model has a quantized one."""
    if not np.issubdtype(detail["dtype"], np.integer) or not detail["quantization"][0]:
        return x
    scale, zero_point = detail["quantization"]
    limits = np.iinfo(detail["dtype"])
    stored: Array = np.clip(np.rint(x / scale) + zero_point, limits.min, limits.max).astype(detail["dtype"])
    return stored


def _to_floats(q: Array, detail: Mapping[str, Any]) -> Array:
    scale, zero_point = detail["quantization"]
    if not np.issubdtype(q.dtype, np.integer) or not scale:
        return q.copy()
    return (q.astype(np.float32) - np.float32(zero_point)) * np.float32(scale)
