"""A model file stores its recipe, from which another conversion gives the same bytes."""

import dataclasses
import json
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
import xxhash

import tpuconvert as tc
from tests.support.networks.small_models import examples, model_of, scaled_and_shifted
from tests.support.onnx.models import model, one
from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import OPTIONS, Options, declaration, default_of, group_options
from tpuconvert.conversion.quantization.ranges_file import measure_ranges
from tpuconvert.conversion.recipe import write_options
from tpuconvert.conversion.reproduction import first_difference, read_options, reproduce
from tpuconvert.conversion.source import Source
from tpuconvert.progress import SILENT
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.system import mapped_pages
from tpuconvert.schema.system.content_digest import CHUNK
from tpuconvert.schema.system.file_digest import file_digest

PIXELS = "color=GRAY,scale=0.0625"
WITH_SYNTAX: dict[str, object] = {
    "chip": "bm1684",
    "calibration_method": "kl",
    "precision": ["conv1=float32", "op:conv=per-tensor,percentile:99.9", "between a and b=threshold:6"],
    "keep_float": ["fc"],
    "without": ["channel-scales"],
    "input_shapes": {"x": ("N", 3)},
    "shapes": [{"y": (1, 3)}, {"y": (1, 5)}],
    "inputs": ["a", "b"],
    "outputs": ["c"],
    "preprocess": PIXELS,
    "fuse_preprocess": "gray",
    "append_nms": "boxes=b,scores=s,iou=0.6",
    "signature": "serving_default",
    "fix_inputs": {"sr": 16000, "mask": ((1, 0), (0, 1))},
}
"""Values of options that are not truth values, numbers or choices."""


def other_value(name: str) -> object:
    """A value of an option that is not its default."""
    declared, default = declaration(name), default_of(name)
    if name in WITH_SYNTAX:
        return WITH_SYNTAX[name]
    if declared.choices:
        return declared.choices[1]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    assert declared.lower is not None, f"{name}: add a value to WITH_SYNTAX"
    return declared.lower


OPTIONS_OF_FLOAT_MODELS = {
    "weight_type": "int4",
    "weight_group": 64,
    "weight_zero_points": True,
    "embedding_type": "int4",
    "activation_type": "int8",
}
"""Options that exclude ``quantize``."""


def digits_in_int8(folder: Path, **options: object) -> tc.Model:
    """A model of the ONNX example, with its source in the same folder."""
    shutil.copy(examples() / "digits.onnx", folder / "a.onnx")
    return tc.convert(
        folder / "a.onnx",
        calibration=examples() / "calibration.npz",
        preprocess=PIXELS,
        **group_options(quantize="int8", **options),  # type: ignore[arg-type]  # by name
    )


def some_rule() -> str:
    from tpuconvert.optimizer.pipeline import passes

    return next(iter(item.name for item in passes(())))


def test_every_option_goes_into_the_recipe_and_back() -> None:
    others = {"allow_non_finite", "allow_root", "workers", "scheduler", "strict_accuracy", *OPTIONS_OF_FLOAT_MODELS}
    given = {name: other_value(name) for name in OPTIONS if name not in {*others, "disable_rules"}}
    options = Options.of(**given, disable_rules=[some_rule()])
    for item in dataclasses.fields(Options):
        changed = getattr(options, item.name) != getattr(Options(), item.name)
        assert changed or item.name in others, f"{item.name} has to differ from its default"
    written = json.loads(json.dumps(write_options(options)))
    model = model_of(scaled_and_shifted(), metadata={"recipe": {"options": written}})
    content = dataclasses.replace(model.content, chip=options.chip, preprocessing=options.preprocess.to_dict())
    assert read_options(tc.Model(content)) == options


def test_options_of_float_models_go_into_the_recipe() -> None:
    assert write_options(Options.of(**OPTIONS_OF_FLOAT_MODELS)) == OPTIONS_OF_FLOAT_MODELS  # type: ignore[arg-type]


def test_allow_non_finite_is_the_option_that_excludes_quantization() -> None:
    assert write_options(Options.of(allow_non_finite=True)) == {"allow_non_finite": True}


def test_the_number_of_workers_is_not_stored() -> None:
    assert write_options(Options.of(quantize="int8", workers=3)) == write_options(Options.of(quantize="int8"))
    assert write_options(Options.of(quantize="int8", scheduler="tcp://host:8786")) == {"quantize": "int8"}


