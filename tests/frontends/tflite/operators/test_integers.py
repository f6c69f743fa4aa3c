"""Operators on integers without a scale at the limits of their type, compared with the reference kernels of LiteRT."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.tflite.cases import Case, Given
from tests.support.tflite.reference import model_of, reference_outputs
from tpuconvert.runtime.native.builder import loader
from tpuconvert.schema.types import Array

BACKENDS = ("reference", *(("native",) if loader.extension() is not None else ()))


def limits_of(dtype: str) -> Array:
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -(1 << 31)), min(limits.max, (1 << 31) - 1)
    near = {low, low + 1, -1, 0, 1, 2, 100, 127, 128, 255, (1 << 24) + 1, high - 1, high}
    return np.array(sorted(x for x in near if low <= x <= high), dtype)


def cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int16", "int32", "int64"):
        x = limits_of(dtype)
        a, b = np.repeat(x, len(x)), np.tile(x, len(x))
        for target in ("int8", "uint8", "int16", "int32", "int64", "float32", "bool"):
            if target != dtype:
                yield Case("CAST", [Given(x)], [target.upper()], "CastOptions", note=f"{dtype} {target}")
        if dtype in ("int8", "uint8", "int16", "int32"):
            amounts = np.resize(np.array([0, 1, 3, 7], dtype), len(a))
            yield Case("RIGHT_SHIFT", [Given(a), Given(amounts)], [dtype.upper()], "RightShiftOptions", note=dtype)
        if dtype in ("int8", "int16", "int32"):
            for op in ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY"):
                if (op, dtype) != ("STABLEHLO_MULTIPLY", "int16"):
                    yield Case(op, [Given(a), Given(b)], [dtype.upper()], note=dtype)
    shifted = [Given(np.array([-8, 5, 7], np.int32)), Given(np.array([-1, 40, 1], np.int32))]
    yield Case("RIGHT_SHIFT", shifted, ["INT32"], "RightShiftOptions", note="amounts outside of the width")
    x = np.array([-32768, -5, 7], np.int16)
    yield Case("ADD", [Given(x), Given(x)], ["INT16"], "AddOptions", note="int16")
    yield Case("ABS", [Given(x)], ["INT16"], "AbsOptions", note="int16")
    means = np.array([[-3, -4], [3, 4], [7, 7]], np.int32)
    yield Case("MEAN", [Given(means), np.array([1], np.int32)], ["INT32"], "ReducerOptions", note="truncated")
    x, y = np.meshgrid(
        np.array([-2.5, -2, -1, -0.0, 0, 0.5, 1, 3], np.float32), np.array([-3, -2.5, -1, 0, 0.5, 2, 65], np.float32)
    )
    yield Case("POW", [Given(x), Given(y)], table="PowOptions", atol=1e-5, note="computed exponents")
    yield Case("POW", [Given(x), y[:, :1].copy()], table="PowOptions", atol=1e-5, note="exponents per row")


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_as_the_reference_kernels(case: Case, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: install tpuconvert[oracles]")
    expected = reference_outputs(case)
    (tmp_path / "case.tflite").write_bytes(model_of(case))
    for chip in ("bm1684", "bm1686"):
        converted = tc.convert(tmp_path / "case.tflite", chip=chip)
        is_warned = any(note.kind == "deviation" for note in converted.notes)
        feeds = dict(zip((port.name for port in converted.graph.input_ports), _arrays(case), strict=True))
        for backend in BACKENDS:
            with tc.Session(converted, backend=backend) as session:  # type: ignore[arg-type]  # a parameter
                for found, wanted in zip(session.run(feeds).values(), expected, strict=True):
                    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
                    if not is_warned:
                        np.testing.assert_allclose(found, wanted, rtol=case.atol if found.dtype.kind == "f" else 0)


def _arrays(case: Case) -> list[Array]:
    return [operand.array for operand in case.inputs if isinstance(operand, Given)]
