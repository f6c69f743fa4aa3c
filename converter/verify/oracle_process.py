"""Process that runs another engine: ``python -m tpuconvert.verify.oracle_process ENGINE SOURCE FOLDER SETTINGS``.

It reads ``feed0.npz``, ``feed1.npz``, ... from the folder. ``names`` contains the names of the inputs, ``in0``,
``in1``, ... their arrays. It writes a folder ``result0``, ... for each feed, with the tensors as ``out0.npy``, ... and
``result.json``: their ``names``; the first ``outputs`` of them are the outputs of the model; ``rounds`` is true if the
engine quantizes floats internally.

SETTINGS is a JSON object: ``keeps_state`` (the feeds are steps of one sequence, else every feed starts with the initial
state), ``outputs_only`` (no intermediate tensors), ``signature`` (key of a TFLite signature, or null) and ``memory``
(limit of the address space in bytes, or null). ``onnx_evaluator`` is another such process.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.schema.text.json_text import parse_json

Arrays = dict[str, Any]


class Results(NamedTuple):
    """Results of one feed: outputs, other tensors, and True if the engine quantizes floats internally."""

    outputs: Arrays
    others: Arrays
    rounds: bool = False


Runner = Callable[[Arrays], Results]
Settings = dict[str, Any]

NUMPY_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}
"""ONNX Runtime type -> NumPy type, for types whose names differ."""

LARGE_BYTES = 1 << 16
"""Size of an initializer from which the engine reads it from the file of the model."""


def cast_input(array: Any, dtype: str, shape: Sequence[Any]) -> Any:
    """Convert a fixed input to the type and rank of the engine's input. So far it has the type of its text."""
    if array.dtype.kind in "biuf" and array.dtype != dtype:
        array = array.astype(dtype)
    return array.reshape([1] * len(shape)) if array.ndim == 0 else array


