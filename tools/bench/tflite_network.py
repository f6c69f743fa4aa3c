"""Converter from a quantized ONNX network to a TFLite file with the same integers, for LiteRT.

Images are stored channels-last, as in TFLite. A transpose is free: every value records the source axis of each of its
stored axes, and is permuted only if an operator requires another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tflite

from tools.bench.qdq import QdqNetwork, QdqNode, read_qdq
from tools.bench.tflite_file import TfliteFile, TfliteOperator, TfliteTensor
from tools.bench.tflite_ranges import Range, ranges
from tpuconvert.schema.types import Array

CHANNELS_LAST = (0, 2, 3, 1)


class UnsupportedNetworkError(Exception):
    """The network has an operator or attribute that this converter does not support."""


@dataclass(frozen=True)
class Placed:
    """A value in the file: index of its tensor, and the source axis of each stored axis."""

    index: int
    axes: tuple[int, ...]


class _Writer:
    def __init__(self, network: QdqNetwork, name: str) -> None:
        unknown = sorted({node.kind for node in network.nodes} - set(self._converters()))
        if unknown:
            raise UnsupportedNetworkError(f"no writer for {', '.join(unknown)}")
        self._network = network
        self._ranges = ranges(network)
        self._file = TfliteFile(name)
        self._placed: dict[str, Placed] = {}

    def file(self) -> TfliteFile:
        for name in self._network.inputs:
            rank = len(self._network.shapes[name])
            self._placed[name] = self._value(name, CHANNELS_LAST if rank == 4 else tuple(range(rank)))
            self._file.inputs.append(self._placed[name].index)
        for node in self._network.nodes:
            self._converters()[node.kind](node)
        for name in self._network.outputs:
            self._file.outputs.append(self._in_order(name, tuple(range(len(self._network.shapes[name])))))
        return self._file

    # Operators

    def _converters(self) -> Mapping[str, Callable[[QdqNode], None]]:
        return {
            "Add": lambda node: self._elementwise(node, "ADD", "AddOptions"),
            "Concat": self._concat,
            "Conv": self._convolution,
            "Flatten": self._reshape,
            "Gemm": self._product,
            "GlobalAveragePool": self._global_average,
            "MaxPool": self._pool,
            "Mul": lambda node: self._elementwise(node, "MUL", "MulOptions"),
            "Reshape": self._reshape,
            "Resize": self._resize,
            "Sigmoid": self._sigmoid,
            "Transpose": self._transpose,
        }

    def _convolution(self, node: QdqNode) -> None:
        kernel, weight = node.attributes["kernel_shape"], self._network.stored[node.inputs[1]]
        assert weight.data is not None, "weights are constants"
        outputs, inputs = weight.data.shape[:2]
        groups, strides = node.attributes.get("group", 1), node.attributes.get("strides", [1, 1])
        dilations = node.attributes.get("dilations", [1, 1])
        is_depthwise = groups == outputs and inputs == 1 and groups > 1
        if groups > 1 and not is_depthwise:
            raise UnsupportedNetworkError(f"grouped Conv '{node.outputs[0]}'")
        x, padding = self._add_padding(node, kernel, strides)
        integers = weight.data.clip(-127, 127)
        stored = integers.transpose(1, 2, 3, 0) if is_depthwise else integers.transpose(0, 2, 3, 1)
        scales = np.broadcast_to(weight.scale, (outputs,))
        w = self._constant(f"{node.outputs[0]}/weight", stored, scales, axis=3 if is_depthwise else 0)
        b = self._bias(node, scales)
        options: dict[str, Any] = {
            "Padding": padding,
            "StrideH": strides[0],
            "StrideW": strides[1],
            "DilationHFactor": dilations[0],
            "DilationWFactor": dilations[1],
        }
        y = self._result(node, CHANNELS_LAST)
        if is_depthwise:
            options["DepthMultiplier"] = 1
            self._add("DEPTHWISE_CONV_2D", [x, w, b], y, "DepthwiseConv2DOptions", options, version=3)
        else:
            self._add("CONV_2D", [x, w, b], y, "Conv2DOptions", options, version=3)

    def _product(self, node: QdqNode) -> None:
        if node.attributes.get("alpha", 1.0) != 1.0 or node.attributes.get("transA", 0):
            raise UnsupportedNetworkError(f"Gemm '{node.outputs[0]}' with alpha or transA")
        weight = self._network.stored[node.inputs[1]]
        assert weight.data is not None, "weights are constants"
        stored = weight.data if node.attributes.get("transB", 0) else weight.data.T
        scales = np.broadcast_to(weight.scale, (len(stored),))
        w = self._constant(f"{node.outputs[0]}/weight", stored.clip(-127, 127), scales, axis=0)
        b = self._bias(node, scales)
        x = self._in_order(node.inputs[0], (0, 1))
        self._add("FULLY_CONNECTED", [x, w, b], self._result(node, (0, 1)), "FullyConnectedOptions", version=5)

    def _pool(self, node: QdqNode) -> None:
        kernel, strides = node.attributes["kernel_shape"], node.attributes.get("strides", [1, 1])
        x, padding = self._add_padding(node, kernel, strides)
        options = {
            "Padding": padding,
            "StrideH": strides[0],
            "StrideW": strides[1],
            "FilterHeight": kernel[0],
            "FilterWidth": kernel[1],
        }
        self._add("MAX_POOL_2D", [x], self._result(node, CHANNELS_LAST), "Pool2DOptions", options, version=2)

    def _global_average(self, node: QdqNode) -> None:
        x = self._in_order(node.inputs[0], CHANNELS_LAST)
        axes = self._numbers(f"{node.outputs[0]}/axes", (1, 2))
        self._add("MEAN", [x, axes], self._result(node, CHANNELS_LAST), "ReducerOptions", {"KeepDims": True}, version=2)

    def _resize(self, node: QdqNode) -> None:
        if node.attributes.get("mode") != b"nearest":
            raise UnsupportedNetworkError(f"Resize '{node.outputs[0]}' that is not nearest")
        x = self._in_order(node.inputs[0], CHANNELS_LAST)
        size = self._numbers(f"{node.outputs[0]}/size", self._network.shapes[node.outputs[0]][2:])
        y = self._result(node, CHANNELS_LAST)
        self._add("RESIZE_NEAREST_NEIGHBOR", [x, size], y, "ResizeNearestNeighborOptions", version=2)

    def _elementwise(self, node: QdqNode, name: str, table: str) -> None:
        axes = self._placed[node.inputs[0]].axes
        operands = [self._in_order(operand, axes) for operand in node.inputs]
        self._add(name, operands, self._result(node, axes), table, version=2)

    def _sigmoid(self, node: QdqNode) -> None:
        x = self._placed[node.inputs[0]]
        self._add("LOGISTIC", [x.index], self._result(node, x.axes), version=2)

    def _concat(self, node: QdqNode) -> None:
        axes = self._placed[node.inputs[0]].axes
        axis = node.attributes["axis"] % len(axes)
        operands = [self._in_order(operand, axes) for operand in node.inputs]
        options = {"Axis": axes.index(axis)}
        self._add("CONCATENATION", operands, self._result(node, axes), "ConcatenationOptions", options, version=2)

    def _transpose(self, node: QdqNode) -> None:
        x, order = self._placed[node.inputs[0]], list(node.attributes["perm"])
        self._placed[node.outputs[0]] = Placed(x.index, tuple(order.index(axis) for axis in x.axes))

    def _reshape(self, node: QdqNode) -> None:
        name, before = node.inputs[0], self._network.shapes[node.inputs[0]]
        after, x = self._network.shapes[node.outputs[0]], self._placed[node.inputs[0]]
        if x.axes == CHANNELS_LAST and len(after) == 5 and (after[0], *after[3:]) == (before[0], *before[2:]):
            # The reshape splits only the channels, which are the last stored axis, so that no transpose is needed.
            axes: tuple[int, ...] = (0, 3, 4, 1, 2)
            source = x.index
        else:
            axes, source = tuple(range(len(after))), self._in_order(name, tuple(range(len(before))))
        shape = tuple(after[axis] for axis in axes)
        target = self._numbers(f"{node.outputs[0]}/shape", shape)
        y = self._result(node, axes)
        self._add("RESHAPE", [source, target], y, "ReshapeOptions", {"NewShape": shape})

    # Parts of operators

    def _add_padding(self, node: QdqNode, kernel: list[int], strides: list[int]) -> tuple[int, int]:
        """Return the operand and the padding mode of a conv or pooling. Add a Pad node if no TFLite mode fits."""
        x = self._in_order(node.inputs[0], CHANNELS_LAST)
        pads = node.attributes.get("pads", [0, 0, 0, 0])
        if not any(pads):
            return x, tflite.Padding.VALID
        size, dilations = self._network.shapes[node.inputs[0]][2:], node.attributes.get("dilations", [1, 1])
        needed = []
        for extent, window, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
            total = max((-(-extent // stride) - 1) * stride + dilation * (window - 1) + 1 - extent, 0)
            needed.append((total // 2, total - total // 2))
        if needed == [(pads[0], pads[2]), (pads[1], pads[3])]:
            return x, tflite.Padding.SAME
        if node.kind == "MaxPool" and self._ranges[node.inputs[0]].low < 0:
            raise UnsupportedNetworkError(f"MaxPool '{node.outputs[0]}' with padding that is not the smallest value")
        n, height, width, c = self._file.tensors[x].shape
        shape = (n, height + pads[0] + pads[2], width + pads[1] + pads[3], c)
        pads_array = np.array([[0, 0], [pads[0], pads[2]], [pads[1], pads[3]], [0, 0]], np.int32)
        around = self._file.tensor(TfliteTensor(f"{node.outputs[0]}/pads", "int32", (4, 2), pads_array))
        wide = self._activation(f"{node.outputs[0]}/padded", shape, self._ranges[node.inputs[0]])
        self._add("PAD", [x, around], wide, "PadOptions", version=2)
        return wide, tflite.Padding.VALID

    def _bias(self, node: QdqNode, scales: Array) -> int:
        real = self._network.stored[node.inputs[2]].real if len(node.inputs) > 2 else np.zeros(len(scales))
        steps = self._ranges[node.inputs[0]].scale * scales.astype(np.float64)
        return self._constant(f"{node.outputs[0]}/bias", np.rint(real / steps).astype(np.int32), steps)

    def _in_order(self, name: str, axes: tuple[int, ...]) -> int:
        """Return the tensor of a value with its axes in this order. Add a transpose if necessary."""
        x = self._placed[name]
        shape = self._network.shapes[name]
        if [axis for axis in x.axes if shape[axis] > 1] == [axis for axis in axes if shape[axis] > 1]:
            return x.index
        order = tuple(x.axes.index(axis) for axis in axes)
        y = self._activation(f"{name}/transposed", tuple(shape[axis] for axis in axes), self._ranges[name])
        self._add("TRANSPOSE", [x.index, self._numbers(f"{name}/order", order)], y, "TransposeOptions", version=2)
        self._placed[name] = Placed(y, axes)
        return y

    # Tensors

    def _result(self, node: QdqNode, axes: tuple[int, ...]) -> int:
        placed = self._placed[node.outputs[0]] = self._value(node.outputs[0], axes)
        return placed.index

    def _value(self, name: str, axes: tuple[int, ...]) -> Placed:
        shape = tuple(self._network.shapes[name][axis] for axis in axes)
        return Placed(self._activation(name, shape, self._ranges[name]), axes)

    def _activation(self, name: str, shape: tuple[int, ...], found: Range) -> int:
        tensor = TfliteTensor(name, "int8", shape, scales=[found.scale], zero_point=found.zero_point)
        return self._file.tensor(tensor)

    def _constant(self, name: str, data: Array, scales: Array, axis: int = 0) -> int:
        return self._file.tensor(TfliteTensor(name, data.dtype.name, data.shape, data, list(scales), axis=axis))

    def _numbers(self, name: str, numbers: tuple[int, ...]) -> int:
        return self._file.tensor(TfliteTensor(name, "int32", (len(numbers),), np.array(numbers, np.int32)))

    def _add(
        self,
        name: str,
        inputs: list[int],
        output: int,
        table: str = "",
        options: Mapping[str, Any] = MappingProxyType({}),
        version: int = 1,
    ) -> None:
        self._file.operators.append(TfliteOperator(name, inputs, [output], table, options, version))


def write_tflite(source: Path, target: Path) -> None:
    """Write the TFLite file of a network that ONNX Runtime quantized.

    Raises:
        UnsupportedNetworkError: the network has an operator that this converter does not support.
    """
    _Writer(read_qdq(source), target.stem).file().write(target)
