"""A conversion: source -> graph -> optimized graph -> quantized graph -> model.

Each step is one function. It takes the result of the step before and the options:

====================  =================================  =====================================================
``load_source``       ``source_loading.py``              files to the graph of a frontend
``optimize_graph``    ``optimization.py``                graph to :class:`OptimizedGraph`
``quantize_graph``    ``quantization/quantization.py``   optimized graph and samples to :class:`QuantizedGraph`
``build_model``       ``model_building.py``              quantized graph to :class:`Model`
====================  =================================  =====================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.conversion.additions.pixel_tables import tabulate_pixels
from tpuconvert.conversion.model_building import QuantizedGraph, build_model
from tpuconvert.conversion.optimization import OptimizedGraph, optimize_graph
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.quantization.calibration_feeds import calibration_feeds
from tpuconvert.conversion.recipe import make_recipe
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source, with_preprocessing_of
from tpuconvert.model.model import Model
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.file.file_model import LateMetadata
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.mapped_constants import large_files
from tpuconvert.schema.system.gc_control import reduced_gc_frequency
from tpuconvert.schema.system.input_files import noting_inputs
from tpuconvert.schema.system.memory_errors import MemoryErrors

if TYPE_CHECKING:
    from tpuconvert.conversion.pass_instrumentation import Watch
    from tpuconvert.conversion.quantization.accuracy_check import AccuracyCheck
    from tpuconvert.conversion.quantization.quantization import CalibrationCache
    from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges
    from tpuconvert.samples.calibration_data import CalibrationSource, FeedSource


def with_sources(model: Model, files: Iterable[str]) -> Model:
    """Return a model with the existing files that its conversion has read, without files of ``open_source``."""
    return replace(model, sources=tuple(file for file in files if os.path.exists(file)))


class Conversion:
    """A conversion with checked options and loaded plugins.

    Args:
        options: the options.
        calibration: samples that determine ranges and refine weights.
        ranges: measured ranges for quantization. If they are given, samples only refine the weights.
        cache: calibration that several conversions with the same options for ranges share.
        progress: receives the stages.
        watch: traces, dumps and validates the optimizer's passes.
        device: chip of the vendor's compiler, of whose export the model gets a note.
    """

    def __init__(
        self,
        options: Options,
        calibration: CalibrationSource | None = None,
        *,
        ranges: MeasuredRanges | None = None,
        cache: CalibrationCache | None = None,
        progress: Progress = SILENT,
        watch: Watch | None = None,
        device: str = "",
    ) -> None:
        self._options = options
        self._calibration = calibration
        self._ranges = ranges
        self._cache = cache
        self._progress = progress
        self._watch = watch
        self._device = device
        self._feeds: FeedSource | None = None
        self._check: AccuracyCheck | None = None

    def of_source(self, source: Source) -> Model:
        """Convert a source to a model with its recipe. ``Model.sources`` are the files that were read."""
        with (
            MemoryErrors("the conversion"),
            noting_inputs() as files,
            np.errstate(all="ignore"),
            reduced_gc_frequency(),
        ):
            model = self._of_source(source)  # ``check_finite`` and ``verify`` detect infinities and NaN
        return with_sources(model, files)

    def of_graph(self, graph: Graph) -> Model:
        """Convert the graph of a frontend to a model without recipe. The graph is changed in place."""
        try:
            with MemoryErrors("the conversion", graph.file):
                optimized = optimize_graph(graph, self._options, progress=self._progress, watch=self._watch)
                return build_model(self._quantize(optimized), self._options)
        except ShapeError as error:  # of an operator that the optimizer added
            error.file = error.file or graph.file
            raise

    def _of_source(self, source: Source) -> Model:
        self._check_options()
        self._progress.stage("load")
        graph = load_source(source, self._options)
        files = graph.files
        if self._ranges is not None:
            self._ranges.check_source(source, files)
        self._options = with_preprocessing_of(graph, self._options)
        self._prepare_samples(graph)
        model = self._with_golden_vectors(self._measured(self.of_graph(graph)))
        mapped = large_files(model.graph)
        recipe = make_recipe(source, self._options, self._feeds, self._ranges, files, mapped, self._device)
        others = model.metadata
        metadata = LateMetadata(others, "recipe", recipe) if mapped else {**others, "recipe": recipe()}
        return Model(replace(model.content, metadata=metadata))

    def _check_options(self) -> None:
        """Refuse samples that have no purpose, and limits that need samples.

        Raises:
            UsageError: the options and samples do not fit.

        """
        options = self._options
        if self._calibration is not None and options.quantize is None and options.weight_type == "float32":
            hint = "add --quantize int8 or --weight-type int4, or leave them out"
            raise UsageError("calibration samples without quantization", hint=hint)
        if options.strict_accuracy and self._calibration is None:
            hint = "add --calibration; a source that is quantized already keeps its integers, and has no float outputs"
            raise UsageError("strict_accuracy without calibration samples, on which accuracy is measured", hint=hint)
        if self._watch is not None:
            self._watch.check_names()

    def _prepare_samples(self, graph: Graph) -> None:
        """Read the samples for the inputs of the graph, and prepare the measurement of the accuracy."""
        if self._calibration is None:
            return
        # 185 ms: imports the quantizer
        from tpuconvert.conversion.quantization.accuracy_check import AccuracyCheck

        self._feeds = calibration_feeds(graph, self._options, self._calibration)
        self._calibration, self._check = self._feeds, AccuracyCheck()

    def _quantize(self, optimized: OptimizedGraph) -> QuantizedGraph:
        """Quantize the optimized graph, or its weights only, as the options request."""
        graph, options = optimized.graph, self._options
        if (options.weight_type, options.activation_type) != ("float32", "float32"):
            # 185 ms: imports the quantizer
            from tpuconvert.conversion.quantization.packed_weights import quantize_matmuls

            return quantize_matmuls(graph, options, self._calibration, self._progress, self._check)
        if options.quantize is None and all(value.quant is None for value in graph.values):
            return QuantizedGraph(graph)
        # 185 ms: imports the quantizer
        from tpuconvert.conversion.quantization.quantization import quantize_graph

        quantized = quantize_graph(
            optimized,
            options,
            self._calibration,
            ranges=self._ranges,
            cache=self._cache,
            check=self._check,
            progress=self._progress,
        )
        if options.fuse_preprocess != "none":
            tabulate_pixels(quantized.graph, options.chip)
        return quantized

    def _measured(self, model: Model) -> Model:
        """Return the model with the accuracy of its outputs, after checks of accuracy and exactness."""
        options = self._options
        if self._check is not None:
            self._progress.stage("measure")
            model = self._check.checked(model, is_strict=options.strict_accuracy)
        return self.with_device_notes(model)

    def with_device_notes(self, model: Model) -> Model:
        """Return the model with the notes of its device, after the check of ``exact_on``."""
        exact_on = self._options.exact_on
        if exact_on == "none" and not self._device:
            return model
        # 30 ms: imports the exporter
        from tpuconvert.conversion.device_checks import check_exact, with_device_notes

        if exact_on != "none":
            check_exact(model, exact_on)
        return with_device_notes(model, self._device) if self._device else model

    def _with_golden_vectors(self, model: Model) -> Model:
        if not self._options.golden:
            return model
        # 22 ms: imports the session and its engine
        from tpuconvert.model.golden import KEY, golden_vectors

        vectors = golden_vectors(model.graph, self._feeds, self._options.golden)
        return Model(replace(model.content, metadata={**model.metadata, KEY: vectors}))
