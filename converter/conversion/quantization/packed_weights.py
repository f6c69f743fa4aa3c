"""Matmuls of a float model with packed weights (``weight_type``) and INT8 activations (``activation_type``)."""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tpuconvert.conversion.model_building import Decision, QuantizedGraph
from tpuconvert.conversion.quantization.calibration_feeds import calibration_feeds
from tpuconvert.conversion.quantization.sample_split import split_feeds
from tpuconvert.optimizer.quantize.weights.group_weights import (
    LEAST_WEIGHTS,
    WORTHWHILE_ERROR,
    GroupFormat,
    Moments,
    PackedConstants,
    PackedWeight,
    embedding_nodes,
    float_matmuls,
    outlier_inputs,
    pack_weight,
    pack_with_outliers,
    packable_nodes,
    replace_activation_type,
    replace_by_packed,
    replace_lookup,
    second_moments,
)
from tpuconvert.runtime.derived_inputs import DERIVED
from tpuconvert.runtime.threads import available_threads
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file.file_model import Note
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import I8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tpuconvert.conversion.options.options import Options
    from tpuconvert.conversion.quantization.accuracy_check import AccuracyCheck
    from tpuconvert.progress import Progress
    from tpuconvert.samples.calibration_data import CalibrationSource, FeedSource
    from tpuconvert.schema.graph.graph import Graph, Node, Value
    from tpuconvert.schema.types import Array

S = TypeVar("S")
T = TypeVar("T")

KIND = "weights"
"""Kind of the notes."""

_BITS = {"int4": 4, "int8": 8}
_MOST_NAMES = 3


@dataclass(frozen=True)
class RoundedActivations:
    """Matmuls whose activations are rounded when they are computed."""

    count: int
    type: str

    def notes(self) -> Sequence[Note]:
        """Return their number and type."""
        text = f"{self.count} matmuls have activations in {self.type}, with a scale per row and group of inputs"
        return [Note(KIND, "", text)]


@dataclass(frozen=True)
class PackedMatmuls:
    """Matmuls with packed weights.

    Args:
        type: type of the weights.
        form: their groups.
        errors: relative squared error of the result of every matmul, by its name.
        split: number of weights with a second group.
        tables: number of packed tables of embeddings, and the matmuls that share them.
        size: bytes of the packed weights.
        before: bytes of the float weights.
        origin: text that states how they were rounded.
        kept: names of matmuls that stay in float, by the reason.
    """

    type: str
    form: GroupFormat
    errors: Mapping[str, float]
    split: int
    tables: tuple[int, int, str]
    size: int
    before: int
    origin: str
    kept: Mapping[str, Sequence[str]]

    def notes(self) -> Sequence[Note]:
        """Return number, size and errors of the weights."""
        worst = sorted(self.errors.items(), key=lambda item: -item[1])[:_MOST_NAMES]
        repeated = (
            f"; {self.split} have a second group for their {self.form.group} largest inputs" if self.split else ""
        )
        errors = ", ".join(f"'{name}' {100 * error:.2g} %" for name, error in worst)
        zero = " and zero point" if self.form.has_zero_points else ""
        bits = 32 * self.size / self.before
        text = (
            f"{len(self.errors)} matmuls have weights in {self.type}, with a scale{zero} per {self.form.group} inputs: "
            f"{self.size / 1e6:.2f} MB instead of {self.before / 1e6:.2f} MB, {bits:.2f} bits per weight, {self.origin}"
            f"{repeated}. Largest squared errors of their results: {errors}"
        )
        count, users, name = self.tables
        if count:
            shared = f", shared by {users} of these matmuls" if users else ""
            text += f". {count} embedding{'s have' if count > 1 else ' has'} weights in {name}{shared}"
        return [
            Note(KIND, "", text),
            *(Note(KIND, "", _kept_text(reason, names)) for reason, names in self.kept.items()),
        ]


