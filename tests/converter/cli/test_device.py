"""``tpuconvert device`` on the bundled example."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(digits: Path, capsys: Captured) -> str:
    """The bundled network in INT8, with golden vectors."""
    how = ["--quantize", "int8", "--calibration", str(digits / "calibration.npz"), "--golden", "2"]
    how += ["--preprocess", "color=GRAY,scale=0.0625"]
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum", *how]) == 0
    capsys.readouterr()
    return "net.tpum"


def test_dumps_of_the_plan_are_equal(model: str, capsys: Captured) -> None:
    assert main(["device", "plan", model, "plan"]) == 0
    assert {path.name for path in Path("plan").iterdir()} == {
        ".files.json",
        "device_inputs.npz",
        "expected.npz",
        "inputs.npz",
        "plan.json",
        "run_device.py",
    }
    assert main(["device", "compare", model, "plan/expected.npz", "--plan", "plan"]) == 0
    assert " 0 differ, 0 have no dump" in capsys.readouterr().out


def test_the_golden_inputs_are_the_default(model: str, capsys: Captured) -> None:
    """The plan has them, too."""
    assert main(["device", "plan", model, "plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 2
    stored = tc.load(model).metadata["golden"]["inputs"]
    assert len(stored) == 2
    assert main(["device", "compare", model, "plan/expected.npz"]) == 0


def test_the_first_difference_is_explained(model: str, capsys: Captured) -> None:
    assert main(["device", "plan", model, "plan"]) == 0
    dumps = dict(np.load("plan/expected.npz"))
    for name in ("conv1/relu", "fc"):
        dumps[name] = np.minimum(dumps[name], 60)
    np.savez("dumps.npz", **dumps)
    capsys.readouterr()
    assert main(["device", "compare", model, "dumps.npz", "--plan", "plan"]) == 5
    printed = capsys.readouterr()
    assert "first difference: saturation: the integers saturate at 0..60" in printed.out
    assert "the first is 'conv1/relu'" in printed.err


def test_dumps_may_have_suffixes_and_dequantized_values(model: str, capsys: Captured) -> None:
    """As compilers return them: NAME_f32 with floats, without the axis of samples for one sample."""
    assert main(["device", "plan", model, "plan", "--json"]) == 0
    tensors = {item["name"]: item for item in json.loads(capsys.readouterr().out)["tensors"]}
    expected, scale = np.load("plan/expected.npz")["conv1/relu"], np.array(tensors["conv1/relu"]["scale"])
    assert len(scale) == 16, "one scale per channel"
    np.savez("dumps.npz", **{"conv1/relu_f32": (expected * scale[:, None, None]).astype(np.float32), "other": expected})
    assert main(["device", "compare", model, "dumps.npz", "--plan", "plan", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["equal"] == 1 and document["unknown"] == ["other"] and "fc" in document["missing"]


def test_golden_vectors_are_checked(model: str, capsys: Captured) -> None:
    assert main(["device", "check", model]) == 0
    assert "integer tensors have their stored digests" in capsys.readouterr().out


def test_changed_integers_are_found(model: str) -> None:
    """The digests of a file whose weights were changed belong to the old weights."""
    content = tc.load(model).content
    (filters,) = [value for value in content.graph.values if value.is_constant and value.name == "conv1/weights"] or [
        next(value for value in content.graph.values if value.is_constant and value.data.ndim == 4)
    ]
    filters.data = np.flip(filters.array, 0).copy()
    tc.Model(content).save("changed.tpum")
    assert main(["device", "check", "changed.tpum"]) == 5


def test_the_same_source_gives_the_same_file(model: str, digits: Path) -> None:
    call = ["reproduce", str(digits / "digits.onnx"), model, "--calibration", str(digits / "calibration.npz")]
    assert main(call) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    sampled(
        [
            (["compare", "net.tpum", "absent.npz"], "no such file"),
            (["compare", "net.tpum", "text.npz"], "not a NumPy file, or a damaged one"),
            (["compare", "net.tpum", "dumps.npz", "--plan", "."], "there is no plan.json"),
            (["compare", "net.tpum", "foreign.npz"], "no integer tensor of the model"),
            (["compare", "net.tpum", "stale.npz"], "exported from another model file"),
            (["compare", "net.tpum", "short.npz"], "has shape [1, 3], expected [2, 1, 10]"),
            (["plan", "net.tpum", "full"], "the folder has other files in it"),
        ],
        every=2,
    ),
)
def test_errors(call: list[str], message: str, model: str, capsys: Captured) -> None:
    Path("text.npz").write_text("no archive")
    Path("full").mkdir()
    Path("full/photo.jpg").write_bytes(b"1")
    np.savez("dumps.npz", fc=np.zeros((2, 1, 10), np.int16))
    np.savez("foreign.npz", other=np.zeros(3))
    np.savez("stale.npz", fc=np.zeros((2, 1, 10), np.int16), program_digest="0")
    np.savez("short.npz", fc=np.zeros((1, 3), np.int16))
    assert main(["device", *call]) in (2, 4)
    assert message in capsys.readouterr().err


def test_a_model_without_golden_vectors(digits: Path, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "float.tpum"]) == 0
    assert main(["device", "check", "float.tpum"]) == 2
    assert "convert it with --golden" in capsys.readouterr().err
    assert main(["device", "plan", "float.tpum", "plan"]) == 2
    assert "--quantize int8" in capsys.readouterr().err


def test_the_program_for_the_device(model: str) -> None:
    """Without the vendor's package it names it; with a stand-in it writes every returned tensor of all samples."""
    assert main(["device", "plan", model, "plan"]) == 0
    command = [sys.executable, "plan/run_device.py", "net.bmodel", "dumps.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "sophon.sail is not installed" in done.stderr
    package = Path("fake/sophon")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sail.py").write_text(
        "import enum\nimport numpy as np\n"
        "class IOMode(enum.Enum):\n    SYSIO = 0\n"
        "class Engine:\n"
        "    def __init__(self, program, device, mode): self.count = 0\n"
        "    def get_graph_names(self): return ['net']\n"
        "    def get_input_names(self, graph): return ['image']\n"
        "    def process(self, graph, feed):\n"
        "        self.count += 1\n"
        "        expected = np.load('plan/expected.npz')\n"
        "        assert (feed['image'] == np.load('plan/inputs.npz')['image'][self.count - 1]).all()\n"
        "        return {'fc': expected['fc'][self.count - 1]}\n"
    )
    Path("net.bmodel").write_bytes(b"")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": "fake"})
    assert done.returncode == 0, done.stderr
    assert main(["device", "compare", model, "dumps.npz", "--plan", "plan"]) == 0
