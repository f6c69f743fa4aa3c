"""Translation of a lowered graph to calls of the vendor's TPULang API.

The graph is lowered to the ``tpu`` dialect first, so that both exports share their arithmetic. Then each operation of
the dialect becomes one or two calls. The API has fewer forms than the dialect.

Source: ``transform/TpuLang.py`` of tpu_mlir 1.30.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Line, Tensor
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.schema.errors import NO_EXACT_FORM
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.types import Array

OTHER_FORM = "export with --to tpu-mlir, which has more exact forms"

_DTYPES = {
    "f32": "float32",
    "i32": "int32",
    "si32": "int32",
    "i16": "int16",
    "u16": "uint16",
    "i8": "int8",
    "si8": "int8",
    "u8": "uint8",
    "ui8": "uint8",
}
"""Element type of the dialect, without quantization -> type of the API."""


class Element(NamedTuple):
    """Element type of a tensor.

    Attributes:
        dtype: type of the API, such as ``int8``.
        scale: scale of a quantized type, otherwise 1.
        zero_point: zero point of a quantized type, otherwise 0.
    """

    dtype: str
    scale: float
    zero_point: int


def element_of(tensor: Tensor) -> Element:
    """Return the element type of a tensor of the dialect."""
    match = re.fullmatch(r"!quant\.uniform<(\w+):f32, ([^:>]+)(?::(-?\d+))?>", tensor.element)
    if match is None:
        return Element(_DTYPES[tensor.element], 1.0, 0)
    storage, scale, zero_point = match.groups()
    return Element(_DTYPES[storage], float(scale), int(zero_point or 0))


class Stored(NamedTuple):
    """Argument of a call that is stored with the weights.

    Attributes:
        name: name in the .npz file, and of the tensor.
        array: the elements.
        is_list: True for a list of Python integers, False for a constant tensor.
    """

    name: str
    array: Array
    is_list: bool = False


class Scalar(NamedTuple):
    """Argument of the API's type ``Scalar``."""

    value: float


class Call(NamedTuple):
    """A statement of the program that computes a tensor.

    Attributes:
        text: source text.
        operands: computed tensors that it reads.
        stored: arrays that it reads.
    """

    text: str
    operands: list[Tensor]
    stored: list[Stored]


class Program:
    """Calls that compute the tensors of a lowered graph.

    Args:
        lowering: the lowered graph; its requantization parameters have three words per channel. Nodes that the API
            cannot compute are added to its problems.

    Attributes:
        unshaped: result of a reshape -> tensor before the first one of consecutive reshapes.
    """

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.module = lowering.module
        self._names = {tensor: f"x{index}" for index, tensor in enumerate(self.module.inputs)}
        self.unshaped: dict[Tensor, Tensor] = {}
        self._calls: dict[Tensor, Call] = {}

    def run(self, translators: Mapping[str, Translator]) -> None:
        """Translate the operations of all nodes that have a form."""
        skipped: set[Node | None] = {*self.lowering.without_form}
        for line in self.module.lines:
            if line.operation == "top.Weight" or line.origin in skipped:
                continue
            if any(tensor and not self._is_available(tensor) for tensor in line.operands):
                continue  # the problem was reported for the operand
            try:
                if line.operation not in translators:
                    raise NoExactForm(f"TPULang has no function with the integers of {line.operation}")
                translators[line.operation](line, self)
            except NoExactForm as error:
                skipped.add(line.origin)
                self._refuse(line, error)

    def _is_available(self, tensor: Tensor) -> bool:
        return tensor in self._names or self.module.array(tensor) is not None

    def _refuse(self, line: Line, error: NoExactForm) -> None:
        node = line.origin
        operator, name = (node.op.name, node.name) if node is not None else ("input", line.result.location)
        self.lowering.problems.add(NO_EXACT_FORM, operator, name, error.reason, error.hint or OTHER_FORM)

    def add(self, result: Tensor, function: str, *arguments: Argument, **named: Argument) -> None:
        """Append the call of an API function that computes a tensor."""
        operands: list[Tensor] = []
        stored: list[Stored] = []

        def text(item: Argument) -> str:
            if isinstance(item, Tensor):
                array = self.module.array(item)
                if array is not None:
                    return text(Stored(item.location, array))
                operands.append(item)
                return self._names[item]
            if isinstance(item, Stored):
                stored.append(item)
                return f"{'numbers' if item.is_list else 'constant'}({item.name!r})"
            if isinstance(item, Scalar):
                return f"tpul.Scalar({float(item.value)!r})"
            if isinstance(item, (list, tuple)):
                return f"[{', '.join(map(text, item))}]"
            return repr(item)

        texts = [*map(text, arguments), *(f"{key}={text(item)}" for key, item in named.items())]
        variable = self._names.setdefault(result, f"t{len(self._calls)}")
        call = f"{variable} = tpul.{function}({', '.join(texts)}, out_name={result.location!r})"
        self._calls[result] = Call(call, operands, stored)

    def used_calls(self, results: Sequence[Tensor]) -> list[Call]:
        """Return the calls that the results need, in execution order."""
        needed = set(results)
        calls = []
        for tensor, call in reversed(self._calls.items()):
            if tensor in needed:
                needed.update(call.operands)
                calls.append(call)
        return calls[::-1]

    def weights(self, results: Sequence[Tensor]) -> dict[str, Array]:
        """Return the stored arrays that the results need, by name."""
        return {item.name: item.array for call in self.used_calls(results) for item in call.stored}

    def text(self, results: Sequence[Tensor]) -> str:
        """Return the body of a function that returns the list of its inputs and the list of the given tensors."""
        inputs = [self._names[tensor] for tensor in self.module.inputs]
        lines = [
            f"{name} = tpul.Tensor(dtype='float32', shape={list(tensor.shape)}, name={tensor.location!r})"
            for name, tensor in zip(inputs, self.module.inputs, strict=True)
        ]
        lines += [call.text for call in self.used_calls(results)]
        lines.append(f"return [{', '.join(inputs)}], [{', '.join(self._names[tensor] for tensor in results)}]")
        return "".join(f"    {line}\n" for line in lines)


Argument = Tensor | Stored | Scalar | Sequence[Any] | str | float | bool | None
"""Argument of a call."""

Translator = Callable[[Line, Program], None]
"""Function that adds the calls of an operation of the dialect."""
