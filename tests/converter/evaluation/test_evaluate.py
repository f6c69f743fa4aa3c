"""``evaluate`` with models whose outputs are the pixels of the images, so that every result is known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tpuconvert as tc
from tests.support.onnx import models as onnx_models
from tpuconvert.__main__ import main
from tpuconvert.schema.errors import ThresholdError, UsageError

ROWS = 3
"""Number of detections in an image."""

SIZE = 64
"""Width and height that labels of detection images refer to."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def passing(shape: tuple[int, ...], target: tuple[int, ...], preprocess: str, gain: float = 1.0) -> tc.Model:
    """Return a model whose output is its input times ``gain``, in another shape."""
    nodes = [onnx_models.one("Mul", "x", "gain", outputs=["z"]), onnx_models.one("Reshape", "z", "shape")]
    constants = {"gain": np.float32(gain).reshape(1), "shape": np.array(target, np.int64)}
    return tc.convert(
        onnx_models.model(nodes, {"x": np.zeros(shape, np.float32)}, ["y"], constants), preprocess=preprocess
    )


def detector(gain: float = 1.0) -> tc.Model:
    """Return a model that takes gray images, whose upper left 3 x 7 pixels are rows of a detection output, * 64."""
    nodes = [
        onnx_models.one("Slice", "x", "start", "end", outputs=["s"]),
        onnx_models.one("Mul", "s", "gain", outputs=["y"]),
    ]
    constants = {
        "start": np.array([0, 0, 0, 0], np.int64),
        "end": np.array([1, 1, ROWS, 7], np.int64),
        "gain": np.array([1, 1, gain, 1, 1, 1, 1], np.float32),
    }
    proto = onnx_models.model(nodes, {"x": np.zeros((1, 1, SIZE, SIZE), np.float32)}, ["y"], constants)
    return tc.convert(proto, preprocess="color=GRAY,scale=0.015625")


def write_scene(path: Path, rows: list[list[int]]) -> None:
    """Write an image that ``detector`` turns into rows (image, class, score * 64, left, top, right, bottom)."""
    pixels = np.zeros((SIZE, SIZE), np.uint8)
    for index, (kind, score, *box) in enumerate(rows):
        pixels[index, :7] = [0, kind * 64, score, *box]
    Image.fromarray(pixels).save(path)


FOUND = {
    "a.png": [[1, 60, 8, 8, 24, 24], [2, 40, 0, 0, 32, 16]],
    "b.png": [[1, 50, 30, 30, 40, 40], [1, 30, 8, 8, 16, 16]],
}
"""Detections: class from 1, score, box."""

LABELS = [
    {"boxes": [[8, 8, 24, 24]], "classes": [0]},
    {"boxes": [[8, 8, 16, 16]], "classes": [0]},
]
"""In the first image, class 1 is found where there is none. In the second, a wrong box has the higher score."""

PRECISION = (51 + 50 * 2 / 3) / 101
"""Average precision of class 0 for right, wrong, right."""


@pytest.fixture
def scenes(folder: Path) -> Path:
    (folder / "images").mkdir()
    for name, rows in FOUND.items():
        write_scene(folder / "images" / name, rows)
    return folder / "images"


def coco_file(path: Path) -> None:
    """Write ``LABELS`` with categories 7 and 9, and images that are not sorted by name."""
    annotations = [
        {
            "id": index,
            "image_id": 5 - index,
            "category_id": 7,
            "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]],
        }
        for index, label in enumerate(LABELS)
        for box in label["boxes"]
    ]
    images = [{"id": 5, "file_name": "a.png"}, {"id": 4, "file_name": "b.png"}]
    path.write_text(json.dumps({"images": images, "categories": [{"id": 9}, {"id": 7}], "annotations": annotations}))


