"""Conversion of a source to a model: the function of the public API."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.conversion.conversion import Conversion, with_sources
from tpuconvert.conversion.options.options import OPTIONS, Options, takes_groups
from tpuconvert.conversion.source import open_source
from tpuconvert.model.accuracy_notes import warn_of_inaccurate_outputs
from tpuconvert.model.model import Model
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.definition.chip_names import device_of
from tpuconvert.schema.graph.mapped_constants import own_constants
from tpuconvert.schema.system.input_files import noting_inputs
from tpuconvert.schema.system.memory_errors import MemoryErrors
from tpuconvert.schema.types import Chip

if TYPE_CHECKING:
    from onnx import ModelProto

    from tpuconvert.conversion.options.packed_weights import PackedWeights
    from tpuconvert.conversion.options.quantization import Quantization
    from tpuconvert.conversion.options.source import SourceOptions
    from tpuconvert.conversion.pass_instrumentation import Watch
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.samples.preprocess import Preprocess


@takes_groups
def convert(
    source: str | os.PathLike[str] | bytes | ModelProto,
    weights: str | os.PathLike[str] | bytes | None = None,
    *,
    chip: str | Chip = Chip.BM1686,
    calibration: CalibrationSource | None = None,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    quantize: str | Quantization | None = None,
    packed_weights: PackedWeights | None = None,
    source_options: SourceOptions | None = None,
    strict_set: bool = False,
    disable_rules: Iterable[str] = (),
    max_transposes: int | None = None,
    strict_accuracy: bool = False,
    golden: int = 0,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Model:
    """Convert a model file, or a model that is in memory.

    Args:
        source: An ONNX or TFLite file, a Caffe prototxt, the bytes of such a file, or an ``onnx.ModelProto``, which is
            not modified.
        weights: The caffemodel of a prototxt, or its bytes.
        chip: Target: ``bm1682``, ``bm1684`` or ``bm1686``. ``bm1684x`` and ``bm1688`` select BM1686, whose operators
            they execute.
        calibration: Calibration samples: a folder of images, an ``.npz`` or ``.npy`` file, or an iterable of arrays or
            of ``{name: array}``.
        preprocess: Conversion of images to the input, stored in the model. Keys are mean, scale, color, layout, size
            and fit.
        quantize: Quantize a float network, or leave it in float. A quantized source keeps its own integers in both
            cases. ``Quantization(...)`` is ``int8`` with options.
        packed_weights: Types of the weights and activations of matmuls in a float model.
        source_options: Options that decide how the source is read.
        strict_set: Expand composite operators, such as layer_norm. They become the TPU operators they consist of.
        disable_rules: Optimizer rule or pass to skip; ``tpuconvert passes`` lists them.
        max_transposes: Largest number of transposes in the result. More are an error (exit code 5).
        strict_accuracy: Refuse a model with an output below the accuracy limits. They are checked on calibration
            samples (exit code 5); otherwise a warning names the output.
        golden: Number of golden vectors to store; ``tpuconvert device`` compares other machines with them.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages, such as ``tpuconvert.show_progress()`` in a ``with`` statement.
        watch: Traces, dumps and validation of the optimizer's passes (``tpuconvert.conversion.pass_instrumentation``).

    Returns:
        The model; ``save`` writes its file.

    Raises:
        UnsupportedError: Lists everything in the source that cannot be represented.
        CorruptInputError: The source is damaged, or not a model.
        UsageError: Arguments exclude each other or do not fit the source.
        ThresholdError: More transposes or fewer integers than allowed, an output below the accuracy limits with
            ``strict_accuracy``, or a pass changed what the graph computes.

    Example:
        >>> settings = {"calibration": "calibration.npz", "preprocess": "color=GRAY,scale=0.0625"}
        >>> model = tc.convert("digits.onnx", chip="bm1686", quantize="int8", **settings)
        >>> model.outputs
        [TensorInfo(name='probability', dtype='float32', shape=(1, 10))]
        >>> with open("digits.tflite", "rb") as file:
        ...     tc.convert(file.read())
        Model('digits', BM1686, float, 14 nodes)
        >>> model.save("digits.tpum")
        >>> tc.convert("digits.onnx", quantize=tc.Quantization(effort="low", keep_float=["fc"]), **settings)
        Model('digits', BM1686, int8, 18 nodes)

    """
    named = {name: value for name, value in locals().items() if name in OPTIONS}
    with MemoryErrors("the conversion"), noting_inputs() as read:
        load_plugins(plugins)
        options = Options.of(source_options, packed_weights, **named)
        conversion = Conversion(options, calibration, progress=progress or SILENT, watch=watch, device=device_of(chip))
        with open_source(source, weights) as opened:
            model = conversion.of_source(opened)
            own_constants(model.graph)
    warn_of_inaccurate_outputs(model, stacklevel=4)
    return with_sources(model, read)
