"""Reduction of a model, step by step. A step is kept if the result still fails in the same way.

1. The nodes that the failure names, with their neighbors, are tried alone.
2. Bisection finds an early end, then a late begin.
3. Delta debugging removes nodes: their results become inputs. Then nodes are replaced by an operand, outputs, optional
   operands and attributes are removed, and computed constants are stored.
4. Extents are reduced. Steps 3 and 4 are repeated until nothing changes.
5. Descriptions are removed, weights become random, names generic.

The time limit ends steps 1 to 4; step 5 always runs. The steps are the same for all formats: ``ModelFormat`` has the
operations that depend on the format.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from tpuconvert.progress import Progress
from tpuconvert.reduction.failure import Failure
from tpuconvert.reduction.model_format import M, ModelFormat
from tpuconvert.reduction.search import largest_change, minimize, smallest_end
from tpuconvert.reduction.source_files import SourceFiles
from tpuconvert.reduction.trial import Request, observe
from tpuconvert.reduction.worker import Worker, WorkerDiedError
from tpuconvert.schema.errors import TpuConvertError

MOST_NEIGHBORS = 64
"""Largest distance of nodes from those that the failure names in step 1."""

LEAST_SECONDS = 60.0
"""Time limit of a trial of a model whose first trial was quick."""

SLOWER = 10
"""Time limit of a trial as a multiple of the time of the first one."""


class _OutOfTimeError(Exception):
    """The time limit of the search is reached."""


@dataclass
class Outcome(Generic[M]):
    """State of a reduction.

    Args:
        model: the smallest model so far that fails in the same way.
        files: its files.
        trials: number of trials.
        is_complete: False if the time limit ended the search.
        kept_weights: number of constants that keep their values, because the failure depends on them.
        random_weights: number of constants with random values.
        has_generic_names: True if all names are generic.
        has_port_names: True if inputs and outputs have their own names.

    """

    model: M
    files: SourceFiles
    trials: int = 0
    is_complete: bool = True
    kept_weights: int = 0
    random_weights: int = 0
    has_generic_names: bool = False
    has_port_names: bool = True


class Reducer(Generic[M]):
    """Reduce one model.

    Args:
        form: operations on its format.
        model: a model that fails.
        failure: its failure.
        request: examines this kind of failure only.
        worker: runs the trials.
        seconds: limit of the search.
        trial_seconds: duration of a trial of the whole model.
        write: called with the files of every smaller model that fails.
        progress: receives the steps.
        test: instead of trials in the worker: a function of the files of a model.

    """

    def __init__(
        self,
        form: ModelFormat[M],
        model: M,
        failure: Failure,
        request: Request,
        worker: Worker,
        *,
        seconds: float,
        trial_seconds: float,
        write: Callable[[SourceFiles], None],
        progress: Progress,
        test: Callable[[SourceFiles], bool] | None = None,
    ) -> None:
        self.form = form
        self.outcome = Outcome(model, form.files(model))
        self.request = request
        self._failure, self._worker, self._test = failure, worker, test
        self._end: float | None = time.monotonic() + seconds
        self._trial_seconds = max(LEAST_SECONDS, SLOWER * trial_seconds)
        self._write, self._progress = write, progress
        self._tried: dict[bytes, bool] = {}
        self._has_tried_weights = False

    @property
    def model(self) -> M:
        """The smallest model so far."""
        return self.outcome.model

    # Trials

    def fails(self, files: SourceFiles, request: Request | None = None) -> bool:
        """Return True if a model fails in the same way."""
        digest = b"".join(hashlib.sha256(content).digest() for content in files.content)
        if request is None and digest in self._tried:
            return self._tried[digest]
        if self._end is not None and time.monotonic() > self._end:
            raise _OutOfTimeError
        self.outcome.trials += 1
        self._progress.advance(self.outcome.trials)
        has_failed = self._observe(files, request or self.request)
        if request is None:
            self._tried[digest] = has_failed
        return has_failed

    def _observe(self, files: SourceFiles, request: Request) -> bool:
        if self._test is not None:
            try:
                return self._test(files)
            except Exception:  # as for a condition that cannot be evaluated
                return False
        try:
            failures = self._worker.call(observe, files, request, seconds=self._trial_seconds)
        except WorkerDiedError as ending:
            failures = [ending.failure]
        except TpuConvertError:  # a condition that cannot be evaluated for this model
            return False
        return any(each.is_alike(self._failure) for each in failures)

    def accept(self, candidate: M | None) -> bool:
        """Keep a candidate if it fails in the same way."""
        if candidate is None:
            return False
        try:
            files = self.form.files(candidate)
        except ValueError:  # too large for the format
            return False
        if not self.fails(files):
            return False
        if files != self.outcome.files:
            self.outcome.model, self.outcome.files = candidate, files
            self._write(files)
        return True

    def call(self, function: Callable[..., dict[Any, Any]], *arguments: object) -> dict[Any, Any]:
        """Call a function in the worker; an empty result if it ends the process."""
        try:
            answer: dict[Any, Any] = self._worker.call(function, *arguments, seconds=self._trial_seconds)
        except WorkerDiedError:
            return {}
        return answer

    # Steps

    def run(self) -> Outcome[M]:
        """Reduce the model."""
        try:
            self.form.prepare(self, self.request.options)
            self._try_named_nodes()
            self._bisect()
            while True:
                before = self.outcome.files
                self._progress.stage("remove nodes")
                self._remove_nodes()
                self.form.simplify(self)
                self._try_random_weights()  # before shapes: a constant that is cut to one element is not a weight
                self._progress.stage("reduce shapes")
                self._reduce_shapes()
                if self.outcome.files == before:
                    break
        except _OutOfTimeError:
            self.outcome.is_complete = False
        self._end = None
        self.form.finish(self)
        self._progress.stage("remove names and weights")
        self._replace_weights()
        self._replace_names()
        return self.outcome

    def needed_options(self, names: Iterable[str]) -> Request:
        """Return the request without those options that the failure does not need."""
        request = self.request
        for name in names:
            options = {key: value for key, value in request.options.items() if key != name}
            fewer = replace(request, options=options)
            if self.fails(self.outcome.files, fewer):
                request = fewer
        return request

    def _keep(self, indices: Sequence[int]) -> bool:
        """Try the current model with only some of its nodes."""
        return self.accept(self.form.extract(self.model, indices))

    def _try_named_nodes(self) -> None:
        """Try the nodes that the failure names, with more and more of the nodes that they depend on."""
        links = self.form.links(self.model)
        producers = {name: index for index, node in enumerate(links) for name in node.makes}
        names = {node.name: index for index, node in enumerate(links) if node.name}
        start = [names.get(name, producers.get(name)) for name in self._failure.names]
        level = {index for index in start if index is not None}
        if not level:
            return
        self._progress.stage("try the nodes that are named")
        chosen: set[int] = set()
        for distance in range(MOST_NEIGHBORS):
            chosen |= level
            if (distance & (distance - 1)) == 0 and self._keep(sorted(chosen)):
                return
            level = {producers[name] for index in level for name in links[index].reads if name in producers} - chosen
            if not level:
                self._keep(sorted(chosen))
                return

    def _count(self) -> int:
        return len(self.form.links(self.model))

    def _bisect(self) -> None:
        self._progress.stage("bisect")
        model, count = self.model, self._count()
        if count < 3:
            return
        smallest_end(count, lambda end: self.accept(self.form.extract(model, range(end))))
        rest, count = self.model, self._count()
        smallest_end(count, lambda size: self.accept(self.form.extract(rest, range(count - size, count))))

    def _remove_nodes(self) -> None:
        model = self.model
        minimize(range(self._count()), lambda chosen: self.accept(self.form.extract(model, chosen)))
        if len(self.form.outputs(self.model)) > 1:
            part = self.model
            minimize(self.form.outputs(part), lambda chosen: self.accept(self.form.with_outputs(part, chosen)))
        index = 0
        while index < self._count():
            if not self.accept(self.form.bypass(self.model, index)):
                index += 1

    def _reduce_shapes(self) -> None:
        accept = self.form.guarded(self)
        for extent in self.form.extents(self.model):
            for smaller in sorted({1, 2, 4, 8, extent // 2}):
                if smaller < extent and accept(self.form.with_extent(self.model, extent, smaller)):
                    break
        self.form.find_types(self, self.request.options)

    def _try_random_weights(self) -> None:
        """Replace all weights, once."""
        if not self._has_tried_weights:
            self._has_tried_weights = True
            positions = self.form.weight_positions(self.model)
            self.accept(self.form.with_random_weights(self.model, positions, self.request.seed))

    def _replace_weights(self) -> None:
        model = self.model
        positions = self.form.weight_positions(model)
        changed = largest_change(
            positions, lambda chosen: self.accept(self.form.with_random_weights(model, chosen, self.request.seed))
        )
        self.outcome.random_weights = len(changed)
        self.outcome.kept_weights = len(positions) - len(changed) + self.form.count_other_weights(self.model)

    def _replace_names(self) -> None:
        self.accept(self.form.without_descriptions(self.model))
        if self.accept(self.form.with_generic_names(self.model)):
            self.outcome.has_generic_names, self.outcome.has_port_names = True, False
        elif self.accept(self.form.with_generic_names(self.model, keep_ports=True)):
            self.outcome.has_generic_names = True
