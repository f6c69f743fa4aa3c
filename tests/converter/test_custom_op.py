"""The example plugin: an operator with converter, integer form and native kernel, a rule, a calibrator and a metric."""

import dataclasses
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.sampled import sampled

SAMPLES = 12


def compiler() -> list[str] | None:
    """The C compiler that Python was built with, or another one that is installed."""
    named = (sysconfig.get_config_var("CC") or "cc").split()
    return next(([path] for path in (shutil.which(named[0]), shutil.which("cc")) if path), None)


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as an installed package. Its kernel is compiled if there is a compiler."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(repository / "examples" / "custom_op" / "acme_tpu", folder / "acme_tpu")
    info = folder / "acme_tpu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tpu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tpuconvert.plugins]\nacme = acme_tpu.channel_gate\nacme_tuning = acme_tpu.tuning\n"
    )
    cc = compiler()
    if cc is not None:
        source, target = folder / "acme_tpu" / "channel_gate.c", folder / "acme_tpu" / "_channel_gate.so"
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", f"-I{tc.include_folder()}"]
        subprocess.run([*cc, *flags, str(source), "-o", str(target)], check=True)
    return folder


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a gate whose opening depends on the second input, and another convolution."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("network")
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="conv_0", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("ChannelGate", ["a", "gate"], ["b"], name="gate_0", domain="com.acme", limit=0.25),
        helper.make_node("ChannelGate", ["b", "gate"], ["c"], name="gate_1", domain="com.acme", limit=0.5),
        helper.make_node("Conv", ["c", "w1"], ["y"], name="conv_1", kernel_shape=[1, 1]),
    ]
    weights = {"w0": rng.normal(size=(4, 3, 3, 3)), "w1": rng.normal(size=(2, 4, 1, 1))}
    constants = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8]),
        helper.make_tensor_value_info("gate", TensorProto.FLOAT, [1, 4]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 8, 8])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "net.onnx")
    np.savez(
        folder / "samples.npz",
        x=rng.normal(size=(SAMPLES, 3, 8, 8)).astype(np.float32),
        gate=rng.uniform(size=(SAMPLES, 4)).astype(np.float32),
    )
    return folder


