"""Files that commands write: reproducible bytes, and atomic replacement."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.networks.small_models import scaled_and_shifted
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.model.description import describe_graph
from tpuconvert.report.report_file import write_report
from tpuconvert.schema.errors import ResourceLimitError


def convert(digits: Path, target: str) -> list[str]:
    options = ["--quantize", "int8", "--calibration", str(digits / "calibration.npz")]
    return ["convert", str(digits / "digits.onnx"), "-o", target, *options, "--preprocess", "color=GRAY,scale=0.0625"]


@pytest.mark.parametrize("seeds", [("0", "271828"), pytest.param(("1", "2", "3"), marks=pytest.mark.slow)], ids=str)
def test_same_bytes_with_other_hash_seeds_and_folders(seeds: tuple[str, ...], digits: Path, tmp_path: Path) -> None:
    calls = [*convert(digits, "net.tpum"), "--report", "net.json"], ["inspect", "net.tpum", "--html", "net.html"]
    program = f"from tpuconvert.__main__ import main\nraise SystemExit(main({calls[0]!r}) or main({calls[1]!r}))"
    results = []
    for seed in seeds:
        folder = tmp_path / f"folder_{seed}"
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, check=True, capture_output=True)
        results.append([(folder / f"net.{suffix}").read_bytes() for suffix in ("tpum", "json", "html")])
    assert all(result == results[0] for result in results[1:])


def test_file_does_not_know_where_it_was_made(digits: Path, tmp_path: Path) -> None:
    assert main(convert(digits, "net.tpum")) == 0
    content = Path("net.tpum").read_bytes()
    for word in (str(tmp_path), str(digits), os.environ.get("USER", "no such user")):
        assert word.encode() not in content


def test_failure_leaves_the_old_file(digits: Path) -> None:
    Path("net.tpum").write_bytes(b"old")
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum", "--quantize", "int8"]) == 2
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum", "--outputs", "nowhere"]) == 2
    assert Path("net.tpum").read_bytes() == b"old"
    assert [path.name for path in Path().iterdir()] == ["net.tpum"]


def test_missed_threshold_writes_nothing(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpuconvert.verify.verification import Thresholds

    monkeypatch.setattr(Thresholds, "default", staticmethod(lambda *_: Thresholds(min_sqnr=1000.0)))
    assert main([*convert(digits, "net.tpum"), "--verify"]) == 5
    assert list(Path().iterdir()) == []


def test_folder_that_does_not_exist(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(digits / "digits.onnx")
    for call in (["-o", "absent/net.tpum"], ["--report", "absent/net.html"]):
        assert main(["convert", model, *call]) == 2
        assert f"{call[1]}: there is no folder absent" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("after", sampled([0.5, 0.05, 0.2, 0.35, 0.65, 0.8], every=6))
def test_killed_conversion_leaves_a_whole_file(digits: Path, after: float) -> None:
    assert main(convert(digits, "net.tpum")) == 0
    new = Path("net.tpum").read_bytes()
    Path("net.tpum").write_bytes(b"old")
    command = [sys.executable, "-m", "tpuconvert", *convert(digits, "net.tpum")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
    assert Path("net.tpum").read_bytes() in (b"old", new)


def test_report_keeps_its_old_content_when_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    write_report(path, describe_graph(scaled_and_shifted(name="first")))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ResourceLimitError, match="No space left"):
        write_report(path, describe_graph(scaled_and_shifted(name="second")))
    assert json.loads(path.read_text())["title"] == "first.onnx"
    assert list(tmp_path.iterdir()) == [path]
