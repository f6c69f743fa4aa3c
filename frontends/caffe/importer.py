"""Convert a Caffe network: run the converter of each layer, in the order of the layers.

A layer that cannot be converted is recorded as a problem, and the import continues; all problems are reported at the
end. Layers that read the tops of such a layer are skipped without a further problem.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuconvert.frontends import cuts
from tpuconvert.frontends.caffe.file.description import LayerDescription, NetDescription, read_description
from tpuconvert.frontends.caffe.file.weights import Blob, Weights, blob_of_message, read_weights
from tpuconvert.frontends.caffe.file.wire import AmbiguousWireError, WireError
from tpuconvert.frontends.caffe.node import (
    CaffeNode,
    Converted,
    Declared,
    Findings,
    LayerWeights,
    RankZero,
    Result,
    SharedParameter,
    caffe_op,
)
from tpuconvert.frontends.caffe.unsupported import why_unsupported
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.converter_errors import translated_errors
from tpuconvert.schema.errors import (
    INVALID_NODE,
    NO_OPERATOR,
    TOO_LARGE,
    UNKNOWN_SHAPE,
    UNSUPPORTED_ATTRIBUTE,
    AmbiguousInputError,
    CorruptInputError,
    ProblemList,
    UsageError,
)
from tpuconvert.schema.graph.graph import Graph, Port, Source, Value, static
from tpuconvert.schema.system.limits import Limits, check_time
from tpuconvert.schema.types import F32, MAX_RANK, Array, Shape, TensorType, format_shape


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import; the fields have the meaning of the arguments of ``tpuconvert.frontends.caffe.load``."""

    limits: Limits
    input_shapes: Mapping[str, Sequence[int]]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    require_weights: bool = True


def import_network(
    path: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None,
    limits: Limits,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    require_weights: bool,
) -> Graph:
    """Read and convert a network; ``tpuconvert.frontends.caffe.load`` documents arguments and errors."""
    net = read_description(path, limits)
    names = tuple(inputs or ()), tuple(outputs or ())
    options = ImportOptions(limits, dict(input_shapes or {}), *names, require_weights)
    return _Importer(net, None if weights is None else read_weights(weights, limits), options).run()


def blob_shapes(net: NetDescription, weights: Weights | None, options: ImportOptions) -> dict[str, tuple[int, ...]]:
    """Convert the layers as far as possible, and return the shape of every blob that is known.

    Problems are not reported: the tops of a layer that cannot be converted are assumed to have the shape of its first
    bottom. A blob that several layers write has the shape of the last one.
    """
    return _Importer(net, weights, options).shapes()


@dataclass
class _Blob:
    """Current state of one blob name during the import; layers may write the same blob repeatedly.

    Args:
        value: current graph value; None if the blob is only declared, or if its layer could not be converted.
        writer: name of the layer that wrote the blob last.
        declared: the declaration of a graph input that no layer has read yet, otherwise None.
        is_read: True if a layer has read the current value.
        owns_name: True if the current value has the name of the blob.
        is_rank_zero: True if the blob has rank 0 in Caffe.

    """

    value: Value | None
    writer: str
    declared: Declared | None = None
    is_read: bool = False
    owns_name: bool = False
    is_rank_zero: bool = False


