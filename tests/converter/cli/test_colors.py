"""Colors of errors and tables: on terminals only, and never from the text of a file name."""

import re
from pathlib import Path

import pytest

from tpuconvert.__main__ import main
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.text.styled_text import concat, split_lines, style
from tpuconvert.text.table import table

Captured = pytest.CaptureFixture[str]


def test_error_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["convrt", "a\x1b[2Jb"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("\x1b[1;31merror[TC2001]:\x1b[0m No such command")
    assert "\x1b[2m    see: tpuconvert --help\x1b[0m\n" in shown
    assert main(["check", "a\x1b[2Jb.onnx"]) == 2
    assert "\x1b[2J" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "is_terminal"), [("NO_COLOR", "1", True), ("TERM", "dumb", True), ("X", "", False)]
)
def test_no_colors(name: str, value: str, is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    assert main(["convrt"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def _use_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make stdout a terminal with colors. Not a fixture: pytest replaces stdout after the fixtures."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


def test_styles_of_a_table(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    _use_terminal(monkeypatch)
    rows = [("tensor", "SQNR dB"), ("a", style("3.0", "warning")), (style("b", "bad"), "exact"), ("\x1b[2Jc", "9")]
    echo(concat(table(rows), "\n"))
    assert capsys.readouterr().out.splitlines() == [
        "\x1b[1mtensor    SQNR dB\x1b[0m",
        "a         \x1b[33m3.0\x1b[0m",
        "\x1b[1;31mb\x1b[0m         exact",
        "\\x1b[2Jc  9",
    ]


def test_a_line_that_is_escaped_has_no_style(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    _use_terminal(monkeypatch)
    echo(concat([style("bad", "bad"), " ##[group]\nnext ", style("good", "good")]))
    assert capsys.readouterr().out == "bad \\x23#[group]\nnext \x1b[32mgood\x1b[0m\n"


def test_positions_of_styles() -> None:
    text = concat(["  ", style("warning:", "warning"), " a long explanation of it"])
    assert split_lines(concat(["x", text], "\n"))[1].spans == ((2, 10, "warning"),)  # type: ignore[attr-defined]
    assert table([("a", ""), (" ", " ")]) == ["a", ""]


def test_styles_of_wrapped_lines(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    _use_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")
    echo_text(concat(["  ", style("warning:", "warning"), " a long explanation of what is ", style("wrong", "bad")]))
    expected = ["  \x1b[33mwarning:\x1b[0m a long explanation of what is", "      \x1b[1;31mwrong\x1b[0m"]
    assert capsys.readouterr().out.splitlines() == expected


def _verify(digits: Path) -> list[str]:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum"]) == 0
    return ["verify", str(digits / "digits.onnx"), "net.tpum"]


def test_tables_of_a_command(digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """The characters are the same with and without colors."""
    arguments = _verify(digits)
    capsys.readouterr()
    assert main(arguments) == 0
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    _use_terminal(monkeypatch)
    assert main(arguments) == 0
    colored = capsys.readouterr().out
    assert re.search(r"^\x1b\[1mtensor .*SQNR dB\x1b\[0m$", colored, re.MULTILINE)
    assert "\x1b[32mexact\x1b[0m" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_styles_if_switched_off(name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    _use_terminal(monkeypatch)
    assert main(["ops", "--chip", "bm1684"]) == 0
    assert "\x1b[1moperator" in capsys.readouterr().out
    monkeypatch.setenv(name, value)
    assert main(["ops", "--chip", "bm1684"]) == 0
    assert "\x1b" not in capsys.readouterr().out
