"""Line breaks in terminal output: between words on a terminal, none if the output is redirected."""

import os

import pytest

from tpuconvert.cli.terminal import echo_text, wrap_line

LINE = "  stays in float: mul x2 ('a', 'b'): their operands are float"


def test_lines_are_broken_at_words() -> None:
    assert wrap_line(LINE, 40).splitlines() == [
        "  stays in float: mul x2 ('a', 'b'):",
        "      their operands are float",
    ]
    assert wrap_line("short", 40) == "short"
    assert wrap_line("x" * 60, 40) == "x" * 60


@pytest.mark.parametrize(("is_terminal", "columns", "lines"), [(True, 40, 2), (True, 20, 1), (False, 40, 1)])
def test_only_terminals_get_broken_lines(
    is_terminal: bool, columns: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_args, **_options: os.terminal_size((columns, 24)))
    echo_text(LINE)
    assert len(capsys.readouterr().out.splitlines()) == lines