def run(site: Path | None, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command in a separate process, with or without the plugin installed."""
    environment = {**os.environ, "PYTHONPATH": str(site) if site else ""}
    command = [sys.executable, "-m", "tpuconvert", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def python(site: Path, folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def float_model(site: Path, network: Path) -> subprocess.CompletedProcess[str]:
    """Convert the network to float.tpum in its folder."""
    done = run(site, network, "convert", "net.onnx", "-o", "float.tpum")
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_installing_it(repository: Path, tmp_path: Path) -> None:
    package, target = tmp_path / "package", tmp_path / "target"
    shutil.copytree(repository / "examples" / "custom_op", package)
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--target", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(package)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = run(target, tmp_path, "ops", "--json").stdout
    assert '"acme_channel_gate"' in listed
    assert '"acme_channel_gate_int"' in listed
    if compiler():
        done = run(target, target, "op", "test", "acme_tpu/channel_gate.py", "--require-native")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "equals the reference" in done.stdout


def test_the_operators_pass_their_tests(site: Path) -> None:
    require = ["--require-native"] if compiler() else []
    done = run(site, site, "op", "test", "acme_tpu/channel_gate.py", *require)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in done.stdout.splitlines()[1:]:
        assert " FAILED " not in line
    assert "acme_channel_gate_int is within 0." in done.stdout
    if require:
        assert "equals the reference (acme_channel_gate)" in done.stdout


def test_from_source_to_result(site: Path, network: Path, float_model: subprocess.CompletedProcess[str]) -> None:
    assert "acme_channel_gate " in float_model.stdout + " "  # the rule of the plugin merged two gates
    assert "acme_channel_gate x2" not in float_model.stdout
    done = run(site, network, "verify", "net.onnx", "float.tpum", "--metric", "acme_worst_channel<=1e-4")
    assert done.returncode == 0, done.stderr
    assert "acme_worst_channel of 'y'" in done.stdout
    done = run(site, network, "verify", "net.onnx", "float.tpum", "--metric", "acme_worst_channel<=-1")
    assert done.returncode == 5
    assert "acme_worst_channel of 'y'" in done.stderr


def test_quantized(site: Path, network: Path) -> None:
    done = run(
        site, network, "convert", "net.onnx", "-o", "int8.tpum", "--quantize", "int8", "--calibration", "samples.npz",
        "--calibration-method", "acme_percentile",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "acme_channel_gate_int" in done.stdout
    done = run(site, network, "verify", "net.onnx", "int8.tpum", "--data", "samples.npz")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("float_model")
def test_native_kernel_in_a_session(site: Path, network: Path) -> None:
    """The kernel gives the bytes of the reference. It counts its calls."""
    if compiler() is None:
        pytest.skip("no C compiler")
    code = """
import numpy as np, tpuconvert as tc
from tpuconvert.runtime.custom_kernel import NativeKernel
calls, run = [], NativeKernel.run
NativeKernel.run = lambda self, *a: (calls.append(self.symbol), run(self, *a))[1]
model = tc.load("float.tpum")
rng = np.random.default_rng(1)
feeds = {"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32), "gate": np.array([[0.1, 0.6, 0.5, 0.51]], np.float32)}
for threads in (1, 2):
    one = tc.Session(model, backend="reference").run(feeds)["y"]
    assert not calls
    session = tc.Session(model, threads=threads)
    other = session.run(feeds)["y"]
    if session.backend == "native":
        assert calls == ["acme_channel_gate"], calls
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        [step] = [step for step in session.profile(feeds) if "acme" in step.kind]
        assert (step.kind, step.is_reference) == ("custom acme_channel_gate", False)
    calls.clear()
"""
    done = python(site, network, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("float_model")
def test_without_the_plugin(site: Path, network: Path) -> None:
    done = run(None, network, "inspect", "float.tpum")
    assert done.returncode == 4
    assert "acme_channel_gate" in done.stderr
    assert "the model needs: acme_tpu.channel_gate; load it with --plugin FILE.py, or install it" in done.stderr
    done = run(None, network, "convert", "net.onnx", "-o", "x.tpum")
    assert done.returncode == 3
    assert not (network / "x.tpum").exists()
    done = run(None, network, "verify", "net.onnx", "float.tpum", "--metric", "acme_worst_channel")
    assert done.returncode == 2
    assert "--plugin" in done.stderr


BROKEN = """
from dataclasses import dataclass
import numpy as np
import tpuconvert as tc


@tc.register_op("acme_broken")
@dataclass(frozen=True)
class Broken(tc.Op):
    factor: float = 2.0
    inputs = (tc.Operand("x"),)

    def infer(self, x):
        return (x,)

    def reference(self, x):
        {reference}

    {more}
"""
EXAMPLES = "@staticmethod\n    def examples():\n        yield Broken(), ((2, 3),)\n"


@pytest.mark.parametrize(
    ("reference", "more", "complaint"),
    sampled(
        [
            ("return (x,)", "", "acme_broken has no examples"),
            ("return (x,)", "@staticmethod\n    def examples():\n        yield Broken()\n", "an example is"),
            ("return (x.astype(np.float64),)", EXAMPLES, "ValueError"),
            ("return (x[:1],)", EXAMPLES, "the reference gives FLOAT32[1, 3]"),
            ("x += 1; return (x,)", EXAMPLES, "differs"),
            ("return (x,)", EXAMPLES + "    quantized = lambda self, x, y: Broken()\n", None),
            (
                "return (x * 2,)",
                EXAMPLES + "    def quantized(self, x, y): return Wrong()\n",
                "steps away from the float reference",
            ),
            ("return (x,)", EXAMPLES + "    native = tc.NativeKernel('f', 'nowhere.so')\n", "not built"),
        ],
        every=2,
    ),
)
def test_op_test_finds_mistakes(tmp_path: Path, reference: str, more: str, complaint: str | None) -> None:
    text = BROKEN.format(reference=reference, more=more)
    text += """

@tc.register_op("acme_wrong")
@dataclass(frozen=True)
class Wrong(Broken):
    def reference(self, x):
        return (np.zeros_like(x),)
"""
    (tmp_path / "plugin.py").write_text(text)
    done = run(None, tmp_path, "op", "test", "plugin.py")
    if complaint is None:
        assert "within 0.00 steps" in done.stdout, done.stderr
    else:
        assert complaint in done.stdout, done.stdout + done.stderr
    assert done.returncode in (0, 5)
    assert (done.returncode == 5) == ("FAILED" in done.stdout)


def test_op_test_as_json_and_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    done = run(None, tmp_path, "op", "test", "empty.py")
    assert done.returncode == 2
    assert "registers no operator" in done.stderr
    assert run(None, tmp_path, "op", "test", "absent.py").returncode == 2
    (tmp_path / "plugin.py").write_text(BROKEN.format(reference="return (x,)", more=EXAMPLES))
    done = run(None, tmp_path, "op", "test", "plugin.py", "--json")
    assert done.returncode == 0, done.stderr
    assert '"test": "save and load"' in done.stdout


def test_names_that_are_taken(tmp_path: Path) -> None:
    for register in ("register_calibrator", "register_metric"):
        code = f"import tpuconvert as tc\ntc.{register}('a')(int)\ntc.{register}('a')(int)\n"
        (tmp_path / "twice.py").write_text(code)
        done = run(None, tmp_path, "ops", "--plugin", "twice.py")
        assert done.returncode == 2
        assert "'a' already" in done.stderr
    (tmp_path / "mse.py").write_text("import tpuconvert as tc\ntc.register_calibrator('mse')(int)\n")
    assert run(None, tmp_path, "ops", "--plugin", "mse.py").returncode == 2
    (tmp_path / "stage.py").write_text("import tpuconvert as tc\ntc.register_rule(stage='never')\n")
    assert "canonicalize" in run(None, tmp_path, "ops", "--plugin", "stage.py").stderr


@dataclasses.dataclass(frozen=True)
class _Parameters:
    name = "test"
    numbers: tuple[int, ...] = (1, 2)
    reals: tuple[float, ...] = (0.5,)
    text: str = "ü"
    flag: bool = True
    absent: None = None
    dtype: tc.DType = tc.DType.INT8

    def attributes(self):
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}


def test_parameters_and_errors_of_c(tmp_path: Path) -> None:
    cc = compiler()
    if cc is None:
        pytest.skip("no C compiler")
    (tmp_path / "k.c").write_text("""
#include <tpuconvert_custom.h>
#include <stdio.h>
TPUCONVERT_KERNEL int describe(const tpuconvert_tensor *x, int32_t n, const tpuconvert_tensor *y, int32_t m,
                               const tpuconvert_parameter *p, int32_t count, char *message, int64_t size) {
  (void)y; (void)m;
  snprintf(message, (size_t)size, "%d %d %d %d %d %g %s %d %d %d", (int)n, x[0].dtype, x[1].dtype, count,
           (int)tpuconvert_find(p, count, "numbers")->integers[1], tpuconvert_find(p, count, "reals")->reals[0],
           tpuconvert_find(p, count, "text")->text, (int)tpuconvert_find(p, count, "flag")->integer,
           tpuconvert_find(p, count, "absent")->kind, (int)tpuconvert_find(p, count, "dtype")->integer);
  return 3;
}
""")
    library = tmp_path / "k.so"
    subprocess.run(
        [*cc, "-shared", "-fPIC", f"-I{tc.include_folder()}", str(tmp_path / "k.c"), "-o", str(library)], check=True
    )
    kernel = tc.NativeKernel("describe", library)
    operands = [np.zeros((2, 2), np.uint8), None]
    with pytest.raises(tc.RunError, match=r"2 8 0 6 2 0\.5 ü 1 0 7"):
        kernel.run(_Parameters(), operands, [])
    with pytest.raises(tc.UsageError, match="build the kernel"):
        tc.NativeKernel("no_such_function", library).run(_Parameters(), operands, [])
    with pytest.raises(tc.UsageError, match="numbers, which is a bytes"):
        kernel.run(_Parameters(numbers=b"x"), operands, [])
