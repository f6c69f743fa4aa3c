"""``tpuconvert run --outputs`` and ``--dump``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import RunError

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = np.load("examples/digits/calibration.npz")["images"]
    folder = tmp_path_factory.mktemp("model")
    np.save(folder / "one.npy", images[:1, None] * np.float32(0.0625))
    path = folder / "digits.tpum"
    tc.convert("examples/digits/digits.onnx", quantize="int8", calibration=images[:4, None] * np.float32(0.0625)).save(
        path
    )
    return path


def test_outputs(model: Path, tmp_path: Path, capsys: Captured) -> None:
    written = tmp_path / "out.npz"
    arguments = ["run", str(model), str(model.parent / "one.npy"), "--outputs", "add/relu, probability"]
    assert main([*arguments, "-o", str(written)]) == 0
    arrays = np.load(written)
    assert arrays.files == ["add/relu", "probability"] and arrays["add/relu"].dtype == np.uint8
    assert main([*arguments, "--decode", "classes"]) == 2
    assert "--outputs with --draw or --decode" in capsys.readouterr().err


def test_dump(model: Path, tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "tensors"
    sample = model.parent / "one.npy"
    assert main(["run", str(model), str(sample), "--dump", str(folder)]) == 0
    entries = json.loads((folder / "tensors.json").read_text())
    assert f"wrote {len(entries)} tensors to {folder}" in capsys.readouterr().err
    assert entries[0]["name"] == "image" and entries[0]["operator"] == "input"
    with tc.Session(model) as session:
        expected = session.run(np.load(sample), outputs=["add/relu"])["add/relu"]
    entry = next(item for item in entries if item["name"] == "add/relu")
    dumped = np.load(folder / entry["file"])
    assert dumped.tobytes() == expected.tobytes() and dumped.shape == tuple(entry["shape"])
    assert entry["scale"][0] > 0 and "Add" in " ".join(entry["sources"])
    assert {path.name for path in folder.iterdir()} == {item["file"] for item in entries} | {"tensors.json"}


def test_dump_keeps_a_folder_with_files(model: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine").write_text("x")
    assert main(["run", str(model), str(model.parent / "one.npy"), "--dump", str(tmp_path)]) == 2
    assert "is not an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_dump_is_the_only_run(model: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = Session.run, list[int]()

    def count(session: Session, *args: Any, **named: Any) -> Any:
        calls.append(1)
        return run(session, *args, **named)

    monkeypatch.setattr(Session, "run", count)
    call = ["run", str(model), str(model.parent / "one.npy"), "--dump", str(tmp_path / "t")]
    assert main([*call, "-o", str(tmp_path / "out.npz")]) == 0
    assert len(calls) == 1 and "probability" in np.load(tmp_path / "out.npz").files
    assert main([*call, "--outputs", "add/relu"]) == 2
    assert "--outputs with --dump" in capsys.readouterr().err


def test_a_failing_run_leaves_the_list_of_its_tensors(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.run

    def fail_after(session: Session, *args: Any, observe: Any, **named: Any) -> Any:
        def stop(value: Any, array: Any) -> None:
            observe(value, array)
            if value.name == "add/relu":
                raise RunError("the next node fails")

        return run(session, *args, observe=stop, **named)

    monkeypatch.setattr(Session, "run", fail_after)
    assert main(["run", str(model), str(model.parent / "one.npy"), "--dump", str(tmp_path / "t")]) != 0
    entries = json.loads((tmp_path / "t" / "tensors.json").read_text())
    assert entries[-1]["name"] == "add/relu"
    assert all((tmp_path / "t" / entry["file"]).is_file() for entry in entries)


def test_dump_takes_one_sample(model: Path, tmp_path: Path, capsys: Captured) -> None:
    np.save(tmp_path / "two.npy", np.zeros((2, 1, 8, 8), np.float32))
    assert main(["run", str(model), str(tmp_path / "two.npy"), "--dump", str(tmp_path / "new")]) == 2
    assert "--dump with 2 samples" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
