"""Lowering of a graph of TPU operators to the vendor compiler's ``tpu`` dialect.

Integer tensors are bit-exact, except those that follow from floating-point results: a device may round these
differently. A node without a form, and all nodes that depend on it, are left to the host: the program returns their
operands. A strict lowering leaves floating-point operators at the end of the graph to the host, and reports every other
node without an exact form as a problem.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tpuconvert.exporters.lowerings import Lowerings, NoExactForm
from tpuconvert.exporters.tpu_mlir.chips import Target
from tpuconvert.exporters.tpu_mlir.dialect import Module, Tensor, quantized_element
from tpuconvert.schema.errors import NO_EXACT_FORM, ProblemList, without_operator
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.recurrent.recurrent import SequenceLayer
from tpuconvert.schema.types import Array, Chip, DType

KINDS = {"f32": "INT8", "f16": "F16", "bf16": "BF16"}
"""Type of the floating-point operators -> mode of a module, which does not change the types of its tensors."""

PLAIN_ELEMENTS = {
    DType.INT8: "!quant.uniform<i8:f32, 1.0>",
    DType.UINT8: "!quant.uniform<u8:f32, 1.0>",
    DType.INT16: "!quant.uniform<i16:f32, 1.0>",
    DType.UINT16: "!quant.uniform<u16:f32, 1.0>",
    DType.INT32: "si32",
}
"""Element types of integers without a scale. Operands of a convolution need a quantized type."""

LANES = 64
"""Most channels that a chip computes at the same time."""

MOST_GROUPED_CHANNELS = 4
"""Largest number of channels for which the compiler has special convolutions of images."""

INTEGERS = "integers"
"""Border of a program that takes and returns integers."""

OPEN_EXTENT = "convert with --input-shapes, which fixes every extent"
UNROLL = "convert with --strict-set or --exact-on bm1684x, which unrolls the steps of the layer"


class Lowering:
    """State of one lowering.

    Args:
        graph: graph that is quantized for the target's chip.
        target: chip of the vendor's compiler.
        name: symbol name of the module; the weights are in ``NAME_weights.npz``.
        kind: type in which floating-point operators compute: ``f32``, ``f16`` or ``bf16``.
        is_strict: refuse nodes without an exact form, also integers that follow from floating-point results, which the
            device may round differently.
        on_host: names of nodes that the host is to compute, with the reason.
        borders: types of the floating-point inputs and of the floating-point results of the program. ``INTEGERS`` for
            the integers that the model makes of an input first, or of which it makes a result last.

    Attributes:
        module: the result.
        inputs: inputs of the graph, with the inputs of the module.
        quantizers: inputs of the graph of which the program takes the integers, with the node that makes them.
        problems: inputs and nodes that have no exact equivalent.
        without_form: nodes without a form, with the reason. The host computes them, and all nodes that depend on them.
        refused: the same; a strict lowering accepts floating-point nodes without a form at the end.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        name: str,
        kind: str = "f32",
        *,
        is_strict: bool = False,
        on_host: Mapping[str, str] = MappingProxyType({}),
        borders: tuple[str, str] = ("f32", "f32"),
    ) -> None:
        self.graph = graph
        self.target = target
        self.kind = kind
        self.is_strict = is_strict
        self.on_host = on_host
        self.borders = borders
        self.module = Module(name, _module_attributes(target, name, kind), target.absent)
        self.refused: dict[Node, str] = {}
        self.without_form: dict[Node, str] = {}
        self.inputs: dict[Value, Tensor] = {}
        self.quantizers: dict[Value, Node] = {}
        self.problems = ProblemList(graph.file or graph.name, f"export for {target.name}")
        self._tensors: dict[Value, Tensor] = {}
        self._reshaped: dict[Tensor, Tensor] = {}
        self._reshapes: dict[tuple[Tensor, tuple[int, ...]], Tensor] = {}
        self._fused: set[Node] = set()
        self._internal: set[Value] = set()
        self._unavailable: set[Value] = set()
        self._varying = _varying_values(graph)
        self._has_floats = False

    # Values and tensors

    def is_available(self, value: Value) -> bool:
        """Return True if a computed value has a tensor in the module."""
        return value in self._tensors

    def tensor(self, value: Value | None) -> Tensor:
        """Return the tensor of a computed value."""
        assert value is not None
        if value.is_constant:
            raise NoExactForm(f"operand '{value.name}' is a constant, expected a computed tensor")
        return self._tensors[value]

    def define(self, value: Value, tensor: Tensor) -> None:
        """Record the tensor of the module that corresponds to a value."""
        self._tensors[value] = tensor

    def define_operand(self, value: Value, tensor: Tensor) -> None:
        """Record the operand of a node that the lowering of its user includes: the program has no tensor of its result.

        The user finds the parameters in the node, the producer of ``value``.
        """
        self._tensors[value] = tensor
        self._internal.add(value)

    def element(self, value: Value) -> str:
        """Return the element type of a value in the dialect.

        Raises:
            NoExactForm: the value has no representation there.
        """
        if value.dtype is DType.FLOAT32:
            return self.kind
        if value.dtype is DType.INT32:
            return "si32"
        if value.dtype not in (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16):
            raise NoExactForm(f"'{value.name}' has type {value.dtype.name}, expected 8, 16 or 32 bits")
        if value.quant is None or len(set(value.quant.zero_point)) > 1:  # only casts with one zero point read it
            return PLAIN_ELEMENTS[value.dtype]
        return quantized_element(value.dtype, value.quant)

    def add(
        self,
        operation: str,
        operands: Sequence[Tensor | None],
        value: Value,
        **attributes: Any,
    ) -> Tensor:
        """Append an operation whose result is a value of the graph. Floating-point operands get the module's type."""
        if value.dtype is DType.FLOAT32:
            operands = [x if x is None or x.element not in KINDS else self.as_kind(x, self.kind) for x in operands]
        tensor = self.module.add(
            operation, operands, static_shape(value), self.element(value), value.name, **attributes
        )
        self.define(value, tensor)
        return tensor

    def floats(self, value: Value | None, kind: str = "", shape: Sequence[int] | None = None) -> Tensor:
        """Return a computed or constant FLOAT32 operand.

        Args:
            value: the operand.
            kind: type of the tensor; by default the type of the module.
            shape: shape of a constant; its own by default.
        """
        assert value is not None
        if not value.is_constant:
            return self.as_kind(self.tensor(value), kind or self.kind)
        array = value.array if shape is None else value.array.reshape(shape)
        return self.float_weight(array, value.name, kind)

    def repeated(self, value: Value | None, shape: Sequence[int]) -> Tensor:
        """Return a FLOAT32 operand with the elements repeated along axes, so that it has a shape."""
        assert value is not None
        own, complete = static_shape(value), tuple(shape)
        if own == complete:
            return self.floats(value)
        if value.is_constant:
            return self.float_weight(np.ascontiguousarray(np.broadcast_to(value.array, complete)), value.name)
        aligned = (*(1,) * (len(complete) - len(own)), *own)
        x = self.reshape(self.floats(value), aligned, f"{value.name}_aligned")
        counts = [whole // part for whole, part in zip(complete, aligned, strict=True)]
        if all(count == 1 for count in counts):
            return x
        return self.module.add("tpu.Tile", [x], complete, x.element, f"{value.name}_repeated", tile=counts)

    def float_weight(self, array: Array, location: str, kind: str = "") -> Tensor:
        """Add a FLOAT32 weight, rounded to a type, by default the type of the module."""
        return self.module.float_weight(array, kind or self.kind, location)

    def has_operation(self, operation: str, mode: str = "") -> bool:
        """Return True if the chip has an operation of the dialect."""
        return not {(operation, mode), (operation, "")} & self.target.absent

    def cast(self, x: Tensor, element: str, location: str, *, with_scale: bool = True) -> Tensor:
        """Append a conversion of floats to integers."""
        shape = x.shape
        if len(shape) == 1:
            # BM1688 casts an element of a flat tensor in 6 estimated cycles, and one of rows in 0.2.
            count = next(rows for rows in range(LANES, 0, -1) if shape[0] % rows == 0)
            by_rows = (1, count, shape[0] // count)
        elif not self.target.groups_images and len(shape) == 4 and shape[1] <= MOST_GROUPED_CHANNELS:
            by_rows = (shape[0], shape[1] * shape[2], shape[3])
        else:
            return self.module.add("tpu.Cast", [x], shape, element, location, with_scale=with_scale)
        rows = self.reshape(x, by_rows, f"{location}_float_rows")
        result = self.module.add("tpu.Cast", [rows], rows.shape, element, f"{location}_rows", with_scale=with_scale)
        return self.reshape(result, shape, location)

    def as_kind(self, tensor: Tensor, kind: str) -> Tensor:
        """Return a floating-point tensor in a type."""
        if tensor.element == kind:
            return tensor
        location = f"{tensor.location}_{kind}"
        return self.module.add("tpu.Cast", [tensor], tensor.shape, kind, location)

    def add_floats(
        self, operation: str, operands: Sequence[Tensor | None], value: Value, kind: str = "", **attributes: Any
    ) -> None:
        """Append a floating-point operation that computes a value of the graph in a type, by default the module's."""
        shape = static_shape(value)
        result = self.module.add(operation, operands, shape, kind or self.kind, value.name, **attributes)
        self.define(value, self.as_kind(result, self.kind))

    def reshape(self, x: Tensor, shape: Sequence[int], location: str) -> Tensor:
        """Return a tensor in a shape: the tensor, what it is a reshape of, or a reshape, which is appended only once.

        The compiler merges equal reshapes, and returns a merged one under one of the names.
        """
        target = tuple(shape)
        for tensor in (x, self._reshaped.get(x), self._reshapes.get((x, target))):
            if tensor is not None and tensor.shape == target:
                return tensor
        result = self.module.add("tpu.Reshape", self.reshape_operands(x), shape, x.element, location, shape=shape)
        self._reshaped[result] = x
        self._reshapes[x, target] = result
        return result

    def reshape_operands(self, x: Tensor) -> list[Tensor | None]:
        """Return the operands of a reshape. The compiler aborts for BM1684 if the one for a buffer is missing."""
        return [x, None] if self.target.has_reshape_buffer else [x]

    # Nodes

    def sole_user(self, value: Value, operator: str) -> Node | None:
        """Return the only user of a value if it is a node of this operator and the value is not a graph output."""
        users = value.users
        if len(users) != 1 or users[0].op.name != operator or self.graph.is_output(value):
            return None
        return users[0]

    def mark_fused(self, node: Node) -> None:
        """Mark a node as lowered together with an earlier node, so that it is skipped."""
        self._fused.add(node)

    def run(self, lowerings: Lowerings[Lowering], floats: Lowerings[Lowering] | None = None) -> None:
        """Lower all nodes. Problems are collected.

        Args:
            lowerings: lowerings by operator.
            floats: lowerings of nodes whose operands and results are FLOAT32, which come first.
        """
        self._has_floats = floats is not None
        for value in self.graph.inputs:
            try:
                self._lower_input(value)
            except NoExactForm as error:
                self._unavailable.add(value)
                self.problems.add(NO_EXACT_FORM, "input", value.name, error.reason, error.hint)
        for node in self.graph.nodes:
            if node in self._fused:
                continue
            operands = [value for value in node.inputs if value is not None and not value.is_constant]
            if any(value in self._unavailable for value in operands):
                self._unavailable.update(node.outputs)  # the problem was reported for the operand
            elif node.name in self.on_host:
                self._refuse(node, self.on_host[node.name], "")
            elif all(value in self._tensors for value in operands):
                self._lower_node(node, lowerings, floats)
            elif self.is_strict and not _computes_floats(node):
                self._refuse_after_host(node)

    def _lower_node(self, node: Node, lowerings: Lowerings[Lowering], floats: Lowerings[Lowering] | None) -> None:
        """Lower a node whose operands have tensors."""
        functions = [lowerings.find(node.op.name)]
        if floats is not None and _computes_floats(node) and _has_float_operands(node):
            # The forms for BM1684 of products with numbers belong to the integers before or after them.
            functions.insert(len(functions) if self.target.chip is Chip.BM1684 else 0, floats.find(node.op.name))
        forms = [function for function in functions if function is not None]
        if not forms:
            hint = UNROLL if isinstance(node.op, SequenceLayer) else ""
            self._refuse(node, "the tpu dialect has no operation with its results", hint)
        self.module.origin = node
        for function in forms:
            try:
                function(node.op, node, self)
                return
            except NoExactForm as error:
                if function is forms[-1]:
                    self._refuse(node, error.reason, error.hint)

    def _refuse_after_host(self, node: Node) -> None:
        """Refuse an integer node that depends on a floating-point node without a form, in a strict lowering."""
        if control := self._control_flow_before(node):
            text = f"it depends on {control.op.name} '{control.name}', whose subgraphs run on the host"
            self._refuse(node, text, "end the model before that node: --outputs")
            return
        option = f"--exact-on {self.target.name}"
        hint = f"with {option} a conversion leaves the network from there on in float, for the host"
        self._refuse(node, "its operand is a floating-point result that the device does not compute", hint)

    def _control_flow_before(self, node: Node) -> Node | None:
        """Return a node with subgraphs on which a node depends through nodes of the host, or None."""
        seen, stack = {node}, [node]
        while stack:
            current = stack.pop()
            if current.op.has_subgraphs:
                return current
            before = [value.producer for value in current.inputs if value is not None and value not in self._tensors]
            new = [producer for producer in before if producer is not None and producer not in seen]
            seen.update(new)
            stack += new
        return None

    def _refuse(self, node: Node, reason: str, hint: str) -> None:
        """Record why a node has no form. A strict lowering accepts floats at the end of a graph."""
        text = without_operator(reason, node.op.name)
        self.without_form[node] = text
        if self.is_strict and _computes_floats(node):
            return
        self.refused[node] = text
        if not hint and self.target.chip is Chip.BM1684:
            hint = "convert with --exact-on bm1684, which quantizes for the forms of that chip"
        self.problems.add(NO_EXACT_FORM, node.op.name, node.name, text, hint)
        if self.is_strict:
            self._unavailable.update(node.outputs)

    def _lower_input(self, value: Value) -> None:
        """Add an input. Integers of 8 and 16 bits get a float32 input and a cast where a chip takes none."""
        shape, has_integers = static_shape(value), self.borders[0] == INTEGERS
        quantizer = self.sole_user(value, "requant_fp32_to_int") if has_integers else None
        if quantizer is not None and quantizer.output.quant is not None and is_per_tensor(quantizer):
            self.quantizers[value] = quantizer
            source = self.module.input(quantizer.output.name, shape, self.element(quantizer.output))
            self.define(quantizer.output, source)
            self.mark_fused(quantizer)
        elif value.dtype is DType.FLOAT32:
            source = self.module.input(value.name, shape, "f32" if has_integers else self.borders[0])
            self.define(value, source)
        elif value.dtype is DType.INT32 and value.quant is None and self._has_floats:
            source = self.module.input(value.name, shape, "si32")
            self.define(value, source)
        elif has_integers or self.target.takes_integers:
            source = self.module.input(value.name, shape, self.element(value))
            self.define(value, source)
        else:
            source = self.module.input(f"{value.name}_float", shape)
            element, has_scale = self.element(value), value.quant is not None
            self.define(value, self.cast(source, element, value.name, with_scale=has_scale))
        self.inputs[value] = source

    # Results

    def is_returnable(self, value: Value) -> bool:
        """Return True if the program computes a value from its inputs, in the form that the graph has.

        The compiler writes wrong elements for weights that a program returns.
        """
        return value in self._varying and value in self._tensors and value not in self._internal

    def at_border(self, output: Value) -> Value:
        """Return the value that the program returns for an output of the graph: its integers, if they are requested."""
        node = output.producer
        if self.borders[1] != INTEGERS or node is None or node.op.name != "dequant_int_to_fp32":
            return output
        integers = node.inputs[0]
        is_available = integers is not None and integers in self._tensors and integers not in self._internal
        return integers if is_available and integers is not None and is_per_tensor(node) else output

    def returned(self, value: Value) -> Tensor:
        """Return the tensor that the program returns for a value: the integers as float32 if the chip requires this."""
        tensor = self.tensor(value)
        if value.dtype is DType.FLOAT32:
            return self.as_kind(tensor, "f32" if self.borders[1] == INTEGERS else self.borders[1])
        if not (self.target.returns_floats and value.dtype.is_integer):
            return tensor
        return self.module.add("tpu.Cast", [tensor], tensor.shape, "f32", f"{value.name}_f32", with_scale=False)

    def integer_values(self) -> list[Value]:
        """Return every integer value that the program computes, in execution order."""
        values = [*self.graph.inputs, *(value for node in self.graph.nodes for value in node.outputs)]
        inputs = set(self.module.inputs)
        computed = {value for value, tensor in self._tensors.items() if tensor not in inputs} - self._internal
        return [value for value in values if value in computed and value.dtype.is_integer]


def _varying_values(graph: Graph) -> set[Value]:
    """Return the results of nodes that depend on an input of the graph."""
    varying = set(graph.inputs)
    for node in graph.nodes:
        if not varying.isdisjoint(node.inputs):
            varying.update(node.outputs)
    return varying - set(graph.inputs)


def is_per_tensor(node: Node) -> bool:
    """Return True if a conversion between floats and integers has one scale and one offset, which it adds last."""
    return not (node.op.is_scale_pc or node.op.is_offset_pc) and not getattr(node.op, "mode", 0)  # type: ignore[attr-defined]


def _computes_floats(node: Node) -> bool:
    return all(value.dtype is DType.FLOAT32 for value in node.outputs)


def _has_float_operands(node: Node) -> bool:
    """Return True if all computed operands are FLOAT32. Packed weights are constants of another type."""
    return all(value is None or value.is_constant or value.dtype is DType.FLOAT32 for value in node.inputs)


def static_shape(value: Value) -> tuple[int, ...]:
    """Return the extents of a value.

    Raises:
        NoExactForm: an extent is symbolic.
    """
    if not value.type.is_static:
        raise NoExactForm(f"'{value.name}' has shape {value.type}, expected numbers", OPEN_EXTENT)
    return value.type.static_shape


def channel_count(value: Value) -> int:
    """Extent of axis 1, or 1 for a value of rank 1."""
    shape = static_shape(value)
    return shape[1] if len(shape) > 1 else 1


def reciprocal_scale(multiplier: float) -> float:
    """Return a scale whose float32 reciprocal is a float32 multiplier.

    Raises:
        NoExactForm: no float64 number has this reciprocal.
    """
    rounded = np.float32(multiplier)
    scale = 1.0 / float(rounded)
    for candidate in (scale, math.nextafter(scale, math.inf), math.nextafter(scale, 0)):
        if np.float32(1.0 / candidate) == rounded:
            return candidate
    raise NoExactForm(f"no scale has the float32 reciprocal {rounded!r}")


def _module_attributes(target: Target, name: str, kind: str) -> dict[str, str]:
    return {
        "module.FLOPs": "0 : i64",
        "module.addr_mode": '"basic"',
        "module.asymmetric": "false",
        "module.chip": f'"{target.name}"',
        "module.cores": "1 : i64",
        "module.devices": "1 : i64",
        "module.high_precision": "false",
        "module.mode": f'"{KINDS[kind]}"',
        "module.platform": '"ONNX"',
        "module.q_group_size": "0 : i64",
        "module.q_symmetric": "false",
        "module.state": '"TPU_LOWERED"',
        "module.top_run_mode": '"STATIC"',
        "module.weight_file": f'"{name}_weights.npz"',
    }
