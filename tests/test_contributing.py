"""The pages of docs/inside/contributing, executed in a copy of the repository.

A block of Python or C++ that begins with a comment ``# path/of/file.py`` is that file. Blocks in ``bash`` are commands.
No other file is edited.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuconvert.optimizer.rule_order import ORDER

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "inside" / "contributing"
FOLDERS = ("converter", "examples", "frontends", "optimizer", "runtime", "schema", "tests", "tools", "docs")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LOOP_SECONDS = 10
"""Limit of the CPU time of one test command: the waiting time of a developer on an idle machine."""


class Page:
    """Files and commands of a page, by their heading."""

    def __init__(self, name: str) -> None:
        self.text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        file = r"^```(?:python|cpp)\n(?:#|//) ([\w/]+\.(?:py|cpp))\n(.*?)^```$"
        blocks = re.findall(file, self.text, re.DOTALL | re.MULTILINE)
        self.files = dict(blocks)

    def commands(self) -> list[str]:
        blocks = re.findall(r"^```bash\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        return [line for block in blocks for line in block.splitlines()]

    def tests(self) -> list[str]:
        return [command for command in self.commands() if command.startswith(".venv/bin/pytest ")]

    def generators(self) -> list[str]:
        return [command for command in self.commands() if command.startswith(".venv/bin/python -m tools.")]


class Copy:
    """A copy of the repository that is imported instead of the original."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ignored = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        for name in FILES:
            shutil.copy2(ROOT / name, root / name)
        self.environment = {**os.environ, "PYTHONPATH": str(root / "build" / "view")}
        self.original = self.content()

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            assert name not in self.original, f"{name} exists: the page must add a new file"
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text, encoding="utf-8")

    def restore(self) -> None:
        """Undo every change to the copy."""
        for name, data in self.content().items():
            if name not in self.original:
                (self.root / name).unlink()
            elif self.original[name] != data:
                (self.root / name).write_bytes(self.original[name])

    def changed_files(self) -> set[str]:
        content = self.content()
        return {name for name in {*content, *self.original} if content.get(name) != self.original.get(name)}

    def content(self) -> dict[str, bytes]:
        paths = [path for name in FOLDERS for path in (self.root / name).rglob("*") if path.is_file()]
        paths = [path for path in paths if "__pycache__" not in path.parts]
        return {
            str(path.relative_to(self.root)): path.read_bytes() for path in [*paths, *map(self.root.joinpath, FILES)]
        }

    def run(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the page in the environment that runs the tests."""
        view = [sys.executable, "-m", "tools.release.package_view", "build/view"]  # as an editable install
        subprocess.run(view, cwd=self.root, check=True, capture_output=True)
        words = command.split()
        if words[0] == ".venv/bin/pytest":
            words[:1] = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider"]
        elif words[0] == ".venv/bin/python":
            words[0] = sys.executable
        words = [word.replace("=.venv/bin/python", f"={sys.executable}") for word in words]
        return subprocess.run(words, cwd=self.root, env=self.environment | environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def shared_copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


@pytest.fixture
def copy(shared_copy: Copy) -> Iterator[Copy]:
    yield shared_copy
    shared_copy.restore()


def follow(copy: Copy, page: Page) -> list[str]:
    """Write the files of a page and run its test commands; return their outputs."""
    copy.write(page.files)
    outputs = []
    for command in page.tests():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = copy.run(command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        assert seconds < LOOP_SECONDS, f"{command} takes {seconds:.1f} s"
        outputs.append(done.stdout)
    assert copy.changed_files() == set(page.files)
    return outputs


def passed_count(output: str) -> int:
    found = re.search(r"(\d+) passed", output)
    return int(found[1]) if found else 0


def stale_pages(copy: Copy, page: Page) -> dict[str, str]:
    """Messages of the generator commands of a page, by command."""
    checks = {command: copy.run(f"{command} --check") for command in page.generators()}
    return {command: done.stderr for command, done in checks.items() if done.returncode}


def test_every_page_is_linked_and_followed() -> None:
    names = {page.stem for page in PAGES.glob("*.md")}
    assert names == set(
        re.findall(r"\(docs/inside/contributing/(\w+)\.md\)", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    )
    assert names == set(re.findall(r"contributing/(\w+)\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    assert names == set(re.findall(r'Page\("(\w+)"\)', Path(__file__).read_text("utf-8")))


@pytest.mark.slow
def test_operator_page(copy: Copy) -> None:
    page = Page("operator")
    definition, tests = page.files
    [output] = follow(copy, page)
    assert passed_count(output) == 3 * 2 + 1  # three cases by the definition and in a model, and the test of the file

    copy.root.joinpath(tests).unlink()  # the forgotten step
    forgotten = copy.run(".venv/bin/pytest tests/test_all_ops.py")
    assert f"soft_shrink has no case: write CASES in {tests}" in forgotten.stdout

    for command in page.generators():  # they also cure pages that were stale before
        assert copy.run(command).returncode == 0, command
    generated = copy.changed_files() - {definition}
    assert generated >= {
        "docs/reference/operators/soft_shrink.md",
        "docs/reference/operators/index.md",
        "docs/reference/supported-operators.md",
    }
    explained = copy.run(".venv/bin/python -m tpuconvert ops soft_shrink --chip bm1686")
    assert explained.returncode == 0, explained.stderr
    assert "y = sign(x) * max(|x| - limit, 0)" in explained.stdout
    assert "FLOAT32, FLOAT16, the same for all operands and results" in explained.stdout
    copy.root.joinpath("docs/reference/operators/soft_shrink.md").unlink()
    assert "docs/reference/operators/soft_shrink.md" in "".join(stale_pages(copy, page).values())


CONVERTER = '''
"""Soft shrinkage of the domain com.example."""

from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.soft_shrink import SoftShrink


@onnx_op("SoftShrink", domain="com.example", since=1)
def soft_shrink(node: OnnxNode, g: Graph) -> Result:
    """The operator of the same name."""
    return node.elementwise(g.add(SoftShrink(node.attr("limit", 0.5)), node.float_input()))
'''

END_TO_END = """
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.optimizer.grouping.slicing import rules
from tpuconvert.schema.definition.op import find_op

rng = np.random.default_rng(0)
weights = [rng.normal(size=(4, 4, 1, 1)).astype(np.float32) for _ in range(2)]
nodes = [
    helper.make_node("Conv", ["x", "w0"], ["a"]),
    helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 3, 1]),
    helper.make_node("SoftShrink", ["b"], ["c"], domain="com.example", limit=0.25),
    helper.make_node("Transpose", ["c"], ["d"], perm=[0, 3, 1, 2]),
    helper.make_node("Conv", ["d", "w1"], ["y"]),
]
ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 6, 6]) for name in "xy"]
constants = [numpy_helper.from_array(w, f"w{index}") for index, w in enumerate(weights)]
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
model = helper.make_model(helper.make_graph(nodes, "net", ports[:1], ports[1:], constants), opset_imports=opsets)
onnx.save(model, "net.onnx")
samples = [{"x": rng.normal(size=(1, 4, 6, 6)).astype(np.float32)} for _ in range(32)]