def test_the_file_names_nothing_of_this_machine(tmp_path: Path) -> None:
    model = digits_in_int8(tmp_path)
    model.save(tmp_path / "m.tpum")
    recipe = tc.load(tmp_path / "m.tpum").metadata["recipe"]
    assert recipe.keys() == {"source", "calibration", "options"}
    assert recipe["source"].keys() == {"format", "xxh3-128"}
    assert recipe["calibration"]["samples"] == 100
    assert recipe["options"] == {"quantize": "int8"}
    content = (tmp_path / "m.tpum").read_bytes()
    assert str(tmp_path).encode() not in content
    assert b"calibration.npz" not in content


def test_made_again(tmp_path: Path) -> None:
    """Reproduce from files with different names in another folder."""
    digits_in_int8(tmp_path, max_transposes=4, strict_set=True).save(tmp_path / "m.tpum")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "a.onnx", other / "a.onnx")
    shutil.copy(examples() / "calibration.npz", other / "samples.npz")
    result = reproduce(
        tmp_path / "m.tpum", other / "a.onnx", calibration=other / "samples.npz", output=other / "m.tpum"
    )
    assert result.is_same
    result.check()
    assert (other / "m.tpum").read_bytes() == (tmp_path / "m.tpum").read_bytes()
    assert result.to_dict()["is_same"] is True


def test_other_files_are_refused(tmp_path: Path) -> None:
    digits_in_int8(tmp_path).save(tmp_path / "m.tpum")
    other, samples = examples() / "digits.tflite", np.load(examples() / "calibration.npz")["images"]
    for source, weights, calibration, words in (
        (other, None, None, "not the source of the first conversion"),
        (tmp_path / "a.onnx", other, None, "no weight file belongs to it"),
        (tmp_path / "a.onnx", None, None, "was quantized with 100 samples"),
        (tmp_path / "a.onnx", None, {"image": samples[:50]}, "not the samples of the first conversion"),
        (tmp_path / "none.onnx", None, None, "no such file"),
    ):
        with pytest.raises(tc.UsageError, match=words):
            reproduce(tmp_path / "m.tpum", source, weights, calibration=calibration)


def test_a_file_without_recipe(tmp_path: Path) -> None:
    model_of(scaled_and_shifted()).save(tmp_path / "m.tpum")
    with pytest.raises(tc.UsageError, match="says nothing about how it was made"):
        reproduce(tmp_path / "m.tpum", "any.onnx")


def test_an_option_of_another_version(tmp_path: Path) -> None:
    model = model_of(scaled_and_shifted(), metadata={"recipe": {"options": {"magic": 3}}})
    with pytest.raises(tc.UsageError, match="has the option 'magic'") as error:
        read_options(model)
    assert "0.0.0" in error.value.hint


def test_another_result_is_told(tmp_path: Path) -> None:
    """The file was modified after the conversion."""
    model = digits_in_int8(tmp_path)
    weight = next(value for value in model.graph.values if value.is_constant and value.array.size > 8)
    content = np.array(weight.array)
    content.flat[3] += 1
    tampered = tc.Model(dataclasses.replace(model.content, tool_version="0.0.9"))
    weight.data = content
    tampered.save(tmp_path / "m.tpum")
    result = reproduce(tmp_path / "m.tpum", tmp_path / "a.onnx", calibration=examples() / "calibration.npz")
    assert not result.is_same
    assert result.difference == f"the constant '{weight.name}' has other elements"
    with pytest.raises(tc.ThresholdError, match="a second conversion gives other bytes") as error:
        result.check()
    assert "0.0.9" in error.value.hint


def test_first_differences() -> None:
    one = model_of(scaled_and_shifted())
    assert first_difference(one, model_of(scaled_and_shifted(), quantize="int8")) == "its quantize differs"
    assert first_difference(one, model_of(scaled_and_shifted(name="other"))) != ""
    assert "the constant 'scale' has other elements" in first_difference(one, model_of(scaled_and_shifted(3.0)))
    later = tc.Model(dataclasses.replace(one.content, tool_version="9"))
    assert first_difference(one, later) == "the version in it differs, all else is the same"


def test_samples_have_one_digest(tmp_path: Path) -> None:
    """The digest depends on contents and order, not on file names."""
    port = Port("x", "float32", (1, 4))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "b.npy", x)
    np.save(tmp_path / "c.npy", x[::-1])
    first, second, third = (load_feeds(tmp_path / f"{name}.npy", [port]).digest() for name in "abc")
    assert first == second != third
    assert load_feeds({"x": x}, [port]).digest() == first


