"""Folder for a test on a device: inputs, expected integers of every tensor, and a program that dumps tensors."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from tpuconvert.exporters.folder import write_folder
from tpuconvert.exporters.manifest import TensorOfProgram, describe_tensor
from tpuconvert.exporters.program_digest import program_digest
from tpuconvert.model.golden import golden_feeds
from tpuconvert.model.model import Model
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.samples.array_writer import write_npz
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.schema.types import Array

PLAN = "plan.json"
"""File that describes a plan. A folder with it may be replaced by a later plan."""

FORMAT = 1
SAMPLES = 2
"""Samples of a plan, if neither the model file nor the user has any."""

SCRIPT = Path(__file__).with_name("run_device.py")


class PlannedInput(TypedDict):
    """An input of a plan."""

    name: str
    device_name: str
    shape: list[int | str]


class PlannedTensor(TensorOfProgram):
    """An integer tensor of a plan."""

    operator: str


class PlanContent(TypedDict):
    """Contents of plan.json."""

    format: int
    program_digest: str
    samples: int
    inputs: list[PlannedInput]
    tensors: list[PlannedTensor]


def make_plan(model: Model, folder: str | os.PathLike[str], samples: Any = None) -> PlanContent:
    """Write a folder for a test on a device.

    Args:
        model: a quantized model.
        folder: folder to write. A folder of an earlier plan is replaced, another one is not.
        samples: inputs, as for ``calibration`` of ``convert``; by default the golden vectors of the model file, or
            random numbers.

    Returns:
        The contents of ``plan.json``.

    Raises:
        UsageError: the model has no integers, or the folder cannot be written.
    """
    graph = model.graph
    if samples is not None:
        feeds = list(itertools.islice(load_feeds(samples, graph.input_ports, model.preprocess, limit=SAMPLES), SAMPLES))
    else:
        feeds = golden_feeds(model.metadata) or random_feeds(graph.input_ports, SAMPLES)
    expected, values = _integer_tensors(model, feeds)
    if not values:
        raise UsageError(
            "the model has no integers to compare", file=graph.file, hint="convert it with --quantize int8"
        )
    plan: PlanContent = {
        "format": FORMAT,
        "program_digest": program_digest(graph),
        "samples": len(feeds),
        "inputs": [
            {"name": port.name, "device_name": _device_name(value), "shape": list(value.shape)}
            for port, value in zip(graph.input_ports, graph.inputs, strict=True)
        ],
        "tensors": [_describe(value) for value in values],
    }

    def write(staging: Path) -> None:
        write_npz(staging / "inputs.npz", _stack(feeds))
        write_npz(staging / "device_inputs.npz", _device_inputs(model, feeds))
        write_npz(staging / "expected.npz", expected)
        (staging / "run_device.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
        (staging / PLAN).write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")

    write_folder(folder, write, PLAN)
    return plan


def plan_feeds(folder: str | os.PathLike[str], model: Model) -> list[dict[str, Array]]:
    """Return the inputs of a plan.

    Raises:
        UsageError: the folder has no plan, or one of another model.
        CorruptInputError: the plan cannot be read.
    """
    path = Path(folder)
    try:
        plan = parse_json(read_text(path / PLAN))
        arrays = load_arrays(path / "inputs.npz")
        digest, count = plan["program_digest"], plan["samples"]
        if {len(array) for array in arrays.values()} - {count} or (not arrays and count != 1):
            raise ValueError(f"inputs.npz does not have the inputs of {count} samples")
        feeds = [{name: array[index] for name, array in arrays.items()} for index in range(count)]
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no {Path(str(error.filename)).name}",
            file=str(path),
            hint="tpuconvert device plan MODEL.tpum FOLDER",
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptInputError(f"the plan cannot be read: {error}", file=str(path)) from error
    if digest != program_digest(model.graph):
        raise UsageError(
            "the plan was made for another model", file=str(path), hint="make it again: tpuconvert device plan"
        )
    return feeds


def _integer_tensors(model: Model, feeds: Sequence[Mapping[str, Array]]) -> tuple[dict[str, Array], list[Value]]:
    """Return the integer tensors of all samples by name, and their values in execution order."""
    arrays: dict[Value, list[Array]] = {}

    def observe(value: Value, array: Array) -> None:
        if value.dtype.is_integer:
            arrays.setdefault(value, []).append(np.array(array))

    with Session(model.graph, observed=True) as session:
        for feed in feeds:
            session.run(feed, observe=observe)
    return {value.name: np.stack(items) for value, items in arrays.items()}, list(arrays)


def _stack(feeds: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: np.stack([feed[name] for feed in feeds]) for name in feeds[0]}


def _device_name(value: Value) -> str:
    """Return the name of an input in the compiled program, which takes float32."""
    return f"{value.name}_float" if value.dtype.is_integer else value.name


def _device_inputs(model: Model, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the inputs of the compiled program: float32, dequantized where the model takes integers."""
    arrays = {}
    for port, value in zip(model.graph.input_ports, model.graph.inputs, strict=True):
        array = np.stack([np.asarray(feed[port.name]) for feed in feeds])
        if value.dtype.is_integer and value.quant is not None:
            array = (array.astype(np.float64) - value.quant.zero_point[0]) * value.quant.scale[0]
        arrays[_device_name(value)] = array.astype(np.float32)
    return arrays


def _describe(value: Value) -> PlannedTensor:
    operator = value.producer.op.name if value.producer else "input"
    return {**describe_tensor(value.name, value.dtype.numpy.name, value.shape, value.quant), "operator": operator}
