"""The load of the throughput benchmark, its summary and its page."""

import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tools.bench.engine_process import EngineError
from tools.bench.rounds import Ratio
from tools.bench.throughput.load import Load, LoadWorker, percentile, run_clients
from tools.bench.throughput.measuring import Served, _requests_in, _summary, measure_load
from tools.bench.throughput.page import Cell, page
from tools.bench.throughput.servers import Service, write_batched_onnx


def service(**changes) -> Service:
    given = {"engine": "tpuconvert", "label": "tpuconvert", "model": Path("m.tpum"), "feeds": Path("m.npz")}
    return Service(**{**given, "threads": 2, "batch": 1, "clients": 1, **changes})


def test_clients_run_at_the_same_time_and_every_request_is_counted() -> None:
    inside, together = 0, []
    lock = threading.Lock()
    both = threading.Barrier(2)

    def run():
        nonlocal inside
        both.wait(30)  # with one client after the other, this would not return
        with lock:
            inside += 1
        together.append(inside)
        return []

    load = run_clients([run, run], 3, 4)
    assert len(load.latencies) == 6
    assert load.images == 24
    assert inside == 6
    assert load.images_per_second == 24 / load.seconds


def test_a_client_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def run():
        raise ValueError("no")

    with pytest.raises(EngineError, match="a client failed"):
        run_clients([run], 2, 1)


def test_summary_takes_the_ratio_turn_by_turn() -> None:
    ours = [Load(1.0, (0.1, 0.3), 20), Load(2.0, (0.2, 0.2), 20), Load(1.0, (0.4, 0.2), 20)]
    theirs = [Load(2.0, (0.5, 0.7), 20), Load(2.0, (0.6, 0.6), 20), Load(4.0, (1.0, 1.0), 20)]
    found = _summary(service(label="other"), theirs, ours)
    assert (found.images_per_second, found.ratio) == (10.0, Ratio(2.0, 1.0, 4.0))
    assert (found.latency_ms, found.slow_ms) == pytest.approx((650.0, 1000.0))


@pytest.mark.parametrize(("share", "expected"), [(0.5, 51), (0.99, 100), (1.0, 100), (0.0, 1)])
def test_percentile(share: float, expected: int) -> None:
    assert percentile(range(100, 0, -1), share) == expected


def test_number_of_requests_of_a_turn() -> None:
    trial = Load(1.0, (0.1,), 80)  # 80 images per second
    assert _requests_in(trial, 0.5, service(batch=4, clients=2)) == 5
    assert _requests_in(trial, 0.001, service(batch=4, clients=2)) == 1


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    proto = model([one("MatMul", "x", "w")], {"x": ramp(1, 8)}, ["y"], {"w": ramp(8, 3, seed=1)})
    converted = tc.convert(save_model(proto, tmp_path))
    converted.save(tmp_path / "m.tpum")
    np.savez(tmp_path / "m.npz", x=ramp(1, 8))
    return tmp_path / "m.tpum", tmp_path / "m.npz"


@pytest.mark.slow
def test_a_service_of_tpuconvert_is_measured(files: tuple[Path, Path]) -> None:
    given = service(model=files[0], feeds=files[1], batch=4, clients=2)
    absent = service(engine="absent", label="absent", model=files[0], feeds=files[1])
    broken = service(label="broken", model=files[1], feeds=files[1])
    found = measure_load([given, broken, absent], sorted({0}), 2, 0.01)
    assert found[0].images_per_second > 0 and not found[0].error
    assert found[0].latency_ms <= found[0].slow_ms
    assert "tpum" in found[1].error
    assert found[2].error == "KeyError: 'absent'"


def test_a_process_that_ends_is_an_error(files: tuple[Path, Path]) -> None:
    with LoadWorker(service(model=files[0], feeds=files[1]), [0]) as worker:
        worker.run(1)
        worker._process.kill()
        worker._process.join(10)
        time.sleep(0.01)
        with pytest.raises(EngineError, match="the process ended with -9"):
            worker.run(1)


def test_a_model_of_one_image_is_written_for_a_batch(tmp_path: Path) -> None:
    proto = onnx.shape_inference.infer_shapes(model([one("Relu", "x")], {"x": ramp(1, 8)}, ["y"]))
    write_batched_onnx(save_model(proto, tmp_path), tmp_path / "batch.onnx", 16)
    written = onnx.load(tmp_path / "batch.onnx")
    for port in (*written.graph.input, *written.graph.output):
        assert port.type.tensor_type.shape.dim[0].dim_value == 16
    with tc.Session(tc.convert(tmp_path / "batch.onnx")) as session:
        assert session.run(ramp(16, 8))["y"].shape == (16, 8)


def test_page_has_a_row_per_load() -> None:
    other = Served("OpenVINO", 50.0, 40.0, 44.0, Ratio(2.0, 1.5, 2.5))
    cells = [
        Cell("net", 1, 1, (Served("tpuconvert", 100.0, 10.0, 12.0), other)),
        Cell("net", 2, 16, (Served("tpuconvert", 1234.5, 20.0, 22.0), Served("OpenVINO", error="not installed (x)"))),
    ]
    text = page(cells, {"processor": "P"}, "python -m tools.bench throughput", 2)
    assert "| net | 1 | 1 | 100.0 | 2.00 (1.50 to 2.50), 50.0 |" in text
    assert "| net | 2 | 16 | 1234 | - |" in text
    assert "| net | 1 | 10.00, 12.00 | 40.00, 44.00 |" in text
    assert "- net, 2 clients, batch 16, OpenVINO: not installed (x)" in text
    assert text.count("| net | 2 |") == 1  # no latency of a batch
