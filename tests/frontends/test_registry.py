"""Registries of converters: choice of a version, errors for duplicates, lists of entries, discovery."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.syntax_trees import parse
from tpuconvert.frontends.registry import FORMATS, ConverterRegistry, register_converter, registry
from tpuconvert.schema.errors import UsageError


def first(node: Any, g: Any) -> None:
    """The first meaning.

    More text.
    """


def second(node: Any, g: Any) -> None: ...


def example_registry() -> ConverterRegistry:
    op = ConverterRegistry("test")
    op("Softmax", since=1)(first)
    op("Softmax", since=13)(second)
    op("LOGISTIC", "SIGMOID", since=2)(first)
    op("Mine", domain="com.acme", since=3)(second)
    return op


@pytest.mark.parametrize(("version", "since"), [(1, 1), (12, 1), (13, 13), (99, 13), (None, 13)])
def test_finds_highest_version_not_above_the_models(version: int | None, since: int) -> None:
    found = example_registry().find("Softmax", version=version)
    assert found is not None
    assert found.since == since


def test_finds_nothing_below_the_lowest_version_or_in_another_domain() -> None:
    op = example_registry()
    assert op.find("SIGMOID", version=1) is None
    assert op.find("Mine") is None
    assert op.find("Softmax", domain="com.acme") is None
    assert op.find("Unknown") is None
    assert op.versions("Softmax") == (1, 13)
    assert op.versions("Unknown") == ()


def test_aliases_share_the_function() -> None:
    op = example_registry()
    pair = op.find("LOGISTIC"), op.find("SIGMOID")
    assert all(found is not None and found.converter is first for found in pair)


def test_declines_second_function_for_the_same_version() -> None:
    op = example_registry()
    with pytest.raises(UsageError, match=r"two test converters for 'Softmax' since version 13.*second.*first"):
        op("Softmax", since=13)(first)
    with pytest.raises(UsageError, match=r"'com\.acme:Mine'"):
        op("Mine", domain="com.acme", since=3)(first)
    op("Softmax", domain="com.acme", since=13)(first)  # another domain is another operator


def test_declines_invalid_registrations() -> None:
    op = ConverterRegistry("test")
    with pytest.raises(UsageError, match="at least one operator name"):
        op(since=1)
    with pytest.raises(UsageError, match="since must be 1 or more"):
        op("A", since=0)(first)


def test_lists_entries_in_order() -> None:
    op = example_registry()
    assert op.names() == ("LOGISTIC", "SIGMOID", "Softmax")
    assert op.names(domain="com.acme") == ("Mine",)
    assert op.names(domain=None) == ("LOGISTIC", "Mine", "SIGMOID", "Softmax")
    assert op.domains() == ("", "com.acme")
    rows = [(entry.domain, entry.name, entry.since) for entry in op.entries()]
    assert rows == [("", "LOGISTIC", 2), ("", "SIGMOID", 2), ("", "Softmax", 1), ("", "Softmax", 13),
                    ("com.acme", "Mine", 3)]  # fmt: skip
    assert op.entries()[0].module == __name__


def test_imports_all_modules_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("source_format", FORMATS)
def test_converter_in_a_new_file_is_found(source_format: str, tmp_path: Path) -> None:
    """A file in the package's folder is enough; here the package has a second folder, so that the first stays clean."""
    (tmp_path / "brand_new.py").write_text(
        "from tpuconvert.frontends.registry import registry\n"
        f"@registry({source_format!r})('BrandNew')\n"
        "def brand_new(node, g): ...\n"
    )
    package = f"tpuconvert.frontends.{source_format}"
    code = (
        f"import {package}\n"
        "from tpuconvert.frontends.registry import registry\n"
        f"{package}.__path__.append({str(tmp_path)!r})\n"
        f"assert registry({source_format!r}).find('BrandNew').module == '{package}.brand_new'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("source_format", FORMATS)
def test_every_converter_is_registered(source_format: str, repository: Path) -> None:
    """A public function of a node and a graph that has no decorator, and that nothing calls, is not registered."""
    folder = repository / "frontends" / source_format
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    assert unregistered_converters(sources) == []


def test_missing_decorator_is_reported_with_the_file() -> None:
    source = (
        "@onnx_op('A')\ndef a(node, g): return used(node, g)\ndef used(node, g): ...\ndef forgotten(node, g): ...\n"
    )
    assert unregistered_converters({Path("frontends/onnx/new.py"): source}) == [
        "frontends/onnx/new.py:4: forgotten has no decorator that registers it, and no function uses it"
    ]


def unregistered_converters(sources: Mapping[Path, str]) -> list[str]:
    """Return a line for each public function ``(node, g)`` without a decorator whose name occurs nowhere else."""
    words = Counter(word for text in sources.values() for word in re.findall(r"\w+", text))
    return [
        f"{path.as_posix()}:{item.lineno}: {item.name} has no decorator that registers it, and no function uses it"
        for path, text in sources.items()
        for item in parse(text).body
        if isinstance(item, ast.FunctionDef) and not item.decorator_list and not item.name.startswith("_")
        if [argument.arg for argument in item.args.args[:2]] == ["node", "g"] and words[item.name] == 1
    ]


def test_plugins_register_from_outside() -> None:
    register_converter("onnx", "OnlyInThisTest", "OnlyInThisTestToo", domain="com.acme.test", since=2)(first)
    assert registry("onnx").names(domain="com.acme.test") == ("OnlyInThisTest", "OnlyInThisTestToo")
    with pytest.raises(UsageError, match="two onnx converters for 'Relu' since version 1"):
        register_converter("onnx", "Relu", since=1)(first)
    with pytest.raises(UsageError, match="unknown source format 'keras': one of onnx, tflite, caffe"):
        register_converter("keras", "Dense")


@pytest.mark.parametrize("source_format", FORMATS)
def test_every_converter_has_a_docstring(source_format: str) -> None:
    """Converters of plugins, which other tests register in this process, need none."""
    entries = [entry for entry in registry(source_format).entries() if entry.module.startswith("tpuconvert.")]
    assert len(entries) > 20
    assert [entry.name for entry in entries if not entry.converter.__doc__] == []