def yolo_files(folder: Path) -> None:
    for name, label in zip(FOUND, LABELS, strict=True):
        left, top, right, bottom = (value / SIZE for value in label["boxes"][0])
        row = (0, (left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
        (folder / name).with_suffix(".txt").write_text(" ".join(map(str, row)) + "\n")


@pytest.mark.parametrize("form", ["mappings", "coco", "coco beside the images", "text beside the images", "text"])
def test_mean_average_precision(scenes: Path, form: str) -> None:
    labels: Any = None
    if form == "mappings":
        labels = LABELS
    elif form.startswith("coco"):
        labels = scenes / "instances.json" if "beside" in form else scenes.parent / "labels.json"
        coco_file(labels)
        labels = None if "beside" in form else labels
    else:
        target = scenes if "beside" in form else scenes.parent / "texts"
        target.mkdir(exist_ok=True)
        yolo_files(target)
        labels = None if "beside" in form else target
    found = tc.evaluate(detector(), scenes, labels, metrics="map", decode="detection_output")
    assert found.values == pytest.approx({"map": PRECISION, "map50": PRECISION})
    assert found.per_class == {"map": {0: pytest.approx(PRECISION)}}
    assert (found.samples, found.output, found.right, found.agreement) == (2, None, {}, {})


def test_crop_moves_boxes_to_the_image(folder: Path) -> None:
    """With fit=crop the model sees the central 7/8 of the shorter side: here 56 pixels, from (20, 4)."""
    seen: list[tuple[int, int]] = []

    def decode(outputs: dict[str, np.ndarray], size: tuple[int, int]) -> tuple[Any, ...]:
        seen.append(size)
        return [[20, 4, 76, 60]], [1.0], [0]

    Image.new("L", (96, 64)).save(folder / "wide.png")
    model = model_of_whole_box()
    labels = [{"boxes": [[20, 4, 76, 60]], "classes": [0]}]
    assert tc.evaluate(model, ["wide.png"], labels, metrics="map", decode=decode).values["map"] == 1
    assert seen == [(64, 96)]
    assert tc.evaluate(model, ["wide.png"], labels, metrics="map", decode="detection_output").values["map"] == 1


def model_of_whole_box() -> tc.Model:
    """Return a model that detects class 1 in its whole input, whatever it sees."""
    nodes = [
        onnx_models.one("ReduceMean", "x", outputs=["m"], axes=[2, 3]),
        onnx_models.one("Mul", "m", "zero", outputs=["z"]),
        onnx_models.one("Add", "z", "rows"),
    ]
    rows = np.array([[[[0, 1, 1, 0, 0, 1, 1]]]], np.float32)
    proto = onnx_models.model(
        nodes, {"x": np.zeros((1, 1, 56, 56), np.float32)}, ["y"], {"zero": np.zeros(1, np.float32), "rows": rows}
    )
    return tc.convert(proto, preprocess="color=GRAY,fit=crop")


def test_detections_are_compared_with_those_of_another_model(scenes: Path) -> None:
    """Half the scores: of 60, 40, 50 and 30 (of 64), only 30 and 25 remain above 0.25 * 64; class and box are equal."""
    call = {"metrics": "map", "decode": "detection_output", "reference": detector()}
    found = tc.evaluate(detector(gain=0.5), scenes, LABELS, **call)
    assert found.agreement == {"kept": 3 / 4, "detections": 4}
    assert found.reference == found.values
    alone = tc.evaluate(detector(gain=0.5), scenes, unlabeled=True, **call)
    assert (alone.values, alone.reference, alone.agreement) == ({}, None, found.agreement)
    with pytest.raises(ThresholdError, match=r"kept 0\.75 is below 0\.8 on 2 samples"):
        alone.check({"kept": 0.8})
    found.check({"kept": 0.75, "map": 0.5}, {"map_drop": 0})


@pytest.mark.parametrize("form", ["scores", "classes"])
def test_mean_iou(folder: Path, form: str) -> None:
    """Pixels of three classes: the intersections over union are computed here from sets."""
    rng = np.random.default_rng(0)
    truth, seen = rng.integers(0, 3, (2, 2, 12, 16))
    truth[0, :3] = 255
    (folder / "images").mkdir()
    (folder / "labels").mkdir()
    for index in range(2):
        pixels = np.eye(3, dtype=np.uint8)[seen[index]] * 200 if form == "scores" else seen[index].astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{index}.png")
        Image.fromarray(truth[index].astype(np.uint8)).save(folder / "labels" / f"{index}.png")
    channels, color = (3, "RGB") if form == "scores" else (1, "GRAY")
    shape = (1, channels, 12, 16)
    model = passing(shape, shape, f"color={color}")
    found = tc.evaluate(model, "images", "labels", metrics="miou")
    counts = truth != 255
    shares = {
        index: ((truth == index) & (seen == index) & counts).sum()
        / (((truth == index) | (seen == index)) & counts).sum()
        for index in range(3)
    }
    assert found.per_class == {"miou": pytest.approx(shares)}
    wanted = {"miou": np.mean(list(shares.values())), "pixel_accuracy": (truth == seen)[counts].mean()}
    assert found.values == pytest.approx(wanted)
    arrays = tc.evaluate(model, ["images/0.png", "images/1.png"], list(truth), metrics="miou")
    assert arrays.values == found.values
    if form == "scores":
        negative = passing(shape, shape, "color=RGB", gain=-1.0)
        compared = tc.evaluate(negative, "images", metrics="miou", reference=model, unlabeled=True)
        assert compared.agreement == {"changed_pixels": 1.0}
    Image.new("L", (5, 5)).save("labels/1.png")
    with pytest.raises(UsageError, match=r"1\.png: the label image has 5x5 pixels, the image 12x16"):
        tc.evaluate(model, "images", "labels", metrics="miou")
    Path("labels/1.png").unlink()
    with pytest.raises(UsageError, match=r"no label image 1\.png, 1 of 2 are missing"):
        tc.evaluate(model, "images", "labels", metrics="miou")


def test_a_smaller_output_is_enlarged(folder: Path) -> None:
    """One cell of the output covers 4 x 4 pixels of the image."""
    Image.fromarray(np.repeat(np.repeat([[0, 1], [1, 1]], 4, 0), 4, 1).astype(np.uint8)).save("image.png")
    model = passing((1, 1, 2, 2), (1, 2, 2), "color=GRAY")
    truth = np.repeat(np.repeat([[0, 1], [1, 0]], 4, 0), 4, 1)
    assert tc.evaluate(model, ["image.png"], [truth], metrics="miou").values["pixel_accuracy"] == 0.75


SCORES = np.array([[3, 1, 2], [0, 5, 1], [1, 2, 0], [4, 4, 1]], np.float32)
"""Predicted classes 0, 1, 1 and 0."""


def classifier(gain: float = 1.0, batch: int = 1) -> tc.Model:
    nodes = [onnx_models.one("Mul", "x", "gain")]
    inputs = {"x": np.zeros((batch, 3), np.float32)}
    return tc.convert(onnx_models.model(nodes, inputs, ["y"], {"gain": np.full(1, gain, np.float32)}))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("form", ["array", "npy", "npz", "text", "data"])
def test_class_labels(form: str, batch: int) -> None:
    classes = np.array([0, 2, 1, 1])
    samples, labels = SCORES, None
    if form == "array":
        labels = classes
    elif form == "npy":
        np.save("labels.npy", classes)
        labels = "labels.npy"
    elif form == "npz":
        np.savez("labels.npz", labels=classes)
        labels = "labels.npz"
    elif form == "text":
        Path("labels.txt").write_text("0\n2\n1\n\n1\n")
        labels = "labels.txt"
    else:
        np.savez("data.npz", x=SCORES, labels=classes)
        samples = "data.npz"
    found = tc.evaluate(classifier(batch=batch), samples, labels, metrics=["top1", "top2"])
    assert (found.samples, found.right, found.output) == (4, {"top1": 2, "top2": 4}, "y")
    assert found.values == {"top1": 0.5, "top2": 1.0}


def test_labels_by_file_name(folder: Path) -> None:
    model = passing((1, 3, 1, 1), (1, 3), "color=RGB")
    (folder / "images").mkdir()
    for index in range(3):
        Image.fromarray(np.eye(3, dtype=np.uint8)[index].reshape(1, 1, 3) * 9).save(f"images/{index} x.png")
    Path("labels.csv").write_text("file,class\n2 x.png,1\n0 x.png,0\n1 x.png,1\n")
    Path("labels.txt").write_text("2 x.png 1\n0 x.png 0\n1 x.png 1\n")
    for labels in ("labels.csv", "labels.txt", {"0 x.png": 0, "1 x.png": 1, "2 x.png": 1}):
        assert tc.evaluate(model, "images", labels, metrics="top1").right == {"top1": 2}
    with pytest.raises(UsageError, match=r"no label for 1 image, the first is '2 x\.png'"):
        tc.evaluate(model, "images", {"0 x.png": 0, "1 x.png": 1}, metrics="top1")


def test_predictions_of_two_classifiers() -> None:
    """The other model has the opposite scores: classes 1, 0, 2 and 2."""
    found = tc.evaluate(classifier(), SCORES, [1, 1, 1, 2], metrics="top1", reference=classifier(-1.0))
    assert found.agreement == {"flips": 1.0}
    assert (found.values, found.reference) == ({"top1": 0.5}, {"top1": 0.5})
    assert found.measures() == {"top1": 0.5, "flips": 1.0, "top1_drop": 0.0}
    same = tc.evaluate(classifier(), SCORES, metrics="top1", reference=classifier(2.0), unlabeled=True)
    assert same.agreement == {"flips": 0.0}


def test_the_metric_is_a_function() -> None:
    calls: list[tuple[dict[str, np.ndarray], list[Any]]] = []

    def mean_of_first(outputs: dict[str, np.ndarray], labels: list[Any]) -> float:
        calls.append((outputs, labels))
        return float(outputs["y"][:, 0].mean())

    found = tc.evaluate(classifier(), SCORES, ["a", "b", "c", "d"], metrics=mean_of_first)
    assert found.values == {"mean_of_first": 2.0}
    assert calls[0][0]["y"].tolist() == SCORES.tolist() and calls[0][1] == ["a", "b", "c", "d"]
    found = tc.evaluate(classifier(), SCORES, metrics=[mean_of_first])
    assert found.values == {"mean_of_first": 2.0} and calls[1][1] == [None] * 4
    together = tc.evaluate(classifier(), SCORES, [0, 0, 0, 0], metrics=["top1", mean_of_first])
    assert together.values == {"top1": 0.5, "mean_of_first": 2.0}
    with pytest.raises(UsageError, match="metric fail failed: ZeroDivisionError"):
        tc.evaluate(classifier(), SCORES, metrics=fail)


def fail(outputs: dict[str, np.ndarray], labels: list[Any]) -> float:
    return 1 / 0


def test_workers_measure_the_same(scenes: Path) -> None:
    call = {"metrics": "map", "decode": "detection_output", "reference": detector(0.5)}
    alone = tc.evaluate(detector(), scenes, LABELS, **call)
    assert tc.evaluate(detector(), scenes, LABELS, workers=2, **call) == alone


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"metrics": "map", "decode": "ssd"}, "the model has no preprocessing"),
        ({"metrics": "precision"}, "there is no metric 'precision'"),
        ({"metrics": []}, "no metrics"),
        ({"metrics": "top0"}, "there is no metric 'top0'"),
        ({"labels": [0, 1]}, "2 labels for 4 samples"),
        ({"labels": [0, 1, 2, 3]}, "labels are from 0 to 3, expected 0 to 2"),
        ({"labels": [0.5, 1, 2, 0]}, "labels are float64, expected integers"),
        ({"labels": "absent.txt"}, "absent.txt: no such file"),
        ({}, "samples without labels"),
        ({"scores": "z", "labels": [0, 0, 0, 0]}, "there is no output 'z'"),
        ({"unlabeled": True}, "unlabeled samples without another model"),
    ],
)
def test_wrong_calls(call: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tc.evaluate(classifier(), SCORES, **{"metrics": "top1", **call})


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "no labels of the images"),
        ([], "labels of 0 images for 2 images"),
        ([{"boxes": []}] * 2, "labels of an image are dict"),
        ([{"boxes": [[0, 0, 1, 1]], "classes": []}] * 2, "1 box with 0 classes"),
        ("absent.json", "absent.json: no such file"),
        ("bad.json", "no COCO annotations"),
        ("far.json", "1 image not in images, the first is 'z.png'"),
        ("texts", "no labels of boxes: "),
    ],
)
@pytest.mark.usefixtures("scenes")
def test_wrong_labels_of_boxes(labels: Any, message: str) -> None:
    Path("bad.json").write_text('{"images": [{}]}')
    Path("far.json").write_text('{"images": [{"id": 1, "file_name": "z.png"}], "categories": [], "annotations": []}')
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("0 0.5 0.5\n")
    with pytest.raises(tc.TpuConvertError, match=message):
        tc.evaluate(detector(), "images", labels, metrics="map", decode="detection_output")


