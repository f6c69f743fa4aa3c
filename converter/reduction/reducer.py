"""Reduction of an ONNX model, step by step. A step is kept if the result still fails in the same way.

1. The nodes that the failure names, with their neighbors, are tried alone.
2. Bisection finds an early end, then a late begin.
3. Delta debugging removes nodes: their results become inputs. Then nodes are replaced by an operand, outputs, optional
   operands and attributes are removed, and computed constants are stored.
4. Extents are reduced. Steps 3 and 4 are repeated until nothing changes.
5. Descriptions are removed, weights become random, names generic.

The time limit ends steps 1 to 4; step 5 always runs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from google.protobuf.message import EncodeError

from tpuconvert.frontends.onnx.messages import ModelProto
from tpuconvert.frontends.onnx.reader import reads_of
from tpuconvert.progress import Progress
from tpuconvert.reduction.constants import (
    count_other_weights,
    extents_of,
    weight_positions,
    with_constants,
    with_extent,
    with_random_weights,
)
from tpuconvert.reduction.failure import Failure
from tpuconvert.reduction.names import with_generic_names, without_descriptions
from tpuconvert.reduction.onnx_parts import (
    TensorInfo,
    bypass,
    extract,
    keep_used_constants,
    with_outputs,
    with_stored_constants,
    without_attribute,
    without_input,
)
from tpuconvert.reduction.search import largest_change, minimize, smallest_end
from tpuconvert.reduction.tensor_types import find_constants, import_types, infer_types, validity
from tpuconvert.reduction.trial import Request, observe
from tpuconvert.reduction.worker import Worker, WorkerDiedError
from tpuconvert.schema.errors import TpuConvertError

T = TypeVar("T")

MOST_NEIGHBORS = 64
"""Largest distance of nodes from those that the failure names in step 1."""

LEAST_SECONDS = 60.0
"""Time limit of a trial of a model whose first trial was quick."""

SLOWER = 10
"""Time limit of a trial as a multiple of the time of the first one."""


PLAUSIBLE_EXTENTS = (64, 224, 16, 1)
"""Numbers for symbolic extents, in the order in which they are tried. The first axis, the batch, is 1."""


class _OutOfTimeError(Exception):
    """The time limit of the search is reached."""


@dataclass
class Outcome:
    """State of a reduction.

    Args:
        model: the smallest model so far that fails in the same way.
        trials: number of trials.
        is_complete: False if the time limit ended the search.
        kept_weights: number of constants that keep their values, because the failure depends on them.
        random_weights: number of constants with random values.
        has_generic_names: True if all names are generic.
        has_port_names: True if inputs and outputs have their own names.

    """

    model: ModelProto
    trials: int = 0
    is_complete: bool = True
    kept_weights: int = 0
    random_weights: int = 0
    has_generic_names: bool = False
    has_port_names: bool = True


class Reducer:
    """Reduce one model.

    Args:
        model: a model without external data that fails.
        failure: its failure.
        request: examines this kind of failure only.
        worker: runs the trials.
        seconds: limit of the search.
        trial_seconds: duration of a trial of the whole model.
        write: called with every smaller model that fails.
        progress: receives the steps.
        test: instead of trials in the worker: a function of the bytes of a model.

    """

    def __init__(
        self,
        model: ModelProto,
        failure: Failure,
        request: Request,
        worker: Worker,
        *,
        seconds: float,
        trial_seconds: float,
        write: Callable[[ModelProto], None],
        progress: Progress,
        test: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.outcome = Outcome(model)
        self.request = request
        self._failure, self._worker, self._test = failure, worker, test
        self._end: float | None = time.monotonic() + seconds
        self._trial_seconds = max(LEAST_SECONDS, SLOWER * trial_seconds)
        self._write, self._progress = write, progress
        self._tried: dict[bytes, bool] = {}
        self._has_tried_weights = False
        self._infos: Mapping[str, TensorInfo] = {}

    # Trials

    def fails(self, content: bytes, request: Request | None = None) -> bool:
        """Return True if a model fails in the same way."""
        digest = hashlib.sha256(content).digest()
        if request is None and digest in self._tried:
            return self._tried[digest]
        if self._end is not None and time.monotonic() > self._end:
            raise _OutOfTimeError
        self.outcome.trials += 1
        self._progress.advance(self.outcome.trials)
        found = self._observe(content, request or self.request)
        if request is None:
            self._tried[digest] = found
        return found

    def _observe(self, content: bytes, request: Request) -> bool:
        if self._test is not None:
            try:
                return self._test(content)
            except Exception:  # as for a condition that cannot be evaluated
                return False
        try:
            found = self._worker.call(observe, content, request, seconds=self._trial_seconds)
        except WorkerDiedError as ending:
            found = [ending.failure]
        except TpuConvertError:  # a condition that cannot be evaluated for this model
            return False
        return any(each.is_alike(self._failure) for each in found)

    def accept(self, candidate: ModelProto | None) -> bool:
        """Keep a candidate if it fails in the same way."""
        if candidate is None:
            return False
        try:
            content = candidate.SerializeToString()
        except (EncodeError, ValueError):  # above 2 GiB
            return False
        if not self.fails(content):
            return False
        if content != self.outcome.model.SerializeToString():
            self.outcome.model = candidate
            self._write(candidate)
        return True

    # Steps

    def run(self) -> Outcome:
        """Reduce the model."""
        try:
            self._fix_extents()
            self._find_types()
            self._store_constants()
            self._try_named_nodes()
            self._bisect()
            while True:
                before = self.outcome.model.SerializeToString()
                self._progress.stage("remove nodes")
                self._remove_nodes()
                self._simplify()
                self._try_random_weights()  # before shapes: a constant that is cut to one element is no weight
                self._progress.stage("reduce shapes")
                self._reduce_shapes()
                if self.outcome.model.SerializeToString() == before:
                    break
        except _OutOfTimeError:
            self.outcome.is_complete = False
        self._end = None
        self._state_output_types()
        self._progress.stage("remove names and weights")
        self._replace_weights()
        self._replace_names()
        return self.outcome

    def needed_options(self, names: Iterable[str]) -> Request:
        """Return the request without those options that the failure does not need."""
        request = self.request
        content = self.outcome.model.SerializeToString()
        for name in names:
            options = {key: value for key, value in request.options.items() if key != name}
            fewer = replace(request, options=options)
            if self.fails(content, fewer):
                request = fewer
        return request

    def _nodes(self) -> int:
        return len(self.outcome.model.graph.node)

    def _call(self, function: Callable[..., dict[str, T]], *arguments: object) -> dict[str, T]:
        """Call a function of ``tensor_types`` in the worker; an empty result if it ends the process."""
        try:
            found: dict[str, T] = self._worker.call(function, *arguments, seconds=self._trial_seconds)
        except WorkerDiedError:
            return {}
        return found

    def _find_types(self) -> None:
        content = self.outcome.model.SerializeToString()
        imported = self._call(import_types, content, self.request.options)
        inferred = self._call(infer_types, content)
        self._infos = {**imported, **inferred}

    def _fix_extents(self) -> None:
        """Replace symbolic extents of inputs by numbers, so that the shapes of all tensors are known."""
        named = {
            dim.dim_param
            for info in self.outcome.model.graph.input
            for dim in info.type.tensor_type.shape.dim
            if not dim.HasField("dim_value")
        }
        if not named:
            return
        accept = self._accept_valid()
        for extent in PLAUSIBLE_EXTENTS:
            candidate = ModelProto()
            candidate.CopyFrom(self.outcome.model)
            for info in candidate.graph.input:
                for position, dim in enumerate(info.type.tensor_type.shape.dim):
                    if not dim.HasField("dim_value"):
                        dim.dim_value = extent if position else 1
            if accept(candidate):
                return

    def _keep(self, indices: Sequence[int]) -> bool:
        """Try the current model with only some of its nodes."""
        return self.accept(extract(self.outcome.model, indices, self._infos))

    def _try_named_nodes(self) -> None:
        """Try the nodes that the failure names, with more and more of the nodes that they depend on."""
        graph = self.outcome.model.graph
        made = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
        names = {node.name: index for index, node in enumerate(graph.node) if node.name}
        start = [names.get(name, made.get(name)) for name in self._failure.names]
        level = {index for index in start if index is not None}
        if not level:
            return
        self._progress.stage("try the nodes that are named")
        chosen: set[int] = set()
        for distance in range(MOST_NEIGHBORS):
            chosen |= level
            if (distance & (distance - 1)) == 0 and self._keep(sorted(chosen)):
                return
            level = {made[name] for index in level for name in reads_of(graph.node[index]) if name in made} - chosen
            if not level:
                self._keep(sorted(chosen))
                return

    def _bisect(self) -> None:
        self._progress.stage("bisect")
        whole, count = self.outcome.model, self._nodes()
        if count < 3:
            return
        smallest_end(count, lambda end: self.accept(extract(whole, range(end), self._infos)))
        rest, count = self.outcome.model, self._nodes()
        smallest_end(count, lambda size: self.accept(extract(rest, range(count - size, count), self._infos)))

    def _remove_nodes(self) -> None:
        whole = self.outcome.model
        minimize(range(self._nodes()), lambda kept: self.accept(extract(whole, kept, self._infos)))
        if len(self.outcome.model.graph.output) > 1:
            whole = self.outcome.model
            names = [info.name for info in whole.graph.output]
            minimize(names, lambda kept: self.accept(with_outputs(whole, kept, self._infos)))
        index = 0
        while index < self._nodes():
            if not self.accept(bypass(self.outcome.model, index, self._infos)):
                index += 1

    def _simplify(self) -> None:
        """Store computed constants, and remove optional operands and attributes.

        A model that is valid stays valid: without some attribute it could fail in the same way for another reason.
        """
        self._store_constants()
        accept = self._accept_valid()
        for index in reversed(range(self._nodes())):
            for position in reversed(range(1, len(self.outcome.model.graph.node[index].input))):
                if self.outcome.model.graph.node[index].input[position]:
                    accept(without_input(self.outcome.model, index, position))
        for index in range(self._nodes()):
            for name in [attribute.name for attribute in self.outcome.model.graph.node[index].attribute]:
                accept(without_attribute(self.outcome.model, index, name))
        bare = ModelProto()
        bare.CopyFrom(self.outcome.model)
        del bare.graph.value_info[:]
        self.accept(bare)

    def _state_output_types(self) -> None:
        """State the types of outputs, which steps have removed, so that other programs accept the model."""
        stated = ModelProto()
        stated.CopyFrom(self.outcome.model)
        for info in stated.graph.output:
            if TensorInfo.from_proto(info) is None and info.name in self._infos:
                info.CopyFrom(self._infos[info.name].to_proto(info.name))
        self.accept(stated)

    def _validity(self, model: ModelProto) -> int:
        try:
            return int(self._worker.call(validity, model.SerializeToString(), seconds=self._trial_seconds))
        except (WorkerDiedError, EncodeError, ValueError):
            return 0

    def _store_constants(self) -> None:
        self.accept(with_stored_constants(self.outcome.model))
        model = self.outcome.model
        outputs = {info.name for info in model.graph.output}
        found = self._call(find_constants, model.SerializeToString(), self._infos)
        found = {name: item for name, item in found.items() if name not in outputs}

        def store(names: list[str]) -> bool:
            codes = {name: found[name][0] for name in names}
            changed = with_constants(model, {name: found[name][1] for name in names}, codes)
            kept = [node for node in changed.graph.node if not set(filter(None, node.output)) <= set(names)]
            del changed.graph.node[:]
            changed.graph.node.extend(kept)
            made = {name for node in kept for name in node.output}
            unused = [tensor for tensor in changed.graph.initializer if tensor.name in made]
            for tensor in unused:
                changed.graph.initializer.remove(tensor)
            part = with_outputs(changed, [info.name for info in model.graph.output], self._infos)
            if part is not None:
                keep_used_constants(part.graph)
            return self.accept(part)

        largest_change(list(found), store)

    def _accept_valid(self) -> Callable[[ModelProto | None], bool]:
        """Return a function that accepts candidates which are as valid as the current model."""
        level = self._validity(self.outcome.model)
        return lambda candidate: (
            candidate is not None and (not level or self._validity(candidate) >= level) and self.accept(candidate)
        )

    def _reduce_shapes(self) -> None:
        accept = self._accept_valid()
        for extent in extents_of(self.outcome.model):
            for smaller in sorted({1, 2, 4, 8, extent // 2}):
                if smaller < extent and accept(with_extent(self.outcome.model, extent, smaller)):
                    break
        self._find_types()

    def _try_random_weights(self) -> None:
        """Replace all weights, once."""
        if not self._has_tried_weights:
            self._has_tried_weights = True
            model = self.outcome.model
            self.accept(with_random_weights(model, weight_positions(model), self.request.seed))

    def _replace_weights(self) -> None:
        positions = weight_positions(self.outcome.model)
        model = self.outcome.model
        changed = largest_change(
            positions, lambda chosen: self.accept(with_random_weights(model, chosen, self.request.seed))
        )
        self.outcome.random_weights = len(changed)
        self.outcome.kept_weights = len(positions) - len(changed) + count_other_weights(self.outcome.model)

    def _replace_names(self) -> None:
        self.accept(without_descriptions(self.outcome.model))
        if self.accept(with_generic_names(self.outcome.model)):
            self.outcome.has_generic_names, self.outcome.has_port_names = True, False
        elif self.accept(with_generic_names(self.outcome.model, keep_ports=True)):
            self.outcome.has_generic_names = True
