"""``tpuconvert evaluate`` on the bundled example, and top-k ranks computed by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.__main__ import main
from tpuconvert.cli.commands import evaluate as evaluate_command
from tpuconvert.evaluation.metrics.top_k import ranks_of
from tpuconvert.schema.errors import UsageError

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def right(digits: Path, capsys: Captured) -> int:
    """Write net.tpum and test.npz (100 test images); return how many images the oracle classifies correctly."""
    pixels = ["--preprocess", "color=GRAY,scale=0.0625"]
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum", *pixels]) == 0
    with np.load(digits / "digits.npz") as archive, np.load(digits / "expected.npz") as expected:
        images, labels = archive["images"][archive["test"]], archive["labels"][archive["test"]]
        chosen, scores = expected["chosen"], expected["onnxruntime"]
    np.savez("test.npz", images=images[chosen], labels=labels[chosen])
    capsys.readouterr()
    return int((scores.argmax(axis=1) == labels[chosen]).sum())


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_accuracy_is_that_of_another_engine(right: int, backend: str, capsys: Captured) -> None:
    assert main(["evaluate", "net.tpum", "--data", "test.npz", "--backend", backend]) == 0
    assert f"  top1  {right / 16:.2%}  ({right} right)\n" in capsys.readouterr().out
    assert main(["evaluate", "net.tpum", "--data", "test.npz", "--backend", backend, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["samples"], told["right"]["top1"]) == (16, right)


def test_limits(right: int, capsys: Captured) -> None:
    with np.load("test.npz") as archive:
        np.savez("wrong.npz", images=archive["images"], labels=(archive["labels"] + 1) % 10)
    assert main(["evaluate", "net.tpum", "--data", "test.npz", "--min-top1", f"{right / 16}"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "net.tpum", "--data", "wrong.npz", "--metric", "top5", "--min-top1", "0.5"]) == 5
    shown = capsys.readouterr()
    assert "  top1  " in shown.out
    assert "is below 0.5 on 16 samples" in shown.err


def test_a_folder_per_class(right: int, capsys: Captured) -> None:
    from PIL import Image

    with np.load("test.npz") as archive:
        for index, (image, label) in enumerate(zip(archive["images"], archive["labels"], strict=True)):
            for root in ("numbers", "names"):
                folder = Path(root) / (str(label) if root == "numbers" else f"class {label}")
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(folder / f"{index}.png")
    assert main(["evaluate", "net.tpum", "--data", "numbers"]) == 0
    assert f"({right} right)" in capsys.readouterr().out
    code = main(["evaluate", "net.tpum", "--data", "names"])
    classes = len(list(Path("names").iterdir()))
    assert code == (0 if classes == 10 else 2)
    for number in range(10):
        (Path("names") / f"class {number}").mkdir(exist_ok=True)
    capsys.readouterr()
    assert main(["evaluate", "net.tpum", "--data", "names"]) == 0
    assert f"({right} right)" in capsys.readouterr().out
    Path("names/more").mkdir()
    assert main(["evaluate", "net.tpum", "--data", "names"]) == 2
    assert "11 folders, the model knows 10 classes" in capsys.readouterr().err


@pytest.mark.usefixtures("right")
def test_wrong_calls(capsys: Captured) -> None:
    np.savez("unlabeled.npz", images=np.zeros((2, 8, 8), np.uint8))
    np.savez("far.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[1, 10])
    np.savez("more.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[1, 2, 3])
    np.savez("less.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[1])
    Path("empty").mkdir()
    for data, complaint in (
        ("absent.npz", "no such file"),
        ("unlabeled.npz", "holds no array 'labels'"),
        ("far.npz", "'labels' are int64 from 1 to 10, expected whole numbers from 0 to 9"),
        ("more.npz", "3 labels for 2 samples"),
        ("less.npz", "1 label for 2 samples"),
        ("net.tpum", "neither a folder per class"),
        ("empty", "has no folder per class"),
    ):
        assert main(["evaluate", "net.tpum", "--data", data]) == 2, data
        assert complaint in capsys.readouterr().err
    assert main(["evaluate", "net.tpum", "--data", "far.npz", "--scores", "else"]) == 2
    assert "the model has probability" in capsys.readouterr().err
    assert main(["evaluate", "net.tpum", "--data", "far.npz", "--min-top1", "95"]) == 2
    assert main(["evaluate", "net.tpum"]) == 2


def test_ranks() -> None:
    scores = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [np.nan, 0.0, 1.0], [np.nan, 0.0, 1.0]])
    assert ranks_of(scores, np.array([2, 0, 1, 0, 2])).tolist() == [1, 0, 1, 3, 1]


def test_the_doctor_names_the_preprocessing_that_classifies_better(right: int, capsys: Captured) -> None:
    call = ["evaluate", "net.tpum", "--data", "test.npz", "--threads", "1", "--doctor"]
    assert main(call) == 0
    assert "0 warnings" in capsys.readouterr().out
    assert main([*call, "--preprocess", "color=GRAY,mean=16,scale=-0.0625"]) == 0
    assert "change:   --preprocess fit=stretch,color=GRAY,mean=0,scale=0.0625" in capsys.readouterr().out


def test_a_low_accuracy_with_a_better_preprocessing_is_a_warning(right: int, capsys: Captured) -> None:
    """Without --doctor; the message names the preprocessing, and nothing is said about right samples."""
    call = ["evaluate", "net.tpum", "--data", "test.npz", "--threads", "1"]
    assert main([*call, "--preprocess", "color=GRAY,mean=16,scale=-0.0625"]) == 0
    shown = capsys.readouterr()
    assert "warning: top-1 " in shown.err and "more with --doctor" in shown.err
    assert "--preprocess fit=stretch,color=GRAY,mean=0,scale=0.0625" in shown.err
    assert main(call) == 0
    assert "warning" not in capsys.readouterr().err


def test_samples_that_the_doctor_does_not_take_are_measured(
    right: int, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise UsageError("two inputs")

    monkeypatch.setattr(evaluate_command, "doctor", refuse)
    call = ["evaluate", "net.tpum", "--data", "test.npz", "--preprocess", "color=GRAY,mean=16,scale=-0.0625"]
    assert main(call) == 0
    assert "  top1  " in capsys.readouterr().out
    assert main([*call, "--doctor"]) == 2 and "two inputs" in capsys.readouterr().err
