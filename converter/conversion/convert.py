"""Conversion of a source to a model: the function of the public API."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.conversion.conversion import Conversion, with_sources
from tpuconvert.conversion.options.options import OPTIONS, Buckets, Options, Shapes
from tpuconvert.conversion.options.rule_files import Rules
from tpuconvert.conversion.source import open_source
from tpuconvert.model.accuracy_notes import warn_of_inaccurate_outputs
from tpuconvert.model.model import Model
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.graph.mapped_constants import own_constants
from tpuconvert.schema.system.input_files import noting_inputs
from tpuconvert.schema.system.memory_errors import MemoryErrors
from tpuconvert.schema.types import Chip

if TYPE_CHECKING:
    from onnx import ModelProto

    from tpuconvert.conversion.pass_instrumentation import Watch
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.samples.preprocess import Preprocess


def convert(
    source: str | os.PathLike[str] | bytes | ModelProto,
    weights: str | os.PathLike[str] | bytes | None = None,
    *,
    chip: str | Chip = Chip.BM1686,
    quantize: str | None = None,
    calibration: CalibrationSource | None = None,
    calibration_method: str = "auto",
    precision: Rules = (),
    keep_float: Iterable[str] = (),
    effort: str = "default",
    without: Iterable[str] = (),
    max_int16_share: float | None = None,
    refinement_samples: int = 64,
    workers: int = 1,
    scheduler: str | None = None,
    weight_type: str = "float32",
    weight_group: int = 32,
    weight_zero_points: bool = False,
    activation_type: str = "float32",
    input_shapes: Shapes | None = None,
    shapes: Buckets | str | Iterable[str] = (),
    inputs: Iterable[str] | None = None,
    outputs: Iterable[str] | None = None,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    fuse_preprocess: str = "none",
    append_nms: str | None = None,
    plugins: Iterable[str | Path] = (),
    strict_set: bool = False,
    disable_rules: Iterable[str] = (),
    signature: str | None = None,
    state: str = "auto",
    keep_io_layout: bool = True,
    tflite_rounding: str = "double",
    max_transposes: int | None = None,
    min_int8_share: float | None = None,
    strict_accuracy: bool = False,
    fix_inputs: Mapping[str, Any] | None = None,
    max_iterations: int = 1_000_000,
    exact_on: str = "none",
    golden: int = 0,
    allow_root: str | os.PathLike[str] | None = None,
    allow_non_finite: bool = False,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Model:
    """Convert a model file, or a model that is in memory.

    Args:
        source: An ONNX or TFLite file, a Caffe prototxt, the bytes of such a file, or an ``onnx.ModelProto``, which is
            not modified.
        weights: The caffemodel of a prototxt, or its bytes.
        chip: Target chip: ``bm1682``, ``bm1684`` or ``bm1686``. ``bm1684x`` and ``bm1688`` select BM1686, whose
            operators they execute.
        quantize: ``int8``, or ``none`` for float. A quantized source keeps its own integers in both cases.
        calibration: Calibration samples: a folder of images, an ``.npz`` or ``.npy`` file, or an iterable of arrays or
            of ``{name: array}``.
        calibration_method: Method that finds ranges from samples: ``mse``, ``kl``, ``minmax``, ``percentile`` (99.99 %,
            or as in ``percentile:99.9``), ``octav``, ``aciq``, or the name of a plugin's method. ``auto`` chooses one
            of them for each tensor by the error at the outputs, beginning with ``minmax`` for the feature maps of
            networks that predict at every position, such as detectors, and ``mse`` for all other tensors.
        precision: Rules for selected nodes: ``SELECTOR=SETTINGS``. The selector is a name with wildcards, ``op:NAME``
            or ``between A and B``; the settings are ``float32``, ``float16``, ``int8``, ``int16``, ``per-tensor``,
            ``per-channel``, ``symmetric``, ``asymmetric``, a calibration method or ``threshold:NUMBER``. Later rules
            win.
        keep_float: Nodes that stay in float32: the selector of a precision rule. It wins over all precision rules.
        effort: Effort of the quantization: ``low`` finds ranges only, ``default`` also searches for calibration methods
            and refines weights and biases, ``high`` also leaves out algorithms without which the error at the outputs
            is smaller.
        without: Algorithms of the quantization to skip: ``method-search``, ``channel-scales``, ``balancing``,
            ``coarse-nodes``, ``two-term-weights``, ``int16-nodes``, ``reconstruction``, ``weight-rounding``,
            ``bias-correction``, ``decision-paths``.
        max_int16_share: Largest share of the multiply-accumulates, from 0 to 1, in nodes that get 16 bits on BM1686
            because rounding their operands to 8 bits adds most error at the outputs, and in nodes that stay in float
            because 8 bits are too coarse. Default: 0.05, or 0 with ``--effort low``; without a number, accurate and
            large networks keep 8 bits.
        refinement_samples: Largest number of samples that refine weights and biases.
        workers: Number of threads that calibration and refinement split the samples over. Results do not depend on
            it.
        scheduler: Address of a dask scheduler, such as ``tcp://host:8786``: the samples are split over its workers.
        weight_type: Type of the weights of matmuls in a float model: ``int4`` and ``int8`` store them with one scale
            per group of inputs. Samples of ``calibration`` make the rounding more accurate.
        weight_group: Number of inputs that share a scale of ``weight_type``: 16, 32, 64, 128 or 256.
        weight_zero_points: Store a zero point per group of ``weight_type`` besides the scale, for weights that are not
            centered at 0.
        activation_type: Type of the activations of matmuls with packed weights of ``weight_type`` or of the source:
            ``int8`` quantizes each group of each row when it is computed, and multiplies integers.
        input_shapes: Shapes of inputs with dynamic dimensions. For ONNX, a name instead of an extent keeps the
            dimension dynamic.
        shapes: The only shapes of the inputs that the model accepts, called buckets. The ONNX file has dynamic
            dimensions where they differ. A session makes a plan for each bucket.
        inputs: Names of the tensors at which the model begins.
        outputs: Names of the tensors at which the model ends.
        preprocess: Conversion of images to the model's input: mean, scale, color, layout, size, fit. Stored in the
            model.
        fuse_preprocess: Pixel format of the model's input, if the model computes the preprocessing itself: uint8
            [N, H, W, 3] in the order ``rgb`` or ``bgr``, [N, H, W, 1] for ``gray``, or planes [N, H * 3/2, W] of a
            camera for ``nv12`` and ``i420``. Needs preprocessing.
        append_nms: Replace outputs with boxes and scores by the boxes that non-maximum suppression selects:
            ``boxes=NAME,scores=NAME``, and optionally ``iou=0.5``, ``score=0.25``, ``max=100`` per image and class,
            ``format=cxcywh`` for centers and sizes, and ``objectness=true``.
        plugins: Python files with custom operators and converters.
        strict_set: Expand composite operators (layer_norm, gelu ...) into the TPU operators they consist of.
        disable_rules: Names of optimizer rules and passes to skip; ``tpuconvert passes`` lists them.
        signature: Key of the signature to convert, for a TFLite file with several.
        state: Tensors that outlive a run. ``auto``: a session keeps the key-value caches of an ONNX decoder, and every
            run of a TFLite model starts with the initial state. ``reset``: the initial state, TFLite only. ``ports``:
            they are inputs and outputs. ``none``: no session keeps any; ``ports`` for ONNX, ``reset`` for TFLite.
        keep_io_layout: Keep NHWC for inputs and outputs of rank 4 of a TFLite model. Otherwise they become NCHW.
        tflite_rounding: Integers of a quantized TFLite model: ``double`` rounds as the reference kernels do, ``single``
            as engines that round once.
        max_transposes: Largest number of transposes in the result; more are an error (exit code 5).
        min_int8_share: Smallest share of the multiply-accumulates in integers, from 0 to 1; less is an error (exit code
            5).
        strict_accuracy: Refuse a quantized model with an output below the accuracy limits on calibration samples (exit
            code 5). Otherwise a warning names the output.
        fix_inputs: Values of inputs that become constants: numbers, Booleans, lists, arrays or names of ``.npy`` files.
        max_iterations: Largest number of iterations of a loop of an ONNX model that the host executes; more are an
            error when the model runs.
        exact_on: Chip of the vendor's compiler on which all integers must be exact: ``bm1684x``, ``bm1688`` or
            ``bm1684``. Nodes without an exact form, and nodes that depend on them, stay in float; if no others are
            left, this is an error (exit code 3). For ``bm1684`` every layer is scaled by a power of two.
        golden: Number of golden vectors to store in the file: inputs, and digests of every integer tensor.
            ``tpuconvert device`` compares other machines with them.
        allow_root: Directory that may contain external data of an ONNX model, besides the folder of the model.
        allow_non_finite: Accept constants that are NaN, or infinite where infinity has no meaning. Float only.
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

    """
    given = {name: value for name, value in locals().items() if name in OPTIONS}
    with MemoryErrors("the conversion"), noting_inputs() as read:
        load_plugins(plugins)
        conversion = Conversion(Options.of(**given), calibration, progress=progress or SILENT, watch=watch)
        with open_source(source, weights) as opened:
            model = conversion.of_source(opened)
            own_constants(model.graph)
    warn_of_inaccurate_outputs(model, stacklevel=3)
    return with_sources(model, read)
