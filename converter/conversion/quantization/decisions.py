"""Measurements and decisions of a quantization, as data. ``notes`` puts them into words when the model is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuconvert.conversion.options.quantization import COARSE_NODES, INT16_NODES
from tpuconvert.model.integer_share import share_notes
from tpuconvert.model.notes import NAMED
from tpuconvert.optimizer.quantize.search.accuracy_floor import TARGET, decibels
from tpuconvert.optimizer.quantize.search.int16_nodes import FEWEST
from tpuconvert.optimizer.quantize.search.task_metrics.score import TARGET as TASK_TARGET
from tpuconvert.schema.errors import without_operator
from tpuconvert.schema.file.file_model import Note
from tpuconvert.text.text_format import several, shorten

if TYPE_CHECKING:
    from tpuconvert.conversion.quantization.coarse_nodes import CoarseChoice
    from tpuconvert.conversion.quantization.gates import Gated
    from tpuconvert.optimizer.quantize import Balancing, Range
    from tpuconvert.optimizer.quantize.legalize import FloatNode
    from tpuconvert.optimizer.quantize.search.accuracy_floor import Floor
    from tpuconvert.optimizer.quantize.search.int16_nodes import Int16Nodes
    from tpuconvert.optimizer.quantize.search.method_search import MethodChoice
    from tpuconvert.samples.finding import Finding
    from tpuconvert.schema.graph.graph import Graph

FEW_SAMPLES = 10
"""Add a note if ranges come from fewer samples than this."""


@dataclass(frozen=True)
class SampleFindings:
    """Samples that do not fit what the network expects."""

    findings: Sequence[Finding]

    def notes(self) -> Sequence[Note]:
        """Return one warning per finding."""
        return [Note("preprocessing", "", str(finding)) for finding in self.findings]


@dataclass(frozen=True)
class FewSamples:
    """Ranges from fewer samples than are usual, which cannot show the error on other samples.

    Args:
        count: number of samples.
        outputs: names of the outputs.
    """

    count: int
    outputs: Sequence[str]

    def notes(self) -> Sequence[Note]:
        """Return one warning, which names the outputs, or nothing if there are enough samples."""
        if self.count >= FEW_SAMPLES:
            return []
        names = ", ".join(f"'{name}'" for name in self.outputs)
        text = f"ranges come from {several(self.count, 'sample')} only, which do not show the accuracy of {names} on"
        return [Note("calibration", "", f"{text} other samples; 50 to 200 are usual")]


@dataclass(frozen=True)
class ConstantInputs:
    """Ranges of the inputs. They are meaningless for inputs that are constant in all samples."""

    ranges: Mapping[str, Range]

    def notes(self) -> Sequence[Note]:
        """Return one warning per constant input."""
        text = "input '{}' is {:g} everywhere in all samples: are they the right ones?"
        constant = ((name, item.low) for name, item in self.ranges.items() if item.low == item.high)
        return [Note("calibration", "", text.format(name, value)) for name, value in constant]


@dataclass(frozen=True)
class ChosenMethods:
    """Calibration methods of the tensors."""

    choice: MethodChoice

    def notes(self) -> Sequence[Note]:
        """Return the number of tensors per method, and the error."""
        return [Note("calibration", "", self.choice.describe())]


@dataclass(frozen=True)
class BalancedTensors:
    """Tensors with scales per channel."""

    balancing: Balancing

    def notes(self) -> Sequence[Note]:
        """Return the tensors, and the error without and with them."""
        names = self.balancing.names
        before, after = self.balancing.before, self.balancing.after
        text = f"{several(len(names), 'tensor')} ({_first(names)}) with one scale and zero point per channel; "
        text += f"error at the outputs {before:.2%} without, {after:.2%} with them, before refinement"
        return [Note("balancing", "", text)]


@dataclass(frozen=True)
class SingleNodes:
    """Single nodes with 16 bits.

    Args:
        chosen: the nodes; None if none were chosen.
        largest_share: largest share of the multiply-accumulates.
        has_gain: False if the finished network has no smaller error with them.
    """

    chosen: Int16Nodes | None
    largest_share: float
    has_gain: bool = True

    def notes(self) -> Sequence[Note]:
        """Return the nodes, their cost and their effect."""
        if not self.has_gain:
            return []
        if self.chosen is None:
            reason = f"the error at the outputs does not decrease clearly, or there are fewer than {FEWEST} samples"
            text = f"none within {self.largest_share:.1%} of the multiply-accumulates: {reason}"
            return [Note(INT16_NODES, "", text)]
        before, after = self.chosen.before.sqnr, self.chosen.after.sqnr
        text = f"error of the activations at the outputs {before:.1f} dB -> {after:.1f} dB"
        return [Note(INT16_NODES, "", f"{_nodes(self.chosen.names, 'with 16 bits', self.chosen.share)}; {text}")]


@dataclass(frozen=True)
class Regions:
    """Regions with 16 bits, or in float, that a branch or a task of the outputs needs.

    Args:
        floor: the regions.
        largest_share: largest share of the multiply-accumulates.
        is_float: whether the nodes are in float.
        has_gain: False if the finished network has no smaller error with them.
    """

    floor: Floor
    largest_share: float
    is_float: bool = False
    has_gain: bool = True

    def notes(self) -> Sequence[Note]:
        """Return the regions, and warnings about branches and tasks that need more."""
        return [*(self._chosen() if self.has_gain and self.floor.names else ()), *self._missed_targets()]

    @property
    def _form(self) -> str:
        return "in float" if self.is_float else "with 16 bits"

    def _chosen(self) -> list[Note]:
        floor = self.floor
        worst = min(floor.levels, key=lambda level: level.before)
        text = _nodes(floor.names, self._form, floor.share)
        text += f"; '{shorten(worst.branch.tensor)}': {worst.before:.1f} dB -> {worst.after:.1f} dB of its variance"
        for before, after in floor.tasks:
            text += f"; {before.text} -> {after.text.split(': ', 1)[1]}"
        if not floor.is_exportable:
            text += "; TPULang has no form of some: an export to it needs --without int16-nodes"
        return [Note(COARSE_NODES if self.is_float else INT16_NODES, "", text)]

    def _missed_targets(self) -> list[Note]:
        floor, remedy = self.floor, self._remedy()
        missed_tasks = [score for _, score in floor.tasks if score.is_missed]
        notes = [
            Note(
                "accuracy",
                score.outputs[0],
                f"output '{shorten(score.outputs[0])}': {score.text}, {TASK_TARGET:.0%} are the target{remedy}",
            )
            for score in missed_tasks
        ]
        served = {output for score in missed_tasks for output in score.outputs}
        others = [level for level in floor.missed if level.output not in served]
        for level in others[:1]:
            more = f" (and {len(others) - 1} more)" if others[1:] else ""
            text = f"the error of '{shorten(level.branch.tensor)}'{more} at the outputs is only {level.after:.1f} dB"
            text += f" below its variance, {decibels(TARGET):.0f} dB are the target{remedy}"
            notes.append(Note("accuracy", "", text))
        return notes

    def _remedy(self) -> str:
        text = f", {self._form} at most {self.largest_share:.1%} of the multiply-accumulates: "
        if self.is_float:
            return text + "rules with --keep-float keep further nodes in float"
        if self.floor.enough is None:
            return text + "16 bits for all nodes are not enough; float is exact: --keep-float '*'"
        return text + f"--max-int16-share {self.floor.enough:g} meets it"


@dataclass(frozen=True)
class CoarseNodes:
    """Nodes in float for which 8 bits are too coarse."""

    choice: CoarseChoice

    def notes(self) -> Sequence[Note]:
        """Return their number and their effect."""
        return [Note(COARSE_NODES, "", self.choice.describe())]


@dataclass(frozen=True)
class Refinement:
    """Algorithms of the refinement that reduce the error."""

    gated: Gated

    def notes(self) -> Sequence[Note]:
        """Return the algorithms and the errors without and with them."""
        return [Note("refinement", "", self.gated.describe())]


@dataclass(frozen=True)
class RuleEffects:
    """Number of nodes and tensors that each precision rule selects and changes, one sentence per rule."""

    sentences: Sequence[str]

    def notes(self) -> Sequence[Note]:
        """Return one note per rule."""
        return [Note("precision", "", sentence) for sentence in self.sentences]


@dataclass(frozen=True)
class FloatNodes:
    """Nodes that stay in float, with their reasons."""

    nodes: Sequence[FloatNode]

    def notes(self) -> Sequence[Note]:
        """Return one note per node."""
        texts = ((item.node, f"{item.op}: {without_operator(item.reason, item.op)}") for item in self.nodes)
        return [Note("float", node, text) for node, text in texts]


@dataclass(frozen=True)
class IntegerShare:
    """The graph after quantization, whose INT8 share may be small, and its nodes in float."""

    graph: Graph
    in_float: FloatNodes

    def notes(self) -> Sequence[Note]:
        """Return nothing, or the share with the reasons for the nodes in float."""
        return share_notes(self.graph, self.in_float.notes())


def _nodes(names: Sequence[str], form: str, share: float) -> str:
    return f"{several(len(names), 'node')} ({_first(names)}) {form}, {share:.1%} of the multiply-accumulates"


def _first(names: Sequence[str]) -> str:
    """Return the first names, quoted, with an ellipsis if there are more."""
    return ", ".join(f"'{shorten(name)}'" for name in names[:NAMED]) + (" ..." if len(names) > NAMED else "")
