"""Convert exported models in float and to INT8, and compare them with ONNX Runtime."""

import json
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

import tpuconvert as tc
from tools.zoo.comparison import DifferentError
from tools.zoo.files import EXPORTERS, VARIANTS, Export, exports
from tools.zoo.outcome import DIFFERENT, EXPORTER, INTERNAL, NUMBER, OK, REFUSED, Outcome, read_log
from tools.zoo.trial import Trial
from tpuconvert.schema.errors import UNKNOWN_SHAPE


class TimeLimitError(BaseException):
    """A model took longer than allowed."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitError inside the block after this number of CPU seconds: waiting for other processes is free."""

    def stop(_: int, __: FrameType | None) -> None:
        raise TimeLimitError(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(
    folder: Path,
    networks: Sequence[str] = (),
    exporters: Sequence[str] = (*EXPORTERS, *VARIANTS),
    opsets: Sequence[int] = (),
    chip: str = "bm1686",
    seconds: float = 300.0,
    log: Path | None = None,
) -> list[Outcome]:
    """Convert the models of a folder.

    Args:
        folder: folder created by ``make``.
        networks: names of the networks; empty for all.
        exporters: keys of EXPORTERS and VARIANTS.
        opsets: opsets; empty for all.
        chip: target chip.
        seconds: limit of a model's CPU time.
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
    trial = Trial(export, folder, chip, plugins)
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
        end = INTERNAL if error.exit_code == 1 or isinstance(error, tc.PluginError) else REFUSED
        outcome = replace(outcome, outcome=end, stage=trial.stage, reason=_first_lines(error))
    except (Exception, TimeLimitError) as error:  # any other exception is a bug to report
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{_first_lines(error)} ({Path(frame.filename).name}:{frame.lineno})"
        outcome = replace(outcome, outcome=INTERNAL, stage=trial.stage, reason=reason)
    if outcome.outcome == OK and trial.needs_number:
        outcome = replace(outcome, outcome=NUMBER, reason=trial.needs_number)
    return replace(outcome, **trial.measurements(), seconds=time.monotonic() - begun)


def _first_lines(error: BaseException) -> str:
    text = " | ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return f"{type(error).__name__}: {text}"[:300]
