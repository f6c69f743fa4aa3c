"""JSON of wrong types in the metadata of a ``.tpum`` file: one documented error, or a report without them."""

import base64
import contextlib
import dataclasses
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.conversion.reproduction import read_options
from tpuconvert.model.golden import MOST_BYTES

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"

WRONG: list[Any] = [
    None, True, 3, -1, 0.5, 1e300, 1 << 70, 10**400, "x", "", [], [1], [[]], [None], [10**400], {}, {"a": 1},
]  # fmt: skip


DATA = base64.b64encode(zlib.compress(bytes(256))).decode()
"""The data of a golden input with 64 zeros."""


@pytest.fixture(scope="module")
def model() -> tc.Model:
    images = np.load(DIGITS / "calibration.npz")["images"][:4, None].astype(np.float32) / 16
    return tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=images)


def written(model: tc.Model, folder: Path, **metadata: Any) -> Path:
    path = folder / "net.tpum"
    tc.Model(dataclasses.replace(model.content, metadata={**model.metadata, **metadata})).save(path)
    return path


@pytest.mark.parametrize("part", sampled(["options", "calibration", "ranges", "external", "recipe"], every=3))
def test_recipe(part: str, model: tc.Model, tmp_path: Path) -> None:
    recipe = model.metadata["recipe"]
    allowed = ({}, {"a": 1}) if part in ("options", "recipe") else ()
    for value in WRONG:
        changed = value if part == "recipe" else {**recipe, part: value}
        path = written(model, tmp_path, recipe=changed)
        if value in allowed or changed is None:
            tc.load(path)
        else:
            with pytest.raises(tc.CorruptInputError, match="its recipe has values of wrong types"):
                tc.load(path)


@pytest.mark.parametrize("part", sampled(["golden", "inputs", "digests", "dtype", "shape", "data"], every=3))
def test_golden_vectors(part: str, model: tc.Model, tmp_path: Path) -> None:
    """No value raises an undocumented error."""
    array = {"dtype": "float32", "shape": [1, 1, 8, 8], "data": DATA}
    fields = {"names": ["a"], "formats": ["f4"], "itemsize": 1 << 70}  # raises OverflowError as a dtype
    types = [",,,,", "f4,i4", "(2,)f4", "f", "datetime64[s]"]
    for value in [*WRONG, *types, [1 << 70], [-1, 1 << 62], "O", "V0", "AAAA", fields]:  # AAAA: base64, but not of zlib
        feed = {"image": {**array, part: value} if part in array else array}
        golden: Any = {"inputs": [feed], "digests": {}}
        golden = value if part == "golden" else {**golden, **({part: value} if part in golden else {})}
        path = written(model, tmp_path, golden=golden)
        with contextlib.suppress(tc.CorruptInputError, tc.UsageError):  # some values are right, or leave no inputs
            tc.device_check(path)


def test_damaged_golden_vectors(model: tc.Model, tmp_path: Path) -> None:
    array = {"dtype": "float32", "shape": [1, 1 << 70], "data": DATA}
    for golden, message in (
        ({"inputs": []}, "have no digests"),
        ({"inputs": [], "digests": [1]}, "have no digests"),
        ({"digests": {}}, "cannot be read"),
        ({"inputs": [{"image": array}], "digests": {}}, "cannot be read"),
        ({"inputs": [{"image": {"dtype": "float32", "shape": [1, 1, 8, 8]}}], "digests": {}}, "cannot be read"),
    ):
        with pytest.raises(tc.CorruptInputError, match=message):
            tc.device_check(written(model, tmp_path, golden=golden))


def test_golden_vectors_that_expand_to_more_than_the_limit(model: tc.Model, tmp_path: Path) -> None:
    """Each array is within the limit, but not all of them: 16 KiB of the file hold 16 MiB."""
    half = base64.b64encode(zlib.compress(bytes(MOST_BYTES // 2))).decode()
    array = {"dtype": "float32", "shape": [MOST_BYTES // 8], "data": half}
    for count in (2, 3):
        feeds = [{"image": array}] * count
        path = written(model, tmp_path, golden={"inputs": feeds, "digests": {}})
        error, message = (tc.UsageError, "shape") if count == 2 else (tc.CorruptInputError, "more than 16777216 bytes")
        with pytest.raises(error, match=message):
            tc.device_check(path)


@pytest.mark.parametrize("kind", ["U1", "S1", "c8", "M8[s]", "V2", [("a", "i1")]])
def test_dumps_that_are_no_numbers(kind: Any, model: tc.Model, tmp_path: Path) -> None:
    value = next(value for node in model.graph.nodes for value in node.outputs if value.dtype.is_integer)
    extents = [extent for extent in value.shape if isinstance(extent, int)]
    np.savez(tmp_path / "dumps.npz", **{value.name: np.zeros([1, *extents], kind)})
    with pytest.raises(tc.UsageError, match="expected numbers"):
        tc.device_compare(model, tmp_path / "dumps.npz", data=np.zeros((1, 1, 8, 8), np.float32))


def test_a_session_needs_no_recipe(model: tc.Model, tmp_path: Path) -> None:
    with tc.Session(written(model, tmp_path, recipe=3)) as session:
        assert session.run({"image": np.zeros((1, 1, 8, 8), np.float32)})


@pytest.mark.parametrize("name", ["nonsense", "chip", "preprocess", "allow_root", "quantize"])
def test_options_of_a_recipe(name: str, model: tc.Model, tmp_path: Path) -> None:
    """``diff`` reads a source with the options in the recipe of the model."""
    recipe = {**model.metadata["recipe"], "options": {name: "x"}}
    converted = tc.load(written(model, tmp_path, recipe=recipe))
    if name == "quantize":  # which does not matter for the source
        tc.diff(converted, DIGITS / "digits.onnx")
    else:
        with pytest.raises(tc.UsageError, match=f"the recipe has the option '{name}'"):
            tc.diff(converted, DIGITS / "digits.onnx")
    with pytest.raises(tc.UsageError):
        read_options(converted)


@pytest.mark.parametrize("key", sampled(["name", "content", "color", "mean", "std", "min", "max", "labels"], every=3))
def test_metadata_of_the_source(key: str, model: tc.Model, tmp_path: Path) -> None:
    for value in WRONG:
        converted = tc.load(written(model, tmp_path, outputs=[{key: [value]}], **{key: value}))
        description = tc.inspect(converted)
        assert str(description)
        description.to_dict()


def test_outputs_that_are_no_list(model: tc.Model, tmp_path: Path) -> None:
    for value in WRONG:
        description = tc.inspect(tc.load(written(model, tmp_path, outputs=value)))
        assert "output 0" not in str(description) or isinstance(value, list)
        description.to_dict()


def test_known_metadata_are_shown(model: tc.Model, tmp_path: Path) -> None:
    outputs = [{"name": "digit", "mean": [0.5], "labels": ["0", "1", "2", "3"]}]
    text = str(tc.inspect(tc.load(written(model, tmp_path, outputs=outputs, author="a"))))
    assert "output 0 is digit; mean 0.5; 4 labels: 0, 1, 2 ..." in text and "author a" in text
