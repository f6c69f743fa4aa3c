"""Parts of a decoder with static shapes, as the vendor's compiler for language models takes them.

``embedding``, one ``block_K`` for each layer, and ``lm_head`` are cut at the residual stream. A part computes a prompt
of a fixed number of tokens; its ``_cache`` form computes one token with caches of that number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpuconvert.exporters.decoder_interface import DETAIL, Cache, Decoder, split_interface
from tpuconvert.exporters.decoder_tables import tabulate_positions, trim_tables
from tpuconvert.model.model import Model
from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.schema.errors import NO_EXACT_FORM, ProblemList
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.graph.graph_copy import copy_graph, copy_subgraph
from tpuconvert.schema.ops.shape_change import Reshape

EMBEDDING, BLOCK, HEAD, CACHED = "embedding", "block", "lm_head", "cache"
"""Words of the names of parts: ``embedding``, ``embedding_cache``, ``block_0``, ``block_cache_0``, ``lm_head``."""

IDS, STATES, POSITIONS, MASK = "input_ids", "input_states", "position_ids", "attention_mask"
HIDDEN, LOGITS = "hidden_states", "logits"
"""Names of the inputs and outputs of parts, apart from the caches."""


@dataclass(frozen=True)
class Part:
    """A part with static shapes.

    Args:
        name: its name.
        graph: its graph, whose inputs and outputs have the names of the parts' interface.
        caches: caches of a block: name in the source, input with the history, output with the new entries.
    """

    name: str
    graph: Graph
    caches: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Parts:
    """All parts of a decoder.

    Args:
        prefill: the parts that compute a prompt, in order, without the head.
        decode: the parts that compute one token, in order, without the head.
        head: the part that computes the logits of one token.
        context: number of tokens of a prompt and of the caches.
        axis: axis of the tokens in the caches.
    """

    prefill: tuple[Part, ...]
    decode: tuple[Part, ...]
    head: Part
    context: int
    axis: int

    @property
    def all(self) -> tuple[Part, ...]:
        """Every part once."""
        return (*self.prefill, *self.decode, self.head)


@dataclass(frozen=True)
class _Layer:
    """A block between two values of the residual stream."""

    first: Value
    last: Value
    caches: tuple[Cache, ...]


def split_decoder(model: Model, context: int) -> Parts:
    """Split a decoder into parts with static shapes.

    Args:
        model: a decoder with key-value caches.
        context: number of tokens of a prompt and of the caches.

    Raises:
        UsageError: the model is not a decoder.
        UnsupportedError: it has no form as parts; names the nodes.
    """
    decoder = split_interface(model)
    problems = ProblemList(decoder.graph.file or decoder.graph.name, DETAIL)
    trim_tables(decoder.graph, decoder.positions, context + 1, problems)
    tabulate_positions(decoder.graph, decoder.positions, context + 1, problems)
    layers = _find_layers(decoder, problems)
    problems.raise_if_any()
    first, last = layers[0].first, layers[-1].last
    forms: list[list[Part]] = []
    for is_cached in (False, True):
        new = 1 if is_cached else context
        extents = decoder.extents(context if is_cached else 0, new)
        word = f"_{CACHED}" if is_cached else ""
        parts = []
        if first is not decoder.tokens:
            interface = {decoder.tokens: IDS, decoder.positions: POSITIONS}
            parts.append(_part(decoder, f"{EMBEDDING}{word}", interface, {first: HIDDEN}, extents, problems))
        for number, layer in enumerate(layers):
            parts.append(_block(decoder, f"{BLOCK}{word}_{number}", layer, extents, problems, is_cached=is_cached))
        forms.append(parts)
    head = _part(decoder, HEAD, {last: STATES}, {decoder.logits: LOGITS}, decoder.extents(context, 1), problems)
    problems.raise_if_any()
    return Parts(tuple(forms[0]), tuple(forms[1]), head, context, decoder.caches[0].axis)


def part_model(model: Model, part: Part) -> Model:
    """Return a part of a model as a model."""
    content = model.content
    return Model(FileModel(part.graph, content.chip, content.tool_version, content.quantize, plugins=content.plugins))


def _find_layers(decoder: Decoder, problems: ProblemList) -> list[_Layer]:
    """Group the caches by layer, and find the values of the residual stream between the layers."""
    cuts = _find_cuts(decoder)
    order = {node: number for number, node in enumerate(decoder.graph.sorted_nodes())}
    cut_positions = [-1 if cut.producer is None else order[cut.producer] for cut in cuts]
    groups: dict[int, list[Cache]] = {}
    for cache in decoder.caches:
        position = -1 if cache.new.producer is None else order[cache.new.producer]
        before = sum(cut < position for cut in cut_positions) - 1
        groups.setdefault(before, []).append(cache)
    starts = sorted(groups)
    last = _last_sum(decoder, cuts[starts[-1] + 1 :]) if starts[0] >= 0 else None
    if last is None:
        names = ", ".join(f"'{value.name}'" for value in decoder.embedded)
        text = f"no single value connects {names or 'its inputs'}, the layers and the logits"
        problems.add(NO_EXACT_FORM, "decoder", decoder.logits.name, text, "export it without --decoder-context")
        return [_Layer(decoder.tokens, decoder.logits, decoder.caches)]
    bounds = [_with_batch(decoder.graph, value) for value in (*(cuts[start] for start in starts), last)]
    return [_Layer(bounds[k], bounds[k + 1], tuple(groups[start])) for k, start in enumerate(starts)]


def _find_cuts(decoder: Decoder) -> list[Value]:
    """Values through which every path from the embedded tokens to the logits goes, in order."""
    graph = decoder.graph
    reached = set(decoder.embedded)
    for node in graph.sorted_nodes():
        if any(value in reached for value in node.inputs if value is not None):
            reached.update(node.outputs)
    needed: set[Value] = set()
    stack = [decoder.logits]
    while stack:
        value = stack.pop()
        if value not in needed and value in reached:
            needed.add(value)
            stack += [] if value.producer is None else [item for item in value.producer.inputs if item is not None]
    waiting = {value: sum(any(y in needed for y in node.outputs) for node in value.users) for value in needed}
    live = set(decoder.embedded) & needed
    cuts = list(live) if len(live) == 1 else []
    for node in graph.sorted_nodes():
        results = [value for value in node.outputs if value in needed]
        if not results:
            continue
        for value in {value for value in node.inputs if value in needed}:
            assert value is not None
            waiting[value] -= 1
            if not waiting[value]:
                live.discard(value)
        live.update(results)
        if len(live) == 1 and live == set(results):
            cuts += results
    return cuts


def _with_batch(graph: Graph, value: Value) -> Value:
    """Return states [1, tokens, width] in place of states [tokens, width]: some decoders add without a batch."""
    if value.rank != 2 or value.dtype.is_integer:
        return value
    uses, width = list(value.uses), value.shape[1]
    assert isinstance(width, int)
    states = graph.add(Reshape((1, -1, width)), value)
    rows = graph.add(Reshape((-1, width)), states)
    for node, index in uses:
        graph.set_input(node, index, rows)
    return states


def _last_sum(decoder: Decoder, cuts: Sequence[Value]) -> Value | None:
    """The last value that is computed from two values of the stream: the residual sum of the last layer."""
    for value in reversed(cuts):
        operands = () if value.producer is None else value.producer.inputs
        if len({item for item in operands if item in decoder.stream}) > 1:
            return value
    return None


def _block(
    decoder: Decoder, name: str, layer: _Layer, extents: dict[str, int], problems: ProblemList, *, is_cached: bool
) -> Part:
    """Build a block. The form for a prompt attends to the new tokens only."""
    inputs = {layer.first: STATES, decoder.positions: POSITIONS, decoder.mask: MASK}
    outputs = {layer.last: HIDDEN}
    names = []
    for cache in layer.caches:
        kind = _kind_of(cache, layer)
        inputs[cache.past] = f"history_{kind}"
        outputs[cache.result] = f"past_{kind}"
        names.append((cache.port.name, f"history_{kind}", f"past_{kind}"))
    part = _part(decoder, name, inputs, outputs, extents, problems, () if is_cached else layer.caches)
    return Part(part.name, part.graph, tuple(names))


def _kind_of(cache: Cache, layer: _Layer) -> str:
    """``k`` or ``v`` for the caches of a layer with two of them, else their number."""
    if len(layer.caches) == 2:
        return "kv"[layer.caches.index(cache)]
    return str(layer.caches.index(cache))


def _part(
    decoder: Decoder,
    name: str,
    inputs: dict[Value, str],
    outputs: dict[Value, str],
    extents: dict[str, int],
    problems: ProblemList,
    prompt: Sequence[Cache] = (),
) -> Part:
    """Cut a part out of the graph and make its shapes static.

    Args:
        decoder: the decoder.
        name: name of the part.
        inputs: values that become inputs if the part needs them, and their names.
        outputs: values that become outputs, and their names.
        extents: numbers of the symbolic extents.
        problems: gets a value that the part needs and that is none of the inputs.
        prompt: caches that are empty, so that the new tokens are all tokens.
    """
    graph = copy_graph(decoder.graph)
    twin = {value: _twin(graph, value) for value in (*inputs, *outputs)}
    for cache in prompt:
        concat, new = _twin(graph, cache.concat.output), _twin(graph, cache.new)
        graph.replace_uses(concat, new)
    needed = _needed_inputs(graph, [twin[value] for value in inputs], [twin[value] for value in outputs])
    if isinstance(needed, Value):
        users = needed.users
        op, node = (users[0].op.name, users[0].name) if users else ("input", needed.name)
        text = f"{name} depends on '{needed.name}', which is not an input of the parts"
        hint = "the parts have causal masks and positions only: export without --decoder-context"
        problems.add(NO_EXACT_FORM, op, node, text, hint)
        return Part(name, graph)
    part = copy_subgraph(graph, needed, [twin[value] for value in outputs])
    names = {twin[value].name: port for value, port in {**inputs, **outputs}.items()}
    static = copy_graph(part, extents)
    static.file, static.name = graph.file, name
    _name_ports(static, names)
    fold_constants(static)
    static.prune()
    static.sort()
    return Part(name, static)


def _twin(graph: Graph, value: Value) -> Value:
    twin = graph.find(value.name)
    assert twin is not None
    return twin


def _needed_inputs(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> list[Value] | Value:
    """Return those inputs on which outputs depend; or a graph input that is not among them and that they need."""
    seen: set[Value] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if value in seen or value.is_constant:
            continue
        seen.add(value)
        if value in inputs:
            continue
        if value.producer is None:
            return value
        stack += [item for item in value.producer.inputs if item is not None]
    return [value for value in inputs if value in seen]


def _name_ports(graph: Graph, names: dict[str, str]) -> None:
    """Give inputs and outputs the names of the interface, and static shapes."""
    for ports, values in ((graph.input_ports, graph.inputs), (graph.output_ports, graph.outputs)):
        for index, value in enumerate(values):
            name = names[value.name]
            ports[index] = Port(name, value.dtype.numpy.name, value.shape)
    for value in dict.fromkeys((*graph.inputs, *graph.outputs)):
        name = names[value.name]
        taken = graph.find(name)
        if taken is not None and taken is not value:
            graph.rename(taken, graph.unique(f"{name}:source"))
        if taken is not value:
            graph.rename(value, name)
