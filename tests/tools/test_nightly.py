"""The nightly run: pieces, their results, and the issue about a failure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.fresh_seed import VARIABLE, fresh_seed
from tools.nightly import __main__ as nightly
from tools.nightly import issue
from tools.nightly.results import PIECES, Result, findings_of, read_results, table

GOOD = Result("sanitize", 7, 61.2, 0, ())
BAD = Result("mutations", 7, 3661.0, 2, ("FAILED tests/a.py::b - 1 | 2", "E   ValueError: y"))
RUN = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "5", "GITHUB_SHA": "abc"}


def test_a_piece_is_run_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "import sys; print(sys.argv[1:]); print('FAILED tests/a.py::b'); sys.exit(3)"
    result = nightly.run_piece("zoo", 5, tmp_path, [sys.executable, "-c", program])
    assert (result.piece, result.seed, result.exit_code, result.findings) == ("zoo", 5, 3, ("FAILED tests/a.py::b",))
    assert read_results(tmp_path) == [result]
    text = "['zoo', 'SEED=5']\nFAILED tests/a.py::b\n"
    assert capsys.readouterr().out == text == (tmp_path / "zoo.log").read_text()


def test_all_pieces_run_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nightly, "run_piece", lambda piece, seed, folder: Result(piece, seed, 1, piece == "zoo", ()))
    assert nightly.main(["--seed", "12"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("seed 12\n") and [f"| {piece} |" in printed for piece in PIECES] == [True] * len(PIECES)
    assert nightly.main(["sanitize"]) == 0


def test_an_unknown_piece_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        nightly.main(["mutation"])
    assert "mutation: not a piece of the nightly run; the pieces are test-nightly, " in capsys.readouterr().err


def test_findings_are_the_lines_that_name_a_failure() -> None:
    log = ["1 passed\n", "FAILED tests/a.py::b - x\n", "  E   ValueError: y\n", "end\n", "make: *** [z] Error 1\n"]
    assert findings_of(log, 0) == ()
    assert findings_of(log, 1) == ("FAILED tests/a.py::b - x", "E   ValueError: y")
    assert findings_of(["a\n", "this needs Clang\n", "make[1]: *** [z] Error 2\n"], 1) == ("this needs Clang",)
    assert findings_of([], 1) == ("no output",)


def test_table() -> None:
    assert table([GOOD, BAD]).splitlines()[2:] == [
        "| sanitize | 1:01 | ok |  |",
        "| mutations | 61:01 | failed (2) | FAILED tests/a.py::b - 1 \\| 2 and 1 more |",
    ]


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """Results of all pieces, one of which failed."""
    folder = tmp_path / "night"
    folder.mkdir()
    for piece in PIECES:
        (BAD if piece == BAD.piece else Result(piece, 7, 1.0, 0, ())).write(folder)
    (folder / f"{BAD.piece}.log").write_text("x" * 10_000 + "the end\n")
    return folder


def test_text_of_the_issue(night: Path) -> None:
    text = issue.body(night, RUN)
    assert text.startswith("Run https://host/o/r/actions/runs/5 of abc, seed 7.\n")
    assert "    make mutations SEED=7\n" in text and "- `E   ValueError: y`" in text
    assert "the end\n~~~~" in text.replace("\n\n", "\n") and len(text) < issue.MOST_LOG + 2_000


def test_a_piece_without_a_result_is_a_failure(night: Path) -> None:
    (night / f"{BAD.piece}.json").unlink()
    assert "`mutations` has no result: its job ended early" in issue.body(night, RUN)


def test_no_text_if_all_succeeded(night: Path) -> None:
    Result(BAD.piece, 7, 1.0, 0, ()).write(night)
    assert issue.body(night, RUN) == ""


@pytest.mark.parametrize("is_open", [False, True])
def test_one_issue_is_opened_or_updated(night: Path, tmp_path: Path, is_open: bool) -> None:
    """By a program ``gh`` that records its calls."""
    listed = [{"number": 9, "title": "The nightly run fails sometimes"}]
    listed += [{"number": number, "title": issue.TITLE} for number in (12, 4)] if is_open else []
    gh = tmp_path / "gh"
    gh.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"with open({str(tmp_path / 'calls')!r}, 'a') as calls:\n"
        "    calls.write(json.dumps([sys.argv[1:], sys.stdin.read()]) + '\\n')\n"
        f"print({json.dumps(listed)!r} if sys.argv[2] == 'list' else 'https://host/o/r/issues/4')\n"
    )
    gh.chmod(0o755)
    variables = programs.environment(**RUN, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    command = programs.command("tools.nightly.issue", str(night))
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert done.stdout == "https://host/o/r/issues/4\n"
    [_, [arguments, text]] = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    target = ["comment", "4"] if is_open else ["create", "--title", issue.TITLE]
    assert arguments == ["issue", *target, "--repo", "o/r", "--body-file", "-"]
    assert text == issue.body(night, RUN)


def test_the_seed_of_a_night_is_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(VARIABLE, "77")
    assert fresh_seed() == 77
    monkeypatch.delenv(VARIABLE)
    seed = fresh_seed()
    assert 0 <= seed < 2**31 and f"seed {seed}" in capsys.readouterr().out
