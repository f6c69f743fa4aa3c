"""Parts of TFLite models as named tuples: subgraphs of chosen operators, and other simplifications.

Every function returns a new model and leaves its argument as it is. The first subgraph is the one that is reduced. The
names of its tensors are unique (``load_rows``) and identify them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tpuconvert.frontends.tflite.file.reader import ModelFile
from tpuconvert.frontends.tflite.file.rows import ROWS, read_rows
from tpuconvert.reduction.model_format import NodeLinks, part_inputs, part_outputs
from tpuconvert.schema.types import Array

CALLED = "subgraph_index"
"""End of the names of options that are the index of a subgraph."""


def load_rows(file: ModelFile, subgraph: int) -> Any:
    """Return the model with one of its subgraphs as the first, without signatures, and with unique tensor names."""
    model = read_rows(file)
    order = [subgraph, *(index for index in range(len(model.subgraphs)) if index != subgraph)]
    named = [_with_names(model.subgraphs[index], file.subgraphs[index].tensors) for index in order]
    numbers = {old: new for new, old in enumerate(order)}
    moved = [_with_called(each, numbers) for each in named]
    return compact(model._replace(subgraphs=tuple(moved), signature_defs=()))


def _with_names(subgraph: Any, tensors: Sequence[Any]) -> Any:
    """Give tensors the unique names by which the reader identifies them."""
    renamed = [row._replace(name=tensor.name) for row, tensor in zip(subgraph.tensors, tensors, strict=True)]
    return subgraph._replace(tensors=tuple(renamed))


def _with_called(subgraph: Any, numbers: Mapping[int, int]) -> Any:
    """Renumber the subgraphs that operators call."""
    return subgraph._replace(operators=tuple(_renumber_called(each, numbers) for each in subgraph.operators))


def _renumber_called(operator: Any, numbers: Mapping[int, int]) -> Any:
    changed = {}
    for union in ("builtin_options", "builtin_options2"):
        options = getattr(operator, union)
        fields = () if options is None else _called_fields(options._fields)
        if fields:
            changed[union] = options._replace(
                **{name: numbers.get(getattr(options, name), getattr(options, name)) for name in fields}
            )
    return operator._replace(**changed) if changed else operator


@functools.cache
def _called_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in fields if name == "subgraph" or name.endswith(CALLED))


def _called_by(subgraph: Any) -> Iterator[int]:
    for operator in subgraph.operators:
        for options in (operator.builtin_options, operator.builtin_options2):
            if options is not None:
                yield from (getattr(options, name) for name in _called_fields(options._fields))


def compact(model: Any) -> Any:
    """Return the model without subgraphs, tensors, buffers and operator codes that nothing uses."""
    reached: list[int] = [0]
    for index in reached:  # grows meanwhile
        reached += [
            each
            for each in dict.fromkeys(_called_by(model.subgraphs[index]))
            if 0 <= each < len(model.subgraphs) and each not in reached
        ]
    order = sorted(reached)
    numbers = {old: new for new, old in enumerate(order)}
    subgraphs = [_with_used_tensors(_with_called(model.subgraphs[index], numbers)) for index in order]
    buffers = {0: 0}
    for each in (*(tensor for part in subgraphs for tensor in part.tensors), *model.metadata):
        buffers.setdefault(each.buffer, len(buffers))
    codes: dict[int, int] = {}
    for part in subgraphs:
        for operator in part.operators:
            codes.setdefault(operator.opcode_index, len(codes))
    return model._replace(
        subgraphs=tuple(
            part._replace(
                tensors=tuple(tensor._replace(buffer=buffers[tensor.buffer]) for tensor in part.tensors),
                operators=tuple(each._replace(opcode_index=codes[each.opcode_index]) for each in part.operators),
            )
            for part in subgraphs
        ),
        buffers=tuple(model.buffers[index] for index in buffers if index < len(model.buffers)),
        metadata=tuple(each._replace(buffer=buffers[each.buffer]) for each in model.metadata),
        metadata_buffer=(),
        operator_codes=tuple(model.operator_codes[index] for index in codes),
    )


def _with_used_tensors(subgraph: Any) -> Any:
    used = {*subgraph.inputs, *subgraph.outputs}
    for operator in subgraph.operators:
        used |= {*operator.inputs, *operator.outputs, *operator.intermediates}
    order = sorted(index for index in used if index >= 0)
    numbers = {-1: -1, **{old: new for new, old in enumerate(order)}}

    def renumber(indices: Iterable[int]) -> tuple[int, ...]:
        return tuple(numbers[index] for index in indices)

    operators = [
        each._replace(
            inputs=renumber(each.inputs), outputs=renumber(each.outputs), intermediates=renumber(each.intermediates)
        )
        for each in subgraph.operators
    ]
    return subgraph._replace(
        tensors=tuple(subgraph.tensors[index] for index in order),
        inputs=renumber(subgraph.inputs),
        outputs=renumber(subgraph.outputs),
        operators=tuple(operators),
    )


def with_main(model: Any, **changes: Any) -> Any:
    """Return the model with some fields of its first subgraph replaced, without what nothing uses then."""
    return compact(model._replace(subgraphs=(model.subgraphs[0]._replace(**changes), *model.subgraphs[1:])))


def has_data(model: Any, tensor: Any) -> bool:
    """Return True if a tensor is a constant."""
    return 0 < tensor.buffer < len(model.buffers) and len(model.buffers[tensor.buffer].data) > 0


def node_links(model: Any) -> list[NodeLinks]:
    """Return the tensors of every operator of the first subgraph. An operator has the name of its first result."""
    main = model.subgraphs[0]
    links = []
    for operator in main.operators:
        reads, makes = (
            tuple(dict.fromkeys(main.tensors[index].name for index in indices if index >= 0))
            for indices in (operator.inputs, operator.outputs)
        )
        links.append(NodeLinks(makes[0] if makes else "", reads, makes))
    return links


def output_names(model: Any) -> list[str]:
    """Names of the outputs of the first subgraph."""
    main = model.subgraphs[0]
    return [main.tensors[index].name for index in main.outputs]


def extract(model: Any, keep: Iterable[int]) -> Any | None:
    """Return the model with only some operators; None if there are none."""
    chosen = sorted(keep)
    if not chosen:
        return None
    main, links = model.subgraphs[0], node_links(model)
    index_of = {tensor.name: index for index, tensor in enumerate(main.tensors)}
    results = {name for node in links for name in node.makes}
    input_names = [main.tensors[index].name for index in main.inputs]
    # Variables, and constants without elements, are neither computed nor inputs.
    outside = [name for name in part_inputs(links, chosen) if name in results or name in input_names]
    order = [name for name in input_names if name in set(outside)]
    order += [name for name in outside if name not in input_names]
    outputs = part_outputs(links, chosen, output_names(model))
    return with_main(
        model,
        inputs=tuple(index_of[name] for name in order),
        outputs=tuple(index_of[name] for name in dict.fromkeys(outputs)),
        operators=tuple(main.operators[index] for index in chosen),
    )


def with_output_names(model: Any, names: Collection[str]) -> Any:
    """Return the model with only some of its outputs."""
    main = model.subgraphs[0]
    return with_main(model, outputs=tuple(index for index in main.outputs if main.tensors[index].name in names))


def bypass(model: Any, index: int) -> Any | None:
    """Return the model without an operator: its users get its first operand of the same type instead.

    Returns:
        None if the operator has several results, or no such operand, or if its result is an output.

    """
    main = model.subgraphs[0]
    operator = main.operators[index]
    if len(operator.outputs) != 1 or operator.outputs[0] in main.outputs:
        return None
    result = main.tensors[operator.outputs[0]]
    operands = [
        each for each in operator.inputs if each >= 0 and _type_of(main.tensors[each]) == _type_of(result)
        and not has_data(model, main.tensors[each]) and not main.tensors[each].is_variable
    ]  # fmt: skip
    if not operands:
        return None
    operators = []
    for number, each in enumerate(main.operators):
        if number != index:
            inputs = tuple(operands[0] if operand == operator.outputs[0] else operand for operand in each.inputs)
            operators.append(each._replace(inputs=inputs))
    return with_main(model, operators=tuple(operators))


def _type_of(tensor: Any) -> Any:
    scales = tensor.quantization
    quantization = None if scales is None else (tuple(scales.scale), tuple(scales.zero_point))
    return tuple(tensor.shape), tensor.type, quantization


def with_shapes(model: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Return the model with the shapes of tensors that are not constants replaced, and no dynamic extents in them."""

    def change(tensor: Any) -> Any:
        if has_data(model, tensor) or tensor.is_variable:
            return tensor
        return tensor._replace(shape=tuple(shapes.get(tensor.name, tensor.shape)), shape_signature=())

    return with_main(model, tensors=tuple(map(change, model.subgraphs[0].tensors)))


