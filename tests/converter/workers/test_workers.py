"""Calibration on several workers gives the bytes of one process, whatever happens to the workers."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import tpuconvert as tc
from tests.support.networks.calibration_runs import PREPROCESS, Disordered, Example, Exit, Refuse, load_example
from tests.support.networks.small_models import examples
from tests.support.sampled import sampled
from tpuconvert.conversion.options.options import group_options
from tpuconvert.conversion.quantization import quantization
from tpuconvert.conversion.quantization.calibration_shards import calibrate_on
from tpuconvert.conversion.quantization.refinement_shards import SplitSamples
from tpuconvert.evaluation.evaluation import evaluate
from tpuconvert.evaluation.model_runs import ModelFeeds, run_on
from tpuconvert.optimizer.quantize.calibration import float_operands
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.refinement import refinement
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import Progress
from tpuconvert.samples.calibration_data import FeedSource, load_feeds
from tpuconvert.samples.sample_statistics import SampleStatistics
from tpuconvert.schema.errors import ResourceLimitError, UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.workers import environment, processes
from tpuconvert.workers.choice import open_workers
from tpuconvert.workers.processes import Processes
from tpuconvert.workers.threads import Threads
from tpuconvert.workers.workers import Failure, Shard, ThisProcess, Workers, bounds


@pytest.fixture(scope="module")
def example() -> Example:
    return load_example()


@pytest.fixture(scope="module")
def expected(example: Example) -> str:
    """Digest of the calibration in one process, without shards."""
    return example.digest(ThisProcess())


@pytest.mark.parametrize("count", sampled([2, 7, 25], every=2))
def test_any_split_order_and_repetition_gives_the_same_ranges(example: Example, expected: str, count: int) -> None:
    assert example.digest(Disordered(count, seed=count)) == expected


@pytest.mark.parametrize("kind", [Processes, Threads])
def test_workers_give_the_ranges_of_one(kind: type[Processes | Threads], example: Example, expected: str) -> None:
    steps: list[int] = []
    with kind(2) as workers:
        assert example.digest(workers, steps.append) == expected
        assert example.digest(workers) == expected  # the workers are used again
    assert steps == sorted(steps)
    assert steps[-1] == 100


def test_every_worker_has_as_many_samples(example: Example) -> None:
    sizes: list[int] = []

    class Counting(Disordered):
        def results(self, task: Any, shards: Any, progress: Any) -> Iterator[tuple[int, Any]]:
            sizes.extend(shard.size for shard in shards)
            return super().results(task, shards, progress)

    calibrate_on(Counting(2, 0), example.graph, example.feeds, "auto", {}, lambda _: None, FirstMeans(64))
    assert sum(sizes) == 100
    assert len(sizes) % 2 == 0 and sorted(sizes)[::2] == sorted(sizes)[1::2]


def test_written_files_are_equal(tmp_path: Path) -> None:
    files = []
    for count in (1, 2, 3):
        path = tmp_path / f"{count}.tpum"
        samples = examples() / "calibration.npz"
        options = {"quantize": "int8", "calibration": samples, "preprocess": PREPROCESS, "workers": count}
        tc.convert(examples() / "digits.onnx", **group_options(**options)).save(path)  # type: ignore[arg-type]  # by name
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def convert_on(workers: Workers, monkeypatch: pytest.MonkeyPatch, samples: object, **options: object) -> bytes:
    """Convert the example on given workers, with all algorithms of the quantization. Return weights and biases."""
    monkeypatch.setattr(quantization, "open_workers", lambda *_: workers)
    shapes = {"image": (1, 1, 8, 8)}
    given = {
        "quantize": "int8",
        "calibration": samples,
        "preprocess": PREPROCESS,
        "input_shapes": shapes,
        **options,
    }
    source = onnx.load(examples() / "digits.onnx")
    source.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    model = tc.convert(source, **group_options(**given))  # type: ignore[arg-type]  # by name
    constants = [value for value in model.graph.values if value.is_constant]
    return pickle.dumps([(value.name, value.array.tobytes(), value.quant) for value in constants])


@pytest.mark.parametrize(
    ("chip", "batch"),
    [pytest.param(*case, marks=pytest.mark.slow) for case in (("bm1686", 1), ("bm1684", 1), ("bm1686", "N"))],
)
def test_refinement_on_workers_that_forget_everything(
    chip: str, batch: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = np.load(examples() / "calibration.npz")["images"]
    options = {"chip": chip, "input_shapes": {"image": (batch, 1, 8, 8)}}
    alone = convert_on(ThisProcess(), monkeypatch, samples, **options)
    assert convert_on(Disordered(3, 0), monkeypatch, samples, **options) == alone
    assert convert_on(Threads(3), monkeypatch, samples, **options) == alone
    assert convert_on(ThisProcess(), monkeypatch, samples, effort="low", **options) != alone


class Recording(Disordered):
    """Workers that count the observations of the float graph in each part of the samples."""

    def __init__(self, count: int) -> None:
        super().__init__(count, 0)
        self.compared: dict[int, int] = {}

    def results(self, task: Any, shards: Any, progress: Any) -> Iterator[tuple[int, Any]]:
        for index, result in super().results(task, shards, progress):
            content = shards[index].content
            if getattr(content, "statistic", "") == "drift" and result is not None:
                self.compared[content.start] = sum(half.count for half in result.values())
            yield index, result


def test_every_worker_has_its_part_of_the_samples_compared_with_the_float_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(float_operands, "_MOST_BYTES", 0)  # 8 of the 64 samples are compared
    workers, samples = Recording(4), np.load(examples() / "calibration.npz")["images"]
    assert convert_on(workers, monkeypatch, samples) == convert_on(ThisProcess(), monkeypatch, samples)
    assert len(workers.compared) == 4
    assert len(set(workers.compared.values())) == 1 and min(workers.compared.values()) > 0


def test_the_covariance_is_computed_during_the_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = threading.Event()
    inputs, correct, done = SplitSamples.inputs, refinement.correct_weights, []

    def compute(*arguments: Any) -> Any:
        reached.set()
        return inputs(*arguments)

    def wait(*arguments: Any) -> Any:
        done.append(reached.wait(60))
        reached.clear()
        return correct(*arguments)

    monkeypatch.setattr(SplitSamples, "inputs", compute)
    monkeypatch.setattr(refinement, "correct_weights", wait)
    convert_on(Threads(2), monkeypatch, np.load(examples() / "calibration.npz")["images"])
    assert done and all(done)


class Killing(Processes):
    """Processes of which one is killed before the shards of a given task call are sent."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count)
        self._random = random.Random(seed)
        self.calls = self._random.randrange(1, 10)

    def results(self, *arguments: Any) -> Iterator[tuple[int, Any]]:
        self.calls -= 1
        if self.calls == 0:
            os.kill(self._random.choice(self.pids), signal.SIGKILL)
        return super().results(*arguments)