def onnxruntime_runner(source: str, settings: Settings) -> Runner:
    """Make every tensor of the main graph an output, and disable optimizations, so that all tensors exist."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    model = reference_weights(source)
    folder = os.path.dirname(os.path.abspath(source))
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    # Otherwise each weight of a matmul is packed into a copy.
    options.add_session_config_entry("session.disable_prepacking", "1")
    own_outputs = {item.name for item in model.graph.output}
    added = [name for node in model.graph.node for name in node.output if name and name not in own_outputs]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in added)
    session = None
    if not settings["outputs_only"]:
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
        except Exception:  # outputs of sequence type, or weights that were not read: compare only the outputs
            session = None
    if session is None:
        session = onnxruntime.InferenceSession(source, options, providers=providers)
    names = [item.name for item in session.get_outputs()]
    outputs = [item.name for item in model.graph.output if item.name in own_outputs]
    inputs = {item.name: (NUMPY_TYPES.get(item.type, item.type[7:-1]), item.shape) for item in session.get_inputs()}

    def run(feed: Arrays) -> Results:
        feed = {name: cast_input(array, *inputs[name]) for name, array in feed.items() if name in inputs}
        tensors = dict(zip(names, session.run(names, feed), strict=True))
        return Results({name: tensors.pop(name) for name in outputs}, tensors)

    return run


def reference_weights(source: str) -> Any:
    """Read a model whose large initializers are references to the bytes of its file, which the engine maps.

    A parsed file takes twice its size, a serialized model once more, and the copy of the engine too.
    """
    import onnx

    rest, graph = bytearray(), bytearray()
    name = os.path.basename(source)
    with open(source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for field in _fields(content, 0, len(content)):
            if field.number != onnx.ModelProto.GRAPH_FIELD_NUMBER:
                rest += content[field.start : field.end]
                continue
            for part in _fields(content, field.content, field.end):
                is_large = part.end - part.content >= LARGE_BYTES
                if is_large and part.number == onnx.GraphProto.INITIALIZER_FIELD_NUMBER:
                    graph += _reference(content, part, name)
                else:
                    graph += content[part.start : part.end]
    model = onnx.ModelProto.FromString(bytes(rest))
    model.graph.MergeFromString(bytes(graph))
    return model


def _reference(content: Any, part: _Field, name: str) -> bytes:
    """Return the field of an initializer, with a reference to its bytes if it has any."""
    import onnx

    fields = list(_fields(content, part.content, part.end))
    stored = [field for field in fields if field.number == onnx.TensorProto.RAW_DATA_FIELD_NUMBER]
    if not stored:
        return bytes(content[part.start : part.end])
    others = (content[field.start : field.end] for field in fields if field not in stored)
    graph = onnx.GraphProto(initializer=[onnx.TensorProto.FromString(b"".join(others))])
    tensor, data = graph.initializer[0], stored[-1]  # the last one counts
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", name), ("offset", data.content), ("length", data.end - data.content)):
        tensor.external_data.add(key=key, value=str(text))
    return bytes(graph.SerializeToString())


class _Field(NamedTuple):
    """Positions of a field of a protobuf message: its tag, its content, and the end of both."""

    number: int
    start: int
    content: int
    end: int


def _fields(content: Any, position: int, end: int) -> Iterator[_Field]:
    """Yield the fields of a message.

    Raises:
        ValueError: it is damaged.
    """
    while position < end:
        start = position
        tag, position = _varint(content, position)
        kind = tag & 7
        if kind == 0:
            size = _varint(content, position)[1] - position
        elif kind == 2:
            size, position = _varint(content, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a protobuf field has the wire type {kind}")
        if position + size > end:
            raise ValueError("a protobuf field ends after its message")
        yield _Field(tag >> 3, start, position, position + size)
        position += size


def _varint(content: Any, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    number = shift = 0
    while True:
        byte = content[position]
        number |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return number, position


def load_onnx(source: str) -> Any:
    """Read a model, with its external data where the package accepts their path."""
    import onnx

    try:
        return onnx.load(source)
    except onnx.checker.ValidationError:  # symbolic links, as in Hugging Face's cache, are refused
        return onnx.load(source, load_external_data=False)


def litert_runner(source: str, settings: Settings) -> Runner:
    """Use the reference kernels and keep all intermediate tensors."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def make() -> Any:
        return Interpreter(
            source,
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=not settings["outputs_only"],
        )

    interpreters: list[Any] = []

    def run(feed: Arrays) -> Results:
        # Nothing resets resource variables: a new interpreter starts with the initial state.
        if not interpreters or not settings["keeps_state"]:
            interpreters[:] = [make()]
            is_new = True
        else:
            is_new = False
        interpreter = interpreters[0]
        if settings["signature"] is not None:
            return Results(dict(interpreter.get_signature_runner(settings["signature"])(**feed)), {})
        details = interpreter.get_input_details()
        inputs = {item["name"]: item["index"] for item in details}
        if inputs.keys() != feed.keys():  # the feed has the names of a signature, in the same order
            inputs = {name: item["index"] for name, item in zip(feed, details, strict=True)}
        if is_new:  # allocating again would reset the state
            for name, array in feed.items():
                interpreter.resize_tensor_input(inputs[name], array.shape)
            interpreter.allocate_tensors()
        for name, array in feed.items():
            interpreter.set_tensor(inputs[name], array)
        interpreter.invoke()
        outputs = [(item["name"], interpreter.get_tensor(item["index"])) for item in interpreter.get_output_details()]
        others: Arrays = {}
        rounds = False
        for item in interpreter.get_tensor_details():
            rounds |= item["dtype"] == np.int8  # int8 weights: the kernels quantize activations at run time
            if settings["outputs_only"] or np.dtype(item["dtype"]).kind not in "fiub":
                continue  # reading a handle of a resource ends the process
            try:
                others[item["name"]] = interpreter.get_tensor(item["index"])
            except ValueError:  # no data, as for an absent optional tensor
                continue
        for name, _ in outputs:
            others.pop(name, None)
        return Results(dict(outputs), others, rounds)

    return run


RUNNERS = {"onnxruntime": onnxruntime_runner, "litert": litert_runner}


def run_folder(make: Callable[[str, Settings], Runner], source: str, folder: str, settings_text: str) -> None:
    """Run all feeds of a folder with the runner of an engine."""
    settings = parse_json(settings_text)
    _limit_memory(settings["memory"])
    run = make(source, settings)
    paths = sorted(Path(folder).glob("feed*.npz"), key=lambda path: int(path.stem.removeprefix("feed")))
    for path in paths:
        with np.load(path) as stored:
            feed = {str(name): stored[f"in{k}"] for k, name in enumerate(stored["names"])}
        results = run(feed)
        outputs, others = _plain(results.outputs), _plain(results.others)
        tensors = {**outputs, **others}
        target = path.with_name(path.stem.replace("feed", "result"))
        target.mkdir(exist_ok=True)  # a run that crashed wrote it too
        for k, array in enumerate(tensors.values()):
            np.save(target / f"out{k}.npy", array)
        about = {"names": list(tensors), "outputs": len(outputs), "rounds": bool(results.rounds)}
        (target / "result.json").write_text(json.dumps(about), encoding="utf-8")


def _limit_memory(size: int | None) -> None:
    """Limit the address space in bytes; Windows has no such limit."""
    if size is None:
        return
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _plain(arrays: Arrays) -> Arrays:
    """Keep only arrays of numbers and Booleans: no sequences, no strings."""
    numeric = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray | np.generic)}
    return {name: np.asarray(array) for name, array in numeric.items() if array.dtype.kind in "fiub"}


if __name__ == "__main__":
    run_folder(RUNNERS[sys.argv[1]], *sys.argv[2:])
