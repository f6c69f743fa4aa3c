"""Formats of the mutation campaigns: valid files, their mutations, and what is done with a damaged file."""

from __future__ import annotations

import functools
import io
import math
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tests.support.damage import small_files
from tests.support.damage.mutations import (
    change_arrays,
    change_flatbuffer,
    change_json,
    change_onnx,
    change_program,
    change_prototxt,
    change_weights,
    change_yaml,
    damage_bytes,
    damage_signed,
    flip_bit,
)
from tpuconvert.ci.manifest import read_manifest
from tpuconvert.conversion.quantization.ranges_file import read_ranges
from tpuconvert.samples.array_files import load_arrays

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"

_MOST_ELEMENTS = 1 << 22  # of a value of a mutated model: the campaign tests readers, not the speed of large models
_MOST_PLANNED = 1 << 40  # of a value of a model that is planned, whose results take no memory before the run
_STEP = 7919  # a prime that does not divide a number of bytes: the first cases are spread over all files


@dataclass(frozen=True)
class Format:
    """A kind of file: how valid content is made and damaged, and what is done with a damaged file."""

    suffix: str
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, random.Random], bytes]
    use: Callable[[Path], None]
    is_detected: bool = False  # True if every damage must be refused
    is_cut: bool = False  # True if the number of cases follows from the seeds, as the number of their beginnings does

    def case(self, contents: Sequence[bytes], name: str, seed: int) -> bytes:
        """Return the damaged content of a case. Cases of a cut format are numbered through all files."""
        if not self.is_cut:
            chance = random.Random(f"{name} {seed}")
            return self.mutate(chance.choice(contents), chance)
        place = seed * _STEP % sum(map(len, contents))
        for content in contents:
            if place < len(content):
                return content[:place]
            place -= len(content)
        raise AssertionError("a place is inside of a file")

    def most_cases(self, count: int) -> int:
        """Number of cases, of which a campaign tries at most ``count``."""
        return min(count, sum(map(len, self.seeds()))) if self.is_cut else count


@dataclass(frozen=True)
class Listed(Format):
    """A kind of file whose cases are listed: every change of the structure of every valid file.

    The first cases are spread over all files. The number of cases is not in the tests, because it follows from the
    valid files.
    """

    list_cases: Callable[[], list[Callable[[], bytes]]] = list

    def case(self, contents: Sequence[bytes], name: str, seed: int) -> bytes:
        """Return the changed content of a case."""
        cases = self.list_cases()
        return cases[seed * _STEP % len(cases)]()

    def most_cases(self, count: int) -> int:
        """Number of cases, of which a campaign tries at most ``count``."""
        return min(count, len(self.list_cases()))


def _file(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(DIGITS / name).read_bytes()]


def _run(model: tc.Model) -> None:
    """Plan a model, and run it on random inputs if none of its values is too large."""
    chance = np.random.default_rng(0)
    largest = max((math.prod(_static(value.shape)) for value in model.graph.values), default=0)
    if largest > _MOST_PLANNED:
        return
    with tc.Session(model) as session:
        if largest > _MOST_ELEMENTS:
            return
        session.run(
            {info.name: chance.integers(0, 2, _static(info.shape)).astype(info.dtype) for info in session.inputs}
        )


def _static(shape: Sequence[object]) -> tuple[int, ...]:
    """Return a shape with 2 for symbolic extents."""
    return tuple(extent if isinstance(extent, int) else 2 for extent in shape)


def _convert(path: Path) -> None:
    _run(tc.convert(path))


def _convert_prototxt(path: Path) -> None:
    _run(tc.convert(path, DIGITS / "digits.caffemodel"))


def _convert_weights(path: Path) -> None:
    _run(tc.convert(DIGITS / "digits.prototxt", path))


def _convert_small_weights(path: Path) -> None:
    prototxt = path.with_suffix(".prototxt")
    prototxt.write_text(small_files.PROTOTXT)
    _run(tc.convert(prototxt, path))


def _read_manifest(path: Path) -> None:
    read_manifest(path)


def _read_ranges(path: Path) -> None:
    read_ranges(path)


def _read_arrays(path: Path) -> None:
    load_arrays(path)


def _load(path: Path) -> None:
    model = tc.load(path)
    tc.inspect(model).to_dict()
    _run(model)


def _quantized() -> tc.Model:
    return tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=_samples())


def _samples() -> np.ndarray:
    images = load_arrays(DIGITS / "calibration.npz")["images"][:8, None]
    return images.astype(np.float32) / 255


def _programs() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tpum"
        models = []
        for model in (tc.convert(DIGITS / "digits.onnx"), _quantized()):
            model.save(path)
            models.append(path.read_bytes())
        return models


def _ranges() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.json"
        tc.calibrate(DIGITS / "digits.onnx", calibration=_samples()).save(path)
        return [path.read_bytes()]


def _quantize(path: Path) -> None:
    read_ranges(path)
    tc.quantize(DIGITS / "digits.onnx", ranges=path)


MANIFEST = f"""
defaults: {{chip: bm1686, samples: 2, limits: {{cosine: 0.9}}}}
models:
  a: {{source: {DIGITS}/digits.onnx, limits: {{size: 1 MB, transposes: 3}}, quantize: int8}}
  b: {{source: {DIGITS}/digits.prototxt, weights: {DIGITS}/digits.caffemodel, effort: low, quantize: int8}}
"""

PREPROCESS = "preprocess: {scale: [0.1, 0.2, 0.3], mean: [1, 2, 3], color: bgr, fit: crop, size: [24, 24]}\n"


