"""Colors of errors: on terminals only, and never from the text of a file name."""

import pytest

from tpuconvert.__main__ import main

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
