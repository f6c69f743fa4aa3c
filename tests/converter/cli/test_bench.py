"""``tpuconvert bench`` on the bundled example. The measured times are not asserted, only that they are consistent."""

import json
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.model.model import Model
from tpuconvert.run.benchmark import KernelCost, StepCost, Timing, by_kernel, step_costs, time_runs
from tpuconvert.runtime.reference.profile import StepProfile
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import F32, TensorType

Captured = pytest.CaptureFixture[str]

RUN = ["--warmup", "1", "--runs", "3", "--backend", "reference"]


@pytest.fixture
def network(digits: Path, own_folder: Path) -> Path:
    tc.convert(digits / "digits.onnx").save("net.tpum")
    return own_folder / "net.tpum"


@pytest.mark.usefixtures("network")
def test_says_what_ran_and_how_long(capsys: Captured) -> None:
    assert main(["bench", "net.tpum", *RUN]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    first, second, third = shown.out.splitlines()
    assert first == "net.tpum: float for BM1686, NumPy executor, on random numbers, seed 0"
    assert " ms of 3 runs; " in second and second.endswith(" GMAC/s")
    assert third.split()[::2] == ["p50", "p90", "p99", "min", "mean", "ms"]


@pytest.mark.usefixtures("network")
def test_json(capsys: Captured) -> None:
    assert main(["bench", "net.tpum", *RUN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["warmup_runs"], found["backend"], found["threads"]) == (3, 1, "reference", None)
    assert found["min_s"] <= found["p50_s"] == found["median_s"] <= found["p90_s"] <= found["p99_s"]
    assert found["macs"] > 0
    assert "steps" not in found


@pytest.mark.usefixtures("network")
def test_profile_has_every_node_once(capsys: Captured) -> None:
    assert main(["bench", "net.tpum", *RUN, "--profile", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    nodes = [node.name for node in tc.load("net.tpum").graph.sorted_nodes()]
    assert [name for step in found["steps"] for name in step["nodes"]] == nodes
    assert sum(step["macs"] for step in found["steps"]) == found["macs"]
    assert sum(step["share"] for step in found["steps"]) == pytest.approx(1.0)
    assert all(kernel["is_reference"] for kernel in found["kernels"])
    assert sum(kernel["steps"] for kernel in found["kernels"]) == len(nodes)
    times = [kernel["seconds"] for kernel in found["kernels"]]
    assert times == sorted(times, reverse=True)


@pytest.mark.usefixtures("network")
def test_profile_names_reference_steps(capsys: Captured) -> None:
    assert main(["bench", "net.tpum", *RUN, "--profile"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split() == ["kernel", "ms", "share", "MAC", "GMAC/s", "moved", "nodes"]
    assert any(line.startswith("reference conv ") for line in lines)
    assert lines[-1].endswith(" steps ran as NumPy references, 100.0% of the time (medians of 3 runs)")


@pytest.mark.usefixtures("network")
def test_own_input(capsys: Captured) -> None:
    np.savez("own.npz", image=np.ones((1, 1, 8, 8), np.float32))
    assert main(["bench", "net.tpum", *RUN, "--input", "own.npz"]) == 0
    assert ", on own.npz\n" in capsys.readouterr().out


@pytest.mark.usefixtures("network")
def test_input_that_does_not_fit(capsys: Captured) -> None:
    np.savez("bad.npz", x=np.zeros((1, 2, 3), np.float32))
    assert main(["bench", "net.tpum", *RUN, "--input", "bad.npz"]) == 2
    assert capsys.readouterr().err.startswith("error[TC2001]: ")


@pytest.mark.usefixtures("network")
def test_number_and_time_exclude_each_other(capsys: Captured) -> None:
    assert main(["bench", "net.tpum", "--runs", "1", "--seconds", "1"]) == 2
    assert "runs and seconds exclude each other" in capsys.readouterr().err


def test_input_of_unknown_size(capsys: Captured) -> None:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (4, "T")))
    graph.output(graph.add(Active(ActiveType.ACTIVE_RELU), x))
    Model(FileModel(graph, tc.Chip.BM1686, "test")).save("open.tpum")
    assert main(["bench", "open.tpum", *RUN]) == 2
    assert "input 'x' has no fixed shape (T)" in capsys.readouterr().err
    np.savez("x.npz", x=np.zeros((4, 3), np.float32))
    assert main(["bench", "open.tpum", *RUN, "--input", "x.npz", "--profile"]) == 0
    assert main(["bench", "open.tpum", *RUN, "--input", "x.npz", "--profile", "--json"]) == 0


def test_percentiles_are_measured_times() -> None:
    timing = Timing(tuple(float(number) for number in range(10, 0, -1)))
    assert (timing.shortest, timing.median, timing.mean) == (1.0, 5.5, 5.5)
    assert [timing.percentile(percent) for percent in (1, 50, 90, 91, 99, 100)] == [1.0, 5.0, 9.0, 10.0, 10.0, 10.0]
    assert timing.runs_per_second == pytest.approx(10 / 55)


class Ticking:
    """A session with a simulated clock: every run takes one second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs = 0

    def run(self, feeds: object) -> None:
        self.now += 1.0
        self.runs += 1

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("how", "timed"), [({"runs": 4}, 4), ({"seconds": 2.5}, 3), ({"seconds": 2.0}, 2), ({"seconds": 0.0}, 1)]
)
def test_warm_up_is_not_timed(how: dict[str, float], timed: int) -> None:
    session = Ticking()
    timing = time_runs(session, {}, warmup=2, clock=session.clock, **how)  # type: ignore[arg-type]
    assert timing.seconds == (1.0,) * timed
    assert session.runs == timed + 2


def test_work_of_a_group_is_counted_once() -> None:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (2, 3)))
    graph.output(graph.add(MatrixMul(), x, graph.constant(np.zeros((3, 4), np.float32)), name="product"))
    copy = StepProfile("copy", "copy", ("product",), 1.0, is_reference=False)
    product = StepProfile("product", "matmul_f32", ("product",), 2.0, is_reference=False)
    assert [step.macs for step in step_costs([[copy, product]], graph)] == [0, 24]


def test_fused_steps_and_medians() -> None:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (2, 3)))
    y = graph.add(MatrixMul(), x, graph.constant(np.zeros((3, 4), np.float32)), name="product")
    graph.output(graph.add(Active(ActiveType.ACTIVE_RELU), y, name="relu"))
    graph.output(graph.add(Active(ActiveType.ACTIVE_ABSVAL), x, name="abs"))

    def step_profiles(product: float, rest: float) -> list[StepProfile]:
        return [
            StepProfile("relu", "matmul_f32", ("product", "relu"), product, is_reference=False),
            StepProfile("abs", "reference", ("abs",), rest, is_reference=True),
        ]

    steps = step_costs([step_profiles(3.0, 1.0), step_profiles(1.0, 1.0), step_profiles(9.0, 1.0)], graph)
    assert steps == [
        # input, weights and result; the matmul result is internal to the fused step
        StepCost("matmul_f32", ("product", "relu"), 24, 4 * (6 + 12 + 8), 3.0, 0.75, False),
        StepCost("active", ("abs",), 0, 4 * (6 + 6), 1.0, 0.25, True),
    ]
    assert steps[0].macs_per_second == 8.0
    assert steps[1].macs_per_second is None
    assert by_kernel([*steps, steps[0]]) == [
        KernelCost("matmul_f32", 2, 48, 6.0, 1.5, False),
        KernelCost("active", 1, 0, 1.0, 0.25, True),
    ]
