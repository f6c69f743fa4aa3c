"""Lowering of a graph of TPU operators to the vendor compiler's ``tpu`` dialect.

Integer tensors are bit-exact, except those that follow from floating-point results: a device may round these
differently. A node without an exact equivalent is reported as a problem. Floating-point operators without a form at the
end of a graph are left to the host: the program returns their operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpuconvert.exporters.lowerings import Lowerings, NoExactForm
from tpuconvert.exporters.tpu_mlir.chips import Target
from tpuconvert.exporters.tpu_mlir.dialect import Module, Tensor, quantized_element
from tpuconvert.schema.errors import NO_EXACT_FORM, ProblemList, without_operator
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.recurrent.recurrent import SequenceLayer
from tpuconvert.schema.types import Array, DType

KINDS = {"f32": "INT8", "f16": "F16", "bf16": "BF16"}
"""Type of the floating-point operators -> mode of a module, which does not change the types of its tensors."""

PLAIN_ELEMENTS = {DType.INT8: "i8", DType.UINT8: "u8", DType.INT16: "i16", DType.UINT16: "u16", DType.INT32: "si32"}
"""Element types without a scale."""

OPEN_EXTENT = "convert with --input-shapes, which fixes every extent"
UNROLL = "convert with --strict-set or --exact-on bm1684x, which unrolls the steps of the layer"


class Lowering:
    """State of one lowering.

    Args:
        graph: graph that is quantized for the target's chip.
        target: chip of the vendor's compiler.
        name: symbol name of the module; the weights are in ``NAME_weights.npz``.
        kind: type in which floating-point operators compute: ``f32``, ``f16`` or ``bf16``.
        is_strict: refuse integers that follow from floating-point results, which the device may round differently.
        borders: types of the floating-point inputs and of the floating-point results of the program.

    Attributes:
        module: the result.
        problems: inputs and nodes that have no exact equivalent.
        refused: these nodes, with the reason.
        host_nodes: floating-point nodes at the end that the host has to compute.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        name: str,
        kind: str = "f32",
        *,
        is_strict: bool = False,
        borders: tuple[str, str] = ("f32", "f32"),
    ) -> None:
        self.graph = graph
        self.target = target
        self.kind = kind
        self.is_strict = is_strict
        self.borders = borders
        self.module = Module(name, _module_attributes(target, name, kind))
        self.refused: dict[Node, str] = {}
        self.problems = ProblemList(graph.file or graph.name, f"export for {target.name}")
        self.host_nodes: list[Node] = []
        self._tensors: dict[Value, Tensor] = {}
        self._fused: set[Node] = set()
        self._internal: set[Value] = set()
        self._unavailable: set[Value] = set()
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

    def float_weight(self, array: Array, location: str, kind: str = "") -> Tensor:
        """Add a FLOAT32 weight, rounded to a type, by default the type of the module."""
        return self.module.float_weight(array, kind or self.kind, location)

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
        """Append a reshape of a tensor. Return the tensor unchanged if it already has the shape."""
        if x.shape == tuple(shape):
            return x
        operands = self.reshape_operands(x)
        return self.module.add("tpu.Reshape", operands, shape, x.element, location, shape=shape)

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
            if any(value in self._unavailable for value in node.inputs if value is not None):
                self._unavailable.update(node.outputs)  # the problem was reported for the operand
                continue
            is_host = any(v is not None and not v.is_constant and v not in self._tensors for v in node.inputs)
            is_float = all(value.dtype is DType.FLOAT32 for value in node.outputs)
            function = lowerings.find(node.op.name)
            if floats is not None and is_float and _has_float_operands(node):
                function = floats.find(node.op.name) or function
            if is_float and (is_host or function is None):
                self.host_nodes.append(node)
            elif control := self._control_flow_before(node):
                text = f"it depends on {control.op.name} '{control.name}', whose subgraphs run on the host"
                self._refuse(node, text, "end the model before that node: --outputs")
            elif is_host:
                option = f"--exact-on {self.target.name}"
                hint = f"with {option} a conversion leaves the network from there on in float, for the host"
                self._refuse(node, "its operand is a floating-point result that the device does not compute", hint)
            elif function is None:
                hint = UNROLL if isinstance(node.op, SequenceLayer) else ""
                self._refuse(node, "the tpu dialect has no operation with its integers", hint)
            else:
                self.module.origin = node
                try:
                    function(node.op, node, self)
                except NoExactForm as error:
                    if is_float:
                        self.host_nodes.append(node)
                    else:
                        self._refuse(node, error.reason, error.hint)

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
        self._unavailable.update(node.outputs)
        text = without_operator(reason, node.op.name)
        self.refused[node] = text
        self.problems.add(NO_EXACT_FORM, node.op.name, node.name, text, hint)

    def _lower_input(self, value: Value) -> None:
        """Add an input. For integers of 8 and 16 bits, add a float32 input of dequantized values and a cast."""
        shape = static_shape(value)
        if value.dtype is DType.FLOAT32:
            self.define(value, self.module.input(value.name, shape, self.borders[0]))
            return
        if value.dtype is DType.INT32 and value.quant is None and self._has_floats:
            self.define(value, self.module.input(value.name, shape, "si32"))
            return
        if value.quant is None:
            raise NoExactForm(f"input '{value.name}' has type {value.dtype.name} and no scale, expected a scale")
        source = self.module.input(f"{value.name}_float", shape)
        self.add("tpu.Cast", [source], value)

    # Results

    def computes_something(self) -> bool:
        """Return True if the program computes integers, or with float forms any value of a node."""
        values = [value for node in self.graph.nodes for value in node.outputs]
        return bool(self.integer_values()) or (self._has_floats and any(map(self.is_available, values)))

    def results(self) -> list[Value]:
        """Return the values that the program returns.

        These are the outputs of the graph. In place of an output that the host has to compute, the values that enter
        the host's nodes are returned.
        """
        values = [value for value in self.graph.outputs if value in self._tensors]
        for node in self.host_nodes:
            values += [value for value in node.inputs if value is not None and value in self._tensors]
        return list(dict.fromkeys(values))

    def returned(self, value: Value) -> Tensor:
        """Return the tensor that the program returns for a value: the integers as float32 if the chip requires this."""
        tensor = self.tensor(value)
        if value.dtype is DType.FLOAT32:
            return self.as_kind(tensor, self.borders[1])
        if not (self.target.returns_floats and value.dtype.is_integer):
            return tensor
        return self.module.add("tpu.Cast", [tensor], tensor.shape, "f32", f"{value.name}_f32", with_scale=False)

    def integer_values(self) -> list[Value]:
        """Return every integer value that the program computes, in execution order."""
        values = [*self.graph.inputs, *(value for node in self.graph.nodes for value in node.outputs)]
        inputs = set(self.module.inputs)
        computed = {value for value, tensor in self._tensors.items() if tensor not in inputs} - self._internal
        return [value for value in values if value in computed and value.dtype.is_integer]


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
