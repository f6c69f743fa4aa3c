"""A calibration that continues from the statistics of an interrupted one gives the bytes of one without interrupt."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converter.calibration_runs import PREPROCESS, Disordered, Example, load_example
from converter.small_models import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tpuconvert as tc
from tpuconvert.optimizer.quantize.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.ranges import RangeCollector
from tpuconvert.options import Options
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import Progress
from tpuconvert.quantize import partial_file
from tpuconvert.quantize.calibration_shards import calibrate_on
from tpuconvert.quantize.partial_file import PartialFile, run_key
from tpuconvert.quantize.statistics_json import decode, encode
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.workers.workers import ThisProcess, Workers

Write = Callable[[Path], None]


@pytest.fixture(scope="module")
def example() -> Example:
    return load_example()


@pytest.fixture(scope="module")
def expected(example: Example) -> str:
    return example.digest(ThisProcess())


def open_partial(path: Path, reports: list[str] | None = None, **key: Any) -> PartialFile:
    return PartialFile(path, {"--chip": "bm1686", **key}, (reports if reports is not None else []).append)


def interrupt_at(at: int) -> Callable[[int], None]:
    def progress(done: int) -> None:
        if done >= at:
            raise KeyboardInterrupt

    return progress


def interrupt(example: Example, path: Path, at: int, workers: Workers | None = None) -> list[str]:
    """Interrupt a calibration when ``at`` samples are done, and return the messages."""
    reports: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        example.digest(workers or ThisProcess(), interrupt_at(at), open_partial(path, reports))
    return reports


@pytest.mark.parametrize("seed", range(4))
def test_any_interrupts_give_the_ranges_of_one_run(example: Example, expected: str, tmp_path: Path, seed: int) -> None:
    """The runs have different workers, which run their shards in random order and some of them twice."""
    path, chosen = tmp_path / "x.partial", random.Random(seed)
    counts = sorted(chosen.randrange(0, 101) for _ in range(4))
    for number, at in enumerate(counts):
        interrupt(example, path, at, Disordered(3, seed + number) if (seed + number) % 2 else ThisProcess())
    reports: list[str] = []
    steps: list[int] = []
    workers = ThisProcess() if seed % 2 else Disordered(2, seed)
    assert example.digest(workers, steps.append, open_partial(path, reports)) == expected
    assert steps[-1] == 100 and steps == sorted(steps)
    assert steps[0] >= counts[-1] - 8  # the shard that reports this number of samples is not counted yet
    assert not reports or reports[0].startswith(f"continuing after {steps[0]} of 100 samples")


def test_the_interrupt_is_reported_with_the_next_step(example: Example, tmp_path: Path) -> None:
    path = tmp_path / "x.partial"
    assert interrupt(example, path, 1) == [] and not path.exists()
    [text] = interrupt(example, path, 61)
    assert text == f"{path} has the statistics of 57 of 100 samples; the same command with --resume continues"


def test_a_complete_file_runs_no_sample(example: Example, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "x.partial"
    assert example.digest(ThisProcess(), partial=open_partial(path)) == expected
    assert example.digest(Refusing(), partial=open_partial(path)) == expected


class Refusing(Workers):
    """Workers that get no shards."""

    def results(self, task: Any, shards: Any, progress: Any) -> Any:
        assert not shards
        return iter(())

    def close(self) -> None:
        """Do nothing."""


def test_the_file_is_written_at_intervals(
    example: Example, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed writes nothing at its end."""
    monkeypatch.setattr(partial_file, "SECONDS", 0.0)
    path, copies = tmp_path / "x.partial", []

    def progress(done: int) -> None:
        if path.exists():
            copies.append(path.read_bytes())

    example.digest(ThisProcess(), progress, open_partial(path))
    assert len(set(copies)) > 10
    path.write_bytes(copies[len(copies) // 2])
    steps: list[int] = []
    assert example.digest(ThisProcess(), steps.append, open_partial(path)) == expected
    assert 0 < steps[0] < 100


def test_other_samples_and_options_are_refused(example: Example, tmp_path: Path) -> None:
    path = tmp_path / "x.partial"
    interrupt(example, path, 50)
    before = path.read_bytes()
    fewer = dataclasses.replace(example, feeds=example.feeds.part(0, 99))
    with pytest.raises(
        UsageError, match=r"x\.partial: is that of .* another value of --refinement-samples, the samples\n"
    ) as found:
        fewer.digest(ThisProcess(), partial=open_partial(path))
    assert "remove the file" in found.value.hint
    with pytest.raises(UsageError, match=r"another value of --chip, --outputs\n"):
        example.digest(ThisProcess(), partial=open_partial(path, **{"--chip": "bm1684", "--outputs": ["y"]}))
    with pytest.raises(UsageError, match=r"another value of --refinement-samples\n"):
        calibrate_on(ThisProcess(), example.graph, example.feeds, "auto", {}, print, FirstMeans(10), open_partial(path))
    assert path.read_bytes() == before


def test_the_key_has_everything_that_ranges_depend_on(tmp_path: Path) -> None:
    source = tmp_path / "a.onnx"
    source.write_bytes(b"a")
    plugin = tmp_path / "p.py"
    keys = [run_key([source], Options.of(quantize="int8", **given)) for given in VARIANTS]
    keys.append(run_key([source, source], Options.of(quantize="int8")))
    source.write_bytes(b"b")
    keys.append(run_key([source], Options.of(quantize="int8")))
    plugin.write_text("", "utf-8")
    load_plugins([plugin])
    keys.append(run_key([source], Options.of(quantize="int8")))
    assert len({json.dumps(key) for key in keys}) == len(keys)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"chip": "bm1684"},
    {"calibration_method": "kl"},
    {"preprocess": PREPROCESS},
    {"precision": ["a=mse"]},
    {"outputs": "y"},
]


