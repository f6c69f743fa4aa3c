"""16-bit fixed-point functions against the kernels that compute them element by element, for every integer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.tflite.models import T, serialize, single
from tpuconvert.optimizer.quantize.lowering.tflite import tables
from tpuconvert.schema.arithmetic import short_functions
from tpuconvert.schema.types import I16, Array, QuantParams

litert = pytest.importorskip("ai_edge_litert.interpreter")

EVERY = np.arange(-(2**15), 2**15).astype(np.int16)


def kernel(operator: str, scale: float, folder: Path, resolver: str) -> Array:
    """The results of a kernel for every integer."""
    x, y = T("", (EVERY.size,), "INT16", None, (scale,), (0,)), T("", (EVERY.size,), "INT16", None, (2.0**-15,), (0,))
    file = folder / "model.tflite"
    file.write_bytes(serialize(single(operator, [x], [y])))
    kind = litert.OpResolverType[resolver]
    interpreter = litert.Interpreter(str(file), experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], EVERY)
    interpreter.invoke()
    found: Array = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return found


def test_logistic(tmp_path: Path) -> None:
    want = kernel("LOGISTIC", 2.0**-12, tmp_path, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
    np.testing.assert_array_equal(short_functions.logistic(EVERY), want)


def test_tanh(tmp_path: Path) -> None:
    want = kernel("TANH", 2.0**-12, tmp_path, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
    np.testing.assert_array_equal(short_functions.tanh(EVERY, 3), want)


@pytest.mark.parametrize("scale", [2.0**-12, 2.0**-11, 2.0**-13, 2.0**-10, 3e-4, 1e-3, 5e-5])
def test_interpolated_tables(scale: float, tmp_path: Path) -> None:
    """The reference kernels' own tables, for scales that are powers of two and for others."""
    params = QuantParams.per_tensor(float(np.float32(scale)), 0, I16)
    for operator, function in (("LOGISTIC", tables.logistic_16), ("TANH", tables.tanh_16)):
        want = kernel(operator, scale, tmp_path, "BUILTIN_REF")
        np.testing.assert_array_equal(function(params, params), want)
