"""Memory and construction time of plans. Times are printed, never asserted."""

import subprocess
import sys
import textwrap
import time

import pytest

import tpuconvert as tc
from tests.support.networks.data_models import convert_model, is_quantized, names
from tools.accuracy.datasets import entries
from tpuconvert.runtime.native.builder.loader import extension

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

MOST_OVER_BOUND = 1.1
SMALL = 16_384
"""Arenas below this size consist mostly of rounding to cache lines."""

SAMPLE = ("cifar10_resnet8_onnx", "kws_dscnn_int8_tflite", "vww_mobilenet_tflite")


def check_arena(root, name: str, chip: str, how: str) -> None:
    model, _ = convert_model(root, name, chip, how)
    start = time.perf_counter()
    memory = tc.Session(model, backend="native", threads=1).memory
    seconds = time.perf_counter() - start
    arena, bound = memory["arena"], memory["arena_lower_bound"]
    print(
        f"\n{name} {chip} {how}: arena {arena} bytes, {arena / max(bound, 1):.3f} of the lower bound;"
        f" packed {memory['packed']}; planned in {1000 * seconds:.1f} ms"
    )
    assert arena <= max(MOST_OVER_BOUND * bound, SMALL), f"{name} {chip} {how}: {arena} bytes, at least {bound}"


@pytest.mark.parametrize("name", SAMPLE)
def test_arenas_of_a_sample(name, data_root):
    how = "source" if is_quantized(entries(data_root)[name]) else "int8"
    check_arena(data_root, name, "bm1686", how)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["bm1686", "bm1684"])
@pytest.mark.parametrize("name", names())
def test_arenas_of_all(name, chip, data_root):
    if is_quantized(entries(data_root)[name]):
        check_arena(data_root, name, chip, "source")
    else:
        check_arena(data_root, name, chip, "int8")
        check_arena(data_root, name, chip, "float")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="how the peak is read is Linux's")
def test_start_up_and_peak_of_a_process(data_root, tmp_path):
    """Memory of a process that loads and runs one file, minus the memory of a process that only imports the package."""
    model, _ = convert_model(data_root, "imagenet_squeezenet_v1.1_onnx", "bm1686", "int8")
    model.save(tmp_path / "model.tpum")
    program = """
        import pathlib, sys, time
        import numpy as np
        import tpuconvert as tc
        from tpuconvert.runtime.native import plan
        from tpuconvert.runtime.native.matchers import matcher as groups

        groups.matchers()

        def peak():
            status = pathlib.Path("/proc/self/status").read_text()
            return 1024 * int(status.split("VmHWM:")[1].split()[0])

        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at what is held now
        before = peak()
        start = time.perf_counter()
        with tc.Session(sys.argv[1], backend="native", threads=1) as session:
            loaded = time.perf_counter()
            session.run({item.name: np.zeros(item.shape, item.dtype) for item in session.inputs})
            ran, memory = time.perf_counter(), session.memory
        grown = peak() - before
        print(f"load, plan and pack {1000 * (loaded - start):.1f} ms, first run {1000 * (ran - loaded):.1f} ms")
        print(grown, memory["arena"] + memory["packed"])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "model.tpum")],
        capture_output=True,
        text=True,
        check=True,
    )
    times, bytes_ = done.stdout.strip().splitlines()
    grown, planned = map(int, bytes_.split())
    size = (tmp_path / "model.tpum").stat().st_size
    print(f"\n{times}; resident memory grew by {grown} bytes, file {size}, arena and packed weights {planned}")
    assert 0 < grown <= size + planned + 50 * 2**20