def replace_arrays(path: Path, **arrays: np.ndarray) -> None:
    with np.load(path) as archive:
        content = {**archive, **arrays}
    with path.open("wb") as file:
        np.savez(file, **content)


def replace_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with np.load(path) as archive:
        header = json.loads(archive["header"].tobytes())
    change(header)
    replace_arrays(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8))


def first_fields(header: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = next(iter(header["first"].values()))["fields"]
    return fields


DAMAGES: Mapping[str, Write] = {
    "empty": lambda path: path.write_bytes(b"") and None,
    "text": lambda path: path.write_text("{}") and None,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]) and None,
    "array": lambda path: np.save(path.open("wb"), np.zeros(3)),
    "pickle": lambda path: np.save(path.open("wb"), np.array([{}]), allow_pickle=True),
    "archive": lambda path: np.savez(path.open("wb"), header=np.zeros(3)),
    "no JSON": lambda path: replace_arrays(path, header=np.frombuffer(b"{", np.uint8)),
    "list": lambda path: replace_arrays(path, header=np.frombuffer(b"[]", np.uint8)),
    "deep": lambda path: replace_arrays(path, header=np.frombuffer(b"[" * 100000, np.uint8)),
    "no key": lambda path: replace_header(path, lambda header: header.pop("key")),
    "no parts": lambda path: replace_header(path, lambda header: header.pop("parts")),
    "version": lambda path: replace_header(path, lambda header: header.update(version=0)),
    "order": lambda path: replace_header(path, lambda header: header["parts"].append(header["parts"][0])),
    "dtype": lambda path: replace_arrays(path, **{"0": np.zeros(8192, np.int8)}),
    "extent": lambda path: replace_arrays(path, **{"0": np.zeros(3, np.int64)}),
    "class": lambda path: replace_header(path, lambda header: first_fields(header).update(_low={"set": [1]})),
    "field": lambda path: replace_header(path, lambda header: first_fields(header).update(more=1)),
    "method": lambda path: replace_header(path, lambda header: first_fields(header).update(method="kl")),
    "histogram": lambda path: replace_header(path, lambda header: first_fields(header).update(has_histogram=False)),
    "index": lambda path: replace_header(path, lambda header: first_fields(header).update(_low={"array": 10**9})),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_foreign_file_is_an_error(example: Example, tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.partial"
    interrupt(example, path, 70)
    DAMAGES[name](path)
    before = path.read_bytes()
    with pytest.raises(CorruptInputError) as found:
        example.digest(ThisProcess(), partial=open_partial(path))
    assert "remove it to start again" in found.value.hint and found.value.file == str(path)
    assert path.read_bytes() == before


def test_random_damage_is_an_error_or_changes_nothing(example: Example, expected: str, tmp_path: Path) -> None:
    path, chosen, refused = tmp_path / "x.partial", random.Random(0), 0
    interrupt(example, path, 95)
    good = path.read_bytes()
    for _ in range(60):
        damaged = bytearray(good)
        damaged[chosen.randrange(len(good))] ^= 1 << chosen.randrange(8)
        path.write_bytes(damaged)
        try:
            assert example.digest(ThisProcess(), partial=open_partial(path)) == expected
        except (CorruptInputError, UsageError):
            refused += 1
    assert refused > 40


def test_a_method_of_a_plugin_is_refused(example: Example, tmp_path: Path) -> None:
    plugin = tmp_path / "stored.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    load_plugins([plugin])
    partial = open_partial(tmp_path / "x.partial")
    with pytest.raises(UsageError, match="'stored' is that of a plugin, whose collectors cannot be stored"):
        calibrate_on(ThisProcess(), example.graph, example.feeds, "stored", {}, print, None, partial)


PLUGIN = """
from tpuconvert import Range, register_calibrator


@register_calibrator("stored")
class Zero:
    def add(self, array):
        pass

    def merge(self, other):
        pass

    def result(self):
        return Range(0.0, 0.0, 0.0)
"""


class Interrupting(Progress):
    """Progress that interrupts the given stage, unless it is None, when a number of its steps is done."""

    def __init__(self, stage: str | None, at: int) -> None:
        self._wanted, self._at, self._stage = stage, at, ""

    def stage(self, name: str, total: int | None = None) -> None:
        self._stage = name

    def advance(self, done: int) -> None:
        if self._stage == self._wanted and done >= self._at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("workers", [1, 2])
def test_convert_continues_an_interrupted_calibration(tmp_path: Path, workers: int) -> None:
    def convert(name: str, stage: str | None, at: int = 0, resume: Path | None = None, **options: Any) -> bytes:
        options = {"quantize": "int8", "calibration": examples() / "calibration.npz", **options}
        progress = Interrupting(stage, at)
        model = tc.convert(
            examples() / "digits.onnx", preprocess=PREPROCESS, progress=progress, resume=resume, **options
        )
        model.save(tmp_path / name)
        return (tmp_path / name).read_bytes()

    alone = convert("alone.tpum", None)
    path = tmp_path / "x.partial"
    with pytest.raises(KeyboardInterrupt):
        convert("a.tpum", "calibrate", 50)
    assert [file.name for file in tmp_path.iterdir()] == ["alone.tpum"]
    for stage, at in (("calibrate", 30), ("calibrate", 80), ("refine", 3)):
        with pytest.raises(KeyboardInterrupt):
            convert("a.tpum", stage, at, path, workers=workers)
        assert path.exists()
    with pytest.raises(UsageError, match="another value of --effort"):
        convert("a.tpum", None, 0, path, effort="low")
    assert convert("a.tpum", None, 0, path, workers=workers) == alone
    assert not path.exists()
    with pytest.raises(UsageError, match="resume without a calibration"):
        tc.convert(examples() / "digits.onnx", resume=path)


VALUES = st.sampled_from([0.0, -0.0, 1.0, -3.5, 1e30, 1e-30, np.nan, np.inf, 65504.0])


@settings(deadline=None, max_examples=50)
@given(
    method=st.sampled_from(["mse", "kl", "minmax", "percentile:99.9"]),
    shapes=st.lists(st.sampled_from([(1, 3, 2), (1, 3, 4), (1, 2, 4), (4,), (1, 3, 0)]), max_size=4),
    data=st.data(),
)
def test_collectors_are_stored_exactly(method: str, shapes: list[tuple[int, ...]], data: st.DataObject) -> None:
    collector = RangeCollector(method)
    for shape in shapes:
        size = int(np.prod(shape))
        values = data.draw(st.lists(VALUES, min_size=size, max_size=size))
        with np.errstate(all="ignore"):
            collector.add(np.array(values, np.float32).reshape(shape))
    arrays: list[np.ndarray] = []
    form = json.loads(json.dumps(encode(collector, arrays)))
    read = decode(form, RangeCollector(method), arrays)
    more = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    for each in (collector, read):
        each.add(more)
    with np.errstate(all="ignore"):
        assert repr(read.result()) == repr(collector.result())


def test_arrays_of_bfloat16_are_stored() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    arrays: list[np.ndarray] = []
    form = json.loads(json.dumps(encode({"x": array}, arrays)))
    [read] = decode(form, None, [np.array(item) for item in arrays]).values()
    assert arrays[0].dtype == np.uint16 and read.dtype == array.dtype and read.tolist() == array.tolist()
