"""CONTRIBUTING.md, "Add an operator in one sitting", followed to the letter in a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("converter", "examples", "frontends", "optimizer", "runtime", "schema", "tests", "tools", "docs")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
NAME = "soft_shrink"
GENERATORS = {"operator_pages": f"docs/operators/{NAME}.md", "readme_tables": "README.md"}
"""Tools that the page names, and what each of them finds out of date."""


def section() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.split("\n## Add an operator in one sitting\n")[1].split("\n## ")[0]


def told_files() -> dict[str, str]:
    """The files of the page: a block of Python that begins with a comment holds what stands behind it."""
    blocks = re.findall(r"^```python\n# ([\w/]+\.py)\n(.*?)^```$", section(), re.DOTALL | re.MULTILINE)
    return dict(blocks)


def told_commands() -> list[str]:
    [block] = re.findall(r"^```bash\n(.*?)^```$", section(), re.DOTALL | re.MULTILINE)
    return block.splitlines()


class Copy:
    """A copy of the repository that is imported instead of the repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ignored = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        for name in FILES:
            shutil.copy2(ROOT / name, root / name)
        self.environment = {**os.environ, "PYTHONPATH": str(root / "build" / "view"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """A command of the page; programs of ``.venv`` are those of the environment that runs the tests."""
        self.view()
        words = command.replace(".venv/bin/pytest", ".venv/bin/python -m pytest").split()
        if words[0] == ".venv/bin/python":
            words[:1] = [sys.executable, *(["-P"] if words[1] == "-m" else [])]  # the folder itself is no import path
        if "pytest" in words:  # only the tests that hold for every operator, and the new file
            words += ["-q", "-p", "no:cacheprovider", "tests/test_all_ops.py", "tests/schema/test_file_format.py"]
            words += [str(path.relative_to(self.root)) for path in self.root.glob(f"tests/ops/test_{NAME}.py")]
        return subprocess.run(words, cwd=self.root, env=self.environment, capture_output=True, text=True)

    def view(self) -> None:
        """Lay the folders out under the import name, as an editable install does."""
        made = [sys.executable, "tools/package_view.py", "build/view"]
        subprocess.run(made, cwd=self.root, check=True, capture_output=True)

    def content(self) -> dict[str, bytes]:
        folders = [self.root / name for name in FOLDERS]
        paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        paths += [self.root / name for name in FILES]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    made = Copy(tmp_path_factory.mktemp("copy"))
    for tool in GENERATORS:  # what is out of date already is not the page's fault, and has tests of its own
        done = made.run(f".venv/bin/python tools/{tool}.py")
        assert done.returncode == 0, done.stderr
    return made


def test_an_operator_is_one_definition_and_one_test_file() -> None:
    assert list(told_files()) == [f"schema/ops/{NAME}.py", f"tests/ops/test_{NAME}.py"]
    assert not any((ROOT / name).exists() for name in told_files()), "the page's operator must be a new one"


def test_following_the_page(copy: Copy) -> None:
    before = copy.content()
    definition, tests = told_files().items()

    (copy.root / definition[0]).write_text(definition[1], encoding="utf-8")
    done = copy.run(f".venv/bin/pytest -k {NAME}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{NAME} has no case: write CASES in tests/ops/test_{NAME}.py" in done.stdout
    assert "1 failed" in done.stdout, done.stdout
    for tool, generated in GENERATORS.items():
        done = copy.run(f".venv/bin/python tools/{tool}.py --check")
        assert done.returncode == 1
        assert generated in done.stderr
        assert f"run python tools/{tool}.py" in done.stderr

    (copy.root / tests[0]).write_text(tests[1], encoding="utf-8")
    for command in told_commands():
        done = copy.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    passed = re.search(r"(\d+) passed", done.stdout)
    # Three cases, by the definition and in a model; the definition; its form in the file; the file's own test.
    assert passed is not None, done.stdout
    assert int(passed[1]) >= 3 * 2 + 1 + 1 + 1
    for tool in GENERATORS:
        done = copy.run(f".venv/bin/python tools/{tool}.py --check")
        assert done.returncode == 0, done.stderr

    after = copy.content()
    changed = {name for name in after if after[name] != before.get(name)} | (before.keys() - after.keys())
    assert changed - {definition[0], tests[0]} == {f"docs/operators/{NAME}.md", "docs/operators/index.md", "README.md"}
    assert before.keys() <= after.keys()


def test_the_operator_is_known_everywhere(copy: Copy) -> None:
    """After the test above: what the page promises about the command line, and what the page of the operator says."""
    explained = copy.run(f".venv/bin/python -m tpuconvert ops {NAME} --chip bm1686")
    assert explained.returncode == 0, explained.stderr
    assert "y = sign(x) * max(|x| - limit, 0)" in explained.stdout
    assert "FLOAT32, FLOAT16, the same for all operands and results" in explained.stdout
    assert NAME in copy.run(".venv/bin/python -m tpuconvert ops --chip bm1684").stdout
    assert NAME not in copy.run(".venv/bin/python -m tpuconvert ops --chip bm1682").stdout
    page = (copy.root / "docs" / "operators" / f"{NAME}.md").read_text(encoding="utf-8")
    assert "| `limit` | `float` | `0.5` |" in page
    assert "**BM1682**: this chip does not have it." in page


def test_the_files_of_the_page_are_clean(copy: Copy) -> None:
    """They would pass ``make lint``."""
    for name in told_files():
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", name], cwd=copy.root, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
        command = [sys.executable, "-m", "ruff", "format", "--check", name]
        done = subprocess.run(command, cwd=copy.root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
