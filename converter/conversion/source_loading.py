"""Load a source as a graph: call the frontend of its format, and make the checks common to all formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuconvert.conversion.additions.appended_nms import append_nms
from tpuconvert.conversion.final_checks import check_finite, check_not_empty
from tpuconvert.conversion.options.nms_options import NmsTail
from tpuconvert.conversion.options.options import Options, default_of
from tpuconvert.conversion.source import Source, unexpected_second_file
from tpuconvert.frontends import caffe, onnx, tflite
from tpuconvert.frontends.integer_range import note_inexact_integers
from tpuconvert.frontends.open_extents import KEEP
from tpuconvert.frontends.tflite.file.stated_preprocessing import preprocessing
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.shape_buckets import KEY as BUCKETS
from tpuconvert.schema.graph.shape_buckets import Bucket, extents_of, format_buckets
from tpuconvert.schema.system.constant_budget import constant_budget
from tpuconvert.schema.system.gc_control import collect_if_due, note_arrays
from tpuconvert.schema.system.limits import current_limits, reading_time
from tpuconvert.schema.types import Array, Dim, format_shape

if TYPE_CHECKING:
    from tpuconvert.frontends.origins import Origin


@np.errstate(all="ignore")
def load_source(source: Source, options: Options, *, require_weights: bool = True) -> Graph:
    """Read a source with the frontend of its format.

    Args:
        source: the source.
        options: options of the conversion.
        require_weights: False replaces a missing caffemodel by zeros, to inspect a network without its weights.

    Raises:
        TpuConvertError: the frontend reports an error.

    """
    collect_if_due()
    source.note()
    with reading_time(source.name), constant_budget(source.name, source.size):
        graph = _load(source, options, require_weights=require_weights)
        note_inexact_integers(graph, options.chip)
    note_arrays(sum(value.data.nbytes for value in graph.values if value.data is not None))
    if options.fuse_preprocess != "none":
        # 30 ms: imports the session
        from tpuconvert.conversion.additions.fused_preprocess import fuse_preprocess

        fuse_preprocess(graph, _preprocess_of(graph, options), options.fuse_preprocess)
    if options.append_nms is not None:
        append_nms(graph, NmsTail.parse(options.append_nms))
    _store_buckets(graph, options.buckets)
    check_not_empty(graph, options.inputs, options.outputs)
    if not options.allow_non_finite:
        check_finite(graph, lambda name: _find_origin(source, options, name))
    return graph


def _find_origin(source: Source, options: Options, name: str) -> Origin | None:
    """Find the tensor of a source file from which a non-finite constant of its graph was computed."""
    # 60 ms: imports the readers of all formats, and only sources with an error need them
    from tpuconvert.conversion.source_origins import find_origin

    return find_origin(source, name, options.allow_root)


def _load(source: Source, options: Options, *, require_weights: bool) -> Graph:
    kind, file = source.format, source.name
    input_shapes = _shapes_of_buckets(options, kind, file)
    named = [name for name, shape in options.input_shapes.items() if any(isinstance(extent, str) for extent in shape)]
    if named and kind != "onnx":
        shape = format_shape(options.input_shapes[named[0]])
        raise UsageError(
            f"input_shapes: {named[0]}={shape}: only ONNX models can keep extents open", file=file, hint="give numbers"
        )
    arguments: dict[str, Any] = {
        "input_shapes": input_shapes or None,
        "inputs": options.inputs,
        "outputs": options.outputs,
        **_tflite_arguments(options, kind),
    }
    if options.fix_inputs:
        if kind == "caffe":
            hint = "leave it out; a Caffe network has no inputs that decide its structure"
            raise UsageError("--fix-input belongs to ONNX and TFLite models only", file=file, hint=hint)
        arguments["fixed"] = fixed_arrays(options)
    if options.allow_root is not None:
        if kind != "onnx":
            raise UsageError("--allow-root belongs to ONNX models only", file=file, hint="leave it out")
        arguments["allow_root"] = options.allow_root
    if options.max_iterations != default_of("max_iterations"):
        if kind != "onnx":
            raise UsageError("--max-iterations belongs to ONNX models only", file=file, hint="leave it out")
        arguments["limits"] = replace(current_limits(), max_loop_iterations=options.max_iterations)
    if kind == "tflite" and options.quantize is None:
        arguments["hybrid"] = "dynamic"  # without --quantize: as the kernels, which quantize activations at run time
    if kind == "caffe":
        graph = caffe.load(source.path, source.weights, require_weights=require_weights, **arguments)
        if source.weights is None and any(value.is_constant for value in graph.values):
            graph.notes.append("no weight file was given: weights are taken as zeros")
        return graph
    if source.weights is not None:
        raise unexpected_second_file(source.weights)
    if kind == "tflite":
        return tflite.load(source.path, **arguments)
    return onnx.load(source.model, **arguments)


def _shapes_of_buckets(options: Options, kind: str, file: str) -> Mapping[str, Sequence[Dim]]:
    """Return the shapes of all inputs; extents that differ between buckets are taken from the file.

    Raises:
        UsageError: an input has both kinds of shapes, or the source is not an ONNX model.
    """
    buckets = options.buckets
    if not buckets:
        return options.input_shapes
    input_shapes: dict[str, Sequence[Dim]] = dict(options.input_shapes)
    for name in buckets[0]:
        if name in input_shapes:
            hint = "leave one of the options out for this input"
            raise UsageError(f"input '{name}' is in input_shapes and in shapes", file=file, hint=hint)
        shapes = [bucket[name] for bucket in buckets]
        if len(set(map(len, shapes))) > 1:
            raise UsageError(
                f"shapes: input '{name}' has different ranks: {format_buckets(buckets)}",
                file=file,
                hint="give the same number of extents in each",
            )
        input_shapes[name] = [extents[0] if len(set(extents)) == 1 else KEEP for extents in zip(*shapes, strict=True)]
    if kind != "onnx" and any(KEEP in shape for shape in input_shapes.values()):
        hint = "convert one model for each shape with --input-shapes"
        raise UsageError("shapes: only ONNX models can keep extents open", file=file, hint=hint)
    return input_shapes


def _store_buckets(graph: Graph, buckets: Sequence[Bucket]) -> None:
    """Store the buckets in the graph, with the names of all inputs.

    Raises:
        UsageError: a bucket does not fit the inputs.
    """
    if not buckets:
        return
    name = graph.input_ports[0].name
    named = [{port or name: list(shape) for port, shape in bucket.items()} for bucket in buckets]
    for bucket in named:
        extents_of(bucket, graph.input_ports)
    graph.metadata[BUCKETS] = named


TFLITE_OPTIONS = {
    "signature": ("signature", "--signature"),
    "keep_io_layout": ("keep_io_layout", "--nchw-io"),
    "tflite_rounding": ("rounding", "--tflite-rounding"),
}
"""Option of TFLite models -> argument of the frontend, and command-line flag of a value that is not the default."""


def _tflite_arguments(options: Options, kind: str) -> dict[str, Any]:
    """Return the arguments for the TFLite frontend; empty for other formats.

    Raises:
        UsageError: an option differs from its default, but the source has another format.

    """
    if kind == "tflite":
        arguments = {argument: getattr(options, name) for name, (argument, _flag) in TFLITE_OPTIONS.items()}
        return {**arguments, "state": "ports" if options.state == "ports" else "reset"}
    if options.state == "reset":
        raise UsageError("--state reset belongs to TFLite models only", hint="one of auto, ports, none")
    for name, (_argument, flag) in TFLITE_OPTIONS.items():
        if getattr(options, name) != default_of(name):
            raise UsageError(f"{flag} belongs to TFLite models only", hint="leave it out")
    return {}


def has_original_interface(options: Options) -> bool:
    """Return True if another engine that runs the source file accepts the feeds of the converted model."""
    return options.inputs is None and all(
        getattr(options, name) == default_of(name) for name in ("keep_io_layout", "append_nms")
    )


def fixed_arrays(options: Options) -> dict[str, Array]:
    """Return the values of fixed inputs as arrays."""
    return {name: np.asarray(value) for name, value in options.fix_inputs.items()}


def with_preprocessing_of(graph: Graph, options: Options) -> Options:
    """Return the options; if they have no preprocessing, use the one in the metadata of the source file."""
    if options.preprocess is not None and len(graph.input_ports) == 1 and len(graph.input_ports[0].shape) == 4:
        options.preprocess.check_fits(graph.input_ports[0].shape)
    rule = _preprocess_of(graph, options)
    return options if rule is options.preprocess else replace(options, preprocess=rule)


def _preprocess_of(graph: Graph, options: Options) -> Preprocess | None:
    """Return the preprocessing of the options, or else that in the metadata of the source file."""
    if options.preprocess is not None or not graph.metadata:
        return options.preprocess
    stated = preprocessing(graph.metadata, "NHWC" if options.keep_io_layout else "NCHW")
    return options.fused(Preprocess.from_mapping(stated)) if stated else None


def is_quantized_source(graph: Graph) -> bool:
    """Return True if the source file states scales."""
    return any(value.quant is not None for value in graph.values if not value.is_constant)