def test_command_line(scenes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    detector().save("float.tpum")
    detector(gain=0.5).save("net.tpum")
    coco_file(scenes / "instances.json")
    call = ["evaluate", "net.tpum", "--data", "images", "--metric", "map", "--decode", "detection_output"]
    assert main([*call, "--per-class"]) == 0
    out = capsys.readouterr().out
    assert f"  map  {PRECISION:.2%}\n  map50  {PRECISION:.2%}\n  map of class 0  {PRECISION:.2%}\n" in out
    compared = [*call, "--reference", "float.tpum"]
    assert main([*compared, "--max", "map_drop=0.01", "--min", "kept=0.9"]) == 5
    shown = capsys.readouterr()
    assert f"  map  {PRECISION:.2%}  ({PRECISION:.2%} with float.tpum)\n" in shown.out
    assert "  kept  75.00%\n  detections  4\n" in shown.out
    assert "kept 0.75 is below 0.9 on 2 samples" in shown.err
    assert main([*compared, "--unlabeled", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["values"], told["agreement"], told["samples"]) == ({}, {"kept": 0.75, "detections": 4}, 2)
    assert main([*call, "--min", "kept=0.9"]) == 2
    assert "a limit for 'kept', which is not measured\n    measured: map, map50\n" in capsys.readouterr().err
    assert main([*call, "--min", "map"]) == 2
    assert "'map' is not NAME=NUMBER" in capsys.readouterr().err
    assert main([*call, "--metric", "top1"]) == 2
