"""Interface of a converter: a source operator with its inputs and options, and the decorators that register it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.registry import ConverterRegistry, registry
from tpuconvert.frontends.tflite.layout import NCHW, Permuted
from tpuconvert.frontends.tflite.not_representable import REASONS
from tpuconvert.frontends.tflite.reader import Operator, Subgraph, Tensor
from tpuconvert.frontends.tflite.states import Key, States
from tpuconvert.frontends.tflite.tensors import NUMPY_NAMES, ComplexPair, Tensors
from tpuconvert.schema.errors import (
    INVALID_NODE,
    NO_OPERATOR,
    TOO_LARGE,
    UNKNOWN_SHAPE,
    UNSUPPORTED_ATTRIBUTE,
    ProblemKind,
)
from tpuconvert.schema.graph import Graph, Port, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.types import Array, QuantParams, Scalar, TensorType

tflite_op = registry("tflite")
"""Decorator of a converter: ``@tflite_op("CONV_2D")``. A custom operator is registered with ``domain="custom"``."""

folds = ConverterRegistry("tflite constant")
"""Decorator of a constant evaluator: it gets the node, all inputs of which are constant, and returns arrays."""

tflite_op.evaluators = folds
tflite_op.refuse(REASONS)

Bound = Value | Array
"""A tensor between subgraphs: a value, or a constant array."""

Converted = Value | Permuted | Array | ComplexPair
"""A result in the source's layout, a permuted result, a constant array, or a pair of real and imaginary parts."""

FUSED_ACTIVATIONS: dict[str, Op] = {
    "RELU": Active(ActiveType.ACTIVE_RELU),
    "RELU_N1_TO_1": Clamp(Scalar.f32(-1), Scalar.f32(1)),
    "RELU6": Clamp(Scalar.f32(0), Scalar.f32(6)),
    "TANH": Active(ActiveType.ACTIVE_TANH),
}
_ACTIVATION_NAMES = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")


class Caller(Protocol):
    """Interface that replaces an operator by the operators of another subgraph."""

    @property
    def states(self) -> States:
        """State that the model keeps between runs."""

    def inline(self, node: TfliteNode, subgraph: int, inputs: list[Bound]) -> list[Bound]:
        """The results of a subgraph on these inputs."""

    def subgraph(self, node: TfliteNode, index: int) -> Subgraph:
        """A subgraph as the file describes it."""


