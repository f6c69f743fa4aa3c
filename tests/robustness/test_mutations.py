"""Damaged files of every format end with documented errors. docs/security.md has the counts of whole campaigns."""

import random
from pathlib import Path

import pytest
from mutation_campaign import FORMATS, Outcome, full_count, run_campaign

SAMPLE = 30


@pytest.fixture(scope="module", params=list(FORMATS))
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
        assert FORMATS[name].case([content], name, 1) != content


def check(found: Outcome, count: int) -> None:
    assert found.failures == [] and found.tried == count


def test_a_sample(name: str) -> None:
    check(run_campaign(name, SAMPLE), SAMPLE)


@pytest.mark.slow
def test_all(name: str) -> None:
    check(run_campaign(name, full_count(name)), full_count(name))
