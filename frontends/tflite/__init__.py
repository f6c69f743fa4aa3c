"""TFLite files as graphs of TPU operators."""

import os
from collections.abc import Mapping, Sequence

from tpuconvert.frontends.limits import DEFAULT_LIMITS, Limits
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array


def load(
    path: str | os.PathLike[str],
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    signature: str | None = None,
    state: str = "reset",
    keep_io_layout: bool = True,
    rounding: str = "double",
    hybrid: str = "real",
    fixed: Mapping[str, Array] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Graph:
    """Read a TFLite file.

    Args:
        path: the file.
        input_shapes: extents for graph inputs that are to have another shape than the file's; in the file's layout.
        inputs: tensor names where the graph is to begin, instead of at the model's own inputs.
        outputs: tensor names where it is to end.
        signature: key of the signature to convert; by default the only one, or the first subgraph if there is
            none.
        state: ``reset`` begins every run with the file's own state, ``ports`` makes state further inputs and outputs.
        keep_io_layout: false makes inputs and outputs of four axes NCHW.
        rounding: of integers: ``double`` as the reference kernels do, ``single`` as engines that round once.
        hybrid: activations of layers with integer weights and float activations: ``real``, or ``dynamic`` quantizes
            them as the kernels do.
        fixed: values of graph inputs that become constants, in the file's layout.
        limits: bounds on sizes.

    Returns:
        The graph with FLOAT32 arithmetic; a quantized model carries annotations (``Value.quant``).

    Raises:
        CorruptInputError: damaged, or not a TFLite model.
        UnsupportedError: everything in the model that cannot be represented.
        UsageError: a name or shape in the arguments does not fit the model.
        ResourceLimitError: larger than the limits.
    """
    from tpuconvert.frontends.tflite.importer import import_model  # tflite is loaded only for a TFLite file
    from tpuconvert.frontends.tflite.reader import read_model

    return import_model(
        read_model(path, limits),
        input_shapes=input_shapes,
        inputs=inputs,
        outputs=outputs,
        signature=signature,
        state=state,
        keep_io_layout=keep_io_layout,
        rounding=rounding,
        hybrid=hybrid,
        fixed=fixed,
    )


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Return True if a file with these first bytes and this name is a TFLite file."""
    if head[4:8] == b"TFL3":
        return True
    return os.fspath(path).lower().endswith((".tflite", ".lite"))
