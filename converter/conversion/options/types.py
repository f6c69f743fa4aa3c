"""Types of the options of ``convert`` that other functions accept too, for type checkers.

Names, defaults and meanings are defined in ``options.py``; a test compares the types with the signature of ``convert``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from tpuconvert.conversion.options.options import Buckets, Shapes
    from tpuconvert.conversion.options.rule_files import Rules
    from tpuconvert.samples.preprocess import Preprocess
    from tpuconvert.schema.types import Chip


class SourceOptions(TypedDict, total=False):
    """Options that decide how the source is read."""

    input_shapes: Shapes | None
    shapes: Buckets | str | Iterable[str]
    inputs: Iterable[str] | None
    outputs: Iterable[str] | None
    preprocess: Preprocess | str | Mapping[str, Any] | None
    fuse_preprocess: str
    append_nms: str | None
    signature: str | None
    state: str
    keep_io_layout: bool
    tflite_rounding: str
    fix_inputs: Mapping[str, Any] | None
    max_iterations: int
    allow_root: str | os.PathLike[str] | None
    allow_non_finite: bool


class ChipOptions(SourceOptions, total=False):
    """Options of ``diff``."""

    chip: str | Chip


class CheckOptions(ChipOptions, total=False):
    """Options of ``check``."""

    strict_set: bool


class DoctorOptions(ChipOptions, total=False):
    """Options of ``doctor``."""

    calibration_method: str


class CalibrationOptions(DoctorOptions, total=False):
    """Options of ``calibrate``."""

    precision: Rules
    workers: int
    scheduler: str | None


class TuneOptions(CalibrationOptions, total=False):
    """Options of ``tune``."""

    keep_float: Iterable[str]
    effort: str
    without: Iterable[str]
    max_int16_share: float | None
    refinement_samples: int
    strict_set: bool


class QuantizeOptions(TuneOptions, total=False):
    """Options of ``quantize``."""

    min_int8_share: float | None
    strict_accuracy: bool


class ReduceOptions(QuantizeOptions, total=False):
    """Options of ``reduce``."""

    quantize: str | None
    weight_type: str
    weight_group: int
    weight_zero_points: bool
    disable_rules: Iterable[str]
    exact_on: str
