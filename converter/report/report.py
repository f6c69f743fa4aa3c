"""``tpuconvert.report``: a report of a model, with the results that are known about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tpuconvert.model.model import Model, load
from tpuconvert.report.report_description import describe_for_report
from tpuconvert.report.report_file import check_report_name, write_report

if TYPE_CHECKING:
    from tpuconvert.evaluation.result import Evaluation
    from tpuconvert.precision.attribution import Attribution
    from tpuconvert.precision.tune import Tuning
    from tpuconvert.verify.verification import Verification


def report(
    model: Model | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    verification: Verification | None = None,
    attribution: Attribution | None = None,
    tuning: Tuning | None = None,
    evaluation: Evaluation | None = None,
) -> Path:
    """Write a report of a model: one self-contained page, JSON or text, as the suffix of the path says.

    Args:
        model: The model, or its file.
        path: File to write: ``.html``, ``.htm``, ``.json`` or ``.txt``. An existing file is replaced.
        verification: Result of ``verify``.
        attribution: Result of ``attribute``.
        tuning: Result of ``tune``.
        evaluation: Result of ``evaluate``.

    Returns:
        The path.

    Raises:
        UsageError: The suffix is unknown, or the file cannot be written.

    Example:
        >>> model = tc.convert("digits.onnx")
        >>> tc.report(model, "digits.html", verification=tc.verify(model, "digits.onnx")).name
        'digits.html'

    """
    check_report_name(path)
    parts = {"attribution": attribution, "tuning": tuning, "evaluation": evaluation}
    results = {name: part.to_dict() for name, part in parts.items() if part is not None}
    model = model if isinstance(model, Model) else load(model)
    write_report(Path(path), describe_for_report(model, verification, **results))
    return Path(path)
