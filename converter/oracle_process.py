"""The process that another engine runs in: ``python -m tpuconvert.oracle_process ENGINE SOURCE FOLDER``.

It reads ``feed0.npz`` ... of the folder (``names`` of the inputs, and ``in0`` ... for them) and writes ``result0.npz``
... (``names`` of tensors, and ``out0`` ...). It imports nothing of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
Runner = Callable[[Arrays], Arrays]


def onnxruntime_runner(source: str) -> Runner:
    """Every tensor of the main graph is an output; nothing is optimized, so that all of them exist."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    model = onnx.load(source)
    known = {item.name for item in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name and name not in known]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception:  # sequences, sizes beyond protobuf's: the outputs alone can be compared then
        session = onnxruntime.InferenceSession(source, options, providers=providers)
    names = [item.name for item in session.get_outputs()]

    def run(feed: Arrays) -> Arrays:
        return dict(zip(names, session.run(names, feed), strict=True))

    return run


def litert_runner(source: str) -> Runner:
    """The reference kernels; tensors between operators are kept."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        source,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )

    def run(feed: Arrays) -> Arrays:
        details = interpreter.get_input_details()
        inputs = {item["name"]: item["index"] for item in details}
        if inputs.keys() != feed.keys():  # named after a signature; the order is the same
            inputs = {name: item["index"] for name, item in zip(feed, details, strict=True)}
        for name, array in feed.items():
            interpreter.resize_tensor_input(inputs[name], array.shape)
        interpreter.allocate_tensors()
        for name, array in feed.items():
            interpreter.set_tensor(inputs[name], array)
        interpreter.invoke()
        found: Arrays = {}
        for item in interpreter.get_tensor_details():
            try:
                found[item["name"]] = _real(interpreter.get_tensor(item["index"]), item)
            except ValueError:  # a tensor without data, such as an optional one
                continue
        return found

    return run


def _real(array: Any, item: dict[str, Any]) -> Any:
    """Integers as what they stand for."""
    scales = item["quantization_parameters"]["scales"]
    if array.dtype.kind not in "iu" or not len(scales):
        return array
    zeros, axis = item["quantization_parameters"]["zero_points"], item["quantization_parameters"]["quantized_dimension"]
    shape = [-1 if len(scales) > 1 and k == axis else 1 for k in range(array.ndim)]
    return (array.astype(np.float64) - zeros.reshape(shape)) * scales.reshape(shape)


RUNNERS = {"onnxruntime": onnxruntime_runner, "litert": litert_runner}


def main(engine: str, source: str, folder: str) -> None:
    """Run all feeds of a folder."""
    run = RUNNERS[engine](source)
    for path in sorted(Path(folder).glob("feed*.npz")):
        with np.load(path) as given:
            feed = {str(name): given[f"in{k}"] for k, name in enumerate(given["names"])}
        found = {name: array for name, array in run(feed).items() if isinstance(array, np.ndarray)}
        found = {name: array for name, array in found.items() if array.dtype.kind in "fiub"}
        arrays = {f"out{k}": array for k, array in enumerate(found.values())}
        np.savez(path.with_name(path.name.replace("feed", "result")), names=np.array(list(found)), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
