"""Writes ``digits.tflite`` from ``weights.npz``: ``python write_tflite.py``.

NHWC, with batch norm folded into the weights and ReLU fused into the operator before it, as converters to TFLite do.
"""

from collections.abc import Callable, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite
from digits_network import (
    CLASSES,
    CONV1,
    CONV2,
    DEPTHWISE,
    FC_INPUTS,
    IMAGE_SIZE,
    POINTWISE,
    POOLED_SIZE,
    WEIGHTS_FILE,
    Array,
    ConvLayer,
    Weights,
    fold_batch_norm,
    load_weights,
)

SCHEMA_VERSION = 3
FILE_IDENTIFIER = b"TFL3"
BUFFER_ALIGNMENT = 16  # bytes; force_align of Buffer.data in the schema

RELU = tflite.ActivationFunctionType.RELU
NO_ACTIVATION = tflite.ActivationFunctionType.NONE
OPTIONS = tflite.BuiltinOptions


class TfliteWriter:
    """Writer of one subgraph. FlatBuffers are built back to front, so that children are added before parents."""

    def __init__(self) -> None:
        self.builder: Any = flatbuffers.Builder(1 << 16)
        self.buffers: list[int] = [self._buffer(None)]  # buffer 0 is empty by convention
        self.tensors: list[int] = []
        self.operator_codes: list[int] = []
        self.operators: list[int] = []

    def _vector(self, start: Callable[[Any, int], Any], offsets: Sequence[int]) -> int:
        start(self.builder, len(offsets))
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def _int32_vector(self, values: Sequence[int]) -> int:
        return int(self.builder.CreateNumpyVector(np.asarray(values, "<i4")))

    def _buffer(self, content: Array | None) -> int:
        data = None
        if content is not None:
            raw = content.tobytes()
            self.builder.StartVector(1, len(raw), BUFFER_ALIGNMENT)
            self.builder.head -= len(raw)
            self.builder.Bytes[self.builder.head : self.builder.head + len(raw)] = raw
            data = self.builder.EndVector()
        tflite.BufferStart(self.builder)
        if data is not None:
            tflite.BufferAddData(self.builder, data)
        return int(tflite.BufferEnd(self.builder))

    def tensor(self, name: str, shape: Sequence[int], content: Array | None = None) -> int:
        """Adds a tensor, FLOAT32 unless ``content`` is int32; returns its index."""
        buffer = 0
        kind = tflite.TensorType.FLOAT32
        if content is not None:
            is_integer = content.dtype.kind == "i"
            kind = tflite.TensorType.INT32 if is_integer else tflite.TensorType.FLOAT32
            buffer = len(self.buffers)
            self.buffers.append(self._buffer(content.astype("<i4" if is_integer else "<f4")))
        shape_offset = self._int32_vector(shape)
        name_offset = self.builder.CreateString(name)
        tflite.TensorStart(self.builder)
        tflite.TensorAddShape(self.builder, shape_offset)
        tflite.TensorAddType(self.builder, kind)
        tflite.TensorAddBuffer(self.builder, buffer)
        tflite.TensorAddName(self.builder, name_offset)
        self.tensors.append(int(tflite.TensorEnd(self.builder)))
        return len(self.tensors) - 1

    def constant(self, name: str, content: Array) -> int:
        """Adds a tensor with data; returns its index."""
        return self.tensor(name, content.shape, content)

    def _operator_code(self, code: int) -> int:
        if code not in self.operator_codes:
            self.operator_codes.append(code)
        return self.operator_codes.index(code)

    def operator(self, code: int, inputs: Sequence[int], output: int, kind: int, options: int) -> int:
        """Adds an operator with one output, whose index it returns; ``options`` is a table of type ``kind``."""
        inputs_offset, outputs_offset = self._int32_vector(inputs), self._int32_vector([output])
        tflite.OperatorStart(self.builder)
        tflite.OperatorAddOpcodeIndex(self.builder, self._operator_code(code))
        tflite.OperatorAddInputs(self.builder, inputs_offset)
        tflite.OperatorAddOutputs(self.builder, outputs_offset)
        tflite.OperatorAddBuiltinOptionsType(self.builder, kind)
        tflite.OperatorAddBuiltinOptions(self.builder, options)
        self.operators.append(int(tflite.OperatorEnd(self.builder)))
        return output

    def _operator_code_table(self, code: int) -> int:
        tflite.OperatorCodeStart(self.builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(self.builder, code)  # all codes used here are below 127
        tflite.OperatorCodeAddBuiltinCode(self.builder, code)
        tflite.OperatorCodeAddVersion(self.builder, 1)
        return int(tflite.OperatorCodeEnd(self.builder))

    def finish(self, x: int, y: int) -> bytes:
        """Finishes the subgraph with input tensor ``x`` and output tensor ``y``. Returns the file content."""
        builder = self.builder
        tensors = self._vector(tflite.SubGraphStartTensorsVector, self.tensors)
        operators = self._vector(tflite.SubGraphStartOperatorsVector, self.operators)
        inputs, outputs = self._int32_vector([x]), self._int32_vector([y])
        name = builder.CreateString("digits")
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, tensors)
        tflite.SubGraphAddInputs(builder, inputs)
        tflite.SubGraphAddOutputs(builder, outputs)
        tflite.SubGraphAddOperators(builder, operators)
        tflite.SubGraphAddName(builder, name)
        subgraphs = self._vector(tflite.ModelStartSubgraphsVector, [int(tflite.SubGraphEnd(builder))])
        code_tables = [self._operator_code_table(code) for code in self.operator_codes]
        codes = self._vector(tflite.ModelStartOperatorCodesVector, code_tables)
        buffers = self._vector(tflite.ModelStartBuffersVector, self.buffers)
        description = builder.CreateString("tpuconvert example digits")
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, SCHEMA_VERSION)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, subgraphs)
        tflite.ModelAddDescription(builder, description)
        tflite.ModelAddBuffers(builder, buffers)
        builder.Finish(tflite.ModelEnd(builder), file_identifier=FILE_IDENTIFIER)
        return bytes(builder.Output())


