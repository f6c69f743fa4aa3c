"""From a verified TFLite file to a graph: walks the operators, calls their converters, gathers every problem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.node import Bound, Converted, TfliteNode, folds, tflite_op
from tpuconvert.frontends.tflite.reader import ModelFile, Operator, Subgraph, Tensor
from tpuconvert.frontends.tflite.tensors import NUMPY_NAMES, CannotConvert, Tensors
from tpuconvert.schema.errors import (
    INVALID_NODE,
    NO_OPERATOR,
    TOO_LARGE,
    UNKNOWN_SHAPE,
    UNSUPPORTED_ATTRIBUTE,
    ProblemList,
    ShapeError,
    UsageError,
)
from tpuconvert.schema.graph import Graph, Port, Source, Value, static
from tpuconvert.schema.types import F32, Array, TensorType, format_shape

CUSTOM_DOMAIN = "custom"
"""Registry domain of custom operators: ``register_converter("tflite", "MyOp", domain="custom")``."""


def import_model(
    file: ModelFile,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """Convert the first subgraph of a file. Arguments and errors as ``tpuconvert.frontends.tflite.load``."""
    subgraph = file.subgraphs[0]
    cut = _cut(file, subgraph, inputs, outputs)
    graph = Graph(subgraph.name or file.path.stem, file.file)
    importer = _Importer(file, cut, graph)
    tflite_op.discover()  # the evaluators of constants stand among the converters
    importer.add_inputs(dict(input_shapes or {}))
    for operator in cut.operators:
        importer.convert(operator)
    importer.add_outputs()
    importer.problems.raise_if_any()
    graph.prune()
    graph.sort()
    return graph


def _cut(file: ModelFile, subgraph: Subgraph, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Subgraph:
    """The part of a subgraph between the named tensors; operators that no output needs are left out."""
    by_name = {tensor.name: tensor.index for tensor in subgraph.tensors}

    def indices(names: Sequence[str] | None, default: tuple[int, ...], what: str) -> tuple[int, ...]:
        if names is None:
            return default
        for name in names:
            if name not in by_name:
                raise UsageError(f"{file.path}: there is no tensor '{name}' to be an {what}")
        return tuple(by_name[name] for name in names)

    first = indices(inputs, subgraph.inputs, "input")
    last = indices(outputs, subgraph.outputs, "output")
    needed = set(last)
    kept: list[Operator] = []
    for operator in reversed(subgraph.operators):
        if needed.intersection(operator.outputs) and not set(operator.outputs) <= set(first):
            kept.append(operator)
            needed.update(index for index in operator.inputs if index >= 0)
            needed.difference_update(first)
    return Subgraph(subgraph.name, subgraph.tensors, first, last, tuple(reversed(kept)))


@dataclass
class _Work:
    """How much was written out from called subgraphs."""

    calls: int = 0


class _Importer:
    def __init__(self, file: ModelFile, subgraph: Subgraph, graph: Graph, caller: _Importer | None = None) -> None:
        self.file = file
        self.subgraph = subgraph
        self.graph = graph
        self.tensors = Tensors(file, subgraph, graph)
        self.problems: ProblemList = caller.problems if caller else ProblemList(str(file.path))
        self.work: _Work = caller.work if caller else _Work()
        self.depth: int = caller.depth + 1 if caller else 0

    # Ports

    def add_inputs(self, shapes: dict[str, Sequence[int]]) -> None:
        for index in self.subgraph.inputs:
            tensor = self.tensors.source(index)
            given = shapes.pop(tensor.name, None)
            shape = tensor.shape if given is None else self._checked(tensor, given)
            if given is None and any(extent < 0 for extent in tensor.signature):
                self.graph.notes.append(
                    f"input '{tensor.name}' leaves extents open ({list(tensor.signature)}): "
                    f"taken as {list(shape)}; other shapes by --input-shapes"
                )
            if 0 in shape:
                message = f"has the shape {format_shape(shape)}, which holds no element"
                self.problems.add(UNKNOWN_SHAPE, "input", tensor.name, message, f"--input-shapes {tensor.name}=...")
            try:
                dtype, quant = self.tensors.value_type(tensor), self.tensors.quant(tensor)
            except CannotConvert as problem:
                self.problems.add(problem.kind, "input", tensor.name, problem.message, problem.hint)
                dtype, quant = F32, None
            port = Port(tensor.name, NUMPY_NAMES.get(tensor.type, "float32"), shape, quant)
            value = self.graph.input(tensor.name, TensorType(dtype, shape or (1,)), port, quant)
            self.tensors.bind_input(tensor, value)
        if shapes:
            known = ", ".join(self.tensors.source(index).name for index in self.subgraph.inputs)
            raise UsageError(f"{self.file.path}: no input '{next(iter(shapes))}'; inputs: {known}")

    def _checked(self, tensor: Tensor, given: Sequence[int]) -> tuple[int, ...]:
        shape = tuple(given)
        if len(shape) != len(tensor.shape) or not all(isinstance(extent, int) and extent > 0 for extent in shape):
            raise UsageError(
                f"{self.file.path}: input '{tensor.name}' cannot have the shape {list(shape)}",
                hint=f"the model has {list(tensor.signature)}; every extent must be a positive number",
            )
        return shape

    def add_outputs(self) -> None:
        for index in self.subgraph.outputs:
            tensor = self.tensors.source(index)
            try:
                value, quant = self.tensors.value(tensor), self.tensors.quant(tensor)
                shape = self.tensors.shape(tensor)
            except CannotConvert as problem:
                self.problems.add(problem.kind, "output", tensor.name, problem.message, problem.hint)
                continue
            self.graph.output(value, Port(tensor.name, NUMPY_NAMES.get(tensor.type, "float32"), shape, quant))
            if quant is not None:
                self.graph.rescale = "tflite"

    # Operators

    def convert(self, operator: Operator) -> None:
        node = TfliteNode(operator, self.tensors, self)
        try:
            with self.graph.source(Source(self.file.file, node.name, operator.name)):
                self._convert(node)
        except CannotConvert as problem:
            self.problems.add(problem.kind, operator.name, node.name, problem.message, problem.hint)
        except ShapeError as error:
            self.problems.add(INVALID_NODE, operator.name, node.name, error.message, error.hint)
        except ValueError as error:  # parameters that an operator definition does not accept
            self.problems.add(INVALID_NODE, operator.name, node.name, str(error))
        else:
            return
        self._stand_in(operator)

    def _convert(self, node: TfliteNode) -> None:
        if any(node.quant(i) is not None for i in range(node.input_count) if node.has_input(i)):
            self.graph.rescale = "tflite"
        arrays = self._folded(node)
        if arrays is not None:
            for index, array in zip(node.operator.outputs, arrays, strict=True):
                self.tensors.bind_array(self.tensors.source(index), array)
        else:
            results = self._converted(node)
            for index, result in zip(node.operator.outputs, results, strict=True):
                tensor = self.tensors.source(index)
                if isinstance(result, Value | Permuted):
                    self._check_elements(node, result)
                    self.tensors.bind(tensor, result)
                else:
                    self.tensors.bind_array(tensor, result)
        for name, value in node.operator.options.unread():
            self.problems.add(UNSUPPORTED_ATTRIBUTE, node.op_type, node.name, f"{name}={value!r}")

    def _check_elements(self, node: TfliteNode, result: Value | Permuted) -> None:
        value = result.value if isinstance(result, Permuted) else result
        elements, most = math.prod(static(value.shape)), self.file.limits.max_tensor_elements
        if elements > most:
            raise node.fail(TOO_LARGE, f"its result has {elements} elements, more than {most}")

    def _folded(self, node: TfliteNode) -> tuple[Array, ...] | None:
        """What an operator on constants gives; None where it has to become nodes."""
        fold = folds.find(node.op_type, version=node.operator.version)
        if fold is None:
            return None
        result = fold.converter(node)
        if result is None:
            return None
        arrays: tuple[Array, ...] = result if isinstance(result, tuple) else (result,)
        limit = self.file.limits.max_folded_bytes
        for array in arrays:
            if array.nbytes > limit:
                raise node.fail(TOO_LARGE, f"its constant result has {array.nbytes} bytes, more than {limit}")
        return arrays

    def _converted(self, node: TfliteNode) -> tuple[Converted, ...]:
        name, domain = node.op_type, ""
        if name.startswith("CUSTOM:"):
            name, domain = name.removeprefix("CUSTOM:"), CUSTOM_DOMAIN
        found = tflite_op.find(name, version=node.operator.version, domain=domain)
        if found is None:
            hint = f"end the model before it (--outputs {self._names_before(node)}) or give a converter by --plugin"
            raise node.fail(NO_OPERATOR, "", hint)
        result = found.converter(node, self.graph)
        results: tuple[Converted, ...] = tuple(result) if isinstance(result, tuple | list) else (result,)
        if len(results) != len(node.operator.outputs):
            raise node.fail(INVALID_NODE, f"has {len(node.operator.outputs)} outputs, expected {len(results)}")
        return results

    # Subgraphs

    def inline(self, node: TfliteNode, subgraph: int, inputs: list[Bound]) -> list[Bound]:
        """Convert the operators of another subgraph in the place of one operator."""
        limits = self.file.limits
        if not 0 <= subgraph < len(self.file.subgraphs):
            raise node.fail(INVALID_NODE, f"calls subgraph {subgraph} of {len(self.file.subgraphs)}")
        called = self.file.subgraphs[subgraph]
        if len(called.inputs) != len(inputs):
            raise node.fail(INVALID_NODE, f"gives {len(inputs)} inputs to subgraph {subgraph}")
        self.work.calls += 1 + len(called.operators)
        if self.depth >= limits.max_depth or self.work.calls > limits.max_unrolled_nodes:
            message = f"calls nested {self.depth} deep with {self.work.calls} operators written out"
            raise node.fail(TOO_LARGE, message, "the loop may have no end")
        inner = _Importer(self.file, called, self.graph, self)
        for index, given in zip(called.inputs, inputs, strict=True):
            tensor = inner.tensors.source(index)
            if isinstance(given, Value):
                inner.tensors.bind_input(tensor, given)
            else:
                inner.tensors.bind_array(tensor, given)
        for operator in called.operators:
            inner.convert(operator)
        return [inner.bound(index) for index in called.outputs]

    def bound(self, index: int) -> Bound:
        """A tensor of this subgraph as it is now."""
        tensor = self.tensors.source(index)
        array = self.tensors.array(tensor)
        return self.tensors.value(tensor) if array is None or self.tensors.quant(tensor) is not None else array

    def _names_before(self, node: TfliteNode) -> str:
        names = [node.tensor(i).name for i in range(node.input_count) if node.has_input(i) and not node.is_constant(i)]
        return ",".join(names) or "..."

    def _stand_in(self, operator: Operator) -> None:
        """Go on behind an operator that failed with the types that the file declares, to find the other problems."""
        for index in operator.outputs:
            tensor = self.tensors.source(index)
            try:
                type_ = TensorType(self.tensors.value_type(tensor), tensor.shape or (1,))
            except CannotConvert:  # said by whoever failed on it
                type_ = TensorType(F32, tensor.shape or (1,))
            self.tensors.bind_input(tensor, self.graph.input(tensor.name, type_))
