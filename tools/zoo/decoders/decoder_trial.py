"""One export of a decoder: converted, compared with transformers, continued, verified, and split into parts."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tpuconvert as tc
from tools.zoo.decoders import decoder_cases as names
from tools.zoo.decoders.decoder_cases import Case
from tools.zoo.files import Array
from tools.zoo.peer import session
from tpuconvert.verify.verification import Thresholds

TOLERANCE = 1e-4
"""Largest difference of the logits, as a share of their range."""

PROGRAMS = "programs"
"""Step that needs the vendor's compiler and simulator."""

COLUMNS = ("convert", "logits", "tokens", "padding", "verify", "plans", "parts", PROGRAMS)
"""Steps of a trial, in order."""

CONTEXT, PROGRAM_CONTEXT = 16, 8
"""Tokens of the parts, and of those that are compiled."""

PAIR = 2
"""Batch of a further conversion of exports with an open one."""


@dataclass
class Trial:
    """The results of one export.

    Attributes:
        case: the export.
        results: by step: empty if it succeeded, or the reason; None if the step does not apply.
    """

    case: Case
    results: dict[str, str | None] = field(default_factory=dict)

    @property
    def is_green(self) -> bool:
        """Return True if every step that applies succeeded."""
        return not any(self.results.values())

    def cells(self) -> list[str]:
        """Return the cell of each step."""
        marks = {None: "-", "": "yes"}
        return [marks.get(self.results.get(step), "no") for step in COLUMNS]


class _Run:
    """The steps of a trial, each of which raises an exception if it fails."""

    def __init__(self, case: Case, folder: Path, chip: str | None) -> None:
        self.case, self.path, self.chip = case, case.path(folder), chip
        with np.load(folder / f"{case.family}.npz") as stored:
            self._stored = dict(stored)
        self.sequence = np.concatenate([self._stored["prompt"], self._stored["tokens"][None, :-1]], 1)

    def convert(self) -> None:
        """Convert the export with default options."""
        self.model = tc.convert(self.path)

    def logits(self) -> None:
        """Compare the logits of the prompt and of single tokens; for an open batch, also a batch of two."""
        check_peer(self.path, self.case, self.sequence, self._stored["logits"])
        compare(self._run_all(self.sequence, names.PROMPT, None), self._stored["logits"])
        if self.case.batch == "open" and self.case.has_caches:
            shapes = {"input_ids": (PAIR, "new_tokens")}
            pair = tc.convert(self.path, source_options=tc.SourceOptions(input_shapes=shapes))
            logits = self._run_all(self.sequence.repeat(PAIR, 0), names.PROMPT, None, pair)
            compare(logits, self._stored["logits"].repeat(PAIR, 0))

    def tokens(self) -> None:
        """Continue the prompt."""
        generation = tc.generate(self.model, tokens=self._stored["prompt"][0], max_new_tokens=names.STEPS)
        if list(generation.new_tokens) != self._stored["tokens"].tolist():
            raise AssertionError(f"tokens {generation.new_tokens}, expected {self._stored['tokens'].tolist()}")

    def padding(self) -> None:
        """Compare the logits after tokens that the mask hides."""
        wide = np.concatenate([np.full((1, names.PADDING), 5), self.sequence], 1)
        mask = (np.arange(wide.shape[1]) >= names.PADDING).astype(np.int64)[None]
        logits = self._run_all(wide, names.PADDING + names.PROMPT, mask)[:, names.PADDING :]
        compare(logits, self._stored["padded"])

    def verify(self) -> None:
        """Compare every tensor with the source."""
        verification = tc.verify(self.model, self.path, data=self._feeds(), oracle="onnxruntime")
        if failures := verification.failures(Thresholds.default(self.model)):
            raise AssertionError(failures[0])

    def plans(self) -> None:
        """Decode with one plan."""
        with tc.Session(self.model, threads=1) as running:
            if reason := running.replanning:
                raise AssertionError(reason)

    def parts(self) -> None:
        """Split the decoder; the export compares the parts with the whole."""
        with tempfile.TemporaryDirectory() as folder:
            tc.export(self.model, Path(folder) / "parts", to="onnx", decoder_context=CONTEXT)

    def programs(self) -> None:
        """Compile the parts with floats of 16 bits, and compare them in the simulator."""
        assert self.chip is not None
        model = tc.convert(self.path, chip=self.chip)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "parts"
            result = tc.export(
                model, target, chip=self.chip, floats="f16", decoder_context=PROGRAM_CONTEXT, compile=True
            )
            result.check()
            if on_host := [part for part, proof in result.proofs.items() if proof["host_nodes"]]:
                raise AssertionError(f"nodes of {', '.join(on_host)} are left to the host")

    def _feeds(self) -> dict[str, Array]:
        """Return one sample with all inputs: some tokens, and random caches with some more."""
        past, new = (4 if self.case.has_caches else 0), 3
        generator = np.random.default_rng(0)
        feeds: dict[str, Array] = {
            "input_ids": self.sequence[:, :new],
            names.MASK: np.ones((1, past + new), np.int64),
            names.POSITIONS: np.arange(past, past + new)[None],
        }
        for port in self.model.graph.input_ports:
            if port.name.startswith("past"):
                shape = (1, int(port.shape[1]), past, int(port.shape[3]))
                feeds[port.name] = generator.normal(size=shape).astype(np.float32)
        return {port.name: feeds[port.name] for port in self.model.graph.input_ports}

    def _run_all(self, tokens: Array, prompt: int, mask: Array | None, model: tc.Model | None = None) -> Array:
        """Return the logits of all tokens: a prompt in one run, and the other tokens one by one."""
        with tc.Session(model or self.model, threads=1) as running:
            if not self.case.has_caches:
                positions = np.arange(tokens.shape[1])[None]
                feeds = {"input_ids": tokens, names.MASK: np.ones_like(tokens), names.POSITIONS: positions}
                return running.run({name: feeds[name] for name in ("input_ids", *self.case.other_inputs)})["logits"]
            runs = []
            for first, last in [(0, prompt), *((k, k + 1) for k in range(prompt, tokens.shape[1]))]:
                feeds = {"input_ids": tokens[:, first:last]}
                if mask is not None:
                    feeds[names.MASK] = mask[:, :last]
                runs.append(running.run(feeds)["logits"])
        return np.concatenate(runs, 1)


