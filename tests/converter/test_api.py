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
from tests.support.syntax_trees import syntax_tree
from tpuconvert.cli.commands.convert import command
from tpuconvert.conversion.options.options import GROUP_OF, GROUPS, OPTIONS, Options, declaration, default_of, names_of
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
    tree = syntax_tree(repository / "converter" / "__init__.py")
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
        ({"preprocess": "colr=RGB"}, "unknown key 'colr'"),
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

FUNCTIONS = [tc.convert, tc.check, tc.calibrate, tc.quantize, tc.verify, tc.tune, tc.reduce, tc.doctor, tc.diff]
"""Functions that take groups of options."""


def test_arguments_of_convert_are_the_options_outside_of_groups() -> None:
    parameters = inspect.signature(tc.convert).parameters
    assert len(parameters) <= 16
    given = {name: item.default for name, item in parameters.items() if name not in EXTRA_ARGUMENTS}
    groups = {name for name in GROUPS if given.pop(name, ...) is None}
    assert groups == {"packed_weights", "source_options"} and "Quantization" in str(parameters["quantize"].annotation)
    assert given == {name: default_of(name) for name in OPTIONS if name not in GROUP_OF}


def described(documented: Any) -> dict[str, str]:
    """Name -> text of the arguments in a docstring."""
    section = (inspect.getdoc(documented) or "").partition("Args:")[2].partition("Returns:")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(about.split()) for name, about in entries}


def test_docstring_of_convert_has_the_declared_help_texts() -> None:
    texts = described(tc.convert)
    assert list(texts) == list(inspect.signature(tc.convert).parameters)
    for name in OPTIONS.keys() - GROUP_OF.keys():
        assert texts[name].startswith(declaration(name).help), name


@pytest.mark.parametrize("group", GROUPS.values())
def test_docstring_of_a_group_has_the_declared_help_texts(group: Any) -> None:
    assert getattr(tc, group.__name__) is group
    assert described(group) == {name: declaration(name).help for name in names_of(group)}


def test_options_of_convert_and_of_the_command_are_the_same() -> None:
    found = {item.name for item in command.params if item.name in OPTIONS}
    assert found == set(OPTIONS)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_option_of_a_group_as_a_keyword_argument_names_the_group(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    for name in GROUP_OF.keys() - parameters.keys():
        group = GROUP_OF[name].__name__
        taker = next((each for each, item in parameters.items() if group in str(item.annotation)), None)
        if taker is None:
            expected = f"{name} is a field of {group}, which {function.__name__}() does not take"
        else:
            expected = f"{name} is a field of {group}: {taker}=tc.{group}({name}=...)"
        with pytest.raises(TypeError) as caught:
            function("net.onnx", **{name: default_of(name)})
        assert str(caught.value) == expected


def test_an_unknown_keyword_argument_suggests_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"^convert\(\) has no argument 'quantze'; did you mean 'quantize'\?$"):
        tc.convert("net.onnx", quantze="int8")  # type: ignore[call-arg]
    field = r"effort is a field of Quantization: quantize=tc\.Quantization\(effort=\.\.\.\)$"
    with pytest.raises(TypeError, match=rf"^convert\(\) has no argument 'efort'; did you mean 'effort'\? {field}"):
        tc.convert("net.onnx", efort="low")  # type: ignore[call-arg]


def test_values_of_a_group_are_checked_when_it_is_created() -> None:
    with pytest.raises(UsageError, match="effort is 'hihg'") as caught:
        tc.Quantization(effort="hihg")
    assert caught.value.hint == "did you mean 'high'?"
    with pytest.raises(UsageError, match="is not a group of options"):
        tc.convert("net.onnx", source_options={"inputs": ["x"]})  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [{"min_int8_share": 0.5}, {"exact_on": "bm1684x"}])
def test_tune_refuses_limits_that_its_trials_exceed(limit: dict[str, Any], tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("calibration", "data", "output")}
    with pytest.raises(UsageError, match=f"{next(iter(limit))} with tune"):
        tc.tune(tmp_path / "net.onnx", **files, quantization=tc.Quantization(**limit))


def test_a_calibration_method_without_quantization_is_refused() -> None:
    with pytest.raises(UsageError, match="calibration_method without quantization"):
        Options.of(calibration_method="kl")


def test_a_quantization_with_defaults_is_int8(repository: Path) -> None:
    source = repository / "examples" / "digits" / "digits.onnx"
    given: Any = {"calibration": source.with_name("calibration.npz"), "preprocess": "color=GRAY,scale=0.0625"}
    short, group = (tc.convert(source, quantize=each, **given) for each in ("int8", tc.Quantization()))
    assert short.metadata["recipe"] == group.metadata["recipe"]
    kept = tc.convert(source, quantize=tc.Quantization(effort="low", keep_float=["fc"]), **given)
    assert kept.metadata["recipe"]["options"] == {"quantize": "int8", "keep_float": ["fc"], "effort": "low"}


@pytest.mark.parametrize("function", [tc.verify, tc.attribute])
def test_source_and_model_in_the_wrong_order(function: Any, tmp_path: Path) -> None:
    path = save_model(model([one("Relu", "x")], {"x": ramp(1, 3)}, ["y"]), tmp_path)
    with pytest.raises(UsageError, match="a converted model where its source is expected") as raised:
        function(path, tc.convert(path))
    assert raised.value.hint == "give the ONNX, TFLite or Caffe file"
    for function in (tc.verify, tc.attribute, tc.reproduce):
        with pytest.raises(UsageError, match="a converted model where its source is expected"):
            function("net.onnx", Path("net.tpum"))  # type: ignore[operator]
