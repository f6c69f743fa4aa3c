"""Tensors of a subgraph during its import: constants, graph values and their permuted copies, and quantization."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.tflite import layout
from tpuconvert.frontends.tflite.file.reader import ModelFile, Subgraph, Tensor
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.legacy_weights import with_signed_weights
from tpuconvert.frontends.tflite.states import Content
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import F32, I32, Arithmetic, Array, DType, QuantParams

_QUANTIZED = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "INT4", "INT64")
_VALUE_TYPES = {
    **dict.fromkeys(("FLOAT32", "FLOAT16", "FLOAT64", "BFLOAT16", "BOOL"), F32),
    **dict.fromkeys(("INT32", "INT64", "UINT64"), I32),
    **{name: DType(name) for name in ("UINT32", "INT16", "UINT16", "INT8", "UINT8")},
    "INT4": DType.INT8,
}
NUMPY_NAMES: Mapping[str, str] = {
    **{"FLOAT32": "float32", "FLOAT16": "float16", "FLOAT64": "float64", "BFLOAT16": "float32", "BOOL": "bool"},
    **{name: name.lower() for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")},
    "INT4": "int8",
}


@dataclass(frozen=True)
class ComplexPair:
    """A complex tensor, as separate values for its real and imaginary parts."""

    real: Value
    imaginary: Value


class Tensors:
    """Bindings of the tensors of one subgraph: a constant array, a graph value, or both.

    Args:
        file: the model file.
        subgraph: the subgraph to which tensor indices refer.
        graph: graph that receives constants and permutes.
        hybrid: arithmetic of layers with integer weights and float activations.
    """

    def __init__(self, file: ModelFile, subgraph: Subgraph, graph: Graph, hybrid: str = "real") -> None:
        self.file = file
        self.subgraph = with_signed_weights(subgraph)
        self.graph = graph
        self.hybrid = hybrid
        self._computed: set[int] = set()  # indices of inputs and results; their buffers in the file are ignored
        self._arrays: dict[int, Array | None] = {}
        self._values: dict[int, Value] = {}
        self._forms: dict[int, dict[tuple[tuple[int, ...], bool], Value]] = {}
        self._constants: dict[tuple[int, bool], Value] = {}
        self._quants: dict[int, QuantParams | None] = {}
        self._pairs: dict[int, ComplexPair] = {}
        self._relabeled: list[Tensor] = []  # tensors of the file with the quantization of others
        self._final: set[int] = set()  # id() of each value that has the name of a source tensor

    def source(self, index: int) -> Tensor:
        """Tensor description in the file, or of a tensor that ``relabel`` returned."""
        first = len(self.subgraph.tensors)
        return self.subgraph.tensors[index] if index < first else self._relabeled[index - first]

    # Reading

    def array(self, tensor: Tensor) -> Array | None:
        """Elements of a constant in the type of the file; None for a tensor that depends on the model's inputs."""
        if tensor.index in self._computed:
            return self._arrays.get(tensor.index)
        if tensor.index not in self._arrays:
            self._arrays[tensor.index] = self.file.data(tensor)
        return self._arrays[tensor.index]

    def value(self, tensor: Tensor, *, annotated: bool = True) -> Value:
        """Graph value of a tensor in the source layout.

        Args:
            tensor: constant or computed tensor.
            annotated: True if a quantized constant keeps its integers; float operators do not use them.
        """
        value = self._values.get(tensor.index)
        if value is not None:
            return value
        if tensor.index in self._computed:
            for (order, _), form in self._forms.get(tensor.index, {}).items():
                back = self.graph.add(Permute(order=layout.inverse(order)), form)
                self._finish(tensor, back, tensor.name)
                self._values[tensor.index] = back
                return back
        return self._constant(tensor, annotated)

    def permute(self, tensor: Tensor, order: tuple[int, ...], *, annotated: bool = True) -> Value:
        """Graph value of a tensor with permuted axes, which is created at most once per order."""
        array = self.array(tensor)
        forms = self._forms.setdefault(tensor.index, {})
        key = order, array is None or annotated
        if key not in forms:
            name = f"{tensor.name}:{layout.name_suffix(order)}"
            if array is None:
                form = self.graph.add(Permute(order=order), self.value(tensor))
                self._finish(tensor, form, name, order)
            else:
                permuted = np.ascontiguousarray(array.transpose(order))
                form = self.make_constant(tensor, permuted, name, order, annotated)
            forms[key] = form
        return forms[key]

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Extents of a tensor in the source layout; () for rank 0."""
        array = self.array(tensor)
        if array is not None:
            return array.shape
        value = self._values.get(tensor.index)
        if value is None:
            for (order, _), form in self._forms.get(tensor.index, {}).items():
                extents = static(form.shape)
                return tuple(extents[axis] for axis in layout.inverse(order))
            raise self._missing(tensor)
        extents = static(value.shape)
        return () if extents == (1,) and tensor.shape == () else extents

    def quant(self, tensor: Tensor) -> QuantParams | None:
        """Quantization parameters of a tensor; None if it is not quantized."""
        if tensor.index not in self._quants:
            self._quants[tensor.index] = _quant_params(tensor)
        return self._quants[tensor.index]

    def value_type(self, tensor: Tensor) -> DType:
        """Data type of the graph value of a tensor."""
        if self.quant(tensor) is not None:
            return F32
        dtype = _VALUE_TYPES.get(tensor.type)
        if dtype is None:
            raise CannotConvertError(UNSUPPORTED_TYPE, f"tensor '{tensor.name}' has the type {tensor.type}")
        return dtype

    def pair(self, tensor: Tensor) -> ComplexPair:
        """Real and imaginary part of a complex tensor."""
        if tensor.index not in self._pairs:
            raise CannotConvertError(
                UNSUPPORTED_TYPE, f"tensor '{tensor.name}' holds complex numbers that no RFFT2D made"
            )
        return self._pairs[tensor.index]

    def is_sized(self, tensor: Tensor) -> bool:
        """Return True if the shape of a tensor is static."""
        value = self._values.get(tensor.index)
        return value is None or all(isinstance(extent, int) for extent in value.shape)

    # Results

    def bind_pair(self, tensor: Tensor, pair: ComplexPair) -> None:
        """Bind the real and imaginary part to a complex tensor, which has no single graph value."""
        self._computed.add(tensor.index)
        self._pairs[tensor.index] = pair

    def bind(self, tensor: Tensor, result: Value | Permuted) -> None:
        """Bind a value to the result tensor of an operator; it gets the name and quantization of the tensor."""
        self._computed.add(tensor.index)
        self._arrays.pop(tensor.index, None)
        if isinstance(result, Permuted):
            self._finish(tensor, result.value, f"{tensor.name}:{layout.name_suffix(result.order)}", result.order)
            self._forms[tensor.index] = {(result.order, True): result.value}
            return
        if self.is_named(result) and result.quant != self.quant(tensor):  # an identity that changes the scale
            result = self.graph.add(Copy(), result)
        self._finish(tensor, result, tensor.name)
        self._values[tensor.index] = result

    def relabel(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return a tensor that has the integers of a tensor and the quantization of another one."""
        index = len(self.subgraph.tensors) + len(self._relabeled)
        new = dataclasses.replace(
            tensor, index=index, name=f"{like.name}:operand", quantization=like.quantization, is_variable=False
        )
        self._relabeled.append(new)
        array = self.array(tensor)
        forms = {} if tensor.index in self._values else self._forms.get(tensor.index, {})
        if array is not None:
            self.bind_array(new, array)
        elif forms:
            (order, _), form = next(iter(forms.items()))
            self.bind(new, Permuted(self.copy_integers(form, new), order))
        else:
            self.bind(new, self.copy_integers(self.value(tensor), new))
        return new

    def copy_integers(self, value: Value, tensor: Tensor) -> Value:
        """Copy the integers of a value; they get the quantization of a tensor."""
        quant = self.quant(tensor)
        assert quant is not None
        result = self.graph.add(Copy(), value)
        result.quant = dataclasses.replace(quant, arithmetic=Arithmetic.COPY)
        return result

    def bind_array(self, tensor: Tensor, array: Array) -> None:
        """Bind constant elements to a tensor."""
        self._computed.add(tensor.index)
        self._arrays[tensor.index] = array

    def bind_input(self, tensor: Tensor, value: Value) -> None:
        """Bind a value to a graph input, or to an input of an inlined subgraph."""
        self._computed.add(tensor.index)
        self._arrays.pop(tensor.index, None)
        self._values[tensor.index] = value
        self._final.add(id(value))

    def existing_value(self, index: int) -> Value | None:
        """Computed graph value of a tensor in any axis order; None for other tensors."""
        value = self._values.get(index)
        if value is None:
            value = next(iter(self._forms.get(index, {}).values()), None)
        return None if value is None or value.is_constant else value

    def is_named(self, value: Value) -> bool:
        """Return True if the name of a value is final: the name of a source tensor, a constant or a graph input."""
        return id(value) in self._final or value.is_constant or value in self.graph.inputs

    def rename(self, value: Value, name: str) -> None:
        """Rename a value unless its name is final; a number is appended if the name exists."""
        if not self.is_named(value) and value.name != name:
            self._make_way(name)
            self.graph.rename(value, self.graph.unique(name))

    # Constants

    def make_constant(
        self,
        tensor: Tensor,
        array: Array,
        name: str,
        order: tuple[int, ...] | None = None,
        annotated: bool = True,
    ) -> Value:
        """Add a graph constant for a source tensor, whose elements may be permuted by ``order``.

        A quantized constant has the dequantized values and, with ``annotated``, also the integers.
        """
        self._make_way(name)
        quant = self.quant(tensor)
        if quant is None:
            return self.graph.constant(_narrow(tensor.name, self.value_type(tensor), array), name=name)
        if order is not None:
            quant = layout.permute_quant(quant, order)
            assert quant is not None
        real = quant.dequantize(array)
        if not annotated:
            return self.graph.constant(real, name=name)
        return self.graph.constant(real, name=name, quant=quant, stored=array.astype(quant.dtype.numpy, copy=False))

    def content_value(self, content: Content, name: str) -> Value:
        """Graph value of the content of a state, which is added as a constant if it is an array."""
        array, quant = content.value, content.quant
        if isinstance(array, Value):
            return array
        if quant is None:
            return self.graph.constant(_narrow(name, _VALUE_TYPES[content.type], array), name=name)
        stored = array.astype(quant.dtype.numpy, copy=False)
        return self.graph.constant(quant.dequantize(array), name=name, quant=quant, stored=stored)

    def _constant(self, tensor: Tensor, annotated: bool) -> Value:
        array = self.array(tensor)
        if array is None:
            raise self._missing(tensor)
        key = tensor.index, annotated and self.quant(tensor) is not None
        if key not in self._constants:
            self._constants[key] = self.make_constant(tensor, array, tensor.name, annotated=annotated)
        return self._constants[key]

    def _missing(self, tensor: Tensor) -> CannotConvertError:
        if tensor.is_variable:
            message = f"tensor '{tensor.name}' is a variable that keeps its value between runs"
            return CannotConvertError(INVALID_NODE, message, "export the model with its state as inputs and outputs")
        if tensor.type not in _VALUE_TYPES:
            return CannotConvertError(UNSUPPORTED_TYPE, f"tensor '{tensor.name}' has the type {tensor.type}")
        self.file.corrupt(f"tensor '{tensor.name}' is read, but neither a constant nor computed before")

    # Names

    def _make_way(self, name: str) -> None:
        """Rename a value that has this name by chance, so that the name is free for a source tensor."""
        squatter = self.graph.find(name)
        if squatter is not None and not self.is_named(squatter):
            self.graph.rename(squatter, self.graph.unique(f"{name}:inner"))

    def _finish(self, tensor: Tensor, value: Value, name: str, order: tuple[int, ...] | None = None) -> None:
        if self.is_named(value):
            return
        self.rename(value, name)
        self._final.add(id(value))
        quant = self.quant(tensor)
        quant = quant if order is None else layout.permute_quant(quant, order)
        if value.quant != quant:  # equal parameters may state an arithmetic, which is kept
            value.quant = quant


