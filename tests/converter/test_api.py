"""Names of the public API, and errors of invalid calls."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tpuconvert.cli.convert import command
from tpuconvert.conversion.options.options import OPTIONS, Options, declaration, default_of
from tpuconvert.conversion.source import Source
from tpuconvert.frontends.onnx.file.reader import MAPPED_BYTES
from tpuconvert.optimizer.precision_rules import METHODS
from tpuconvert.schema.errors import CorruptInputError, UsageError


def test_every_public_name_is_there() -> None:
    promised = {"convert", "load", "Model", "Session", "register_op", "register_converter", "Chip", "__version__"}
    assert promised <= set(tc.__all__)
    for name in tc.__all__:
        assert getattr(tc, name) is not None, name
    assert set(tc.__all__) <= set(dir(tc))


def test_type_checkers_see_the_same_names(repository: Path) -> None:
    tree = ast.parse((repository / "converter" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    seen.discard(None)  # of names that the module itself uses
    assert seen | {"__version__"} == set(tc.__all__)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="'tpuconvert' has no attribute 'convrt'"):
        _ = tc.convrt  # type: ignore[attr-defined]  # that is the test


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"chip": "bm1699"}, "unknown chip 'bm1699': known are bm1682"),
        ({"quantize": "int4"}, "unknown quantization 'int4'"),
        ({"quantize": "int8", "chip": "bm1682"}, "BM1682 has no integer arithmetic"),
        ({"calibration_method": "guess"}, "unknown calibration method 'guess'"),
        ({"calibration_method": "percentile:0"}, "expected a percentage"),
        ({"quantize": "int8", "keep_float": [""]}, "is not SELECTOR=SETTINGS"),
        ({"quantize": "int8", "refinement_samples": 0}, "refinement_samples is 0, expected a number of at least 1"),
        ({"precision": ["x=float32"]}, "precision without quantization"),
        ({"preprocess": {"color": "CMYK"}}, "color is 'CMYK'"),
        ({"preprocess": "colour=RGB"}, "unknown key 'colour'"),
    ],
)
def test_options_that_cannot_work(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options.of(**arguments)
    assert complaint in str(caught.value)


def test_options_in_one_form() -> None:
    options = Options.of(chip="BM1684", quantize="none", input_shapes={"x": [1, 2]}, outputs=["a", "b"])
    assert (options.chip, options.quantize, options.input_shapes) == (tc.Chip.BM1684, None, {"x": (1, 2)})
    assert options.outputs == ("a", "b")
    assert options.inputs is None


FORMATS = {"digits.onnx": "onnx", "digits.tflite": "tflite", "digits.prototxt": "caffe", "digits.caffemodel": "caffe"}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("renamed", [False, True])
def test_format_is_found_by_content(repository: Path, tmp_path: Path, name: str, renamed: bool) -> None:
    path = repository / "examples" / "digits" / name
    if renamed:
        other = tmp_path / "model.bin"
        other.write_bytes(path.read_bytes())
        path = other
    assert Source(path).format == FORMATS[name]


WRONG = {
    "page.onnx": b"<!DOCTYPE html><html></html>",
    "pointer.onnx": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
    "image.tflite": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "data.npz": b"PK\x03\x04" + bytes(100),
    "notes.txt": b"hello there, this is no model",
    "empty.onnx": b"",
    "random.bin": bytes(range(7, 250, 3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_are_no_models(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WRONG[name])
    with pytest.raises(CorruptInputError) as caught:
        tc.convert(tmp_path / name)
    assert caught.value.file.endswith(name)
    assert caught.value.hint


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        tc.convert(tmp_path / "absent.onnx")
    with pytest.raises(UsageError, match=r"absent\.tpum"):
        tc.load(tmp_path / "absent.tpum")


def test_samples_without_quantization(repository: Path) -> None:
    with pytest.raises(UsageError, match="calibration samples without quantization"):
        tc.convert(repository / "examples/digits/digits.onnx", calibration="images/")


def test_source_may_be_written_anew_while_its_model_is_in_use(tmp_path: Path) -> None:
    """Files of this size are memory-mapped. Access past the end of a truncated mapping would kill the process."""
    weights = ramp(600, 512)
    path = save_model(model([one("MatMul", "x", "w")], {"x": ramp(1, 600)}, ["y"], {"w": weights}), tmp_path)
    assert path.stat().st_size > MAPPED_BYTES
    made = tc.convert(path)
    path.write_bytes(b"")
    assert any(np.array_equal(value.data, weights) for value in made.graph.values if value.is_constant)


def test_weights_that_belong_to_nothing(repository: Path) -> None:
    folder = repository / "examples" / "digits"
    with pytest.raises(UsageError, match="Caffe models only"):
        tc.convert(folder / "digits.onnx", folder / "digits.caffemodel")


def test_calibration_methods_have_the_same_names_everywhere() -> None:
    assert default_of("calibration_method") == METHODS[0]
    assert all(f"``{name}``" in declaration("calibration_method").help for name in METHODS)


EXTRA_ARGUMENTS = {"source", "weights", "calibration", "plugins", "progress", "watch"}
"""Arguments of ``convert`` that are not options."""


def test_arguments_of_convert_equal_the_declared_options() -> None:
    parameters = inspect.signature(tc.convert).parameters.values()
    given = {item.name: item.default for item in parameters if item.name not in EXTRA_ARGUMENTS}
    assert list(given) == list(OPTIONS)
    assert {name: None if value in ({}, None) else value for name, value in given.items()} == {
        name: None if default_of(name) == {} else default_of(name) for name in OPTIONS
    }


def test_docstring_of_convert_has_the_declared_help_texts() -> None:
    text = inspect.getdoc(tc.convert) or ""
    section = text[text.index("Args:") : text.index("Returns:")]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    described = {name: " ".join(about.split()) for name, about in entries}
    assert list(described) == list(inspect.signature(tc.convert).parameters)
    assert {name: described[name] for name in OPTIONS} == {name: declaration(name).help for name in OPTIONS}


def test_options_of_convert_and_of_the_command_are_the_same() -> None:
    found = {item.name for item in command.params if item.name in OPTIONS}
    assert found == set(OPTIONS)


@pytest.mark.parametrize("function", [tc.verify, tc.attribute])
def test_source_and_model_in_the_wrong_order(function: Any, tmp_path: Path) -> None:
    path = save_model(model([one("Relu", "x")], {"x": ramp(1, 3)}, ["y"]), tmp_path)
    with pytest.raises(UsageError, match="the source is a converted model") as raised:
        function(path, tc.convert(path))
    assert raised.value.hint == "the order of the arguments is model, source"
