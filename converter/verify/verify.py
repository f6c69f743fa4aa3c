"""``tpuconvert.verify``: compare a model with its source, tensor by tensor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.conversion.options.options import Options, takes_groups
from tpuconvert.conversion.source import AnySource, Source, Weights, open_source
from tpuconvert.model.model import Model, load_converted
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.content_digest import ALGORITHM
from tpuconvert.schema.system.file_digest import file_digest
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.verify.metrics import MetricLimit
from tpuconvert.verify.source_comparison import VERIFICATION_SAMPLES, measure_metrics, verify_source
from tpuconvert.verify.verification import Verification

if TYPE_CHECKING:
    from tpuconvert.conversion.options.source import SourceOptions
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.samples.preprocess import Preprocess


@takes_groups
def verify(
    model: Model | str | os.PathLike[str],
    source: AnySource,
    weights: Weights = None,
    *,
    data: CalibrationSource | None = None,
    samples: int = VERIFICATION_SAMPLES,
    oracle: str = "auto",
    metrics: Iterable[str] = (),
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    source_options: SourceOptions | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Verification:
    """Compare a model with its source, tensor by tensor, in four stages: import, optimize, quantize and legalize.

    Args:
        model: The model, or its file.
        source: Its source, as for ``convert``.
        weights: The caffemodel of a prototxt.
        data: Samples, as ``convert`` takes them for calibration; None uses random numbers from a fixed seed.
        samples: Largest number of samples to compare.
        oracle: Another engine that runs the source: ``onnxruntime``, ``litert``, ``auto`` for one that is installed, or
            ``none``.
        metrics: Metrics of plugins, as ``NAME`` or ``NAME<=NUMBER``; ``check`` compares with the number.
        preprocess: Preprocessing of images, instead of the preprocessing of the model.
        source_options: Options that decide how the source is read, as for the conversion.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages.

    Returns:
        The differences. ``check`` compares them with limits; without arguments with the default ones of the model.

    Raises:
        UsageError: The samples do not fit, or the model has another source.
        MissingExtraError: The requested engine is not installed.

    Example:
        >>> model = tc.convert("digits.onnx")
        >>> verification = tc.verify(model, "digits.onnx", oracle="none")
        >>> verification.first is None
        True
        >>> verification.check(min_cosine=0.999)

    """
    load_plugins(plugins)
    limits = tuple(MetricLimit.parse(text) for text in metrics)
    settings = Options.of(source_options, preprocess=preprocess)
    converted = load_converted(model, source)
    with open_source(source, weights, as_file=True) as opened:
        try:
            verification = verify_source(
                converted, opened, settings, data, samples=samples, oracle=oracle, progress=progress or SILENT
            )
        except UsageError as error:
            if not (other := _other_source(converted, opened)):
                raise
            text = f"the model was made from another file, '{one_line(other)}': {error.message}"
            raise UsageError(text, file=opened.name, node=error.node, hint=error.hint) from None
        verification = replace(verification, other_source=_other_source(converted, opened))
        if not limits:
            return verification
        measured = measure_metrics(limits, converted, opened, settings, data, samples)
    return replace(verification, metrics=measured, metric_limits=limits)


def _other_source(model: Model, source: Source) -> str:
    """Return the name of the file that a model was made from if it is not this source; empty if it is, or unknown."""
    recipe = model.metadata.get("recipe") or {}
    files = [
        ("source", source.digest),
        ("weights", lambda: "" if source.weights is None else file_digest(source.weights)),
    ]
    for name, digest in files:
        expected = (recipe.get(name) or {}).get(ALGORITHM)
        if expected is not None and expected != digest():
            return model.graph.file
    return ""
