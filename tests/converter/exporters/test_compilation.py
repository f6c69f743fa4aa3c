"""``export(compile=True)`` with a compiler that fails in every way: what is written, and what is reported."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper

import tpuconvert as tc
from tests.support.onnx.models import save_model
from tests.support.onnx.symbolic_networks import network
from tests.support.sampled import sampled
from tests.support.vendor.fake_compiler import calls_of, make_fake_compiler
from tests.support.vendor.vendor_tools import model_of
from tpuconvert.__main__ import main
from tpuconvert.exporters.compilation import compiled_export
from tpuconvert.exporters.compilation.logs import reason_in_log
from tpuconvert.progress import Progress
from tpuconvert.schema.errors import ResourceLimitError, ThresholdError, UnsupportedError, UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.types import Chip, DType, QuantParams, TensorType

QUANT = QuantParams.per_tensor(0.5, 0, DType.UINT8)
SAMPLES = {"x": np.array([[0, 1, 2, 255]], np.uint8)}


class Lines(Progress):
    """Keep the reported lines."""

    def __init__(self):
        self.lines = []

    def report(self, text):
        self.lines.append(text)


@pytest.fixture
def model():
    """A chain of tables: the tensors a, b, c and d."""
    graph = Graph("net")
    value = graph.input("x", TensorType(DType.UINT8, (1, 4)), quant=QUANT)
    for name in "abcd":
        table = np.random.default_rng(ord(name)).permutation(256).astype(np.uint8)
        value = graph.add(Lut(), value, graph.constant(table, f"table_{name}"), name=name)
        value.quant = QUANT
    graph.output(value)
    return model_of(graph)


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Make a compiler with these faults; ``export`` finds it."""

    def make(**faults):
        environment = make_fake_compiler(tmp_path / "vendor" / "tpu_mlir", **faults)
        monkeypatch.setenv("TPU_MLIR_HOME", str(environment.home))
        monkeypatch.setenv("VENDOR_PYTHON", str(environment.python))
        return environment

    return make


def export(model, tmp_path, **options):
    return tc.export(model, tmp_path / "out", data=SAMPLES, compile=True, **options)


def outcomes(proof):
    return [(attempt["level"], attempt["outcome"]) for attempt in proof["attempts"]]


def test_a_program_is_compiled_and_compared(model, compiler, tmp_path, repository):
    environment, progress = compiler(), Lines()
    result = export(model, tmp_path, progress=progress)
    result.check()
    folder = tmp_path / "out"
    proof = json.loads((folder / "proof.json").read_text())
    assert proof == result.proofs["out"]
    for name, document in (("proof", proof), ("export", result.to_dict())):
        schema = json.loads((repository / "docs" / "reference" / "schemas" / f"{name}.schema.json").read_text())
        jsonschema.validate(document, schema)
    assert proof["is_accepted"] and proof["level"] == 2 and outcomes(proof) == [(2, "accepted")]
    assert proof["tensors"] == [
        {
            "kind": "integers",
            "tensors": 1,
            "accepted": 1,
            "equal": 1,
            "largest_difference": 0.0,
            "magnitude": float(np.load(folder / "expected.npz")["d"].max()),
            "tensor": "",
        }
    ]
    assert (folder / "net.bmodel").stat().st_size and set(proof["files"]) >= {"net.bmodel", "net.mlir", "expected.npz"}
    assert [call[-1] for call in calls_of(environment)] == ["step-1.mlir", "step-2.mlir", "/dev/null", "/dev/null"]
    assert progress.lines[0].startswith("TPU_MLIR_HOME has tpu_mlir of an unknown version; exports are tested with ")
    assert [line.split(":")[0] for line in progress.lines[1:]] == ["compiled"] * 3 + [
        "estimate of the compiler",
        "simulated",
    ]
    text = (folder / "README.md").read_text()
    assert "Not compiled" not in text and "1 of 1 integers equal" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "vendor"]
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".files.json"]


def test_cycles_are_those_of_the_profile(model, compiler, tmp_path):
    compiler()
    result = export(model, tmp_path)
    cycles = result.proofs["out"]["cycles"]
    assert cycles == {
        "total": 31,
        "compute": 11,
        "transfer": 25,
        "megahertz": 1000,
        "milliseconds": 0.000031,
        "layers": [
            {"operation": "tpu.Load", "tensor": "", "compute": 0, "transfer": 25},
            {"operation": "tpu.Lut", "tensor": "a|b", "compute": 11, "transfer": 0},
        ],
    }
    line = "estimate of the compiler: 31 cycles, 3.1e-05 ms at 1000 MHz, not measured on a device"
    assert f"  cycles    {line}" in result.lines()
    text = (tmp_path / "out" / "README.md").read_text()
    assert "E" + line[1:] in text and "| Load | `-` | 0 | 25 |" in text and "| Lut | `a\\|b` | 11 | 0 |" in text


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        ("fails", "the compiler exited with code 1: error: no space for a profile"),
        ("Lut_7|SG|s:0|b:1|g:1|e:9|t:10", "the profile of the compiler has no cycles"),
        ("API_END total_cycle:31", "the profile of the compiler has no cycles"),
    ],
)
def test_a_program_without_a_profile_is_a_success(profile, reason, model, compiler, tmp_path):
    compiler(profile=profile)
    progress = Lines()
    result = export(model, tmp_path, progress=progress)
    result.check()
    assert result.proofs["out"]["cycles"] is None and f"no estimate of cycles: {reason}" in progress.lines
    assert not [line for line in result.lines() if "cycles" in line]
    assert "## Cycles" not in (tmp_path / "out" / "README.md").read_text()


