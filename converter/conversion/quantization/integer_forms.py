"""Scales and integer operators of a calibrated graph, chosen again whenever an algorithm is tried or left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.options.quantization import INT16_NODES
from tpuconvert.conversion.quantization.coarse_nodes import Attempts
from tpuconvert.conversion.quantization.int16_nodes import Annotated
from tpuconvert.optimizer.quantize import Balancing, Legalized, Precision, Range, balance, legalize, quantize
from tpuconvert.optimizer.quantize.lowering.wide_plan import plan_wide_values
from tpuconvert.optimizer.quantize.scales.annotate import WIDE_HEADROOM, activation_params
from tpuconvert.optimizer.quantize.scales.channel_scales import OneMultiplier, scale_channels, scale_wide_channels
from tpuconvert.optimizer.quantize.scales.narrow_scales import scale_narrow_forms
from tpuconvert.optimizer.quantize.search.coarse_nodes import Coarse, CoarseNodes
from tpuconvert.optimizer.quantize.search.deciding import forget_annotations
from tpuconvert.optimizer.quantize.search.int16_nodes import Int16Nodes
from tpuconvert.optimizer.quantize.weights.two_term_weights import choose_two_term_nodes
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Chip, QuantParams


class _Annotation(NamedTuple):
    """Result of ``IntegerForms.annotate``: it is the same for the same arguments and takes 0.4 s for ResNet50."""

    annotated: Annotated
    balanced: tuple[str, ...]
    scales: Mapping[Value, QuantParams | None]


class IntegerForms:
    """Annotates a calibrated graph with scales, and legalizes it.

    Args:
        graph: calibrated float graph, which gets the scales.
        options: options of the conversion.
        precision: precision rules.
        ranges: ranges of all tensors, by name.

    Attributes:
        balancing: tensors with scales per channel.
        balanced: names of the tensors to which the last call gave scales per channel.
        int16: chosen nodes with 16 bits; None if they were not searched for.
    """

    def __init__(self, graph: Graph, options: Options, precision: Precision, ranges: Mapping[str, Range]) -> None:
        self.balancing = Balancing()
        self.balanced: tuple[str, ...] = ()
        self.int16: Int16Nodes | None = None
        self._graph = graph
        self._options = options
        self._precision = precision
        self._ranges = ranges
        self._annotations: dict[object, _Annotation] = {}

    def annotate(
        self,
        floats: Mapping[str, str],
        int16: Collection[str],
        balanced: Collection[str] | None = None,
        left_out: Collection[str] = (),
    ) -> Annotated:
        """Give scales to the tensors of the graph, which has none.

        Args:
            floats: nodes that stay in float: the reason by the name of the node.
            int16: names of nodes with 16 bits in addition to the nodes of precision rules.
            balanced: names of tensors with scales per channel; the tensors of ``balancing`` if None.
            left_out: names of algorithms that are not applied.
        """
        chosen = self.balancing.names if balanced is None else balanced
        key = tuple(sorted(floats.items())), frozenset(int16), frozenset(chosen), frozenset(left_out)
        cached = self._annotations.get(key)
        if cached is None:
            annotated = self._annotate(floats, int16, chosen, left_out)
            scales = {value: value.quant for value in self._graph.values if not value.is_constant}
            self._annotations[key] = _Annotation(annotated, self.balanced, scales)
            return annotated
        for value, quant in cached.scales.items():
            value.quant = quant
        self.balanced = cached.balanced
        return cached.annotated

    def _annotate(
        self, floats: Mapping[str, str], int16: Collection[str], balanced: Collection[str], left_out: Collection[str]
    ) -> Annotated:
        graph, options, precision = self._graph, self._options, self._precision
        channel_scales, split_weights = (
            options.has_algorithm(name) and name not in left_out for name in ("channel-scales", "two-term-weights")
        )
        shifts_only = options.exact_on == "bm1684"
        wide = {*precision.wide, *int16}
        reasons = quantize(
            graph,
            self._ranges,
            options.chip,
            floats,
            shifts_only=shifts_only,
            channel_scales=channel_scales,
            asymmetric=precision.asymmetric,
            wide=wide,
        )
        two_terms: set[str] = set()
        if options.chip is Chip.BM1684 and not shifts_only:
            if channel_scales:
                scale_wide_channels(graph, self._ranges, set(reasons), WIDE_HEADROOM[options.chip])
            if split_weights:
                two_terms = choose_two_term_nodes(graph, self._ranges, reasons)
            if channel_scales:
                scale_channels(graph, self._ranges, set(reasons), OneMultiplier(two_terms))
        self.balanced = tuple(balance(graph, self._ranges, reasons, options.chip, balanced))
        plan = plan_wide_values(graph, wide, reasons, options.chip)
        narrow = {
            value.name: activation_params(self._ranges[value.name], value.name in precision.asymmetric)
            for value in plan.values
        }
        if channel_scales:
            narrow = scale_narrow_forms(graph, self._ranges, reasons, plan, narrow)
        return Annotated(reasons, two_terms, plan, narrow)

    def attempts(self) -> Attempts:
        """Return the quantizations that the choice of coarse nodes compares.

        Tensors with a precision rule for their range keep one scale.
        """
        free: set[str] = set()
        if self._options.has_algorithm("balancing"):
            ruled = {*self._precision.thresholds, *self._precision.methods}
            free = {value.name for value in self._graph.values} - ruled

        def find(
            floats: Mapping[str, str], balanced: Collection[str] | None, least: float
        ) -> tuple[list[Coarse], Collection[str]]:
            annotated = self.annotate(floats, (), free if balanced is not None else None)
            options = self._options
            search = CoarseNodes(self._graph, self._ranges, annotated.reasons, options.chip, annotated.two_terms)
            coarse = search.find(least)
            forget_annotations(self._graph)
            return coarse, self.balanced

        def legalize(floats: Mapping[str, str], balanced: Collection[str] | None) -> Legalized:
            return self.legalize(floats, balanced)

        return Attempts(find, legalize)

    def legalize(
        self,
        floats: Mapping[str, str],
        balanced: Collection[str] | None = None,
        left_out: Collection[str] = (),
        int16: Collection[str] | None = None,
    ) -> Legalized:
        """Annotate the graph and return the integer graph. The arguments are the same as for ``annotate``.

        If ``int16`` is None, the chosen nodes have 16 bits, unless that algorithm is left out.
        """
        if int16 is None:
            int16 = () if self.int16 is None or INT16_NODES in left_out else self.int16.names
        annotated = self.annotate(floats, int16, balanced, left_out)
        return legalize(
            self._graph,
            self._options.chip,
            annotated.reasons,
            shifts_only=self._options.exact_on == "bm1684",
            per_tensor=self._precision.per_tensor,
            two_terms=annotated.two_terms,
            float16=self._precision.float16,
            plan=annotated.plan,
            narrow=annotated.narrow,
        )
