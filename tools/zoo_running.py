"""Convert exported models in float and to INT8, and compare them with ONNX Runtime."""

import json
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from zoo_files import Array, Export, exports, load_samples

import tpuconvert as tc
from tpuconvert.options import Options
from tpuconvert.schema.cost import macs
from tpuconvert.schema.errors import UNKNOWN_SHAPE
from tpuconvert.verify.source_comparison import verify_source
from tpuconvert.verify.verification import FLOAT_TOLERANCE, Thresholds

OK = "ok"
NUMBER = "ok with a number"
EXPORTER = "exporter refuses"
REFUSED = "refused"
DIFFERENT = "float differs"
INTERNAL = "internal error"
OUTCOMES = {
    OK: "converted; the float model agrees with the source",
    NUMBER: "the same with a static batch (`--input-shapes`), which an operator requires",
    EXPORTER: "PyTorch wrote no file",
    REFUSED: "rejected by tpuconvert, with a reason",
    DIFFERENT: "the float model differs from the source",
    INTERNAL: "a bug in tpuconvert",
}
"""Outcome of a model -> its meaning."""

CALIBRATION = 8
"""Number of samples that calibrate. The following ones are compared."""

MIN_COSINE = 0.99
"""Smallest cosine similarity of INT8 outputs that is expected."""

VERIFIED_MACS = 100_000_000
"""Largest number of multiply-accumulates of a model whose tensors are compared with the source by the reference."""

OPEN_BATCHES = (1, 3)
"""Batch sizes with which models with a symbolic batch run."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of the conversion of one exported model.

    Attributes:
        export: the export.
        outcome: key of OUTCOMES.
        stage: step that failed: ``check``, ``float``, ``verify``, ``run float``, ``int8`` or ``run int8``.
        reason: reason for the failure; for ``ok with a number`` the operators that need a fixed batch size.
        difference: largest difference of the float model's outputs from ONNX Runtime's, as a share of their range.
        cosine: smallest cosine of an INT8 output with ONNX Runtime's.
        centered: the same after the mean of the samples is subtracted from each element; None for equal outputs.
        sqnr: smallest signal-to-quantization-noise ratio of an output, in dB.
        share: share of the multiply-accumulates that are computed in integers; None if an extent is symbolic.
        source_nodes: number of nodes of the source's main graph.
        float_nodes: number of nodes of the float model.
        int8_nodes: number of nodes of the INT8 model.
        float_seconds: CPU time of the float conversion.
        int8_seconds: CPU time of the INT8 conversion with its calibration.
        seconds: total time.
    """

    export: Export
    outcome: str
    stage: str = ""
    reason: str = ""
    difference: float | None = None
    cosine: float | None = None
    centered: float | None = None
    sqnr: float | None = None
    share: float | None = None
    source_nodes: int | None = None
    float_nodes: int | None = None
    int8_nodes: int | None = None
    float_seconds: float | None = None
    int8_seconds: float | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = [self.export.name, self.outcome, self.stage, self.reason]
        if self.cosine is not None:
            parts.append(f"cosine {self.cosine:.4f}, {self.sqnr:.1f} dB")
        return ": ".join(filter(None, parts)) + f" ({self.seconds:.1f} s)"

    def to_line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_line(line: str) -> "Outcome":
        """Read one line of JSON."""
        entry = json.loads(line)
        return Outcome(Export(**entry.pop("export")), **entry)


class TimeLimitError(Exception):
    """A model took longer than allowed."""


