"""Every error ID has a command that raises it and a documentation page."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.sampled import sampled
from tests.support.vendor.fake_compiler import make_fake_compiler
from tpuconvert.__main__ import main
from tpuconvert.schema import errors
from tpuconvert.schema.errors import ProblemKind, TpuConvertError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.file.file_writer import write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.compare import Eq
from tpuconvert.schema.types import Chip, DType, QuantParams, TensorType

Captured = pytest.CaptureFixture[str]
Call = list[str]

KINDS = {kind.id: kind for kind in vars(errors).values() if isinstance(kind, ProblemKind)}
EXCEPTIONS = {
    kind.id: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TpuConvertError) and kind.__module__ == errors.__name__
}


def network(
    op: str, inputs: dict[str, list[int | str]], opset: int = 17, element: int = TensorProto.FLOAT, **attributes: object
) -> str:
    """Write a file with one ONNX node."""
    ports = [helper.make_tensor_value_info(name, element, shape) for name, shape in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(op, list(inputs), ["y"], name="node_0", **attributes)
    graph = helper.make_graph([node], "g", ports, [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), "net.onnx")
    return "net.onnx"


def no_operator() -> Call:
    return ["check", network("NoSuchOperator", {"x": [1, 4]})]


def unsupported_attribute() -> Call:
    return ["check", network("Relu", {"x": [1, 4]}, nonsense=3)]


def unsupported_type() -> Call:
    return ["check", network("Relu", {"x": [1, 4]}, element=TensorProto.COMPLEX64)]


def unknown_shape() -> Call:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="node_0")], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "net.onnx")
    return ["check", "net.onnx"]


def invalid_node() -> Call:
    return ["check", network("Add", {"a": [1, 4], "b": [1, 5]})]


def illegal_on_chip() -> Call:
    return ["check", network("BitwiseAnd", {"a": [1, 4], "b": [1, 4]}, 18, TensorProto.INT32), "--chip", "bm1682"]


def too_large() -> Call:
    return ["check", network("Relu", {"x": [1 << 30, 1 << 30, 1 << 30]})]


def error_of_a_plugin() -> Call:
    Path("strict.py").write_text(
        "import tpuconvert as tc\n\n\n@tc.register_metric('strict')\ndef strict(wanted, found):\n"
        "    raise tc.TpuConvertError('has no opinion about a single number')\n"
    )
    _convert_net()
    return ["verify", "net.onnx", "net.tpum", "--oracle", "none", "--metric", "strict", "--plugin", "strict.py"]


def rule(does: str) -> Call:
    """Write a network, and a plugin with an optimizer rule that fires on it."""
    Path("wrong.py").write_text(
        "import numpy as np\nimport tpuconvert as tc\nfrom tpuconvert.schema.ops.activation import Active\n"
        "from tpuconvert.schema.ops.arithmetic import Add\n\n\n"
        "@tc.register_rule(tc.pattern(Active, 'x', name='active'), stage='fuse')\ndef acme_wrong(g, m):\n"
        f"    return {does}\n"
    )
    return ["convert", network("Sigmoid", {"x": [1, 4]}), "--plugin", "wrong.py"]


def internal_error() -> Call:
    return ["convert", network("Sigmoid", {"x": [1, 4]})]


def mistake_of_a_plugin() -> Call:
    return rule("1 / 0")


def failing_operator() -> Call:
    Path("fussy.py").write_text(
        "from dataclasses import dataclass\nimport tpuconvert as tc\n\n\n@tc.register_op('fussy')\n"
        "@dataclass(frozen=True)\nclass Fussy(tc.Op):\n    '''y = x.'''\n\n    inputs = (tc.Operand('x'),)\n\n"
        "    def infer(self, x):\n        return (x,)\n\n    def reference(self, x):\n"
        "        raise ValueError('does not like these numbers')\n\n\n"
        "@tc.register_converter('onnx', 'Fussy')\ndef convert(node, g):\n    return g.add(Fussy(), node.input(0))\n"
    )
    plugin = ["--plugin", "fussy.py"]
    _convert_net("Fussy", plugin)
    return ["run", "net.tpum", _samples(), *plugin]


def usage() -> Call:
    return ["check", "absent.onnx"]


def shapes_that_do_not_fit() -> Call:
    return rule("g.add(Add(), m.x, g.constant(np.zeros((1, 3), np.float32)))")


def does_not_compile() -> Call:
    """A compiler that fails in every program."""
    make_fake_compiler(Path("vendor", "tpu_mlir"), fails_at=[0, 1, 2, 3])
    _convert_net()
    return ["export", "net.tpum", "out", "--compile"]


def corrupt() -> Call:
    Path("net.onnx").write_bytes(b"<html>404</html>")
    return ["check", "net.onnx"]


def two_contents() -> Call:
    network("Relu", {"x": [1, 4]})
    model = onnx.load("net.onnx")
    constant = helper.make_tensor("w", TensorProto.FLOAT, [4], bytes(16), raw=True)
    constant.float_data.extend([1.0] * 4)
    model.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"], name="node_0"))
    model.graph.initializer.append(constant)
    onnx.save(model, "net.onnx")
    return ["check", "net.onnx"]


def threshold() -> Call:
    network("Transpose", {"x": [1, 2, 3, 4]}, perm=[0, 2, 3, 1])
    return ["convert", "net.onnx", "--max-transposes", "0"]


def not_finite() -> Call:
    constant = helper.make_tensor("k", TensorProto.FLOAT, [4], [1.0, float("nan"), 2.0, 3.0])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    nodes = [helper.make_node("Mul", ["x", "k"], ["y"], name="node_0")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [constant])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "net.onnx")
    return ["check", "net.onnx"]


def no_exact_form() -> Call:
    graph = Graph("net")
    x = graph.input("x", TensorType(DType.UINT8, (1, 4)), quant=QuantParams.per_tensor(0.5, 0, DType.UINT8))
    graph.output(graph.add(Eq(), x, x))
    write_model("net.tpum", FileModel(graph, Chip.BM1686, "0", "int8"))
    return ["export", "net.tpum", "exported"]


def nan_output() -> Call:
    return ["convert", network("Sqrt", {"x": [1, 4]}), "--verify"]  # half of the random samples are negative


def resource_limit() -> Call:
    return ["convert", network("Relu", {"x": [1, 4]})]


def missing_extra() -> Call:
    Path("cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    _convert_net()
    return ["run", "net.tpum", "cat.png", "--preprocess", "color=GRAY"]


def _convert_net(op: str = "Relu", plugin: Call | None = None) -> None:
    """Convert net.onnx to net.tpum."""
    network(op, {"x": [1, 1, 2, 2]})
    call = ["convert", "net.onnx", "-o", "net.tpum"]
    if plugin is None:
        assert main(call) == 0
        return
    command = [sys.executable, "-m", "tpuconvert", *call, *plugin]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _samples() -> str:
    np.save("x.npy", np.zeros((1, 1, 2, 2), np.float32))
    return "x.npy"


CALLS: dict[str, Callable[[], Call]] = {
    "TC1000": error_of_a_plugin,
    "TC1001": internal_error,
    "TC1002": failing_operator,
    "TC2001": usage,
    "TC2002": mistake_of_a_plugin,
    "TC3001": shapes_that_do_not_fit,
    "TC3100": no_operator,
    "TC3101": no_operator,
    "TC3102": unsupported_attribute,
    "TC3103": unsupported_type,
    "TC3104": unknown_shape,
    "TC3105": invalid_node,
    "TC3106": illegal_on_chip,
    "TC3107": too_large,
    "TC3108": not_finite,
    "TC3109": no_exact_form,
    "TC3110": does_not_compile,
    "TC4001": corrupt,
    "TC4003": two_contents,
    "TC5001": threshold,
    "TC5002": nan_output,
    "TC6001": resource_limit,
    "TC7001": missing_extra,
}
CIRCUMSTANCES = {
    "TC1001": "import tpuconvert.cli.commands.convert as module; module.convert_files = None",
    "TC3110": "import os; os.environ |= {'TPU_MLIR_HOME': 'vendor/tpu_mlir', 'VENDOR_PYTHON': 'vendor/python3.10'}",
    "TC6001": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))",  # limit file sizes to 100 bytes
    "TC7001": "sys.modules['PIL'] = None",
}
START = "from tpuconvert.__main__ import main; sys.exit(main())"


def run(number: str, call: Call, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code and both outputs.

    Calls with circumstances or plugins have their own process: plugins stay loaded, and one contains a broken rule.
    """
    if number in CIRCUMSTANCES or any(word.endswith(".py") for word in call):
        code = f"import sys; {CIRCUMSTANCES.get(number, '')}; {START}".replace("; ;", ";")
        done = subprocess.run([sys.executable, "-c", code, *call], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr
    capsys.readouterr()
    return main(call), *capsys.readouterr()


@pytest.mark.parametrize("number", sampled(CALLS, every=2))
def test_id_is_told(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, shown, told = run(number, [*CALLS[number](), "--json"], capsys)
    error = json.loads(shown)["error"]
    assert number in {error["id"], *(problem["id"] for problem in error["problems"])}
    assert number in told
    # Progress lines may precede it on a slow machine.
    assert re.search(rf"^error\[{error['id']}\]: ", told, re.MULTILINE), told
    assert exit_code == error["exit_code"] == EXCEPTIONS[error["id"]].exit_code
    if number in KINDS:
        [problem] = error["problems"]
        assert (problem["id"], problem["kind"]) == (number, KINDS[number].heading)


def test_every_id_has_a_call_and_a_page(repository: Path) -> None:
    ids = {*EXCEPTIONS, *KINDS}
    assert set(CALLS) == ids
    assert {page.stem for page in (repository / "docs" / "reference" / "errors").glob("*.md")} == ids
    index = (repository / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    linked = re.findall(r"^\| \[(TC\d{4})\]\(errors/(TC\d{4})\.md\) \| (\d) \|", index, re.MULTILINE)
    codes = {**dict.fromkeys(KINDS, 3), **{number: kind.exit_code for number, kind in EXCEPTIONS.items()}}
    assert {(first, second, int(code)) for first, second, code in linked} == {(n, n, c) for n, c in codes.items()}


@pytest.mark.parametrize("number", CALLS)
def test_page_says_what_it_is_and_what_to_do(number: str, repository: Path) -> None:
    text = (repository / "docs" / "reference" / "errors" / f"{number}.md").read_text(encoding="utf-8")
    name = KINDS[number].heading if number in KINDS else EXCEPTIONS[number].__name__
    assert text.startswith(f"# {number}: {name}\n")
    assert "```text\n" in text
    assert number in text.split("```text\n")[1].split("```")[0]
    assert "\n## Next steps\n" in text


def test_text_and_json_are_one_error(capsys: Captured) -> None:
    assert main([*no_operator()]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1] == "  about these: TC3101 (no TPU operator)"
    assert main(["check", "--json", "absent.onnx"]) == 2
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert shown.err == f"error[TC2001]: {error['message']}\n" + (f"    {error['hint']}\n" if error["hint"] else "")
