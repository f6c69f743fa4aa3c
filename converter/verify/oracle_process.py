"""Process that runs another engine: ``python -m tpuconvert.verify.oracle_process ENGINE SOURCE FOLDER``.

It reads ``feed0.npz``, ``feed1.npz``, ... from the folder. ``names`` contains the names of the inputs, ``in0``,
``in1``, ... their arrays. It writes ``result0.npz``, ... with ``names`` and ``out0``, ... for all tensors. The first
``outputs`` of them are the outputs of the model. ``rounds`` is true if the engine quantizes floats internally. This
module imports nothing of this package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
Runner = Callable[[Arrays], tuple[Arrays, Arrays, bool]]
"""Function that maps inputs to outputs, other tensors, and True if the engine quantizes floats internally."""


NUMPY_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}
"""ONNX Runtime type -> NumPy type, for types whose names differ."""


def cast_input(array: Any, dtype: str, shape: Sequence[Any]) -> Any:
    """Convert a fixed input to the type and rank of the engine's input. So far it has the type of its text."""
    if array.dtype.kind in "biuf" and array.dtype != dtype:
        array = array.astype(dtype)
    return array.reshape([1] * len(shape)) if array.ndim == 0 else array


def onnxruntime_runner(source: str) -> Runner:
    """Make every tensor of the main graph an output, and disable optimizations, so that all tensors exist."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    try:
        model = onnx.load(source)
    except onnx.checker.ValidationError:  # symbolic links, as in Hugging Face's cache, are refused
        model = onnx.load(source, load_external_data=False)
    known = {item.name for item in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name and name not in known]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception:  # outputs of sequence type, or a model above the protobuf limit: compare only the model's outputs
        session = onnxruntime.InferenceSession(source, options, providers=providers)
    names = [item.name for item in session.get_outputs()]
    outputs = [item.name for item in model.graph.output if item.name in known]
    inputs = {item.name: (NUMPY_TYPES.get(item.type, item.type[7:-1]), item.shape) for item in session.get_inputs()}

    def run(feed: Arrays) -> tuple[Arrays, Arrays, bool]:
        feed = {name: cast_input(array, *inputs[name]) for name, array in feed.items() if name in inputs}
        found = dict(zip(names, session.run(names, feed), strict=True))
        return {name: found.pop(name) for name in outputs}, found, False

    return run


def litert_runner(source: str) -> Runner:
    """Use the reference kernels and keep all intermediate tensors."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        source,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )

    def run(feed: Arrays) -> tuple[Arrays, Arrays, bool]:
        details = interpreter.get_input_details()
        inputs = {item["name"]: item["index"] for item in details}
        if inputs.keys() != feed.keys():  # the feed has the names of a signature, in the same order
            inputs = {name: item["index"] for name, item in zip(feed, details, strict=True)}
        for name, array in feed.items():
            interpreter.resize_tensor_input(inputs[name], array.shape)
        interpreter.allocate_tensors()
        interpreter.reset_all_variables()  # variables start with the initial state of the file
        for name, array in feed.items():
            interpreter.set_tensor(inputs[name], array)
        interpreter.invoke()
        found: Arrays = {}
        rounds = False
        for item in interpreter.get_tensor_details():
            try:
                array = interpreter.get_tensor(item["index"])
            except ValueError:  # no data, as for an absent optional tensor
                continue
            found[item["name"]] = array
            rounds |= array.dtype == np.int8  # int8 weights: the kernels quantize activations at run time
        outputs = {item["name"]: found.pop(item["name"]) for item in interpreter.get_output_details()}
        return outputs, found, rounds

    return run


RUNNERS = {"onnxruntime": onnxruntime_runner, "litert": litert_runner}


def main(engine: str, source: str, folder: str) -> None:
    """Run all feeds of a folder."""
    run = RUNNERS[engine](source)
    for path in sorted(Path(folder).glob("feed*.npz")):
        with np.load(path) as given:
            feed = {str(name): given[f"in{k}"] for k, name in enumerate(given["names"])}
        outputs, others, rounds = run(feed)
        outputs, others = _plain(outputs), _plain(others)
        found = {**outputs, **others}
        arrays = {f"out{k}": array for k, array in enumerate(found.values())}
        target = path.with_name(path.name.replace("feed", "result"))
        np.savez(target, names=np.array(list(found)), outputs=len(outputs), rounds=rounds, **arrays)


def _plain(arrays: Arrays) -> Arrays:
    """Keep only arrays of numbers and Booleans: no sequences, no strings."""
    kept = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    return {name: array for name, array in kept.items() if array.dtype.kind in "fiub"}


if __name__ == "__main__":
    main(*sys.argv[1:])
