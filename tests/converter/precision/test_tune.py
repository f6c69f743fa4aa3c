"""Mixed-precision search."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.broken_networks import mixed_ranges, samples, weight_outlier
from tests.support.networks.calibration_runs import PREPROCESS, Disordered
from tests.support.networks.small_models import examples
from tests.support.paired import paired
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import Options, group_options
from tpuconvert.conversion.quantization import quantization
from tpuconvert.conversion.source import Source
from tpuconvert.precision import tune as mixed_precision
from tpuconvert.precision.search import POINTS, BudgetSpentError, best_of, pareto, search
from tpuconvert.precision.tune import Goal, Search, Tuning, seconds_of
from tpuconvert.precision.tuning_text import tuning_lines
from tpuconvert.schema.errors import CorruptInputError, UsageError

Captured = pytest.CaptureFixture[str]
Write = Callable[[Path, int], Path]
COSINE = {"metric": "cosine", "max_drop": 0.01, "without": ["coarse-nodes", "int16-nodes"]}


@dataclass(frozen=True)
class Found:
    metric: float
    cost: float
    nodes: int
    is_enough: bool


class Gains:
    """Candidates that each add to the metric; records what is measured."""

    def __init__(self, gains: list[float], goal: float, trials: int = 1000) -> None:
        self.gains, self.goal, self.trials = gains, goal, trials
        self.found: dict[frozenset[int], Found] = {}

    def __call__(self, chosen: frozenset[int]) -> Found:
        if chosen not in self.found:
            if len(self.found) == self.trials:
                raise BudgetSpentError
            metric = sum(self.gains[index] for index in chosen)
            self.found[chosen] = Found(metric, 0.01 * len(chosen), len(chosen), metric >= self.goal)
        return self.found[chosen]

    def best(self) -> set[int]:
        best = best_of(self.found.values())
        return next(set(chosen) for chosen, found in self.found.items() if found is best)


def searched(gains: Gains, most: int | None = None) -> Gains:
    costs = [0.01] * len(gains.gains)
    search(costs, len(costs) if most is None else most, gains)
    return gains


def test_the_shortest_prefix_is_found() -> None:
    gains = searched(Gains([1.0] * 40, 11.0))
    assert gains.best() == set(range(11))


def test_unnecessary_candidates_are_left_out() -> None:
    gains = searched(Gains([5.0, 0.0, 3.0, 0.0, 4.0, 0.0], 12.0))
    assert gains.best() == {0, 2, 4}


def test_nothing_is_kept_if_the_goal_is_reached_without() -> None:
    gains = searched(Gains([1.0] * 20, 0.0))
    assert gains.best() == set()
    assert len(pareto(gains.found.values())) == POINTS


def test_the_best_metric_is_chosen_if_the_goal_is_not_reached() -> None:
    gains = searched(Gains([1.0, -1.0, 1.0, -5.0], 100.0))
    assert gains.best() == {0, 1, 2} or gains.best() == {0}


def test_the_curve_has_enough_points_and_no_set_beats_another() -> None:
    gains = searched(Gains([1.0 / (index + 1) for index in range(30)], 1.6))
    curve = pareto(gains.found.values())
    assert len(curve) >= POINTS
    assert [point.metric for point in curve] == sorted(point.metric for point in curve)
    assert [point.cost for point in curve] == sorted(point.cost for point in curve)


def test_candidates_beyond_the_limit_only_serve_the_curve() -> None:
    gains = searched(Gains([1.0] * 20, 10.0), most=4)
    assert any(len(chosen) > 4 for chosen in gains.found)
    assert all(len(chosen) in (0, 1, 2, 3, 4, 6, 8, 12) or len(chosen) > 4 for chosen in gains.found)


def test_a_spent_budget_ends_the_search() -> None:
    gains = Gains([1.0] * 20, 10.0, trials=3)
    with pytest.raises(BudgetSpentError):
        searched(gains)
    assert len(gains.found) == 3


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Path]:
    """Calibration and other samples of the broken networks."""
    for name, seed in (("calibration", 100), ("data", 200)):
        np.savez(tmp_path / f"{name}.npz", x=np.concatenate(samples(seed)))
    return {name: tmp_path / f"{name}.npz" for name in ("calibration", "data")}


@pytest.mark.parametrize(
    ("chip", "write", "names"),
    paired(["bm1686", "bm1684"], [(weight_outlier, {"broken"}), (mixed_ranges, {"joined", "last"})]),
)
def test_a_broken_network_is_as_accurate_as_float(
    tmp_path: Path, data: dict[str, Path], write: Write, names: set[str], chip: str
) -> None:
    source, output = write(tmp_path / "net.onnx", 0), tmp_path / "net.tpum"
    found = tc.tune(source, output=output, chip=chip, **group_options(**data, **COSINE))
    assert found.best.is_enough and found.best.metric > 0.9999 > found.trials[0].metric
    assert names <= set(found.best.keep_float) and len(found.best.keep_float) <= 2
    rules = tmp_path / "net.rules.yaml"
    given = {"calibration": data["calibration"], "precision": f"@{rules}", "without": COSINE["without"]}
    again = tc.convert(source, chip=chip, **group_options(quantize="int8", **given))
    again.save(tmp_path / "again.tpum")
    assert (tmp_path / "again.tpum").read_bytes() == output.read_bytes()


def test_calibration_runs_once(tmp_path: Path, data: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    whole = quantization.calibrate_and_check
    monkeypatch.setattr(quantization, "calibrate_and_check", lambda *args: calls.append(1) or whole(*args))
    found = tc.tune(
        weight_outlier(tmp_path / "net.onnx", 0), output=tmp_path / "net.tpum", **group_options(**data, **COSINE)
    )
    assert len(found.trials) > 3
    assert len(calls) == 1


def a_search(
    tmp_path: Path, files: dict[str, Path], clock: Callable[[], float] = lambda: 0.0, **changes: Any
) -> Search:
    source = tmp_path / "net.onnx"
    if not source.exists():
        weight_outlier(source, 0)
    given = {**files, "goal": Goal("cosine", 0.01), **changes}
    options = Options.of(quantize="int8", without=["coarse-nodes", "int16-nodes"], **given.pop("options", {}))
    return Search(
        Source(source),
        options,
        given["calibration"],
        given["data"],
        tmp_path / "net.tpum",
        given["goal"],
        10.0,
        clock=clock,
    )


def test_an_interrupted_search_continues(tmp_path: Path, data: dict[str, Path]) -> None:
    times = iter([0.0, 0.0, 1.0, 2.0, *[11.0] * 9])
    first = a_search(tmp_path, data, lambda: next(times)).run()
    assert not first.is_complete and len(first.trials) == 2
    assert (tmp_path / "net.tpum").exists() and (tmp_path / "net.rules.yaml").exists()
    before = json.loads((tmp_path / "net.tuning.json").read_text("utf-8"))
    continued = a_search(tmp_path, data).run()
    after = json.loads((tmp_path / "net.tuning.json").read_text("utf-8"))
    assert after["trials"][:2] == before["trials"] and len(after["trials"]) > 2
    for name in ("net.tpum", "net.tuning.json"):
        (tmp_path / name).rename(tmp_path / f"continued.{name}")
    whole = a_search(tmp_path, data).run()
    assert continued == whole
    assert (tmp_path / "continued.net.tpum").read_bytes() == (tmp_path / "net.tpum").read_bytes()


@pytest.mark.parametrize("name", sampled(["net.tpum", "net.rules.yaml"], every=2))
def test_a_removed_file_is_written_again(tmp_path: Path, data: dict[str, Path], name: str) -> None:
    a_search(tmp_path, data).run()
    before = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    a_search(tmp_path, data).run()
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.slow  # three searches; interrupted ones run by day
def test_a_search_that_was_killed_before_it_wrote_its_best_model(tmp_path: Path, data: dict[str, Path]) -> None:
    """The trials are written first: the model and its rules are then from an older trial."""
    a_search(tmp_path, data).run()
    before = [(tmp_path / name).read_bytes() for name in ("net.tpum", "net.rules.yaml")]
    assert before[1] != b"{}\n"
    tc.convert(tmp_path / "net.onnx").save(tmp_path / "net.tpum")
    (tmp_path / "net.rules.yaml").write_bytes(b"{}\n")
    a_search(tmp_path, data).run()
    assert [(tmp_path / name).read_bytes() for name in ("net.tpum", "net.rules.yaml")] == before


def test_a_damaged_state(tmp_path: Path, data: dict[str, Path]) -> None:
    a_search(tmp_path, data).run()
    file = tmp_path / "net.tuning.json"
    state = json.loads(file.read_text("utf-8"))
    for changes in (
        {"key": None}, {"key": []}, {"trials": None}, {"trials": [1]}, {"trials": [{}]}, {"candidates": [[1]]},
        {"trials": [{"keep_float": ["a"], "metric": "x", "cost": 0}]}, {"candidates": [[["a"], []]]},
        {"trials": [{"keep_float": 3, "metric": 1, "cost": 0}]}, {"candidates": {"a": 1}},
    ):  # fmt: skip
        damaged = json.dumps({**state, **changes})
        file.write_text(damaged, "utf-8")
        with pytest.raises(CorruptInputError, match=r"holds no state of a search|is damaged"):
            a_search(tmp_path, data).run()
        assert file.read_text("utf-8") == damaged, changes


def test_the_state_of_another_search_is_refused(tmp_path: Path, data: dict[str, Path]) -> None:
    a_search(tmp_path, data).run()
    with pytest.raises(UsageError, match="another value of --chip, --metric"):
        a_search(tmp_path, data, goal=Goal("sqnr", 20.0), options={"chip": "bm1684"}).run()
    (tmp_path / "net.tuning.json").write_text("{", "utf-8")
    with pytest.raises(CorruptInputError, match="is not JSON"):
        a_search(tmp_path, data).run()
    (tmp_path / "net.tuning.json").write_text("[]", "utf-8")
    with pytest.raises(CorruptInputError, match="holds no state of a search"):
        a_search(tmp_path, data).run()


def test_calibration_samples_are_refused(tmp_path: Path, data: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="has the calibration samples"):
        a_search(tmp_path, data, data=data["calibration"]).run()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "samples.npz").symlink_to(data["calibration"])
    with pytest.raises(UsageError, match="has the calibration samples"):
        a_search(tmp_path, data, data=tmp_path / "folder").run()


def test_sqnr_has_a_smallest_value(tmp_path: Path, data: dict[str, Path]) -> None:
    found = a_search(tmp_path, data, goal=Goal("sqnr", 40.0)).run()
    assert found.best.metric >= 40.0 > found.trials[0].metric
    assert any("dB" in line for line in tuning_lines(found.to_dict()))


@pytest.mark.parametrize("limit", sampled([0.0, 0.2], every=2))
def test_the_cost_is_limited(tmp_path: Path, data: dict[str, Path], limit: float) -> None:
    found = a_search(tmp_path, data, goal=Goal("cosine", 0.01, limit)).run()
    assert found.best.cost <= limit and not found.best.is_enough


def test_a_function_is_a_metric(tmp_path: Path, data: dict[str, Path]) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np, tpuconvert as tc\n"
        "def power(model, data):\n"
        "    with tc.Session(model) as session:\n"
        "        scores = session.run({'x': np.load(data)['x'][:1]})['scores']\n"
        "    return -float(np.square(scores).sum())\n"
        "def text(model, data):\n    return 'good'\n",
        "utf-8",
    )
    name = f"{tmp_path / 'mine.py'}:power"
    found = a_search(tmp_path, data, goal=Goal(name, 1000.0)).run()
    assert found.metric == name and np.isfinite(found.of_float)
    (tmp_path / "net.tuning.json").unlink()
    with pytest.raises(UsageError, match="returned 'good', expected a number"):
        a_search(tmp_path, data, goal=Goal(f"{tmp_path / 'mine.py'}:text", 1.0)).run()
    for wrong, message in (
        ("speed", "unknown metric 'speed'"),
        ("no.such:f", "no.such: cannot be imported"),
        (f"{tmp_path / 'mine.py'}:none", "has no function 'none'"),
    ):
        with pytest.raises(UsageError, match=message):
            a_search(tmp_path, data, goal=Goal(wrong, 1.0)).run()


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_budget(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-3m", "0s", "infs", "nanh", "3d"])
def test_wrong_budget(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        seconds_of(text)


def a_result() -> dict[str, Any]:
    trials = tuple(
        mixed_precision.Trial(tuple("abcdefgh"[:count]), 0.9 + 0.01 * count, 0.02 * count, count >= 5)
        for count in range(9)
    )
    return Tuning("cosine", 1.0, 5.0, None, trials, trials, trials[5], True).to_dict()


def test_report() -> None:
    lines = tuning_lines(a_result())
    assert lines[0].startswith("goal reached: cosine 0.95000 with 5 nodes in float, 10.00% of the multiply-accumulates")
    assert lines[1] == "in float: a, b, c, d, e"
    [marked] = [line for line in lines if line.startswith("->")]
    assert marked.split() == ["->", "5", "10.00%", "cosine", "0.95000", "5.00"]


class Recorded(Disordered):
    """Workers that run shards in random order, and record the classes of the tasks."""

    def __init__(self) -> None:
        super().__init__(3, 0)
        self.tasks: list[str] = []

    def results(self, task: Any, *arguments: Any) -> Iterator[tuple[int, Any]]:
        self.tasks.append(type(task).__name__)
        return super().results(task, *arguments)


def written(tmp_path: Path, name: str) -> list[bytes]:
    """All files of a search."""
    return [(tmp_path / f"{name}{suffix}").read_bytes() for suffix in (".tpum", ".rules.yaml", ".tuning.json")]


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["cosine", "sqnr", "agreement", "top1"])
def test_workers_run_calibration_refinement_and_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    """The example has labels. Without refinement the search has several trials."""
    rng = np.random.default_rng(0)
    with np.load(examples() / "digits.npz") as archive:
        images, labels = archive["images"][archive["test"]][:64], archive["labels"][archive["test"]][:64]
    noisy = np.clip(images + rng.integers(-6, 6, images.shape), 0, 16).astype(np.uint8)
    np.savez(tmp_path / "data.npz", images=noisy, **({"labels": labels} if metric == "top1" else {}))
    samples = {"calibration": examples() / "calibration.npz", "data": tmp_path / "data.npz"}
    goal = {"metric": metric, "max_drop": 40.0 if metric == "sqnr" else 0.001}
    found, workers = [], Recorded()
    for name in ("alone", "split"):
        found.append(
            tc.tune(
                examples() / "digits.onnx",
                output=tmp_path / f"{name}.tpum",
                preprocess=PREPROCESS,
                **group_options(refinement_samples=8, **samples, **goal),
            )
        )
        monkeypatch.setattr(mixed_precision, "open_workers", lambda *_: workers)
    assert found[1] == found[0] and len(found[0].trials) > 1
    assert written(tmp_path, "split") == written(tmp_path, "alone")
    assert workers.tasks.count("Calibration") == 1 and "_Refinement" in workers.tasks
    assert workers.tasks.count("_ModelRuns") >= len(found[0].trials)


def check_search_on_workers(tmp_path: Path, data: dict[str, Path], **options: Any) -> None:
    """Compare a search on workers with a search in one process."""
    source = weight_outlier(tmp_path / "net.onnx", 0)
    alone = tc.tune(source, output=tmp_path / "alone.tpum", **group_options(**data, **COSINE))
    assert tc.tune(source, output=tmp_path / "split.tpum", **group_options(**data, **options, **COSINE)) == alone
    assert written(tmp_path, "split") == written(tmp_path, "alone")


@pytest.mark.slow
def test_processes_give_the_search_of_one(tmp_path: Path, data: dict[str, Path]) -> None:
    check_search_on_workers(tmp_path, data, workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_a_scheduler_gives_the_search_of_one_process(tmp_path: Path, data: dict[str, Path], count: int) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra 'distributed'")
    settings = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=count, threads_per_worker=1, **settings) as dask:
        check_search_on_workers(tmp_path, data, scheduler=dask.scheduler_address)


def test_command(tmp_path: Path, data: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    weight_outlier(Path("net.onnx"), 0)
    call = ["tune", "net.onnx", "--calibration", str(data["calibration"]), "--data", str(data["data"])]
    left_out = ["--without", "coarse-nodes", "--without", "int16-nodes"]
    goal = ["--metric", "cosine", "--max-drop", "0.01", *left_out, "-o", "tuned.tpum"]
    assert main([*call, *goal, "--report", "net.html"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("goal reached: cosine") and "in float: scores, broken\n" in shown
    assert Path("tuned.rules.yaml").read_text("utf-8") == '"scores": float32\n"broken": float32\n'
    assert "Search for a mixed precision" in Path("net.html").read_text("utf-8")
    recipe = tc.load("tuned.tpum").metadata["recipe"]
    assert isinstance(recipe, dict) and recipe["options"]["precision"] == ["scores=float32", "broken=float32"]
    assert main(["reproduce", "net.onnx", "tuned.tpum", "--calibration", str(data["calibration"])]) == 0
