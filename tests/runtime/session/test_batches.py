"""More samples than a model takes at a time: the results of several runs, or one clear error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tests.support.tflite.models import O, S, T, serialize
from tpuconvert.__main__ import main


def product(folder: Path, batch: int, *, reduced: bool = False) -> tc.Model:
    """y = x @ w, and with it the sum of all elements where asked for."""
    nodes = [one("MatMul", "x", "w")]
    outputs = ["y"]
    if reduced:
        nodes.append(one("ReduceSum", "y", outputs=["total"], keepdims=0))
        outputs.append("total")
    return tc.convert(save_model(model(nodes, {"x": ramp(batch, 8)}, outputs, {"w": ramp(8, 3, seed=1)}), folder))


@pytest.mark.parametrize(("batch", "count"), [(1, 5), (2, 6), (4, 8)])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_batches_are_split_and_joined(tmp_path: Path, batch: int, count: int, backend: Any) -> None:
    x = ramp(count, 8, seed=3)
    with tc.Session(product(tmp_path, batch), backend=backend) as session:
        found = session.run({"x": x})["y"]
    np.testing.assert_allclose(found, x @ ramp(8, 3, seed=1), rtol=1e-5, atol=1e-5)  # sums of 8 in float32


def test_what_fills_no_batch_is_refused_with_the_sizes(tmp_path: Path) -> None:
    with tc.Session(product(tmp_path, 4)) as session:
        for count in (2, 6):
            with pytest.raises(tc.UsageError, match=f"input 'x' has {count} samples, the model takes 4") as told:
                session.run({"x": ramp(count, 8)})
            assert told.value.hint.endswith("--input-shapes x=1,8")


def test_another_shape_is_not_a_batch(tmp_path: Path) -> None:
    with tc.Session(product(tmp_path, 1)) as session:
        for shape in ((2, 9), (8,), (2, 1, 8), (0, 8)):
            with pytest.raises(tc.UsageError, match="input 'x' has"):
                session.run({"x": ramp(*shape)})


def test_an_output_without_batch_axis_is_refused(tmp_path: Path) -> None:
    with tc.Session(product(tmp_path, 1, reduced=True)) as session:
        assert session.run({"x": ramp(1, 8)})["total"].shape == ()
        with pytest.raises(tc.UsageError, match=r"output 'total' \[\] has no batch axis of 1"):
            session.run({"x": ramp(2, 8)})


def test_inputs_need_the_same_number_of_samples(tmp_path: Path) -> None:
    proto = model([one("Add", "x", "z")], {"x": ramp(1, 4), "z": ramp(1, 4)}, ["y"])
    with tc.Session(tc.convert(save_model(proto, tmp_path))) as session:
        np.testing.assert_array_equal(session.run({"x": ramp(3, 4), "z": ramp(3, 4)})["y"], 2 * ramp(3, 4))
        with pytest.raises(tc.UsageError, match="different numbers of samples: 'x' 3, 'z' 1"):
            session.run({"x": ramp(3, 4), "z": ramp(1, 4)})


def test_inputs_without_a_common_batch_axis_are_refused(tmp_path: Path) -> None:
    """Axis 0 of the state of a recurrent network counts layers."""
    nodes = [
        one("ReduceSum", "h", outputs=["s"], keepdims=1),
        one("Reshape", "s", "k", outputs=["r"]),
        one("Add", "x", "r"),
    ]
    proto = model(nodes, {"x": ramp(1, 4), "h": ramp(2, 1, 4)}, ["y"], {"k": np.array([1, 1])})
    expected = pytest.raises(tc.UsageError, match="the inputs have no common batch axis")
    with tc.Session(tc.convert(save_model(proto, tmp_path))) as session, expected:
        session.run({"x": ramp(3, 4), "h": ramp(6, 1, 4)})


def test_a_model_with_state_is_run_one_by_one(tmp_path: Path) -> None:
    tensors = [T("x", (1, 2)), T("w", data=np.ones((3, 2), np.float32)), T("r", data=np.ones((3, 3), np.float32))]
    tensors += [T("b", data=np.zeros(3, np.float32)), T("h", (1, 3), variable=True), T("y", (1, 3))]
    operators = [O("RNN", [0, 1, 2, 3, 4], [5], "RNNOptions")]
    path = tmp_path / "net.tflite"
    path.write_bytes(serialize(S(tensors, operators, [0], [5])))
    made = tc.convert(path, source_options=tc.SourceOptions(state="ports"))
    names = [item.name for item in made.inputs]
    assert len(names) == 2
    with tc.Session(made) as session, pytest.raises(tc.UsageError, match="keeps state between runs"):
        session.run({names[0]: ramp(2, 2), names[1]: ramp(2, 3)})


def test_observers_see_every_run(tmp_path: Path) -> None:
    seen: list[str] = []
    with tc.Session(product(tmp_path, 1)) as session:
        session.run({"x": ramp(3, 8)}, observe=lambda value, _: seen.append(value.name))
    assert seen.count("y") == 3


def test_the_command_line_has_the_same_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    product(tmp_path, 4).save("net.tpum")
    x = ramp(8, 8, seed=3)
    np.save("x.npy", x)
    assert main(["run", "net.tpum", "x.npy", "-o", "y.npz"]) == 0
    with np.load("y.npz") as found:
        np.testing.assert_allclose(found["y"], x @ ramp(8, 3, seed=1), rtol=1e-5, atol=1e-5)  # sums of 8 in float32
    np.save("x.npy", x[:6])
    capsys.readouterr()
    assert main(["run", "net.tpum", "x.npy"]) == 2
    assert "6 samples for a model that takes 4 at a time" in capsys.readouterr().err
    product(tmp_path, 1, reduced=True).save("net.tpum")
    assert main(["run", "net.tpum", "x.npy"]) == 2
    assert "output 'total' [] has no batch axis" in capsys.readouterr().err
