"""Compare two models: match their nodes, and list everything that differs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.conversion.options.options import takes_groups
from tpuconvert.diff.change import CATEGORIES, Change
from tpuconvert.diff.matching import match_graphs
from tpuconvert.diff.model_changes import interface_changes, note_changes, setting_changes
from tpuconvert.diff.node_changes import PairChanges, output_constants
from tpuconvert.diff.node_pairs import Matching
from tpuconvert.diff.outputs import compare_outputs
from tpuconvert.diff.record import Measure
from tpuconvert.diff.result import ModelDifference
from tpuconvert.diff.side import Compared, Side, load_sides
from tpuconvert.diff.unmatched_nodes import explain_unmatched
from tpuconvert.diff.wiring import find_rewired
from tpuconvert.model.description import Description
from tpuconvert.option_declaration import default_value
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.report.report_description import describe_for_report, describe_source_for_report
from tpuconvert.schema.graph import cost

if TYPE_CHECKING:
    from tpuconvert.conversion.options.source import SourceOptions
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.samples.preprocess import Preprocess
    from tpuconvert.schema.types import Chip

SAMPLES = 4
"""Default number of samples on which the outputs are compared."""


@takes_groups
def diff(
    first: Compared,
    second: Compared,
    first_weights: str | os.PathLike[str] | None = None,
    second_weights: str | os.PathLike[str] | None = None,
    *,
    data: CalibrationSource | None = None,
    samples: int = SAMPLES,
    as_read: bool = False,
    chip: str | Chip | None = None,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    source_options: SourceOptions | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> ModelDifference:
    """Compare two models: nodes matched by structure, constants, scales, settings, sizes, cost and outputs.

    A source is converted in float before it is compared, with the options of the other model's recipe if there is one.

    Args:
        first: a ``.tpum`` file, an ONNX or TFLite file, a Caffe prototxt, a model, a graph, or an
            ``onnx.ModelProto``.
        second: the model to compare it with.
        first_weights: the caffemodel of ``first``.
        second_weights: the caffemodel of ``second``.
        data: samples on which the outputs are compared: a folder of images, an ``.npz`` or ``.npy`` file, or arrays.
            By default random numbers from a fixed seed.
        samples: largest number of samples; 0 compares no outputs.
        as_read: compare sources as they are read, without the optimizer.
        chip: target chip of sources. Default: the chip of the other model, or ``bm1686`` for two sources.
        preprocess: preprocessing of sources, as for ``convert``. Default: the preprocessing of the other model.
        source_options: options that decide how sources are read. Fields that differ from their defaults win over the
            recipe of the other model.
        plugins: Python files with custom operators and converters.
        progress: receives the stages.

    Returns:
        The differences. ``print`` shows the most severe ones; ``is_equal`` is True if there are none.

    Raises:
        TpuConvertError: a model cannot be read.

    Example:
        >>> pixels = "color=GRAY,scale=0.0625"
        >>> floats = tc.convert("digits.onnx", preprocess=pixels)
        >>> tc.diff("digits.onnx", floats).is_equal
        True
        >>> integers = tc.convert("digits.onnx", quantize="int8", calibration="calibration.npz", preprocess=pixels)
        >>> "precision" in tc.diff(floats, integers).counts()
        True

    """
    load_plugins(plugins)
    options = {name: value for name, value in (("chip", chip), ("preprocess", preprocess)) if value is not None}
    for item in () if source_options is None else fields(source_options):
        if (value := getattr(source_options, item.name)) != default_value(item):
            options[item.name] = value
    weights = first_weights, second_weights
    return compare(first, second, weights, options, data, samples, as_read=as_read, progress=progress or SILENT)


def compare(
    first: Compared,
    second: Compared,
    weights: tuple[str | os.PathLike[str] | None, str | os.PathLike[str] | None],
    options: Mapping[str, Any],
    data: CalibrationSource | None,
    samples: int,
    *,
    as_read: bool,
    progress: Progress,
) -> ModelDifference:
    """Compare two models as :func:`diff` does. The ``options`` for sources win over a recipe, also defaults."""
    progress.stage("load")
    before, after = load_sides(first, second, weights, options, as_read=as_read)
    progress.stage("match the nodes")
    matching = match_graphs(before.graph, after.graph)
    changes = find_changes(before, after, matching)
    outputs = compare_outputs(before, after, matching.inputs, matching.outputs, data, samples, progress)
    descriptions = _describe(before), _describe(after)
    return ModelDifference(
        before.name,
        after.name,
        len(matching.pairs),
        (len(matching.first.nodes), len(matching.second.nodes)),
        tuple(_sort(changes)),
        {measure.name: measure for measure in _measures(before, after, descriptions)},
        outputs,
        descriptions,
    )


def find_changes(before: Side, after: Side, matching: Matching) -> list[Change]:
    """Return all differences of two models with matched nodes, in no particular order."""
    changes, described = explain_unmatched(matching)
    pairs = PairChanges(matching)
    for a, _ in matching.pairs:
        changes += [change for change in pairs.compare(a) if a not in described or _is_of_pair(change)]
    changes += output_constants(matching)
    changes += find_rewired(matching)
    ports = list(interface_changes(matching))
    renamed = {(change.before, change.after) for change in ports if change.action == "renamed"}
    changes = [c for c in changes if c.category != "names" or (c.before, c.after) not in renamed]
    changes += ports
    changes += setting_changes(before, after)
    changes += note_changes(before, after, matching, changes)
    return changes


def _is_of_pair(change: Change) -> bool:
    """Return True for a change that is reported for a node that also has another form."""
    return change.category in ("types", "attributes")


def _sort(changes: Iterable[Change]) -> list[Change]:
    order = list(CATEGORIES)
    return sorted(changes, key=lambda each: (order.index(each.category), each.follows, -each.severity))


def _describe(side: Side) -> Description:
    if side.model is None:
        return describe_source_for_report(side.graph)
    return describe_for_report(side.model)


def _measures(before: Side, after: Side, descriptions: tuple[Description, Description]) -> Iterable[Measure]:
    """Return sizes and costs of both models."""
    first, second = descriptions
    yield Measure("file_bytes", "bytes", before.file_bytes, after.file_bytes)
    for name, unit in (("constant_bytes", "bytes"), ("parameters", ""), ("nodes", "")):
        yield Measure(name, unit, first[name], second[name])
    yield Measure("macs", "", *(cost.total_macs(side.graph.nodes) for side in (before, after)))
    for name, key, unit in (("traffic_bytes", "bytes", "bytes"), ("seconds", "seconds", "s")):
        yield Measure(name, unit, *(_cost(each, key) for each in descriptions))


def _cost(description: Description, key: str) -> float | None:
    """Return a cost of a model; None for a source, and if the extents of a node are not known."""
    costs = description.get("cost")
    return None if costs is None or costs["not_known"] else costs[key]
