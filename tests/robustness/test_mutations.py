"""Damaged files of every format end with documented errors. docs/reference/security.md has the counts of campaigns."""

import importlib.util
import json
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tpuconvert as tc
from tests.support import programs
from tests.support.damage import mutation_campaign
from tests.support.damage.mutation_campaign import (
    MOST_BYTES,
    MOST_SECONDS,
    Outcome,
    lines_of,
    run_campaign,
    run_campaigns,
)
from tests.support.damage.mutation_formats import FORMATS, Format, Listed, full_count

SAMPLE = 8


@pytest.mark.slow
def test_the_page_has_whole_campaigns_without_failures() -> None:
    """Rows that fewer cases gave would promise too much."""
    page = (Path(tc.__file__).parents[1] / "docs" / "reference" / "security.md").read_text(encoding="utf-8")
    part = page.split("<!-- campaign:")[1].split("<!-- end of campaign -->")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in part.splitlines()[3:] if line]
    assert rows
    for name, tried, refused, failures, seconds, megabytes in rows:
        count = int(tried.replace(",", ""))
        assert count == full_count(name) or FORMATS[name].is_cut, name  # the sizes of small files change with versions
        assert failures == "0" and int(refused.replace(",", "")) <= count, name
        assert float(seconds) <= MOST_SECONDS and float(megabytes) <= MOST_BYTES >> 20


def test_a_silent_worker_is_killed() -> None:
    with subprocess.Popen(["sh", "-c", "echo a; echo b; exec sleep 1000"], stdout=subprocess.PIPE) as worker:
        select.select([worker.stdout], [], [])
        assert list(lines_of(worker, 0.5))[:1] == [b"a"]
    assert worker.returncode == -signal.SIGKILL


ENDLESS = """
import json, sys
from tests.support.damage import mutation_campaign as campaign
from tests.support.damage.mutation_formats import FORMATS, Format

def use(path):
    while path.read_bytes():
        pass

campaign.MOST_SECONDS = 0.25
FORMATS["endless"] = Format(".bin", lambda: [b"x"], lambda content, _: content, use)
campaign.run_cases("endless", range(3, 5), lambda record: print(json.dumps(record), flush=True))
"""


def test_a_worker_with_an_endless_loop_is_ended() -> None:
    made = subprocess.run([sys.executable, "-c", ENDLESS], env=programs.environment(), stdout=subprocess.PIPE)
    assert made.returncode == -signal.SIGXCPU
    assert [json.loads(line) for line in made.stdout.splitlines()] == [{"case": 3}]


NAMES = [name for name, each in FORMATS.items() if not isinstance(each, Listed)]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    if request.param.startswith("images"):
        pytest.importorskip("PIL")
    return str(request.param)


def test_seeds_are_valid(name: str, tmp_path: Path) -> None:
    """Otherwise every damaged file would be refused for the same reason."""
    path = tmp_path / f"net{FORMATS[name].suffix}"
    for content in FORMATS[name].seeds():
        path.write_bytes(content)
        FORMATS[name].use(path)
        assert FORMATS[name].mutate(content, random.Random(1)) != b""
        assert any(FORMATS[name].case([content], name, number) != content for number in range(8))


def check(found: Outcome, count: int) -> None:
    assert found.failures == [] and found.tried == count


@pytest.fixture(scope="module")
def samples() -> dict[str, Outcome]:
    """Samples of all formats from one worker, whose start takes longer than a sample."""
    has_pictures = importlib.util.find_spec("PIL") is not None
    return run_campaigns([name for name in NAMES if has_pictures or not name.startswith("images")], SAMPLE)


def test_a_sample(name: str, samples: dict[str, Outcome]) -> None:
    check(samples[name], SAMPLE)


DYING = """
import json, os, sys
for name, first, end in zip(*[iter(sys.argv[1:])] * 3):
    print(json.dumps({"format": name}), flush=True)
    for seed in range(int(first), int(end)):
        print(json.dumps({"case": seed}), flush=True)
        if (name, seed) == ("first", 2):
            os._exit(9)
        print(json.dumps({"done": seed, "outcome": "accepted", "failure": "", "seconds": 0, "bytes": 0}), flush=True)
"""


def test_a_worker_that_dies_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its case is a failure; the cases after it and the other formats run."""
    for name in ("first", "second"):
        chosen = Format(".bin", lambda: [b"x"], lambda content, _: content, lambda path: None)
        monkeypatch.setitem(FORMATS, name, chosen)
    monkeypatch.setattr(programs, "command", lambda _, __, *words, options: [sys.executable, "-c", DYING, *words])
    found = run_campaigns(["first", "second"], 4)
    assert found == {"first": Outcome(4, 3, failures=["2: the process died (exit code 9)"]), "second": Outcome(4, 4)}


def test_a_seed_begins_at_another_case(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Cases of a list are numbered from 0; files that are cut have no other cases than those that the tests try."""
    begun: dict[str, tuple[int, int]] = {}

    def run(name: str, count: int, first: int) -> Outcome:
        begun[name] = (count, first)
        return Outcome(count, count)

    monkeypatch.setattr(mutation_campaign, "run_campaign", run)
    listed = Listed(".bin", lambda: [b"x"], lambda c, _: c, print, is_cut=True, list_cases=lambda: [bytes] * 7)
    monkeypatch.setitem(FORMATS, "listed", listed)
    assert mutation_campaign.main(["--seed", "1000", "--count", "9", "--formats", "npz bytes,npz cut,listed"]) == 0
    assert begun == {"npz bytes": (9, 1000), "listed": (9, 1000 % 7)}
    assert capsys.readouterr().out.startswith("seed 1000\n")


@pytest.mark.slow
def test_all(name: str) -> None:
    check(run_campaign(name, full_count(name)), full_count(name))
