"""``tpuconvert.device_plan``, ``device_compare``, ``device_check``: a compiled program on a device, and its model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuconvert.device.compare import DumpComparison, compare_dumps, load_dumps
from tpuconvert.device.plan import PlanContent, make_plan, plan_feeds
from tpuconvert.model.golden import KEY, changed_tensors, golden_digests, golden_feeds
from tpuconvert.model.model import Model, load
from tpuconvert.plugins import load_plugins
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.types import Array
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import concat, style

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource


@dataclass(frozen=True, repr=False)
class DevicePlan(Result, keys={"content": "*"}):
    """A folder for a test on a device.

    Args:
        folder: the folder.
        content: contents of ``plan.json``: number of samples, inputs, and integer tensors.

    """

    folder: str
    content: PlanContent

    def lines(self) -> list[str]:
        """Return the number of samples and tensors, and the next step."""
        return [
            f"{self.content['samples']} samples, {len(self.content['tensors'])} integer tensors",
            f"wrote {self.folder}",
            f"next: on the device, python3 {self.folder}/run_device.py PROGRAM.bmodel dumps.npz",
        ]


@dataclass(frozen=True, repr=False)
class GoldenCheck(Result):
    """Comparison of this machine with the golden vectors of a model file.

    Args:
        tensors: number of integer tensors.
        samples: number of golden inputs.
        changed: names of the tensors with other integers.

    """

    tensors: int
    samples: int
    changed: tuple[str, ...]

    def check(self) -> None:
        """Check that all tensors have their stored digests.

        Raises:
            ThresholdError: a tensor has other integers.

        """
        if self.changed:
            raise ThresholdError(f"{len(self.changed)} tensors have other integers, the first is '{self.changed[0]}'")

    def lines(self) -> list[str]:
        """Return the number of equal tensors."""
        count = f"{self.tensors - len(self.changed)} of {self.tensors}"
        return [concat([style(count, "bad" if self.changed else "good"), " integer tensors have their stored digests"])]


def device_plan(
    model: Model | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    data: CalibrationSource | None = None,
    plugins: Iterable[str | Path] = (),
) -> DevicePlan:
    """Write a folder for a test on a device: inputs, expected integers of every tensor, and run_device.py.

    Args:
        model: A quantized model, or its file.
        folder: Folder to write. A folder of an earlier plan is replaced, another one is not.
        data: Inputs, as for ``calibration`` of ``convert``. Default: the golden vectors of the model, else random
            numbers.
        plugins: Python files with custom operators.

    Raises:
        UsageError: The model has no integers, or the folder cannot be written.

    """
    load_plugins(plugins)
    return DevicePlan(os.fspath(folder), make_plan(_loaded(model), folder, data))


def device_compare(
    model: Model | str | os.PathLike[str],
    dumps: str | os.PathLike[str] | Mapping[str, Array],
    *,
    plan: str | os.PathLike[str] | None = None,
    data: CalibrationSource | None = None,
    plugins: Iterable[str | Path] = (),
) -> DumpComparison:
    """Compare tensors that were dumped on a device, or by any engine, with the integers of the model.

    Tensors are matched by name. The cause of the first difference is inferred: layout, scale, zero point, rounding,
    saturation, stale weights, resize or preprocessing.

    Args:
        model: The model that was compiled, or its file.
        dumps: Tensors by name, with the samples along a new first axis, or an ``.npz`` file of them.
        plan: Folder of ``device_plan`` with the inputs of the dumps.
        data: Inputs of the dumps, in their order, instead of ``plan``. Default: the golden vectors of the model.
        plugins: Python files with custom operators.

    Returns:
        The comparison. ``check`` raises an error if a tensor differs.

    Raises:
        UsageError: The inputs are not known, or the dumps belong to another program.
        CorruptInputError: The dumps cannot be read.

    """
    load_plugins(plugins)
    converted = _loaded(model)
    if plan is not None and data is not None:
        hint = "give the one that the dumps were made with: --plan or --data"
        raise UsageError("plan and data exclude each other", hint=hint)
    if plan is not None:
        feeds = plan_feeds(plan, converted)
    elif data is not None:
        feeds = list(load_feeds(data, converted.graph.input_ports, converted.preprocess))
    else:
        feeds = golden_feeds(converted.metadata)
    if not feeds:
        hint = "add --plan FOLDER or --data SAMPLES, or convert the model with --golden"
        raise UsageError("the inputs of the dumps are not known", hint=hint)
    tensors = dumps if isinstance(dumps, Mapping) else load_dumps(os.fspath(dumps))
    return compare_dumps(converted, tensors, feeds)


def device_check(model: Model | str | os.PathLike[str], *, plugins: Iterable[str | Path] = ()) -> GoldenCheck:
    """Run the golden inputs that a model stores on this machine, and compare every integer tensor with its digest.

    Args:
        model: A model that was converted with ``golden``, or its file.
        plugins: Python files with custom operators.

    Returns:
        The comparison. ``check`` raises an error if a tensor differs.

    Raises:
        UsageError: The model has no golden vectors.

    Example:
        >>> settings = {"calibration": "calibration.npz", "preprocess": "color=GRAY,scale=0.0625"}
        >>> model = tc.convert("digits.onnx", quantize="int8", golden=1, **settings)
        >>> tc.device_check(model).check()

    """
    load_plugins(plugins)
    converted = _loaded(model)
    if KEY not in converted.metadata:
        name = "" if isinstance(model, Model) else os.fspath(model)
        raise UsageError("the model has no golden vectors", file=name, hint="convert it with --golden 2")
    changed = changed_tensors(converted.graph, converted.metadata)
    tensors, samples = len(golden_digests(converted.metadata)), len(golden_feeds(converted.metadata))
    if not tensors:
        name = "" if isinstance(model, Model) else os.fspath(model)
        hint = "convert it with --quantize int8 and --golden 2: only integers have digests"
        raise UsageError("the model has no integer tensors to compare", file=name, hint=hint)
    return GoldenCheck(tensors, samples, tuple(changed))


def _loaded(model: Model | str | os.PathLike[str]) -> Model:
    return model if isinstance(model, Model) else load(model)
