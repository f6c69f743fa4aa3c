"""Pow for every sign and kind of base and exponent, compared with ONNX Runtime in both engines."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.onnx.graphs import BACKENDS
from tests.support.onnx.models import model, one, save_model
from tpuconvert.schema.types import Array

INF, NAN = np.inf, np.nan
BASES = np.array(
    [-INF, -300, -2.5, -2, -1.5, -1, -0.5, -1e-20, -0.0, 0, 1e-20, 0.5, 1, 1.5, 2, 300, INF, NAN], np.float32
)
EXPONENTS = np.array(
    [-INF, -65, -3, -2.5, -2, -1, -0.5, -0.0, 0, 1 / 3, 0.5, 1, 2, 2.5, 3, 64, 65, 66, INF, NAN], np.float32
)
FINITE = EXPONENTS[np.isfinite(EXPONENTS)]


def check(folder: Path, feeds: Mapping[str, Array], constants: Mapping[str, Array], chip: str) -> None:
    """The tolerance covers ``exp(y * ln|x|)`` in float32."""
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    proto = model([one("Pow", "x", "y", outputs=["z"])], feeds, ["z"], constants)
    typed = onnx.shape_inference.infer_shapes(proto)
    oracle = runtime.InferenceSession(typed.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = oracle.run(None, dict(feeds))
    converted = tc.convert(save_model(proto, folder), chip=chip)
    for backend in BACKENDS:
        with tc.Session(converted, backend=backend) as session:
            np.testing.assert_allclose(session.run(feeds)["z"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
def test_every_base_and_exponent(chip: str, tmp_path: Path) -> None:
    x, y = (grid.reshape(-1) for grid in np.meshgrid(BASES, EXPONENTS))
    check(tmp_path, {"x": x, "y": y}, {}, chip)


@pytest.mark.parametrize("exponent", FINITE)
def test_one_constant_exponent(exponent: np.float32, tmp_path: Path) -> None:
    check(tmp_path, {"x": BASES}, {"y": exponent}, "bm1686")


@pytest.mark.parametrize("base", BASES[np.isfinite(BASES)])
def test_one_constant_base(base: np.float32, tmp_path: Path) -> None:
    check(tmp_path, {"y": EXPONENTS}, {"x": base}, "bm1686")


@pytest.mark.parametrize("exponents", [(1, -1), (0, 0.5), (65, 2), (-2, -3), (0, 0), (3, 3), (2.5, -1)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_constant_exponents_per_column(exponents: tuple[float, ...], dtype: str, tmp_path: Path) -> None:
    check(tmp_path, {"x": np.stack([BASES, BASES], 1)}, {"y": np.array(exponents, dtype)}, "bm1684")


def test_exponent_broadcasts_the_base(tmp_path: Path) -> None:
    check(tmp_path, {"x": BASES[:, None], "y": np.array([2, -1, 0.5], np.float32)}, {}, "bm1686")
