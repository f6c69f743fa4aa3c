"""TFLite files for LiteRT's quantizer."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.tflite.models import O, S, Sparsity, T, serialize
from tools.bench.litert_quantizer import prepare_file

interpreters = pytest.importorskip("ai_edge_litert.interpreter")


def test_stored_weights_are_constants(tmp_path: Path) -> None:
    """Sparse FLOAT16 weights [[0.5, 0], [0, 2]]: one segment per row, with the columns of its elements."""
    sparsity = Sparsity([0, 1], [], [2, 0], [None, ([0, 1, 2], [0, 1])])
    stored = T("stored", (2, 2), "FLOAT16", raw=np.array([0.5, 2], np.float16).tobytes(), sparsity=sparsity)
    tensors = [stored, T("half", (2, 2), "FLOAT16"), T("w", (2, 2)), T("x", (1, 2)), T("y", (1, 2))]
    operators = [
        O("DENSIFY", [0], [1], "DensifyOptions"),
        O("DEQUANTIZE", [1], [2]),
        O("FULLY_CONNECTED", [3, 2, -1], [4], "FullyConnectedOptions"),
    ]
    path = tmp_path / "net.tflite"
    path.write_bytes(serialize(S(tensors, operators, [3], [4])))
    content, name = prepare_file(path)
    interpreter = interpreters.Interpreter(model_content=content)
    assert [each["op_name"] for each in interpreter._get_ops_details()] == ["FULLY_CONNECTED"]
    runner = interpreter.get_signature_runner("serving_default")
    assert runner(**{name: np.array([[4, 3]], np.float32)})["output_0"].tolist() == [[2, 6]]
