"""Interface of converters: the source operator with its inputs and options, and the registering decorators."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.extents import Extents
from tpuconvert.frontends.registry import ConverterRegistry, registry
from tpuconvert.frontends.tflite.file.reader import Operator, Subgraph, Tensor
from tpuconvert.frontends.tflite.layout import NCHW, Permuted
from tpuconvert.frontends.tflite.not_representable import REASONS
from tpuconvert.frontends.tflite.states import Content, Key, States, VariableTensor
from tpuconvert.frontends.tflite.tensors import NUMPY_NAMES, ComplexPair, Tensors
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import (
    INVALID_NODE,
    NO_OPERATOR,
    TOO_LARGE,
    UNKNOWN_SHAPE,
    UNSUPPORTED_ATTRIBUTE,
    ProblemKind,
)
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.types import Array, QuantParams, Scalar, TensorType

tflite_op = registry("tflite")
"""Decorator that registers a converter: ``@tflite_op("CONV_2D")``; custom operators have ``domain="custom"``."""

folds = ConverterRegistry("tflite constant")
"""Decorator that registers a constant evaluator: it gets the node, and returns arrays or None if it does not apply."""

tflite_op.evaluators = folds
tflite_op.refuse(REASONS)

Bound = Value | Array
"""Argument or result of a subgraph: a graph value, or a constant array."""

Converted = Value | Permuted | Array | ComplexPair
"""Result of a converter: a value in the source layout, a permuted value, a constant array, or a complex pair."""

FUSED_ACTIVATIONS: dict[str, Op] = {
    "RELU": Active(ActiveType.ACTIVE_RELU),
    "RELU_N1_TO_1": Clamp(Scalar.f32(-1), Scalar.f32(1)),
    "RELU6": Clamp(Scalar.f32(0), Scalar.f32(6)),
    "TANH": Active(ActiveType.ACTIVE_TANH),
}
_ACTIVATION_NAMES = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")


class Caller(Protocol):
    """Interface of the importer for converters that inline subgraphs or access state."""

    @property
    def states(self) -> States:
        """State that the model keeps between runs."""

    def inline(self, node: TfliteNode, subgraph: int, inputs: list[Bound]) -> list[Bound]:
        """Inline a subgraph with the given inputs, and return its results."""

    def subgraph(self, node: TfliteNode, index: int) -> Subgraph:
        """Subgraph of the file by index."""


@dataclass(frozen=True)
class TfliteNode:
    """One source operator, as its converter sees it. Options that a converter did not read are reported afterwards."""

    operator: Operator
    tensors: Tensors
    caller: Caller

    @property
    def graph(self) -> Graph:
        """Graph to which converters add nodes."""
        return self.tensors.graph

    @property
    def op_type(self) -> str:
        """Name of the source operator, such as CONV_2D."""
        return self.operator.name

    @property
    def name(self) -> str:
        """Name of the first result tensor, by which TFLite tools identify an operator."""
        outputs = self.operator.outputs
        return self.tensors.source(outputs[0]).name if outputs else f"{self.op_type} {self.operator.index}"

    # Inputs

    @property
    def input_count(self) -> int:
        """Number of inputs, including absent optional inputs before the last one."""
        return len(self.operator.inputs)

    def has_input(self, index: int) -> bool:
        """Return True if an optional input is given."""
        return index < self.input_count and self.operator.inputs[index] >= 0

    def tensor(self, index: int) -> Tensor:
        """Tensor description of an input."""
        if not self.has_input(index):
            raise self.fail(INVALID_NODE, f"lacks its input {index}")
        return self.tensors.source(self.operator.inputs[index])

    def output_tensor(self, index: int = 0) -> Tensor:
        """Tensor description of a result."""
        if index >= len(self.operator.outputs):
            raise self.fail(INVALID_NODE, f"lacks its output {index}")
        return self.tensors.source(self.operator.outputs[index])

    def input(self, index: int) -> Value:
        """Value of an input in the source layout; a quantized tensor is an annotated FLOAT32 value."""
        return self.tensors.value(self.tensor(index), annotated=self.is_quantized)

    def values(self) -> list[Value]:
        """Values of all inputs in the source layout."""
        return [self.input(index) for index in range(self.input_count)]

    def nchw(self, index: int) -> Value:
        """Value of an input of rank 4 in NCHW layout."""
        return self.permute(index, NCHW)

    def permute(self, index: int, order: tuple[int, ...]) -> Value:
        """Value of an input with permuted axes. Constants are permuted directly; others share one Permute per order."""
        self.shape_of_rank(index, len(order))
        return self.tensors.permute(self.tensor(index), order, annotated=self.is_quantized)

    def is_constant(self, index: int) -> bool:
        """Return True if an input is given and constant."""
        return self.has_input(index) and self.tensors.array(self.tensor(index)) is not None

    def constant(self, index: int) -> Array:
        """Elements of an input that must be constant, in the type of the file."""
        tensor = self.tensor(index)
        array = self.tensors.array(tensor)
        if array is None:
            raise self.fail(
                UNKNOWN_SHAPE,
                f"input {index} ('{tensor.name}') must be known at conversion time, but depends on the model's inputs",
            )
        return array

    def ints(self, index: int) -> tuple[int, ...]:
        """A constant input as Python integers."""
        array = self.constant(index)
        if array.dtype.kind not in "iu":
            raise self.fail(INVALID_NODE, f"input {index} must hold integers, not {self.tensor(index).type}")
        return tuple(array.reshape(-1).tolist())

    def one_int(self, index: int) -> int:
        """A constant input with one integer."""
        numbers = self.ints(index)
        if len(numbers) != 1:
            raise self.fail(INVALID_NODE, f"input {index} must hold one integer, not {len(numbers)}")
        return numbers[0]

    def scalar(self, index: int) -> float:
        """A constant input with one element, dequantized."""
        array = self.constant(index)
        quant = self.quant(index)
        if array.size != 1:
            raise self.fail(INVALID_NODE, f"input {index} must have one element, not shape {list(array.shape)}")
        values = array if quant is None else quant.dequantize(array)
        return float(values.reshape(-1)[0])

    def quant(self, index: int) -> QuantParams | None:
        """Quantization parameters of an input; None if it is not quantized."""
        return self.tensors.quant(self.tensor(index))

    def output_quant(self, index: int = 0) -> QuantParams | None:
        """Quantization parameters of a result; None if it is not quantized."""
        return self.tensors.quant(self.output_tensor(index))

    @cached_property
    def is_quantized(self) -> bool:
        """Return True if a computed input or a result is quantized."""
        moving = [i for i in range(self.input_count) if self.has_input(i) and not self.is_constant(i)]
        results = range(len(self.operator.outputs))
        return any(self.quant(i) is not None for i in moving) or any(self.output_quant(i) is not None for i in results)

    def shape(self, index: int) -> Extents:
        """Extents of an input; () for rank 0."""
        return Extents(self.tensors.shape(self.tensor(index)))

    def shape_of_rank(self, index: int, rank: int) -> Extents:
        """Extents of an input, whose rank is checked."""
        shape = self.shape(index)
        if len(shape) != rank:
            raise self.fail(INVALID_NODE, f"input {index} {list(shape)} must have rank {rank}")
        return shape

    def rank(self, index: int) -> int:
        """Number of axes of an input."""
        return len(self.shape(index))

    def axis(self, axis: int, rank: int) -> int:
        """Convert an axis, which may count from the end, to a nonnegative one.

        Raises:
            CannotConvertError: a tensor of this rank does not have the axis.
        """
        if not -rank <= axis < rank:
            raise self.fail(INVALID_NODE, f"axis {axis} is outside rank {rank}")
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Iterable[int], rank: int) -> tuple[int, ...]:
        """Return distinct nonnegative axes in ascending order."""
        return tuple(sorted({self.axis(axis, rank) for axis in axes}))

    def real(self, index: int) -> Array:
        """A constant input as float32, dequantized."""
        array, quant = self.constant(index), self.quant(index)
        return array.astype(np.float32) if quant is None else quant.dequantize(array)

    def is_empty(self, index: int) -> bool:
        """Return True if an input is given and has no elements. Such an input is always constant."""
        return self.is_constant(index) and not self.constant(index).size

    def empty(self, shape: Iterable[int], index: int = 0) -> Array:
        """Return a result without elements: a constant, even if the operands are computed.

        Raises:
            CannotConvertError: the shape has elements, or a negative extent.
        """
        extents = tuple(shape)
        if min(extents, default=1) != 0:
            raise self.fail(INVALID_NODE, f"a result of the shape {list(extents)} without operands that have elements")
        return np.zeros(extents, NUMPY_NAMES.get(self.output_tensor(index).type, "float32"))

    # Subgraphs

    def binding(self, index: int) -> Bound:
        """Constant array of an input if it is constant and not quantized, or has no elements, else its graph value."""
        tensor = self.tensor(index)
        array = self.tensors.array(tensor)
        if array is None or (array.size and self.quant(index) is not None):
            return self.input(index)
        return array

    def inline_subgraph(self, subgraph: int, first: int = 0) -> tuple[Bound, ...]:
        """Inline a subgraph with the node's inputs from ``first`` on, and return its results."""
        return tuple(self.caller.inline(self, subgraph, [self.binding(i) for i in range(first, self.input_count)]))

    def unroll_loop(self, condition: int, body: int) -> tuple[Bound, ...]:
        """Inline a loop body until the condition, which must be constant before every iteration, is false."""
        state = [self.binding(index) for index in range(self.input_count)]
        while True:
            (holds,) = self.caller.inline(self, condition, state)
            if isinstance(holds, Value):
                message = "its condition depends on the model's inputs"
                raise self.fail(NO_OPERATOR, message, "export the loop with a fixed number of passes")
            if not holds.all():
                return tuple(state)
            state = self.caller.inline(self, body, state)

    # State

    def state(self, index: int) -> Value | None:
        """Current value of a state input; None if the input is absent, or if the state still has its initial zeros."""
        if not self.has_input(index):
            return None
        tensor = self.tensor(index)
        if not tensor.is_variable:
            return self.input(index)
        key = VariableTensor(id(self.tensors.subgraph), tensor.index)
        content = self.caller.states.current.get(key)
        if content is not None:
            assert isinstance(content.value, Value), "operators compute their state"
            return content.value
        started = self.start_state(key, tensor, tensor.shape, tensor.name)
        if started is not None:
            self.caller.states.current[key] = Content(started, tensor.type, self.quant(index))
        return started

    def set_state(self, index: int, value: Value) -> None:
        """Assign a value to a state input."""
        if not self.has_input(index) or not self.tensor(index).is_variable:
            return
        tensor = self.tensor(index)
        key = VariableTensor(id(self.tensors.subgraph), tensor.index)
        self.caller.states.current[key] = Content(value, tensor.type, self.quant(index))

    def start_state(self, key: Key, tensor: Tensor, shape: tuple[int, ...], name: str) -> Value | None:
        """Initial value of a state: an additional graph input if the option ``state`` requests it, else None.

        Args:
            key: the state.
            tensor: type and quantization of the state.
            shape: extents of the state.
            name: name of the state in the file.
        """
        dtype, quant = self.tensors.value_type(tensor), self.tensors.quant(tensor)
        port = Port(name, NUMPY_NAMES.get(tensor.type, "float32"), shape, quant)
        return self.caller.states.start(key, name, TensorType(dtype, shape or (1,)), port)

    def complex(self, index: int) -> ComplexPair:
        """Real and imaginary part of a complex input."""
        return self.tensors.pair(self.tensor(index))

    # Options

    def option(self, name: str, default: Any = 0) -> Any:
        """Value of an option; ``default`` if the operator stores no options at all."""
        try:
            return self.operator.options.get(name, default)
        except KeyError as error:
            raise self.fail(INVALID_NODE, str(error.args[0])) from error

    def ignore_option(self, *names: str) -> None:
        """Mark options as read that do not affect the result; a comment at the call gives the reason."""
        for name in names:
            self.option(name)

    def refuse_option(self, name: str, allowed: Any, hint: str = "") -> None:
        """Raise an error if an option has a value other than ``allowed``."""
        value = self.option(name, allowed)
        if value != allowed:
            raise self.fail(UNSUPPORTED_ATTRIBUTE, f"{name}={value!r}", hint or f"supported: {allowed!r}")

    def activate(self, value: Value) -> Value:
        """Add a node for the fused activation, if the operator has one."""
        number = self.option("fused_activation_function")
        name = _ACTIVATION_NAMES[number] if 0 <= number < len(_ACTIVATION_NAMES) else str(number)
        if name == "NONE":
            return value
        if name not in FUSED_ACTIVATIONS:
            raise self.fail(
                UNSUPPORTED_ATTRIBUTE,
                f"fused_activation_function={name}",
                f"supported: NONE, {', '.join(FUSED_ACTIVATIONS)}",
            )
        self.tensors.rename(value, f"{self.output_tensor().name}:pre")
        return self.graph.add(FUSED_ACTIVATIONS[name], value)

    def nhwc(self, value: Value) -> Permuted:
        """Mark a value as NCHW, for a result whose source tensor is NHWC."""
        return Permuted(value, NCHW)

    def check_size(self, shape: Iterable[int], itemsize: int = 8, limit: int | None = None) -> None:
        """Check the size of a constant before it is computed; the default limit is ``max_expansion_bytes``.

        Raises:
            CannotConvertError: the constant is too large, or an extent is negative.
        """
        extents = tuple(shape)
        if any(extent < 0 for extent in extents):
            raise self.fail(INVALID_NODE, f"it would have the shape {list(extents)}")
        size = itemsize * math.prod(extents)
        max_bytes = self.tensors.file.limits.max_expansion_bytes if limit is None else limit
        if size > max_bytes:
            raise self.fail(
                TOO_LARGE, f"it would make a constant of shape {list(extents)}, {size} bytes, more than {max_bytes}"
            )

    def fail(self, kind: ProblemKind, message: str, hint: str = "") -> CannotConvertError:
        """Create the error for an operator that cannot be converted; use it as ``raise node.fail(...)``."""
        return CannotConvertError(kind, message, hint)
