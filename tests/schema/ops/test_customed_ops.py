"""``customed_ops`` runs the function that is registered for its number."""

import numpy as np
import pytest

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file.file_format import FileModel, read_model, write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.customed_ops import CustomedOps, customed_function
from tpuconvert.schema.types import F32, Chip, TensorType

NUMBER = 4711


class Halves:
    """The first ``param[0]`` elements, and the remaining ones."""

    def infer(self, param, x):
        (extent,) = x.shape
        return TensorType(x.dtype, (param[0],)), TensorType(x.dtype, (extent - param[0],))

    def compute(self, param, x):
        return x[: param[0]], x[param[0] :]


customed_function(NUMBER)(Halves())


def test_the_registered_function_runs(tmp_path):
    graph = Graph("custom", "custom.onnx")
    op = CustomedOps(NUMBER, b"\x02\x00\xff")
    first, second = graph.add_all(op, graph.input("x", TensorType(F32, (5,))))
    graph.output(first)
    graph.output(second)
    assert (first.shape, second.shape) == ((2,), (3,))
    write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1684, "none"))
    (node,) = read_model(tmp_path / "m.tpum").graph.nodes
    assert node.op == op
    low, high = node.op.evaluate(np.arange(5, dtype=np.float32))
    assert (low.tolist(), high.tolist()) == ([0, 1], [2, 3, 4])


def test_a_number_without_function():
    op = CustomedOps(1)
    with pytest.raises(UsageError, match="no function is registered for op_type 1"):
        op.infer(TensorType(F32, (1,)))
    with pytest.raises(UsageError, match="no function"):
        op.evaluate(np.zeros(1, np.float32))


def test_a_number_is_registered_once():
    with pytest.raises(UsageError, match="registered twice"):
        customed_function(NUMBER)(Halves())


def test_the_size_of_the_block():
    assert CustomedOps(1, b"abc", 3).param_size == 3
    with pytest.raises(ValueError, match="param_size is 2, param has 3 bytes"):
        CustomedOps(1, b"abc", 2)