def check_peer(path: Path, case: Case, tokens: Array, expected: Array) -> None:
    """Compare the export with transformers in ONNX Runtime, so that a wrong export is not a failure of the product.

    Raises:
        AssertionError: they differ.
    """
    runtime = session(path)
    feeds: dict[str, Any] = {"input_ids": tokens}
    feeds |= {names.MASK: np.ones_like(tokens), names.POSITIONS: np.arange(tokens.shape[1])[None]}
    for item in runtime.get_inputs():
        if item.name.startswith("past"):
            feeds[item.name] = np.zeros((1, item.shape[1], 0, item.shape[3]), np.float32)
    (logits,) = runtime.run(["logits"], {item.name: feeds[item.name] for item in runtime.get_inputs()})
    if (difference := relative(logits, expected)) > TOLERANCE:
        raise AssertionError(f"{case.exporter} differs from transformers by {difference:.1e} in ONNX Runtime")


def relative(actual: Array, expected: Array) -> float:
    """Return the largest difference as a share of the range."""
    if actual.shape != expected.shape:
        raise AssertionError(f"shape {actual.shape}, expected {expected.shape}")
    return float(np.abs(actual - expected).max() / np.ptp(expected))


def compare(actual: Array, expected: Array) -> None:
    """Compare logits.

    Raises:
        AssertionError: they differ.
    """
    difference = relative(actual, expected)
    if not difference <= TOLERANCE:
        raise AssertionError(f"logits differ by {difference:.1e} of their range")


def try_case(case: Case, folder: Path, chip: str | None = None) -> Trial:
    """Run the steps of a trial. A conversion that fails ends it.

    Args:
        case: the export.
        folder: folder of the exports.
        chip: chip for which the parts are compiled; None to leave this out.
    """
    trial = Trial(case)
    steps = [step for step in COLUMNS if (step != "padding" or can_pad(case)) and (step != PROGRAMS or chip)]
    run = _Run(case, folder, chip)
    for step in steps if case.has_caches else ("convert", "logits", "verify"):
        method: Callable[[], None] = getattr(run, step)
        try:
            method()
            trial.results[step] = ""
        except Exception as error:  # any failure is a result
            trial.results[step] = f"{type(error).__name__}: {str(error) or 'failed'}"
            if step == "convert":
                break
    return trial


def can_pad(case: Case) -> bool:
    """Return True if the export takes a prompt with hidden tokens at its start.

    ``GroupQueryAttention`` takes them at the end only. Without ``position_ids``, transformers counts hidden tokens too.
    """
    return case.exporter != names.GROUPED and case.inputs == "both"
