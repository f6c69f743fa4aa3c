"""The converter registries: which version is chosen, what a clash says, what a listing holds."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tpuconvert.frontends.registry import ConverterRegistry, Registration, register_converter, registry
from tpuconvert.schema.errors import UsageError


def first(node: Any, g: Any) -> None:
    """The first meaning.

    More text.
    """


def second(node: Any, g: Any) -> None: ...


def filled() -> ConverterRegistry:
    made = ConverterRegistry("test")
    made("Softmax", since=1)(first)
    made("Softmax", since=13)(second)
    made("LOGISTIC", "SIGMOID", since=2)(first)
    made("Mine", domain="com.acme", since=3)(second)
    return made


@pytest.mark.parametrize(("version", "since"), [(1, 1), (12, 1), (13, 13), (99, 13), (None, 13)])
def test_highest_version_not_above_the_models(version: int | None, since: int) -> None:
    found = filled().find("Softmax", version=version)
    assert found is not None
    assert found.since == since


def test_no_fallback_below_the_lowest_version_or_to_another_domain() -> None:
    made = filled()
    assert made.find("SIGMOID", version=1) is None
    assert made.find("Mine") is None
    assert made.find("Softmax", domain="com.acme") is None
    assert made.find("Unknown") is None
    assert made.versions("Softmax") == (1, 13)
    assert made.versions("Unknown") == ()


def test_aliases_share_the_function() -> None:
    made = filled()
    pair = made.find("LOGISTIC"), made.find("SIGMOID")
    assert all(found is not None and found.converter is first for found in pair)


def test_second_function_for_the_same_version_is_an_error() -> None:
    made = filled()
    with pytest.raises(UsageError, match=r"two test converters for 'Softmax' since version 13.*second.*first"):
        made("Softmax", since=13)(first)
    with pytest.raises(UsageError, match=r"'com\.acme:Mine'"):
        made("Mine", domain="com.acme", since=3)(first)
    made("Softmax", domain="com.acme", since=13)(first)  # another domain is another operator


def test_impossible_registrations() -> None:
    made = ConverterRegistry("test")
    with pytest.raises(UsageError, match="at least one operator name"):
        made(since=1)
    with pytest.raises(UsageError, match="since must be 1 or more"):
        made("A", since=0)(first)


def test_listing() -> None:
    made = filled()
    assert made.names() == ("LOGISTIC", "SIGMOID", "Softmax")
    assert made.names(domain="com.acme") == ("Mine",)
    assert made.names(domain=None) == ("LOGISTIC", "Mine", "SIGMOID", "Softmax")
    assert made.domains() == ("", "com.acme")
    rows = [(entry.domain, entry.name, entry.since) for entry in made.entries()]
    assert rows == [("", "LOGISTIC", 2), ("", "SIGMOID", 2), ("", "Softmax", 1), ("", "Softmax", 13),
                    ("com.acme", "Mine", 3)]  # fmt: skip
    entry = made.entries()[0]
    assert entry.summary == "The first meaning."
    assert entry.module == __name__
    assert Registration("X", "", 1, second).summary == ""


def test_modules_of_a_package_are_found_without_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "found_converters"
    package.mkdir()
    (package / "__init__.py").write_text("from tpuconvert.frontends.registry import ConverterRegistry\n"
                                         "op = ConverterRegistry('found', 'found_converters')\n")  # fmt: skip
    (package / "family.py").write_text("from found_converters import op\n@op('Thing')\ndef thing(): ...\n")
    (package / "_private.py").write_text("raise AssertionError('not a converter module')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import found_converters  # type: ignore[import-not-found]  # written above

    assert found_converters.op.names() == ("Thing",)
    for name in ("found_converters", "found_converters.family"):
        del sys.modules[name]


def test_where_a_table_names_the_modules_nothing_else_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "named_converters"
    package.mkdir()
    (package / "__init__.py").write_text("from tpuconvert.frontends.registry import ConverterRegistry\n"
                                         "op = ConverterRegistry('named', 'named_converters')\n"
                                         "op.modules = {('Thing', ''): ('family',)}\n")  # fmt: skip
    (package / "family.py").write_text("from named_converters import op\n@op('Thing')\ndef thing(): ...\n")
    (package / "other.py").write_text("raise AssertionError('converts no operator that was asked for')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import named_converters  # type: ignore[import-not-found]  # written above

    assert named_converters.op.find("Thing").module == "named_converters.family"
    assert named_converters.op.find("Other") is None
    for name in ("named_converters", "named_converters.family"):
        del sys.modules[name]


def test_plugins_register_from_outside() -> None:
    register_converter("onnx", "OnlyInThisTest", "OnlyInThisTestToo", domain="com.acme.test", since=2)(first)
    assert registry("onnx").names(domain="com.acme.test") == ("OnlyInThisTest", "OnlyInThisTestToo")
    with pytest.raises(UsageError, match="two onnx converters for 'Relu' since version 1"):
        register_converter("onnx", "Relu", since=1)(first)
    with pytest.raises(UsageError, match="unknown source format 'keras': one of onnx, tflite, caffe"):
        register_converter("keras", "Dense")


@pytest.mark.parametrize("source_format", ["onnx", "tflite", "caffe"])
def test_every_converter_says_what_it_does(source_format: str) -> None:
    """Ours do; other tests of the same run register plugins, which are free not to."""
    entries = [entry for entry in registry(source_format).entries() if entry.module.startswith("tpuconvert.")]
    assert len(entries) > 20
    assert [entry.name for entry in entries if not entry.summary] == []
