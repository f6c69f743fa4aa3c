"""Run the integer operations of a lowered graph with NumPy, in wide integers that show where 32 bits do not suffice."""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.dialect import Line, Tensor
from tpuconvert.exporters.tpu_mlir.package import lower_graph
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array


def computed(line: Line, operands: list[Array]) -> Array:
    """Compute an operation."""
    how, x = line.attributes, operands[0]
    match line.operation:
        case "tpu.Slice":
            boxes = zip(how["offset"], how["ends"], how["steps"], strict=True)
            return x[tuple(slice(*box) for box in boxes)]
        case "tpu.Reshape":
            return x.reshape(how["shape"])
        case "tpu.MaxConst":
            return np.maximum(x, int(how["const_val"]))
        case "tpu.Gather":
            return x.take(operands[1], axis=how["axis"])
        case "tpu.Pad":
            count = x.ndim
            pairs = list(zip(how["paddings"][:count], how["paddings"][count:], strict=True))
            return np.pad(x, pairs, constant_values=int(how["val"]))
        case "tpu.Upsample":
            return x.repeat(how["scale_h"], axis=2).repeat(how["scale_w"], axis=3)
        case "tpu.Concat":
            return np.concatenate(operands, axis=how["axis"])
        case "tpu.BinaryShift":
            total = x * operands[1] if how["mode"] == "Mul" else x + operands[1]
            assert abs(total).max() < 2**31
            shift = -how["shift"]
            rounded = (total + (1 << shift >> 1)) >> shift
            return rounded if line.result.element == "si32" else rounded.clip(0, 255)
    raise AssertionError(line.operation)


def run_module(graph: Graph, chip: str, array: Array) -> Array:
    """Run the lowered graph. Its output has the type and shape of the output of the graph."""
    lowering = lower_graph(graph, TARGETS[chip], "net")
    (result,) = graph.outputs
    module, tensor = lowering.module, lowering.tensor(result)
    arrays: dict[Tensor | None, Array] = {module.inputs[0]: array.astype(np.int64)}
    for line in module.used_lines([tensor]):
        weight = module.array(line.result)
        operands = [arrays[operand] for operand in line.operands if operand is not None]
        arrays[line.result] = computed(line, operands) if weight is None else weight.astype(np.int64)
        assert arrays[line.result].shape == line.result.shape, line
    return arrays[tensor]
