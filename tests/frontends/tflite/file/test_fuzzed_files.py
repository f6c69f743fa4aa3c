"""Damaged files: whatever bytes are changed or missing, only errors of this package are raised."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tflite.cases import all_cases
from tests.support.tflite.reference import model_of
from tpuconvert.frontends.tflite import load
from tpuconvert.schema.errors import InternalError, TpuConvertError

TRAINED = ("micro_speech_int8_tflite", "sine_int8_tflite", "mnist_lstm_tflite", "face_short_range_tflite")
_STRUCTURE_BYTES = 60_000  # of a large file: its tables precede its weights


def damage(model: bytes, generator: random.Random) -> bytes:
    """The file cut off somewhere, or with a few other bytes."""
    if generator.random() < 0.15:
        return model[: generator.randrange(len(model))]
    changed = bytearray(model)
    end = min(len(changed), _STRUCTURE_BYTES)
    for _ in range(generator.choice((1, 1, 2, 4, 16))):
        changed[generator.randrange(end)] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)))
    return bytes(changed)


def survivors(files: Iterator[bytes], folder: Path) -> int:
    """Number of files that convert; all others must raise an error of this package."""
    path, count = folder / "model.tflite", 0
    for data in files:
        path.write_bytes(data)
        try:
            load(path).validate()
        except InternalError:
            raise
        except TpuConvertError:
            continue
        count += 1
    return count


@pytest.mark.parametrize("times", [100, pytest.param(6000, marks=pytest.mark.slow)])
def test_small_files(tmp_path: Path, times: int) -> None:
    generator, models = random.Random(times), [model_of(case) for case in all_cases()]
    files = (damage(generator.choice(models), generator) for _ in range(times))
    assert 0 < survivors(files, tmp_path) < times


@pytest.mark.parametrize("times", [5, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TRAINED)
def test_trained_models(tmp_path: Path, data_root: Path, name: str, times: int) -> None:
    generator, model = random.Random(name), (data_root / "models" / name / "model.tflite").read_bytes()
    survivors((damage(model, generator) for _ in range(times)), tmp_path)