def expected(x):
    a = np.einsum("oi,nihw->nohw", weights[0][:, :, 0, 0], x)
    return np.einsum("oi,nihw->nohw", weights[1][:, :, 0, 0], np.sign(a) * np.maximum(np.abs(a) - 0.25, 0))


def check(model, decibels):
    for sample in samples[:4]:
        outputs = []
        for backend in ("reference", "native"):
            with tc.Session(model, backend=backend) as session:
                outputs.append(session.run(sample)["y"])
        wanted = expected(sample["x"])
        noise = np.square(wanted - outputs[1]).mean() / np.square(wanted).mean()
        assert -10 * np.log10(noise + 1e-30) > decibels, noise
        np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-5)
    return [node.op.name for node in model.graph.nodes]


floats = tc.convert("net.onnx", chip="bm1686")
assert check(floats, 100) == ["conv", "soft_shrink", "conv"]  # the transposes cancel across the operator
(node,) = [node for node in floats.graph.nodes if node.op.name == "soft_shrink"]
assert all(rules(node)), rules(node)  # layer groups tile it along N, C and H
integers = check(tc.convert("net.onnx", chip="bm1686", quantize="int8", calibration=samples), 25)
assert "lut" in integers and not {"soft_shrink", "permute"} & set(integers), integers
"""


def test_an_operator_and_its_converter_are_all_that_a_quantized_network_needs(copy: Copy) -> None:
    """The definition alone is sufficient for the INT8 form, tiling, optimization and execution of a new operator."""
    definition = next(iter(Page("operator").files.items()))
    files = dict([definition, ("frontends/onnx/operators/soft_shrink.py", CONVERTER)])
    copy.write(files)
    copy.root.joinpath("build").mkdir(exist_ok=True)
    copy.root.joinpath("build", "end_to_end.py").write_text(END_TO_END, encoding="utf-8")
    done = copy.run(".venv/bin/python build/end_to_end.py")
    assert done.returncode == 0, done.stderr
    assert copy.changed_files() == set(files)


@pytest.mark.slow
def test_converter_page(copy: Copy) -> None:
    page = Page("converter")
    outputs = follow(copy, page)
    assert [passed_count(output) for output in outputs] == [1, 1, 1]
    converters = {str(Path(name).parent) for name in page.files if not name.startswith("tests/")}
    assert converters == set(
        re.findall(r"`(frontends/\w+/\w+)`", page.text.split("\n## ")[0])
    )  # named at the beginning
    stale = stale_pages(copy, page)
    assert set(stale) == set(page.generators())
    assert all(f"run {command.removeprefix('.venv/bin/')}" in message for command, message in stale.items())


OPTION_IN_USE = """
import tpuconvert as tc
from tpuconvert.cli.entry import run