def _kept_text(reason: str, names: Sequence[str]) -> str:
    """Return the text about matmuls that stay in float."""
    listed = ", ".join(f"'{name}'" for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    has = "has" if len(names) == 1 else "have"
    count = "1 matmul stays" if len(names) == 1 else f"{len(names)} matmuls stay"
    return f"{count} in float: {listed}{more} {has} {reason}"


def quantize_matmuls(
    graph: Graph,
    options: Options,
    calibration: CalibrationSource | None,
    progress: Progress,
    check: AccuracyCheck | None = None,
) -> QuantizedGraph:
    """Pack weights and quantize activations, as the options request. The graph is changed in place.

    Args:
        graph: float graph.
        options: options of the conversion.
        calibration: samples for the rounding of the weights, or None.
        progress: receives the stages.
        check: records the float outputs on some samples, if there are any.

    Raises:
        UsageError: no matmul can be quantized, or the samples do not fit.

    """
    decisions: list[Decision] = []
    feeds = None if calibration is None else calibration_feeds(graph, options, calibration)
    if feeds is not None and check is not None:
        check.choose(feeds, split_feeds(graph, options.chip, feeds, feeds.samples))
        check.record(graph)
    if options.weight_type != "float32":
        decisions.append(_pack_weights(graph, options, feeds, progress))
    if options.activation_type != "float32":
        decisions.append(_quantize_activations(graph, options))
    graph.prune()
    graph.sort()
    return QuantizedGraph(graph, tuple(decisions))


def _quantize_activations(graph: Graph, options: Options) -> RoundedActivations:
    """Quantize the activations of all matmuls with packed weights when they are computed."""
    name = options.activation_type
    nodes = [node for node in graph.nodes if isinstance(node.op, MatmulGroupQuantized)]
    if not nodes:
        hint = "add --weight-type int4 or int8, or leave --activation-type out"
        raise UsageError(f"activation_type={name}: the model has no matmul with packed weights", hint=hint)
    for node in nodes:
        replace_activation_type(graph, node, I8)
    return RoundedActivations(len(nodes), name)


def _pack_weights(graph: Graph, options: Options, feeds: FeedSource | None, progress: Progress) -> PackedMatmuls:
    """Pack the weights of the matmuls and embeddings of a float graph.

    Raises:
        UsageError: the graph has integers, no weight can be packed, or the samples do not fit.

    """
    name = options.weight_type
    if any(value.quant is not None for value in graph.values):
        raise UsageError(f"weight_type={name} for a quantized source", hint="give the float model, or leave it out")
    form = GroupFormat(_BITS[name], options.weight_group, options.weight_zero_points)
    nodes, kept = packable_nodes(graph, form), float_matmuls(graph, form)
    tables = _Tables.of(graph, nodes, options)
    if not nodes and not tables.lookups:
        hint = (
            f"it is for matmuls and embeddings with constant weights of at least {LEAST_WEIGHTS} elements and of "
            f"{form.group} inputs, one group; leave it out, or use a smaller --weight-group"
        )
        raise UsageError(f"weight_type={name}: no weight can be packed", hint=hint)
    own = [node for node in nodes if node.name not in tables.by_node]
    shapes = [*(_shape(node) for node in own), *(table.type.static_shape for table in tables.lookups)]
    count = sum(map(math.prod, shapes))
    work = _Work(progress, count)
    packed: dict[str, PackedWeight] = {}
    by_operand: dict[str, list[Node]] = {}
    for node in own:
        assert node.inputs[0] is not None, "packable"
        by_operand.setdefault(node.inputs[0].name, []).append(node)
    if feeds is None:
        for node, weight in _in_threads(lambda node: (node, pack_weight(node.name, _weight(node), form)), own):
            work.begin()
            packed[node.name] = weight
            _finish(work, [node])
        origin = "rounded to nearest without samples"
    else:
        origin = f"rounded on {feeds.description}"

        def pack(item: tuple[str, Moments]) -> tuple[list[Node], list[PackedWeight]]:
            users = by_operand[item[0]]
            return users, _pack_on_samples(users, form, item[1])

        for users, weights in _in_threads(pack, second_moments(graph, own, work.observe(feeds))):
            work.begin()
            packed |= {weight.node: weight for weight in weights}
            _finish(work, users)
    shared = {}
    for table in tables.lookups:
        work.begin()
        shared[table] = tables.pack(graph, table)
        work.advance(table.array.size)
    for node in own:
        replace_by_packed(graph, node, packed[node.name], form)
    size = sum(weight.nbytes for weight in (*packed.values(), *(weight for weight, _ in shared.values())))
    split = sum(weight.order is not None for weight in packed.values())
    errors = {name: weight.error for name, weight in packed.items()}
    for node in nodes:
        if node.name in tables.by_node:
            weight, constants = shared[tables.by_node[node.name]]
            errors[node.name] = weight.error
            replace_by_packed(graph, node, weight, tables.form, constants)
    for table, lookups in tables.lookups.items():
        for node in lookups:
            replace_lookup(graph, node, shared[table][1], tables.form)
    counts = len(tables.lookups), len(tables.by_node), f"int{tables.form.bits}"
    return PackedMatmuls(name, form, errors, split, counts, size, 4 * count, origin, kept)


def _in_threads(function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Yield the results of a function in the order of its arguments, computed by all threads.

    The arguments are taken when a thread is free, so that few of them are in memory.
    """
    count = available_threads()
    pending: deque[Future[T]] = deque()
    with ThreadPoolExecutor(count) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _finish(work: _Work, nodes: Sequence[Node]) -> None:
    """Report that the weights of matmuls were rounded, and free their memory if they are in a mapped file."""
    work.advance(sum(math.prod(_shape(node)) for node in nodes))
    for node in nodes:
        assert node.inputs[1] is not None, "packable"
        node.inputs[1].release_memory()


@dataclass(frozen=True)
class _Tables:
    """Tables in which tokens are looked up, and matmuls with the same weights.

    Args:
        form: bits and groups of the tables.
        lookups: nodes that look up rows, by table.
        by_node: table that a matmul multiplies by, by name of the matmul.
    """

    form: GroupFormat
    lookups: Mapping[Value, Sequence[Node]]
    by_node: Mapping[str, Value]

    @staticmethod
    def of(graph: Graph, matmuls: Sequence[Node], options: Options) -> _Tables:
        """Return the tables of a graph. A table that a matmul shares has at least the bits of the matmuls."""
        types = [options.embedding_type, options.weight_type]
        if options.embedding_type == "float32":
            return _Tables(GroupFormat(8, options.weight_group), {}, {})
        form = GroupFormat(_BITS[types[0]], options.weight_group, options.weight_zero_points)
        lookups: dict[Value, list[Node]] = {}
        for node in embedding_nodes(graph, form, DERIVED):
            assert node.inputs[0] is not None, "a table"
            lookups.setdefault(node.inputs[0], []).append(node)
        by_node = {
            node.name: table
            for node in matmuls
            for table in lookups
            if _shape(node) == table.type.static_shape[::-1] and np.array_equal(_weight(node).T, table.array)
        }
        if by_node:
            form = replace(form, bits=max(_BITS[name] for name in types))
        return _Tables(form, lookups, by_node)

    def pack(self, graph: Graph, table: Value) -> tuple[PackedWeight, PackedConstants]:
        """Pack a table. Its rows are equally likely, so that samples do not count."""
        weight = pack_weight(table.name, table.array.T, self.form)
        return weight, PackedConstants.add(graph, weight, table.name)


class _Work:
    """Progress of the samples, and then of the weights in percent of all."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total, self._done, self._stage = total, 0, ""

    def begin(self) -> None:
        """Begin to round weights."""
        if self._stage != "round":
            self._stage = "round"
            self._progress.stage("round the weights, in percent", 100)
            self._progress.advance(100 * self._done // self._total)

    def advance(self, size: int) -> None:
        """Report that weights were rounded."""
        self._done += size
        self._progress.advance(100 * self._done // self._total)

    def observe(self, feeds: FeedSource) -> _Observed:
        """Return the samples, which report their number at each pass over them."""
        return _Observed(self, feeds)

    def samples(self, feeds: FeedSource) -> Iterator[Mapping[str, Array]]:
        """Yield the samples."""
        self._stage = "samples"
        self._progress.stage("run the samples", len(feeds))
        for done, feed in enumerate(feeds, 1):
            yield feed
            self._progress.advance(done)


@dataclass(frozen=True)
class _Observed:
    """Samples whose passes report their progress."""

    work: _Work
    feeds: FeedSource

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return self.work.samples(self.feeds)


def _shape(node: Node) -> tuple[int, ...]:
    weight = node.inputs[1]
    assert weight is not None, "packable"
    return weight.type.static_shape


def _weight(node: Node) -> Array:
    weight = node.inputs[1]
    assert weight is not None, "packable"
    return weight.array


def _pack_on_samples(nodes: list[Node], form: GroupFormat, moments: Moments) -> list[PackedWeight]:
    """Pack the weights of the users of one operand, with a second group for its outliers if that is worth its bits."""
    factor = moments.factor()
    plain = [pack_weight(node.name, _weight(node), form, moments, factor) for node in nodes]
    outliers = outlier_inputs(moments, form)
    if outliers is None:
        return plain
    split = [pack_with_outliers(node.name, _weight(node), form, moments, outliers) for node in nodes]
    before, after = (sum(weight.error for weight in weights) for weights in (plain, split))
    return split if after < WORTHWHILE_ERROR * before else plain
