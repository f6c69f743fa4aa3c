"""INT8 models with symbolic batch, sequence length and image size, compared with models of fixed shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.onnx.models import save_model
from tests.support.onnx.symbolic_networks import MODELS, NETWORKS, SIZES, network, samples
from tests.support.paired import paired
from tpuconvert.conversion.options.options import group_options
from tpuconvert.runtime.native.builder import loader
from tpuconvert.runtime.native.plans import KEPT
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.types import Array

BACKEND = "native" if loader.extension() is not None else "reference"


def assert_same(symbolic: tc.Model, fixed: tc.Model, feed: dict[str, Array]) -> None:
    """Compare the bytes of all outputs of a model with symbolic extents and of one for the extents of the feed."""
    session = tc.Session(symbolic, backend=BACKEND, threads=1)
    found, expected = session.run(feed), tc.Session(fixed, backend=BACKEND, threads=1).run(feed)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes(), (name, array.shape)
    assert not session.reference_nodes or BACKEND == "reference"


@pytest.mark.parametrize(("name", "size"), paired(list(MODELS), [(size,) for size in SIZES[1:]]))
def test_operator_equals_that_of_fixed_shapes(name: str, size: tuple[int, ...], tmp_path: Path) -> None:
    path = save_model(MODELS[name](), tmp_path)
    options: dict[str, Any] = {"quantize": "int8", "calibration": samples([size])}
    fixed = tc.convert(path, **group_options(input_shapes={"x": size}, **options))
    assert_same(tc.convert(path, **group_options(**options)), fixed, samples([size])[0])


@pytest.mark.parametrize("effort", ["low", "default", "high"])
def test_network_equals_that_of_fixed_shapes(effort: str, tmp_path: Path) -> None:
    """All models are quantized with the ranges of samples of all sizes."""
    path = save_model(network(), tmp_path)
    ranges = tc.calibrate(path, calibration=samples(SIZES), quantization=tc.Quantization(effort=effort))
    tc.quantize(path, ranges=ranges, quantization=tc.Quantization(effort=effort)).save(tmp_path / "m.tpum")
    for feed in samples(SIZES, 1):
        fixed = tc.quantize(
            path,
            ranges=ranges,
            quantization=tc.Quantization(effort=effort),
            source_options=tc.SourceOptions(input_shapes={"x": feed["x"].shape}),
        )
        assert_same(tc.load(tmp_path / "m.tpum"), fixed, feed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "effort"), paired(["encoder", "patches"], ["low", "default"]))
def test_attention_equals_that_of_fixed_shapes(name: str, effort: str, tmp_path: Path) -> None:
    build, sizes = NETWORKS[name]
    path = save_model(build(), tmp_path)
    for size in sizes:
        options: dict[str, Any] = {"quantize": "int8", "calibration": samples([size]), "effort": effort}
        fixed = tc.convert(path, **group_options(input_shapes={"x": size}, **options))
        assert_same(tc.convert(path, **group_options(**options)), fixed, samples([size])[0])


def test_bm1684_equals_that_of_fixed_shapes(tmp_path: Path) -> None:
    path = save_model(network(), tmp_path)
    for size in SIZES[:2]:
        options: dict[str, Any] = {"quantize": "int8", "calibration": samples([size]), "chip": "bm1684"}
        fixed = tc.convert(path, **group_options(input_shapes={"x": size}, **options))
        assert_same(tc.convert(path, **group_options(**options)), fixed, samples([size])[0])


@pytest.mark.parametrize(
    ("name", "options"),
    paired(list(NETWORKS), [{}, {"effort": "high"}, {"workers": 2}, {"calibration_method": "kl"}]),
)
def test_calibrates_on_samples_of_different_sizes(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    build, sizes = NETWORKS[name]
    path = save_model(build(), tmp_path)
    converted = tc.convert(path, calibration=samples(sizes, 3), **group_options(quantize="int8", **options))
    original = tc.Session(tc.convert(path), threads=1)
    session = tc.Session(converted, threads=1)
    for feed in samples([*sizes, tuple(2 * extent for extent in sizes[0][:1]) + sizes[1][1:]], 1):
        found, expected = session.run(feed), original.run(feed)
        for output, wanted in expected.items():
            cosine = (found[output] * wanted).sum() / np.linalg.norm(found[output]) / np.linalg.norm(wanted)
            assert cosine > 0.995, output  # INT8 of small random networks


def test_native_plans_equal_the_reference(tmp_path: Path) -> None:
    if BACKEND == "reference":
        pytest.skip("needs the native engine")
    build, sizes = NETWORKS["network"]
    converted = tc.convert(
        save_model(build(), tmp_path), quantize=tc.Quantization(effort="low"), calibration=samples(sizes)
    )
    assert any(isinstance(each.op, DeferredOp) for each in converted.graph.nodes)
    native, reference = tc.Session(converted, threads=1), tc.Session(converted, backend="reference")
    for feed in samples([*sizes, (1, 3, 33, 51)][:3], 1):
        found, expected = native.run(feed), reference.run(feed)
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in expected.items()
        }


def test_session_keeps_a_bounded_number_of_plans(tmp_path: Path) -> None:
    if BACKEND == "reference":
        pytest.skip("needs the native engine")
    session = tc.Session(tc.convert(save_model(network(), tmp_path)), threads=1)
    for width in range(32, 32 + 4 * (KEPT + 3), 4):
        session.run({"x": np.zeros((1, 3, 32, width), np.float32)})
    assert session._native is not None and len(session._native._plans) == KEPT
