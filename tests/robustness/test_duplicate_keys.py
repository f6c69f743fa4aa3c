"""A key that occurs twice is an error in every text and file with keys, because readers drop one of the values."""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.ci.manifest import read_manifest
from tpuconvert.cli.entry import run
from tpuconvert.conversion.options.rule_files import expand_rules
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.yaml_files import parse_yaml

NET = Path(tc.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
TWICE = {
    "top": "a: 1\na: 2\n",
    "equal values": "a: 1\na: 1\n",
    "nested": "m: {b: [{c: 1, c: 2}]}\n",
    "quotes": "{a: 1, 'a': 2}\n",
    "number and text": "1: a\n'1': b\n",
    "equal numbers": "1: a\n1.0: b\n",
    "number bases": "16: a\n0x10: b\n",
    "booleans": "true: a\nyes: b\n",
    "null": "~: a\nnull: b\n",
    "merge keys": "a: &a {x: 1}\nb: &b {y: 1}\nc:\n  <<: *a\n  <<: *b\n",
    "merged mappings": "a: &a {x: 1}\nb: &b {x: 2}\nc: {<<: [*a, *b]}\n",
    "merged limits": "a: &a {limits: {cosine: 1}}\nb: {<<: *a, limits: {size: 1}}\n",
    "merged models": "base: &base {a: {source: x}}\nmodels: {<<: *base, a: {source: y}}\n",
    "inside a key's value by alias": "a: &a {x: {y: 1, y: 2}}\nb: *a\n",
    "JSON": '{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("kind", TWICE)
def test_yaml(kind: str) -> None:
    with pytest.raises(tc.UsageError, match=r"f\.yaml: the key '.*' occurs twice, again in line \d"):
        parse_yaml(TWICE[kind], "f.yaml")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n", {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}),
        ("a: &a {x: 1}\nb: {<<: [*a, *a]}\n", {"a": {"x": 1}, "b": {"x": 1}}),
        ("a: {x: 1}\nb: {x: 1}\n", {"a": {"x": 1}, "b": {"x": 1}}),
        (
            "l: &l {s: 1}\na: &a {l: *l}\nb: {<<: *a, l: {<<: *l, t: 2}}\n",
            {"l": {"s": 1}, "a": {"l": {"s": 1}}, "b": {"l": {"s": 1, "t": 2}}},
        ),
        ("1: a\n2: b\n", {1: "a", 2: "b"}),
    ],
)
def test_keys_that_differ(text: str, content: object) -> None:
    assert parse_yaml(text, "f.yaml") == content


def test_json() -> None:
    assert parse_json('{"a": {"b": 1}, "b": [{"b": 1}]}') == {"a": {"b": 1}, "b": [{"b": 1}]}
    with pytest.raises(ValueError, match="the key 'b' occurs twice"):
        parse_json('{"a": [{"b": 1, "c": 2, "b": 1}]}')


def test_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(f"models:\n  a: {{source: {NET}, limits: {{size: 1KB}}}}\n  a: {{source: {NET}}}\n")
    with pytest.raises(tc.UsageError, match="the key 'a' occurs twice, again in line 3"):
        read_manifest(path)
    assert run(["ci", str(path), "--jobs", "1"]) == 2


def test_preprocessing_rules_and_ranges(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("color: GRAY\ncolor: RGB\n")
    with pytest.raises(tc.UsageError, match="'color' occurs twice"):
        Preprocess.parse(str(path))
    path.write_text("a: INT8\na: FLOAT32\n")
    with pytest.raises(tc.UsageError, match="'a' occurs twice"):
        expand_rules(f"@{path}", tmp_path)
    ranges = tmp_path / "r.json"
    tc.calibrate(NET, calibration=np.zeros((1, 1, 8, 8), np.float32)).save(ranges)
    ranges.write_text(ranges.read_text().replace("{", '{"ranges": {}, ', 1))
    with pytest.raises(tc.CorruptInputError, match="'ranges' occurs twice"):
        tc.quantize(NET, ranges=ranges)


@pytest.mark.parametrize(
    "words",
    [
        ["--config", "twice.yaml"],
        ["--config", "spelled.yaml"],
        ["--set", "chip=bm1684", "--set", "chip=bm1686"],
        ["--set", "preprocess.color=GRAY", "--set", "preprocess.color=RGB"],
        ["--set", "preprocess.color=GRAY", "--set", "preprocess=color=RGB"],
        ["--set", "input-shapes={image: [1, 1, 8, 8]}", "--set", "input_shapes={image: [2, 1, 8, 8]}"],
        ["--input-shapes", "image=1,1,8,8", "--input-shapes", "image=2,1,8,8"],
        ["--input-shapes", "image=1,1,8,8,image=2,1,8,8"],
        ["--fix-input", "image=1", "--fix-input", "image=2"],
        ["--preprocess", "color=GRAY,color=RGB"],
        ["--outputs", "probability,probability"],
        ["--dump-after", "fold=a", "--dump-after", "fold=b"],
    ],
)
def test_names_of_a_command_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twice.yaml").write_text("chip: bm1684\nchip: bm1686\n")
    Path("spelled.yaml").write_text("max-transposes: 3\nmax_transposes: 0\n")
    assert run(["convert", str(NET), "-o", "new.tpum", *words]) == 2
    assert not Path("new.tpum").exists()
    assert (
        "twice" in (text := capsys.readouterr().err)
        or "already" in text
        or "more than once" in text
        or "are one option" in text
    ), text


@pytest.mark.parametrize(
    "words",
    [
        ["verify", str(NET), "net.tpum", "--threshold", "a:cosine=1,cosine=0"],
        ["evaluate", "net.tpum", "--data", "x.npz", "--min", "top1=0", "--min", "top1=1"],
        ["run", "net.tpum", "image=x.npy", "image=y.npy"],
    ],
)
def test_names_of_other_commands(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tc.convert(NET).save("net.tpum")
    assert run(words) == 2
    assert "twice" in capsys.readouterr().err


@pytest.mark.parametrize("second", ["x.npy", "x"])
def test_members_of_an_archive(second: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 8, 8), np.float32))
    content = (tmp_path / "x.npy").read_bytes()
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
        with pytest.warns(UserWarning, match="Duplicate") if second == "x.npy" else contextlib.nullcontext():
            archive.writestr(second, content)
    with pytest.raises(tc.AmbiguousInputError, match="two arrays of the name 'x'"):
        tc.convert(NET, quantize="int8", calibration=tmp_path / "x.npz")
