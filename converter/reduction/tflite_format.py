"""Reduction of TFLite models."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source_loading import fixed_arrays
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.tflite.file.reader import ModelFile, read_model
from tpuconvert.frontends.tflite.file.rows import write_rows
from tpuconvert.frontends.tflite.file.signatures import Signature, choose
from tpuconvert.frontends.tflite.importer import bind_tensors
from tpuconvert.reduction import tflite_constants, tflite_names, tflite_parts
from tpuconvert.reduction.model_format import ModelFormat, NodeLinks, Search, needed_nodes
from tpuconvert.reduction.result import Size
from tpuconvert.reduction.search import largest_change
from tpuconvert.reduction.source_files import SourceFiles
from tpuconvert.schema.errors import CorruptInputError, TpuConvertError

MOST_ELEMENTS = 4096
"""Largest size of a constant that replaces the operators that compute it."""

TensorFacts = dict[str, tuple[tuple[int, ...], Any]]
"""Name of a tensor -> shape, and the elements of a small computed constant or None."""


class TfliteFormat(ModelFormat[Any]):
    """Operations on the model table of a TFLite file, as named tuples."""

    name = "tflite"
    applied = ("signature", "input_shapes", "inputs", "outputs", "fix_inputs")

    def __init__(self) -> None:
        self._signature = Signature()
        self._source_names: list[str] = []
        self._facts: TensorFacts = {}

    # Files

    def load(self, files: SourceFiles, options: Options) -> Any:
        """Read a file. The subgraph of the chosen signature becomes the first one."""
        with files.as_paths() as (path, _):
            file = read_model(path)
            self._signature = choose(file, options.signature)
            self._source_names = [tensor.name for tensor in file.subgraphs[self._signature.subgraph].tensors]
            return tflite_parts.load_rows(file, self._signature.subgraph)

    def apply(
        self, model: Any, options: Options, call: Callable[..., dict[Any, Any]], request: Mapping[str, Any]
    ) -> Any | None:
        """Return the model with fixed shapes and inputs, from its chosen inputs to its chosen outputs."""
        main = model.subgraphs[0]
        names = {tensor.name: tensor.name for tensor in main.tensors}
        names_by_index = {**self._signature.inputs, **self._signature.outputs}
        names |= {name: self._source_names[index] for index, name in names_by_index.items()}
        shapes = {names[name]: shape for name, shape in options.input_shapes.items() if name in names}
        fixed = {name: tuple(extent for extent in shape if isinstance(extent, int)) for name, shape in shapes.items()}
        if any(len(fixed[name]) != len(shape) for name, shape in shapes.items()):
            return None  # the frontend reports the symbolic extent
        changed = tflite_parts.with_shapes(model, fixed)
        arrays = {}
        for name, array in fixed_arrays(options).items():
            tensor = next((each for each in main.tensors if each.name == names.get(name)), None)
            if tensor is None or tensor.type not in tflite_constants.DTYPES:
                return None
            dtype = tflite_constants.DTYPES[tensor.type]
            arrays[names[name]] = np.broadcast_to(np.asarray(array), tensor.shape).astype(dtype)
        changed = tflite_parts.with_arrays(changed, arrays) if arrays else changed
        if options.inputs is None and options.outputs is None:
            return changed
        return _between(changed, options, names)

    def files(self, model: Any) -> SourceFiles:
        """Return the content of the file."""
        try:
            return SourceFiles(self.name, write_rows(model))
        except OverflowError as error:
            raise ValueError(str(error)) from error

    def value(self, files: SourceFiles) -> bytes:
        """Return the content of the file."""
        return files.content[0]

    # Description

    def size(self, model: Any) -> Size:
        """Return the size, with the constants of all subgraphs."""
        constants = sum(tflite_parts.elements(tensor) for *_, tensor in tflite_constants.constants_of(model))
        return Size(len(model.subgraphs[0].operators), constants, len(self.files(model).content[0]))

    def operators(self, model: Any) -> list[str]:
        """Names of the operators of the first subgraph."""
        codes = [tflite_names.operator_name(code) for code in model.operator_codes]
        return [codes[operator.opcode_index] for operator in model.subgraphs[0].operators]

    def links(self, model: Any) -> Sequence[NodeLinks]:
        """Tensors of every operator."""
        return tflite_parts.node_links(model)

    def outputs(self, model: Any) -> Sequence[str]:
        """Names of the outputs."""
        return tflite_parts.output_names(model)

    def identifying_texts(self, model: Any) -> list[str]:
        """Custom operators with the size of their options, texts in options, and names of metadata."""
        return tflite_names.identifying_texts(model)

    # Parts

    def extract(self, model: Any, keep: Iterable[int]) -> Any | None:
        """Return the model with only some operators."""
        return tflite_parts.extract(model, keep)

    def with_outputs(self, model: Any, names: Collection[str]) -> Any | None:
        """Return the model with some of its outputs."""
        part = tflite_parts.extract(model, needed_nodes(tflite_parts.node_links(model), names))
        return None if part is None else tflite_parts.with_output_names(part, names)

    def bypass(self, model: Any, index: int) -> Any | None:
        """Return the model without an operator that is replaced by its first operand."""
        return tflite_parts.bypass(model, index)

    # Steps

    def prepare(self, search: Search[Any], options: Mapping[str, Any]) -> None:
        """Remove metadata, which refer to the inputs of the whole model, and state the shapes of all tensors."""
        search.accept(tflite_names.without_metadata(search.model))
        self.find_types(search, options)
        self._store_constants(search)

    def find_types(self, search: Search[Any], options: Mapping[str, Any]) -> None:
        """Find the shapes that the frontend computes, and state them in the model."""
        facts: TensorFacts = search.call(find_facts, self.files(search.model).content[0])
        self._facts = facts
        search.accept(tflite_parts.with_shapes(search.model, {name: shape for name, (shape, _) in facts.items()}))

    def simplify(self, search: Search[Any]) -> None:
        """Store computed constants, and remove fused activations and last operands."""
        self._store_constants(search)
        accept = self.guarded(search)
        for index in reversed(range(len(search.model.subgraphs[0].operators))):
            for simpler in list(tflite_parts.simpler_operators(search.model.subgraphs[0].operators[index])):
                operators = list(search.model.subgraphs[0].operators)
                operators[index] = simpler
                accept(tflite_parts.with_main(search.model, operators=tuple(operators)))

    def _store_constants(self, search: Search[Any]) -> None:
        model = search.model
        results = {name for node in tflite_parts.node_links(model) for name in node.makes}
        types = {tensor.name: tensor.type for tensor in model.subgraphs[0].tensors}
        arrays = {
            name: array.astype(tflite_constants.DTYPES[types[name]])
            for name, (_, array) in self._facts.items()
            if array is not None and name in results and types[name] in tflite_constants.DTYPES
        }
        arrays = {name: array for name, array in arrays.items() if name not in tflite_parts.output_names(model)}
        largest_change(
            list(arrays),
            lambda names: search.accept(tflite_parts.with_arrays(model, {name: arrays[name] for name in names})),
        )

    # Extents, weights and names

    def extents(self, model: Any) -> list[int]:
        """Extents above 1 of inputs and constants."""
        return tflite_constants.extents_of(model)

    def with_extent(self, model: Any, old: int, new: int) -> Any | None:
        """Return the model with an extent replaced."""
        return tflite_constants.with_extent(model, old, new)

    def weight_positions(self, model: Any) -> Sequence[Hashable]:
        """Positions of weights and of scales per channel."""
        return tflite_constants.weight_positions(model)

    def count_other_weights(self, model: Any) -> int:
        """Number of constants whose type or form is not written."""
        return tflite_constants.count_other_weights(model)

    def with_random_weights(self, model: Any, positions: Collection[Any], seed: int) -> Any:
        """Return the model with random values in some constants."""
        return tflite_constants.with_random_weights(model, positions, seed)

    def without_descriptions(self, model: Any) -> Any:
        """Return the model without description, metadata, and recorded ranges."""
        return tflite_names.without_descriptions(model)

    def with_generic_names(self, model: Any, *, keep_ports: bool = False) -> Any:
        """Return the model with generic names of tensors and subgraphs."""
        return tflite_names.with_generic_names(model, keep_ports=keep_ports)


def _between(model: Any, options: Options, names: Mapping[str, str]) -> Any | None:
    """Return the part from the chosen inputs to the chosen outputs; None if a name is unknown."""
    main = model.subgraphs[0]
    index_of = {tensor.name: index for index, tensor in enumerate(main.tensors)}
    own_inputs = [main.tensors[index].name for index in main.inputs]
    starts = [names.get(name, "") for name in options.inputs or own_inputs]
    ends = [names.get(name, "") for name in options.outputs or tflite_parts.output_names(model)]
    if any(name not in index_of for name in (*starts, *ends)):
        return None
    keep = needed_nodes(tflite_parts.node_links(model), ends, starts)
    return tflite_parts.with_main(
        model,
        inputs=tuple(index_of[name] for name in starts),
        outputs=tuple(index_of[name] for name in ends),
        operators=tuple(operator for index, operator in enumerate(main.operators) if index in keep),
    )


def find_facts(content: bytes) -> TensorFacts:
    """Return the shapes of the tensors of the first subgraph, and its small computed constants."""
    with tempfile.TemporaryDirectory(prefix="tpuconvert-") as folder:
        path = Path(folder, "model.tflite")
        path.write_bytes(content)
        try:
            return _facts_of(read_model(path))
        except TpuConvertError:
            return {}


def _facts_of(file: ModelFile) -> TensorFacts:
    tensors = bind_tensors(file)
    facts: TensorFacts = {}
    for tensor in file.subgraphs[0].tensors:
        try:
            array = tensors.array(tensor)
            facts[tensor.name] = tensors.shape(tensor), None if array is None or array.size > MOST_ELEMENTS else array
        except (CannotConvertError, CorruptInputError, ValueError):  # not computed, or of no static shape
            continue
    return facts
