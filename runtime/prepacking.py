"""Files of packed weights: ``prepack`` writes one for a model, and sessions open it instead of the model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from tpuconvert.runtime.native.loader import chosen_isa, extension, native
from tpuconvert.runtime.native.packed_plan import PackedParts, PackedPlan, PackedPlans, describe_plan
from tpuconvert.runtime.native.plans import Plans
from tpuconvert.runtime.packed_file import HINT, Key, PackedFile, open_packed, write_packed
from tpuconvert.schema.constant_file import IS_SUPPORTED
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file_decoder import PORT_TYPES
from tpuconvert.schema.file_model import FileModel, Json
from tpuconvert.schema.file_reader import read_header, read_model
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.schema.graph import Graph, Port, Value
from tpuconvert.schema.input_files import refuse_input
from tpuconvert.schema.shape_buckets import buckets_of
from tpuconvert.schema.states import State
from tpuconvert.schema.types import Chip, DType, QuantParams, TensorType

_REFUSED = (ValueError, KeyError, TypeError, AttributeError, IndexError)


class PackedWeightsWarning(UserWarning):
    """A file of packed weights belongs to another model, engine or processor. The session packs the weights itself."""


def prepack(model: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> Path:
    """Write the packed weights of a model, so that sessions open it in a few milliseconds.

    The file is valid for this model file, this build of the engine and the instruction set of this processor (or that
    of ``TPUCONVERT_ISA``). ``Session(model, packed=FILE)`` ignores it with a warning otherwise.

    Args:
        model: a ``.tpum`` file.
        output: the file to write; by default the name of the model with ``.packed`` appended.

    Returns:
        The path of the file.

    Raises:
        UsageError: the model has symbolic extents, states, or nodes without a native kernel; or the system is Windows.
        MissingExtraError: the engine was not built.
        CorruptInputError: the model file is damaged.
    """
    if not IS_SUPPORTED:
        raise UsageError("packed weights are not supported on this system")
    target = Path(f"{os.fspath(model)}.packed" if output is None else output)
    refuse_input(target, [os.path.abspath(model)])
    found, header, isa = read_model(model), read_header(model), chosen_isa()
    graph = found.graph
    if found.states or buckets_of(found.metadata) or not all(value.type.is_static for value in graph.values):
        raise UsageError(
            "only models with static shapes and without states have packed weights",
            file=os.fspath(model),
            hint="convert it with --input-shapes, or open it without packed weights",
        )
    parts = PackedParts()
    description = {
        "key": {"model": header.digest.hex(), "engine": native().BUILD, "isa": isa},
        "chip": found.chip.name,
        "graph": [graph.name, graph.file],
        "ports": [
            [_describe_port(port, value) for port, value in zip(ports, values, strict=True)]
            for ports, values in ((graph.input_ports, graph.inputs), (graph.output_ports, graph.outputs))
        ],
        **describe_plan(graph, found.chip.name, isa, parts),
    }
    with replacing(target) as file:
        write_packed(file, description, parts.arrays, parts.parts)
    return target


def _describe_port(port: Port, value: Value) -> list[Json]:
    quant = port.quant
    stored: Json = None
    if quant is not None:
        stored = [list(quant.scale), list(quant.zero_point), quant.dtype.name, quant.axis]
    return [port.name, port.dtype, list(port.shape), stored, value.name, value.dtype.name, list(value.shape)]


class PackedModel:
    """A model of which only the packed weights were read. The rest is read when it is needed.

    Args:
        path: the model file.
        file: the open file of packed weights.

    Attributes:
        graph: inputs and outputs of the model, without nodes.
        chip: the chip whose arithmetic is computed.

    Raises:
        CorruptInputError: the description is not valid.
    """

    states: tuple[State, ...] = ()

    def __init__(self, path: Path, file: PackedFile) -> None:
        self._path, self._digest = path, file.key.model
        try:
            self.chip = Chip[file.description["chip"]]
            self.graph = _stub_graph(file.description)
        except _REFUSED as error:
            raise file.damaged(error) from error

    @cached_property
    def model(self) -> FileModel:
        """The whole model.

        Raises:
            CorruptInputError: the file was replaced by another model, or is damaged.
        """
        if read_header(self._path).digest.hex() != self._digest:
            raise CorruptInputError(
                "it was replaced while a session with packed weights had it open",
                file=os.fspath(self._path),
                hint="open it again",
            )
        return read_model(self._path)

    @property
    def preprocessing(self) -> Mapping[str, Json]:
        """Preprocessing of images, as the model file stores it."""
        return self.model.preprocessing

    @property
    def metadata(self) -> Mapping[str, Json]:
        """Metadata of the model file."""
        return self.model.metadata


def _stub_graph(description: Mapping[str, Any]) -> Graph:
    name, file = description["graph"]
    graph = Graph(str(name), str(file))
    inputs, outputs = description["ports"]
    for stored in inputs:
        port, value_name, type_ = _port(*stored)
        graph.input(value_name, type_, port)
    for stored in outputs:
        port, value_name, type_ = _port(*stored)
        # An output may be an input, or the output of several ports.
        graph.output(graph.find(value_name) or Value(value_name, type_), port)
    return graph


def _port(
    name: str, dtype: str, shape: list[int], quant: Any, value_name: str, value_dtype: str, value_shape: list[int]
) -> tuple[Port, str, TensorType]:
    if not all(type(extent) is int and extent >= 0 for extent in (*shape, *value_shape)):
        raise ValueError("a port with an impossible shape")
    if dtype not in PORT_TYPES:
        raise ValueError(f"a port with the unknown type {dtype!r}")
    params = None
    if quant is not None:
        scale, zero_point, quant_dtype, axis = quant
        params = QuantParams(tuple(map(float, scale)), tuple(map(int, zero_point)), DType[quant_dtype], axis)
    type_ = TensorType(DType[value_dtype], tuple(value_shape))
    return Port(str(name), dtype, tuple(shape), params), str(value_name), type_


def open_prepacked(
    path: str | os.PathLike[str], packed: str | os.PathLike[str], threads: int, *, is_mapped: bool = False
) -> tuple[PackedModel, PackedPlans] | None:
    """Open a model with its packed weights.

    Args:
        path: the model file.
        packed: the file of packed weights.
        threads: at least 1.
        is_mapped: True to leave the packed weights in their file.

    Returns:
        The model and its plan; None, after a warning, if the file was made for another model, engine or instruction
        set.

    Raises:
        UsageError: one of the files does not exist or cannot be read.
        CorruptInputError: one of the files is damaged.
    """
    if extension() is None or not IS_SUPPORTED:
        _warn(packed, "this installation has no native engine" if IS_SUPPORTED else "this system does not support it")
        return None
    isa = chosen_isa()
    header = read_header(path)
    file = open_packed(packed)
    try:
        wanted, found = Key(header.digest.hex(), str(native().BUILD), isa), file.key
        for name, what in (("model", "another model"), ("engine", "another build of the engine"), ("isa", found.isa)):
            if getattr(wanted, name) != getattr(found, name):
                _warn(packed, f"it was made for {what}")
                return None
        return _make_plans(Path(path), file, isa, threads, is_mapped=is_mapped)
    finally:
        file.close()


def _make_plans(
    path: Path, file: PackedFile, isa: str, threads: int, *, is_mapped: bool
) -> tuple[PackedModel, PackedPlans]:
    model = PackedModel(path, file)
    plan = PackedPlan(file, isa, threads, lambda: model.model.graph, is_mapped=is_mapped)
    for values, tensors in ((model.graph.inputs, plan.inputs), (model.graph.outputs, plan.outputs)):
        types = [(tensor.dtype, tensor.shape) for tensor in tensors]
        if types != [(value.dtype, value.shape) for value in values]:
            raise file.damaged("its plan does not fit its inputs and outputs")
    settings = model.chip.name, isa, threads
    make: Callable[[], Plans] = cached(lambda: Plans(model.model.graph, *settings))
    return model, PackedPlans(plan, make)


def cached(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls ``make`` once."""
    made: list[Any] = []

    def get() -> Any:
        if not made:
            made.append(make())
        return made[0]

    return get


def _warn(packed: str | os.PathLike[str], reason: str) -> None:
    text = f"{os.fspath(packed)}: the packed weights are not used: {reason}; {HINT}"
    warnings.warn(text, PackedWeightsWarning, stacklevel=5)