def test_the_proof_names_the_file_of_the_model(model, compiler, tmp_path):
    compiler()
    model.save(tmp_path / "net.tpum")
    proof = export(str(tmp_path / "net.tpum"), tmp_path).proofs["out"]
    assert proof["model_sha256"] == hashlib.sha256((tmp_path / "net.tpum").read_bytes()).hexdigest()
    assert export(model, tmp_path).proofs["out"]["model_sha256"] is None


def test_the_script_of_the_export_has_the_same_passes(model, compiler, tmp_path):
    """``compile.sh`` and ``compile=True`` call the compiler with the same arguments, at every level.

    The last call of ``compile=True`` estimates cycles.
    """
    environment = compiler()
    for level in (0, 1):
        export(model, tmp_path, layer_groups=level)
        *compiled, estimated = calls_of(environment)
        assert any("embed_debug_info=True" in argument for argument in estimated)
        (environment.home / "calls").unlink()
        script = [str(tmp_path / "out" / "compile.sh")]
        variables = {"PATH": os.environ["PATH"], "TPU_MLIR_HOME": str(environment.home), "LAYER_GROUP_OPT": str(level)}
        assert os.spawnve(os.P_WAIT, script[0], script, variables) == 0
        assert calls_of(environment) == compiled
        assert any("--layer-group" in argument for call in compiled for argument in call) == (level > 0)
        (environment.home / "calls").unlink()


def test_wrong_integers_lead_to_the_next_level(model, compiler, tmp_path):
    compiler(wrong_at=[2, 1])
    result = export(model, tmp_path)
    proof = result.proofs["out"]
    assert outcomes(proof) == [(2, "differs"), (1, "differs"), (0, "accepted")]
    assert proof["level"] == 0 and (tmp_path / "out" / "net.bmodel").read_text().startswith("level 0")
    result.check()


def test_a_program_that_differs_at_every_level_is_not_a_success(model, compiler, tmp_path):
    compiler(wrong_at=[0, 1, 2, 3])
    result = export(model, tmp_path)
    proof = json.loads((tmp_path / "out" / "proof.json").read_text())
    assert not proof["is_accepted"] and proof["tensors"][0]["largest_difference"] in (3.0, 253.0)
    assert proof["differing"][0]["name"] == "d" and "1 of 4 values differ" in proof["differing"][0]["difference"]
    assert [level for level, _ in outcomes(proof)] == [2, 1, 0]
    assert "**The program differs" in (tmp_path / "out" / "README.md").read_text()
    assert "next:" not in str(result) and "differs" in str(result)
    with pytest.raises(ThresholdError, match="1 tensors of the compiled program differ, the first is 'd'"):
        result.check()


@pytest.mark.parametrize("with_checks", sampled([False, True], every=2))
def test_a_node_with_wrong_integers_is_left_to_the_host(with_checks, model, compiler, tmp_path):
    """The output d is wrong at every level; a program that returns every integer shows that c is right."""
    compiler(wrong_tensors=["d"])
    result = export(model, tmp_path, with_checks=with_checks)
    result.check()
    (node,) = result.manifest["host_nodes"]
    assert node["name"] == "d" and "computes other integers: 1 of 4 values differ" in node["reason"]
    kinds = {item["kind"]: item["equal"] for item in result.proofs["out"]["tensors"]}
    assert kinds == {"integers": 3 if with_checks else 1, "results of the host": 1}


@pytest.mark.slow
def test_a_missing_tensor_is_not_a_success(model, compiler, tmp_path):
    compiler(not_returned=["d"])
    result = export(model, tmp_path, layer_groups=2)
    assert result.proofs["out"]["differing"] == [{"name": "d", "difference": "missing"}]
    assert result.proofs["out"]["tensors"][0]["largest_difference"] is None


def test_a_failing_level_leads_to_the_next(model, compiler, tmp_path):
    compiler(fails_at=[2, 1])
    proof = export(model, tmp_path).proofs["out"]
    assert outcomes(proof) == [(2, "failed"), (1, "failed"), (0, "accepted")]
    assert "error: layer group of level 2" in proof["attempts"][0]["reason"]


