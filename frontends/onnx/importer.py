"""Convert the nodes of an ONNX graph to TPU operators, in topological order.

Nodes whose inputs are all constant are evaluated during the import (``folds``), so shape arithmetic adds no nodes.
A node that cannot be converted becomes a problem, and conversion continues: all problems are reported together.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.frontends import fixed_inputs
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx import input_types, open_extent_problems, quantization_params
from tpuconvert.frontends.onnx.error_hints import complete, explain_unknown
from tpuconvert.frontends.onnx.file import subgraph_extraction
from tpuconvert.frontends.onnx.file.messages import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    ValueInfoProto,
)
from tpuconvert.frontends.onnx.file.metadata import read_metadata
from tpuconvert.frontends.onnx.file.reader import (
    NEWEST_OPSET,
    OnnxModel,
    node_domain,
    other_opsets,
    read_model,
    reads_of,
    sparse_by_name,
)
from tpuconvert.frontends.onnx.function_calls import attributes_of, body_scope, notes_of_other_opsets
from tpuconvert.frontends.onnx.node import (
    CompiledSubgraph,
    Converted,
    Folding,
    MakeInputs,
    Materializer,
    OnnxNode,
    OnnxTensor,
    decode_attribute,
    folds,
    onnx_op,
)
from tpuconvert.frontends.onnx.open_extent_problems import run_converter
from tpuconvert.frontends.onnx.output_tensors import Results, Scope, SeparateScope, roots_of
from tpuconvert.frontends.onnx.quantization_params import drop_copies
from tpuconvert.frontends.onnx.standard_functions import standard_function
from tpuconvert.frontends.open_extents import OpenExtentError, check_parameters
from tpuconvert.schema.errors import (
    INVALID_NODE,
    NO_OPERATOR,
    TOO_LARGE,
    UNKNOWN_SHAPE,
    UNSUPPORTED_ATTRIBUTE,
    UNSUPPORTED_TYPE,
    ProblemList,
    ShapeError,
    UsageError,
)
from tpuconvert.schema.graph.control_flow import MAX_DEPTH
from tpuconvert.schema.graph.graph import Graph, Port, Source
from tpuconvert.schema.graph.value_limits import MAX_ELEMENTS
from tpuconvert.schema.system.limits import Limits, check_time, exceeded
from tpuconvert.schema.types import Array, Dim, DType, TensorType

if TYPE_CHECKING:
    from tpuconvert.frontends.onnx.open_extent_problems import DynamicShapeProblem

LEGACY_ATTRIBUTES = frozenset({"consumed_inputs"})
"""Memory hints of the first opsets. They have no effect on results."""

FOLDED_WITHOUT_DATA = {"Shape": 0, "Size": 0, "CastLike": 1, "EyeLike": 0}
"""Operators that are evaluated without the elements of some inputs: number of leading inputs that must be constant."""


def import_model(
    source: str | os.PathLike[str] | ModelProto,
    allow_root: str | os.PathLike[str] | None,
    limits: Limits,
    *,
    input_shapes: Mapping[str, Sequence[Dim]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    fixed: Mapping[str, Array] | None = None,
) -> Graph:
    """Read and convert a model; ``tpuconvert.frontends.onnx.load`` documents arguments and errors."""
    model = read_model(source, limits, allow_root)
    graph = _Importer(model, limits, input_shapes or {}, fixed or {}).run(inputs, outputs)
    graph.files = model.tensors.files
    graph.metadata.update(read_metadata(model.proto))
    return graph


class _ReportedError(CannotConvertError):
    """A node fails because of a node in its subgraph or function body, whose problem is already recorded."""


class _Importer:
    def __init__(
        self, model: OnnxModel, limits: Limits, shapes: Mapping[str, Sequence[Dim]], fixed: Mapping[str, Array]
    ) -> None:
        self._model = model
        self._limits = limits
        self._shapes = shapes
        self._fixed = fixed
        self._file = os.path.basename(model.path)
        self._graph = Graph(name=model.graph.name or os.path.splitext(self._file)[0], file=self._file)
        self._graph.has_distinct_extents = True
        self._graph.notes.extend(model.notes)
        opset = model.opsets.get("")
        self._problems = ProblemList(self._file, f"opset {opset}" if opset else "")
        self._materializer = Materializer(self._graph)
        self._infos = input_types.infos_of(model.graph)
        self._open: list[DynamicShapeProblem] = []
        self._failed: set[int] = set()  # id() of each node of the main graph that has a problem
        self._results = Results(self._graph, limits.max_tensor_elements)
        self._other_opsets = {
            id(function): opsets for function in model.functions.values() if (opsets := other_opsets(function, model))
        }
        self._converted_nodes = 0
        self._subgraph_depth = 0
        self._most_nodes = model.node_count + limits.max_unrolled_nodes

    def run(self, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Graph:
        self._check_opsets()
        source = self._model.graph
        scope = Scope(self._model.opsets)
        self._read_initializers(source, scope)
        ends = [value.name for value in source.output] if outputs is None else list(outputs)
        if inputs is not None:
            subgraph_extraction.check_names(source, inputs, "inputs", self._file)
        if outputs is not None:
            subgraph_extraction.check_names(source, outputs, "outputs", self._file)
        starts = self._starts(source, scope, inputs)
        nodes = subgraph_extraction.needed_nodes(source, starts, ends, self._file)
        if inputs is not None or outputs is not None:
            read = {name for node in nodes for name in reads_of(node)} | set(ends)
            requested = {*(inputs or ()), *self._fixed}
            starts = [name for name in starts if name in read or name in requested]
        self._note_unused(source, nodes)
        self._declare_inputs(starts, scope, nodes)
        with np.errstate(all="ignore"):  # constants are evaluated here
            self._convert_all(nodes, scope)
        self._declare_outputs(ends, scope)
        self._report_symbolic_extents(starts)
        if len(self._problems):
            complete(self._problems, source, nodes, self._failed, ends, scope.tensors, self._graph)
        self._problems.raise_if_any()
        drop_copies(self._graph)
        self._graph.prune()
        self._graph.sort()
        return self._graph

    # Inputs and outputs

    def _check_opsets(self) -> None:
        version = self._model.opsets.get("", 1)
        if version > NEWEST_OPSET:
            self._problems.add(
                NO_OPERATOR,
                "opset",
                str(version),
                f"the newest known opset is {NEWEST_OPSET}",
                f"export the model with opset {NEWEST_OPSET} or lower",
            )

    def _read_initializers(self, source: GraphProto, scope: Scope) -> None:
        scope.constants.update({tensor.name: tensor for tensor in source.initializer if tensor.name})
        for name, sparse in sparse_by_name(source).items():
            array = self._model.tensors.read_sparse(sparse)
            element = self._model.tensors.element(sparse.values)
            scope.tensors[scope.prefix + name] = OnnxTensor.constant(name, element, array)

    def _starts(self, source: GraphProto, scope: Scope, inputs: Sequence[str] | None) -> list[str]:
        """Names of the tensors where the graph begins. Before IR version 4 initializers are listed as inputs too."""
        own = [v.name for v in source.input if v.name not in scope.constants and v.name not in scope.tensors]
        if inputs is None:
            return own
        return list(inputs) + [name for name in own if name not in inputs]

    def _note_unused(self, source: GraphProto, nodes: Sequence[NodeProto]) -> None:
        needed = {id(node) for node in nodes}
        unused = [node.name or _first_output(node) for node in source.node if id(node) not in needed]
        if unused:
            some = ", ".join(f"'{name}'" for name in unused[:6]) + (", ..." if len(unused) > 6 else "")
            self._graph.notes.append(f"{len(unused)} nodes were removed because no output depends on them: {some}")

    def _declare_inputs(self, names: Sequence[str], scope: Scope, nodes: Sequence[NodeProto]) -> None:
        shapes, fixed = self._shapes, self._fixed
        if fixed:
            fixed_inputs.check_names(fixed, names, shapes, self._file)
            shapes = {**shapes, **self._shapes_of_fixed()}
        if "" in shapes:
            shapes = {self._only_input(names): shapes[""]}
        self._input_types = finder = input_types.InputTypes(self._infos, shapes, self._limits, self._file)
        types = finder.find(names, self._problems)
        self._graph.notes.extend(finder.notes)
        stated = {node.output[0]: node for node in nodes if node.op_type == "Constant" and node.output}
        for name in names:
            if name not in types:
                scope.tensors[name] = None
                continue
            element, shape = types[name].element, types[name].shape
            if name in fixed:
                array = fixed_inputs.as_constant(fixed[name], name, shape, element.numpy, self._file)
                scope.tensors[name] = OnnxTensor.constant(name, element, array)
                continue
            quant = None
            if element.is_integer and element.bits <= 16:
                quant = quantization_params.find_quant(name, nodes, lambda key: self._peek(key, scope, stated))
            dtype = TensorType(element.graph if quant is None else DType.FLOAT32, shape or (1,))
            port = Port(name, element.port, shape, quant)
            value = self._graph.input(name, dtype, port, quant)
            self._results.keep_name(value)
            scope.tensors[name] = OnnxTensor(name, element, shape, None, value, quant, frozenset({name}))

    def _only_input(self, names: Sequence[str]) -> str:
        """Return the name of the only input.

        Raises:
            UsageError: the model has several.
        """
        if len(names) != 1:
            hint = f"name each: {'=...;'.join(names)}=..."
            raise UsageError(f"a shape without a name, but {len(names)} inputs", file=self._file, hint=hint)
        return names[0]

    def _shapes_of_fixed(self) -> dict[str, Sequence[Dim]]:
        """Shapes of fixed inputs that match the file; a mismatch is reported when the value is checked."""
        shapes: dict[str, Sequence[Dim]] = {}
        for name, array in self._fixed.items():
            declared = input_types.declared_shape(self._infos[name]) if name in self._infos else None
            pairs = list(zip(array.shape, declared or (), strict=False))
            if declared is None or (
                len(declared) == array.ndim and all(said == have or not isinstance(said, int) for have, said in pairs)
            ):
                shapes[name] = array.shape
        return shapes

    def _peek(self, name: str, scope: Scope, stated: Mapping[str, NodeProto]) -> Array | None:
        """Elements of an initializer, or of a Constant of ``stated``, before the nodes are converted."""
        tensor = scope.lookup(name, self._model.tensors)
        if tensor is not None or name not in stated:
            return tensor.array if tensor is not None else None
        for attribute in stated[name].attribute:
            if attribute.name == "value":
                return self._model.tensors.read(attribute.t)
            if attribute.name == "value_float":
                return np.asarray(attribute.f, np.float32)
        return None

    def _declare_outputs(self, names: Sequence[str], scope: Scope) -> None:
        for name in names:
            if not scope.holds(name):
                self._problems.add(INVALID_NODE, "graph output", name, "no node computes this tensor")
                continue
            tensor = scope.lookup(name, self._model.tensors)
            if tensor is None or len(self._problems):
                continue
            if tensor.items is not None:
                self._problems.add(UNSUPPORTED_TYPE, "graph output", name, "its type is sequence", "supported: tensors")
                continue
            try:
                with self._graph.source(Source(self._file, name, "graph output")):  # it may add nodes
                    value = self._materializer.value(tensor)
            except CannotConvertError as error:
                self._problems.add(error.kind, "graph output", name, error.message, error.hint)
                continue
            except ShapeError as error:  # of a constant
                self._problems.add(TOO_LARGE, "graph output", name, error.message)
                continue
            except OpenExtentError as error:
                self._open.append(("graph output", name, error.extent, (tensor,)))
                continue
            self._graph.output(value, Port(name, tensor.element.port, tensor.shape, tensor.quant))

    def _report_symbolic_extents(self, starts: Sequence[str]) -> None:
        ports = self._graph.input_ports
        if self._open or any(isinstance(extent, str) for port in ports for extent in port.shape):
            open_extent_problems.report(self._open, self._problems, self._graph, starts)

    # Nodes

    def _convert_all(self, nodes: Sequence[NodeProto], scope: Scope) -> None:
        for proto in nodes:
            before = len(self._problems) + len(self._open)
            self._convert_one(proto, scope)
            if len(self._problems) + len(self._open) != before and not scope.prefix:
                self._failed.add(id(proto))

    def _convert_one(self, proto: NodeProto, scope: Scope) -> None:
        domain, op_type = node_domain(proto), proto.op_type
        name = scope.prefix + (proto.name or _first_output(proto) or op_type)
        function = self._model.functions.get((domain, op_type, proto.overload)) if self._model.functions else None
        is_known = function is not None or self._known_operator(op_type, domain, scope)
        if not is_known:
            function = standard_function(op_type, domain, scope.opsets.get(domain, 1))
            is_known = function is not None
        if not is_known:
            version, has_outputs = scope.opsets.get(domain, 1), bool(_first_output(proto))
            message, hint = explain_unknown(op_type, domain, version, has_outputs=has_outputs)
            self._problems.add(NO_OPERATOR, f"{domain}:{op_type}" if domain else op_type, name, message, hint)
        inputs, are_known = self._inputs(proto, name, scope)
        if not is_known or not are_known:
            self._set_placeholders(proto, scope)
            return
        check_time()
        self._converted_nodes += 1
        if self._converted_nodes > self._most_nodes:
            raise exceeded(
                f"{self._converted_nodes - self._model.node_count:,} nodes from unrolled loops",
                "max_unrolled_nodes",
                self._limits,
                file=self._file,
                node=name,
            )
        try:
            if function is not None:
                if versions := self._other_opsets.pop(id(function), None):
                    self._graph.notes.extend(notes_of_other_opsets(function, versions, self._model))
                results: Sequence[OnnxTensor | None] = self._inline_function(function, proto, inputs, name, scope)
            else:
                results = self._convert_node(proto, name, inputs, scope)
        except CannotConvertError as error:
            if not isinstance(error, _ReportedError):
                self._problems.add(error.kind, op_type, name, error.message, error.hint, error.needs)
            self._set_placeholders(proto, scope)
        except OpenExtentError as error:
            self._open.append((op_type, name, error.extent, inputs))
            self._set_placeholders(proto, scope)
        else:
            for key, tensor in zip(proto.output, results, strict=False):
                if key:
                    scope.tensors[key] = tensor

    def _inputs(self, proto: NodeProto, name: str, scope: Scope) -> tuple[tuple[OnnxTensor | None, ...], bool]:
        """Return the inputs of a node, and True if all of them could be converted."""
        inputs: list[OnnxTensor | None] = []
        are_known = True
        for key in proto.input[:]:
            tensor = scope.tensors.get(key) if key else None
            if tensor is None and key and not scope.is_absent(key):
                if not scope.holds(key):
                    self._problems.add(INVALID_NODE, proto.op_type, name, f"input '{key}' is not computed by any node")
                tensor = scope.lookup(key, self._model.tensors)
                are_known = are_known and tensor is not None
            inputs.append(tensor)
        return tuple(inputs), are_known

    def _known_operator(self, op_type: str, domain: str, scope: Scope) -> bool:
        version = scope.opsets.get(domain, None if domain else 1)
        converter = onnx_op.find(op_type, version=version, domain=domain)
        return (converter or folds.find(op_type, version=version, domain=domain)) is not None

    def _convert_node(
        self, proto: NodeProto, name: str, inputs: tuple[OnnxTensor | None, ...], scope: Scope
    ) -> list[OnnxTensor]:
        domain, op_type = node_domain(proto), proto.op_type
        version = scope.opsets.get(domain, 1)
        node = OnnxNode(
            proto,
            name,
            version,
            inputs,
            tuple(proto.output),
            self._graph,
            self._materializer,
            self._model.tensors,
            self._limits,
            attributes_of(proto, scope.attributes),
            inline=lambda graph, arguments, label: self._inline_graph(graph, arguments, f"{name}/{label}", scope),
            compile=lambda graph, make_inputs, captured, label: self._compile_graph(
                graph, make_inputs, captured, f"{name}/{label}", scope
            ),
        )
        chosen = converter = onnx_op.find(op_type, version=version, domain=domain)
        needed = FOLDED_WITHOUT_DATA.get(op_type, len(inputs)) if domain == "" else len(inputs)
        for tensor in inputs[:needed]:
            if tensor is not None and tensor.array is None:
                break
        else:  # annotated constants are not folded: data movement would lose their integers
            if converter is None or not _is_annotated(inputs):
                chosen = folds.find(op_type, version=version, domain=domain) or converter
        if chosen is None:
            raise CannotConvertError(
                UNKNOWN_SHAPE,
                "depends on the model's inputs; only constant operands are supported",
                needs=roots_of(inputs),
            )
        before = len(self._graph)
        with self._graph.source(Source(self._file, name, op_type)):
            try:
                is_evaluator = chosen is not converter
                converted = run_converter(chosen.converter, node, self._graph, self._file, is_evaluator=is_evaluator)
            except OpenExtentError:  # of an evaluator: the extents can be values that are computed at run time
                if converter is None or converter is chosen:
                    raise
                converted = run_converter(converter.converter, node, self._graph, self._file)
        for new in self._graph.latest(len(self._graph) - before):
            check_parameters(new.op)
        self._check_read(node)
        tensors = self._finish(node, converted, scope)
        if chosen is not converter and tensors and tensors[0].array is not None and tensors[0].array.ndim > 1:
            tensors[0] = replace(tensors[0], folding=Folding(node, chosen.converter))
        return tensors

    def _check_read(self, node: OnnxNode) -> None:
        unread = [
            f"{name}={_format_attribute(proto)}"
            for name, proto in node.attributes.items()
            if name not in node.read and name not in LEGACY_ATTRIBUTES
        ]
        unread += [
            f"input {index} ('{tensor.name}')"
            for index, tensor in enumerate(node.inputs)
            if tensor is not None and index not in node.read_inputs
        ]
        for what in unread:
            self._problems.add(UNSUPPORTED_ATTRIBUTE, node.op_type, node.name, what, "not supported here")

    def _finish(self, node: OnnxNode, converted: Sequence[Converted], scope: Scope) -> list[OnnxTensor]:
        names = node.output_names
        if any(names[len(converted) :]):
            index = len(converted)
            raise CannotConvertError(UNSUPPORTED_ATTRIBUTE, f"output {index} ('{names[index]}')", "not supported here")
        pairs = zip(names, converted, strict=False)
        return [self._results.tensor(node, scope.prefix + name, item) for name, item in pairs]

    # Names and nested graphs

    def _set_placeholders(self, proto: NodeProto, scope: Scope) -> None:
        """Set placeholders for the outputs of a node that was not converted.

        If the file states a type, the placeholder is a graph input, so that the following nodes are checked too. The
        graph is discarded at the end, because a problem was added.
        """
        for name in proto.output:
            info = self._infos.get(name) if not scope.prefix else None
            scope.tensors[name] = self._stand_in(info) if info is not None else None

    def _stand_in(self, info: ValueInfoProto) -> OnnxTensor | None:
        element, shape = input_types.declared_element(info), self._input_types.shape_in_file(info)
        if element is None or shape is None:
            return None
        elements = math.prod(extent for extent in shape if isinstance(extent, int))
        if elements > min(self._limits.max_tensor_elements, MAX_ELEMENTS):
            return None
        value = self._graph.input(info.name, TensorType(element.graph, shape or (1,)))
        return OnnxTensor(info.name, element, shape, None, value)

    def _inline_function(
        self, function: FunctionProto, call: NodeProto, inputs: Sequence[OnnxTensor | None], name: str, scope: Scope
    ) -> list[OnnxTensor | None]:
        """Convert the body of a function (of the model or of the standard) in place of its call.

        As in the main graph, only the nodes that an output of the call depends on are converted. The result has None
        for an output that the call leaves out.
        """
        inner = body_scope(function, call, inputs, self._model, f"{name}/", scope.attributes, self._deeper(scope))
        outer_names = {key: outer for key, outer in zip(function.output, call.output, strict=False) if outer}
        subgraph_extraction.check_outputs(function.node, set(function.input), self._file)
        if (node_domain(call), call.op_type, call.overload) not in self._model.functions:
            self._most_nodes += len(function.node)  # of the standard: it is not counted in the file
        self._convert_all(subgraph_extraction.nodes_for(function.node, outer_names), inner)
        results = self._leave_scope(list(outer_names), list(outer_names.values()), inner, scope)
        by_name = dict(zip(outer_names, results, strict=True))
        return [by_name.get(key) for key in function.output]

    def _inline_graph(
        self, graph: GraphProto, arguments: Sequence[OnnxTensor], name: str, scope: Scope
    ) -> list[OnnxTensor]:
        """Convert a subgraph in place, with ``arguments`` as its inputs."""
        if len(graph.input) != len(arguments):
            raise CannotConvertError(INVALID_NODE, f"its subgraph has {len(graph.input)} inputs, not {len(arguments)}")
        inner = Scope(scope.opsets, scope, f"{name}/", {}, {}, scope.attributes, self._deeper(scope))
        self._read_initializers(graph, inner)
        for value, tensor in zip(graph.input, arguments, strict=True):
            inner.tensors[value.name] = tensor
        self._convert_all(graph.node, inner)
        return self._leave_scope([value.name for value in graph.output], [], inner, scope)

    def _compile_graph(
        self, graph: GraphProto, make_inputs: MakeInputs, captured: Sequence[OnnxTensor], name: str, scope: Scope
    ) -> CompiledSubgraph:
        """Convert a subgraph to a separate graph, whose last inputs are the tensors that it uses from outside."""
        separate = Graph(name=name, file=self._file)
        separate.has_distinct_extents = True
        if self._subgraph_depth == MAX_DEPTH:
            raise CannotConvertError(
                TOO_LARGE, f"subgraphs that the host executes are nested more than {MAX_DEPTH} deep"
            )
        self._subgraph_depth += 1
        around = self._graph, self._materializer, self._results
        self._graph, self._materializer = separate, Materializer(separate)
        self._results = Results(separate, self._limits.max_tensor_elements)
        try:
            arguments = make_inputs(separate)
            if len(graph.input) != len(arguments):
                message = f"its subgraph has {len(graph.input)} inputs, not {len(arguments)}"
                raise CannotConvertError(INVALID_NODE, message)
            depth = self._deeper(scope)
            inner = SeparateScope(
                scope.opsets, scope, f"{name}/", attributes=scope.attributes, depth=depth, graph=separate
            )
            self._read_initializers(graph, inner)
            for tensor in captured:
                inner.capture(tensor)
            for value, tensor in zip(graph.input, arguments, strict=True):
                inner.tensors[value.name] = tensor
            self._convert_all(graph.node, inner)
            results = self._leave_scope([value.name for value in graph.output], [], inner, scope)
            return CompiledSubgraph(separate, results, [outer for outer, _ in inner.captured], self._materializer)
        finally:
            self._graph, self._materializer, self._results = around
            self._subgraph_depth -= 1

    def _deeper(self, scope: Scope) -> int:
        if scope.depth >= self._limits.max_depth:
            raise exceeded(f"functions nested {scope.depth} deep", "max_depth", self._limits, file=self._file)
        return scope.depth + 1

    def _leave_scope(
        self, inner_names: Sequence[str], outer_names: Sequence[str], inner: Scope, scope: Scope
    ) -> list[OnnxTensor]:
        results = []
        for index, name in enumerate(inner_names):
            tensor = inner.lookup(name, self._model.tensors)
            if tensor is None:
                if not inner.holds(name):
                    raise CannotConvertError(INVALID_NODE, f"no node computes '{name}', an output of its subgraph")
                raise _ReportedError(NO_OPERATOR, "a node inside could not be converted")
            outer = outer_names[index] if index < len(outer_names) else ""
            if outer and tensor.value is not None and tensor.value.name.startswith(inner.prefix):
                self._results.rename(tensor.value, scope.prefix + outer)
            results.append(tensor)
        return results


def _is_annotated(inputs: Sequence[OnnxTensor | None]) -> bool:
    """Return True if an input is a dequantized constant that is annotated with its integers."""
    return any(tensor is not None and tensor.value is not None and tensor.value.stored is not None for tensor in inputs)


def _first_output(proto: NodeProto) -> str:
    return next((name for name in proto.output if name), "")


def _format_attribute(proto: AttributeProto) -> str:
    try:
        return repr(decode_attribute(proto))[:80]
    except CannotConvertError:
        return "?"