def conv(writer: TfliteWriter, weights: Weights, layer: ConvLayer, x: int, activation: int) -> int:
    """Adds a convolution with folded batch norm: CONV_2D, or DEPTHWISE_CONV_2D for one input channel per group."""
    weight, bias = fold_batch_norm(weights, layer)
    is_depthwise = layer.groups > 1
    order = (1, 2, 3, 0) if is_depthwise else (0, 2, 3, 1)  # OIHW to 1HWO and to OHWI
    w = writer.constant(f"{layer.name}/weight", weight.transpose(order))
    b = writer.constant(f"{layer.name}/bias", bias)
    suffix = "relu" if activation == RELU else "bn"
    y = writer.tensor(f"{layer.name}/{suffix}", (1, IMAGE_SIZE, IMAGE_SIZE, layer.out_channels))
    builder = writer.builder
    if is_depthwise:
        tflite.DepthwiseConv2DOptionsStart(builder)
        tflite.DepthwiseConv2DOptionsAddPadding(builder, tflite.Padding.SAME)
        tflite.DepthwiseConv2DOptionsAddStrideW(builder, 1)
        tflite.DepthwiseConv2DOptionsAddStrideH(builder, 1)
        tflite.DepthwiseConv2DOptionsAddDepthMultiplier(builder, 1)
        tflite.DepthwiseConv2DOptionsAddFusedActivationFunction(builder, activation)
        options = tflite.DepthwiseConv2DOptionsEnd(builder)
        code, kind = tflite.BuiltinOperator.DEPTHWISE_CONV_2D, OPTIONS.DepthwiseConv2DOptions
    else:
        tflite.Conv2DOptionsStart(builder)
        tflite.Conv2DOptionsAddPadding(builder, tflite.Padding.SAME)
        tflite.Conv2DOptionsAddStrideW(builder, 1)
        tflite.Conv2DOptionsAddStrideH(builder, 1)
        tflite.Conv2DOptionsAddFusedActivationFunction(builder, activation)
        options = tflite.Conv2DOptionsEnd(builder)
        code, kind = tflite.BuiltinOperator.CONV_2D, OPTIONS.Conv2DOptions
    return writer.operator(code, [x, w, b], y, kind, options)


