"""Damaged files of every format end with documented errors. docs/security.md has the counts of whole campaigns."""

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
from tests.support.damage.mutation_campaign import MOST_BYTES, MOST_SECONDS, Outcome, lines_of, run_campaign
from tests.support.damage.mutation_formats import FORMATS, Listed, full_count

SAMPLE = 30


def test_the_page_has_whole_campaigns_without_failures() -> None:
    """Rows that fewer cases gave would promise too much."""
    page = (Path(tc.__file__).parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
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


@pytest.fixture(scope="module", params=[name for name, each in FORMATS.items() if not isinstance(each, Listed)])
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


def test_a_sample(name: str) -> None:
    check(run_campaign(name, SAMPLE), SAMPLE)


@pytest.mark.slow
def test_all(name: str) -> None:
    check(run_campaign(name, full_count(name)), full_count(name))