source, samples = "examples/digits/digits.onnx", "examples/digits/calibration.npz"
given = {"calibration": samples, "preprocess": "color=GRAY,scale=0.0625"}
model = tc.convert(source, quantize=tc.Quantization(effort="low", outlier_share=0.25), **given)
model.save("build/python.tpum")
with open("build/options.yaml", "w") as file:
    file.write("quantize: int8\\neffort: low\\noutlier_share: 0.25\\npreprocess: {color: GRAY, scale: 0.0625}\\n")
command = ["convert", source, "--calibration", samples]
assert run([*command, "--config", "build/options.yaml", "-o", "build/file.tpum"]) == 0
flags = ["--quantize", "int8", "--effort", "low", "--outlier-share", "0.25", "--preprocess", given["preprocess"]]
assert run([*command, *flags, "-o", "build/flag.tpum"]) == 0
for name in ("python", "file", "flag"):
    options = tc.load(f"build/{name}.tpum").metadata["recipe"]["options"]
    assert options == {"quantize": "int8", "effort": "low", "outlier_share": 0.25}, options
    assert tc.reproduce(f"build/{name}.tpum", source, calibration=samples).is_same
try:
    tc.convert(source, outlier_share=0.25)
except TypeError as error:
    assert str(error) == "outlier_share is a field of Quantization: quantize=tc.Quantization(outlier_share=...)"