def refine_with_a_killed_process(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    samples = np.load(examples() / "calibration.npz")["images"]
    workers = Killing(2, seed)
    alone = convert_on(ThisProcess(), monkeypatch, samples)
    assert convert_on(workers, monkeypatch, samples) == alone
    assert workers.calls <= 0


@pytest.mark.slow  # others are killed during the calibration
def test_a_process_killed_during_the_refinement_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    refine_with_a_killed_process(monkeypatch, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_a_process_killed_before_any_request_changes_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    refine_with_a_killed_process(monkeypatch, seed)


def killing(workers: Processes, at: int, chosen: random.Random) -> Callable[[int], None]:
    """Return a progress function that kills one of the processes after ``at`` steps."""
    killed: list[int] = []

    def progress(done: int) -> None:
        if done >= at and not killed:
            killed.append(chosen.choice(workers.pids))
            os.kill(killed[0], signal.SIGKILL)

    return progress


def calibrate_with_a_killed_process(example: Example, seed: int) -> str:
    chosen = random.Random(seed)
    with Processes(2) as workers:
        return example.digest(workers, killing(workers, chosen.randrange(1, 100), chosen))


def test_a_killed_process_changes_nothing(example: Example, expected: str) -> None:
    assert calibrate_with_a_killed_process(example, 0) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_a_process_killed_at_any_moment_changes_nothing(example: Example, expected: str, seed: int) -> None:
    assert calibrate_with_a_killed_process(example, seed) == expected


@pytest.mark.parametrize("kind", [Processes, Threads])
def test_a_shard_that_fails_does_not_stop_the_others(kind: type[Processes | Threads]) -> None:
    shards = [Shard("first", 1, "x"), Shard("second", 1, ""), Shard("third", 1, "y")]
    with kind(2) as workers:
        found = dict(workers.outcomes(Refuse(), shards))
    assert found[1] == "accepted"
    errors = [found[index] for index in (0, 2)]
    assert [error.error.message for error in errors if isinstance(error, Failure)] == ["x: wrong", "y: wrong"]


def test_a_shard_that_ends_every_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ATTEMPTS", 2)
    with Processes(1) as workers, pytest.raises(ResourceLimitError, match="samples 8 to 15") as found:
        list(workers.map(Exit(), [Shard("samples 8 to 15", 8, 7)]))
    assert "2 workers ended" in found.value.message
    assert "exit code 7" in found.value.message


def test_an_error_in_a_process_keeps_its_parts_and_ends_the_others() -> None:
    with Processes(1) as workers:
        with pytest.raises(UsageError) as found:
            list(workers.map(Refuse(), [Shard("all", 1, "x")]))
        assert (found.value.message, found.value.file, found.value.hint) == ("x: wrong", "a.npz", "correct it")
        pids = workers.pids
    assert not any(is_running(pid) for pid in pids)


def test_an_interrupt_ends_the_processes(example: Example) -> None:
    pids: list[int] = []

    def interrupt(_: int) -> None:
        pids.extend(workers.pids)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Processes(2) as workers:
        example.digest(workers, interrupt)
    assert len(pids) == 2
    assert not any(is_running(pid) for pid in pids)


def test_an_interrupt_ends_the_threads(example: Example) -> None:
    before, interval = threading.active_count(), sys.getswitchinterval()
    seen: list[int] = []

    def interrupt(_: int) -> None:
        seen.append(threading.active_count())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Threads(2) as workers:
        example.digest(workers, interrupt)
    assert seen[0] > before
    assert threading.active_count() == before
    assert sys.getswitchinterval() == interval


class Leave:
    """Task that raises an exception that is not an error."""

    def run(self, shard: type[BaseException], progress: Callable[[int], None]) -> None:
        raise shard


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_exception_that_is_no_error_leaves_the_thread(kind: type[BaseException]) -> None:
    before = threading.active_count()
    with pytest.raises(kind), Threads(2) as workers:
        list(workers.map(Leave(), [Shard("", 1, kind)] * 4))
    assert threading.active_count() == before


class Place:
    """Task that returns its thread, and the shards that this copy of it has run."""

    def __init__(self) -> None:
        self.shards: list[int] = []

    def run(self, shard: int, progress: Callable[[int], None]) -> tuple[str, list[int]]:
        self.shards.append(shard)
        return threading.current_thread().name, list(self.shards)

    def __copy__(self) -> Place:
        return Place()


def test_a_thread_keeps_its_task_and_runs_the_shards_of_its_place() -> None:
    task = Place()
    with Threads(2) as workers:
        for call in range(2):
            found = dict(workers.map(task, [Shard("", 1, 10 * call + place, place) for place in range(5)]))
    assert [found[index][1] for index in (3, 4)] == [[1, 3, 11, 13], [0, 2, 4, 10, 12, 14]]
    assert len({thread for thread, _ in found.values()}) == 2


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_another_version_of_the_worker_is_refused(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "version", lambda: "9.8.7")
    with Processes(2) as workers, pytest.raises(UsageError, match=r"has tpuconvert [\d.]+\w*, the client 9\.8\.7"):
        example.digest(workers)


def test_a_plugin_method_without_merge_is_refused(example: Example, tmp_path: Path) -> None:
    plugin = tmp_path / "plain.py"
    plugin.write_text(PLUGIN.format(name="plain", merge="add_other"), encoding="utf-8")
    load_plugins([plugin])
    with pytest.raises(UsageError, match="'plain': its collectors have no method 'merge'"):
        calibrate_on(Disordered(2, 0), example.graph, example.feeds, "plain", {}, lambda _: None)
    ranges, _ = calibrate_on(ThisProcess(), example.graph, example.feeds, "plain", {}, lambda _: None)
    assert all(isinstance(found, Range) for found in ranges.values())


def test_a_plugin_method_with_merge_is_split(example: Example, tmp_path: Path) -> None:
    plugin = tmp_path / "mergeable.py"
    plugin.write_text(PLUGIN.format(name="mergeable", merge="merge"), encoding="utf-8")
    load_plugins([plugin])
    whole, _ = calibrate_on(ThisProcess(), example.graph, example.feeds, "mergeable", {}, lambda _: None)
    with Processes(2) as workers:
        split, _ = calibrate_on(workers, example.graph, example.feeds, "mergeable", {}, lambda _: None)
    assert split == whole


PLUGIN = """
from tpuconvert import register_calibrator
from tpuconvert.optimizer.quantize.calibration import float_operands
from tpuconvert.optimizer.quantize.refinement import refinement
from tpuconvert.optimizer.quantize.refinement.operand_statistics import OperandSamples
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.ranges.ranges import Range


@register_calibrator("{name}")
class Limits:
    def __init__(self):
        self.low, self.high = 0.0, 0.0

    def add(self, array):
        self.low, self.high = min(self.low, float(array.min())), max(self.high, float(array.max()))

    def {merge}(self, other):
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def result(self):
        return Range(self.low, self.high, max(-self.low, self.high))
"""


def test_images_are_sent_by_name(tmp_path: Path) -> None:
    for index, image in enumerate(np.load(examples() / "calibration.npz")["images"][:12]):
        Image.fromarray(image).save(tmp_path / f"{index:03}.png")
    example = load_example(tmp_path)
    assert example.digest(Disordered(3, 0)) == example.digest(ThisProcess())
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "003.png")
    with pytest.raises(UsageError, match=r"003\.png: has other samples on this worker than on the client"):
        example.digest(Disordered(3, 0))
    (tmp_path / "003.png").unlink()
    with pytest.raises(UsageError, match=r"003\.png: cannot be read"):
        example.digest(Disordered(3, 0))


@pytest.mark.parametrize("kind", ["arrays", "images"])
def test_evaluation_on_several_processes_counts_the_same(tmp_path: Path, kind: str) -> None:
    model = tc.convert(examples() / "digits.onnx", preprocess=PREPROCESS)
    with np.load(examples() / "digits.npz") as archive:
        images, labels = archive["images"][:60], archive["labels"][:60].astype(np.int64)
    labels[::7] = (labels[::7] + 1) % 10  # errors at known places
    data = tmp_path / "data.npz"
    if kind == "images":
        data = tmp_path / "data"
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            (data / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(data / str(label) / f"{index:03}.png")
    else:
        np.savez(data, labels=labels, images=images)
    steps: list[int] = []
    progress = Progress()
    progress.advance = steps.append  # type: ignore[method-assign]
    alone = evaluate(model, data)
    assert evaluate(model, data, workers=2, progress=progress) == alone
    assert alone.samples == 60 and 40 < alone.right["top1"] < 52
    assert steps[-1] == 60
    runs = [ModelFeeds(model, feeds_of(model, images), model_outputs(model))] * 2
    outputs = [[found.arrays for found in pair] for pair in run_on(ThisProcess(), runs)]
    split = [[found.arrays for found in pair] for pair in run_on(Disordered(3, 0), runs)]
    assert repr([first for first, _ in outputs]) == repr([second for _, second in outputs])
    assert repr(outputs) == repr(split)


def feeds_of(model: tc.Model, images: np.ndarray) -> FeedSource:
    return load_feeds(images, model.graph.input_ports, model.preprocess)


def model_outputs(model: tc.Model) -> list[str]:
    return [port.name for port in model.graph.output_ports]


def test_arrays_in_a_file_are_sent_by_name(tmp_path: Path) -> None:
    images, path = np.load(examples() / "calibration.npz")["images"][:12], tmp_path / "samples.npy"
    np.save(path, images)
    example = load_example(path)
    assert example.digest(Disordered(3, 0)) == example.digest(ThisProcess())
    np.save(path, images[:5])
    with pytest.raises(UsageError, match=r"samples\.npy: has fewer samples than on the client"):
        example.digest(Disordered(3, 0))
    np.save(path, images[::-1])
    with pytest.raises(UsageError, match=r"samples\.npy: has other samples on this worker"):
        example.digest(Disordered(3, 0))
    path.unlink()
    with pytest.raises(UsageError, match=r"samples\.npy: no such file"):
        example.digest(Disordered(3, 0))


def test_workers_and_a_scheduler_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--workers 2 with --scheduler"):
        open_workers(2, "tcp://127.0.0.1:8786")
    for wrong in (0, True, "2"):
        with pytest.raises(UsageError, match=r"expected a number of at least 1|workers is '.*' \(\w+\)"):
            tc.convert(examples() / "digits.onnx", quantize=tc.Quantization(workers=wrong))  # type: ignore[arg-type]


@given(st.integers(1, 300), st.integers(1, 50))
def test_bounds_are_a_partition(count: int, parts: int) -> None:
    found = bounds(count, parts)
    assert [index for start, end in found for index in range(start, end)] == list(range(count))
    sizes = [end - start for start, end in found]
    assert max(sizes) - min(sizes) <= 1 <= min(sizes)


@settings(deadline=None)
@given(kinds=st.lists(st.sampled_from(["noise", "zeros", "equal", "tall"]), min_size=1, max_size=12), data=st.data())
def test_statistics_of_parts_have_the_findings_of_all(kinds: list[str], data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    equal = rng.random((1, 3, 8, 8), dtype=np.float32)
    samples = {
        "noise": lambda: rng.random((1, 3, 8, 8), dtype=np.float32),
        "zeros": lambda: np.zeros((1, 3, 8, 8), np.float32),
        "equal": lambda: equal,
        "tall": lambda: rng.random((1, 3, 16, 8), dtype=np.float32) * 5000,
    }
    feeds = [{"x": samples[kind]()} for kind in kinds]
    ports = [Port("x", "float32", (1, 3, "h", 8))]
    whole, joined = SampleStatistics(ports), SampleStatistics(ports)
    list(whole.watch(feeds))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(feeds)), max_size=3)))
    for start, end in zip([0, *cuts], [*cuts, len(feeds)], strict=True):
        part = SampleStatistics(ports)
        list(part.watch(feeds[start:end]))
        joined.extend(part)
    assert joined.findings() == whole.findings()
    assert joined.count == len(feeds)
