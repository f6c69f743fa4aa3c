"""Steps of element-wise integer instructions: memory order, operands and the spec of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import EXTERNAL, Order, Stored, row_major
from tpuconvert.runtime.native.matchers.elements import ELEMENT_TYPES, LARGEST, Elements, Instruction, Term
from tpuconvert.runtime.native.matchers.epilogue import bias_of
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.types import I8, I32


def emit_elements(elements: Elements, builder: Builder, x: Term, y: Value) -> None:
    """Add the step that computes a term."""
    if x.operand is not None and x.values is not None and x.dtype.bits == 8 and len(elements.operands) == 1:
        _emit_table(elements, builder, x, y)
        return
    table, bias = [], 0 if x.dtype.is_float else bias_of(x.dtype)
    if x.values is not None and x.operand is None and x.dtype.bits == 8:
        stored = (x.values + bias_of(x.dtype)).astype(np.uint8)
        table, bias = stored.tolist(), bias_of(x.argument)
        x = x._replace(values=None, dtype=x.argument, low=x.argument.min, high=x.argument.max)
    if x.values is not None or x.factor is not None:
        x = x._replace(register=elements.value_of(x), operand=None, values=None, factor=None, is_limited=True)
    assert x.register is not None
    low, high = (0, 0) if x.dtype.bits == 32 else (x.low, x.high)
    register = elements.value_of(x) if x.dtype.bits == 32 else x.register
    if register != len(elements.instructions) - 1:  # The step stores the result of its last instruction.
        register = elements.add("clamp", register, low=-LARGEST - 1, high=LARGEST)
    shape = builder.shape(y)
    order = _order(elements, builder, shape)
    target = builder.write(y, order)
    tensors = [_readable(builder, value, order) for value in elements.operands]
    axis = order.index(1) if elements.is_per_channel else -1
    spec = builder.native.ElementwiseIntSpec(
        shape=[shape[axis] for axis in order],
        channel_axis=axis,
        operands=[_tensor(builder, tensor, shape, order) for tensor in tensors],
        instructions=[_compile(builder, instruction) for instruction in elements.instructions],
        result=_tensor(builder, target, shape, order),
        low=low,
        high=high,
        bias=bias,
        table=table,
    )
    builder.step("elementwise_int", spec, tensors, (target,))


def _emit_table(elements: Elements, builder: Builder, x: Term, y: Value) -> None:
    assert x.values is not None
    source = builder.read(elements.operands[0], dense=False)
    target = builder.write(y, source.order)
    length = source.size if source.is_dense else source.memory_shape[-1]
    builder.kernel_step(
        "look_up",
        "LookUpSpec",
        {"source": source},
        {"target": target},
        rows=source.size // length,
        length=length,
        pitch=length if source.is_dense else source.row_bytes,
        table=(x.values + bias_of(x.dtype)).astype(np.uint8).tolist(),
    )


def _order(elements: Elements, builder: Builder, shape: tuple[int, ...]) -> Order:
    """Return the memory order of the largest operand."""
    full_operands = [value for value in elements.operands if not value.is_constant and builder.shape(value) == shape]
    inside = [value for value in full_operands if builder.memory_of(value).buffer.kind != EXTERNAL]
    return builder.memory_of((inside or full_operands)[0]).order if full_operands else row_major(len(shape))


def _readable(builder: Builder, value: Value, order: Order) -> Stored:
    if not value.is_constant and value.dtype is not I8:
        source = builder.memory_of(value)
        if source.buffer.kind == EXTERNAL and source.has_order(order):
            return source.in_order(order)
    stored = builder.read(value, order, dense=False)
    wide = [axis for axis in order if stored.shape[axis] != 1]
    if wide and stored.strides[wide[-1]] != stored.itemsize:
        stored = builder.read(value, order)
    return stored


def _compile(builder: Builder, instruction: Instruction) -> Any:
    native = builder.native
    arguments = {name: _to_lists(value) for name, value in instruction.arguments.items()}
    if any(isinstance(value, int) and not I32.holds(value) for value in arguments.values()):
        raise OverflowError(f"a parameter of {instruction.code} has more than 32 bits")
    if instruction.code != "rescale":
        return native.ElementInstruction(code=instruction.code, **arguments)
    rescale = native.Rescale.TWO_ROUNDINGS if arguments.pop("rounds_twice") else native.Rescale.ONE_ROUNDING
    operand = {name: arguments.pop(name) for name in ("a", "b", "low", "high")}
    least, largest = arguments.pop("least"), arguments.pop("most")
    epilogue = native.EpilogueSpec(rescale=rescale, low=least, high=largest, bytes=4, **arguments)
    return native.ElementInstruction(code="rescale", epilogue=epilogue, **operand)


def _to_lists(value: object) -> object:
    """Convert arrays to lists, recursively."""
    if isinstance(value, list):
        return [_to_lists(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def _tensor(builder: Builder, stored: Stored, shape: tuple[int, ...], order: Order) -> Any:
    """Return the ``ElementTensor`` of an operand; broadcast axes have stride 0."""
    strides = [stored.strides[axis] if stored.shape[axis] == shape[axis] else 0 for axis in order]
    return builder.native.ElementTensor(place=builder.place(stored), type=ELEMENT_TYPES[stored.dtype], strides=strides)