assert run([*command[:2], "--outlier-share", "0.25"]) == 2  # without quantization
assert run([*command[:2], "--quantize", "int8", "--outlier-share", "1.5"]) == 2
"""


@pytest.mark.slow
def test_option_page(copy: Copy) -> None:
    """One field in one file is an option everywhere."""
    page = Page("option")
    [field] = re.findall(
        r"^```python\n# the last field of Quantization\n(.*?)^```$", page.text, re.DOTALL | re.MULTILINE
    )
    group = copy.root / "converter" / "conversion" / "options" / "quantization.py"
    before, rest = group.read_text("utf-8").split("\n    @property\n", 1)
    group.write_text(f"{before}{field}\n    @property\n{rest}", encoding="utf-8")
    copy.root.joinpath("build").mkdir(exist_ok=True)
    copy.root.joinpath("build", "option_in_use.py").write_text(OPTION_IN_USE, encoding="utf-8")
    done = copy.run(".venv/bin/python build/option_in_use.py")
    assert done.returncode == 0, done.stderr
    for command in ("convert", "quantize"):
        sections = copy.run(f".venv/bin/python -m tpuconvert {command} --help").stdout.split("\n\n")
        assert ["--outlier-share SHARE" in part for part in sections if part.startswith("Quantization:")] == [True]
    [test] = page.tests()
    assert passed_count(copy.run(test).stdout) == 1
    changed = {"converter/conversion/options/quantization.py"}
    assert copy.changed_files() == changed
    for command in page.generators():
        assert copy.run(command).returncode == 0, command
    assert copy.changed_files() - changed == {"docs/reference/commands.md", "docs/reference/python/convert.md"}
    checked = [sys.executable, "-m", "ruff", "check", *changed]
    assert subprocess.run(checked, cwd=copy.root, capture_output=True).returncode == 0


@pytest.mark.slow
def test_command_page(copy: Copy) -> None:
    page = Page("command")
    copy.write(page.files)
    last = r'^```python\n# the last line of "Extend" in COMMAND_GROUPS\n(.*?)^```$'
    [line] = re.findall(last, page.text, re.DOTALL | re.MULTILINE)
    group = copy.root / "converter" / "cli" / "group.py"
    before, rest = group.read_text("utf-8").split("\n    },\n}\n", 1)

    command = ".venv/bin/pytest tests/converter/cli/test_group.py -k modules_of_the_folder"
    assert "COMMAND_GROUPS in converter/cli/group.py" in copy.run(command).stdout  # the forgotten step
    group.write_text(f"{before}\n{line}    }},\n}}\n{rest}", encoding="utf-8")
    assert passed_count(copy.run(command).stdout) == 1
    [test] = page.tests()
    assert passed_count(copy.run(test).stdout) == 1
    assert "Print the digest of a model file." in copy.run(".venv/bin/python -m tpuconvert --help").stdout
    assert copy.changed_files() == {*page.files, "converter/cli/group.py"}
    for name, table in re.findall(r"`(\w+)` in `([\w/]+\.py)`", page.text):
        assert re.search(rf"^{name}\b", (copy.root / table).read_text("utf-8"), re.MULTILINE), f"{table} has no {name}"


@pytest.mark.slow
def test_rule_page(copy: Copy) -> None:
    page = Page("rule")
    _, pattern = page.files
    [output] = follow(copy, page)
    assert passed_count(output) >= 2
    copy.root.joinpath(pattern).unlink()  # the forgotten step
    forgotten = copy.run(".venv/bin/pytest tests/optimizer/engine/test_every_rule.py -k has_a_pattern")
    assert "remove_negation_before_cos" in forgotten.stdout
    assert "add a function with @pattern to tests/support/rules/*_patterns.py" in forgotten.stdout
    assert [stage for stage in ORDER if f"`{stage}`" not in page.text] == []


@pytest.mark.slow
def test_head_page(copy: Copy) -> None:
    page = Page("head")
    head, _ = page.files
    [output] = follow(copy, page)
    assert passed_count(output) == 1
    assert list(stale_pages(copy, page)) == page.generators()
    options = copy.run(".venv/bin/python -m tpuconvert run --help")
    assert head == "converter/outputs/heads/rtdetr.py" and "rtdetr" in options.stdout


@pytest.mark.slow
def test_kernel_page(copy: Copy) -> None:
    programs = Path(sys.executable).parent
    if not (programs / "cmake").exists() or shutil.which("c++") is None:
        pytest.skip("cmake or a C++ compiler is missing")
    copy.write(Page("operator").files)
    page = Page("kernel")
    copy.write(page.files)
    configure, build, test, _generate = page.commands()
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    for command in (configure, build):
        done = copy.run(command, PATH=path)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    [library] = copy.root.glob("build/native/_native*.so")
    done = copy.run(test, TPUCONVERT_NATIVE_LIBRARY=str(library))
    assert done.returncode == 0, done.stdout
    assert passed_count(done.stdout) == 3

    copy.root.joinpath("runtime/native/matchers/soft_shrink.py").unlink()  # the forgotten step
    command = ".venv/bin/pytest tests/runtime/native/matchers/test_kernel_table.py -k named_by_a_matcher"
    forgotten = copy.run(command, TPUCONVERT_NATIVE_LIBRARY=str(library))
    assert "soft_shrink_float32" in forgotten.stdout


def test_files_of_the_pages_pass_the_linter(copy: Copy) -> None:
    files: dict[str, str] = {}
    for path in PAGES.glob("*.md"):
        files |= {name: text for name, text in Page(path.stem).files.items() if name.endswith(".py")}
    copy.write(files)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *files], cwd=copy.root, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
