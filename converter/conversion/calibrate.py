"""``tpuconvert.calibrate``: the range of every tensor of a source, measured on samples."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.options.types import CalibrationOptions
from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges, measure_ranges
from tpuconvert.conversion.source import AnySource, Weights, open_source
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource


def calibrate(
    source: AnySource,
    weights: Weights = None,
    *,
    calibration: CalibrationSource,
    output: str | os.PathLike[str] | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
    **options: Unpack[CalibrationOptions],
) -> MeasuredRanges:
    """Run a source on samples and measure the range of every tensor, for repeated quantizations.

    Args:
        source: The source, as for ``convert``.
        weights: The caffemodel of a prototxt.
        calibration: Calibration samples, as for ``convert``.
        output: File to write, which ``quantize`` reads.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages.
        options: ``chip``, ``calibration_method``, ``precision``, ``workers``, ``scheduler`` and the options that decide
            how the source is read, as for ``convert``.

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
    settings = Options.of(**{**options, "quantize": "int8"})
    with open_source(source, weights) as opened:
        measured = measure_ranges(opened, settings, calibration, progress=progress or SILENT)
    if output is not None:
        measured.save(output)
    return measured