class DifferentError(Exception):
    """The outputs of the float model differ from those of the source."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitError inside the block after this number of seconds."""

    def stop(_: int, __: FrameType | None) -> None:
        raise TimeLimitError(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(
    folder: Path,
    networks: Sequence[str] = (),
    exporters: Sequence[str] = ("torchscript", "dynamo"),
    opsets: Sequence[int] = (),
    chip: str = "bm1686",
    seconds: float = 300.0,
    log: Path | None = None,
) -> list[Outcome]:
    """Convert the models of a folder.

    Args:
        folder: folder created by ``zoo.py make``.
        networks: names of the networks; empty for all.
        exporters: names of the exporters.
        opsets: opsets; empty for all.
        chip: target chip.
        seconds: time limit of a model.
        log: outcomes are appended to it; models in it are not run again.

    Returns:
        All outcomes, in the order of the models' names.
    """
    known = read_log(log)
    outcomes = []
    for export in exports(folder):
        is_chosen = export.exporter in exporters and (not opsets or export.opset in opsets)
        if not is_chosen or (networks and export.network not in networks):
            continue
        if export not in known:
            _append(log, json.dumps({"begun": asdict(export)}))
            known[export] = outcome = run_export(export, folder, chip, seconds)
            _append(log, outcome.to_line())
            print(outcome, flush=True)
        outcomes.append(known[export])
    return outcomes


def read_log(log: Path | None) -> dict[Export, Outcome]:
    """Return the outcomes of an earlier run. A model that was started but has no outcome crashed the process."""
    found: dict[Export, Outcome] = {}
    if log is None or not log.exists():
        return found
    for line in log.read_text(encoding="utf-8").splitlines():
        if line.startswith('{"begun"'):
            export = Export(**json.loads(line)["begun"])
            found[export] = Outcome(export, INTERNAL, reason="the process ended")
        else:
            outcome = Outcome.from_line(line)
            found[outcome.export] = outcome
    return found


def _append(log: Path | None, line: str) -> None:
    if log is not None:
        with log.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")


def run_export(export: Export, folder: Path, chip: str, seconds: float, plugins: Sequence[Path] = ()) -> Outcome:
    """Convert one model in float and to INT8. Every exception becomes an outcome."""
    refusal = export.refusal(folder)
    if refusal:
        return Outcome(export, EXPORTER, reason=refusal)
    begun = time.monotonic()
    trial = Trial(export.path(folder), load_samples(folder, export.network), chip, plugins)
    outcome = Outcome(export, OK)
    try:
        with time_limit(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            trial.run()
    except DifferentError as error:
        outcome = replace(outcome, outcome=DIFFERENT, stage=trial.stage, reason=str(error))
    except tc.UnsupportedError as error:
        problem = next((item for item in error.problems if item.kind is not UNKNOWN_SHAPE), error.problems[0])
        reason = f"{problem.op}: {problem.message or problem.kind.heading}"
        outcome = replace(outcome, outcome=REFUSED, stage=trial.stage, reason=reason)
    except tc.TpuConvertError as error:
        end = INTERNAL if error.exit_code == 1 else REFUSED
        outcome = replace(outcome, outcome=end, stage=trial.stage, reason=_first_lines(error))
    except Exception as error:  # any other exception is a bug to report
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{_first_lines(error)} ({Path(frame.filename).name}:{frame.lineno})"
        outcome = replace(outcome, outcome=INTERNAL, stage=trial.stage, reason=reason)
    if outcome.outcome == OK and trial.needs_number:
        outcome = replace(outcome, outcome=NUMBER, reason=trial.needs_number)
    return replace(outcome, **trial.measurements(), seconds=time.monotonic() - begun)


def _first_lines(error: BaseException) -> str:
    text = " | ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return f"{type(error).__name__}: {text}"[:300]


class Trial:
    """The conversions and runs of one model.

    ``stage`` is the current step. ``needs_number`` names the operators that need a fixed batch size; it is empty if
    there are none.

    Args:
        path: path of the model.
        samples: samples of batch 1.
        chip: to convert for.
        plugins: plugins of the conversion.
    """

    def __init__(self, path: Path, samples: list[dict[str, Array]], chip: str, plugins: Sequence[Path]) -> None:
        self.path, self.samples, self.chip, self.plugins = path, samples, chip, plugins
        self.stage = "check"
        self.needs_number = ""
        self._found: list[dict[str, Any]] = []
        self._batch_axes = batch_axes(path)
        self._source_nodes = len(onnx.load(str(path), load_external_data=False).graph.node)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self._runtime = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._reads = {value.name for value in self._runtime.get_inputs()}
        self._names = [value.name for value in self._runtime.get_outputs()]

    def run(self) -> None:
        """Convert the model and compare it.

        A model that cannot be converted with a symbolic batch is converted with each of OPEN_BATCHES.

        Raises:
            DifferentError: the float model differs from the source.
        """
        if not self._batch_axes:
            self._run((1,), {})
            return
        try:
            self._run(OPEN_BATCHES, {})
        except tc.UnsupportedError as error:
            if any(problem.kind is not UNKNOWN_SHAPE for problem in error.problems):
                raise
            self.needs_number = ", ".join(dict.fromkeys(problem.op for problem in error.problems))
            self._found.clear()
            for size in OPEN_BATCHES:
                self._run((size,), self._shapes(size))

    def measurements(self) -> dict[str, Any]:
        """Return the measurements of an Outcome, as far as the steps succeeded."""
        worst: dict[str, Any] = {"source_nodes": self._source_nodes}
        for key, choose in (("difference", max), ("cosine", min), ("centered", min), ("sqnr", min)):
            values = [found[key] for found in self._found if found.get(key) is not None]
            worst[key] = choose(values) if values else None
        for key in ("share", "float_nodes", "int8_nodes", "float_seconds", "int8_seconds"):
            worst[key] = self._found[0].get(key) if self._found else None
        return worst

    def _run(self, sizes: Sequence[int], shapes: dict[str, tuple[int, ...]]) -> None:
        """Convert once, with samples of the first batch size, and run with batches of every size."""
        found: dict[str, Any] = {}
        options: dict[str, Any] = {"chip": self.chip, "input_shapes": shapes}
        self.stage = "check"
        tc.check(self.path, plugins=self.plugins, **options)
        self._found.append(found)
        self.stage = "float"
        begun = time.process_time()
        model = tc.convert(self.path, plugins=self.plugins, **options)
        found |= {"float_seconds": time.process_time() - begun, "float_nodes": len(model.graph.nodes)}
        feeds = self._feeds(sizes[0], self.samples[:CALIBRATION])
        if sum(macs(node) or 0 for node in model.graph.nodes) <= VERIFIED_MACS:
            self.stage = "verify"
            verification = verify_source(model, self.path, None, Options.of(**options), feeds, samples=1)
            if failures := verification.failures(Thresholds.default(model)):
                raise DifferentError(failures[0])
        self.stage = "run float"
        difference = found["difference"] = max(one.relative for one in self._compare(model, sizes))
        if not difference <= FLOAT_TOLERANCE:
            raise DifferentError(f"{difference:.3g} of the range from ONNX Runtime, expected at most {FLOAT_TOLERANCE}")
        self.stage = "int8"
        begun = time.process_time()
        model = tc.convert(self.path, plugins=self.plugins, quantize="int8", calibration=feeds, **options)
        found |= {"int8_seconds": time.process_time() - begun, "int8_nodes": len(model.graph.nodes)}
        found["share"] = integer_share(model)
        self.stage = "run int8"
        compared = self._compare(model, sizes)
        found["cosine"] = min(one.cosine for one in compared)
        found["centered"] = min((one.centered for one in compared if one.centered is not None), default=None)
        found["sqnr"] = min(one.sqnr for one in compared)

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

    def _compare(self, model: tc.Model, sizes: Sequence[int]) -> "list[Comparison]":
        """Compare every output with ONNX Runtime's, on batches of every size of samples that did not calibrate."""
        samples = self.samples[CALIBRATION:] or self.samples
        found = {name: Comparison() for name in self._names}
        with tc.Session(model, threads=1) as session:
            for feeds in (feeds for size in sizes for feeds in self._feeds(size, samples)):
                given = session.run(feeds)
                wanted = self._runtime.run(self._names, feeds)
                for name, array in zip(self._names, wanted, strict=True):
                    found[name].add(array, given[name])
        return list(found.values())


class Comparison:
    """Comparison of one output with ONNX Runtime's, over all samples."""

    def __init__(self) -> None:
        self._wanted: list[Array] = []
        self._given: list[Array] = []

    def add(self, wanted: Array, given: Array) -> None:
        """Add the output of one run.

        Raises:
            DifferentError: the shapes differ.
        """
        if wanted.shape != given.shape:
            raise DifferentError(f"an output has shape {given.shape}, ONNX Runtime gives {wanted.shape}")
        self._wanted.append(wanted.astype(np.float64).ravel())
        self._given.append(given.astype(np.float64).ravel())

    @property
    def _pair(self) -> tuple[Array, Array]:
        return np.concatenate(self._wanted), np.concatenate(self._given)

    @property
    def relative(self) -> float:
        """Largest difference as a share of the range."""
        a, b = self._pair
        extent = float(np.ptp(a)) or float(np.abs(a).max()) or 1.0
        return float(np.abs(a - b).max()) / extent

    @property
    def cosine(self) -> float:
        """Cosine similarity."""
        a, b = self._pair
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(a @ b) / size if size else float(np.array_equal(a, b))

    @property
    def centered(self) -> float | None:
        """Cosine similarity of the deviations from each element's mean over the runs of the first batch size.

        Elements that are equal in all samples add nothing to it, unlike to the cosine similarity. None if all outputs
        of the source are equal.
        """
        count = sum(array.shape == self._wanted[0].shape for array in self._wanted)
        a, b = (np.stack(arrays[:count]) for arrays in (self._wanted, self._given))
        a, b = a - a.mean(0), b - b.mean(0)
        if not a.any():
            return None
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float((a * b).sum()) / size if size else 0.0

    @property
    def sqnr(self) -> float:
        """Signal-to-quantization-noise ratio in dB, at most 200. The signal power is computed without the mean."""
        a, b = self._pair
        noise = float(np.square(a - b).mean())
        signal_power = float(np.var(a)) or float(np.square(a).mean())
        return min(200.0, 10.0 * float(np.log10(max(signal_power, 1e-300) / max(noise, 1e-300))))


def batch_axes(path: Path) -> dict[str, int]:
    """Return input name -> axis of the symbolic batch, for inputs that have one."""
    found = {}
    for value in onnx.load(str(path), load_external_data=False).graph.input:
        for axis, extent in enumerate(value.type.tensor_type.shape.dim):
            if extent.dim_param:
                found[value.name] = axis
    return found


def integer_share(model: tc.Model) -> float | None:
    """Return the share of multiply-accumulates whose first operand is integer; None if their number is 0 or unknown."""
    counts = [(macs(node), node) for node in model.graph.nodes]
    known = [(count, node) for count, node in counts if count is not None]
    total = sum(count for count, _ in known)
    if len(known) < len(counts) or not total:
        return None
    return sum(count for count, node in known if node.inputs[0] is not None and node.inputs[0].dtype.is_integer) / total