def add_relu(writer: TfliteWriter, a: int, b: int) -> int:
    """Adds the sum of two tensors with its fused relu."""
    y = writer.tensor("add/relu", (1, IMAGE_SIZE, IMAGE_SIZE, POINTWISE.out_channels))
    tflite.AddOptionsStart(writer.builder)
    tflite.AddOptionsAddFusedActivationFunction(writer.builder, RELU)
    options = tflite.AddOptionsEnd(writer.builder)
    return writer.operator(tflite.BuiltinOperator.ADD, [a, b], y, OPTIONS.AddOptions, options)


def max_pool(writer: TfliteWriter, x: int) -> int:
    """Adds the 2x2 pooling."""
    builder = writer.builder
    y = writer.tensor("pool", (1, POOLED_SIZE, POOLED_SIZE, CONV2.out_channels))
    tflite.Pool2DOptionsStart(builder)
    tflite.Pool2DOptionsAddPadding(builder, tflite.Padding.VALID)
    tflite.Pool2DOptionsAddStrideW(builder, 2)
    tflite.Pool2DOptionsAddStrideH(builder, 2)
    tflite.Pool2DOptionsAddFilterWidth(builder, 2)
    tflite.Pool2DOptionsAddFilterHeight(builder, 2)
    options = tflite.Pool2DOptionsEnd(builder)
    return writer.operator(tflite.BuiltinOperator.MAX_POOL_2D, [x], y, OPTIONS.Pool2DOptions, options)


def flatten(writer: TfliteWriter, x: int) -> int:
    """Adds the reshape to one row, in NHWC order."""
    shape = writer.constant("flatten/shape", np.array([1, FC_INPUTS], np.int32))
    y = writer.tensor("flatten", (1, FC_INPUTS))
    new_shape = writer.builder.CreateNumpyVector(np.array([1, FC_INPUTS], "<i4"))
    tflite.ReshapeOptionsStart(writer.builder)
    tflite.ReshapeOptionsAddNewShape(writer.builder, new_shape)
    options = tflite.ReshapeOptionsEnd(writer.builder)
    return writer.operator(tflite.BuiltinOperator.RESHAPE, [x, shape], y, OPTIONS.ReshapeOptions, options)


def fully_connected(writer: TfliteWriter, weights: Weights, x: int) -> int:
    """Adds the classifier. Its weights are reordered, because the pooled values are in NHWC order here."""
    nchw = weights["fc/weight"].reshape(CLASSES, CONV2.out_channels, POOLED_SIZE, POOLED_SIZE)
    w = writer.constant("fc/weight", nchw.transpose(0, 2, 3, 1).reshape(CLASSES, FC_INPUTS))
    b = writer.constant("fc/bias", weights["fc/bias"])
    y = writer.tensor("fc", (1, CLASSES))
    tflite.FullyConnectedOptionsStart(writer.builder)
    tflite.FullyConnectedOptionsAddFusedActivationFunction(writer.builder, NO_ACTIVATION)
    options = tflite.FullyConnectedOptionsEnd(writer.builder)
    kind = OPTIONS.FullyConnectedOptions
    return writer.operator(tflite.BuiltinOperator.FULLY_CONNECTED, [x, w, b], y, kind, options)


def softmax(writer: TfliteWriter, x: int) -> int:
    """Adds the softmax."""
    y = writer.tensor("probability", (1, CLASSES))
    tflite.SoftmaxOptionsStart(writer.builder)
    tflite.SoftmaxOptionsAddBeta(writer.builder, 1.0)
    options = tflite.SoftmaxOptionsEnd(writer.builder)
    return writer.operator(tflite.BuiltinOperator.SOFTMAX, [x], y, OPTIONS.SoftmaxOptions, options)


def build(weights: Weights) -> bytes:
    """Builds the model file. Equal weights give equal bytes."""
    writer = TfliteWriter()
    x = writer.tensor("image", (1, IMAGE_SIZE, IMAGE_SIZE, CONV1.in_channels))
    first = conv(writer, weights, CONV1, x, RELU)
    spatial = conv(writer, weights, DEPTHWISE, first, RELU)
    joined = add_relu(writer, conv(writer, weights, POINTWISE, spatial, NO_ACTIVATION), first)
    pooled = max_pool(writer, conv(writer, weights, CONV2, joined, RELU))
    y = softmax(writer, fully_connected(writer, weights, flatten(writer, pooled)))
    return writer.finish(x, y)


if __name__ == "__main__":
    WEIGHTS_FILE.with_name("digits.tflite").write_bytes(build(load_weights()))
