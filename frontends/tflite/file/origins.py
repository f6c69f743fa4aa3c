"""Find the tensor of a TFLite file from which a constant of the graph was computed."""

from __future__ import annotations

import os

from tpuconvert.frontends.origins import Maker, Origin, trace
from tpuconvert.frontends.tflite.file.reader import read_model


def find_origin(path: str | os.PathLike[str], name: str) -> Origin | None:
    """Find the tensor that causes infinite or NaN elements in a constant, in the first subgraph that has the name."""
    file = read_model(path)
    for subgraph in file.subgraphs:
        tensors = {tensor.name: tensor for tensor in subgraph.tensors}
        if name not in tensors:
            continue
        names = [tensor.name for tensor in subgraph.tensors]
        makers = {
            names[output]: Maker(
                f"{operator.name} '{names[output]}'", tuple(names[i] for i in operator.inputs if i >= 0)
            )
            for operator in subgraph.operators
            for output in operator.outputs
        }
        stored = {tensor: file.data(item) for tensor, item in tensors.items() if tensor not in makers}
        return trace(name, stored.get, makers.get)
    return None