def with_external_data(folder: Path) -> tuple[Path, Path]:
    """The ONNX example with its weights in two external files."""
    model = onnx.load(str(examples() / "digits.onnx"))
    source = folder / "outside.onnx"
    onnx.save_model(model, str(source), save_as_external_data=True, location="first.bin", size_threshold=0)
    moved = model.graph.initializer[-1]
    content = (folder / "first.bin").read_bytes()
    place = {entry.key: entry for entry in moved.external_data}
    offset, length = int(place["offset"].value), int(place["length"].value)
    (folder / "second.bin").write_bytes(content[offset : offset + length])
    place["location"].value, place["offset"].value = "second.bin", "0"
    source.write_bytes(model.SerializeToString())
    return source, folder / "second.bin"


def change_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)


def test_external_data_belong_to_the_source(tmp_path: Path) -> None:
    source, weights = with_external_data(tmp_path)
    model = tc.convert(source)
    model.save(tmp_path / "m.tpum")
    assert model.metadata["recipe"]["external"]["files"] == 2
    assert reproduce(tmp_path / "m.tpum", source).is_same
    change_a_byte(weights)
    with pytest.raises(tc.UsageError, match="not the external data of the first conversion"):
        reproduce(tmp_path / "m.tpum", source)
    assert tc.convert(source).metadata["recipe"]["external"] != model.metadata["recipe"]["external"]


def test_a_recipe_without_the_external_data_is_no_proof(tmp_path: Path) -> None:
    source, _ = with_external_data(tmp_path)
    model = tc.convert(source)
    recipe = {key: value for key, value in model.metadata["recipe"].items() if key != "external"}
    tc.Model(dataclasses.replace(model.content, metadata={"recipe": recipe})).save(tmp_path / "m.tpum")
    with pytest.raises(tc.CorruptInputError, match="no xxh3-128 digest of the external data"):
        reproduce(tmp_path / "m.tpum", source)


def test_ranges_are_those_of_the_external_data_too(tmp_path: Path) -> None:
    source, weights = with_external_data(tmp_path)
    options = Options.of(quantize="int8", preprocess=PIXELS)
    ranges = measure_ranges(Source(source), options, examples() / "calibration.npz", progress=SILENT)
    Conversion(options, ranges=ranges).of_source(Source(source))
    change_a_byte(weights)
    with pytest.raises(tc.UsageError, match="the ranges belong to another model"):
        Conversion(options, ranges=ranges).of_source(Source(source))


def test_large_files_are_digested_in_pieces(tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    with open(file, "wb") as target:
        target.truncate(64 << 20)
    tracemalloc.start()
    digest = file_digest(file)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 << 20
    assert digest == xxhash.xxh3_128(bytes(64 << 20)).hexdigest()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 5])
def test_every_byte_of_a_file_counts(tmp_path: Path, size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    (tmp_path / "m.bin").write_bytes(content)
    assert file_digest(tmp_path / "m.bin") == xxhash.xxh3_128(content).hexdigest()


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system cannot read at a place in a file")
@pytest.mark.parametrize("external", [False, True], ids=["one file", "external data"])
def test_large_sources_are_digested_while_their_constants_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external: bool
) -> None:
    """The file equals the file of a source read at once, even if the source file is deleted before it is complete."""
    w = np.random.default_rng(3).standard_normal((600, 600)).astype(np.float32)  # 1.4 MB
    made = model([one("MatMul", "x", "w")], {"x": np.ones((1, 600), np.float32)}, ["y"], {"w": w})
    source = tmp_path / "m.onnx"
    onnx.save(made, source, save_as_external_data=external, location="w.bin")
    Conversion(Options()).of_source(Source(source)).save(tmp_path / "small.tpum")
    monkeypatch.setattr(mapped_pages, "COPIED_BYTES", 1000)
    monkeypatch.setattr(mapped_pages, "STAYING_MAPPED", 1000)
    monkeypatch.setattr("tpuconvert.frontends.onnx.file.reader.MAPPED_BYTES", 1000)
    digested = []
    for module in ("recipe", "source"):
        monkeypatch.setattr(
            f"tpuconvert.conversion.{module}.file_digest", lambda path: digested.append(Path(path)) or file_digest(path)
        )
    large = Conversion(Options()).of_source(Source(source))
    assert digested == ([source] if external else [])  # now above the limit, so the file is mapped
    for file in [source, *tmp_path.glob("w.bin")]:
        file.rename(file.with_suffix(".moved"))
    large.save(tmp_path / "large.tpum")
    assert (tmp_path / "large.tpum").read_bytes() == (tmp_path / "small.tpum").read_bytes()
    assert json.loads(json.dumps(large.metadata)) == tc.load(tmp_path / "small.tpum").metadata
