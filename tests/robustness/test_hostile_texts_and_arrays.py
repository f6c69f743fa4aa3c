"""Half surrogates in texts, archives with other members than arrays, and names of images that leave their folder.

The mutation campaigns do not produce these: files have few escapes, and an archive has checksums.
"""

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.damage.mutations import sign
from tests.support.sampled import sampled
from tpuconvert.ci.manifest import read_manifest
from tpuconvert.conversion.fixed_inputs import read_fixed
from tpuconvert.conversion.options.options import Options
from tpuconvert.device.plan import PLAN
from tpuconvert.evaluation.classes import load_any
from tpuconvert.evaluation.classes import read_labels as read_classes
from tpuconvert.evaluation.objects import load_objects
from tpuconvert.outputs.labels import read_labels
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.yaml_files import read_yaml

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"
HALF = "half of a surrogate pair"


def samples() -> np.ndarray:
    images = load_arrays(DIGITS / "calibration.npz")["images"][:4, None]
    return images.astype(np.float32) / 16


@pytest.fixture(scope="module")
def ranges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("ranges") / "ranges.json"
    tc.calibrate(DIGITS / "digits.onnx", calibration=samples()).save(path)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _rename(content: dict[str, Any]) -> None:
    content["ranges"]["\ud800"] = next(iter(content["ranges"].values()))


def _set_method_of_statistics(content: dict[str, Any]) -> None:
    next(iter(content["ranges"].values()))["statistics"]["method"] = "\udfff"


@pytest.mark.parametrize(
    "change",
    [
        _rename,
        _set_method_of_statistics,
        lambda content: content.update(method="a\ud800"),
        lambda content: content.update(methods={"\udc00": "max"}),
    ],
)
def test_ranges(change: Callable[[dict[str, Any]], None], ranges: dict[str, Any], tmp_path: Path) -> None:
    """Quantization writes a digest of the ranges into the file, for which they are encoded."""
    content = json.loads(json.dumps(ranges))
    change(content)
    (tmp_path / "ranges.json").write_text(json.dumps(content))
    with pytest.raises(tc.CorruptInputError, match=HALF):
        tc.quantize(DIGITS / "digits.onnx", ranges=tmp_path / "ranges.json")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r'a: "\ud800"', read_yaml),
        (r'"\udfff": 1', read_yaml),
        (r'[{a: ["x", "\ud83d"]}]', read_yaml),
        (r'preprocess: {"\ud800": {scale: 1}}', lambda path: Options.of(preprocess=str(path))),
        (r'models: {"\ud800": {source: net.onnx}}', read_manifest),
    ],
)
def test_yaml(text: str, read: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(tc.UsageError, match=HALF):
        read(path)


def test_yaml_with_whole_pairs(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(r'a: "\U0001F600"')
    assert read_yaml(path) == {"a": "😀"}


def test_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_text(r'["cat", "\ud800"]')
    with pytest.raises(tc.CorruptInputError, match=HALF):
        read_labels(path)


def test_values_in_a_program(tmp_path: Path) -> None:
    path = tmp_path / "m.tpum"
    tc.convert(DIGITS / "digits.onnx").save(path)
    content = path.read_bytes().replace(b'"format":"onnx"', rb'"form":"\ud800"')
    path.write_bytes(sign(content))
    with pytest.raises(tc.CorruptInputError, match=HALF):
        tc.load(path)


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return path


def npy(array: Any) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


@pytest.mark.parametrize("name", ["label", "image.npy", "README.txt"])
def test_member_that_is_no_array(name: str, tmp_path: Path) -> None:
    """NumPy returns the bytes of such a member instead of an array."""
    path = archive(tmp_path / "samples.npz", **{"image.npy": npy(samples())} | {name: b"\x92NUMPY, damaged"})
    with pytest.raises(tc.CorruptInputError, match="is not an array"):
        tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=path)


def test_fixed_inputs(tmp_path: Path) -> None:
    archive(tmp_path / "value.npy", **{"x.npy": npy(np.zeros(2))})
    with pytest.raises(tc.CorruptInputError, match=r"an \.npz archive with the name of an \.npy file"):
        read_fixed({"x": "value.npy"}, tmp_path)
    for text in ("[" * 100_000, r'"\ud800"'):
        with pytest.raises(tc.UsageError, match="expected numbers"):
            read_fixed({"x": text})


@pytest.mark.parametrize("count", sampled(["x", 10**9, 3, 1, 0, -1, None, 2.5, 2.0, [], {}], every=2))
def test_samples_of_a_device_plan(count: Any, tmp_path: Path) -> None:
    model = tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=samples())
    tc.device_plan(model, tmp_path / "plan", data=samples()[:2])
    path = tmp_path / "plan" / PLAN
    path.write_text(json.dumps({**json.loads(path.read_text()), "samples": count}))
    with pytest.raises(tc.CorruptInputError, match="the plan cannot be read"):
        tc.device_compare(model, {}, plan=tmp_path / "plan")


def test_inputs_of_a_device_plan_without_samples(tmp_path: Path) -> None:
    model = tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=samples())
    tc.device_plan(model, tmp_path / "plan", data=samples()[:2])
    np.savez(tmp_path / "plan" / "inputs.npz", image=np.float32(1))
    with pytest.raises(tc.CorruptInputError, match="the plan cannot be read"):
        tc.device_compare(model, {}, plan=tmp_path / "plan")


@pytest.mark.parametrize("name", ["{outside}", "../outside.png", "sub/../../outside.png"])
def test_images_outside_of_the_folder(name: str, tmp_path: Path) -> None:
    """A labels file is untrusted input: only images inside the folder are read."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "images" / "sub").mkdir(parents=True)
    image.new("RGB", (8, 8)).save(tmp_path / "outside.png")
    named = name.format(outside=tmp_path / "outside.png")
    assert os.path.isfile(tmp_path / "images" / named)
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps({"images": [{"id": 1, "file_name": named}], "categories": [], "annotations": []}))
    with pytest.raises(tc.CorruptInputError, match="is not in the folder of images"):
        load_objects(tmp_path / "images", labels)


@pytest.mark.parametrize("name", ["a" * 5000, "a\0.png", "missing.png", "sub"])
def test_names_of_no_image(name: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps({"images": [{"id": 1, "file_name": name}], "categories": [], "annotations": []}))
    with pytest.raises(tc.UsageError, match="1 image not in"):
        load_objects(tmp_path, labels)


def test_labels_without_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "labels.npz")
    for read in (read_classes, lambda path: load_any(samples(), path)):
        with pytest.raises(tc.UsageError, match="holds no arrays"):
            read(tmp_path / "labels.npz")


@pytest.mark.parametrize("text", ["a.png,{0}\nb.png,1\n", "{0}\n1\n"])
@pytest.mark.parametrize("number", ["9" * 20, "-" + "9" * 20, "9" * 5000])
def test_classes_above_64_bits(text: str, number: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(text.format(number))
    with pytest.raises(tc.UsageError, match="holds no labels"):
        read_classes(path)
