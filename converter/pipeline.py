"""From a source file to a model: load, optimize, calibrate, quantize, legalize, check."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from tpuconvert.final_checks import (
    check_expanded,
    check_finite,
    check_legality,
    check_not_empty,
    check_transposes,
    constant_arrays,
)
from tpuconvert.model import Model
from tpuconvert.options import Options, Shapes
from tpuconvert.plugins import load_plugins, plugins_of
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file_model import FileModel, Note
from tpuconvert.schema.gc_control import reduced_gc_frequency
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.hardware import LocalMemory
from tpuconvert.schema.input_files import noting_inputs
from tpuconvert.schema.types import Chip
from tpuconvert.source_loading import Source, is_quantized_source, load_source, with_preprocessing_of

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

    from tpuconvert.diagnosis.network import Expected
    from tpuconvert.pass_instrumentation import Watch
    from tpuconvert.quantize.ranges_file import MeasuredRanges
    from tpuconvert.samples.calibration_data import CalibrationSource, FeedSource
    from tpuconvert.samples.preprocess import Preprocess

P = ParamSpec("P")


def _with_sources(function: Callable[P, Model]) -> Callable[P, Model]:
    """Decorator that gives the model the files that were read for it."""

    @functools.wraps(function)
    def convert_with_sources(*arguments: P.args, **keywords: P.kwargs) -> Model:
        with noting_inputs() as files:
            model = function(*arguments, **keywords)
        return replace(model, sources=tuple(files))

    return convert_with_sources


@_with_sources
def convert(
    source: str | os.PathLike[str] | ModelProto,
    weights: str | os.PathLike[str] | None = None,
    *,
    chip: str | Chip = Chip.BM1686,
    quantize: str | None = None,
    calibration: CalibrationSource | None = None,
    calibration_method: str = "mse",
    input_shapes: Shapes | None = None,
    inputs: Iterable[str] | None = None,
    outputs: Iterable[str] | None = None,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    plugins: Iterable[str | Path] = (),
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
    watch: Watch | None = None,
) -> Model:
    """Convert a model file, or an ONNX model that is in memory.

    Args:
        source: an ONNX or TFLite file, a Caffe prototxt, or an ``onnx.ModelProto``, which is not modified.
        weights: the caffemodel that belongs to a prototxt.
        chip: ``bm1682``, ``bm1684`` or ``bm1686``. Both ``bm1684x`` and ``bm1688`` select BM1686, whose operators they
            execute; the model states BM1686.
        quantize: ``int8``, or None for float. A source that is already quantized stays so without it.
        calibration: samples to find ranges with: a folder of pictures, an ``.npz``/``.npy`` file, or any iterable of
            arrays or of ``{name: array}``.
        calibration_method: ``mse``, ``kl``, ``minmax``, or that of a plugin.
        input_shapes: extents for inputs whose shape the source leaves open, as ``{"x": (1, 3, 224, 224)}``. Of an ONNX
            model a name keeps an extent open, as in ``("N", 3, 224, 224)``; so do names that the source itself has.
        inputs: tensor names where the model is to begin.
        outputs: tensor names where it is to end.
        preprocess: how pictures become the model's input; stored in the model.
        plugins: Python files with operators and converters.
        strict_set: write composite operators (layer_norm, gelu ...) as the operators of the set they consist of.
        disable_rules: names of the optimizer's rules and passes that are not to run; ``tpuconvert passes`` lists them.
        grouping: plan which nodes share on-chip memory; what the model computes does not depend on it.
        local_memory: on-chip memory to plan for: lanes and bytes per lane as in ``64x256K``, or a chip's name; by
            default that of the chip.
        signature: of a TFLite file with several, the key of the one to convert.
        state: what a TFLite model keeps between runs: ``reset`` begins every run anew, ``ports`` makes it further
            inputs and outputs.
        keep_io_layout: false makes the inputs and outputs of four axes of a TFLite model NCHW.
        tflite_rounding: of a quantized TFLite model: ``double`` gives the integers of its reference kernels, ``single``
            those of engines that round once.
        max_transposes: how many transposes the result may have.
        allow_non_finite: accept constants that are NaN, or infinite where that has no meaning; in float only. By
            default they are refused with the tensor, the node and the index.
        min_int8_share: least share of the multiply-accumulates in integers, from 0 to 1.
        fix_inputs: values of inputs that become constants, as ``{"sr": 16000}``: a number, a list, an array or the
            name of an ``.npy`` file. The model has no such inputs.
        allow_root: a directory that files with external data of an ONNX model may be in besides the model's folder,
            as Hugging Face's ``blobs``.
        watch: what to tell about the optimizer's work, what to dump, and whether to validate every pass.

    Returns:
        The model; ``save`` writes its file.

    Raises:
        UnsupportedError: everything in the source that cannot be represented, told at once.
        CorruptInputError: the source is damaged, or something else.
        UsageError: arguments that do not fit each other or the source.
        ThresholdError: more transposes or fewer integers than allowed, or a pass changed what the graph computes.

    """
    load_plugins(plugins)
    options = Options.of(
        chip=chip,
        quantize=quantize,
        calibration_method=calibration_method,
        input_shapes=input_shapes,
        inputs=inputs,
        outputs=outputs,
        preprocess=preprocess,
        strict_set=strict_set,
        disable_rules=disable_rules,
        grouping=grouping,
        local_memory=local_memory,
        signature=signature,
        state=state,
        keep_io_layout=keep_io_layout,
        tflite_rounding=tflite_rounding,
        max_transposes=max_transposes,
        min_int8_share=min_int8_share,
        fix_inputs=fix_inputs,
        allow_root=allow_root,
        allow_non_finite=allow_non_finite,
    )
    model = convert_source(source, weights, options, calibration, watch=watch)
    from tpuconvert.schema.mapped_pages import own_constants

    own_constants(model.graph)
    return model


@_with_sources
@np.errstate(all="ignore")  # infinities and NaN are looked at where they matter: check_finite, verify
@reduced_gc_frequency()
def convert_source(
    source: Source,
    weights: str | os.PathLike[str] | None,
    options: Options,
    calibration: CalibrationSource | None = None,
    *,
    ranges: MeasuredRanges | None = None,
    progress: Progress = SILENT,
    watch: Watch | None = None,
) -> Model:
    """As :func:`convert`, with the options in one piece and perhaps ranges; plugins have been loaded."""
    _check_calibration(options, calibration)
    if watch is not None:
        watch.check_names()
    progress.stage("load")
    graph = load_source(source, weights, options)
    files = graph.files
    if ranges is not None:
        ranges.check_source(source, weights, *files)
    options = with_preprocessing_of(graph, options)
    feeds: FeedSource | None = None
    if options.quantize is not None and calibration is not None:
        from tpuconvert.quantize.quantization import calibration_feeds

        calibration = feeds = calibration_feeds(graph, options, calibration)
    model = finish(graph, options, calibration, ranges=ranges, progress=progress, watch=watch)
    from tpuconvert.recipe import make_recipe
    from tpuconvert.schema.file_model import LateMetadata
    from tpuconvert.schema.mapped_pages import large_files

    mapped = large_files(model.graph)
    recipe = make_recipe(source, weights, options, feeds, ranges, files, mapped)
    known = model.metadata
    metadata = LateMetadata(known, "recipe", recipe) if mapped else {**known, "recipe": recipe()}
    return Model(replace(model.content, metadata=metadata))


def finish(
    graph: Graph,
    options: Options,
    calibration: CalibrationSource | None = None,
    *,
    ranges: MeasuredRanges | None = None,
    progress: Progress = SILENT,
    watch: Watch | None = None,
) -> Model:
    """Make a model of the graph of a frontend, which is changed in place.

    Raises:
        ThresholdError: more transposes are left than allowed, or fewer multiply-accumulates are in integers.
        TpuConvertError: as the passes do.

    """
    from tpuconvert.optimizer import expand_composites, is_expandable, provide_tensors

    known = constant_arrays(graph)
    expected: Mapping[str, Expected] = {}
    if options.quantize is not None:
        from tpuconvert.diagnosis.network import expectations

        expected = expectations(graph)  # the optimizer folds what states them
    improve(graph, options, progress, watch)
    if not options.allow_non_finite:
        check_finite(graph, known=known)
    check_not_empty(graph, options.inputs, options.outputs)
    notes = [Note("source", "", note) for note in graph.notes]
    metadata = graph.metadata
    is_quantized = is_quantized_source(graph)
    if is_quantized and (calibration is not None or ranges is not None):
        hint = "leave --calibration and --ranges out"
        raise UsageError("the source is quantized already and keeps its own scales", hint=hint)
    if options.quantize is not None or any(value.quant is not None for value in graph.values):
        from tpuconvert.quantize.quantization import in_integers

        graph, more = in_integers(graph, options, calibration, ranges, progress, expected)
        notes += more
    if options.strict_set:
        expand_composites(graph, is_expandable)
        check_expanded(graph)
    provide_tensors(graph, options.chip, options.disabled)
    notes += check_legality(graph, options.chip)
    check_transposes(graph, options.max_transposes)
    if options.min_int8_share is not None:
        from tpuconvert.quantize.integer_share import check_integer_share

        if options.quantize is None and not is_quantized:
            hint = "add --quantize int8, or leave --min-int8-share out"
            raise UsageError("min_int8_share is for models that are quantized, this one is float", hint=hint)
        check_integer_share(graph, options.min_int8_share)
    grouping = None
    if options.grouping:
        from tpuconvert.optimizer.grouping.planner import plan_groups

        memory = None if options.local_memory is None else LocalMemory.parse(options.local_memory)
        grouping = plan_groups(graph, options.chip, memory)
    graph.validate()
    return Model(
        FileModel(
            graph=graph,
            chip=options.chip,
            tool_version=_version(),
            quantize="int8" if has_integers(graph) else "none",
            preprocessing=options.preprocess.to_mapping() if options.preprocess else {},
            notes=tuple(notes),
            plugins=tuple(plugins_of(graph)),
            metadata=metadata,
            grouping=grouping,
        )
    )


def improve(graph: Graph, options: Options, progress: Progress, watch: Watch | None = None) -> None:
    """Run the optimizer, and write what the chip lacks as what it has; the graph is changed in place."""
    from tpuconvert.optimizer import expand_where_illegal, fit_to_chip, optimize

    progress.stage("optimize")
    trace = None if watch is None else watch.trace
    observers = () if watch is None else watch.observers(graph, options, progress.tell)
    optimize(graph, trace, chip=options.chip, disabled=options.disabled, observers=observers)
    expand_where_illegal(graph, options.chip)
    fit_to_chip(graph, options.chip, trace, options.disabled)


def has_integers(graph: Graph) -> bool:
    """Whether some tensor between nodes holds integers that stand for real numbers."""
    return any(value.quant is not None and value.dtype.is_integer for value in graph.values)


def _check_calibration(options: Options, calibration: CalibrationSource | None) -> None:
    if calibration is not None and options.quantize is None:
        raise UsageError("calibration samples without quantization", hint="add --quantize int8, or leave them out")


def _version() -> str:
    import tpuconvert

    return tpuconvert.__version__