def _arrays() -> list[bytes]:
    plain, packed = io.BytesIO(), io.BytesIO()
    arrays = {"x": np.arange(600.0).reshape(2, 300), "y": np.zeros((3, 4), np.int8)}
    np.savez(plain, **arrays)
    np.savez_compressed(packed, **arrays)
    return [plain.getvalue(), packed.getvalue()]


def _images() -> list[bytes]:
    from PIL import Image

    found = []
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)
    for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM"):
        made = io.BytesIO()
        Image.fromarray(pixels).save(made, kind)
        found.append(made.getvalue())
    return found


def _decode(path: Path) -> None:
    from tpuconvert.samples.image_files import open_image

    with open_image(path) as image:
        np.asarray(image.convert("RGB"))


def _read_preprocess(path: Path) -> None:
    from tpuconvert.conversion.options.options import Options

    Options.of(preprocess=str(path))


def _cut(suffix: str, seeds: Callable[[], list[bytes]], use: Callable[[Path], None], **others: bool) -> Format:
    return Format(suffix, seeds, lambda content, _: content, use, is_cut=True, **others)


def _open_saved(model: tc.Model, path: Path) -> None:
    """Save a model, and load, plan and run the file."""
    saved = path.with_suffix(".tpum")
    model.save(saved)
    _run(tc.load(saved))


def _convert_and_save(path: Path) -> None:
    _open_saved(tc.convert(path), path)


def _structure(kind: str) -> tuple[Callable[[], list[bytes]], Callable[[], list[Callable[[], bytes]]]]:
    """Return functions that list the valid files and the changed files of a format."""

    @functools.cache
    def listed() -> tuple[list[bytes], list[Callable[[], bytes]]]:
        from tests.support.damage import structure_changes  # 1 s: imports tables of cases

        models, serialize, changes = structure_changes.FORMATS[kind]
        found = models()
        return [serialize(model) for model in found], [case for model in found for case in changes(model)]

    return lambda: listed()[0], lambda: listed()[1]


def _listed(kind: str, suffix: str) -> Listed:
    seeds, cases = _structure(kind)
    return Listed(suffix, seeds, damage_bytes, _convert_and_save, is_cut=True, list_cases=cases)


FORMATS: dict[str, Format] = {
    "onnx bytes": Format(".onnx", _file("digits.onnx"), damage_bytes, _convert),
    "onnx fields": Format(".onnx", _file("digits.onnx"), change_onnx, _convert),
    "tflite bytes": Format(".tflite", _file("digits.tflite"), damage_bytes, _convert),
    "tflite fields": Format(".tflite", _file("digits.tflite"), change_flatbuffer, _convert),
    "caffemodel bytes": Format(".caffemodel", _file("digits.caffemodel"), damage_bytes, _convert_weights),
    "caffemodel fields": Format(".caffemodel", _file("digits.caffemodel"), change_weights, _convert_weights),
    "prototxt bytes": Format(".prototxt", _file("digits.prototxt"), damage_bytes, _convert_prototxt),
    "prototxt fields": Format(".prototxt", _file("digits.prototxt"), change_prototxt, _convert_prototxt),
    "tpum bytes": Format(".tpum", _programs, damage_bytes, _load),
    "tpum bytes, valid digest": Format(".tpum", _programs, damage_signed, _load),
    "tpum fields, valid digest": Format(".tpum", _programs, change_program, _load),
    "ranges bytes": Format(".json", _ranges, damage_bytes, _quantize),
    "ranges fields": Format(".json", _ranges, change_json, _quantize),
    "manifest bytes": Format(".yaml", lambda: [MANIFEST.encode()], damage_bytes, _read_manifest),
    "manifest fields": Format(".yaml", lambda: [MANIFEST.encode()], change_yaml, _read_manifest),
    "preprocess bytes": Format(".yaml", lambda: [PREPROCESS.encode()], damage_bytes, _read_preprocess),
    "preprocess fields": Format(".yaml", lambda: [PREPROCESS.encode()], change_yaml, _read_preprocess),
    "npz bytes": Format(".npz", _arrays, damage_bytes, _read_arrays),
    "npz fields": Format(".npz", _arrays, change_arrays, _read_arrays),
    "images": Format(".png", _images, damage_bytes, _decode),
    "tpum single bits": Format(".tpum", _programs, flip_bit, _load, is_detected=True),
    "onnx cut": _cut(".onnx", small_files.onnx_files, _convert),
    "tflite cut": _cut(".tflite", small_files.tflite_files, _convert),
    "caffemodel cut": _cut(".caffemodel", small_files.caffemodels, _convert_small_weights),
    "prototxt cut": _cut(".prototxt", small_files.prototxts, _convert_prototxt),
    "tpum cut": _cut(".tpum", small_files.programs, _load, is_detected=True),
    "ranges cut": _cut(".json", small_files.ranges, _read_ranges),
    "manifest cut": _cut(".yaml", small_files.manifests, _read_manifest),
    "preprocess cut": _cut(".yaml", small_files.preprocessings, _read_preprocess),
    "npz cut": _cut(".npz", small_files.arrays, _read_arrays, is_detected=True),
    "images cut": _cut(".png", small_files.images, _decode),
    "onnx structure": _listed("onnx", ".onnx"),
    "tflite structure": _listed("tflite", ".tflite"),
    "prototxt structure": _listed("caffe", ".prototxt"),
}


def full_count(name: str) -> int:
    """Number of cases of a whole campaign."""
    if name.endswith("single bits"):
        return 10_000
    is_slow = "fields" in name or name in ("onnx structure", "tflite structure")
    return FORMATS[name].most_cases(5_000 if is_slow else 20_000)
