"""Names that no file can have: too long, empty, with a null character. Every function reports them as a wrong call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.paired import paired
from tpuconvert.ci.manifest import read_manifest
from tpuconvert.cli.entry import run
from tpuconvert.conversion.quantization.ranges_file import read_ranges

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"
NET = DIGITS / "digits.onnx"
SAMPLES = np.zeros((2, 1, 8, 8), np.float32)

NAMES = {
    "long": "a" * 5000,
    "long part": "b/" + "a" * 300,
    "long path": "a/" * 3000,
    "null": "x\0y",
    "empty": "",
    **{f"long {suffix}": "a" * 300 + suffix for suffix in (".onnx", ".tflite", ".prototxt", ".tpum", ".npz", ".yaml")},
}


@pytest.fixture(scope="module")
def model() -> tc.Model:
    return tc.convert(NET)


READERS: dict[str, Callable[[tc.Model, str], Any]] = {
    "convert": lambda model, name: tc.convert(name),
    "weights": lambda model, name: tc.convert(DIGITS / "digits.prototxt", name or "."),
    "load": lambda model, name: tc.load(name),
    "session": lambda model, name: tc.Session(name),
    "calibration": lambda model, name: tc.convert(NET, quantize="int8", calibration=name or "x"),
    "calibrate": lambda model, name: tc.calibrate(NET, calibration=name or "x"),
    "ranges": lambda model, name: tc.quantize(NET, ranges=name),
    "read ranges": lambda model, name: read_ranges(name),
    "check": lambda model, name: tc.check(name),
    "inspect": lambda model, name: tc.inspect(name),
    "verify": lambda model, name: tc.verify(name, model),
    "verify against": lambda model, name: tc.verify(NET, name),
    "evaluate": lambda model, name: tc.evaluate(model, name or "x"),
    "bench": lambda model, name: tc.bench(name),
    "diff": lambda model, name: tc.diff(name, model),
    "manifest": lambda model, name: read_manifest(Path(name)),
    "preprocess": lambda model, name: tc.convert(NET, preprocess=name + ".yaml"),
    "precision": lambda model, name: tc.convert(
        NET, quantize=tc.Quantization(precision=name or "x"), calibration=SAMPLES
    ),
    "reduce": lambda model, name: tc.reduce(name),
    "save": lambda model, name: model.save(name),
    "export": lambda model, name: tc.export(model, name or "\0", to="onnx"),
    "export from": lambda model, name: tc.export(name, "out", to="onnx"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", NAMES)
def test_names(reader: str, kind: str, model: tc.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((tc.UsageError, tc.CorruptInputError)):
        READERS[reader](model, NAMES[kind])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "kind"),
    paired(
        ["source", "weights", "calibration", "data", "baseline", "output", "allow_root"],
        sorted(set(NAMES) - {"empty"}),
    ),
)
def test_names_in_a_manifest(key: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cache is beside the manifest."""
    import yaml

    content = {"models": {"m": {"source": str(NET), key: NAMES[kind]}}}
    (tmp_path / "models.yaml").write_text(yaml.safe_dump(content))
    assert run(["ci", str(tmp_path / "models.yaml"), "--cache", str(tmp_path / "cache")]) in (2, 4, 5), key
    assert "internal" not in capsys.readouterr().err


@pytest.mark.parametrize("size", ["1.2.3 MB", "..", ".", "9" * 400, "9" * 300 + " GiB", "1e3 MB", "٣MB", "1 TB", "-1"])
def test_sizes_in_a_manifest(size: str, tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(f"models: {{m: {{source: {NET}, limits: {{size: '{size}'}}}}}}")
    with pytest.raises(tc.UsageError, match=r"models.m.limits.size: .* is not a size"):
        read_manifest(tmp_path / "models.yaml")


@pytest.mark.parametrize(("text", "size"), [("1.5 KiB", 1536), (".5MB", 500_000), ("3.", 3), ("7 b", 7)])
def test_valid_sizes(text: str, size: int, tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(f"models: {{m: {{source: {NET}, limits: {{size: '{text}'}}}}}}")
    (job,) = read_manifest(tmp_path / "models.yaml")
    assert job.limits == {"size": size}


@pytest.mark.parametrize("key", ["low", "high", "threshold"])
def test_ranges_beyond_float32(key: str, tmp_path: Path) -> None:
    """Their scales would be infinite."""
    import json

    tc.calibrate(NET, calibration=SAMPLES).save(tmp_path / "r.json")
    content = json.loads((tmp_path / "r.json").read_text())
    for found in content["ranges"].values():
        found[key] = -1e300 if key == "low" else 1e300
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(tc.CorruptInputError, match="exceeds float32"):
        tc.quantize(NET, ranges=tmp_path / "r.json")
