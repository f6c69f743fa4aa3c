"""TFLite models of the data set, run one sample after the other, as for their published results.

The state of a model becomes additional inputs and outputs, and is passed from one sample to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tools.accuracy.datasets import Entry, model_files, reference_samples
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.types import Array


def runs(root: Path, entry: Entry, backend: str = "auto", **options: str) -> Iterator[tuple[Array, Array]]:
    """Every output of every sample: computed and published values."""
    yield from runs_of(
        tc.convert(model_files(root, entry)[0], **group_options(state="ports", **options)), root, entry, backend
    )  # type: ignore[arg-type]  # by name


def runs_of(model: tc.Model, root: Path, entry: Entry, backend: str = "auto") -> Iterator[tuple[Array, Array]]:
    """The same for a model whose state, if any, is among its inputs and outputs."""
    given, published = len(entry["inputs"]), len(entry["outputs"])
    ports = model.graph.input_ports
    state = [
        np.full(port.shape, port.quant.zero_point[0] if port.quant else 0, port.dtype)  # type: ignore[arg-type]  # extents are numbers
        for port in ports[given:]
    ]
    names = [port.name for port in ports]
    with tc.Session(model, backend=backend) as session:  # type: ignore[arg-type]  # a parameter
        for feeds, expected in reference_samples(root, entry):
            found = list(session.run(dict(zip(names, [*feeds.values(), *state], strict=True))).values())
            state = found[published:]
            yield from zip(found[:published], expected.values(), strict=True)
