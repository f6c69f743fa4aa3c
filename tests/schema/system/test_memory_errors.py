"""Models that need more memory than there is: one error that names the file, of the Python API too."""

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.schema.system.memory_errors import MemoryErrors


def expansion(path, size):
    """Write a model that expands its input to a vector."""
    nodes = [helper.make_node("Expand", ["x", "shape"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])]
    constants = [numpy_helper.from_array(np.array([size]), "shape")]
    model = helper.make_model(helper.make_graph(nodes, "net", inputs, outputs, constants))
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.parametrize("backend", sampled(["reference", "auto"], every=2))
def test_a_result_that_is_larger_than_the_memory(tmp_path, backend):
    """An address space of 64 GiB represents the memory, since Linux may promise more than there is."""
    path = expansion(tmp_path / "wide.onnx", 2**36)
    program = f"""
import resource, numpy as np, tpuconvert as tc
resource.setrlimit(resource.RLIMIT_AS, (2**36, 2**36))
try:
    with tc.limited(run_bytes=2**40), tc.Session(tc.convert({str(path)!r}), backend={backend!r}) as session:
        session.run({{"x": np.ones(1, np.float32)}})
except tc.ResourceLimitError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert found.startswith("wide.onnx: ")
    assert "running the model needs more memory than there is" in found
    assert "smaller batch" in found


def test_other_errors_pass():
    with pytest.raises(KeyError), MemoryErrors("running the model"):
        raise KeyError("x")


def test_a_conversion_without_memory(tmp_path, monkeypatch):
    def load(*arguments):
        raise MemoryError

    monkeypatch.setattr("tpuconvert.conversion.conversion.load_source", load)
    path = expansion(tmp_path / "small.onnx", 4)
    with pytest.raises(tc.ResourceLimitError, match="the conversion needs more memory"):
        tc.convert(path)
