"""Calibration on the workers of a dask scheduler gives the bytes of one process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

import tpuconvert as tc
from tests.support.networks.calibration_runs import PREPROCESS, Example, load_example
from tests.support.networks.small_models import examples
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.errors import MissingExtraError, ResourceLimitError, UsageError
from tpuconvert.workers import cluster, environment
from tpuconvert.workers.cluster import Cluster
from tpuconvert.workers.workers import ThisProcess

distributed = pytest.importorskip("distributed", reason="needs the extra 'distributed'")
config = pytest.importorskip("dask.config")


@contextmanager
def start_cluster(**settings: Any) -> Iterator[distributed.LocalCluster]:
    """A scheduler on loopback with workers in processes of their own, which are started again if they end.

    By default a ``LocalCluster`` removes a worker for good if it is absent 15 seconds after it was killed, for example
    because it was killed again at that moment.
    """
    given = {"n_workers": 1, "threads_per_worker": 1, "host": "127.0.0.1", "silence_logs": 50, **settings}
    with (
        config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        distributed.LocalCluster(dashboard_address="127.0.0.1:0", **given) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def dask() -> Iterator[distributed.LocalCluster]:
    with start_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def example() -> Example:
    return load_example()


@pytest.fixture(scope="module")
def expected(example: Example) -> str:
    return example.digest(ThisProcess())


def wait_for_workers(dask: distributed.LocalCluster, count: int) -> list[int]:
    """Start or end workers until there are ``count``, and return their process ids."""
    dask.scale(count)
    with distributed.Client(dask.scheduler_address, set_as_default=False) as client:
        pids: list[int] = []
        while len(pids) != count:  # a worker that was killed is in the list until the scheduler notices
            client.wait_for_workers(count, timeout=60)
            with suppress(OSError):
                pids = sorted(client.run(os.getpid).values())
        return pids


def kill_during_calibration(example: Example, dask: distributed.LocalCluster, seed: int, count: int) -> str:
    """Kill one of the workers after a random number of samples."""
    chosen = random.Random(seed)
    at, killed = chosen.randrange(0, 90), []
    pids = wait_for_workers(dask, count)
    with Cluster(dask.scheduler_address) as workers:

        def progress(done: int) -> None:
            if done >= at and not killed:
                killed.append(chosen.choice(pids))
                os.kill(killed[0], signal.SIGKILL)

        found = example.digest(workers, progress)
    assert killed
    return found


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing(dask: distributed.LocalCluster, example: Example, expected: str) -> None:
    for count in (1, 2, 4):
        wait_for_workers(dask, count)
        with Cluster(dask.scheduler_address) as workers:
            assert workers.count == count
            assert example.digest(workers) == expected


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_killed_worker_changes_nothing(
    dask: distributed.LocalCluster, example: Example, expected: str, count: int
) -> None:
    assert kill_during_calibration(example, dask, 0, count) == expected


@pytest.mark.slow
def test_a_worker_killed_before_the_task_is_sent_changes_nothing(
    dask: distributed.LocalCluster, example: Example, expected: str
) -> None:
    """The scheduler still lists the worker when it gets the task."""
    [pid] = wait_for_workers(dask, 1)
    with Cluster(dask.scheduler_address) as workers:
        os.kill(pid, signal.SIGKILL)
        assert example.digest(workers) == expected


def test_workers_that_end_for_good_are_an_error(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_RESTART_SECONDS", 0.5)
    monkeypatch.setattr(cluster, "_POLL_SECONDS", 0.1)
    with start_cluster() as dask, Cluster(dask.scheduler_address) as workers:
        with pytest.raises(ResourceLimitError, match="all workers ended, and none has started for") as found:
            example.digest(workers, lambda _: dask.scale(0))
        assert f"dask worker {dask.scheduler_address}" in found.value.hint


@pytest.mark.slow
def test_a_scheduler_that_ends_is_an_error(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_SECONDS", 1)  # the time for which the client tries to connect again
    with (
        start_cluster() as dask,
        Cluster(dask.scheduler_address) as workers,
        pytest.raises(UsageError, match="connection to the scheduler was lost"),
    ):
        example.digest(workers, lambda _: dask.close())


@pytest.mark.slow
def test_the_written_file_is_that_of_one_process(dask: distributed.LocalCluster, tmp_path: Path) -> None:
    options = {"quantize": "int8", "calibration": examples() / "calibration.npz", "preprocess": PREPROCESS}
    for name, scheduler in (("alone", None), ("split", dask.scheduler_address)):
        tc.convert(examples() / "digits.onnx", **group_options(scheduler=scheduler, **options)).save(
            tmp_path / f"{name}.tpum"
        )
    assert (tmp_path / "split.tpum").read_bytes() == (tmp_path / "alone.tpum").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_killed_at_any_moment(
    dask: distributed.LocalCluster, example: Example, expected: str, seed: int, count: int
) -> None:
    """With one worker, nothing runs until it was started again."""
    assert kill_during_calibration(example, dask, seed, count) == expected


@pytest.mark.slow
def test_ci_converts_the_models_on_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Client and workers are new processes: other tests load plugins in this one, which are sent to the workers."""
    monkeypatch.chdir(tmp_path)
    models = {
        "good": {"source": str(examples() / "digits.onnx"), "output": "good.tpum"},
        "bad": {"source": str(examples() / "digits.onnx"), "inputs": ["nothing"]},
        "other": {"source": str(examples() / "digits.tflite")},
    }
    Path("m.yaml").write_text(yaml.safe_dump({"models": models}), encoding="utf-8")
    command = [sys.executable, "-m", "tpuconvert"]
    with start_cluster() as dask:
        call = [*command, "ci", "m.yaml", "--scheduler", dask.scheduler_address, "--json"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode not in (0, 70), done.stderr
    found = {model["name"]: model["status"] for model in json.loads(done.stdout)["models"]}
    assert found == {"good": "made", "bad": "error", "other": "made"}
    call = [*command, "convert", str(examples() / "digits.onnx"), "-o", "alone.tpum"]
    subprocess.run(call, check=True, capture_output=True)
    assert Path("good.tpum").read_bytes() == Path("alone.tpum").read_bytes()
    assert main(["ci", "m.yaml", "--scheduler", "tcp://127.0.0.1:9", "--jobs", "2"]) == 2
    assert "--jobs with --scheduler" in capsys.readouterr().err


def test_another_version_of_the_worker_is_refused(
    dask: distributed.LocalCluster, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "version", lambda: "9.8.7")
    with (
        Cluster(dask.scheduler_address) as workers,
        pytest.raises(UsageError, match=r"has tpuconvert [\d.]+\w*, the client 9\.8\.7"),
    ):
        example.digest(workers)


def test_a_missing_scheduler_is_an_error_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_SECONDS", 0.5)
    with pytest.raises(UsageError, match="no dask scheduler answers") as found:
        Cluster("tcp://127.0.0.1:9")
    assert "dask scheduler" in found.value.hint
    with pytest.raises(UsageError, match="no dask scheduler answers"):
        Cluster("nonsense://x")


def test_a_scheduler_without_workers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_SECONDS", 0.5)
    with (
        start_cluster(n_workers=0) as empty,
        pytest.raises(UsageError, match="has no workers"),
    ):
        Cluster(empty.scheduler_address)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError) as found:
        Cluster("tcp://127.0.0.1:8786")
    assert found.value.hint == "pip install 'tpuconvert[distributed]'"
