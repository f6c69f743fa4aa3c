"""Files that another process truncates while they are in use."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.schema.system import mapped_pages
from tpuconvert.schema.system.mapped_pages import map_file

SIZE = 1 << 20  # 256 pages: more than the system reads in advance


def _external(folder: Path) -> Path:
    """Write a model whose weights are external data of 4 MiB."""
    w = np.random.default_rng(0).standard_normal((1 << 10, 1 << 10)).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1 << 10])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1 << 10])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [numpy_helper.from_array(w, "w")]
    )
    onnx.save(helper.make_model(graph), folder / "net.onnx", save_as_external_data=True, location="net.data")
    return folder / "net.onnx"


def test_content_is_kept_when_the_file_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    content = np.random.default_rng(0).bytes(SIZE)
    path.write_bytes(content)
    with path.open("rb") as file:
        mapped = map_file(file.fileno(), path)
    os.truncate(path, 0)
    assert bytes(mapped) == content
    assert np.frombuffer(mapped, np.uint8).ctypes.data % 64 == 0
    assert not np.frombuffer(mapped, np.uint8).flags.writeable


def test_an_open_session_keeps_its_weights(tmp_path: Path) -> None:
    model = tc.convert(_external(tmp_path))
    model.save(tmp_path / "net.tpum")
    loaded = tc.load(tmp_path / "net.tpum")
    os.truncate(tmp_path / "net.tpum", 100)
    x = np.ones((1, 1 << 10), np.float32)
    with tc.Session(loaded, backend="reference") as session, tc.Session(model) as wanted:
        np.testing.assert_allclose(session.run({"x": x})["y"], wanted.run({"x": x})["y"], rtol=1e-4, atol=1e-4)


def test_external_data_that_are_truncated_during_a_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _external(tmp_path)
    tc.convert(path).save(tmp_path / "wanted.tpum")
    opened = map_file

    def truncate_after(descriptor: int, name: str | os.PathLike[str]) -> memoryview:
        mapped = opened(descriptor, name)
        if os.fspath(name).endswith("net.data"):
            os.truncate(tmp_path / "net.data", 10)
        return mapped

    monkeypatch.setattr("tpuconvert.frontends.onnx.file.tensor_reader.map_file", truncate_after)
    x = np.ones((1, 1 << 10), np.float32)
    with tc.Session(tc.convert(path)) as session, tc.Session(tmp_path / "wanted.tpum") as wanted:
        np.testing.assert_array_equal(session.run({"x": x})["y"], wanted.run({"x": x})["y"])


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(SIZE))
    allocate = np.empty

    def truncate_before(*arguments: object) -> np.ndarray:
        os.truncate(path, 10)
        return allocate(*arguments)

    with path.open("rb") as file:
        monkeypatch.setattr(mapped_pages.np, "empty", truncate_before)
        with pytest.raises(tc.UsageError, match=r"x.bin: it was truncated while it was read"):
            map_file(file.fileno(), path)
