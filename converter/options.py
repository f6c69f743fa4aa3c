"""Options of a conversion, declared and checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpuconvert.reading import Reading
from tpuconvert.schema.chip_names import alias_of, parse_chip
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.hardware import HARDWARE, LocalMemory
from tpuconvert.schema.types import Chip, Dim, Shape

if TYPE_CHECKING:
    from tpuconvert.samples.preprocess import Preprocess

QUANTIZE_MODES = ("int8",)
CALIBRATION_METHODS = ("mse", "kl", "minmax")

Shapes = Mapping[str, Sequence[Dim]]


@dataclass(frozen=True)
class Options:
    """Everything that decides what a conversion gives, besides the files.

    Args:
        chip: the target.
        quantize: None for float, or one of QUANTIZE_MODES. A quantized source stays quantized without it.
        calibration_method: how thresholds are found.
        input_shapes: extents that the source leaves open; a name leaves one open (ONNX only).
        inputs: tensor names where the model is to begin; None for the source's own inputs.
        outputs: tensor names where the model is to end; None for the source's own outputs.
        preprocess: how pictures become the model's input.
        strict_set: whether composite operators are written as the operators of the set that they consist of.
        disabled: names of the optimizer's rules and passes that do not run.
        grouping: whether it is planned which nodes share on-chip memory. What is computed does not depend on it.
        local_memory: on-chip memory to plan for, as ``64x256K@64``; None for that of the chip.
        reading: how a TFLite file is read.
        max_transposes: how many transposes the result may have; None for any number.
        allow_non_finite: accept constants that are NaN, or infinite without a meaning; in float only.
        min_int8_share: least share of the multiply-accumulates in integers, from 0 to 1; None for any share.
        fix_inputs: values of inputs that become constants: numbers, or nested tuples of them.
        allow_root: a directory that external data may be in besides the model's folder. Not part of the recipe.

    """

    chip: Chip = Chip.BM1686
    quantize: str | None = None
    calibration_method: str = "mse"
    input_shapes: Mapping[str, Shape] = field(default_factory=dict)
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    preprocess: Preprocess | None = None
    strict_set: bool = False
    disabled: tuple[str, ...] = ()
    grouping: bool = True
    local_memory: str | None = None
    reading: Reading = field(default_factory=Reading)
    max_transposes: int | None = None
    min_int8_share: float | None = None
    fix_inputs: Mapping[str, Any] = field(default_factory=dict)
    allow_root: str | None = None
    allow_non_finite: bool = False

    @staticmethod
    def of(
        *,
        chip: str | Chip = Chip.BM1686,
        quantize: str | None = None,
        calibration_method: str = "mse",
        input_shapes: Shapes | None = None,
        inputs: Iterable[str] | None = None,
        outputs: Iterable[str] | None = None,
        preprocess: Preprocess | str | Mapping[str, Any] | None = None,
        strict_set: bool = False,
        disable_rules: Iterable[str] = (),
        grouping: bool = True,
        local_memory: str | None = None,
        signature: str | None = None,
        state: str = "reset",
        keep_io_layout: bool = True,
        tflite_rounding: str = "double",
        max_transposes: int | None = None,
        min_int8_share: float | None = None,
        fix_inputs: Mapping[str, Any] | None = None,
        allow_root: str | os.PathLike[str] | None = None,
        allow_non_finite: bool = False,
    ) -> Options:
        """Check what a caller wrote and put it into one form.

        Raises:
            UsageError: an unknown chip, mode, method, key or rule.

        """
        try:
            target = parse_chip(chip)
        except ValueError as error:
            raise UsageError(str(error)) from None
        mode = None if quantize in (None, "none", "float") else quantize
        if mode is not None and mode not in QUANTIZE_MODES:
            raise UsageError(f"unknown quantization '{mode}'", hint=f"one of none, {', '.join(QUANTIZE_MODES)}")
        if mode is not None and target is Chip.BM1682:
            raise UsageError("BM1682 has no integer arithmetic", hint="convert in float, or choose another --chip")
        if calibration_method not in CALIBRATION_METHODS:
            from tpuconvert.optimizer.quantize.calibrators import calibrators

            if calibration_method not in calibrators():
                known = ", ".join(calibrators())
                raise UsageError(f"unknown calibration method '{calibration_method}'", hint=f"one of {known}")
        if isinstance(preprocess, str | Mapping):
            from tpuconvert.samples.preprocess import Preprocess

            preprocess = (
                Preprocess.parse(preprocess) if isinstance(preprocess, str) else Preprocess.from_mapping(preprocess)
            )
        if min_int8_share is not None and not 0 <= min_int8_share <= 1:
            hint = "the share of the multiply-accumulates that are to be in integers, as 0.95"
            raise UsageError(f"min_int8_share is {min_int8_share}, expected a number from 0 to 1", hint=hint)
        if local_memory is not None and not grouping:
            raise UsageError("a local memory without grouping", hint="leave one of the two out")
        if local_memory is None and grouping and alias_of(chip) in HARDWARE:
            local_memory = alias_of(chip)
        try:
            memory = None if local_memory is None else str(LocalMemory.parse(local_memory))
        except ValueError as error:
            raise UsageError(str(error), hint="lanes and bytes per lane, as in 64x256K") from None
        disabled = tuple(disable_rules)
        if disabled:
            from tpuconvert.optimizer.pipeline import resolve_names

            disabled = resolve_names(disabled)
        fixed: Mapping[str, Any] = {}
        if fix_inputs:
            from tpuconvert.fixed_inputs import read_fixed

            fixed = read_fixed(fix_inputs)
        if allow_non_finite and mode is not None:
            found = f"allow_non_finite with quantize={mode}: integers have no NaN and no infinity"
            raise UsageError(found, hint="convert in float, or repair the constants")
        if allow_root is not None and not os.path.isdir(allow_root):
            hint = "--allow-root names the directory that holds the files of external data"
            raise UsageError(f"allow_root: {os.fspath(allow_root)} is not a directory", hint=hint)
        return Options(
            target,
            mode,
            calibration_method,
            {name: _shape(shape) for name, shape in (input_shapes or {}).items()},
            None if inputs is None else tuple(inputs),
            None if outputs is None else tuple(outputs),
            preprocess,
            strict_set,
            disabled,
            grouping,
            memory,
            Reading(signature, state, keep_io_layout, tflite_rounding),
            max_transposes,
            None if min_int8_share is None else float(min_int8_share),
            fixed,
            None if allow_root is None else os.fspath(allow_root),
            allow_non_finite,
        )


def _shape(extents: Sequence[Dim]) -> Shape:
    return tuple(extent if isinstance(extent, str) else int(extent) for extent in extents)
