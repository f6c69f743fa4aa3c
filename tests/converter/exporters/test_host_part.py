"""Nodes that a device cannot compute are left to the host: ``host.tpum`` and ``run.py`` of an export."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.host_part import find_host_part
from tpuconvert.exporters.tpu_mlir.package import HOST_MODEL, lower_with_host
from tpuconvert.samples.array_writer import write_npz

SAIL = '''"""Stands in for the vendor's runtime: returns the stored tensors of the program, sample by sample."""
import json
from pathlib import Path
import numpy as np

class IOMode:
    SYSIO = 0

class Engine:
    def __init__(self, program, device, mode):
        folder = Path(program).parent
        self.manifest = json.loads((folder / "export.json").read_text())
        self.inputs, self.expected = np.load(folder / "inputs.npz"), np.load(folder / "expected.npz")

    def get_graph_names(self):
        return [self.manifest["name"]]

    def get_input_names(self, graph):
        return [item["device_name"] for item in self.manifest["inputs"]]

    def process(self, graph, feed):
        name, array = next(iter(feed.items()))
        (index,) = [index for index, item in enumerate(self.inputs[name]) if np.array_equal(item, array)][:1]
        return {item["device_name"]: self.expected[item["name"]][index] for item in self.manifest["outputs"]}
'''


def scores_network(path: Path) -> Path:
    """Write a convolution, and the positions of its largest results: topk has no form on the device."""
    rng = np.random.default_rng(0)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    outputs = [
        helper.make_tensor_value_info("map", TensorProto.FLOAT, [1, 4, 8, 8]),
        helper.make_tensor_value_info("best", TensorProto.FLOAT, [1, 5]),
        helper.make_tensor_value_info("where", TensorProto.INT64, [1, 5]),
    ]
    weights = onnx.numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    shape = onnx.numpy_helper.from_array(np.array([1, 256], np.int64), "shape")
    count = onnx.numpy_helper.from_array(np.array([5], np.int64), "k")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["map"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["map", "shape"], ["flat"], name="flatten"),
        helper.make_node("TopK", ["flat", "k"], ["best", "where"], name="choose"),
    ]
    graph = helper.make_graph(nodes, "g", [x], outputs, [weights, shape, count])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def samples() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((3, 1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(params=["none", "int8"])
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[tc.Model, tc.Export]:
    options: dict[str, Any] = {} if request.param == "none" else {"quantize": "int8", "calibration": samples()}
    model = tc.convert(scores_network(tmp_path / "net.onnx"), chip="bm1684x", **options)
    return model, tc.export(model, tmp_path / "out", data=samples())


def run_script(folder: Path, *arguments: str, with_board: bool = True) -> subprocess.CompletedProcess[str]:
    """Run run.py of an export, with a package in place of the vendor's runtime."""
    (folder / "net.bmodel").write_bytes(b"program")
    package = folder.parent / "board" / "sophon"
    package.mkdir(parents=True, exist_ok=True)
    (package / "sail.py").write_text(SAIL)
    environment = {key: value for key, value in os.environ.items() if key not in ("TPU_MLIR_HOME", "VENDOR_PYTHON")}
    if with_board:
        environment["PYTHONPATH"] = str(package.parent)
    command = [sys.executable, str(folder / "run.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_program_ends_before_the_first_node_without_a_form(exported: tuple[tc.Model, tc.Export]) -> None:
    _, export = exported
    manifest = export.manifest
    (reason,) = {node["reason"] for node in manifest["host_nodes"] if node["operator"] == "topk"}
    assert "no operation" in reason
    assert [item["name"] for item in manifest["results"] if item["source"]] == ["map"]
    assert manifest["host_share"] < 0.1
    assert (export.path / HOST_MODEL).is_file()
    assert "topk" in (export.path / "README.md").read_text() and "topk 'best': the tpu dialect has" in str(export)


@pytest.mark.parametrize("exported", ["int8", pytest.param("none", marks=pytest.mark.slow)], indirect=True)
def test_the_host_continues_from_the_tensors_of_the_program(exported: tuple[tc.Model, tc.Export]) -> None:
    model, export = exported
    done = run_script(export.path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert len([line for line in done.stdout.splitlines() if line.startswith("ok")]) == 3
    np.savez(export.path.parent / "mine.npz", x=samples()[1:])
    done = run_script(export.path, str(export.path.parent / "mine.npz"), str(export.path.parent / "found.npz"))
    assert done.returncode == 0, done.stderr
    found = np.load(export.path.parent / "found.npz")
    with tc.Session(model) as session:
        for index, sample in enumerate(samples()[1:]):
            for name, array in session.run(sample).items():
                np.testing.assert_array_equal(found[name][index], array)


@pytest.mark.parametrize("exported", ["none", pytest.param("int8", marks=pytest.mark.slow)], indirect=True)
def test_a_difference_of_the_program_is_found(exported: tuple[tc.Model, tc.Export]) -> None:
    _, export = exported
    with np.load(export.path / "expected.npz") as stored:
        arrays = {name: array[::-1] for name, array in stored.items()}
    np.savez(export.path / "expected.npz", **arrays)
    done = run_script(export.path)
    assert done.returncode == 1
    assert done.stdout.count("DIFF") == 3


@pytest.mark.parametrize("exported", ["none", pytest.param("int8", marks=pytest.mark.slow)], indirect=True)
def test_messages_name_what_is_missing(exported: tuple[tc.Model, tc.Export]) -> None:
    _, export = exported
    done = run_script(export.path, with_board=False)
    assert done.returncode == 2 and "TPU_MLIR_HOME" in done.stderr and "Traceback" not in done.stderr
    np.savez(export.path.parent / "other.npz", image=samples())
    done = run_script(export.path, str(export.path.parent / "other.npz"))
    assert done.returncode == 2 and "'x'" in done.stderr
    np.savez(export.path.parent / "other.npz", x=samples()[:, 0])
    done = run_script(export.path, str(export.path.parent / "other.npz"))
    assert done.returncode == 2 and "expected [samples, 1, 3, 8, 8]" in done.stderr
    (export.path / "net.bmodel").unlink()
    done = subprocess.run([sys.executable, export.path / "run.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "compile.sh" in done.stderr


@pytest.mark.parametrize(
    ("file", "content", "message"),
    sampled(
        [
            ("export.json", b"{}", "export.json was changed after the export"),
            ("export.json", None, "export the model again"),
            ("checksums.txt", None, "export the model again"),
            ("results.npz", b"PK damaged", "results.npz cannot be read"),
        ],
        every=2,
    ),
)
def test_damaged_files_of_an_export_are_named(file: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    export = tc.export(tc.convert(scores_network(tmp_path / "net.onnx"), chip="bm1684x"), tmp_path / "out")
    if content is None:
        (export.path / file).unlink()
    else:
        (export.path / file).write_bytes(content)
    done = run_script(export.path)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_the_host_makes_its_constants_itself(tmp_path: Path) -> None:
    """A table whose elements topk chooses: the compiler writes wrong elements for weights that a program returns."""
    source = onnx.load(scores_network(tmp_path / "net.onnx"))
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(256, dtype=np.float32), "table"))
    source.graph.node.append(helper.make_node("Gather", ["table", "where"], ["chosen"], name="choose_elements"))
    source.graph.output.append(helper.make_tensor_value_info("chosen", TensorProto.FLOAT, [1, 5]))
    onnx.save(source, tmp_path / "net.onnx")
    model = tc.convert(tmp_path / "net.onnx", chip="bm1684x")
    assert any(node.op.name == "constdata" for node in model.graph.nodes)
    export = tc.export(model, tmp_path / "out", chip="bm1684x", data=samples())
    assert [item["name"] for item in export.manifest["outputs"]] == ["map", "flat"]
    assert run_script(export.path).returncode == 0


def test_nodes_are_left_to_the_host_on_request(tmp_path: Path) -> None:
    """A node that the compiler cannot compile, and all nodes that depend on it."""
    model = tc.convert(scores_network(tmp_path / "net.onnx"), chip="bm1684x")
    names = [node.name for node in model.graph.nodes]
    lowering = lower_with_host(model.graph, TARGETS["bm1684x"], "net", on_host={names[0]: "the compiler aborts"})
    host = find_host_part(lowering)
    assert list(host.reasons.values()) == ["the compiler aborts"]
    assert host.is_everything and host.share == 1.0
    with pytest.raises(tc.UnsupportedError, match="the compiler aborts"):
        lowering.problems.raise_if_any()


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688", "bm1684"])
def test_convert_says_what_goes_to_the_host(chip: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the name of a device; the plain chip is for every device and for this machine."""
    source, target = scores_network(tmp_path / "net.onnx"), tmp_path / "net.tpum"
    assert main(["convert", str(source), "-o", str(target), "--chip", chip]) == 0
    assert f"an export for {chip} leaves 1 node to the host" in " ".join(capsys.readouterr().out.split())
    (note,) = (note for note in tc.load(target).notes if note.kind == "device")
    assert "topk 'best'" in note.message
    assert main(["convert", str(source), "-o", str(target), "--chip", "bm1686"]) == 0
    assert "the host" not in capsys.readouterr().out


def test_operators_that_the_compiler_has_are_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The vendor marks division as unfinished; the simulator of a device proves it."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("a", "b", "y")]
    graph = helper.make_graph([helper.make_node("Div", ["a", "b"], ["y"], "ratio")], "net", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    call = ["convert", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.tpum"), "--chip"]
    assert main([*call, "bm1688"]) == 0
    assert "unfinished" not in capsys.readouterr().out
    assert main([*call, "bm1686"]) == 0
    assert "unfinished" in capsys.readouterr().out


def test_convert_says_that_no_program_can_be_exported(tmp_path: Path) -> None:
    """The default quantization for BM1684 has no forms in the vendor's compiler; the note names the option."""
    np.savez(tmp_path / "samples.npz", x=samples())
    call = ["convert", str(scores_network(tmp_path / "net.onnx")), "-o", str(tmp_path / "net.tpum"), "--chip", "bm1684"]
    assert main([*call, "--quantize", "int8", "--calibration", str(tmp_path / "samples.npz")]) == 0
    (note,) = (note for note in tc.load(tmp_path / "net.tpum").notes if note.kind == "device")
    assert "no program can be exported" in note.message and "--exact-on bm1684" in note.message


def digits_model(repository: Path, chip: str = "bm1684x") -> tc.Model:
    digits = repository / "examples" / "digits"
    how = {"calibration": str(digits / "calibration.npz"), "preprocess": "color=GRAY,scale=0.0625"}
    return tc.convert(digits / "digits.onnx", chip=chip, quantize="int8", **how)


def test_integers_at_the_border(repository: Path, tmp_path: Path) -> None:
    """The program takes and returns integers; run.py converts, with the results of the model."""
    model = digits_model(repository)
    feeds = [{"image": np.random.default_rng(seed).random((1, 1, 8, 8), np.float32)} for seed in range(3)]
    manifest = tc.export(model, tmp_path / "net", data=feeds, integer_io=True).manifest
    (item,) = manifest["inputs"]
    assert item["device_dtype"] == "uint8" and item["quantize"]["offset"] == 0
    assert (
        "!quant.uniform<u8" in (tmp_path / "net" / "digits.mlir").read_text().split("func.func @main(")[1].split(")")[0]
    )
    stored = np.load(tmp_path / "net" / "inputs.npz")[item["device_name"]]
    assert stored.dtype == np.uint8 and stored.max() > 200
    (tmp_path / "net" / "digits.bmodel").write_bytes(b"program")
    assert run_script(tmp_path / "net").returncode == 0
    np.savez(tmp_path / "mine.npz", image=np.stack([feed["image"] for feed in feeds]))
    done = run_script(tmp_path / "net", str(tmp_path / "mine.npz"), str(tmp_path / "found.npz"))
    assert done.returncode == 0, done.stderr
    with tc.Session(model) as session:
        expected = np.stack([session.run(feed)["probability"] for feed in feeds])
    np.testing.assert_array_equal(np.load(tmp_path / "found.npz")["probability"], expected)


def test_integers_at_the_border_of_other_forms(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(tc.UsageError, match="only the form tpu-mlir"):
        tc.export(digits_model(repository), tmp_path / "net", to="tpulang", integer_io=True)


def test_the_program_of_the_readme_runs_on_a_board(repository: Path, tmp_path: Path) -> None:
    tc.export(digits_model(repository), tmp_path / "net")
    (tmp_path / "net" / "digits.bmodel").write_bytes(b"program")
    package = tmp_path / "runtime" / "sophon"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sail.py").write_text(SAIL)
    text = (tmp_path / "net" / "README.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'runtime'}{os.pathsep}{tmp_path / 'net'}"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "probability float32 (4, 1, 10)\n"
    assert "bmrt_test --bmodel digits.bmodel" in text


def typed_network(path: Path) -> Path:
    """Write a network whose outputs have types and shapes that the program does not have, and names of parameters."""
    x = helper.make_tensor_value_info("file", TensorProto.FLOAT, [1, 4])
    number = helper.make_tensor_value_info("number", TensorProto.INT64, [])
    outputs = [
        helper.make_tensor_value_info("allow_pickle", TensorProto.BOOL, [1, 4]),
        helper.make_tensor_value_info("total", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("half", TensorProto.FLOAT16, [1, 4]),
        helper.make_tensor_value_info("where", TensorProto.INT64, [1, 2]),
    ]
    weights = onnx.numpy_helper.from_array(np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32), "w")
    zero = onnx.numpy_helper.from_array(np.float32(0), "zero")
    count = onnx.numpy_helper.from_array(np.array([2], np.int64), "k")
    nodes = [
        helper.make_node("MatMul", ["file", "w"], ["y"]),
        helper.make_node("Greater", ["y", "zero"], ["allow_pickle"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
        helper.make_node("Cast", ["y"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("TopK", ["y", "k"], ["best", "places"]),
        helper.make_node("Add", ["places", "number"], ["where"]),
    ]
    graph = helper.make_graph(nodes, "g", [x, number], outputs, [weights, zero, count])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_results_have_the_types_and_shapes_of_the_model(tmp_path: Path) -> None:
    model = tc.convert(typed_network(tmp_path / "net.onnx"), chip="bm1684x")
    export = tc.export(model, tmp_path / "out")
    done = run_script(export.path)
    assert done.returncode == 0, done.stderr + done.stdout
    stored = np.load(export.path / "inputs.npz")
    write_npz(tmp_path / "mine.npz", {name: stored[name][:2] for name in stored.files})
    done = run_script(export.path, str(tmp_path / "mine.npz"), str(tmp_path / "found.npz"))
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "found.npz") as found:
        types = {name: (found[name].dtype.name, found[name].shape) for name in found.files}
    assert types == {
        "allow_pickle": ("bool", (2, 1, 4)),
        "total": ("float32", (2,)),
        "half": ("float16", (2, 1, 4)),
        "where": ("int64", (2, 1, 2)),
    }


FEEDS = {"file": np.ones((2, 1, 4), np.float32), "number": np.zeros(2, np.int64)}


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"file": FEEDS["file"]}, "there is no array 'number'"),
        ({**FEEDS, "file": FEEDS["file"][:1]}, "expected the same number"),
        ({name: array[:0] for name, array in FEEDS.items()}, "at least 1"),
        ({**FEEDS, "file": FEEDS["file"][:, 0]}, "expected [samples, 1, 4]"),
        ({**FEEDS, "file": FEEDS["file"].astype(str)}, "expected numbers"),
        ({**FEEDS, "file": FEEDS["file"] + 1j}, "expected numbers"),
        ({**FEEDS, "number": FEEDS["number"] + 0.5}, "not of type int32"),
        (b"no archive", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_wrong_inputs_are_named(feeds: dict[str, np.ndarray] | bytes | None, message: str, tmp_path: Path) -> None:
    export = tc.export(tc.convert(typed_network(tmp_path / "net.onnx"), chip="bm1684x"), tmp_path / "out")
    if isinstance(feeds, bytes):
        (tmp_path / "mine.npz").write_bytes(feeds)
    elif feeds is not None:
        write_npz(tmp_path / "mine.npz", feeds)
    done = run_script(export.path, str(tmp_path / "mine.npz"), str(tmp_path / "found.npz"))
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "found.npz").exists()
