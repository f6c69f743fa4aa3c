"""Convert a verified TFLite file to a graph: run the converter of each operator and collect all problems."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.frontends import cuts, fixed_inputs
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.converter_errors import translated_errors
from tpuconvert.frontends.registry import Registration
from tpuconvert.frontends.tflite import layout
from tpuconvert.frontends.tflite.file.metadata import read_metadata
from tpuconvert.frontends.tflite.file.reader import BUILTIN_NAMES, ModelFile, Operator, Subgraph, Tensor, read_model
from tpuconvert.frontends.tflite.file.signatures import Signature, choose, signatures
from tpuconvert.frontends.tflite.initial_state import initial_array
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.legacy_weights import UNSIGNED_WEIGHTS, has_unsigned_weights
from tpuconvert.frontends.tflite.node import Bound, Converted, TfliteNode, folds, tflite_op
from tpuconvert.frontends.tflite.not_representable import (
    COPIED_OPERANDS,
    CUSTOM_PREFIX,
    IGNORED_SCALES,
    RELABELED_OPERANDS,
    WITHOUT_SCALES,
    explain,
)
from tpuconvert.frontends.tflite.open_inputs import OF_SHAPES, OpenInput
from tpuconvert.frontends.tflite.pruning import prune_operators
from tpuconvert.frontends.tflite.states import (
    StateMode,
    States,
    VariableTensor,
    assigned_by_signatures,
    assigned_variables,
    check_next,
)
from tpuconvert.frontends.tflite.tensors import NUMPY_NAMES, ComplexPair, Tensors
from tpuconvert.schema.errors import (
    INVALID_NODE,
    NO_OPERATOR,
    TOO_LARGE,
    UNKNOWN_SHAPE,
    UNSUPPORTED_ATTRIBUTE,
    UNSUPPORTED_TYPE,
    Problem,
    ProblemKind,
    ProblemList,
    ShapeError,
    UsageError,
)
from tpuconvert.schema.graph.graph import Graph, KeptState, Port, Source, Value, static
from tpuconvert.schema.graph.value_limits import check_size
from tpuconvert.schema.system.limits import Limits, check_time
from tpuconvert.schema.types import F32, MAX_RANK, Array, QuantParams, Shape, TensorType, format_shape

CUSTOM_DOMAIN = "custom"
"""Registry domain of custom operators; plugins may omit it, as in ``register_converter("tflite", "MyOp")``."""


def import_model(
    path: str | os.PathLike[str],
    limits: Limits | None,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    signature: str | None = None,
    state: str = StateMode.RESET.value,
    keep_io_layout: bool = True,
    rounding: str = "double",
    hybrid: str = "real",
    fixed: Mapping[str, Array] | None = None,
) -> Graph:
    """Read a file and convert one subgraph; ``tpuconvert.frontends.tflite.load`` documents arguments and errors."""
    file = read_model(path, limits)
    chosen = choose(file, signature)
    subgraph = file.subgraphs[chosen.subgraph]
    cut = prune_operators(file, subgraph, chosen, inputs, outputs, has_state_ports=state == StateMode.PORTS.value)
    graph = Graph(subgraph.name or file.path.stem, file.file)
    others = {item.subgraph for item in signatures(file)} - {chosen.subgraph}
    by_others = assigned_by_signatures(file, others)
    states = States(graph, StateMode(state), assigned_variables(file), by_others)
    importer = _Importer(file, cut, graph, _Work(states, chosen, keep_io_layout, hybrid))
    tflite_op.discover()  # also imports the constant evaluators, which converter modules contain
    importer.add_inputs(dict(input_shapes or {}), fixed or {})
    failed: dict[int, int] = {}
    for operator in cut.operators:
        before = len(importer.problems)
        importer.convert(operator)
        failed[id(operator)] = len(importer.problems) - before
    importer.add_outputs()
    if len(importer.problems):
        importer.complete_hints(failed)
    importer.problems.raise_if_any()
    graph.metadata, notes = read_metadata(file, chosen.subgraph)
    graph.notes += notes
    if graph.rescale and rounding == "single":
        graph.rescale = f"{graph.rescale}-single"
    graph.prune()
    graph.sort()
    return graph


def bind_tensors(file: ModelFile) -> Tensors:
    """Convert the operators of the first subgraph as far as possible, and return the bindings of its tensors.

    Problems are not reported: the results of an operator that cannot be converted have the shapes in the file.
    """
    subgraph = file.subgraphs[0]
    graph = Graph(subgraph.name, file.file)
    states = States(graph, StateMode.RESET, assigned_variables(file))
    importer = _Importer(file, subgraph, graph, _Work(states, Signature(), keep_io_layout=True))
    tflite_op.discover()
    importer.add_inputs({}, {})
    for operator in subgraph.operators:
        importer.convert_if_possible(operator)
    return importer.tensors


@dataclass
class _Work:
    """Data that the importers of a model and of its called subgraphs share; ``calls`` counts inlined operators."""

    states: States
    signature: Signature
    keep_io_layout: bool
    hybrid: str = "real"
    calls: int = 0


class _Importer:
    def __init__(
        self, file: ModelFile, subgraph: Subgraph, graph: Graph, work: _Work, caller: _Importer | None = None
    ) -> None:
        self.file = file
        self.called = subgraph
        self.graph = graph
        self.tensors = Tensors(file, subgraph, graph, work.hybrid)
        self.problems: ProblemList = caller.problems if caller else ProblemList(str(file.path))
        self.work = work
        self.open_inputs: dict[int, OpenInput] = {}  # by tensor that depends on one: the first such input
        self.depth: int = caller.depth + 1 if caller else 0

    @property
    def states(self) -> States:
        """State that the model keeps between runs."""
        return self.work.states

    # Inputs and outputs

    def add_inputs(self, shapes: dict[str, Sequence[int]], fixed: Mapping[str, Array]) -> None:
        names = self.work.signature.inputs
        if fixed:
            all_names = [names.get(index, self.tensors.source(index).name) for index in self.called.inputs]
            fixed_inputs.check_names(fixed, all_names, shapes, self.file.file)
        for index in self.called.inputs:
            tensor = self.tensors.source(index)
            name = names.get(index, tensor.name)
            if name in fixed:
                extents = tensor.signature if len(tensor.signature) == len(tensor.shape) else tensor.shape
                shape = fixed_inputs.completed_shape(fixed[name], extents)
                element = np.dtype(NUMPY_NAMES.get(tensor.type, "float32"))
                array = fixed_inputs.as_constant(fixed[name], name, shape, element, self.file.file)
                self.tensors.bind_array(tensor, array)
                continue
            requested = shapes.pop(name, None) or shapes.pop(tensor.name, None)
            shape = tensor.shape if requested is None else self._check_shape(tensor, requested)
            if requested is None and any(extent < 0 for extent in tensor.signature):
                self.open_inputs[index] = OpenInput(name, tensor.signature, shape)
                self.graph.notes.append(self.open_inputs[index].note)
            if 0 in shape:
                message = f"has the shape {format_shape(shape)}, which holds no element"
                self.problems.add(UNKNOWN_SHAPE, "input", tensor.name, message, f"--input-shapes {tensor.name}=...")
            try:
                check_size(TensorType(F32, shape), tensor.name)
            except ShapeError as error:
                self.problems.add(TOO_LARGE, "input", tensor.name, error.message)
                shape = (1,) * min(len(shape), MAX_RANK)  # the graph is discarded
            try:
                dtype, quant = self.tensors.value_type(tensor), self.tensors.quant(tensor)
            except CannotConvertError as problem:
                self.problems.add(problem.kind, "input", tensor.name, problem.message, problem.hint)
                dtype, quant = F32, None
            if self._is_nchw(tensor):
                shape, quant = tuple(shape[axis] for axis in layout.NCHW), layout.permute_quant(quant, layout.NCHW)
            port = Port(name, NUMPY_NAMES.get(tensor.type, "float32"), shape, quant)
            value = self.graph.input(tensor.name, TensorType(dtype, shape or (1,)), port, quant)
            if self._is_nchw(tensor):
                self.tensors.bind(tensor, Permuted(value, layout.NCHW))
            else:
                self.tensors.bind_input(tensor, value)
        if shapes:
            listed = ", ".join(names.get(index, self.tensors.source(index).name) for index in self.called.inputs)
            raise UsageError(f"{self.file.path}: no input '{next(iter(shapes))}'; inputs: {listed}")

    def _is_nchw(self, tensor: Tensor) -> bool:
        """Return True if an input or output has rank 4 and the option ``keep_io_layout`` is false."""
        return not self.work.keep_io_layout and len(tensor.shape) == 4

    def _check_shape(self, tensor: Tensor, requested: Sequence[int]) -> tuple[int, ...]:
        shape = tuple(requested)
        if len(shape) != len(tensor.shape) or not all(isinstance(extent, int) and extent > 0 for extent in shape):
            raise UsageError(
                f"{self.file.path}: input '{tensor.name}' cannot have the shape {list(shape)}",
                hint=f"the model has {list(tensor.signature)}; every extent must be a positive number",
            )
        return shape

    def add_outputs(self) -> None:
        for index in self.called.outputs:
            tensor = self.tensors.source(index)
            try:
                value, shape, quant = self._result(tensor)
            except CannotConvertError as problem:
                self.problems.add(problem.kind, "output", tensor.name, problem.message, problem.hint)
                continue
            except ShapeError as error:  # of a constant
                self.problems.add(TOO_LARGE, "output", tensor.name, error.message)
                continue
            name = self.work.signature.outputs.get(index, tensor.name)
            self.graph.output(value, Port(name, NUMPY_NAMES.get(tensor.type, "float32"), shape, quant))
            if quant is not None:
                self.graph.rescale = "tflite"
        self._add_states()

    def _add_states(self) -> None:
        for key, port, after, content in self.states.results():
            try:
                check_next(port, content)
                value = self.tensors.content_value(content, after.name)
            except CannotConvertError as problem:
                self.problems.add(problem.kind, "state", port.name, problem.message, problem.hint)
                continue
            self.graph.output(value, after)
            if port.quant is not None:
                self.graph.rescale = "tflite"
            initial = None
            if isinstance(key, VariableTensor) or key in self.states.initial:
                initial = initial_array(self.graph, port, self.states.initial.get(key))
            self.graph.states += (KeptState(port.name, after.name, initial),)

    def _result(self, tensor: Tensor) -> tuple[Value, Shape, QuantParams | None]:
        """Value, shape and quantization of an output; the shape is () for rank 0."""
        quant = self.tensors.quant(tensor)
        if self._is_nchw(tensor):
            value = self.tensors.permute(tensor, layout.NCHW)
            return value, value.shape, layout.permute_quant(quant, layout.NCHW)
        value = self.tensors.value(tensor)
        return value, self.tensors.shape(tensor) if self.tensors.is_sized(tensor) else value.shape, quant

    # Operators

    def _open_input(self, operator: Operator) -> OpenInput | None:
        """Return an input of the model with open extents on which an operator depends, or None."""
        return next((self.open_inputs[index] for index in operator.inputs if index in self.open_inputs), None)

    def _add_problem(self, operator: Operator, kind: ProblemKind, name: str, message: str, hint: str = "") -> None:
        """Add the problem of an operator. Extents that were open may be its cause, which the hint then says."""
        open_input = self._open_input(operator) if kind in OF_SHAPES else None
        if open_input is not None:
            hint = f"{hint}\n{open_input.hint}" if hint else open_input.hint
        self.problems.add(kind, operator.name, name, message, hint)

    def convert(self, operator: Operator) -> None:
        check_time()
        open_input = self._open_input(operator)
        if open_input is not None:
            self.open_inputs.update(dict.fromkeys(operator.outputs, open_input))
        node = TfliteNode(operator, self.tensors, self)
        try:
            with (
                self.graph.source(Source(self.file.file, node.name, operator.name)),
                translated_errors(operator.name, self.file.file, node.name),
            ):
                self._convert(node)
        except CannotConvertError as problem:
            self._add_problem(operator, problem.kind, node.name, problem.message, problem.hint)
        else:
            return
        self._substitute_results(operator)

    def convert_if_possible(self, operator: Operator) -> None:
        """Convert an operator; if its converter raises any exception, bind its results to graph inputs."""
        try:
            self.convert(operator)
        except Exception:  # also of the converters of plugins
            self._substitute_results(operator)

    def _convert(self, node: TfliteNode) -> None:
        if any(node.quant(i) is not None for i in range(node.input_count) if node.has_input(i)):
            self.graph.rescale = "tflite"
        self._check_sized(node)
        self._check_scales(node)
        node = self._with_result_scales(node)
        arrays = self._evaluate(node)
        if arrays is not None:
            for index, array in zip(node.operator.outputs, arrays, strict=True):
                self.tensors.bind_array(self.tensors.source(index), array)
        else:
            results = self._with_own_scales(node, self._run_converter(node))
            for index, result in zip(node.operator.outputs, results, strict=True):
                tensor = self.tensors.source(index)
                if isinstance(result, ComplexPair):
                    self.tensors.bind_pair(tensor, result)
                elif isinstance(result, Value | Permuted):
                    self._check_elements(node, result)
                    if 0 in (extents := self._source_extents(result)):
                        kind = NUMPY_NAMES.get(tensor.type, "float32")
                        self.tensors.bind_array(tensor, np.zeros(static(extents), kind))
                    else:
                        self.tensors.bind(tensor, result)
                else:
                    self.tensors.bind_array(tensor, result)
        for name, value in node.operator.options.unread():
            self.problems.add(UNSUPPORTED_ATTRIBUTE, node.op_type, node.name, f"{name}={value!r}")

    def _check_sized(self, node: TfliteNode) -> None:
        """Raise an error if an input of an operator other than CAST has a data-dependent shape."""
        for index in range(node.input_count):
            if node.has_input(index) and not self.tensors.is_sized(node.tensor(index)) and node.op_type != "CAST":
                message = f"the size of its input '{node.tensor(index).name}' depends on the model's inputs"
                raise node.fail(UNKNOWN_SHAPE, message)

    def _check_scales(self, node: TfliteNode) -> None:
        """Raise an error if the kernel of the operator ignores scales that matter."""
        if not node.is_quantized:
            if has_unsigned_weights(self.tensors.subgraph, node.operator):
                raise node.fail(UNSUPPORTED_TYPE, *UNSIGNED_WEIGHTS)
            return
        operands = [node.quant(index) for index in COPIED_OPERANDS.get(node.op_type, ()) if node.has_input(index)]
        if node.op_type in WITHOUT_SCALES or any(quant != node.output_quant() for quant in operands):
            raise node.fail(UNSUPPORTED_TYPE, *IGNORED_SCALES)

    def _with_result_scales(self, node: TfliteNode) -> TfliteNode:
        """Return the node on operands with the scale of the result, if the kernel copies their integers to it."""
        if node.op_type not in RELABELED_OPERANDS or not node.operator.outputs:
            return node
        inputs, result = list(node.operator.inputs), node.output_quant()
        for index in RELABELED_OPERANDS[node.op_type]:
            quant = node.quant(index)
            if quant is None or result is None or quant == result:
                continue
            if quant.dtype is not result.dtype:
                raise node.fail(UNSUPPORTED_TYPE, *IGNORED_SCALES)
            inputs[index] = self.tensors.relabel(node.tensor(index), node.output_tensor()).index
        return dataclasses.replace(node, operator=dataclasses.replace(node.operator, inputs=tuple(inputs)))

    def _with_own_scales(self, node: TfliteNode, results: Sequence[Converted]) -> list[Converted]:
        """Give every part of a split its own scale, without a change of its integers."""
        scaled = list(results)
        if node.op_type not in RELABELED_OPERANDS or not node.operator.outputs:
            return scaled
        first = node.output_quant()
        if first is None:
            return scaled
        for number, result in enumerate(scaled[1:], 1):
            if isinstance(result, Value | Permuted) and node.output_quant(number) not in (None, first):
                value = result.value if isinstance(result, Permuted) else result
                value.quant = first
                copy = self.tensors.copy_integers(value, node.output_tensor(number))
                scaled[number] = Permuted(copy, result.order) if isinstance(result, Permuted) else copy
        return scaled

    def _check_elements(self, node: TfliteNode, result: Value | Permuted) -> None:
        value = result.value if isinstance(result, Permuted) else result
        extents = [extent for extent in value.shape if isinstance(extent, int)]
        elements, limit = math.prod(extents), self.file.limits.max_tensor_elements
        if elements > limit:
            raise node.fail(TOO_LARGE, f"its result has {elements} elements, more than {limit}")

    @staticmethod
    def _source_extents(result: Value | Permuted) -> Shape:
        """Shape of a result in the axis order of the source."""
        if isinstance(result, Value):
            return result.shape
        return tuple(result.value.shape[axis] for axis in layout.inverse(result.order))

    def _evaluate(self, node: TfliteNode) -> tuple[Array, ...] | None:
        """Evaluate an operator on constants; return None if it must be converted to nodes."""
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
            if self.graph.budget is not None:
                self.graph.budget.charge(array, node.output_tensor().name)
        return arrays

    def _run_converter(self, node: TfliteNode) -> tuple[Converted, ...]:
        registration = self._converter(node.operator)
        if registration is None:
            raise node.fail(NO_OPERATOR, *explain(node.op_type, node.operator.version, tflite_op.names(domain=None)))
        result = registration.converter(node, self.graph)
        results: tuple[Converted, ...] = tuple(result) if isinstance(result, tuple | list) else (result,)
        if len(results) != len(node.operator.outputs):
            raise node.fail(INVALID_NODE, f"has {len(node.operator.outputs)} outputs, expected {len(results)}")
        return results

    def _converter(self, operator: Operator) -> Registration | None:
        """Find the converter of a builtin or custom operator; plugins may register the latter without its domain."""
        if not operator.name.startswith(CUSTOM_PREFIX):
            return tflite_op.find(operator.name, version=operator.version)
        name = operator.name.removeprefix(CUSTOM_PREFIX)
        registration = tflite_op.find(name, version=operator.version, domain=CUSTOM_DOMAIN)
        if registration is None and name not in BUILTIN_NAMES:
            registration = tflite_op.find(name, version=operator.version)
        return registration

    # Subgraphs

    def subgraph(self, node: TfliteNode, index: int) -> Subgraph:
        """Subgraph of the file by index."""
        if not 0 <= index < len(self.file.subgraphs):
            raise node.fail(INVALID_NODE, f"calls subgraph {index} of {len(self.file.subgraphs)}")
        return self.file.subgraphs[index]

    def inline(self, node: TfliteNode, subgraph: int, inputs: list[Bound]) -> list[Bound]:
        """Replace an operator by the converted operators of another subgraph."""
        limits = self.file.limits
        called = self.subgraph(node, subgraph)
        if len(called.inputs) != len(inputs):
            raise node.fail(INVALID_NODE, f"gives {len(inputs)} inputs to subgraph {subgraph}")
        self.work.calls += 1 + len(called.operators)
        if self.depth >= limits.max_depth or self.work.calls > limits.max_unrolled_nodes:
            message = f"calls nested {self.depth} deep with {self.work.calls} operators written out"
            raise node.fail(TOO_LARGE, message, "the loop may have no end")
        inner = _Importer(self.file, called, self.graph, self.work, self)
        open_input = self._open_input(node.operator)
        if open_input is not None:
            inner.open_inputs = dict.fromkeys(called.inputs, open_input)
        for index, bound in zip(called.inputs, inputs, strict=True):
            tensor = inner.tensors.source(index)
            if isinstance(bound, Value):
                inner.tensors.bind_input(tensor, bound)
            else:
                inner.tensors.bind_array(tensor, bound)
        for operator in called.operators:
            inner.convert(operator)
        return [inner.binding(index) for index in called.outputs]

    def binding(self, index: int) -> Bound:
        """Constant array of a tensor if it is constant and not quantized, or has no elements, else its graph value."""
        tensor = self.tensors.source(index)
        array = self.tensors.array(tensor)
        if array is None or (array.size and self.tensors.quant(tensor) is not None):
            return self.tensors.value(tensor)
        return array

    def complete_hints(self, problems: Mapping[int, int]) -> None:
        """Append advice on possible ``--outputs`` to the hints of operators that have no converter.

        Args:
            problems: number of problems of each operator of the main graph, by its ``id()``.
        """
        names = [tensor.name for tensor in self.called.tensors]

        def name(index: int) -> str:
            title = self.work.signature.outputs.get(index, names[index])
            return title if names.count(title) <= 1 else ""  # ambiguous names are not suggested

        def find(title: str) -> Value | None:
            index = next((i for i in range(len(names)) if name(i) == title), None)
            return None if index is None else self.tensors.existing_value(index)

        steps = [
            cuts.Step(
                frozenset(name(i) for i in operator.inputs if i >= 0),
                tuple(name(i) for i in operator.outputs),
                not problems.get(id(operator)),
            )
            for operator in self.called.operators
        ]
        outputs = [name(index) for index in self.called.outputs]
        end = cuts.advice(cuts.ends(steps, outputs, find))

        def is_avoided(problem: Problem) -> bool:
            return problem.kind is NO_OPERATOR or (problem.kind is UNKNOWN_SHAPE and not problem.hint)

        cuts.add_hint(self.problems, end, is_avoided)

    def _substitute_results(self, operator: Operator) -> None:
        """Bind graph inputs to the results of an operator that failed, so that its users are checked too."""
        for index in operator.outputs:
            tensor = self.tensors.source(index)
            type_ = TensorType(F32, tensor.shape or (1,))
            try:
                check_size(type_, tensor.name)
                type_ = TensorType(self.tensors.value_type(tensor), type_.shape)
            except ShapeError:
                type_ = TensorType(F32, (1,))
            except CannotConvertError:  # already reported by the operator that failed
                pass
            self.tensors.bind_input(tensor, self.graph.input(tensor.name, type_))