def test_a_level_that_hangs_leads_to_the_next(model, compiler, tmp_path):
    environment = compiler(hangs_at=[2])
    proof = export(model, tmp_path, time_limit=1.0).proofs["out"]
    assert outcomes(proof) == [(2, "failed"), (1, "accepted")]
    assert "needed more than 1 s" in proof["attempts"][0]["reason"]
    number = int((environment.home / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_node_that_does_not_compile_is_left_to_the_host(model, compiler, tmp_path):
    """The compiler aborts in any program with the tensor c."""
    compiler(fails_at_tensors=["c"])
    progress = Lines()
    result = export(model, tmp_path, progress=progress)
    result.check()
    nodes = result.manifest["host_nodes"]
    assert [node["name"] for node in nodes] == ["c", "d"]
    assert (
        "ended with SIGABRT: compiler.cpp:12: void lower(): Assertion `x > 0' failed. in api_conv_local"
        in nodes[0]["reason"]
    )
    proof = result.proofs["out"]
    assert [item["kind"] for item in proof["tensors"]] == ["integers", "results of the host"]
    assert all(item["equal"] == 1 for item in proof["tensors"])
    assert proof["host_nodes"] == nodes
    assert any("lut 'c': the compiler ended with SIGABRT" in line for line in progress.lines)
    assert {"host.tpum", "net.bmodel", "proof.json"} <= {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.slow
def test_with_checks_the_search_returns_every_integer(model, compiler, tmp_path):
    compiler(fails_at_tensors=["b"])
    result = export(model, tmp_path, with_checks=True)
    assert [node["name"] for node in result.manifest["host_nodes"]] == ["b", "c", "d"]
    assert {output["name"] for output in result.manifest["outputs"]} == {"a"}


def test_an_earlier_export_stays_if_nothing_compiles(model, compiler, tmp_path):
    tc.export(model, tmp_path / "out", data=SAMPLES)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    compiler(fails_at_tensors=["a"])
    with pytest.raises(UnsupportedError) as error:
        export(model, tmp_path)
    (problem,) = error.value.problems
    assert (problem.kind.id, problem.op, problem.node) == ("TC3110", "lut", "a")
    assert "Assertion" in problem.message
    log = tmp_path / "out.compile.log"
    assert str(log) in problem.hint and b"Assertion" in log.read_bytes()
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.compile.log", "vendor"]


def test_a_log_that_cannot_be_written_hides_no_error(model, compiler, tmp_path, monkeypatch):
    compiler(fails_at_tensors=["a"])

    def replacing(path):
        raise UsageError("cannot be written: No space left on device", file=str(path))

    monkeypatch.setattr(compiled_export, "replacing", replacing)
    with pytest.raises(UnsupportedError, match="Assertion"):
        export(model, tmp_path)


@pytest.mark.slow
def test_each_shape_has_a_program_and_a_proof(compiler, tmp_path):
    """The log of a compiler that fails is beside the folder of all programs."""
    path = save_model(network(), tmp_path)
    options = tc.SourceOptions(shapes="1x3x32x32,1x3x48x64")
    model = tc.convert(path, chip="bm1684x", source_options=options)
    environment = compiler()
    result = tc.export(model, tmp_path / "out", compile=True)
    names = ["x_1x3x32x32", "x_1x3x48x64"]
    assert list(result.proofs) == result.manifest["programs"] == names
    assert all((tmp_path / "out" / name / "proof.json").exists() for name in names)
    plan = json.loads((environment.home / "plan.json").read_text())
    (environment.home / "plan.json").write_text(json.dumps({**plan, "fails_at": [0, 1, 2, 3]}))
    with pytest.raises(UnsupportedError):
        tc.export(model, tmp_path / "failed", compile=True, layer_groups=1)
    assert (tmp_path / "failed.compile.log").exists() and not (tmp_path / "failed").exists()


def test_an_empty_program_is_a_failure(model, compiler, tmp_path):
    compiler(writes_nothing=True)
    with pytest.raises(UnsupportedError, match="wrote no program"):
        export(model, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_simulator_that_crashes_is_a_failure(model, compiler, tmp_path):
    compiler(simulator_crashes=True)
    with pytest.raises(UnsupportedError, match="the simulator ended with code"):
        export(model, tmp_path, layer_groups=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("faults", [{"fails_at": [0, 1, 2]}, {"writes_nothing": True}, {"simulator_crashes": True}])
def test_a_full_disk_is_no_failure_of_the_compiler(faults, model, compiler, tmp_path, monkeypatch):
    environment = compiler(**faults)

    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(ResourceLimitError, match="No space left"):
        export(model, tmp_path)
    assert not (tmp_path / "out").exists()
    assert len({call[0] for call in calls_of(environment)}) <= 4  # one level


@pytest.mark.parametrize("limit", [float("nan"), 0.0, -1.0])
def test_a_time_limit_is_a_second_or_more(limit, model, tmp_path):
    with pytest.raises(UsageError, match="time limit"):
        export(model, tmp_path, time_limit=limit)
    model.save(tmp_path / "net.tpum")
    command = ["export", str(tmp_path / "net.tpum"), str(tmp_path / "out"), "--compile", f"--time-limit={limit}"]
    assert main(command) == 2 and not (tmp_path / "out").exists()


def test_an_interrupt_leaves_nothing(model, compiler, tmp_path):
    """The interrupt comes while the compiler runs; its process ends as well."""
    environment = compiler(hangs_at=[2])

    def interrupt():
        while not (environment.home / "pid").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore interrupts
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            export(model, tmp_path)
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["vendor"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((environment.home / "pid").read_text()), 0)


def test_a_terminated_command_leaves_nothing(model, compiler, tmp_path):
    """A service manager or a CI system ends a command with SIGTERM."""
    environment = compiler(hangs_at=[2])
    (tmp_path / "work").mkdir()
    model.save(tmp_path / "work" / "net.tpum")
    command = [sys.executable, "-m", "tpuconvert", "export", "net.tpum", "out", "--compile"]
    process = subprocess.Popen(command, cwd=tmp_path / "work", stderr=subprocess.DEVNULL)
    while not (environment.home / "pid").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["net.tpum"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((environment.home / "pid").read_text()), 0)


@pytest.mark.slow
def test_a_slow_simulator_names_the_option(model, compiler, tmp_path):
    environment = compiler()
    with open(environment.home / "python" / "pyruntime_bm.py", "a") as module:
        module.write("import time\ntime.sleep(600)\n")
    with pytest.raises(ResourceLimitError, match="needed more than 1 s for 1 sample") as error:
        export(model, tmp_path, time_limit=1.0)
    assert "--time-limit" in error.value.hint and "out.compile.log" in error.value.hint


def test_types_and_borders_are_those_of_the_export(compiler, tmp_path):
    """A program with integers at its borders, and a type that a chip does not have."""
    compiler()
    graph = Graph("net")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 4)))
    q = graph.add(RequantFp32ToInt(scale_val=2.0, out_dtype=DType.UINT8), x, name="q")
    y = graph.add(Lut(), q, graph.constant(np.arange(256, dtype=np.uint8)[::-1].copy(), "table"), name="y")
    q.quant = y.quant = QUANT
    graph.output(y)
    result = tc.export(model_of(graph), tmp_path / "out", integer_io=True, compile=True)
    exported = tc.export(model_of(graph), tmp_path / "plain", integer_io=True)
    assert result.manifest["inputs"] == exported.manifest["inputs"]
    assert result.manifest["inputs"][0]["device_dtype"] == "uint8"
    with pytest.raises(UsageError, match="does not compute floating-point operators in f16"):
        tc.export(model_of(graph, Chip.BM1684), tmp_path / "out", chip="bm1684", floats="f16", compile=True)


def test_the_host_takes_a_scalar_of_the_source(compiler, tmp_path):
    compiler()
    nodes = [helper.make_node("Mul", ["x", "s"], ["o"]), helper.make_node("Identity", ["s"], ["t"])]
    infos = {name: helper.make_tensor_value_info(name, 1, [1, 4] if name in "xo" else []) for name in "xsot"}
    graph = helper.make_graph(nodes, "net", [infos["x"], infos["s"]], [infos["o"], infos["t"]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    model = tc.convert(tmp_path / "net.onnx", chip="bm1684x")
    tc.export(model, tmp_path / "out", chip="bm1684x", compile=True).check()


def test_forms_without_a_compiler(model, tmp_path):
    with pytest.raises(UsageError, match="--compile with the form onnx"):
        tc.export(model, tmp_path / "out.onnx", to="onnx", compile=True)
    with pytest.raises(UsageError, match="--layer-groups without --compile"):
        tc.export(model, tmp_path / "out", layer_groups=1)


def test_a_log_without_a_message_names_functions(tmp_path):
    """Lines of a backtrace of the compiler, after a pass that printed an error."""
    log = tmp_path / "log"
    log.write_bytes(
        b"+ tpuc-opt first\nerror: of another call\n+ tpuc-opt second\nlib/libbackend_bm1688.so(+0x5e98a8) [0x7f]\n"
        b"lib/libbackend_bm1688.so(tpu_bdc_npu_bcast+0x64) [0x7f]\nlib/x.so(api_batch_matmul_local+0x83e) [0x7f]\n"
    )
    assert reason_in_log(log) == "in tpu_bdc_npu_bcast < api_batch_matmul_local"
