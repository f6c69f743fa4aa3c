"""Values of wrong types in manifests, options and cache entries: one error that names the place, and no other."""

import datetime
import functools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.ci.cache import Cache, DamagedEntry, _digest
from tpuconvert.ci.manifest import FILES, read_manifest
from tpuconvert.cli.entry import run
from tpuconvert.conversion.options.options import OPTIONS, Options

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits" / "digits.onnx"

WRONG: list[Any] = [
    None, True, 3, -1, math.inf, math.nan, 1 << 80, 1e12, "x", "", "\0", "/dev/zero", b"x", [], [1], [[]], [None], [{}],
    {}, {"a": 1}, {1: 2}, datetime.date(2020, 1, 1), [["a"]], {"a": [1.5]}, {"a": "b"}, {"a": {"b": 1}}, [True],
]  # fmt: skip


def error_of(call: Callable[[], Any]) -> tc.TpuConvertError | None:
    """Return the error that a call raises. An exception of another type fails the test."""
    try:
        call()
    except tc.TpuConvertError as error:
        return error
    return None


def accepts_or_explains(content: Any, folder: Path) -> None:
    """Read a manifest, which may be refused as a wrong one, but in no other way."""
    path = folder / "models.yaml"
    path.write_text(yaml.safe_dump(content))
    error = error_of(lambda: read_manifest(path))
    if error is not None:
        assert error.exit_code in (2, 4) and str(path) in str(error), content


@pytest.mark.parametrize("key", sampled(sorted({*FILES, *OPTIONS, "samples", "limits"}), every=2))
def test_values_of_a_model(key: str, tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "net.onnx")
    for value in WRONG:
        accepts_or_explains({"models": {"m": {"source": "net.onnx", key: value}}}, tmp_path)
        accepts_or_explains({"defaults": {key: value}, "models": {"m": {"source": "net.onnx"}}}, tmp_path)


@pytest.mark.parametrize("key", ["models", "defaults", "plugins", "baseline"])
def test_values_of_a_manifest(key: str, tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "net.onnx")
    for value in WRONG:
        accepts_or_explains({"models": {"m": {"source": "net.onnx"}}, key: value}, tmp_path)
        accepts_or_explains({"models": {"m": value}}, tmp_path)
        accepts_or_explains(
            {"models": {"m": {"source": "net.onnx", "limits": {"cosine": value, "size": value}}}}, tmp_path
        )
        accepts_or_explains(value, tmp_path)


ACCEPTED: dict[str, tuple[Any, ...]] = {
    "bool": (True, False), "int": (1,), "int | None": (None, 0, 1), "float | None": (None, 0, 1, 0.5),
    "str": (), "str | None": (None, "a"), "tuple[str, ...]": (), "Sequence[str]": (),
    "Sequence[str] | None": (None, "a", ["a"]),
}  # fmt: skip
"""Type of an option -> values of that type."""


@pytest.mark.parametrize("name", [name for name in OPTIONS if str(OPTIONS[name].type) in ACCEPTED])
def test_values_have_the_declared_type(name: str) -> None:
    """Values of another type are refused when the options are read, and not stored."""
    accepted = ACCEPTED[str(OPTIONS[name].type)]
    for value in [*WRONG, False, 0, 1, 0.5, "a", ["a"], {"x"}]:
        error = error_of(functools.partial(Options.of, **{name: value}))
        is_accepted = any(value is item or (value == item and type(value) is type(item)) for item in accepted)
        if error is None and not is_accepted:
            stored = getattr(Options.of(**{name: value}), name)
            assert isinstance(stored, TYPES[str(OPTIONS[name].type)]), (name, value)


TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,), "int": (int,), "int | None": (int, type(None)), "float | None": (float, type(None)),
    "str": (str,), "str | None": (str, type(None)), "tuple[str, ...]": (tuple,),
    "Sequence[str]": (tuple,), "Sequence[str] | None": (tuple, type(None)),
}  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [{"inputs": [["a"]]}, {"outputs": [1]}, {"max_transposes": "a"}, {"max_transposes": -1}, {"golden": True},
     {"strict_set": 1}, {"signature": 3}, {"input_shapes": {"x": "a"}}, {"input_shapes": {"x": [1.5]}},
     {"limits": False}],
    ids=str,
)  # fmt: skip
def test_value_is_named(entry: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(DIGITS, tmp_path / "net.onnx")
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump({"models": {"m": {"source": "net.onnx", **entry}}}))
    assert run(["ci", str(path), "--jobs", "1", "--cache", str(tmp_path / "cache")]) == 2
    text = capsys.readouterr().err
    assert next(iter(entry)) in text and "models.yaml" in text


