"""A call without options does what the command does with the defaults of all its options."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tpuconvert.__main__ import main
from tpuconvert.cli import conversion, plain_conversion
from tpuconvert.cli.plain_conversion import plain_files

PLAIN = [
    ["net.onnx"],
    ["net.onnx", "-o", "out.tpum"],
    ["-o", "out.tpum", "net.onnx"],
    ["net.prototxt", "net.caffemodel"],
    ["net.prototxt", "--output", "out.tpum", "net.caffemodel"],
    ["o", ""],
]
OTHERS = [
    [],
    ["-o", "out.tpum"],
    ["net.onnx", "-o"],
    ["net.onnx", "-o", "-x"],
    ["net.onnx", "-oout.tpum"],
    ["net.onnx", "--output=out.tpum"],
    ["net.onnx", "--outp", "out.tpum"],
    ["net.onnx", "-o", "a.tpum", "-o", "b.tpum"],
    ["net.onnx", "--json"],
    ["net.onnx", "--", "weights"],
    ["net.onnx", "-"],
    ["a", "b", "c"],
    ["--help"],
]


def ids(value: list[str]) -> str:
    return " ".join(value) or "nothing"


@pytest.mark.parametrize("words", PLAIN, ids=ids)
def test_same_calls_as_the_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways hand the same files and options to the same function, and tell the same."""
    made: list[Any] = []

    def make(files: Any, settings: Any, progress: Any, **more: Any) -> dict[str, Any]:
        with_defaults = {"watch": None, "said_again": (), **more}
        made.append((files, settings, type(progress), {**with_defaults, "said_again": [*with_defaults["said_again"]]}))
        return {"made": len(made)}

    def tell(summary: dict[str, Any], *, as_json: bool) -> None:
        made.append(as_json)

    monkeypatch.setattr(conversion, "make", make)
    monkeypatch.setattr(conversion, "tell", tell)
    assert plain_files(["convert", *words]) is not None
    assert main(["convert", *words]) == 0
    monkeypatch.setattr(plain_conversion, "plain_files", lambda _: None)
    assert main(["convert", *words]) == 0
    assert len(made) == 4
    assert made[:2] == made[2:]


@pytest.mark.parametrize("words", OTHERS, ids=ids)
def test_all_other_calls_are_left_to_the_command(words: list[str]) -> None:
    assert plain_files(["convert", *words]) is None
    assert plain_files(["--traceback", "convert", *words]) is None
    assert plain_files(["inspect", *words]) is None


@pytest.mark.parametrize("words", [["digits.onnx", "-o", "net.tpum"], ["absent.onnx"], ["x.txt", "-o", "no/x.tpum"]])
def test_same_output_as_the_command(
    words: list[str], digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("digits.onnx").write_bytes((digits / "digits.onnx").read_bytes())
    told, files = [], []
    for patch in (False, True):
        if patch:
            monkeypatch.setattr(plain_conversion, "plain_files", lambda _: None)
        code = main(["convert", *words])
        told.append((code, capsys.readouterr()))
        files.append(Path("net.tpum").read_bytes() if Path("net.tpum").exists() else b"")
    assert told[0] == told[1]
    assert files[0] == files[1]


def test_loads_no_library_for_command_lines(digits: Path) -> None:
    code = (
        "import sys\nfrom tpuconvert.__main__ import main\n"
        f"assert main(['convert', {str(digits / 'digits.onnx')!r}, '-o', 'net.tpum']) == 0\n"
        "assert 'click' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, stdout=subprocess.DEVNULL)
