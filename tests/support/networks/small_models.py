"""Small models that tests build by hand."""

from pathlib import Path

import numpy as np

from tpuconvert.model.model import Model
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.types import Chip, DType, TensorType

SHAPE = (1, 4)


def scaled_and_shifted(scale: float = 2.0, shift: float = 1.0, name: str = "small") -> Graph:
    """``y = x * scale + shift``; the intermediate value is called ``product``."""
    g = Graph(name, file=f"{name}.onnx")
    x = g.input("x", TensorType(DType.FLOAT32, SHAPE))
    with g.source(Source(g.file, "mul_0", "Mul")):
        product = g.add(Mul(), x, g.constant(np.full(SHAPE, scale, np.float32), "scale"), name="product")
    with g.source(Source(g.file, "add_0", "Add")):
        y = g.add(Add(), product, g.constant(np.full(SHAPE, shift, np.float32), "shift"), name="y")
    g.output(y)
    return g


def model_of(graph: Graph, **fields: object) -> Model:
    """Build a float model for BM1686 from a graph."""
    return Model(FileModel(graph, Chip.BM1686, "0.0.0", **fields))  # type: ignore[arg-type]  # fields by name


def two_inputs() -> Model:
    """Graph of ``y = a + b``."""
    g = Graph("two", file="two.onnx")
    a, b = (g.input(name, TensorType(DType.FLOAT32, SHAPE)) for name in "ab")
    g.output(g.add(Add(), a, b, name="y"))
    return model_of(g)


def examples() -> Path:
    """The folder of the bundled example."""
    return Path(__file__).resolve().parents[3] / "examples" / "digits"