class _Importer:
    def __init__(self, net: NetDescription, weights: Weights | None, options: ImportOptions) -> None:
        self._net = net
        self._weights = weights
        self._options = options
        self._file = Path(net.file).name
        self._graph = Graph(net.name or Path(net.file).stem, self._file)
        if not options.require_weights:
            self._graph.budget = None  # the zeros of missing weights take no memory
        self._problems = ProblemList(self._file, f"Caffe, {len(net.layers)} layers")
        self._findings = Findings()
        self._blobs: dict[str, _Blob] = {}
        self._input_names: set[str] = set()
        self._notes: list[str] = []
        names = {layer.message.name for layer in net.layers}
        self._owners: dict[str, str] = {}  # name of a parameter -> first layer that has it
        for layer in net.layers:
            for spec in layer.message.param:
                self._owners.setdefault(spec.name, layer.message.name)
        self._filled: dict[str, Array] = {}
        self._unclaimed = [(name, blobs[0].shape) for name, blobs in (weights or {}).items() if name not in names]

    def run(self) -> Graph:
        for name in self._options.inputs:
            self._declare(name, Declared(None), "--inputs")
        for item in self._net.unknown:
            path = ".".join(str(step) for step in item.path)
            self._problems.add(
                UNSUPPORTED_ATTRIBUTE, "network", self._net.name, f"{path} (line {item.line})", "remove it"
            )
        layers = self._needed_layers()
        failed: set[int] = set()
        values: dict[str, Value] = {}  # per blob, its last value that was written by a converted layer
        for layer in layers:
            check_time()
            before = len(self._problems)
            self._convert(layer)
            if len(self._problems) != before:
                failed.add(id(layer))
            for top in _tops(layer.message):
                if top in self._blobs and (value := self._blobs[top].value) is not None:
                    values[top] = value
        self._check_names()
        self._declare_outputs()
        if len(self._problems):
            self._complete_hints(layers, failed, values)
        self._problems.raise_if_any()
        if self._findings.without_weights and self._options.require_weights:
            count = len(dict.fromkeys(self._findings.without_weights))
            raise UsageError(
                f"{self._net.file}: {count} layers need trained weights, and no weight file was given",
                hint="give the .caffemodel as WEIGHTS, after the prototxt",
            )
        self._note()
        self._graph.prune()
        return self._graph

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all blobs, as far as they are known."""
        for layer in self._net.layers:
            try:
                self._convert(layer)
            except Exception:  # also of the converters of plugins
                for top in _tops(layer.message, True):
                    self._blobs[top] = _Blob(None, layer.message.name)
            first = self._shape(layer.message.bottom[0]) if layer.message.bottom else None
            for top in _tops(layer.message, True):
                if top in self._blobs and self._shape(top) is None and first is not None:
                    self._blobs[top] = _Blob(None, layer.message.name, Declared(first))
        shapes = {name: self._shape(name) for name in self._blobs}
        return {name: shape for name, shape in shapes.items() if shape is not None}

    def _shape(self, name: str) -> tuple[int, ...] | None:
        blob = self._blobs.get(name)
        if blob is None:
            return None
        if blob.value is not None:
            return () if blob.is_rank_zero else static(blob.value.shape)
        return None if blob.declared is None else blob.declared.shape

    # Selection of layers

    def _needed_layers(self) -> list[LayerDescription]:
        """Layers that the requested outputs depend on; all layers if no inputs or outputs are requested."""
        if not self._options.outputs and not self._options.inputs:
            return self._net.layers
        inputs = set(self._options.inputs)
        needed_blobs = set(self._options.outputs) or {top for layer in self._net.layers for top in _tops(layer.message)}
        needed = []
        for layer in reversed(self._net.layers):
            tops, bottoms = set(_tops(layer.message)), set(layer.message.bottom)
            if not tops & needed_blobs or (tops and tops <= inputs):
                continue
            needed.append(layer)
            needed_blobs = (needed_blobs - (tops - bottoms)) | (bottoms - inputs)
        return needed[::-1]

    # Conversion of one layer

    def _convert(self, layer: LayerDescription) -> None:
        message = layer.message
        registration = caffe_op.find(message.type)
        if registration is None and self._is_loss(layer):
            self._notes.append(f"layer '{message.name}' ({message.type}) measures a loss: left out")
            return
        if registration is None:
            self._problems.add(NO_OPERATOR, message.type or "(no type)", message.name, *why_unsupported(message))
        elif self._has_bottoms(layer):
            node = self._node(layer)
            before = len(self._graph)
            try:
                with self._graph.source(Source(self._file, message.name, message.type)):
                    results = self._run_converter(registration.converter, node)
                tops = _tops(message, bool(results))
                if len(results) > len(tops) or len(results) < len(tops):
                    text = f"has {len(tops)} tops, {message.type} makes {len(results)}"
                    raise CannotConvertError(INVALID_NODE, text, "remove the tops that nothing needs")
                new_ids = {id(value) for new in self._graph.nodes[before:] for value in new.outputs}
                for top, result in zip(tops, results, strict=True):
                    self._write(layer, top, result, new_ids)
            except _AlreadyReportedError:
                pass  # the code below records the tops as blobs without a value, as for all unconverted layers
            except CannotConvertError as error:
                self._problems.add(error.kind, message.type, message.name, error.message, error.hint)
            else:
                self._check_read(node)
                return
        for top in _tops(message, True):
            self._blobs[top] = _Blob(None, message.name, is_read=True)

    def _is_loss(self, layer: LayerDescription) -> bool:
        """Return True if a layer computes a training loss whose tops no layer reads and no option requests."""
        message = layer.message
        read = {bottom for other in self._net.layers for bottom in other.message.bottom}
        counts = any(message.loss_weight) or message.type.endswith("Loss")
        return counts and not read & set(_tops(message, True)) and not set(message.top) & set(self._options.outputs)

    def _node(self, layer: LayerDescription) -> CaffeNode:
        message = layer.message
        inputs = [self._reader(bottom) for bottom in message.bottom]
        weights = self._layer_weights(message)
        return CaffeNode(layer, self._graph, inputs, weights, self._findings, self._options.limits)

    def _reader(self, name: str) -> Callable[[], Value]:
        blob = self._blobs[name]  # looked up before the layer runs, because an in-place layer replaces the entry

        def read() -> Value:
            if blob.declared is not None:
                self._make_input(name, blob)
            assert blob.value is not None, f"blob '{name}' has no value"
            blob.is_read = True
            return blob.value

        return read

    def _layer_weights(self, message: Any) -> LayerWeights:
        """Learned tensors of a layer: the layers of the weight file or, without one, of the prototxt."""
        if self._weights is not None:
            own = self._weights.get(message.name, [])
            shared: list[Blob | None] = [*own] or [self._shared_blob(spec.name, message) for spec in message.param]
            return LayerWeights(shared, bool(own), self._unclaimed, self._parameters(message), self._filled)
        if not message.blobs:
            return LayerWeights(None)
        try:
            return LayerWeights([blob_of_message(blob) for blob in message.blobs])
        except AmbiguousWireError as error:
            raise AmbiguousInputError(str(error), file=self._net.file, node=message.name) from error
        except WireError as error:
            raise CorruptInputError(str(error), file=self._net.file, node=message.name) from error

    def _parameters(self, message: Any) -> list[SharedParameter | None]:
        """Named parameters of a layer, in the order of its learned tensors."""
        return [SharedParameter(spec.name, self._owners[spec.name]) if spec.name else None for spec in message.param]

    def _shared_blob(self, name: str, message: Any) -> Blob | None:
        """Learned tensor of another layer that has a parameter of this name; None if there is none."""
        if not name or self._weights is None:
            return None
        for layer in self._net.layers:
            other = layer.message
            for index, spec in enumerate(other.param):
                blobs = self._weights.get(other.name, [])
                if other.name != message.name and spec.name == name and index < len(blobs):
                    return blobs[index]
        return None

    def _has_bottoms(self, layer: LayerDescription) -> bool:
        """Return True if every bottom has a value or declaration; report bottoms that no earlier layer writes."""
        message = layer.message
        for bottom in message.bottom:
            if bottom not in self._blobs:
                hint = "correct the name, or add the layer that makes it"
                if self._net.left_out:
                    hint += f" (left out as training only: {', '.join(dict.fromkeys(self._net.left_out))})"
                text = f"reads '{bottom}', which no layer before it makes"
                self._problems.add(INVALID_NODE, message.type, message.name, text, hint)
        blobs = [self._blobs.get(bottom) for bottom in message.bottom]
        return all(blob is not None and (blob.value is not None or blob.declared is not None) for blob in blobs)

    def _run_converter(self, converter: Callable[..., Any], node: CaffeNode) -> list[Result]:
        with translated_errors(node.type, self._file, node.name):
            converted: Converted = converter(node, self._graph)
        if converted is None:
            return []
        return list(converted) if isinstance(converted, Sequence) else [converted]

    def _check_read(self, node: CaffeNode) -> None:
        for item in node.unused_parameters():
            hint = "remove it if the network does not depend on it, or give a plugin that converts this layer"
            self._problems.add(UNSUPPORTED_ATTRIBUTE, node.type, node.name, item, hint)
        if blobs := node.blobs_left():
            hint = "give the prototxt that belongs to these weights"
            self._problems.add(INVALID_NODE, node.type, node.name, blobs, hint)
        self._notes.extend(node.notes)
        for name in node.foreign():
            self._notes.append(f"layer '{node.name}' ({node.type}) ignores {name}, as Caffe does")

    # Blobs

    def _write(self, layer: LayerDescription, top: str, result: Result, new_ids: set[int]) -> None:
        message = layer.message
        if result is None:
            return
        old = self._blobs.get(top)
        if top in self._options.inputs:
            return
        if old is not None and top not in message.bottom:
            text = f"writes '{top}', which layer '{old.writer}' has written"
            raise CannotConvertError(INVALID_NODE, text, "give the top another name")
        if isinstance(result, Declared):
            self._declare(top, result, message.name)
            return
        value = result.value if isinstance(result, RankZero) else result
        self._check_size(value.shape)
        blob = _Blob(value, message.name, is_rank_zero=isinstance(result, RankZero))
        if id(value) in new_ids:
            new_ids.discard(id(value))
            self._name(value, top, message.name, old)
            blob.owns_name = value.name == top
        elif old is not None and old.value is value:  # an in-place layer that is the identity
            blob.owns_name, blob.writer = old.owns_name, old.writer
        self._blobs[top] = blob

    def _name(self, value: Value, top: str, writer: str, old: _Blob | None) -> None:
        """Give the newest value of a blob the name of the blob; rename its previous value to ``blob@layer``.

        A graph input keeps its name, so that the new value is named ``blob@layer`` instead.
        """
        taken = self._graph.find(top)
        if taken is not None and old is not None and old.owns_name and taken is old.value:
            self._graph.rename(taken, self._graph.unique(f"{top}@{old.writer}"))
            taken = None
        if value.name != top:
            self._graph.rename(value, top if taken is None else self._graph.unique(f"{top}@{writer}"))

    def _check_size(self, shape: Shape) -> None:
        count = math.prod(extent for extent in shape if isinstance(extent, int))
        if count > self._options.limits.max_tensor_elements:
            text = f"its result of shape {format_shape(shape)} has {count} elements"
            raise CannotConvertError(TOO_LARGE, text)

    # Inputs and outputs

    def _declare(self, name: str, declared: Declared, writer: str) -> None:
        self._input_names.add(name)
        requested = self._options.input_shapes.get(name)
        shape = declared.shape if requested is None else tuple(int(extent) for extent in requested)
        if requested is not None and (not shape or len(shape) > MAX_RANK or min(shape) < 1):
            raise UsageError(f"input '{name}' cannot have the shape {list(requested)}")
        blob = _Blob(None, writer, Declared(shape, declared.needed))
        self._blobs[name] = blob
        if declared.needed:
            self._make_input(name, blob)

    def _make_input(self, name: str, blob: _Blob) -> None:
        assert blob.declared is not None
        shape = blob.declared.shape
        if not shape or len(shape) > MAX_RANK or min(shape) < 1:
            shape_text = "no shape" if not shape else f"the shape {list(shape)}"
            hint = f"give it: --input-shapes {name}=1,3,224,224 (here batch, channels, height, width)"
            self._problems.add(UNKNOWN_SHAPE, "input", name, f"has {shape_text} in the prototxt", hint)
            raise _AlreadyReportedError(UNKNOWN_SHAPE, f"{shape_text} in the prototxt")
        self._check_size(shape)
        blob.declared = None
        blob.value = self._graph.input(name, TensorType(F32, shape), Port(name, "float32", shape))

    def _check_names(self) -> None:
        """Raise UsageError if the options contain a name of an input or blob that does not exist."""
        wrong = [name for name in self._options.input_shapes if name not in self._input_names]
        if wrong:
            names = ", ".join(sorted(self._input_names)) or "none"
            raise UsageError(f"{self._net.file}: no input '{wrong[0]}'", hint=f"its inputs: {names}")
        if self._problems:
            return
        wrong = [name for name in self._options.outputs if name not in self._blobs]
        if wrong:
            names = ", ".join(list(self._blobs)[-8:])
            raise UsageError(f"{self._net.file}: no blob '{wrong[0]}'", hint=f"the last ones: {names}")

    def _declare_outputs(self) -> None:
        """Declare the requested graph outputs. By default they are the blobs that no layer reads, in layer order."""
        order = {layer.message.name: index for index, layer in enumerate(self._net.layers)}
        names = list(self._options.outputs)
        if not names:
            free = [name for name, blob in self._blobs.items() if not blob.is_read and not self._is_input(name)]
            names = sorted(free, key=lambda name: order.get(self._blobs[name].writer, -1))
        for name in names:
            blob = self._blobs.get(name)
            if blob is None or blob.value is None:
                continue
            shape = () if blob.is_rank_zero else blob.value.shape
            self._graph.output(blob.value, Port(name, "float32", shape))
        if not self._graph.outputs and not self._problems:
            hint = "a network for inference ends in a layer whose top is unused; name one: --outputs"
            raise CorruptInputError("the network has no output", file=self._net.file, hint=hint)

    def _is_input(self, name: str) -> bool:
        value = self._blobs[name].value
        return name in self._input_names and (value is None or any(value is other for other in self._graph.inputs))

    # Reports

    def _complete_hints(
        self, layers: Sequence[LayerDescription], failed: set[int], values: Mapping[str, Value]
    ) -> None:
        """Append advice on possible ``--outputs`` to the hints of layers that have no converter."""
        steps = [
            cuts.Step(frozenset(layer.message.bottom), tuple(_tops(layer.message)), id(layer) not in failed)
            for layer in layers
        ]
        tops = [top for step in steps for top in step.makes]
        read = {name for step in steps for name in step.reads}
        ends = cuts.ends(steps, [name for name in tops if name not in read], values.get)
        cuts.add_hint(self._problems, cuts.advice(ends), lambda problem: problem.kind is NO_OPERATOR)

    def _note(self) -> None:
        if self._net.borrowed:
            borrowed = ", ".join(self._net.borrowed)
            self._graph.notes.append(f"inputs come from a data layer of another phase or stage: {borrowed}")
        if self._net.left_out:
            self._graph.notes.append(f"left out, for training only: {', '.join(dict.fromkeys(self._net.left_out))}")
        self._graph.notes.extend(self._notes)
        if self._weights is not None:
            names = {layer.message.name for layer in self._net.layers}
            unused = [name for name in self._weights if name not in names]
            if unused:
                shown = ", ".join(unused[:6]) + (f" and {len(unused) - 6} more" if len(unused) > 6 else "")
                self._graph.notes.append(f"weights of layers that the prototxt does not have: {shown}")


class _AlreadyReportedError(CannotConvertError):
    """Exception that ends a converter after its problem was recorded, for a graph input."""


def _tops(message: Any, makes: bool = False) -> list[str]:
    """Tops of a layer. With ``makes``, a layer without tops (such as a loss) has one top, named after the layer."""
    return list(message.top) or ([message.name] if makes else [])