@pytest.mark.parametrize("samples", [0, True, 2.5, 10**12, "many", math.inf])
def test_numbers_of_samples(samples: Any, tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "net.onnx")
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump({"models": {"m": {"source": "net.onnx", "samples": samples}}}))
    with pytest.raises(tc.UsageError, match=r"models.m.samples: .* is not a number of samples from 1 to 1000000"):
        read_manifest(path)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_values_of_options(name: str) -> None:
    for value in [*WRONG, object()]:
        error = error_of(functools.partial(Options.of, **{name: value}))
        assert error is None or error.exit_code in (2, 4, 6, 7), value


ENTRIES = [
    "", "null", "3", "[]", "{}", '"x"', "[" * 100_000,
    '{"entry": null, "sha256": null}', '{"entry": {}, "sha256": "x"}',
    '{"entry": {"key": "0", "model": 3, "measures": [], "sections": 1}, "sha256": "x"}',
    '{"entry": {"key": "0", "model": "", "measures": {"time": NaN}, "sections": {}}, "sha256": "x"}',
    '{"entry": {"key": {}, "model": {}, "measures": null, "sections": null}, "sha256": {}}', "\udc80", "\0", "1e999999",
]  # fmt: skip


@pytest.mark.parametrize("text", ENTRIES)
def test_damaged_cache_entries(text: str, tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "net.onnx")
    (tmp_path / "models.yaml").write_text("models: {m: {source: net.onnx}}")
    (job,) = read_manifest(tmp_path / "models.yaml")
    cache = Cache(tmp_path / "cache")
    description = cache.model("0").with_suffix(".json")
    description.parent.mkdir(parents=True, exist_ok=True)
    description.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DamagedEntry):
        cache.find("0", job)


MEASURES = {
    "size": 1,
    "transposes": 0,
    "nodes": 1,
    "integer_nodes": 0,
    "cosine": 1.0,
    "chip": "bm1686",
    "quantize": None,
}

POISON = [
    {"key": "1"}, {"key": None}, {"key": {}}, {"measures": None}, {"measures": []}, {"measures": {}}, {"sections": 3},
    {"sections": []}, {"sections": {"verification": True}}, {"sections": {"verification": "x"}},
    *({"measures": {**MEASURES, name: value}} for name in ("size", "sqnr", "chip") for value in ([], {}, True)),
    {"measures": {**MEASURES, "size": 10**4000}},
    {"measures": {**MEASURES, "difference": None}}, {"measures": {**MEASURES, "difference": "x"}},
]  # fmt: skip


def _write_entry(description: Path, written: dict[str, Any]) -> None:
    """Write an entry with a valid digest, which does not protect against an attacker who can write into the cache."""
    description.parent.mkdir(parents=True, exist_ok=True)
    description.write_text(json.dumps({"entry": written, "sha256": _digest(written)}))


@pytest.mark.parametrize("poison", POISON, ids=str)
def test_cache_entries_of_wrong_types(poison: dict[str, Any], tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "net.onnx")
    (tmp_path / "models.yaml").write_text("models: {m: {source: net.onnx}}")
    (job,) = read_manifest(tmp_path / "models.yaml")
    cache = Cache(tmp_path / "cache")
    written = {"key": "0", "model": "0" * 64, "measures": MEASURES, "sections": {}}
    _write_entry(cache.model("0").with_suffix(".json"), written)
    with pytest.raises(DamagedEntry, match="its model"):  # everything else is valid
        cache.find("0", job)
    _write_entry(cache.model("0").with_suffix(".json"), {**written, **poison})
    with pytest.raises(DamagedEntry, match="its description"):
        cache.find("0", job)


def test_cached_descriptions_that_cannot_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS, tmp_path / "net.onnx")
    Path("models.yaml").write_text("models: {m: {source: net.onnx}}")
    assert run(["ci", "models.yaml", "--html", "report.html"]) == 0
    (description,) = Path(".tpuconvert-cache").rglob("*.json")
    written = json.loads(description.read_text())["entry"]
    _write_entry(description, {**written, "sections": {"verification": {"layers": 3}}})
    before = Path("report.html").read_bytes()
    assert run(["ci", "models.yaml", "--html", "report.html"]) == 4
    assert "the entry of one of these models is damaged: m\n    remove the folder" in capsys.readouterr().err
    assert Path("report.html").read_bytes() == before
