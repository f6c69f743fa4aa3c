"""Every example of README.md and docs/ runs, links lead somewhere, and the README begins with its make targets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tpuconvert.schema import errors

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("bash", "python")
"""Languages of the blocks that are run. A Python block that begins with a comment ``# name.py`` is that file."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every block of a page that is run."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [(language, text) for language, text in found if language in RUN]


LONG = {
    *("attribution", "caffe", "ci", "command-line", "device", "diff", "drawing", "engine", "evaluation", "grouping"),
    *("numerics", "onnx", "onnx-export", "optimizer", "plugins", "preprocessing", "quantization", "reduce", "report"),
    *("security", "tflite", "tuning", "tutorial"),
}
"""Pages whose examples run at night: 1 to 20 s of CPU time each. Their commands have tests of their own."""

EXAMPLES = [(page, number) for page in PAGES for number in range(len(blocks(page)))]


@pytest.fixture(scope="module")
def folders(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """A folder per page with the files that its examples read: examples/, and for the README a network."""
    made = {page: tmp_path_factory.mktemp(page.stem) for page in PAGES}
    for folder in made.values():
        (folder / "examples").symlink_to(repository / "examples", target_is_directory=True)
    return made


@pytest.fixture(scope="module")
def folder(folders: dict[Path, Path]) -> Path:
    """The folder of the README, with a network that has a custom operator."""
    folder = folders[README]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])
    node = helper.make_node("Swish", ["x"], ["y"], name="swish_0", domain="com.acme", beta=2.0)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.acme", 1)]
    onnx.save(
        helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets),
        folder / "net_with_swish.onnx",
    )
    np.save(folder / "x.npy", np.array([[-2, -1, 0, 1, 2]], np.float32))
    return folder


def test_long_pages_exist() -> None:
    assert {page.stem for page, _ in EXAMPLES} >= LONG


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("page", "number"),
    [
        pytest.param(page, number, id=f"{page.stem}-{number}", marks=pytest.mark.slow if page.stem in LONG else ())
        for page, number in EXAMPLES
    ],
)
def test_example_runs(page: Path, number: int, folders: dict[Path, Path]) -> None:
    """Run in the order of the page: later examples use the files of earlier ones."""
    folder = folders[page]
    language, text = blocks(page)[number]
    named = re.match(r"# (\w+\.py)\n", text)
    if language == "python" and named:
        (folder / named[1]).write_text(text, encoding="utf-8")
        return
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = {"bash": ["bash", "-e", "-c", text], "python": [sys.executable, "-c", text]}[language]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_custom_operator_computes_what_it_says(folder: Path) -> None:
    """Runs after the examples above: the model with the plugin's operator, compared with the formula."""
    code = """
import numpy as np, tpuconvert as tc
from tpuconvert.plugins import load_plugins
load_plugins(["swish.py"])
x = np.load("x.npy")
with tc.Session(tc.load("net.tpum")) as session:
    y = session.run({"x": x})["y"]
np.testing.assert_allclose(y, x / (1 + np.exp(-2.0 * x)), rtol=1e-6)
"""
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def test_model_with_a_custom_operator_says_what_is_missing(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tpuconvert", "run", "net.tpum", "x.npy"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 4, done.stderr
    assert "the model needs: swish; load it with --plugin" in done.stderr


def test_first_commands_are_demo_and_test() -> None:
    commands = re.findall(r"^    (make \w+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]


def test_links_lead_somewhere(repository: Path) -> None:
    for page in (*PAGES, repository / "CONTRIBUTING.md", repository / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_exit_codes_are_those_of_the_errors() -> None:
    text = (ROOT / "docs" / "exit_codes.md").read_text(encoding="utf-8")
    told = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)`", text, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    mine = {kind.__name__: kind.exit_code for kind in kinds if issubclass(kind, errors.TpuConvertError)}
    assert told.items() <= mine.items()
    assert set(told.values()) == set(mine.values())
    for kind in told:
        assert hasattr(tc, kind)


def test_every_page_can_be_found() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", README.read_text(encoding="utf-8")))
    assert linked == {page.name for page in PAGES if page != README}
