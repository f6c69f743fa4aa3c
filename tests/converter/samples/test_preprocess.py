"""Conversion of images to inputs: equal to the reference inputs of the data set, or to values computed by hand."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import CorruptInputError, MissingExtraError, UsageError

RED, GREY = (200, 100, 50), (10, 10, 10)
IMAGE = np.array([[[RED, GREY]]], dtype=np.uint8)  # one image, one row, two pixels


def test_nothing_asked_changes_only_the_layout() -> None:
    x = Preprocess().apply(IMAGE)
    assert x.dtype == np.float32
    assert x.tolist() == [[[[200, 10]], [[100, 10]], [[50, 10]]]]


def test_mean_and_scale_are_in_the_models_channel_order() -> None:
    x = Preprocess(color="BGR", mean=(10, 20, 40), scale=(1, 2, 0.5)).apply(IMAGE)
    assert x[0, :, 0, 0].tolist() == [(50 - 10) * 1, (100 - 20) * 2, (200 - 40) * 0.5]


def test_channels_last_keeps_the_pixels_together() -> None:
    x = Preprocess(layout="NHWC", scale=(0.5,)).apply(IMAGE)
    assert x.tolist() == [[[[100, 50, 25], [5, 5, 5]]]]


def test_images_without_channel_axis_are_grey() -> None:
    x = Preprocess(color="GRAY", mean=(1,)).apply(np.array([[[3, 4], [5, 6]]], dtype=np.uint8))
    assert x.tolist() == [[[[2, 3], [4, 5]]]]


def test_crop_takes_the_middle_seven_eighths() -> None:
    image = np.zeros((1, 16, 24, 3), np.uint8)
    image[:, 1:15, 5:19] = 255  # the central square of 14 pixels: 7/8 of 16
    x = Preprocess(fit="crop", size=(7, 7)).apply(image)
    assert x.shape == (1, 3, 7, 7)
    assert x.min() == 255
    assert Preprocess(fit="stretch", size=(7, 7)).apply(image).min() < 255


REFERENCES = [
    ("imagenet_squeezenet_v1.1_caffe", "images/imagenet/0001_n01443537.jpg"),
    ("imagenet_mobilenet_v1_0.25_onnx", "images/imagenet/0001_n01443537.jpg"),
    ("ultraface_rfb_320_onnx", "images/faces/face_1.jpg"),
    ("qr_super_resolution_caffe", "images/qr/link_github_ocv.jpg"),
]


@pytest.mark.parametrize(("model", "image"), REFERENCES)
def test_equals_the_reference_inputs_of_the_data_set(data_root: Path, model: str, image: str) -> None:
    manifest = json.loads((data_root / "manifest.json").read_text())
    [entry] = [entry for entry in manifest["models"] if entry["id"] == model]
    keys = ("size", "fit", "color", "mean", "scale", "layout")
    rule = Preprocess.from_mapping({key: entry["preprocessing"][key] for key in keys})
    wanted = np.load(data_root / entry["reference"]["file"])["in0"]
    assert np.array_equal(rule.load(data_root / image), wanted)  # identical arithmetic, therefore no tolerance


WRITTEN = "size=224x192,fit=crop,color=BGR,mean=104,117,123,scale=0.5,layout=NHWC"
READ = Preprocess((224, 192), "crop", "BGR", (104.0, 117.0, 123.0), (0.5,), "NHWC")


def test_parse_command_line_form() -> None:
    assert Preprocess.parse(WRITTEN) == READ
    assert Preprocess.parse("size=224,192").size == (224, 192)
    assert Preprocess.parse("size=96").size == (96, 96)
    assert Preprocess.parse("color=bgr,fit=Crop,layout=nhwc") == Preprocess(fit="crop", color="BGR", layout="NHWC")


def test_text_form_reads_back() -> None:
    assert Preprocess.parse(str(READ)) == READ
    assert Preprocess.from_mapping(READ.to_dict()) == READ
    assert Preprocess.from_mapping(json.loads(json.dumps(READ.to_dict()))) == READ


@pytest.mark.parametrize("indent", ["", "preprocess:"])
def test_yaml_file(tmp_path: Path, indent: str) -> None:
    lines = ["size: [224, 192]", "fit: crop", "color: BGR", "mean: [104, 117, 123]", "scale: 0.5", "layout: NHWC"]
    path = tmp_path / "rule.yaml"
    path.write_text("\n".join([indent, *(("  " if indent else "") + line for line in lines)]))
    assert Preprocess.parse(str(path)) == READ


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("colr=RGB", "unknown key 'colr'"),
        ("color=CMYK", "color is 'CMYK'"),
        ("mean=a", "mean is 'a', not numbers"),
        ("mean=1,2", "mean is 1.0, 2.0"),
        ("scale=0", "scale is 0"),
        ("scale=nan", "scale is nan"),
        ("size=0x5", "size is (0, 5)"),
        ("size=1,2,3", "size is (1, 2, 3)"),
        ("1,2", "'1' has no key"),
        ("mean=1,mean=2", "mean is given twice"),
        ("absent.yaml", "absent.yaml: no such file"),
    ],
)
def test_what_is_wrong_is_named(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Preprocess.parse(text)
    assert complaint in str(caught.value)


def test_yaml_that_is_no_mapping(tmp_path: Path) -> None:
    path = tmp_path / "rule.yaml"
    path.write_text("- 1\n- 2\n")
    with pytest.raises(UsageError, match="not a mapping"):
        Preprocess.parse(str(path))
    path.write_text("a: [")
    with pytest.raises(UsageError, match="is not YAML"):
        Preprocess.parse(str(path))


def test_size_comes_from_the_model() -> None:
    assert Preprocess().with_size_of((1, 3, 20, 30)).size == (20, 30)
    assert Preprocess(layout="NHWC").with_size_of((1, 20, 30, 3)).size == (20, 30)
    assert Preprocess(size=(5, 6)).with_size_of(("N", 3, "H", "W")).size == (5, 6)


@pytest.mark.parametrize(
    ("rule", "shape", "complaint"),
    [
        (Preprocess(), (1, 20, 30, 3), "layout=NHWC"),
        (Preprocess(color="GRAY"), (1, 3, 20, 30), "GRAY has 1"),
        (Preprocess(size=(1, 2)), (1, 3, 20, 30), "size is 1x2, the model's input is 20x30"),
        (Preprocess(), (1, 3, "H", 30), "no fixed size"),
        (Preprocess(), (1, 30), "2 axes"),
    ],
)
def test_rule_that_does_not_fit_the_model(rule: Preprocess, shape: tuple[int | str, ...], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        rule.with_size_of(shape)
    assert complaint in str(caught.value)


def test_files_that_are_not_images(tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    with pytest.raises(UsageError, match="no such file"):
        Preprocess().load(path)
    for content in (b"", b"<html></html>", b"\x89PNG\r\n\x1a\n" + bytes(50)):
        path.write_bytes(content)
        with pytest.raises(CorruptInputError, match="not an image"):
            Preprocess().load(path)


def test_images_without_an_imaging_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)  # imports fail in this way if Pillow is not installed
    with pytest.raises(MissingExtraError, match=r"pip install 'tpuconvert\[images\]'"):
        Preprocess().load(tmp_path / "cat.jpg")
    with pytest.raises(MissingExtraError, match=r"pip install 'tpuconvert\[images\]'"):
        Preprocess(size=(5, 5)).apply(IMAGE)
    assert Preprocess().apply(IMAGE).shape == (1, 3, 1, 2)  # does not need Pillow, because nothing is resized
