"""The benchmark's arithmetic and report page, computed from synthetic times."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tools.bench.engine_process import EngineError
from tools.bench.engines import Job
from tools.bench.images import hidden_states, natural_images
from tools.bench.markdown import page
from tools.bench.models import Maker, build
from tools.bench.parts import ALONE
from tools.bench.peak import INDEPENDENT, STEPS, ProbeError, build_probe, open_probe, steps_per_run
from tools.bench.results import Memory, Part, Report, Result
from tools.bench.rounds import Measured, Ratio, _summaries
from tools.bench.tflite_network import UnsupportedNetworkError
from tools.bench.worker import Times, Worker


def job(label: str, threads: int = 1) -> Job:
    return Job("tpuconvert", label, Path("net.tpum"), Path("net.npz"), threads)


def test_a_ratio_is_taken_round_by_round() -> None:
    ours, theirs = job("tpuconvert"), job("other")
    turns = {
        ours: [Times((9.0, 9.0, 9.0), (1.0, 2.0, 9.0)), Times((7.0,), (4.0,)), Times((8.0,), (2.0,))],
        theirs: [Times((9.0,), (3.0,)), Times((6.0,), (4.0,)), Times((9.0,), (4.0,))],
    }
    first, second = _summaries([ours, theirs], turns, {})
    assert first == Measured("tpuconvert", 2000.0, 7000.0, 5)
    # medians of the rounds: ours 2, 4, 2; theirs 3, 4, 4
    assert second == Measured("other", 4000.0, 6000.0, 3, Ratio(1.5, 1.0, 2.0))


def test_with_several_threads_the_clock_counts() -> None:
    ours, theirs = job("tpuconvert", 2), job("other", 2)
    turns = {ours: [Times((2.0, 3.0), (9.0, 9.0))], theirs: [Times((6.0, 5.0), (1.0, 1.0))]}
    assert _summaries([ours, theirs], turns, {})[1].ratio == Ratio(2.5, 2.5, 2.5)


def test_without_ours_there_are_no_ratios() -> None:
    ours, theirs = job("tpuconvert"), job("other")
    found = _summaries([ours, theirs], {theirs: [Times((1.0,), (1.0,))]}, {ours: "tpuconvert: broken"})
    assert found == [Measured("tpuconvert", error="tpuconvert: broken"), Measured("other", 1000.0, 1000.0, 1)]


def report() -> Report:
    measured = (
        Measured("tpuconvert", 10.0, 9.0, 7),
        Measured("ONNX Runtime", 20.0, 19.0, 7, Ratio(2.0, 1.9, 2.25)),
        Measured("OpenVINO", error="OpenVINO: not installed (No module named 'openvino')"),
    )
    timed = Result(
        "resnet50", "INT8", 4_000_000_000, measured, 500e9, 0.8, (("LiteRT", "the network cannot be written: Erf"),)
    )
    alone = Measured(ALONE, 18.0, 17.1, 7, Ratio(1.9, 1.9, 1.9))
    threads = Result("resnet50", "INT8", 4_000_000_000, (measured[0], alone))
    memory = Memory("resnet50", 40_000_000, 100_000_000, 25_000_000, {"arena": 3_000_000, "packed": 26_000_000})
    parts = [
        Part("int8", "INT8, one thread", "About it.", (timed,)),
        Part("threads", "INT8, 2 threads", "About it.", (threads,)),
        Part("memory", "Memory", "About it.", memory=(memory,)),
    ]
    return Report({"processor": "a fast one"}, "python -m tools.bench", parts)


def test_page() -> None:
    lines = page(report()).splitlines()
    assert lines[0] == "# Benchmarks"
    assert "- processor: a fast one" in lines
    assert "| resnet50 | 4.000 | 10.00 | 400.0 | 80 % | 2.00 (1.90 to 2.25), 20.00 ms | - |" in lines
    assert "| resnet50 | 4.000 | 9.00 | 444.4 | 1.90 (1.90 to 1.90), 17.10 ms |" in lines
    assert "| resnet50 | 40.0 | 100.0 | 25.0 | 3.0 | - | 26.0 | 31.0 | 2.07 |" in lines


def test_who_is_missing_is_named_with_the_reason() -> None:
    text = page(report())
    assert "- resnet50 (INT8), OpenVINO: not installed (No module named 'openvino')\n" in text
    assert "- resnet50 (INT8), LiteRT: the network cannot be written: Erf\n" in text


def test_report_is_json() -> None:
    found = json.loads(json.dumps(dataclasses.asdict(report())))
    assert found["parts"][0]["results"][0]["engines"][1]["ratio"] == {"median": 2.0, "low": 1.9, "high": 2.25}


def test_a_file_that_cannot_be_made_is_a_reason_and_leaves_nothing(tmp_path: Path) -> None:
    def not_installed(path: Path) -> None:
        raise ImportError("No module named 'nncf'")

    def half_written(path: Path) -> None:
        path.write_bytes(b"half")
        raise UnsupportedNetworkError("no writer for Erf")

    makers = [
        Maker("tpuconvert", "tpuconvert", "net.tpum", lambda path: path.touch()),
        Maker("OpenVINO", "openvino", "net.xml", not_installed),
        Maker("LiteRT", "litert", "net.tflite", half_written),
    ]
    model = build("net", "INT8", tmp_path, tmp_path / "net.npz", makers, "auto")
    assert [each.model.name for each in model.jobs] == ["net.tpum"]
    assert model.missing == (
        ("OpenVINO", "not installed (No module named 'nncf')"),
        ("LiteRT", "the network cannot be written: no writer for Erf"),
    )
    assert not (tmp_path / "net.tflite").exists()


def test_inputs_are_the_same_for_a_seed_and_look_like_images() -> None:
    first, again, other = (natural_images(2, 64, seed) for seed in (1, 1, 2))
    assert first.dtype == np.float32 and first.shape == (2, 3, 64, 64)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first.min() >= 0 and first.max() <= 1
    # neighboring pixels are correlated, unlike pixels of white noise
    assert np.corrcoef(first[..., 1:].ravel(), first[..., :-1].ravel())[0, 1] > 0.5
    assert hidden_states(1, 4, 8, 0).shape == (1, 4, 8)


def test_a_worker_runs_ours(tmp_path: Path, repository: Path) -> None:
    model, feeds = tmp_path / "net.tpum", tmp_path / "net.npz"
    tc.convert(repository / "examples" / "digits" / "digits.onnx").save(model)
    np.savez(feeds, image=np.ones((1, 1, 8, 8), np.float32))
    with Worker(Job("tpuconvert", "ours", model, feeds, backend="reference"), [0]) as worker:
        worker.prepare()
        before = worker.peak_bytes()
        assert worker.load().median_cpu > 0
        times = worker.run(2)
        assert (len(times.wall), len(times.cpu)) == (2, 2)
        assert worker.peak_bytes() >= before > 1 << 20


def test_a_worker_says_what_is_wrong(tmp_path: Path) -> None:
    absent = Job("tpuconvert", "ours", tmp_path / "absent.tpum", tmp_path / "absent.npz")
    with Worker(absent, [0]) as worker, pytest.raises(EngineError, match="ours: "):
        worker.load()


@pytest.mark.skipif(shutil.which("cc") is None, reason="the probe needs a C compiler")
def test_probe(tmp_path: Path) -> None:
    library = tmp_path / "peak.so"
    try:
        build_probe(library)
    except ProbeError as error:
        pytest.skip(str(error))
    assert steps_per_run(library) in [each * INDEPENDENT * STEPS for each in (32, 64, 16 * 16 * 64)]
    open_probe(library)()


def test_without_ours_nothing_is_measured_and_the_reason_stands_below(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        raise ValueError("no such\noperator")

    makers = [
        Maker("tpuconvert", "tpuconvert", "net.tpum", fails),
        Maker("LiteRT", "litert", "net.tflite", lambda path: path.touch()),
    ]
    model = build("net", "INT8", tmp_path, tmp_path / "net.npz", makers, "auto")
    assert model.jobs == ()
    result = Result("net", "INT8", 0, (), missing=model.missing)
    text = page(Report({}, "", [Part("trained", "Trained", "About it.", (result,))]))
    assert "- net (INT8), tpuconvert: ValueError: no such operator\n" in text
