"""``tpuconvert.check``: find out whether a source model can be converted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options, takes_groups
from tpuconvert.conversion.source import AnySource, Weights, open_source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.model.description import describe_model
from tpuconvert.model.notes import SHARE, NoteGroup, group_line, group_notes, operators_of
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.definition.chip_names import device_of
from tpuconvert.schema.types import Chip
from tpuconvert.text.result import Result
from tpuconvert.text.text_format import several

if TYPE_CHECKING:
    from tpuconvert.conversion.options.source import SourceOptions
    from tpuconvert.samples.preprocess import Preprocess


@dataclass(frozen=True, repr=False)
class Check(Result, hidden=("target",)):
    """A source model that can be converted.

    Args:
        file: name of the source.
        chip: the target chip.
        quantize: ``int8``, or ``none`` for float.
        nodes: number of nodes after the conversion.
        operators: number of nodes per TPU operator.
        notes: notes about the conversion, grouped by reason.
        target: the export target that was checked too, or None.

    """

    file: str
    chip: Chip
    quantize: str
    nodes: int
    operators: Mapping[str, int]
    notes: tuple[NoteGroup, ...] = ()
    target: str | None = None

    def lines(self) -> list[str]:
        """Return the verdict, and one line per reason of the notes."""
        ability = "converted" if self.target is None else f"quantized and exported to {self.target}"
        verdict = f"{self.file}: can be {ability} for {self.chip.value}: {several(self.nodes, 'node')}"
        return [verdict, *(group_line(group) for group in self.notes if group.kind != SHARE)]

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        return self.lines(), [("operator", "nodes"), *((name, str(count)) for name, count in self.operators.items())]


@takes_groups
def check(
    source: AnySource,
    weights: Weights = None,
    *,
    chip: str | Chip = Chip.BM1686,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    source_options: SourceOptions | None = None,
    strict_set: bool = False,
    target: str | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Check:
    """Check whether a source model can be converted. Nothing is written.

    Args:
        source: The source, as for ``convert``.
        weights: The caffemodel of a prototxt. Without it, weights are taken as zeros.
        chip: Target chip, as for ``convert``.
        preprocess: Preprocessing, as for ``convert``.
        source_options: Options that decide how the source is read.
        strict_set: Expand composite operators, as for ``convert``.
        target: Export target to check too: ``tpu-mlir``, ``tpulang`` or ``onnx``. The model is then quantized with the
            ranges of random inputs.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages.

    Returns:
        The operators of the converted model, and notes.

    Raises:
        UnsupportedError: The model has operators or attributes that the chip does not support; lists all of them.
        CorruptInputError: The source is damaged, or not a model.

    Example:
        >>> check = tc.check("digits.onnx", chip="bm1684")
        >>> print(check)
        digits.onnx: can be converted for BM1684: 13 nodes
        >>> check.operators["conv"]
        4

    """
    load_plugins(plugins)
    settings = Options.of(source_options, chip=chip, preprocess=preprocess, strict_set=strict_set)
    watcher = progress or SILENT
    with open_source(source, weights) as opened:
        watcher.stage("load")
        graph = load_source(opened, settings, require_weights=False)
    if target is None:
        conversion = Conversion(settings, progress=watcher, device=device_of(chip))
        converted = conversion.with_device_notes(conversion.of_graph(graph))
    else:
        # 150 ms: imports the quantizer and the exporters
        from tpuconvert.conversion.export_readiness import check_export

        converted = check_export(graph, settings, watcher, target)
    description = describe_model(converted.content)
    return Check(
        os.fspath(source) if isinstance(source, (str, os.PathLike)) else graph.name,
        converted.chip,
        converted.quantize,
        description["nodes"],
        description["operators"],
        tuple(group_notes(description["notes"], operators_of(description))),
        target,
    )
