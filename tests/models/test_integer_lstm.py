"""lstm_int is the integer LSTM of TFLite: equal outputs and states for the layer of a trained model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.accuracy.datasets import entries, model_files
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.ops.recurrent.recurrent_int import SUM_BITS, LstmInt
from tpuconvert.schema.types import Array

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

GATES = (0, 3, 1, 2)
"""TFLite's gates (input, forget, cell, output) in the order of lstm_int: input, output, forget, cell."""


def factors(scales: list[float], unit: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Multipliers and shifts from a scale to the sums, with the float32 arithmetic of TFLite."""
    pairs = [
        multiplier_shift(float(np.float32(scale) * np.float32(unit) * np.float32(2.0**SUM_BITS))) for scale in scales
    ]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


class Layer:
    """The LSTM of a TFLite file, run by the reference kernels of LiteRT."""

    def __init__(self, path: Path) -> None:
        kernels = interpreter.OpResolverType.BUILTIN_REF
        self.lite = interpreter.Interpreter(
            str(path), experimental_op_resolver_type=kernels, experimental_preserve_all_tensors=True
        )
        self.lite.allocate_tensors()
        (node,) = (item for item in self.lite._get_ops_details() if item["op_name"] == "UNIDIRECTIONAL_SEQUENCE_LSTM")
        self.inputs, (self.output,) = node["inputs"], node["outputs"]
        self.tensors = {item["index"]: item for item in self.lite.get_tensor_details()}

    def scale(self, tensor: int) -> float:
        return float(self.tensors[tensor]["quantization_parameters"]["scales"][0])

    def zero(self, tensor: int) -> int:
        return int(self.tensors[tensor]["quantization_parameters"]["zero_points"][0])

    def run(self, x: Array) -> tuple[Array, Array, Array]:
        """Return the outputs of all steps, and both states after the last one."""
        self.lite.reset_all_variables()
        self.lite.set_tensor(self.inputs[0], x)
        self.lite.invoke()
        y, hidden, cell = (np.array(self.lite.get_tensor(index)) for index in (self.output, *self.inputs[18:20]))
        return y, hidden, cell

    def constants(self, first: int) -> Array:
        return np.concatenate([self.lite.get_tensor(self.inputs[first + gate]) for gate in GATES])

    def scales(self, first: int) -> list[float]:
        units = len(self.lite.get_tensor(self.inputs[first]))
        return [scale for gate in GATES for scale in [self.scale(self.inputs[first + gate])] * units]

    def operator(self) -> tuple[LstmInt, list[Array]]:
        x, hidden, cell = (self.inputs[index] for index in (0, 18, 19))
        fields: dict[str, Any] = {"x_zero": self.zero(x), "y_zero": self.zero(self.output)}
        fields["input_multipliers"], fields["input_shifts"] = factors(self.scales(1), self.scale(x))
        fields["recurrent_multipliers"], fields["recurrent_shifts"] = factors(self.scales(5), self.scale(hidden))
        multiplier, shift = multiplier_shift(float(np.float32(2.0**-30 / self.scale(self.output))))
        bits = 15 + round(math.log2(self.scale(cell)))
        biases = self.constants(12)
        operands = [self.constants(1)[None], self.constants(5)[None], np.concatenate([biases, 0 * biases])[None]]
        fields |= {"y_multiplier": multiplier, "y_shift": shift, "cell_bits": bits}
        return LstmInt(**fields, cell_limit=32767), operands  # the file clips cells to 10, beyond the range of 8


def test_equals_the_reference_kernel_of_tflite(data_root: Path) -> None:
    layer = Layer(model_files(data_root, entries(data_root)["mnist_lstm_int8_tflite"])[0])
    op, operands = layer.operator()
    shape = tuple(layer.tensors[layer.inputs[0]]["shape"])
    rng = np.random.default_rng(0)
    for high in (-100, 0, 127):
        x = rng.integers(-128, high, shape, np.int8, endpoint=True)
        want, hidden, cell = layer.run(x)
        y, last_hidden, last_cell = op.evaluate(np.ascontiguousarray(x.transpose(1, 0, 2)), *operands)
        assert len(np.unique(want)) > 20
        np.testing.assert_array_equal(y[:, 0].transpose(1, 0, 2), want)
        np.testing.assert_array_equal(last_hidden[0], hidden)
        np.testing.assert_array_equal(last_cell[0], cell)