def with_arrays(model: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the model in which tensors are constants, and without the operators whose results are all constants.

    Args:
        model: the model.
        arrays: elements in the type of the file, by name of the tensor; also the elements of inputs.

    """
    main = model.subgraphs[0]
    buffers, tensors = list(model.buffers), []
    for tensor in main.tensors:
        if tensor.name in arrays:
            array = np.ascontiguousarray(arrays[tensor.name])
            buffers.append(ROWS["Buffer"](data=np.frombuffer(array.tobytes(), np.uint8)))
            tensor = tensor._replace(buffer=len(buffers) - 1, shape=array.shape, shape_signature=())
        tensors.append(tensor)
    constants = {index for index, tensor in enumerate(tensors) if tensor.name in arrays}
    operators = [each for each in main.operators if not each.outputs or not set(each.outputs) <= constants]
    part = main._replace(
        tensors=tuple(tensors),
        inputs=tuple(index for index in main.inputs if index not in constants),
        operators=tuple(operators),
    )
    return compact(model._replace(buffers=tuple(buffers), subgraphs=(part, *model.subgraphs[1:])))


def simpler_operators(operator: Any) -> Iterator[Any]:
    """Yield forms of an operator without its fused activation, and without its last operand."""
    options = operator.builtin_options
    if getattr(options, "fused_activation_function", 0):
        yield operator._replace(builtin_options=options._replace(fused_activation_function=0))
    if len(operator.inputs) > 2 and operator.inputs[-1] >= 0:
        yield operator._replace(inputs=(*operator.inputs[:-1], -1))


def elements(tensor: Any) -> int:
    """Number of elements of a tensor."""
    return math.prod(tensor.shape)