@dataclass(frozen=True)
class TfliteNode:
    """One source operator. Options that no converter read are reported when it is done."""

    operator: Operator
    tensors: Tensors
    caller: Caller

    @property
    def graph(self) -> Graph:
        """The graph under construction."""
        return self.tensors.graph

    @property
    def op_type(self) -> str:
        """The source operator."""
        return self.operator.name

    @property
    def name(self) -> str:
        """Name of the first result tensor, which is how TFLite tools name an operator."""
        outputs = self.operator.outputs
        return self.tensors.source(outputs[0]).name if outputs else f"{self.op_type} {self.operator.index}"

    # Inputs

    @property
    def input_count(self) -> int:
        """Number of inputs, absent optional ones in between included."""
        return len(self.operator.inputs)

    def has_input(self, index: int) -> bool:
        """Return True if an optional input is given."""
        return index < self.input_count and self.operator.inputs[index] >= 0

    def tensor(self, index: int) -> Tensor:
        """An input as the file describes it."""
        if not self.has_input(index):
            raise self.fail(INVALID_NODE, f"lacks its input {index}")
        return self.tensors.source(self.operator.inputs[index])

    def output_tensor(self, index: int = 0) -> Tensor:
        """A result as the file describes it."""
        if index >= len(self.operator.outputs):
            raise self.fail(INVALID_NODE, f"lacks its output {index}")
        return self.tensors.source(self.operator.outputs[index])

    def input(self, index: int) -> Value:
        """An input in the source's layout. Quantized integers are FLOAT32 with an annotation."""
        return self.tensors.value(self.tensor(index), annotated=self.is_quantized)

    def values(self) -> list[Value]:
        """All inputs."""
        return [self.input(index) for index in range(self.input_count)]

    def nchw(self, index: int) -> Value:
        """A rank 4 input as NCHW."""
        return self.permute(index, NCHW)

    def permute(self, index: int, order: tuple[int, ...]) -> Value:
        """An input with its axes in another order: a constant at conversion time, else by a Permute that is reused."""
        self.shape_of_rank(index, len(order))
        return self.tensors.permute(self.tensor(index), order, annotated=self.is_quantized)

    def is_constant(self, index: int) -> bool:
        """Return True if an input is given and constant."""
        return self.has_input(index) and self.tensors.array(self.tensor(index)) is not None

    def constant(self, index: int) -> Array:
        """The elements of an input that has to be constant, in the file's type."""
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
        found = self.ints(index)
        if len(found) != 1:
            raise self.fail(INVALID_NODE, f"input {index} must hold one integer, not {len(found)}")
        return found[0]

    def scalar(self, index: int) -> float:
        """A constant input with one element, dequantized."""
        array = self.constant(index)
        quant = self.quant(index)
        if array.size != 1:
            raise self.fail(INVALID_NODE, f"input {index} must have one element, not shape {list(array.shape)}")
        values = array if quant is None else quant.dequantize(array)
        return float(values.reshape(-1)[0])

    def quant(self, index: int) -> QuantParams | None:
        """Quantization parameters of an input, None if it is not quantized."""
        return self.tensors.quant(self.tensor(index))

    def output_quant(self, index: int = 0) -> QuantParams | None:
        """Quantization parameters of a result."""
        return self.tensors.quant(self.output_tensor(index))

    @cached_property
    def is_quantized(self) -> bool:
        """Return True if an input that is not constant, or a result, is quantized."""
        moving = [i for i in range(self.input_count) if self.has_input(i) and not self.is_constant(i)]
        results = range(len(self.operator.outputs))
        return any(self.quant(i) is not None for i in moving) or any(self.output_quant(i) is not None for i in results)

    def shape(self, index: int) -> tuple[int, ...]:
        """Extents of an input; () for rank 0."""
        return self.tensors.shape(self.tensor(index))

    def shape_of_rank(self, index: int, rank: int) -> tuple[int, ...]:
        """Extents of an input that must have a rank."""
        shape = self.shape(index)
        if len(shape) != rank:
            raise self.fail(INVALID_NODE, f"input {index} {list(shape)} must have rank {rank}")
        return shape

    def rank(self, index: int) -> int:
        """Number of axes of an input."""
        return len(self.shape(index))

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front.

        Raises:
            CannotConvertError: it is outside the rank.
        """
        if not -rank <= axis < rank:
            raise self.fail(INVALID_NODE, f"axis {axis} is outside rank {rank}")
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Iterable[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, ascending, each once."""
        return tuple(sorted({self.axis(axis, rank) for axis in axes}))

    def real(self, index: int) -> Array:
        """A constant input as float32, dequantized."""
        array, quant = self.constant(index), self.quant(index)
        return array.astype(np.float32) if quant is None else quant.dequantize(array)

    # Subgraphs

    def binding(self, index: int) -> Bound:
        """An input: an array if it is constant, else a value."""
        tensor = self.tensor(index)
        array = self.tensors.array(tensor)
        return self.input(index) if array is None or self.quant(index) is not None else array

    def inline_subgraph(self, subgraph: int, first: int = 0) -> tuple[Bound, ...]:
        """The results of a subgraph on the inputs from ``first`` on."""
        return tuple(self.caller.inline(self, subgraph, [self.binding(i) for i in range(first, self.input_count)]))

    def unroll_loop(self, condition: int, body: int) -> tuple[Bound, ...]:
        """The results of a body that runs as long as a condition holds, which must be known before every pass."""
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
        """A state input: the last value assigned to it, or None for zeros and for an absent input."""
        if not self.has_input(index):
            return None
        tensor = self.tensor(index)
        if not tensor.is_variable:
            return self.input(index)
        key = id(self.tensors.subgraph), tensor.index
        found = self.caller.states.current.get(key)
        return found if isinstance(found, Value) else self.start_state(key, tensor, tensor.shape)

    def set_state(self, index: int, value: Value) -> None:
        """Assign a value to a state input."""
        if self.has_input(index) and self.tensor(index).is_variable:
            self.caller.states.current[id(self.tensors.subgraph), self.tensor(index).index] = value

    def start_state(self, key: Key, tensor: Tensor, shape: tuple[int, ...]) -> Value | None:
        """State before its first change: an input of the model if the option requests it, else None."""
        dtype, quant = self.tensors.value_type(tensor), self.tensors.quant(tensor)
        name = tensor.name if isinstance(key, tuple) else key
        port = Port(name, NUMPY_NAMES.get(tensor.type, "float32"), shape, quant)
        return self.caller.states.start(key, port, TensorType(dtype, shape or (1,)))

    def complex(self, index: int) -> ComplexPair:
        """An input of complex numbers."""
        return self.tensors.pair(self.tensor(index))

    # Options

    def option(self, name: str, default: Any = 0) -> Any:
        """A field of the options; ``default`` when the operator stores none."""
        try:
            return self.operator.options.get(name, default)
        except KeyError as error:
            raise self.fail(INVALID_NODE, str(error.args[0])) from error

    def ignore_option(self, *names: str) -> None:
        """Mark fields as read that do not affect the result; the caller gives the reason in a comment."""
        for name in names:
            self.option(name)

    def refuse_option(self, name: str, allowed: Any, hint: str = "") -> None:
        """Accept a field only with its neutral value."""
        found = self.option(name, allowed)
        if found != allowed:
            raise self.fail(UNSUPPORTED_ATTRIBUTE, f"{name}={found!r}", hint or f"supported: {allowed!r}")

    def activate(self, value: Value) -> Value:
        """Add the fused activation as a separate node."""
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
        """An NCHW result whose source tensor is NHWC."""
        return Permuted(value, NCHW)

    def check_size(self, shape: Iterable[int], itemsize: int = 8, limit: int | None = None) -> None:
        """Refuse a constant that is too large before it is computed; the default limit is that of one lowered operator.

        Raises:
            CannotConvertError: it is too large, or an extent is negative.
        """
        extents = tuple(shape)
        if any(extent < 0 for extent in extents):
            raise self.fail(INVALID_NODE, f"it would have the shape {list(extents)}")
        size = itemsize * math.prod(extents)
        most = self.tensors.file.limits.max_expansion_bytes if limit is None else limit
        if size > most:
            raise self.fail(
                TOO_LARGE, f"it would make a constant of shape {list(extents)}, {size} bytes, more than {most}"
            )

    def fail(self, kind: ProblemKind, message: str, hint: str = "") -> CannotConvertError:
        """The error that a converter raises: ``raise node.fail(...)``."""
        return CannotConvertError(kind, message, hint)
