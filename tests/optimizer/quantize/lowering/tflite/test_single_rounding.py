"""``tflite_rounding="single"`` against the default delegate of ai-edge-litert, which rounds once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tests.support.tflite.integer_cases import CASES
from tests.support.tflite.models import serialize

litert = pytest.importorskip("ai_edge_litert.interpreter")

from tools.exactness.tflite_exactness import Line, Oracle, outputs_by_name  # noqa: E402 - needs the interpreter

AGREEMENT = {
    "conv_2d": 0.999,
    "depthwise_conv_2d": 0.999,
    "fully_connected": 0.999,
    "add": 1.0,
    "sub": 1.0,
    "mul": 0.999,
}
"""Least share of equal INT8 elements. The delegate requantizes convolutions in binary32, adds in integers."""

SEEDS = 12


@pytest.mark.parametrize("name", sampled(AGREEMENT, every=2))
def test_agrees_with_the_delegate(name: str, tmp_path: Path) -> None:
    line = Line(name)
    for seed in range(SEEDS):
        generator = np.random.default_rng([seed, 2])
        file = tmp_path / "model.tflite"
        file.write_bytes(serialize(CASES[name][0](generator, "INT8")))
        oracle = Oracle(file, "single")
        feeds = oracle.random_feeds(generator)
        with tc.Session(
            tc.convert(file, source_options=tc.SourceOptions(tflite_rounding="single")), backend="reference"
        ) as session:
            for found, want in zip(
                session.run(outputs_by_name(session, feeds)).values(), oracle.run(feeds), strict=True
            ):
                line.add(found, want)
    assert line.elements and line.agreement >= AGREEMENT[name] and line.largest <= 1, str(line)
