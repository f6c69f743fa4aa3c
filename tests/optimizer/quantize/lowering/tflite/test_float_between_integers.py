"""Between DEQUANTIZE and QUANTIZE everything is computed in float and rounded once, as by the reference kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tests.support.tflite.cases import f32, i32
from tests.support.tflite.models import O, S, T, serialize
from tests.support.tflite.reference import reference_runner, run_interpreter

SHAPE = (1, 4, 16, 4)
POOL = {"stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}
Step = tuple[str, Any, tuple[int, ...], str, dict[str, Any]]
RELU: Step = ("RELU", [], SHAPE, "", {})
ROWS: Step = ("RESHAPE", [i32([4, 64])], (4, 64), "ReshapeOptions", {})
MIDDLES: dict[str, list[Step]] = {
    "nothing": [],
    "relu": [RELU],
    "reshape": [ROWS],
    "slice": [("SLICE", [i32([0, 1, 0, 0]), i32([1, 2, 16, 4])], (1, 2, 16, 4), "SliceOptions", {})],
    "pad": [("PAD", [i32([[0, 0], [1, 1], [0, 0], [0, 0]])], (1, 6, 16, 4), "", {})],
    "add itself": [("ADD", "itself", SHAPE, "AddOptions", {})],
    "multiply itself": [("MUL", "itself", SHAPE, "MulOptions", {})],
    "concat itself": [("CONCATENATION", "itself", (1, 4, 16, 8), "ConcatenationOptions", {"axis": 3})],
    "multiply": [("MUL", [f32(3)], SHAPE, "MulOptions", {})],
    "add": [("ADD", [f32([0.1, 0.2, -0.3, 0.4])], SHAPE, "AddOptions", {})],
    "pool": [("MAX_POOL_2D", [], (1, 2, 8, 4), "Pool2DOptions", POOL)],
    "leaky relu": [("LEAKY_RELU", [], SHAPE, "LeakyReluOptions", {"alpha": 0.1})],
    "transpose and back": [
        ("TRANSPOSE", [i32([0, 3, 1, 2])], (1, 4, 4, 16), "", {}),
        ("TRANSPOSE", [i32([0, 2, 3, 1])], SHAPE, "", {}),
    ],
    "clamps around a reshape": [RELU, ROWS, ("RELU6", [], (4, 64), "", {})],
}


def model_of(dtype: str, steps: list[Step], before: str, after: str, seed: int) -> S:
    """DEQUANTIZE, the steps, QUANTIZE; ``before`` and ``after`` are quantized neighbors."""
    g = np.random.default_rng(seed)
    zeros = {"INT8": (-20, 20), "UINT8": (100, 160), "INT16": (0, 1)}[dtype]
    first = float(np.float32(g.uniform(0.01, 0.05) * (0.01 if dtype == "INT16" else 1)))
    scales = first, float(np.float32(first * g.uniform(0.3, 3)))
    points = [int(g.integers(*zeros)) for _ in range(2)]
    tensors: list[T] = []
    operators: list[O] = []

    def add(name: str, inputs: list[int], shape: tuple[int, ...], kind: str, table: str = "", **options: Any) -> int:
        number = int(bool(operators))
        quant = ((scales[number],), (points[number],)) if kind != "FLOAT32" else ((), ())
        tensors.append(T(f"t{len(tensors)}", shape, kind, None, *quant))
        version = {"DEQUANTIZE": 3 if dtype == "INT16" else 2}.get(name, 1)
        operators.append(O(name, inputs, [len(tensors) - 1], table, options, version))
        return len(tensors) - 1

    def constant(array: Any) -> int:
        tensors.append(T(f"t{len(tensors)}", data=array))
        return len(tensors) - 1

    tensors.append(T("x", (4, 64) if before else SHAPE, dtype, None, (scales[0],), (points[0],)))
    last = 0
    if before:
        shape = constant(i32(SHAPE))
        tensors.append(T("r", SHAPE, dtype, None, (scales[0],), (points[0],)))
        operators.append(O("RESHAPE", [0, shape], [len(tensors) - 1], "ReshapeOptions", {}))
        last = len(tensors) - 1
    last = add("DEQUANTIZE", [last], SHAPE, "FLOAT32", "DequantizeOptions")
    result: tuple[int, ...] = SHAPE
    for name, constants, result, table, options in steps:
        inputs = [last, last] if constants == "itself" else [last, *map(constant, constants)]
        last = add(name, inputs, result, "FLOAT32", table, **options)
    last = add("QUANTIZE", [last], result, dtype, "QuantizeOptions")
    if after:
        last = add("RELU", [last], result, dtype)
    return S(tensors, operators, [0], [last])


def _cases() -> list[Any]:
    """Every combination; the ordinary run has one type per operator, with and without neighbors in turns."""
    types = ("INT8", "INT16", "UINT8")
    return [
        pytest.param(
            dtype,
            name,
            neighbor,
            id=f"{name}-{dtype}-{neighbor}",
            marks=() if (number + column + row) % 6 == 0 else (pytest.mark.slow,),
        )
        for number, name in enumerate(MIDDLES)
        for column, dtype in enumerate(types)
        for row, neighbor in ((0, ""), (3, "both"))
    ]


@pytest.mark.parametrize(("dtype", "name", "neighbor"), sampled(_cases(), every=3))
def test_equals_the_reference_kernels(dtype: str, name: str, neighbor: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    model = serialize(model_of(dtype, MIDDLES[name], neighbor, neighbor, seed=len(name)))
    (tmp_path / "model.tflite").write_bytes(model)
    interpreter = reference_runner(model)
    (detail,) = interpreter.get_input_details()
    limits = np.iinfo(detail["dtype"])
    shape = detail["shape"]
    data = np.random.default_rng(1).integers(limits.min, limits.max + 1, shape).astype(detail["dtype"])
    (want,) = run_interpreter(interpreter, [data])
    with tc.Session(tc.convert(tmp_path / "model.tflite")) as session:
        (found,) = session.run({session.inputs[0].name: data}).values()
    np.testing.assert_array_equal(found, want)
