"""``tpuconvert.conversion.quantization``: an INT8 model from a source with measured ranges, or with samples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options, takes_groups
from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges, read_ranges
from tpuconvert.conversion.source import AnySource, Weights, open_source
from tpuconvert.model.accuracy_notes import warn_of_inaccurate_outputs
from tpuconvert.model.model import Model
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.definition.chip_names import device_of
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.mapped_constants import own_constants
from tpuconvert.schema.types import Chip

if TYPE_CHECKING:
    from tpuconvert.conversion.options.quantization import Quantization
    from tpuconvert.conversion.options.source import SourceOptions
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.samples.preprocess import Preprocess


@takes_groups
def quantize(
    source: AnySource,
    weights: Weights = None,
    *,
    ranges: MeasuredRanges | str | os.PathLike[str] | None = None,
    calibration: CalibrationSource | None = None,
    chip: str | Chip = Chip.BM1686,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    quantization: Quantization | None = None,
    source_options: SourceOptions | None = None,
    strict_set: bool = False,
    strict_accuracy: bool = False,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Model:
    """Convert a source to INT8 with measured ranges, or with samples as ``convert`` does.

    With ranges alone weights are rounded to nearest and biases stay; samples add bias correction and adaptive rounding.

    Args:
        source: The source, as for ``convert``: the graph of a float model file is optimized for float.
        weights: The caffemodel of a prototxt.
        ranges: Result of ``calibrate``, or its file.
        calibration: Calibration samples, as for ``convert``. With ``ranges`` they only refine the weights.
        chip: Target chip, as for ``convert``.
        preprocess: Preprocessing, as for ``convert``.
        quantization: Options of the quantization.
        source_options: Options that decide how the source is read.
        strict_set: Expand composite operators, as for ``convert``.
        strict_accuracy: Refuse an inaccurate model, as for ``convert``.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages.

    Returns:
        The model; ``save`` writes its file.

    Raises:
        UsageError: Neither ranges nor samples are given, or the ranges belong to another source.
        UnsupportedError: Lists everything in the source that cannot be represented.

    Example:
        >>> pixels = "color=GRAY,scale=0.0625"
        >>> ranges = tc.calibrate("digits.onnx", calibration="calibration.npz", preprocess=pixels)
        >>> tc.quantize("digits.onnx", ranges=ranges, preprocess=pixels)
        Model('digits', BM1686, int8, 19 nodes)

    """
    check_data(ranges is not None, calibration is not None)
    load_plugins(plugins)
    settings = Options.of(
        source_options,
        chip=chip,
        preprocess=preprocess,
        quantize=quantization or "int8",
        strict_set=strict_set,
        strict_accuracy=strict_accuracy,
    )
    measured = ranges if ranges is None or isinstance(ranges, MeasuredRanges) else read_ranges(ranges)
    with open_source(source, weights) as opened:
        conversion = Conversion(
            settings, calibration, ranges=measured, progress=progress or SILENT, device=device_of(chip)
        )
        model = conversion.of_source(opened)
        own_constants(model.graph)
    warn_of_inaccurate_outputs(model, stacklevel=4)
    return model


def check_data(has_ranges: bool, has_samples: bool) -> None:
    """Check that a quantization has ranges or samples.

    Raises:
        UsageError: it has neither.

    """
    if not has_ranges and not has_samples:
        hint = "--ranges FILE from tpuconvert calibrate, or --calibration DATA"
        raise UsageError("quantization needs ranges or samples", hint=hint)
