"""Writer of TFLite files with one subgraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import tflite

from tpuconvert.schema.types import Array

_FILE_VERSION = 3
_IDENTIFIER = b"TFL3"
_WIDEST_OLD_CODE = 127
"""Largest operator code that also fits the old byte field, which interpreters before 2020 read."""

_TYPES = {"int8": tflite.TensorType.INT8, "int32": tflite.TensorType.INT32, "float32": tflite.TensorType.FLOAT32}


@dataclass
class TfliteTensor:
    """One tensor; a constant if it has ``data``. Several scales are per channel along ``axis``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Array | None = None
    scales: Sequence[float] = ()
    zero_point: int = 0
    axis: int = 0


@dataclass
class TfliteOperator:
    """One operator: indices of its tensors, and its options, named as in the schema."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    table: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1


class TfliteFile:
    """Collects tensors and operators, then writes them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensors: list[TfliteTensor] = []
        self.operators: list[TfliteOperator] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self._builder = flatbuffers.Builder(1 << 20)

    def tensor(self, tensor: TfliteTensor) -> int:
        """Add a tensor and return its index."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def write(self, path: Path) -> None:
        """Write the file."""
        builder = self._builder
        buffers = self._offsets([self._buffer(None), *(self._buffer(tensor.data) for tensor in self.tensors)])
        tensors = self._offsets([self._tensor(index + 1, tensor) for index, tensor in enumerate(self.tensors)])
        kinds = sorted({(operator.name, operator.version) for operator in self.operators})
        operators = self._offsets(
            [self._operator(kinds.index((each.name, each.version)), each) for each in self.operators]
        )
        inputs, outputs, name = self._numbers(self.inputs), self._numbers(self.outputs), builder.CreateString(self.name)
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, tensors)
        tflite.SubGraphAddInputs(builder, inputs)
        tflite.SubGraphAddOutputs(builder, outputs)
        tflite.SubGraphAddOperators(builder, operators)
        tflite.SubGraphAddName(builder, name)
        subgraphs = self._offsets([tflite.SubGraphEnd(builder)])
        codes = self._offsets([self._code(*kind) for kind in kinds])
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, _FILE_VERSION)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, subgraphs)
        tflite.ModelAddBuffers(builder, buffers)
        builder.Finish(tflite.ModelEnd(builder), _IDENTIFIER)
        path.write_bytes(bytes(builder.Output()))

    def _offsets(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def _numbers(self, numbers: Sequence[float], dtype: str = "int32") -> int:
        return int(self._builder.CreateNumpyVector(np.asarray(numbers, dtype)))

    def _buffer(self, data: Array | None) -> int:
        content = 0
        if data is not None:
            raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self._builder.Prep(16, len(raw) + 4)  # alignment for every element type
            content = self._builder.CreateNumpyVector(raw)
        tflite.BufferStart(self._builder)
        if content:
            tflite.BufferAddData(self._builder, content)
        return int(tflite.BufferEnd(self._builder))

    def _tensor(self, buffer: int, tensor: TfliteTensor) -> int:
        builder = self._builder
        shape, name, quantization = self._numbers(tensor.shape), builder.CreateString(tensor.name), 0
        if tensor.scales:
            scales = self._numbers(tensor.scales, "float32")
            zero_points = self._numbers([tensor.zero_point] * len(tensor.scales), "int64")
            tflite.QuantizationParametersStart(builder)
            tflite.QuantizationParametersAddScale(builder, scales)
            tflite.QuantizationParametersAddZeroPoint(builder, zero_points)
            tflite.QuantizationParametersAddQuantizedDimension(builder, tensor.axis)
            quantization = tflite.QuantizationParametersEnd(builder)
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, shape)
        tflite.TensorAddType(builder, _TYPES[tensor.dtype])
        tflite.TensorAddBuffer(builder, buffer)
        tflite.TensorAddName(builder, name)
        if quantization:
            tflite.TensorAddQuantization(builder, quantization)
        return int(tflite.TensorEnd(builder))

    def _operator(self, code: int, operator: TfliteOperator) -> int:
        builder, table = self._builder, 0
        inputs, outputs = self._numbers(operator.inputs), self._numbers(operator.outputs)
        if operator.table:
            stored = {
                key: self._numbers(value) if isinstance(value, tuple) else value
                for key, value in operator.options.items()
            }
            getattr(tflite, f"{operator.table}Start")(builder)
            for key, value in stored.items():
                getattr(tflite, f"{operator.table}Add{key}")(builder, value)
            table = getattr(tflite, f"{operator.table}End")(builder)
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, code)
        tflite.OperatorAddInputs(builder, inputs)
        tflite.OperatorAddOutputs(builder, outputs)
        if table:
            tflite.OperatorAddBuiltinOptionsType(builder, getattr(tflite.BuiltinOptions, operator.table))
            tflite.OperatorAddBuiltinOptions(builder, table)
        return int(tflite.OperatorEnd(builder))

    def _code(self, name: str, version: int) -> int:
        number = getattr(tflite.BuiltinOperator, name)
        tflite.OperatorCodeStart(self._builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(self._builder, min(number, _WIDEST_OLD_CODE))
        tflite.OperatorCodeAddBuiltinCode(self._builder, number)
        tflite.OperatorCodeAddVersion(self._builder, version)
        return int(tflite.OperatorCodeEnd(self._builder))
