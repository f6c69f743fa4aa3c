"""Outputs whose names are also parameters of ``numpy.savez``, or no names of files."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.sampled import sampled
from tpuconvert.cli.entry import run
from tpuconvert.samples.array_writer import write_npz

NAMES = ["file", "args", "kwds", "allow_pickle", "self", "a/b", "../x", "x.npy", "names"]


@pytest.mark.parametrize("name", sampled(NAMES, every=2))
def test_results_of_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, 4]) for each in ("x", name))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], [name])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "net.onnx")
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    assert run(["convert", "net.onnx", "-o", "net.tpum"]) == 0
    assert run(["run", "net.tpum", "x.npz", "-o", "results.npz"]) == 0
    with np.load("results.npz") as results:
        np.testing.assert_array_equal(results[name], np.ones((1, 4), np.float32))
    np.savez("samples.npz", x=np.random.default_rng(0).standard_normal((4, 1, 4)).astype(np.float32))
    assert run(["convert", "net.onnx", "-o", "net.tpum", "--quantize", "int8", "--calibration", "samples.npz"]) == 0
    assert run(["device", "plan", "net.tpum", "planned"]) == 0
    assert run(["export", "net.tpum", "exported"]) == 0


def test_bytes_are_those_of_numpy(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros((0, 2), np.int8), "c": np.asfortranarray(np.eye(3))}
    np.savez(tmp_path / "wanted.npz", **arrays)
    write_npz(tmp_path / "found.npz", arrays)
    assert (tmp_path / "found.npz").read_bytes() == (tmp_path / "wanted.npz").read_bytes()


def test_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        write_npz(tmp_path / "x.npz", {"x": np.array([{}])})
