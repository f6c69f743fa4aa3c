"""Conversion work grows linearly with the size of a model. Calls are counted, not time.

The slow tests use the models of the conversion benchmark: many nodes, large weights in one file, external data.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tpuconvert as tc
from tests.support.networks.work_counts import calls_of
from tools.bench import conversion as conversion_bench
from tpuconvert.conversion.convert import convert
from tpuconvert.optimizer.engine import engine

LARGEST_TENSOR = 4096 * 4096 * 4


def convert_to(path: Path, target: Path) -> tc.Model:
    model = convert(path)
    model.save(target)
    return tc.load(target)


def test_four_times_the_nodes_take_four_times_the_calls(tmp_path: Path) -> None:
    counts = []
    for nodes in (120, 120, 480):  # the first conversion imports modules and fills caches
        conversion_bench.chain(nodes)(tmp_path / "m.onnx")
        counts.append(calls_of(lambda: convert_to(tmp_path / "m.onnx", tmp_path / "m.tpum")))
    assert counts[2] / counts[1] < 4.1, counts


def test_rules_are_tried_a_constant_number_of_times_per_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    match = engine.match

    def count_and_call(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        return match(*arguments)

    monkeypatch.setattr(engine, "match", count_and_call)
    counts = []
    for nodes in (120, 480):
        conversion_bench.chain(nodes)(tmp_path / "m.onnx")
        tries = 0
        convert(tmp_path / "m.onnx")
        counts.append(tries)
    assert counts[0] > 0 and counts[1] / counts[0] < 4.1, counts


MEASURED = """
import sys
from tpuconvert.__main__ import main
status = main(sys.argv[1:])
with open("/proc/self/status") as file:
    (line,) = (line for line in file if line.startswith("VmHWM:"))
print(status, line.split()[1])
"""


def peak_of(*words: str, folder: Path) -> int:
    """Peak memory of a command in bytes, measured in its process, because the system's value includes the parent."""
    command = [sys.executable, "-c", MEASURED, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    status, kibibytes = done.stdout.split()[-2:]
    assert status == "0", done.stderr
    return int(kibibytes) << 10


@pytest.mark.slow
def test_sixteen_thousand_nodes(tmp_path: Path) -> None:
    conversion_bench.MODELS["chain_16k"](tmp_path / "m.onnx")
    model = convert_to(tmp_path / "m.onnx", tmp_path / "m.tpum")
    assert len(model.graph) == 2 * 5333, "a conv and an activation of every three nodes"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read where Linux has it")
@pytest.mark.parametrize("name", ["large", "external"])
def test_memory_does_not_grow_with_the_weights(tmp_path: Path, name: str) -> None:
    conversion_bench.MODELS[name](tmp_path / "m.onnx")
    peak = peak_of("convert", "m.onnx", "-o", "m.tpum", folder=tmp_path)
    assert (tmp_path / "m.tpum").stat().st_size > (1 << 30 if name == "large" else 3 << 30)
    assert peak < LARGEST_TENSOR + (300 << 20)
