"""``tpuconvert.calibrate``: the range of every tensor of a source, measured on samples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.conversion.options.options import Options, takes_groups
from tpuconvert.conversion.options.quantization import Quantization
from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges, measure_ranges
from tpuconvert.conversion.source import AnySource, Weights, open_source
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.types import Chip

if TYPE_CHECKING:
    from tpuconvert.conversion.options.source import SourceOptions
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.samples.preprocess import Preprocess

RANGE_OPTIONS = ("calibration_method", "precision", "workers", "scheduler")
"""Options of a quantization that decide how ranges are measured."""


@takes_groups
def calibrate(
    source: AnySource,
    weights: Weights = None,
    *,
    calibration: CalibrationSource,
    chip: str | Chip = Chip.BM1686,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    quantization: Quantization | None = None,
    source_options: SourceOptions | None = None,
    output: str | os.PathLike[str] | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> MeasuredRanges:
    """Run a source on samples and measure the range of every tensor, for repeated quantizations.

    Args:
        source: The source, as for ``convert``.
        weights: The caffemodel of a prototxt.
        calibration: Calibration samples, as for ``convert``.
        chip: Target chip, as for ``convert``.
        preprocess: Preprocessing, as for ``convert``.
        quantization: Its fields ``calibration_method``, ``precision``, ``workers`` and ``scheduler`` decide how ranges
            are measured; the others are for ``quantize``.
        source_options: Options that decide how the source is read.
        output: File to write, which ``quantize`` reads.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages.

    Returns:
        The ranges, for ``quantize``.

    Raises:
        UsageError: The source is already quantized, or the samples do not fit.

    Example:
        >>> pixels = "color=GRAY,scale=0.0625"
        >>> ranges = tc.calibrate("digits.onnx", calibration="calibration.npz", preprocess=pixels)
        >>> print(ranges)
        ranges of 14 tensors from 100 samples, by auto

    """
    load_plugins(plugins)
    fields = {name: getattr(quantization, name) for name in RANGE_OPTIONS if quantization is not None}
    settings = Options.of(source_options, chip=chip, preprocess=preprocess, quantize=Quantization(**fields))
    with open_source(source, weights) as opened:
        measured = measure_ranges(opened, settings, calibration, progress=progress or SILENT)
    if output is not None:
        measured.save(output)
    return measured
