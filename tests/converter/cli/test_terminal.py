"""Line breaks in terminal output: between words on a terminal, none if the output is redirected."""

import pytest
from rich.text import Text

from tpuconvert.cli.terminal import echo_text, wrap_line

LINE = "  stays in float: mul x2 ('a', 'b'): their operands are float"


def wrapped(line: str, width: int) -> list[str]:
    return [part.plain for part in wrap_line(Text(line), width)]


def test_lines_are_broken_at_words() -> None:
    assert wrapped(LINE, 40) == ["  stays in float: mul x2 ('a', 'b'):", "      their operands are float"]
    assert wrapped("short", 40) == ["short"]
    assert wrapped("x" * 60, 40) == ["x" * 60]
    assert wrapped("a " + "x" * 60 + " b c", 40) == ["a", "    " + "x" * 60, "    b c"]


@pytest.mark.parametrize(("is_terminal", "columns", "lines"), [(True, 40, 2), (True, 20, 1), (False, 40, 1)])
def test_only_terminals_get_broken_lines(
    is_terminal: bool, columns: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    echo_text(LINE)
    assert len(capsys.readouterr().out.splitlines()) == lines
