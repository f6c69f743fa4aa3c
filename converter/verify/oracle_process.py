"""The process that another engine runs in: ``python -m tpuconvert.verify.oracle_process ENGINE SOURCE FOLDER``.

It reads ``feed0.npz`` ... of the folder (``names`` of the inputs, and ``in0`` ... for them) and writes ``result0.npz``
... (``names`` of tensors, ``out0`` ... for them, how many of them are the model's ``outputs``, which come first, and
whether the engine ``rounds`` floats to integers internally). It imports nothing of this package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
Runner = Callable[[Arrays], tuple[Arrays, Arrays, bool]]
"""From the inputs to the outputs, the other tensors, and whether the engine rounds."""


NUMPY_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}
"""Types of ONNX Runtime whose names are not those of NumPy."""


def typed(array: Any, dtype: str, shape: Sequence[Any]) -> Any:
    """A fixed input has the type that its text has; here it gets that of the engine."""
    if array.dtype.kind in "biuf" and array.dtype != dtype:
        array = array.astype(dtype)
    return array.reshape([1] * len(shape)) if array.ndim == 0 else array


def onnxruntime_runner(source: str) -> Runner:
    """Every tensor of the main graph is an output; nothing is optimized, so that all of them exist."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    try:
        model = onnx.load(source)
    except onnx.checker.ValidationError:  # it reads no external data through links, as in Hugging Face's cache
        model = onnx.load(source, load_external_data=False)
    known = {item.name for item in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name and name not in known]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception:  # sequences, sizes beyond protobuf's: the outputs alone can be compared then
        session = onnxruntime.InferenceSession(source, options, providers=providers)
    names = [item.name for item in session.get_outputs()]
    outputs = [item.name for item in model.graph.output if item.name in known]
    inputs = {item.name: (NUMPY_TYPES.get(item.type, item.type[7:-1]), item.shape) for item in session.get_inputs()}

    def run(feed: Arrays) -> tuple[Arrays, Arrays, bool]:
        feed = {name: typed(array, *inputs[name]) for name, array in feed.items() if name in inputs}
        found = dict(zip(names, session.run(names, feed), strict=True))
        return {name: found.pop(name) for name in outputs}, found, False

    return run


def litert_runner(source: str) -> Runner:
    """The reference kernels; tensors between operators are kept."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        source,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )

    def run(feed: Arrays) -> tuple[Arrays, Arrays, bool]:
        details = interpreter.get_input_details()
        inputs = {item["name"]: item["index"] for item in details}
        if inputs.keys() != feed.keys():  # named after a signature; the order is the same
            inputs = {name: item["index"] for name, item in zip(feed, details, strict=True)}
        for name, array in feed.items():
            interpreter.resize_tensor_input(inputs[name], array.shape)
        interpreter.allocate_tensors()
        interpreter.reset_all_variables()  # every run of a model begins with the file's own state
        for name, array in feed.items():
            interpreter.set_tensor(inputs[name], array)
        interpreter.invoke()
        found: Arrays = {}
        rounds = False
        for item in interpreter.get_tensor_details():
            try:
                array = interpreter.get_tensor(item["index"])
            except ValueError:  # a tensor without data, such as an optional one
                continue
            found[item["name"]] = array
            rounds |= array.dtype == np.int8  # weights of a float model: its activations are rounded on the way
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
    """Without sequences, texts and the like."""
    kept = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    return {name: array for name, array in kept.items() if array.dtype.kind in "fiub"}


if __name__ == "__main__":
    main(*sys.argv[1:])
