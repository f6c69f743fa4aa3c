"""Random numbers of ONNX models: constants of a documented generator."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.onnx.models import graph_of, model, one, ops, ours, ramp
from tpuconvert.frontends.onnx.operators.random_numbers import normal_numbers, uniform_numbers
from tpuconvert.schema.errors import UnsupportedError


def numbers(op: str, tmp_path: Path, **attributes: object) -> np.ndarray:
    x = ramp(40, 50)
    inputs = ("x",) if op.endswith("Like") else ()
    shape = {} if inputs else {"shape": [40, 50]}
    nodes = [one(op, *inputs, outputs=["r"], **shape, **attributes), one("Add", "x", "r")]
    return ours(model(nodes, {"x": x}, ["y"]), {"x": np.zeros_like(x)}, tmp_path)["y"]


@pytest.mark.parametrize("op", ["RandomNormal", "RandomNormalLike"])
def test_normal_numbers(op: str, tmp_path: Path) -> None:
    found = numbers(op, tmp_path, seed=3.0, mean=2.0, scale=0.5)
    assert abs(found.mean() - 2) < 0.05 and abs(found.std() - 0.5) < 0.05  # 2000 numbers: 4 standard errors
    assert np.array_equal(found, numbers(op, tmp_path, seed=3.0, mean=2.0, scale=0.5))
    assert not np.array_equal(found, numbers(op, tmp_path, seed=4.0, mean=2.0, scale=0.5))


@pytest.mark.parametrize("op", ["RandomUniform", "RandomUniformLike"])
def test_uniform_numbers(op: str, tmp_path: Path) -> None:
    found = numbers(op, tmp_path, seed=3.0, low=-1.0, high=3.0)
    assert found.min() >= -1 and found.max() < 3 and abs(found.mean() - 1) < 0.11  # 4 standard errors
    assert len(np.unique(found)) > 1990


def test_generator_is_philox_with_the_bits_of_the_seed() -> None:
    words = np.random.Generator(np.random.Philox(key=0x3F800000)).bit_generator.random_raw(3)
    assert uniform_numbers(1.0, 3).tolist() == [(int(word) >> 40) / 2**24 for word in words]
    assert np.isfinite(normal_numbers(1.0, 10_000)).all()


def test_without_a_seed_a_note_names_the_node(tmp_path: Path) -> None:
    nodes = [one("RandomUniform", outputs=["r"], shape=[3]), one("Add", "x", "r")]
    graph = graph_of(model(nodes, {"x": ramp(3)}, ["y"]), tmp_path)
    assert graph.notes == ["RandomUniform 'the_RandomUniform' has no seed; its numbers are generated with the seed 0"]
    assert ops(graph) == ["add"]


def test_types(tmp_path: Path) -> None:
    half = one("RandomNormal", shape=[3], seed=1.0, dtype=TensorProto.FLOAT16)
    assert ours(model([half], {}, ["y"]), {}, tmp_path)["y"].dtype == np.float16
    with pytest.raises(UnsupportedError, match="dtype is string"):
        graph_of(model([one("RandomNormal", shape=[3], dtype=TensorProto.STRING)], {}, ["y"]), tmp_path)
