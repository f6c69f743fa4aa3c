"""Runs with more samples than the batch size: samples are split into batches, and results are concatenated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tpuconvert.runtime.session.border import InputShapeError
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import Array, format_shape

NEXT_STATE = ":next"
"""Suffix of a state output. The value is the input without this suffix in the next run."""


def split(
    feeds: Mapping[str, Array], inputs: Sequence[Port], outputs: Sequence[Port], mismatch: InputShapeError
) -> list[dict[str, Array]]:
    """Split feeds into feeds of the model's batch size.

    Args:
        feeds: one array per input. Some of them do not have the shape of the input.
        inputs: inputs of the model.
        outputs: outputs of the model.
        mismatch: error to raise if the shapes differ in more than the number of samples.

    Raises:
        UsageError: the number of samples is not a multiple of the batch size, or the runs would depend on each other.
    """
    arrays = {port.name: np.asarray(feeds[port.name]) for port in inputs}
    if not all(_is_batch_of(arrays[port.name], port) for port in inputs):
        raise mismatch
    port = inputs[0]
    counts = {name: len(array) for name, array in arrays.items()}
    batches = {each.name: each.shape[0] for each in inputs}
    if len(set(batches.values())) > 1:
        listed = ", ".join(f"'{each.name}' {format_shape(each.shape)}" for each in inputs)
        raise UsageError(f"{mismatch.message}: the inputs have no common batch axis ({listed})", hint=mismatch.hint)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise UsageError(f"inputs have different numbers of samples: {listed}", hint="give the same number to each")
    count, batch = counts[port.name], port.shape[0]
    assert isinstance(batch, int), "an open extent takes any number of samples"
    if count % batch or not count:
        raise UsageError(
            f"input '{port.name}' has {count} samples, the model takes {batch} at a time",
            hint=f"give a multiple of {batch} samples; {one_by_one(port)}",
        )
    check_joinable(inputs, outputs)
    return [{name: array[start : start + batch] for name, array in arrays.items()} for start in range(0, count, batch)]


def check_joinable(inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    """Check that results of several runs can be concatenated along the first axis.

    Raises:
        UsageError: an output has no batch axis, or a run needs the state of the previous run.
    """
    names = {port.name for port in outputs}
    states = [port.name for port in inputs if f"{port.name}{NEXT_STATE}" in names]
    if states:
        raise UsageError(
            f"the model keeps state between runs ('{states[0]}' and '{states[0]}{NEXT_STATE}'), expected one batch",
            hint="run the batches one by one, with the state of the run before",
        )
    batch = next((port.shape[0] for port in inputs if port.shape), 1)
    for port in outputs:
        if not isinstance(batch, str) and (not port.shape or port.shape[0] != batch):
            raise UsageError(
                f"output '{port.name}' {format_shape(port.shape)} has no batch axis of {batch}: "
                "results of several runs cannot be joined",
                hint=f"run {batch} {'sample' if batch == 1 else 'samples'} at a time",
            )


def join(results: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Concatenate the results of several runs along the first axis."""
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}


def one_by_one(port: Port) -> str:
    """Return a hint: the option that converts a model with a batch size of 1."""
    shape_text = ",".join(map(str, (1, *port.shape[1:])))
    return f"to take samples one by one, convert the model with --input-shapes {port.name}={shape_text}"


def _is_batch_of(array: Array, port: Port) -> bool:
    if not port.shape or array.ndim != len(port.shape) or not isinstance(port.shape[0], int):
        return False
    return all(
        isinstance(want, str) or have == want for have, want in zip(array.shape[1:], port.shape[1:], strict=True)
    )
