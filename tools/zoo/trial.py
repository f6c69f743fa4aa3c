"""One exported model: converted in float and to INT8, and compared with ONNX Runtime."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tpuconvert as tc
from tools.zoo.comparison import Comparison, DifferentError
from tools.zoo.detections import NAMES, Kept
from tools.zoo.files import CALIBRATION, EXPORTERS, Array, Export, load_samples
from tools.zoo.peer import quantize, session
from tpuconvert.conversion.options.options import Options, group_options
from tpuconvert.conversion.source import Source
from tpuconvert.model.integer_share import integer_share
from tpuconvert.schema.errors import UNKNOWN_SHAPE
from tpuconvert.schema.graph.cost import macs
from tpuconvert.verify.difference import FLOAT_TOLERANCE
from tpuconvert.verify.source_comparison import verify_source
from tpuconvert.verify.verification import Thresholds

VERIFIED_MACS = 100_000_000
"""Largest number of multiply-accumulates of a model whose tensors are compared with the source by the reference."""

OPEN_BATCHES = (1, 3)
"""Batch sizes with which models with a symbolic batch run."""


HALF_TOLERANCE = 1e-2
"""Largest difference from a model in FLOAT16, as a share of the range: ONNX Runtime rounds each result to 11 bits."""

Run = Callable[[dict[str, Array]], dict[str, Array]]
"""Function from the inputs to the outputs of a model, both by name."""


class Trial:
    """The conversions and runs of one model.

    ``stage`` is the current step. ``needs_number`` names the operators that need a fixed batch size; it is empty if
    there are none.

    Args:
        export: the model.
        folder: folder of the zoo.
        chip: to convert for.
        plugins: plugins of the conversion.
    """

    def __init__(self, export: Export, folder: Path, chip: str, plugins: Sequence[Path]) -> None:
        self.export, self.path, self.chip, self.plugins = export, export.path(folder), chip, plugins
        self.samples = load_samples(folder, export.network)
        self.stage = "check"
        self.needs_number = ""
        self._measured: list[dict[str, Any]] = []
        self._batch_axes = batch_axes(self.path)
        self._source_nodes = len(onnx.load(str(self.path), load_external_data=False).graph.node)
        self._runtime = session(self.path)
        self._reads = {value.name: value.type for value in self._runtime.get_inputs()}
        self._names = [value.name for value in self._runtime.get_outputs()]

    def run(self) -> None:
        """Convert the model and compare it.

        A model that cannot be converted with a symbolic batch is converted with each of OPEN_BATCHES.

        Raises:
            DifferentError: the float model differs from the source.
        """
        if not self._batch_axes:
            self._run((1,), {})
        else:
            self._run_with_open_batch()
        self._run_peer()

    def _run_with_open_batch(self) -> None:
        try:
            self._run(OPEN_BATCHES, {})
        except tc.UnsupportedError as error:
            if any(problem.kind is not UNKNOWN_SHAPE for problem in error.problems):
                raise
            self.needs_number = ", ".join(dict.fromkeys(problem.op for problem in error.problems))
            self._measured.clear()
            for size in OPEN_BATCHES:
                self._run((size,), self._shapes(size))

    def measurements(self) -> dict[str, Any]:
        """Return the measurements of an Outcome, as far as the steps succeeded."""
        worst: dict[str, Any] = {"source_nodes": self._source_nodes}
        chosen = {"difference": max} | dict.fromkeys(("cosine", "centered", "sqnr", "kept", "peer"), min)
        for key, choose in chosen.items():
            values = [run[key] for run in self._measured if run.get(key) is not None]
            worst[key] = choose(values) if values else None
        for key in ("share", "float_nodes", "int8_nodes", "float_seconds", "int8_seconds"):
            worst[key] = self._measured[0].get(key) if self._measured else None
        return worst

    def _run(self, sizes: Sequence[int], shapes: dict[str, tuple[int, ...]]) -> None:
        """Convert once, with samples of the first batch size, and run with batches of every size."""
        measured: dict[str, Any] = {}
        options: dict[str, Any] = {"chip": self.chip, "input_shapes": shapes}
        self.stage = "check"
        tc.check(self.path, plugins=self.plugins, **group_options(**options))
        self._measured.append(measured)
        feeds = self._feeds(sizes[0], self.samples[:CALIBRATION])
        if not self.export.is_quantized:
            self._run_float(sizes, feeds, options, measured)
        self.stage = "int8"
        begun = time.process_time()
        calibration: dict[str, Any] = {} if self.export.is_quantized else {"quantize": "int8", "calibration": feeds}
        model = tc.convert(self.path, plugins=self.plugins, **group_options(**calibration, **options))
        measured |= {"int8_seconds": time.process_time() - begun, "int8_nodes": len(model.graph.nodes)}
        measured["share"] = integer_share(model.graph.nodes)
        self.stage = "run int8"
        with tc.Session(model, threads=1) as running:
            if set(self._names) >= NAMES:
                measured["kept"] = self._share_of_boxes(running.run)
                return
            compared = self._compare(running.run, sizes)
        measured["cosine"] = min(one.cosine for one in compared)
        measured["centered"] = min((one.centered for one in compared if one.centered is not None), default=None)
        measured["sqnr"] = min(one.sqnr for one in compared)

    def _run_float(
        self, sizes: Sequence[int], feeds: list[dict[str, Array]], options: dict[str, Any], measured: dict[str, Any]
    ) -> None:
        """Convert in float and compare.

        The limit of an output is FLOAT_TOLERANCE, or twice the difference between ONNX Runtime with and without its
        graph optimizations if that is more.

        Raises:
            DifferentError: the float model differs from the source.
        """
        self.stage = "float"
        begun = time.process_time()
        model = tc.convert(self.path, plugins=self.plugins, **group_options(**options))
        measured |= {"float_seconds": time.process_time() - begun, "float_nodes": len(model.graph.nodes)}
        if sum(macs(node) or 0 for node in model.graph.nodes) <= VERIFIED_MACS:
            self.stage = "verify"
            verification = verify_source(model, Source(self.path), Options.of(**options), feeds, samples=1)
            if failures := verification.failures(Thresholds.default(model)):
                raise DifferentError(failures[0])
        self.stage = "run float"
        with tc.Session(model, threads=1) as running:
            compared = self._compare(running.run, sizes)
        measured["difference"] = max(one.relative for one in compared)
        limit = HALF_TOLERANCE if self.export.exporter == "half" else FLOAT_TOLERANCE
        limits = [limit for _ in compared]
        if measured["difference"] > limit:  # rounding alone may change which box or index is the largest
            plain = session(self.path, is_optimized=False)
            own = self._compare(lambda feeds: dict(zip(self._names, plain.run(self._names, feeds), strict=True)), sizes)
            limits = [max(limit, 2 * one.relative) for one in own]
        for name, one, most in zip(self._names, compared, limits, strict=True):
            if not one.relative <= most:
                raise DifferentError(
                    f"{name}: {one.relative:.3g} of the range from ONNX Runtime, expected at most {most:.3g}"
                )

    def _run_peer(self) -> None:
        """Let ONNX Runtime quantize the model with the same samples, and compare that, unless it selects boxes."""
        if self.export.exporter not in EXPORTERS or set(self._names) >= NAMES:
            return
        self.stage = "peer"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "quantized.onnx"
            try:
                quantize(self.path, path, self._feeds(1, self.samples[:CALIBRATION]))
                peer = session(path)
                compared = self._compare(
                    lambda feeds: dict(zip(self._names, peer.run(self._names, feeds), strict=True)),
                    OPEN_BATCHES if self._batch_axes else (1,),
                )
            except Exception as error:  # of another package: it has no figure then
                print(f"{self.export.name}: ONNX Runtime: {type(error).__name__}: {str(error)[:200]}", flush=True)
                return
        self._measured[0]["peer"] = min(one.cosine for one in compared)

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        """Return the input shapes that fix the symbolic batch to this size."""
        first = self._feeds(size, self.samples)[0]
        return {name: first[name].shape for name in self._batch_axes if name in self._reads}

    def _feeds(self, size: int, samples: list[dict[str, Array]]) -> list[dict[str, Array]]:
        """Return samples in batches of this size. The last batch is filled up with the first samples."""
        feeds = []
        for first in range(0, len(samples), size):
            batch = [samples[k % len(samples)] for k in range(first, first + size)]
            feeds.append({name: self._join(name, batch) for name in batch[0] if name in self._reads})
        return feeds

    def _join(self, name: str, batch: list[dict[str, Array]]) -> Array:
        """Concatenate samples along the batch axis of an input."""
        axis = self._batch_axes.get(name)
        return batch[0][name] if axis is None else np.concatenate([sample[name] for sample in batch], axis)

    def _share_of_boxes(self, run: Run) -> float | None:
        """Return the share of ONNX Runtime's boxes that a model finds in the samples that did not calibrate."""
        counts = Kept()
        for feeds in self._feeds(1, self.samples[CALIBRATION:] or self.samples):
            counts.add(dict(zip(self._names, self._runtime.run(self._names, feeds), strict=True)), run(feeds))
        return counts.share

    def _compare(self, run: Run, sizes: Sequence[int]) -> list[Comparison]:
        """Compare every output with ONNX Runtime's, on batches of every size of samples that did not calibrate."""
        samples = self.samples[CALIBRATION:] or self.samples
        comparisons = {name: Comparison() for name in self._names}
        for feeds in (feeds for size in sizes for feeds in self._feeds(size, samples)):
            results = run(feeds)
            expected = self._runtime.run(self._names, feeds)
            for name, array in zip(self._names, expected, strict=True):
                comparisons[name].add(array, results[name])
        return list(comparisons.values())


def batch_axes(path: Path) -> dict[str, int]:
    """Return input name -> axis of the symbolic batch, for inputs that have one."""
    axes = {}
    for value in onnx.load(str(path), load_external_data=False).graph.input:
        for axis, extent in enumerate(value.type.tensor_type.shape.dim):
            if extent.dim_param:
                axes[value.name] = axis
    return axes
