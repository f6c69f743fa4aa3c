"""JSON that is read from files of unknown origin."""

import ast
import json
from pathlib import Path

import pytest

import tpuconvert as tc
from tests.support.syntax_trees import syntax_tree
from tpuconvert.schema.text.json_text import parse_json

OWN_TEXT = {
    "schema/text/json_text.py",
    "frontends/sniffing.py",  # looks whether a text is JSON, and drops the values
    "converter/ci/cache.py",  # what it has just written
    "converter/operators/description.py",  # a file of the package
    "converter/exporters/tpu_mlir/run_bmodel.py",  # these are copied to another machine, and stand alone there
    "converter/exporters/tpu_mlir/generate.py",
    "converter/device/run_device.py",
}
"""Modules that may call ``json.loads``."""


@pytest.mark.parametrize("text", ['{"a": [1, 2.5, null, true, "x"]}', r'"\u00e9 \ud83d\ude00 é 😀"', r'"\\ud800"'])
def test_other_text_has_the_values_of_json(text: str) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize("text", [r'"\ud800"', r'{"\uDFFF": 1}', r'[["a\ude00\ud83d"]]'])
def test_half_of_a_surrogate_pair(text: str) -> None:
    with pytest.raises(ValueError, match="is half of a surrogate pair"):
        parse_json(text)


def test_deep_nesting() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)


def test_constants() -> None:
    assert parse_json("[NaN]", parse_constant=lambda name: name) == ["NaN"]


def test_every_reader_uses_it() -> None:
    root = Path(tc.__file__).parents[1]
    files = [
        path
        for part in ("converter", "frontends", "optimizer", "runtime", "schema")
        for path in (root / part).rglob("*.py")
    ]
    calls = set()
    for path in files:
        text = path.read_text(encoding="utf-8")
        nodes = ast.walk(syntax_tree(path)) if "json" in text else ()
        if any(isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load") for node in nodes):
            calls.add(path.relative_to(root).as_posix())
    assert calls == OWN_TEXT
