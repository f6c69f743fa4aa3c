"""The parts of the benchmark; each returns one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import tpuconvert as tc
from tools.bench.engines import Job, open_session
from tools.bench.models import OURS, Model, float_model, int8_model
from tools.bench.networks import NETWORKS
from tools.bench.peak import ProbeError, build_probe, steps_per_run
from tools.bench.prepare import ready
from tools.bench.results import Kernels, Memory, Part, Result
from tools.bench.rounds import Measured, measure, measure_loads
from tools.bench.trained import trained_models
from tools.bench.worker import Worker

CLASSIFIERS = ("resnet50", "mobilenetv2")
PEAK = "peak of the processor"
ALONE = f"{OURS}, 1 thread"
PROFILED_RUNS = 15
LOADS = 9
"""Number of loads per engine. Engines take turns; a load takes tenths of a second."""


@dataclass(frozen=True)
class Settings:
    """Settings of the parts.

    Args:
        folder: folder for the files.
        networks: names of networks; empty for all.
        trained: names of trained models; empty for all.
        cpus: processors to use; a part with one thread uses the first.
        rounds: number of turns per engine.
        seconds: duration of a turn.
        backend: backend of tpuconvert.
        tell: called with a line of text before a long operation.
    """

    folder: Path
    networks: tuple[str, ...]
    trained: tuple[str, ...]
    cpus: tuple[int, ...]
    rounds: int
    seconds: float
    backend: str
    tell: Callable[[str], None]

    def select(self, possible: Iterable[str]) -> list[str]:
        """Return the networks of ``possible`` that are selected; all if no selection was made."""
        return [name for name in possible if not self.networks or name in self.networks]


def int8_part(settings: Settings) -> Part:
    """INT8, one thread."""
    results = [_run_rounds(settings, _int8(settings, name)) for name in _all(settings)]
    about = (
        "One thread, batch 1. Median processor time, and for other engines the ratio of their time to the time "
        "of tpuconvert."
    )
    return Part("int8", "INT8, one thread", about, tuple(results))


def threads_part(settings: Settings) -> Part:
    """INT8, one thread per processor; tpuconvert also with one thread in the same rounds."""
    count, results = len(settings.cpus), []
    for name in _all(settings):
        model = _int8(settings, name)
        jobs = [dataclasses.replace(job, threads=count) for job in model.jobs]
        jobs.append(dataclasses.replace(model.jobs[0], label=ALONE))
        settings.tell(f"{name}: INT8, {count} threads")
        engines = measure(jobs, list(settings.cpus), settings.rounds, settings.seconds)
        results.append(Result(name, model.arithmetic, _macs(model), tuple(engines), missing=model.missing))
    about = "Shortest wall time. The last column is the speed-up of tpuconvert over one thread."
    return Part("threads", f"INT8, {count} threads", about, tuple(results))


def float_part(settings: Settings) -> Part:
    """float32, one thread."""
    names = settings.select(CLASSIFIERS)
    results = [
        _run_rounds(settings, float_model(name, settings.folder, settings.backend), peak=False) for name in names
    ]
    return Part("float32", "float32, one thread", "As above, in float32.", tuple(results))


def load_part(settings: Settings) -> Part:
    """Load time: from a file to a model that can run."""
    results = []
    for name in settings.select(CLASSIFIERS):
        model = _int8(settings, name)
        settings.tell(f"{name}: loading")
        engines = measure_loads(model.jobs, list(settings.cpus[:1]), LOADS)
        results.append(Result(name, model.arithmetic, _macs(model), tuple(engines), missing=model.missing))
    about = "Time to open an INT8 model: verification, planning and packing, without the import of the engine."
    return Part("load", "Loading, one thread", about, tuple(results))


def memory_part(settings: Settings) -> Part:
    """Resident memory of a process that loads and runs a model with tpuconvert."""
    rows = []
    for name in _all(settings):
        settings.tell(f"{name}: memory")
        (job, *_) = _int8(settings, name).jobs
        with Worker(job, list(settings.cpus[:1])) as worker:
            worker.prepare()
            before = worker.peak_bytes()
            worker.load()
            worker.run(3)
            peak = worker.peak_bytes()
        rows.append(Memory(name, before, peak, job.model.stat().st_size, _plan_memory(job)))
    about = (
        "Resident memory of a process that loads and runs an INT8 model: after the import and a small model, and at "
        "its peak. `rest` is the increase without arena and packed weights; the last column is the increase divided "
        "by both."
    )
    return Part("memory", "Memory", about, memory=tuple(rows))


def kernels_part(settings: Settings) -> Part:
    """Time per kernel of tpuconvert."""
    tables = []
    for name in _all(settings):
        (job, *_) = _int8(settings, name).jobs
        settings.tell(f"{name}: kernels")
        with Worker(job, list(settings.cpus[:1])) as worker:
            tables.append(Kernels(name, tuple(worker.kernels(PROFILED_RUNS))))
    about = "Steps of the plan by kernel, one thread; medians over several runs."
    return Part("kernels", "Time per kernel", about, kernels=tuple(tables))


def trained_part(settings: Settings) -> Part:
    """The trained models of the test data."""
    models = trained_models(list(settings.trained), settings.folder / "trained", settings.backend)
    results = [_run_rounds(settings, model, peak=False) for model in models]
    about = (
        "Trained networks as their files are (ONNX Runtime runs ONNX, LiteRT runs TFLite; no engine for Caffe "
        "networks is published any more), and the float ONNX ones in INT8 too."
    )
    return Part("trained", "Trained networks, one thread", about, tuple(results))


PARTS: dict[str, Callable[[Settings], Part]] = {
    "int8": int8_part,
    "threads": threads_part,
    "float32": float_part,
    "load": load_part,
    "memory": memory_part,
    "kernels": kernels_part,
    "trained": trained_part,
}


def _all(settings: Settings) -> list[str]:
    return settings.select(NETWORKS)


def _int8(settings: Settings, name: str) -> Model:
    settings.tell(f"{name}: preparing")
    model = int8_model(name, settings.folder, settings.backend)
    if not model.jobs:
        raise SystemExit(f"{name}: {dict(model.missing)[OURS]}")
    return model


def _run_rounds(settings: Settings, model: Model, *, peak: bool = True) -> Result:
    if not model.jobs:
        return Result(model.network, model.arithmetic, 0, (), missing=model.missing)
    settings.tell(f"{model.network}: {model.arithmetic}, 1 thread")
    jobs, missing, probe = list(model.jobs), list(model.missing), settings.folder / "peak.so"
    if peak:
        try:
            jobs.append(Job("peak", PEAK, ready(probe, build_probe), model.jobs[0].feeds))
        except ProbeError as error:
            missing.append((PEAK, str(error)))
    measurements = measure(jobs, list(settings.cpus[:1]), settings.rounds, settings.seconds)
    engines, macs = [each for each in measurements if each.label != PEAK], _macs(model)
    result = Result(model.network, model.arithmetic, macs, tuple(engines), missing=tuple(missing))
    limit = next((each for each in measurements if each.label == PEAK), None)
    return result if limit is None else _with_peak(result, limit, steps_per_run(probe))


def _with_peak(result: Result, limit: Measured, steps: int) -> Result:
    share = None if limit.ratio is None else result.macs / steps * limit.ratio.median
    return dataclasses.replace(result, peak=1e3 * steps / limit.cpu_ms, peak_share=share)


def _plan_memory(job: Job) -> dict[str, int]:
    with open_session(job, job.model) as session:
        return session.memory


def _macs(model: Model) -> int:
    from tpuconvert.schema.graph.cost import macs

    return sum(macs(node) or 0 for node in tc.load(model.jobs[0].model).graph.nodes)