def _narrow(name: str, dtype: DType, array: Array) -> Array:
    if dtype is I32 and array.size:
        lowest, highest = int(array.min()), int(array.max())
        if lowest < I32.min or highest > I32.max:
            raise CannotConvertError(
                UNSUPPORTED_TYPE,
                f"constant '{name}' holds {lowest} to {highest}",
                "the operator set has 32-bit integers",
            )
    return array.astype(dtype.numpy, copy=False)


def _quant_params(tensor: Tensor) -> QuantParams | None:
    raw = tensor.quantization
    if raw is None:
        return None
    if raw.is_custom:
        raise CannotConvertError(UNSUPPORTED_TYPE, f"tensor '{tensor.name}' has a custom quantization")
    if tensor.type not in _QUANTIZED:
        return None
    dtype = {"INT4": DType.INT8, "INT64": DType.INT32}.get(tensor.type) or DType(tensor.type)
    axis = raw.axis if len(raw.scale) > 1 else None
    if axis is not None and not (0 <= axis < len(tensor.shape) and tensor.shape[axis] == len(raw.scale)):
        message = f"tensor '{tensor.name}' {list(tensor.shape)} has {len(raw.scale)} scales along axis {axis}"
        raise CannotConvertError(INVALID_NODE, message)
    if not all(math.isfinite(scale) and scale > 0 for scale in raw.scale):
        raise CannotConvertError(INVALID_NODE, f"tensor '{tensor.name}' has scales that are not positive and finite")
    if not all(dtype.min <= zero <= dtype.max for zero in raw.zero_point):
        raise CannotConvertError(INVALID_NODE, f"tensor '{tensor.name}' has zero points outside {tensor.type}")
    return QuantParams(raw.scale, raw.zero_point, dtype, axis)
