"""Calibration: run a float graph over samples and collect the range of every activation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext

from tpuconvert.optimizer.precision_rules import AUTO, METHODS, split_method
from tpuconvert.optimizer.quantize.calibration.collecting import Collecting
from tpuconvert.optimizer.quantize.calibration.feature_maps import names_of_dense_feature_maps
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.ranges.calibrators import Collector, MergeableCollector, collector
from tpuconvert.optimizer.quantize.ranges.ranges import Range, RangeCollector, samples_in
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array


def calibrate(
    graph: Graph,
    batches: Iterable[Mapping[str, Array]],
    method: str = AUTO,
    progress: Callable[[int], None] | None = None,
    methods: Mapping[str, str] | None = None,
    means: FirstMeans | None = None,
    auto: AutoTensors | None = None,
) -> dict[str, Range]:
    """Ranges of all FLOAT32 inputs and results, by value name.

    With the methods of tpuconvert they depend on the set of samples only, not on their order or batches.

    Args:
        graph: float graph; values keep the names that the result refers to.
        batches: feeds for ``Session.run``, used one at a time and then released.
        method: ``mse``, ``kl``, ``minmax``, ``percentile:99.9``, or a method of a plugin. ``auto`` is ``minmax`` for
            the feature maps of networks that predict at every position (``feature_maps.py``), and ``mse`` for others.
        progress: called with the number of batches done.
        methods: other methods of some values, by value name.
        means: receives the means on the first samples.
        auto: receives the collectors of the tensors with ``auto``, for a search of the methods.

    Raises:
        UsageError: when there is no batch, or a batch does not fit the graph's inputs.
    """
    keeps = () if auto is None else auto.names
    floats = None if means is None else means.floats
    collectors = collect(graph, batches, method, progress, methods, means, keeps=keeps, floats=floats)
    if auto is not None:
        auto.record(collectors)
    return {name: item.result() for name, item in collectors.items()}


class AutoTensors:
    """Tensors whose method is ``auto`` and can be chosen by a search, and their collectors after a calibration.

    Args:
        graph: float graph.
        method: see ``calibrate``.
        methods: see ``calibrate``.

    Attributes:
        names: names of the tensors.
        collectors: collectors by name of the tensor.
    """

    def __init__(self, graph: Graph, method: str, methods: Mapping[str, str]) -> None:
        floats = [value for value in graph.values if value.dtype.is_float and not value.is_constant]
        self.names = {value.name for value in floats if methods.get(value.name, method) == AUTO}
        self.names -= {value.name for value in floats if value.name not in methods and _is_clamped(graph, value)}
        self.collectors: dict[str, RangeCollector] = {}

    def record(self, collectors: Mapping[str, Collector]) -> None:
        """Take the collectors of the tensors."""
        for name, item in collectors.items():
            if name in self.names and isinstance(item, RangeCollector):
                self.collectors[name] = item


def choose_methods(graph: Graph, method: str, methods: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """Return a function from the name of a value to the method of its collector; ``auto`` becomes one of the others.

    A value that only a clamp uses, such as a ReLU, gets the scale of the result. Its threshold is not needed, and
    ``minmax`` is the fastest method.

    Args:
        graph: float graph.
        method: method of the values that are not in ``methods``.
        methods: other methods of some values, by value name.
    """
    methods = methods or {}
    dense = names_of_dense_feature_maps(graph) if AUTO in (method, *methods.values()) else set()
    is_builtin = split_method(method)[0] in METHODS
    clamped = {value.name for value in graph.values if _is_clamped(graph, value)} if is_builtin else set()

    def method_of(name: str) -> str:
        chosen = methods.get(name, "minmax" if name in clamped else method)
        if chosen != AUTO:
            return chosen
        return "minmax" if name in dense else "mse"

    return method_of


def _is_clamped(graph: Graph, value: Value) -> bool:
    """Return True if the only user of a computed value is a clamp."""
    is_computed = value.producer is not None and graph.is_sole_use(value)
    return is_computed and value.users[0].op.clamp_range() is not None


def collect(
    graph: Graph,
    batches: Iterable[Mapping[str, Array]],
    method: str = AUTO,
    progress: Callable[[int], None] | None = None,
    methods: Mapping[str, str] | None = None,
    means: FirstMeans | None = None,
    session: Session | None = None,
    keeps: Collection[str] = (),
    floats: RecordedFloats | None = None,
    start: int = 0,
) -> dict[str, Collector]:
    """Collectors of all FLOAT32 inputs and results, by value name. Arguments and errors as in ``calibrate``.

    Several processes can collect a part of the samples each; ``merge_collectors`` then merges their collectors.
    ``session`` is one of the graph, if there is one already: its plan takes as long as several samples. ``keeps`` has
    the names of the tensors whose histograms are needed for other methods, too. ``floats`` records other tensors;
    ``start`` is the number of the first batch there.
    """
    observer = Collecting(choose_methods(graph, method, methods), keeps, floats, start)
    collectors = observer.collectors
    done = 0
    with Session(graph, observed=True) if session is None else nullcontext(session) as running:
        for feeds in batches:
            if means is not None:
                means.before(feeds, collectors)
            observer.samples = samples_in(feeds)
            outputs = running.run(feeds, observe=observer, borrow=True)
            if floats is not None:
                floats.add_outputs(observer.feed, outputs)
            done += 1
            observer.end_feed()
            if progress is not None:
                progress(done)
    observer.release()
    if done == 0:
        raise UsageError("there are no calibration samples", hint="give at least one; 50 to 200 are usual")
    if means is not None:
        means.record(collectors)
    return collectors


def merge_collectors(parts: Iterable[Mapping[str, Collector]]) -> dict[str, Collector]:
    """Merge collectors of parts of the samples. Neither the partition nor its order changes the ranges.

    Raises:
        UsageError: the method belongs to a plugin whose collectors cannot be merged.
    """
    merged: dict[str, Collector] = {}
    for part in parts:
        merge_into(merged, part)
    return merged


def merge_into(merged: dict[str, Collector], part: Mapping[str, Collector]) -> None:
    """Add the collectors of a part of the samples, which are not changed.

    Raises:
        UsageError: as for ``merge_collectors``.
    """
    for name, part_collector in part.items():
        merged_collector = merged.get(name)
        if merged_collector is None:
            merged[name] = copy.deepcopy(part_collector)
        elif isinstance(merged_collector, MergeableCollector):
            merged_collector.merge(part_collector)
        else:
            raise UsageError(f"collectors of {type(merged_collector).__name__} cannot be merged", hint=_USE_ONE_PROCESS)


def check_mergeable(method: str, methods: Mapping[str, str]) -> None:
    """Check that collectors of parts of the samples can be merged. The arguments are the same as for ``calibrate``.

    Raises:
        UsageError: a method belongs to a plugin whose collectors cannot be merged.
    """
    for name in dict.fromkeys((method, *methods.values())):
        if name != AUTO and not isinstance(collector(name), MergeableCollector):
            raise UsageError(
                f"calibration method '{name}': its collectors have no method 'merge', so that samples cannot be split",
                hint=_USE_ONE_PROCESS,
            )


_USE_ONE_PROCESS = f"leave --workers and --scheduler out, or use a method of tpuconvert: {', '.join(METHODS)}"
