"""From a source file to a model: load, optimize, calibrate, quantize, legalize, check."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
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
from tpuconvert.plugins import load_plugins, plugins_of
from tpuconvert.progress import SILENT, Progress
from tpuconvert.reading import Reading
from tpuconvert.schema.chip_names import alias_of, parse_chip
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file_model import FileModel, Note
from tpuconvert.schema.garbage import rarely_collected
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.hardware import HARDWARE, LocalMemory
from tpuconvert.schema.input_files import note_input, noting_inputs
from tpuconvert.schema.light_dataclass import dataclass, replace
from tpuconvert.schema.types import Array, Chip, Dim, Shape, format_shape

if TYPE_CHECKING:
    from pathlib import Path

    from tpuconvert.calibration_data import CalibrationSource, FeedSource
    from tpuconvert.diagnosis.network import Expected
    from tpuconvert.frontends.origins import Origin
    from tpuconvert.preprocess import Preprocess
    from tpuconvert.ranges_file import MeasuredRanges
    from tpuconvert.watching import Watch

QUANTIZE_MODES = ("int8",)
CALIBRATION_METHODS = ("mse", "kl", "minmax")
SOURCE_FORMATS = {"onnx": "onnx", "tflite": "tflite", "prototxt": "caffe", "caffemodel": "caffe"}
"""What a file is recognised as -> the frontend that reads it."""

Shapes = Mapping[str, Sequence[Dim]]
P = ParamSpec("P")


@dataclass(frozen=True)
class Options:
    """Everything that decides what a conversion gives, besides the files.

    Args:
        chip: the target.
        quantize: None for float, or one of QUANTIZE_MODES. A quantized source stays quantized without it.
        calibration_method: how thresholds are found.
        input_shapes: extents that the source leaves open; a name leaves one open (ONNX only).
        inputs: tensor names where the model is to begin; None for the source's own inputs.
        outputs: tensor names where the model is to end; None for the source's own outputs.
        preprocess: how pictures become the model's input.
        strict_set: whether composite operators are written as the operators of the set that they consist of.
        disabled: names of the optimizer's rules and passes that do not run.
        grouping: whether it is planned which nodes share on-chip memory. What is computed does not depend on it.
        local_memory: on-chip memory to plan for, as ``64x256K@64``; None for that of the chip.
        reading: how a TFLite file is read.
        max_transposes: how many transposes the result may have; None for any number.
        allow_non_finite: accept constants that are NaN, or infinite without a meaning; in float only.
        min_int8_share: least share of the multiply-accumulates in integers, from 0 to 1; None for any share.
        fix_inputs: values of inputs that become constants: numbers, or nested tuples of them.
        allow_root: a directory that external data may be in besides the model's folder. Not part of the recipe.

    """

    chip: Chip = Chip.BM1686
    quantize: str | None = None
    calibration_method: str = "mse"
    input_shapes: Mapping[str, Shape] = field(default_factory=dict)
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    preprocess: Preprocess | None = None
    strict_set: bool = False
    disabled: tuple[str, ...] = ()
    grouping: bool = True
    local_memory: str | None = None
    reading: Reading = Reading()
    max_transposes: int | None = None
    min_int8_share: float | None = None
    fix_inputs: Mapping[str, Any] = field(default_factory=dict)
    allow_root: str | None = None
    allow_non_finite: bool = False

    @staticmethod
    def of(
        *,
        chip: str | Chip = Chip.BM1686,
        quantize: str | None = None,
        calibration_method: str = "mse",
        input_shapes: Shapes | None = None,
        inputs: Iterable[str] | None = None,
        outputs: Iterable[str] | None = None,
        preprocess: Preprocess | str | Mapping[str, Any] | None = None,
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
    ) -> Options:
        """Check what a caller wrote and put it into one form.

        Raises:
            UsageError: an unknown chip, mode, method, key or rule.

        """
        try:
            target = parse_chip(chip)
        except ValueError as error:
            raise UsageError(str(error)) from None
        mode = None if quantize in (None, "none", "float") else quantize
        if mode is not None and mode not in QUANTIZE_MODES:
            raise UsageError(f"unknown quantization '{mode}'", hint=f"one of none, {', '.join(QUANTIZE_MODES)}")
        if mode is not None and target is Chip.BM1682:
            raise UsageError("BM1682 has no integer arithmetic", hint="convert in float, or choose another --chip")
        if calibration_method not in CALIBRATION_METHODS:
            from tpuconvert.optimizer.quantize.calibrators import calibrators

            if calibration_method not in calibrators():
                known = ", ".join(calibrators())
                raise UsageError(f"unknown calibration method '{calibration_method}'", hint=f"one of {known}")
        if isinstance(preprocess, str | Mapping):
            from tpuconvert.preprocess import Preprocess

            preprocess = (
                Preprocess.parse(preprocess) if isinstance(preprocess, str) else Preprocess.from_mapping(preprocess)
            )
        if min_int8_share is not None and not 0 <= min_int8_share <= 1:
            hint = "the share of the multiply-accumulates that are to be in integers, as 0.95"
            raise UsageError(f"min_int8_share is {min_int8_share}, expected a number from 0 to 1", hint=hint)
        if local_memory is not None and not grouping:
            raise UsageError("a local memory without grouping", hint="leave one of the two out")
        if local_memory is None and grouping and alias_of(chip) in HARDWARE:
            local_memory = alias_of(chip)
        try:
            memory = None if local_memory is None else str(LocalMemory.parse(local_memory))
        except ValueError as error:
            raise UsageError(str(error), hint="lanes and bytes per lane, as in 64x256K") from None
        disabled = tuple(disable_rules)
        if disabled:
            from tpuconvert.optimizer.pipeline import passes

            passes(disabled)
        fixed: Mapping[str, Any] = {}
        if fix_inputs:
            from tpuconvert.fixed_inputs import read_fixed

            fixed = read_fixed(fix_inputs)
        if allow_non_finite and mode is not None:
            found = f"allow_non_finite with quantize={mode}: integers have no NaN and no infinity"
            raise UsageError(found, hint="convert in float, or repair the constants")
        if allow_root is not None and not os.path.isdir(allow_root):
            hint = "--allow-root names the directory that holds the files of external data"
            raise UsageError(f"allow_root: {os.fspath(allow_root)} is not a directory", hint=hint)
        return Options(
            target,
            mode,
            calibration_method,
            {name: _shape(shape) for name, shape in (input_shapes or {}).items()},
            None if inputs is None else tuple(inputs),
            None if outputs is None else tuple(outputs),
            preprocess,
            strict_set,
            disabled,
            grouping,
            memory,
            Reading(signature, state, keep_io_layout, tflite_rounding),
            max_transposes,
            None if min_int8_share is None else float(min_int8_share),
            fixed,
            None if allow_root is None else os.fspath(allow_root),
            allow_non_finite,
        )


def _shape(extents: Sequence[Dim]) -> Shape:
    return tuple(extent if isinstance(extent, str) else int(extent) for extent in extents)


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
    source: str | os.PathLike[str],
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
    """Convert a model file.

    Args:
        source: an ONNX or TFLite file, or a Caffe prototxt.
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
@rarely_collected()
def convert_source(
    source: str | os.PathLike[str],
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
        from tpuconvert.quantizing import calibration_feeds

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


def source_format(path: str | os.PathLike[str]) -> str:
    """Which frontend reads a file: by its content; the name decides only where the bytes say nothing.

    Raises:
        CorruptInputError: the file is something else; the message says what.
        UsageError: the file cannot be read.

    """
    from tpuconvert.frontends.sniffing import identify_file

    path = os.fspath(path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise UsageError(f"{path}: is a pipe or a device, not a file", hint="save the model to a file first")
    kind = identify_file(path)
    if kind is not None:
        if kind.id in SOURCE_FORMATS:
            return SOURCE_FORMATS[kind.id]
        found = f"not a model of a known format: this is {kind.description}"
        raise CorruptInputError(found, file=path, hint=kind.hint)
    by_name = SOURCE_FORMATS.get(os.path.splitext(path)[1].lower().lstrip("."))
    if by_name is None:
        raise CorruptInputError(
            "not a model of a known format, or a damaged one",
            file=path,
            hint="known are ONNX (.onnx), TFLite (.tflite) and Caffe (.prototxt with .caffemodel)",
        )
    return by_name


@np.errstate(all="ignore")
def load_source(
    source: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None,
    options: Options,
    *,
    require_weights: bool = True,
) -> Graph:
    """Read a source file with the frontend of its format.

    Args:
        source: the file.
        weights: the caffemodel of a prototxt.
        options: those of the conversion.
        require_weights: false takes zeros for a missing caffemodel, to look at everything else about a network.

    Raises:
        TpuConvertError: as the frontends do.

    """
    graph = _load(source, weights, options, require_weights=require_weights)
    check_not_empty(graph, options.inputs, options.outputs)
    if not options.allow_non_finite:
        check_finite(graph, lambda name: _origin(source, weights, options, name))
    return graph


def _origin(
    source: str | os.PathLike[str], weights: str | os.PathLike[str] | None, options: Options, name: str
) -> Origin | None:
    """The tensor of a source file that makes a constant of its graph not finite."""
    kind = source_format(source)
    # The file is read again, only where something is wrong.
    if kind == "onnx":
        from tpuconvert.frontends.onnx.origins import find_origin as in_onnx

        return in_onnx(source, name, options.allow_root)
    if kind == "tflite":
        from tpuconvert.frontends.tflite.origins import find_origin as in_tflite

        return in_tflite(source, name)
    from tpuconvert.frontends.caffe.origins import find_origin as in_caffe

    return None if weights is None else in_caffe(weights, name)


def _load(
    source: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None,
    options: Options,
    *,
    require_weights: bool,
) -> Graph:
    for path in (source, weights):
        if path is not None:
            note_input(path)
    kind = source_format(source)
    named = [name for name, shape in options.input_shapes.items() if any(isinstance(extent, str) for extent in shape)]
    if named and kind != "onnx":
        shape = format_shape(options.input_shapes[named[0]])
        raise UsageError(f"input_shapes: {named[0]}={shape}: only ONNX models can keep extents open", file=str(source))
    arguments: dict[str, Any] = {
        "input_shapes": options.input_shapes or None,
        "inputs": options.inputs,
        "outputs": options.outputs,
        **options.reading.arguments(kind),
    }
    if options.fix_inputs:
        if kind == "caffe":
            hint = "leave it out; a Caffe network has no inputs that decide its structure"
            raise UsageError("--fix-input belongs to ONNX and TFLite models only", file=str(source), hint=hint)
        arguments["fixed"] = fixed_arrays(options)
    if options.allow_root is not None:
        if kind != "onnx":
            raise UsageError("--allow-root belongs to ONNX models only", file=str(source), hint="leave it out")
        arguments["allow_root"] = options.allow_root
    if kind == "tflite" and options.quantize is None:
        arguments["hybrid"] = "dynamic"  # float models repeat the kernels; ranges of int8 come from calibration
    if kind == "caffe":
        from tpuconvert.frontends import caffe

        graph = caffe.load(source, weights, require_weights=require_weights, **arguments)
        if weights is None and any(value.is_constant for value in graph.values):
            graph.notes.append("no weight file was given: weights are taken as zeros")
        return graph
    if weights is not None:
        raise UsageError(f"{weights}: a second file belongs to Caffe models only", hint="leave it out")
    if kind == "tflite":
        from tpuconvert.frontends import tflite

        return tflite.load(source, **arguments)
    from tpuconvert.frontends import onnx

    return onnx.load(source, **arguments)


def fixed_arrays(options: Options) -> dict[str, Array]:
    """The values of fixed inputs."""
    return {name: np.asarray(value) for name, value in options.fix_inputs.items()}


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
        from tpuconvert.quantizing import in_integers

        graph, more = in_integers(graph, options, calibration, ranges, progress, expected)
        notes += more
    if options.strict_set:
        expand_composites(graph, is_expandable)
        check_expanded(graph)
    provide_tensors(graph, options.chip, options.disabled)
    notes += check_legality(graph, options.chip)
    check_transposes(graph, options.max_transposes)
    if options.min_int8_share is not None:
        from tpuconvert.integer_share import check_integer_share

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


def with_preprocessing_of(graph: Graph, options: Options) -> Options:
    """The options with the preprocessing that the source file states about itself, where none was given."""
    if options.preprocess is not None and len(graph.input_ports) == 1 and len(graph.input_ports[0].shape) == 4:
        options.preprocess.check_fits(graph.input_ports[0].shape)
    if options.preprocess is not None or not graph.metadata:
        return options
    from tpuconvert.frontends.tflite.metadata import preprocessing
    from tpuconvert.preprocess import Preprocess

    stated = preprocessing(graph.metadata, options.reading.layout)
    return replace(options, preprocess=Preprocess.from_mapping(stated)) if stated else options


def has_integers(graph: Graph) -> bool:
    """Whether some tensor between nodes holds integers that stand for real numbers."""
    return any(value.quant is not None and value.dtype.is_integer for value in graph.values)


def is_quantized_source(graph: Graph) -> bool:
    """Whether the source file brought scales of its own."""
    return any(value.quant is not None for value in graph.values if not value.is_constant)


def _check_calibration(options: Options, calibration: CalibrationSource | None) -> None:
    if calibration is not None and options.quantize is None:
        raise UsageError("calibration samples without quantization", hint="add --quantize int8, or leave them out")


def _version() -> str:
    import tpuconvert

    return tpuconvert.__version__
