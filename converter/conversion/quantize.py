"""``tpuconvert.conversion.quantization``: an INT8 model from a source with measured ranges, or with samples."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.options.types import QuantizeOptions
from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges, read_ranges
from tpuconvert.conversion.source import AnySource, Weights, open_source
from tpuconvert.model.accuracy_notes import warn_of_inaccurate_outputs
from tpuconvert.model.model import Model
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.mapped_constants import own_constants

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource


def quantize(
    source: AnySource,
    weights: Weights = None,
    *,
    ranges: MeasuredRanges | str | os.PathLike[str] | None = None,
    calibration: CalibrationSource | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
    **options: Unpack[QuantizeOptions],
) -> Model:
    """Convert a source to INT8 with measured ranges, or with samples as ``convert`` does.

    With ranges alone weights are rounded to nearest and biases stay; samples add bias correction and adaptive rounding.

    Args:
        source: The source, as for ``convert``: the graph of a float model file is optimized for float.
        weights: The caffemodel of a prototxt.
        ranges: Result of ``calibrate``, or its file.
        calibration: Calibration samples, as for ``convert``. With ``ranges`` they only refine the weights.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages.
        options: ``chip``, ``calibration_method``, ``strict_set``, ``min_int8_share``, ``strict_accuracy``, the options
            of the quantization and those that decide how the source is read, as for ``convert``.

    Returns:
        The model; ``save`` writes its file.

    Raises:
        UsageError: Neither ranges nor samples are given, or the ranges are those of another source.
        UnsupportedError: Lists everything in the source that cannot be represented.

    Example:
        >>> pixels = "color=GRAY,scale=0.0625"
        >>> ranges = tc.calibrate("digits.onnx", calibration="calibration.npz", preprocess=pixels)
        >>> tc.quantize("digits.onnx", ranges=ranges, preprocess=pixels)
        Model('digits', BM1686, int8, 19 nodes)

    """
    check_data(ranges is not None, calibration is not None)
    load_plugins(plugins)
    settings = Options.of(**{**options, "quantize": "int8"})
    measured = ranges if ranges is None or isinstance(ranges, MeasuredRanges) else read_ranges(ranges)
    with open_source(source, weights) as opened:
        conversion = Conversion(settings, calibration, ranges=measured, progress=progress or SILENT)
        model = conversion.of_source(opened)
        own_constants(model.graph)
    warn_of_inaccurate_outputs(model, stacklevel=3)
    return model


def check_data(has_ranges: bool, has_samples: bool) -> None:
    """Check that a quantization has ranges or samples.

    Raises:
        UsageError: it has neither.

    """
    if not has_ranges and not has_samples:
        hint = "--ranges FILE from tpuconvert calibrate, or --calibration DATA"
        raise UsageError("quantization needs ranges or samples", hint=hint)
