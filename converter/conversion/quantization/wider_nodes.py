"""Choice of the nodes with 16 bits and in float, for a network that misses a target at the outputs with 8 bits.

On a chip with 16 bits, integers come first: nodes in float are slower and differ between processors. They are chosen
where 16 bits leave a target missed and the error is clearly smaller with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from tpuconvert.conversion.model_building import Decision
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.options.quantization import COARSE_NODES, INT16_NODES
from tpuconvert.conversion.quantization.coarse_nodes import ACCURATE, WorstError, choose_coarse_nodes
from tpuconvert.conversion.quantization.decisions import CoarseNodes, Regions, SingleNodes
from tpuconvert.conversion.quantization.int16_nodes import (
    Annotated,
    find_floor,
    find_int16_nodes,
)
from tpuconvert.conversion.quantization.integer_forms import IntegerForms
from tpuconvert.optimizer.quantize import Balancing, Legalized, Precision
from tpuconvert.optimizer.quantize.search.accuracy_floor import Floor
from tpuconvert.optimizer.quantize.search.deciding import forget_annotations
from tpuconvert.optimizer.quantize.search.int16_nodes import Int16Nodes
from tpuconvert.optimizer.quantize.search.output_error import Errors, OutputError
from tpuconvert.progress import Progress
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip

_WORTHWHILE = 0.25
"""Largest ratio, -6 dB, of the error with nodes in float to that with 16 bits, unless the outputs are accurate then.
Besides their cost, 16 bits have a headroom that 8 bits around nodes in float lack, which samples within their ranges do
not show: a YOLOv8 kept 97 instead of 77 of 107 objects with 3 dB more error."""


@dataclass(frozen=True)
class WiderNodes:
    """Nodes with 16 bits and in float.

    Args:
        floats: reasons for all nodes in float, by name.
        int16: nodes with 16 bits; None if there are none.
        balancing: tensors with scales per channel.
        float_decisions: what decided the nodes in float.
        int16_decisions: what decided the nodes with 16 bits.
        floor: the choice of regions with 16 bits; None if no target is missed.
    """

    floats: Mapping[str, str]
    int16: Int16Nodes | None
    balancing: Balancing
    float_decisions: Sequence[Decision] = ()
    int16_decisions: Sequence[Regions | SingleNodes] = ()
    floor: Floor | None = None

    @property
    def is_missed(self) -> bool:
        """Return True if the measured errors miss a target."""
        return self.floor is not None and self.floor.is_missed


class WiderNodesSearch:
    """Search for the nodes.

    Args:
        graph: calibrated float graph.
        options: options of the conversion.
        precision: precision rules. Nodes with a rule keep their form.
        forms: quantizes the graph. It gets the choice.
        feeds: calibration samples that are not held out.
        judged: those on which candidates are compared.
        refine: refines an integer graph; None if there is no refinement.
        progress: receives the stages.
    """

    def __init__(
        self,
        graph: Graph,
        options: Options,
        precision: Precision,
        forms: IntegerForms,
        feeds: FeedSource,
        judged: FeedSource,
        refine: Callable[[Legalized], None] | None,
        progress: Progress,
    ) -> None:
        self._graph = graph
        self._options = options
        self._precision = precision
        self._forms = forms
        self._feeds = feeds
        self._judged = judged
        self._refine = refine
        self._progress = progress

    def choose(self, floats: Mapping[str, str]) -> WiderNodes:
        """Choose the nodes.

        Args:
            floats: reasons for nodes in float by rules or decisions, by name.
        """
        options = self._options
        has_16_bits = options.has_algorithm(INT16_NODES)
        chosen = WiderNodes(floats, None, self._forms.balancing)
        if has_16_bits:
            self._progress.stage("choose 16-bit nodes")
            chosen = self._with_16_bits(chosen)
        if options.has_algorithm(COARSE_NODES) and (chosen.floor is None or chosen.is_missed):
            chosen = self._with_floats(chosen)
        if has_16_bits and chosen.int16 is None:
            chosen = self._with_single_nodes(chosen)
        self._forms.int16, self._forms.balancing = chosen.int16, chosen.balancing
        return chosen

    def _with_floats(self, chosen: WiderNodes) -> WiderNodes:
        """Return a choice with nodes in float if the outputs are clearly better, else the given one."""
        error, errors = self._measure(chosen) if chosen.int16 is not None else (math.inf, None)
        if errors is not None and error <= ACCURATE and not errors.misses_task:
            return chosen
        start = WiderNodes(chosen.floats, None, self._forms.balancing)
        others = self._with_coarse_nodes(start)
        if self._options.chip is Chip.BM1684 and self._options.exact_on == "none":
            return self._with_float_regions(others)
        if others is start:
            return chosen
        if self._options.has_algorithm(INT16_NODES):
            others = self._with_16_bits(others)
        if errors is None:
            return others
        other_error, other_errors = self._measure(others)
        if errors.misses_task:
            return others if other_errors.is_preferred_to(errors) else chosen
        is_worthwhile = other_error <= ACCURATE or other_error < _WORTHWHILE * error
        return others if is_worthwhile and not other_errors.loses(errors) else chosen

    def _measure(self, chosen: WiderNodes) -> tuple[float, Errors]:
        int16 = () if chosen.int16 is None else chosen.int16.names
        legalized = self._forms.legalize(chosen.floats, chosen.balancing.names, int16=int16)
        forget_annotations(self._graph)
        return self._worst_error.loss(legalized.graph)

    @cached_property
    def _worst_error(self) -> WorstError:
        """Errors on the judged samples. The float network runs once for all candidates."""
        chip = self._options.chip
        return WorstError(self._graph, chip, OutputError(self._graph, chip, self._judged))

    def _with_16_bits(self, chosen: WiderNodes) -> WiderNodes:
        """Give 16 bits to the regions that a branch or a task of the outputs needs."""
        largest_share = self._options.int16_share
        floor = find_floor(
            self._graph, largest_share, self._feeds, self._judged, self._precision, *self._functions(chosen)
        )
        if floor is None:
            return chosen
        nodes = Int16Nodes(floor.names, floor.share, floor.before, floor.after) if floor.names else None
        return replace(chosen, int16=nodes, int16_decisions=(Regions(floor, largest_share),), floor=floor)

    def _functions(
        self, chosen: WiderNodes
    ) -> tuple[Callable[[Collection[str]], Annotated], Callable[[Collection[str]], Legalized]]:
        """Functions that annotate and legalize the graph for names of nodes with 16 bits."""
        forms, balanced = self._forms, chosen.balancing.names

        def legalize(names: Collection[str]) -> Legalized:
            return forms.legalize(chosen.floats, balanced, int16=names)

        return partial(forms.annotate, chosen.floats, balanced=balanced), legalize

    def _with_single_nodes(self, chosen: WiderNodes) -> WiderNodes:
        """Give 16 bits to single nodes without which the error at the outputs is clearly larger."""
        largest_share, is_requested = self._options.int16_share, self._options.requests_int16
        nodes = find_int16_nodes(
            self._graph,
            largest_share,
            self._feeds,
            self._precision,
            *self._functions(chosen),
            is_requested=is_requested,
        )
        if nodes is None and not is_requested:
            return chosen
        decisions = (*chosen.int16_decisions, SingleNodes(nodes, largest_share))
        return replace(chosen, int16=nodes, int16_decisions=decisions)

    def _with_coarse_nodes(self, chosen: WiderNodes) -> WiderNodes:
        """Keep the nodes in float for which 8 bits are too coarse."""
        precision = self._precision
        tensors = {*precision.asymmetric, *precision.thresholds, *precision.methods}
        ruled = [value for value in self._graph.values if value.name in tensors]
        owners = (node for value in ruled for node in ([value.producer] if value.producer else value.users))
        fixed = {*precision.integers, *(node.name for node in owners)}
        coarse = choose_coarse_nodes(
            self._graph,
            self._worst_error,
            chosen.floats,
            fixed,
            self._forms.attempts(),
            self._options.float_share,
            self._refine,
        )
        if not coarse.floats:
            return chosen
        balancing = chosen.balancing
        if coarse.balanced is not None:
            balancing = Balancing(tuple(coarse.balanced), coarse.before, coarse.after)
        floats = {**chosen.floats, **coarse.floats}
        return replace(chosen, floats=floats, balancing=balancing, float_decisions=(CoarseNodes(coarse),))

    def _with_float_regions(self, chosen: WiderNodes) -> WiderNodes:
        """Keep the regions in float that a branch or a task of the outputs needs, on a chip without 16 bits."""
        balanced = chosen.balancing.names

        def in_float(names: Collection[str]) -> dict[str, str]:
            return {**chosen.floats, **dict.fromkeys(names, "8 bits are too coarse for a branch of the outputs")}

        largest_share = self._options.float_share
        floor = find_floor(
            self._graph,
            largest_share,
            self._feeds,
            self._judged,
            self._precision,
            lambda names: self._forms.annotate(in_float(names), (), balanced),
            lambda names: self._forms.legalize(in_float(names), balanced),
            is_float=True,
        )
        if floor is None:
            return chosen
        decisions = (*chosen.float_decisions, Regions(floor, largest_share, is_float=True))
        return replace(chosen, floats=in_float(floor.names), float_decisions=decisions, floor=floor)
