"""The ONNX Backend interface: ``prepare``, ``run_model``, ``run_node``, ``supports_device``.

Some models can be converted only when they run: those with dynamic shapes, and those in which input values determine
shapes or parameters of operators. They are converted at the first run, with its shapes and with the needed inputs as
constants, and again whenever these shapes or values change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from tpuconvert.conversion.convert import convert
from tpuconvert.conversion.options.source import SourceOptions
from tpuconvert.frontends.onnx.file.reader import NEWEST_OPSET
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import UNKNOWN_SHAPE, UnsupportedError, UsageError
from tpuconvert.schema.types import Array

_LARGEST = float(np.finfo(np.float32).max)
_Key = tuple[tuple[tuple[int, ...], ...], tuple[bytes, ...]]


class TpuBackendRep(BackendRep):
    """A prepared model.

    Args:
        model: the ONNX model.
        options: keyword arguments of ``tpuconvert.convert``, and ``backend`` and ``threads`` of a session.

    """

    def __init__(self, model: ModelProto, options: Mapping[str, Any]) -> None:
        self._model = model
        self._options = dict(options)
        self._session_options = {key: self._options.pop(key) for key in ("backend", "threads") if key in options}
        initializers = {tensor.name for tensor in model.graph.initializer}
        initializers.update(sparse.values.name for sparse in model.graph.sparse_initializer)
        self._inputs = [value for value in model.graph.input if value.name not in initializers]
        self._outputs = [value.name for value in model.graph.output]
        self._types = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
        self._bound: list[str] = []
        self._session: Session | None = None
        self._key: _Key | None = None
        try:
            session = self._convert(model, {})
        except UnsupportedError as error:
            if any(problem.kind is not UNKNOWN_SHAPE and not problem.needs for problem in error.problems):
                raise
        else:
            self._session = session if all(_is_static(value) for value in self._inputs) else None

    @property
    def known_inputs(self) -> tuple[str, ...]:
        """Inputs that became constants with the values of the last run, because the conversion needs their values."""
        return tuple(self._bound)

    @property
    def open_inputs(self) -> tuple[str, ...]:
        """Inputs that are not constants: inputs of the converted model."""
        return () if self._session is None else tuple(info.name for info in self._session.inputs)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model once.

        Args:
            inputs: arrays in the order of the model's inputs, ``{name: array}``, or one array.
            kwargs: ignored; required by the ONNX Backend interface.

        Returns:
            The outputs in the model's order, also reachable by name.

        Raises:
            UsageError: there is not one array per input, or a value overflows FLOAT32.
            UnsupportedError: the model cannot be converted, not even with the values of this run.

        """
        feeds = self._feeds(inputs)
        for name, array in feeds.items():
            if array.dtype == np.float64 and (np.isfinite(array) & (np.abs(array) > _LARGEST)).any():
                raise UsageError(
                    f"input '{name}' has numbers beyond FLOAT32, which replaces DOUBLE", hint="scale the input down"
                )
        session = self._session_for(feeds)
        names = {info.name for info in session.inputs}
        outputs = session.run({name: array for name, array in feeds.items() if name in names})
        arrays = [self._in_declared_type(name, outputs[name]) for name in self._outputs]
        result: tuple[Any, ...] = namedtupledict("Outputs", self._outputs)(*arrays)
        return result

    def _in_declared_type(self, name: str, array: Array) -> Array:
        """Convert an output to the type that the model declares, including types that NumPy lacks (bfloat16, int4)."""
        code = self._types.get(name, TensorProto.UNDEFINED)
        return (
            array if code == TensorProto.UNDEFINED else array.astype(helper.tensor_dtype_to_np_dtype(code), copy=False)
        )

    def _feeds(self, inputs: Any) -> dict[str, Array]:
        names = [value.name for value in self._inputs]
        if isinstance(inputs, Mapping):
            return {name: np.asarray(array) for name, array in inputs.items()}
        listed: Sequence[Any] = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if len(listed) != len(names):
            raise UsageError(
                f"{len(listed)} arrays for {len(names)} inputs: {', '.join(names)}",
                hint="give one array per input, in this order",
            )
        return dict(zip(names, map(np.asarray, listed), strict=True))

    def _session_for(self, feeds: Mapping[str, Array]) -> Session:
        """Return the session for these arrays; convert again if their shapes or the constant inputs changed."""
        if self._session is not None and self._key is None:
            return self._session
        if self._session is None or self._key != self._key_of(feeds):
            self._session = self._specialize(feeds)
            self._key = self._key_of(feeds)
        return self._session

    def _key_of(self, feeds: Mapping[str, Array]) -> _Key:
        return tuple(feeds[name].shape for name in sorted(feeds)), tuple(feeds[name].tobytes() for name in self._bound)

    def _specialize(self, feeds: Mapping[str, Array]) -> Session:
        """Convert the model with as few inputs as possible as constants. Return a session.

        Inputs without elements become constants too: they carry no information besides shape and type.
        """
        self._bound += [name for name in feeds if not feeds[name].size and name not in self._bound]
        while True:
            constants = {name: feeds[name] for name in self._bound}
            shapes = {
                value.name: feeds[value.name].shape
                for value in self._inputs
                if value.name not in constants and not _is_static(value) and feeds[value.name].ndim
            }
            try:
                return self._convert(_with_constants(self._model, constants), shapes)
            except UnsupportedError as error:
                asked = dict.fromkeys(name for problem in error.problems for name in problem.needs)
                more = [name for name in asked if name in feeds and name not in constants]
                if not more or any(not problem.needs for problem in error.problems):
                    raise
                self._bound += more

    def _convert(self, model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> Session:
        base = self._options.get("source_options", SourceOptions())
        state = "ports" if base.state == "auto" else base.state  # the interface has no state: runs get every input
        source_options = replace(base, state=state, input_shapes={**base.input_shapes, **shapes})
        return Session(convert(model, **{**self._options, "source_options": source_options}), **self._session_options)


def _is_static(value: ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(dim.dim_value > 0 for dim in tensor.shape.dim)


def _with_constants(model: ModelProto, arrays: Mapping[str, Array]) -> ModelProto:
    """Return a copy of the model in which the given inputs are initializers."""
    changed = ModelProto()
    changed.CopyFrom(model)
    inputs = [value for value in changed.graph.input if value.name not in arrays]
    del changed.graph.input[:]
    changed.graph.input.extend(inputs)
    changed.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return changed


class TpuBackend(Backend):
    """ONNX backend that converts models with tpuconvert and runs them."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return True if ``prepare`` accepts the model."""
        try:
            cls.prepare(model, device, **kwargs)
        except UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> TpuBackendRep:
        """Convert a model.

        Args:
            model: the model.
            device: "CPU".
            kwargs: options of ``tpuconvert.convert`` (chip, quantize, calibration) and of a session (backend, threads).

        Raises:
            UsageError: an unknown device.
            UnsupportedError: the message lists everything in the model that cannot be represented.

        """
        _check_device(device)
        return TpuBackendRep(model, kwargs)

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Convert a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Convert one node and run it once; ``opset_version`` is by default the newest."""
        opset = int(kwargs.pop("opset_version", NEWEST_OPSET))
        names = list(dict.fromkeys(name for name in node.input if name))
        arrays = [np.asarray(array) for array in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]
        if len(arrays) != len(names):
            raise UsageError(
                f"{len(arrays)} arrays for {len(names)} inputs: {', '.join(names)}",
                hint="give one array per input, in this order",
            )
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in zip(names, arrays, strict=True)
            ],
            [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name],
        )
        imports = [helper.make_opsetid(node.domain or "", 1 if node.domain else opset)]
        model = helper.make_model(graph, opset_imports=imports)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True for "CPU", the only supported device."""
        return device.split(":")[0].upper() == "CPU"


def _check_device(device: str) -> None:
    if not TpuBackend.supports_device(device):
        raise UsageError(f"device '{device}': only CPU is supported", hint="leave the device out, or give CPU")


is_compatible = TpuBackend.is_compatible
prepare = TpuBackend.prepare
run_model = TpuBackend.run_model
run_node = TpuBackend.run_node
supports_device = TpuBackend.supports_device
