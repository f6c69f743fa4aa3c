"""Inputs of the parts of a decoder, which replace the inputs of its source: ids, positions, mask and caches.

The vendor's runtime computes positions and masks on the host. The mask [1, 1, new tokens, all tokens] is added to the
scores of the attention: 0 for a key that a query attends to, ``MASKED`` for another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tpuconvert.exporters.decoder_samples import LENGTHS, SampledValues, sample_values
from tpuconvert.model.model import Model
from tpuconvert.runtime.derived_inputs import DERIVED, MASK
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.errors import NO_EXACT_FORM, ProblemList, TpuConvertError, UsageError
from tpuconvert.schema.graph.graph import Graph, Node, Port, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.graph.states import FIXED, State, growth
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.shape_change import Reshape, Squeeze
from tpuconvert.schema.types import F32, I32, Dim, TensorType

MASKED = -10000.0
"""Element of the mask for a key that a query does not attend to."""

DETAIL = "split of a decoder"


@dataclass(frozen=True)
class Cache:
    """A key-value cache.

    Args:
        past: the graph input.
        concat: the node that appends to it.
        new: the appended value.
        result: the appended value in the type of the cache.
        port: name, type and shape of the cache in the source.
        axis: axis of the tokens.
    """

    past: Value
    concat: Node
    new: Value
    result: Value
    port: Port
    axis: int


@dataclass(frozen=True)
class Decoder:
    """A decoder that has the inputs of its parts.

    Args:
        graph: copy of its graph, with symbolic extents.
        embedded: embedded tokens, which depend on ``tokens`` and perhaps on positions.
        tokens: the input with the ids.
        positions: new input [1, new tokens].
        mask: new input [1, 1, new tokens, all tokens].
        caches: the caches, in the order of the inputs.
        logits: the output.
        stream: values that depend on embedded tokens or caches.
        symbols: names of the extents: past tokens, new tokens, all tokens.
        others: numbers of the other extents: 1, the batch.
    """

    graph: Graph
    embedded: tuple[Value, ...]
    tokens: Value
    positions: Value
    mask: Value
    caches: tuple[Cache, ...]
    logits: Value
    stream: frozenset[Value]
    symbols: tuple[str, str, str]
    others: Mapping[str, int]

    def extents(self, past: int, new: int) -> dict[str, int]:
        """Numbers of all extents for a run with some past and new tokens."""
        return {**self.others, **dict(zip(self.symbols, (past, new, past + new), strict=True))}


def split_interface(model: Model) -> Decoder:
    """Copy the graph of a decoder and give it the inputs of its parts.

    Raises:
        UsageError: the model is not a decoder with key-value caches, or has more inputs and outputs than the parts.
        UnsupportedError: a mask, a cache or positions have no form in the parts.
    """
    graph = _with_one_total(model)
    problems = ProblemList(graph.file or graph.name, DETAIL)
    symbols, others = _extents(model, graph)
    new, total = symbols[1:]
    tokens, logits = _tokens(model, graph), _logits(model, graph)
    numbers = [{**others, **dict(zip(symbols, (past, count, past + count), strict=True))} for past, count in LENGTHS]
    try:
        values = sample_values(model, graph, numbers)
    except TpuConvertError as error:
        raise UsageError(
            f"its masks and positions cannot be computed: {error}",
            file=graph.file,
            hint="export the whole model, without --decoder-context",
        ) from error
    positions = graph.input(
        graph.unique("position_ids"), TensorType(I32, (1, new)), Port("position_ids", "int32", (1, new))
    )
    shape: tuple[Dim, ...] = (1, 1, new, total)
    mask = graph.input(graph.unique("attention_mask"), TensorType(F32, shape), Port("attention_mask", "float32", shape))
    _replace_sequences(graph, values, tokens, positions)
    _replace_masks(graph, values, mask)
    caches = tuple(_cache(graph, state, problems) for state in model.states)
    problems.raise_if_any()
    valid = [cache for cache in caches if cache is not None]
    return Decoder(
        graph, values.embedded, tokens, positions, mask, tuple(valid), logits, frozenset(values.stream), symbols, others
    )


def _with_one_total(model: Model) -> Graph:
    """Copy the graph. The attention mask has as many tokens as a cache after a run, whatever its exporter calls them.

    Optimum names them ``past_sequence_length + 1``, also where a run has several new tokens.
    """
    graph = model.graph
    growing = [state for state in model.states if state.axis != FIXED]
    masks = [value for value, port in zip(graph.inputs, graph.input_ports, strict=True) if port.name == MASK]
    if not growing or not masks or masks[0].rank != 2:
        return copy_graph(graph)
    total, length = graph.output_ports[growing[0].output].shape[growing[0].axis], masks[0].shape[1]
    if isinstance(length, str) and isinstance(total, str) and length != total:
        return copy_graph(graph, {length: total})
    return copy_graph(graph)


def _extents(model: Model, graph: Graph) -> tuple[tuple[str, str, str], dict[str, int]]:
    """Return the symbols of the past, new and all tokens, and numbers of the other symbols."""
    growing = [state for state in model.states if state.axis != FIXED]
    if not growing:
        raise UsageError(
            "the model has no key-value caches, which --decoder-context makes static",
            file=graph.file,
            hint="convert a decoder with --state auto, or leave out --decoder-context",
        )
    state = growing[0]
    past = str(graph.input_ports[state.input].shape[state.axis])
    total = str(graph.output_ports[state.output].shape[state.axis])
    symbols = past, str(growth(past, total)), total
    if symbols[1].isdigit():
        raise UsageError(
            f"every run of the decoder has {symbols[1]} new tokens, but the parts also compute a whole prompt",
            file=graph.file,
            hint="export the source with a dynamic number of tokens",
        )
    names = {extent for value in graph.inputs for extent in value.shape if isinstance(extent, str)} - {*symbols}
    batch = {value.shape[0] for value in graph.inputs if value.shape and isinstance(value.shape[0], str)}
    if unknown := sorted(names - {str(name) for name in batch}):
        raise UsageError(
            f"the extents {', '.join(unknown)} do not follow from the numbers of past and new tokens",
            file=graph.file,
            hint="state them with --input-shapes when converting",
        )
    return symbols, dict.fromkeys(sorted(names), 1)


def _tokens(model: Model, graph: Graph) -> Value:
    states = {state.input for state in model.states}
    inputs = [
        value
        for index, (value, port) in enumerate(zip(graph.inputs, graph.input_ports, strict=True))
        if index not in states and port.name not in DERIVED
    ]
    if len(inputs) != 1 or inputs[0].rank != 2:
        names = ", ".join(f"'{value.name}'" for value in inputs)
        raise UsageError(
            f"the decoder has the inputs {names} besides its caches, positions and mask",
            file=graph.file,
            hint="the parts have one such input, [1, tokens] with ids",
        )
    batch = inputs[0].shape[0]
    if isinstance(batch, int) and batch != 1:
        raise UsageError(
            f"the decoder computes {batch} samples at once, and the parts compute one",
            file=graph.file,
            hint="convert it with a batch of 1 for the parts: --input-shapes input_ids=1,tokens",
        )
    return inputs[0]


def _logits(model: Model, graph: Graph) -> Value:
    states = {state.output for state in model.states}
    outputs = [value for index, value in enumerate(graph.outputs) if index not in states]
    if len(outputs) != 1:
        names = ", ".join(f"'{value.name}'" for value in outputs)
        raise UsageError(
            f"the decoder has the outputs {names} besides its caches",
            file=graph.file,
            hint="convert it with --outputs and the names of the logits and of the caches",
        )
    return outputs[0]


def _replace_sequences(graph: Graph, values: SampledValues, tokens: Value, positions: Value) -> None:
    """Let the parts read positions and ids directly: wrapped negative ones and offsets do not occur there."""
    for value in graph.values:
        if value in values.stream or value.is_constant or not value.uses:
            continue
        source = tokens if values.is_tokens(value, tokens) else positions if values.is_positions(value) else None
        if source is None or value in (tokens, positions):
            continue
        shape = tuple(-1 if isinstance(extent, str) or extent != 1 else 1 for extent in value.shape)
        is_same = value.shape == source.shape
        graph.replace_uses(value, source if is_same else graph.add(Reshape(_one_free(shape)), source))


def _one_free(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with one -1: the axis of the tokens, which may be a number."""
    return shape if -1 in shape else (*shape[:-1], -1)


