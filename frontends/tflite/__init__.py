"""TFLite frontend: read TFLite files as graphs of TPU operators."""

import os
from collections.abc import Mapping, Sequence

from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.system.limits import Limits
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
    limits: Limits | None = None,
) -> Graph:
    """Read a TFLite file.

    Args:
        path: the file.
        input_shapes: shapes of graph inputs that override those in the file; in the layout of the file.
        inputs: names of tensors to use as inputs of the graph instead of the inputs of the model.
        outputs: names of tensors to use as outputs.
        signature: key of the signature to convert; by default the only signature, or the first subgraph if the file
            has none.
        state: ``reset`` starts every run with the initial state in the file; ``ports`` adds inputs and outputs for it.
        keep_io_layout: if false, inputs and outputs of rank 4 are NCHW.
        rounding: rounding of requantized integers: ``double`` like the reference kernels, or ``single`` like engines
            that round once.
        hybrid: activations of layers with integer weights and float activations: ``real`` keeps them float,
            ``dynamic`` quantizes them like the TFLite kernels.
        fixed: values of graph inputs that become constants, in the file's layout.
        limits: bounds on sizes; those in force by default.

    Returns:
        The graph with FLOAT32 arithmetic; values of a quantized model are annotated (``Value.quant``).

    Raises:
        CorruptInputError: the file is damaged, or is not a TFLite model.
        UnsupportedError: parts of the model cannot be converted; the error lists all of them.
        UsageError: a name or shape in the arguments does not fit the model.
        ResourceLimitError: the model exceeds the limits.
    """
    # 60 ms, which other formats do not need: the converters and the tflite package.
    from tpuconvert.frontends.tflite.importer import import_model

    return import_model(
        path,
        limits,
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
