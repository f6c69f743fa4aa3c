"""Memory of a process that converts many models stays flat."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support import programs

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system has no /proc")

WEIGHTS = 512  # rows and columns of a matrix: 1 MiB of float32
MOST_MIB = 16  # the allocator keeps a few MiB that it has used once

PROGRAM = """
import hashlib, json, os, sys
import numpy as np
import tpuconvert as tc

path, count = sys.argv[1], int(sys.argv[2])

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

digests, sizes = set(), []
for index in range(count):
    model = tc.convert(path)
    model.save(path + ".tpum")
    with tc.Session(path + ".tpum") as session:
        (result,) = session.run({"x": np.ones((1, 512), np.float32)}).values()
    with open(path + ".tpum", "rb") as file:
        digests.add(hashlib.sha256(file.read() + result.tobytes()).hexdigest())
    sizes.append(resident())
warm = count // 3
print(json.dumps({"digests": len(digests), "growth": (max(sizes[warm:]) - max(sizes[:warm])) / (1 << 20)}))
"""


@pytest.mark.parametrize(
    ("models", "kinds"), [(24, 8), pytest.param(5000, 50, marks=pytest.mark.slow)], ids=("few", "many")
)
def test_models_of_many_kinds_leave_nothing(models: int, kinds: int) -> None:
    done = subprocess.run(
        programs.command("tests.robustness.many_models", "--models", str(models), "--kinds", str(kinds)),
        env=programs.environment(OPENBLAS_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["different"] == []


def _network(path: Path) -> None:
    """Write two matrix products with 1 MiB of weights each."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((WEIGHTS, WEIGHTS)).astype(np.float32), name) for name in "ab"
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, WEIGHTS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, WEIGHTS])
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights)), path)


def _convert_often(folder: Path, count: int) -> None:
    _network(folder / "net.onnx")
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "net.onnx"), str(count)],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    measured = json.loads(found.stdout)
    assert measured["digests"] == 1
    assert measured["growth"] < MOST_MIB, f"{measured['growth']:.1f} MiB in {count - count // 3} conversions"


@pytest.mark.slow
def test_100_conversions(tmp_path: Path) -> None:
    """A conversion leaves 4 MiB of reference cycles, so that without collections this takes 250 MiB."""
    _convert_often(tmp_path, 100)


@pytest.mark.slow
def test_2000_conversions(tmp_path: Path) -> None:
    _convert_often(tmp_path, 2000)
