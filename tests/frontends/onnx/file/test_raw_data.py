"""Large raw data leave the message, and what is read is what protobuf alone would have read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tpuconvert.frontends.onnx.file.raw_data import LEAST_BYTES, OWN_FILE, without_raw_data
from tpuconvert.frontends.onnx.file.reader import OnnxModel, read_model
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.system.limits import Limits


def model_of(*tensors: TensorProto) -> bytes:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Identity", [tensors[0].name], ["y"])]
    graph = helper.make_graph(nodes, "g", [], [output], list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def read(folder: Path, content: bytes) -> OnnxModel:
    (folder / "m.onnx").write_bytes(content)
    return read_model(folder / "m.onnx", Limits())


def arrays(model: OnnxModel) -> list[np.ndarray]:
    return [model.tensors.read(tensor) for tensor in model.graph.initializer]


LARGE = np.arange(5000, dtype=np.float32).reshape(50, 100)


def test_large_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    small = np.arange(3, dtype=np.int64)
    tensors = [numpy_helper.from_array(LARGE, "large"), numpy_helper.from_array(small, "small")]
    model = read(tmp_path, model_of(*tensors))
    first, second = arrays(model)
    np.testing.assert_array_equal(first, LARGE)
    np.testing.assert_array_equal(second, small)
    assert not first.flags.owndata and not first.flags.writeable
    assert model.graph.initializer[0].ByteSize() < LEAST_BYTES, "the message holds a reference only"


def test_everything_else_stays_as_it_is() -> None:
    content = model_of(numpy_helper.from_array(LARGE, "large"), numpy_helper.from_array(LARGE[:1, :2], "small"))
    short = onnx.ModelProto.FromString(without_raw_data(memoryview(content)))
    whole = onnx.ModelProto.FromString(content)
    tensor = short.graph.initializer[0]
    place = {entry.key: entry.value for entry in tensor.external_data}
    assert place["location"] == OWN_FILE
    offset = int(place["offset"])
    tensor.raw_data = content[offset : offset + int(place["length"])]
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    assert short == whole


def test_external_and_typed_tensors_are_left_to_protobuf() -> None:
    external = numpy_helper.from_array(LARGE, "external")
    external.external_data.add(key="location", value="elsewhere.bin")
    content = model_of(external, helper.make_tensor("typed", TensorProto.FLOAT, LARGE.shape, LARGE.reshape(-1)))
    assert onnx.ModelProto.FromString(without_raw_data(memoryview(content))) == onnx.ModelProto.FromString(content)


def test_of_two_raw_data_the_last_counts(tmp_path: Path) -> None:
    """As protobuf has it for a field that stands twice; no library writes such a tensor."""
    tensor = numpy_helper.from_array(LARGE, "large").SerializeToString()
    tensor += TensorProto(raw_data=(LARGE + 1).tobytes()).SerializeToString()
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Identity", ["large"], ["y"])], "g", [], [output])
    inner = graph.SerializeToString() + field(5, tensor)
    model = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    (array,) = arrays(read(tmp_path, model.SerializeToString() + field(7, inner)))
    np.testing.assert_array_equal(array, LARGE + 1)


def field(number: int, content: bytes) -> bytes:
    """A field with a length, whose length takes three bytes."""
    length = len(content)
    assert length < 1 << 21
    return bytes((number << 3 | 2, length & 127 | 128, length >> 7 & 127 | 128, length >> 14)) + content


def test_every_cut_is_still_refused(tmp_path: Path) -> None:
    content = model_of(numpy_helper.from_array(LARGE, "large"))
    for size in range(1, len(content), 997):
        with pytest.raises(CorruptInputError):
            read(tmp_path, content[:size])


def test_data_of_another_length_are_refused(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(LARGE, "large")
    tensor.dims[0] = 51
    with pytest.raises(CorruptInputError, match="holds 20000 bytes"):
        arrays(read(tmp_path, model_of(tensor)))


def test_a_model_that_states_such_a_reference_itself_stays_inside_of_its_file(tmp_path: Path) -> None:
    tensor = TensorProto(name="t", dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", OWN_FILE), ("offset", "1000000"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    with pytest.raises(CorruptInputError, match="refers to bytes"):
        arrays(read(tmp_path, model_of(tensor)))
