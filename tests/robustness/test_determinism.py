"""One conversion gives one file: for every hash seed, number of workers and threads, and instruction set."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import tpuconvert as tc
from tests.support.networks.data_models import convert_model, is_quantized, names
from tools.accuracy.datasets import entries
from tpuconvert.runtime.native.builder.loader import ISA_VARIABLE, available_isas

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"

PROGRAM = """
import hashlib, sys
import numpy as np
import tpuconvert as tc

source, samples, target, workers = *sys.argv[1:4], int(sys.argv[4])
model = tc.convert(
    source, quantize=tc.Quantization(workers=workers), calibration=samples, preprocess="color=GRAY,scale=0.0625"
)
model.save(target)
found = hashlib.sha256(open(target, "rb").read())
images = np.load(samples)["images"][:4, None].astype(np.float32) / 16
with tc.Session(target, threads=workers) as session:
    for image in images:
        for result in session.run({session.inputs[0].name: image[None]}).values():
            found.update(result.tobytes())
print(found.hexdigest())
"""


def _digests(folder: Path, runs: Iterable[tuple[int, int, str]]) -> set[str]:
    """Convert in a process per (hash seed, workers, instruction set), and return the digests of files and results."""
    found = set()
    for seed, workers, isa in runs:
        files = (DIGITS / "digits.onnx", DIGITS / "calibration.npz", folder / f"{seed}.tpum")
        words = [*map(str, files), str(workers)]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), ISA_VARIABLE: isa, "OPENBLAS_NUM_THREADS": "1"}
        call = [sys.executable, "-c", PROGRAM, *words]
        made = subprocess.run(call, env=environment, stdout=subprocess.PIPE, check=True, text=True)
        found.add(made.stdout.strip())
    return found


needs_engine = pytest.mark.skipif(not available_isas(), reason="the engine was left out of this build")


@pytest.mark.slow
@needs_engine
def test_a_sample(tmp_path: Path) -> None:
    isas = available_isas()
    assert len(_digests(tmp_path, [(0, 1, isas[-1]), (1, 2, isas[0]), (2, 8, isas[len(isas) // 2])])) == 1


@needs_engine
@pytest.mark.slow
def test_all(tmp_path: Path) -> None:
    """Ten runs with different hash seeds, for each number of workers and each instruction set."""
    settings = itertools.product((1, 2, 8), available_isas(), range(10))
    runs = [(100 * index + run, workers, isa) for index, (workers, isa, run) in enumerate(settings)]
    assert len(_digests(tmp_path, runs)) == 1


def _check_round_trip(model: tc.Model, folder: Path) -> None:
    model.save(folder / "first.tpum")
    tc.load(folder / "first.tpum").save(folder / "second.tpum")
    first, second = (folder / name for name in ("first.tpum", "second.tpum"))
    assert first.read_bytes() == second.read_bytes()
    tc.load(second).save(first)  # onto a file that is no longer in use
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("source", [("digits.onnx",), ("digits.tflite",), ("digits.prototxt", "digits.caffemodel")])
def test_round_trip(source: tuple[str, ...], tmp_path: Path) -> None:
    _check_round_trip(tc.convert(*(DIGITS / name for name in source)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["float", "int8"])
@pytest.mark.parametrize("name", names())
def test_round_trip_of_the_data_set(name: str, how: str, data_root: Path, tmp_path: Path) -> None:
    if how == "int8" and is_quantized(entries(data_root)[name]):
        pytest.skip("the source is quantized: 'float' keeps its integers")
    effort = {"effort": "low"} if how == "int8" else {}
    _check_round_trip(convert_model(data_root, name, "bm1686", how, **effort)[0], tmp_path)
