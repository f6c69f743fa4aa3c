"""Models with external data: in one or several files, memory-mapped, above 2 GiB, shared."""

import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tpuconvert.__main__ import main
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array


def outside(name: str, location: str, shape: tuple[int, ...], offset: int = 0) -> TensorProto:
    """FLOAT32 constant in an external file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    length = 4 * math.prod(shape)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def is_mapped(array: Array) -> bool:
    """Return True if the elements are in a memory-mapped file."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, mmap.mmap)


def two_files(folder: Path) -> tuple[onnx.ModelProto, Array]:
    """y = (x @ w1 + b) @ w2 with every constant somewhere else, and what it gives for x."""
    x, w1, b, w2 = ramp(2, 3), ramp(3, 4, seed=1), ramp(4, seed=2), ramp(4, 2, seed=3)
    (folder / "first.bin").write_bytes(b"\0" * 64 + w1.tobytes())
    (folder / "deeper").mkdir()
    (folder / "deeper" / "second.bin").write_bytes(w2.tobytes())
    nodes = [one("MatMul", "x", "w1", outputs=["p"]), one("Add", "p", "b", outputs=["s"]), one("MatMul", "s", "w2")]
    proto = model(nodes, {"x": x}, ["y"], {"b": b})
    proto.graph.initializer.extend([outside("w1", "first.bin", (3, 4), 64), outside("w2", "deeper/second.bin", (4, 2))])
    return proto, (x @ w1 + b) @ w2


def constants(graph: Graph) -> dict[str, Array]:
    """By name, without the number of a form in another shape."""
    return {value.name.partition(".")[0]: value.array for value in graph.values if value.is_constant}


def test_constants_in_several_large_files_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuconvert.schema.system.mapped_pages.COPIED_BYTES", 1)
    proto, expected = two_files(tmp_path)
    found = constants(load(save_model(proto, tmp_path)))
    assert {name: is_mapped(array) for name, array in found.items()} == {"w1": True, "w2": True, "b": False}
    with tc.Session(tc.convert(tmp_path / "model.onnx")) as session:
        np.testing.assert_allclose(session.run({"x": ramp(2, 3)})["y"], expected, rtol=1e-5)


def test_command_line_and_a_file_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    proto, _ = two_files(tmp_path)
    save_model(proto, tmp_path)
    assert main(["convert", "model.onnx", "--verify"]) == 0
    (tmp_path / "deeper" / "second.bin").unlink()
    assert main(["convert", "model.onnx"]) == 4
    with pytest.raises(CorruptInputError, match=r"needs the external file 'deeper/second.bin', which does not exist"):
        load(tmp_path / "model.onnx")


def test_only_what_is_needed_is_looked_for(tmp_path: Path) -> None:
    proto, _ = two_files(tmp_path)
    (tmp_path / "deeper" / "second.bin").unlink()
    graph = load(save_model(proto, tmp_path), outputs=["s"])
    assert sorted(constants(graph)) == ["b", "w1"]


def test_shared_constants_stay_shared(tmp_path: Path) -> None:
    w = ramp(3, 3, seed=1)
    (tmp_path / "w.bin").write_bytes(w.tobytes())
    nodes = [
        one("MatMul", "x", "w", outputs=["a"]), one("MatMul", "a", "w", outputs=["b"]), one("Add", "b", "w"),
    ]  # fmt: skip
    proto = model(nodes, {"x": ramp(3, 3)}, ["y"])
    proto.graph.initializer.append(outside("w", "w.bin", (3, 3)))
    graph = load(save_model(proto, tmp_path))
    (shared,) = [value for value in graph.values if value.is_constant]
    assert len(shared.users) == 3
    converted = tc.convert(tmp_path / "model.onnx")
    assert sum(value.is_constant for value in converted.graph.values) == 1
    converted.save(tmp_path / "net.tpum")
    with tc.Session(tc.load(tmp_path / "net.tpum")) as session:
        x = ramp(3, 3)
        np.testing.assert_allclose(session.run({"x": x})["y"], x @ w @ w + w, rtol=1e-4, atol=1e-4)


def test_cut_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    proto, _ = two_files(tmp_path)
    save_model(proto, tmp_path)
    cut = ["convert", "model.onnx", "--inputs", "p", "--outputs", "s", "-o", "cut.tpum"]
    assert main(cut) == 3
    assert "give one: --input-shapes p=1,3,..." in capsys.readouterr().err
    assert main([*cut, "--input-shapes", "p=N,4"]) == 0
    with tc.Session("cut.tpum") as session:
        ports = [(item.name, item.shape) for item in (*session.inputs, *session.outputs)]
        assert ports == [("p", ("N", 4)), ("s", ("N", 4))]
        np.testing.assert_allclose(session.run({"p": ramp(3, 4)})["s"], ramp(3, 4) + ramp(4, seed=2), rtol=1e-6)


@pytest.mark.slow
def test_past_two_gibibytes(tmp_path: Path) -> None:
    """Of a sparse file, which is mostly a hole, only the needed rows are read."""
    rows, columns = 1 << 20, 600  # 2.34 GiB
    path = tmp_path / "table.bin"
    bias_at = rows * columns * 4
    with path.open("wb") as file:
        file.truncate(bias_at)
        file.seek((rows - 1) * columns * 4)
        file.write(struct.pack("<f", 7.5))
        file.seek(bias_at)
        file.write(np.float32([0.25]).tobytes())
    nodes = [one("Gather", "table", "x", outputs=["row"]), one("Add", "row", "bias")]
    proto = model(nodes, {"x": np.array([0])}, ["y"])
    proto.graph.initializer.extend(
        [outside("table", "table.bin", (rows, columns)), outside("bias", "table.bin", (1,), bias_at)]
    )
    graph = load(save_model(proto, tmp_path))
    found = constants(graph)
    assert found["table"].nbytes > 1 << 31 and is_mapped(found["table"])
    with tc.Session(graph, backend="reference") as session:
        y = session.run({"x": np.array([rows - 1])})["y"]
    assert y.shape == (1, columns) and y[0, 0] == 7.75 and (y[0, 1:] == 0.25).all()