def _replace_masks(graph: Graph, values: SampledValues, mask: Value) -> None:
    """Add the mask of the parts to the scores of every attention that hides keys."""
    for node in graph.sorted_nodes():
        if isinstance(node.op, Attention):
            own_mask = node.inputs[3] if len(node.inputs) > 3 else None
            kind = "padding" if own_mask is None else values.mask_kind(own_mask)
            if kind == "causal" or (kind == "padding" and node.op.is_causal):
                query, key, value = node.inputs[:3]
                assert query is not None
                operands = (query, key, value, _with_rank(graph, mask, query.rank))
                with graph.derived_from(node):
                    result = graph.add(replace(node.op, is_causal=False), *operands)
                name = node.output.name
                values.stream.add(result)
                graph.replace_uses(node.output, result)
                graph.remove(node)
                graph.rename(result, name)
        elif isinstance(node.op, Add):
            for index, operand in enumerate(node.inputs):
                is_score = node.inputs[1 - index] in values.stream
                if operand is not None and is_score and values.mask_kind(operand) == "causal":
                    graph.set_input(node, index, _with_rank(graph, mask, operand.rank))


def _with_rank(graph: Graph, mask: Value, rank: int) -> Value:
    if rank >= mask.rank:
        return mask
    return graph.add(Squeeze(tuple(range(mask.rank - rank))), mask)


def _cache(graph: Graph, state: State, problems: ProblemList) -> Cache | None:
    """Find the concat that appends to a cache; None, and a problem, if there is none."""
    past, port, output = graph.inputs[state.input], graph.input_ports[state.input], graph.outputs[state.output]
    chain: list[Node] = []
    value = output
    while value.producer is not None and not isinstance(value.producer.op, Concat):
        operands = [item for item in value.producer.inputs if item is not None and not item.is_constant]
        is_conversion = Trait.ELEMENTWISE in value.producer.op.traits or isinstance(value.producer.op, Lut)
        if len(operands) != 1 or operands[0].shape != value.shape or not is_conversion:
            break
        chain.append(value.producer)
        value = operands[0]
    node = value.producer
    if state.axis == FIXED or node is None or not isinstance(node.op, Concat) or len(node.inputs) != 2:
        name = "state" if node is None else node.op.name
        problems.add(
            NO_EXACT_FORM,
            name,
            output.name,
            f"the cache '{port.name}' is not the concat of its past and new tokens",
            "export the whole model, without --decoder-context",
        )
        return None
    new = node.inputs[1]
    assert new is not None
    result = new
    for step in reversed(chain):
        operands_ = [result if item is not None and not item.is_constant else item for item in step.inputs]
        with graph.derived_from(step):
            result = graph.add(step.op, *operands_)
        result.quant = step.output.quant
    return Cache(past, node, new, result, port, state.axis)
