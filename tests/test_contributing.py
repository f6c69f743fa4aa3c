"""The pages of docs/contributing, followed in a copy of the repository.

A Python block that begins with a comment ``# path/of/file.py`` is that file; blocks in ``bash`` are commands. No other
file is edited.
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

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "contributing"
FOLDERS = ("converter", "examples", "frontends", "optimizer", "runtime", "schema", "tests", "tools", "docs")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LOOP_SECONDS = 10
"""CPU time of one test command: what a developer waits for on an idle machine."""


class Page:
    """Files and commands of a page, by the heading that they are under."""

    def __init__(self, name: str) -> None:
        self.text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n# ([\w/]+\.py)\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        self.files = dict(blocks)

    def commands(self) -> list[str]:
        blocks = re.findall(r"^```bash\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        return [line for block in blocks for line in block.splitlines()]

    def tests(self) -> list[str]:
        return [command for command in self.commands() if command.startswith(".venv/bin/pytest ")]

    def generators(self) -> list[str]:
        return [command for command in self.commands() if command.startswith(".venv/bin/python tools/")]


class Copy:
    """A copy of the repository that is imported instead of the repository."""

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
            (self.root / name).write_text(text, encoding="utf-8")

    def restore(self) -> None:
        """Undo every change since the copy."""
        for name, data in self.content().items():
            if name not in self.original:
                (self.root / name).unlink()
            elif self.original[name] != data:
                (self.root / name).write_bytes(self.original[name])

    def changed(self) -> set[str]:
        content = self.content()
        return {name for name in {*content, *self.original} if content.get(name) != self.original.get(name)}

    def content(self) -> dict[str, bytes]:
        paths = [path for name in FOLDERS for path in (self.root / name).rglob("*") if path.is_file()]
        paths = [path for path in paths if "__pycache__" not in path.parts]
        return {
            str(path.relative_to(self.root)): path.read_bytes() for path in [*paths, *map(self.root.joinpath, FILES)]
        }

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the page with the programs of the environment that runs the tests."""
        view = [sys.executable, "tools/package_view.py", "build/view"]  # as an editable install
        subprocess.run(view, cwd=self.root, check=True, capture_output=True)
        words = command.split()
        if words[0] == ".venv/bin/pytest":
            words[:1] = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider"]
        elif words[0] == ".venv/bin/python":
            words[0] = sys.executable
        return subprocess.run(words, cwd=self.root, env=self.environment, capture_output=True, text=True)


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
    assert copy.changed() == set(page.files)
    return outputs


def passed(output: str) -> int:
    found = re.search(r"(\d+) passed", output)
    return int(found[1]) if found else 0


def stale_pages(copy: Copy, page: Page) -> dict[str, str]:
    """Messages of the generators of a page, by command."""
    checks = {command: copy.run(f"{command} --check") for command in page.generators()}
    return {command: done.stderr for command, done in checks.items() if done.returncode}


def test_every_page_is_linked_and_followed() -> None:
    names = {page.stem for page in PAGES.glob("*.md")}
    assert names == set(re.findall(r"\(docs/contributing/(\w+)\.md\)", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
    assert names == set(re.findall(r"contributing/(\w+)\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    assert names == set(re.findall(r'Page\("(\w+)"\)', Path(__file__).read_text("utf-8")))


def test_operator_page(copy: Copy) -> None:
    page = Page("operator")
    definition, tests = page.files
    [output] = follow(copy, page)
    assert passed(output) == 3 * 2 + 1  # three cases by the definition and in a model, and the test of the file

    copy.root.joinpath(tests).unlink()  # the forgotten step
    forgotten = copy.run(".venv/bin/pytest tests/test_all_ops.py -k soft_shrink")
    assert f"soft_shrink has no case: write CASES in {tests}" in forgotten.stdout

    for command in page.generators():  # they also cure pages that were stale before
        assert copy.run(command).returncode == 0, command
    generated = copy.changed() - {definition}
    assert generated >= {"docs/operators/soft_shrink.md", "docs/operators/index.md", "README.md"}
    explained = copy.run(".venv/bin/python -m tpuconvert ops soft_shrink --chip bm1686")
    assert explained.returncode == 0, explained.stderr
    assert "y = sign(x) * max(|x| - limit, 0)" in explained.stdout
    assert "FLOAT32, FLOAT16, the same for all operands and results" in explained.stdout
    copy.root.joinpath("docs/operators/soft_shrink.md").unlink()
    assert "docs/operators/soft_shrink.md" in "".join(stale_pages(copy, page).values())


def test_converter_page(copy: Copy) -> None:
    page = Page("converter")
    outputs = follow(copy, page)
    assert [passed(output) for output in outputs] == [1, 1, 1]
    stale = stale_pages(copy, page)
    assert set(stale) == set(page.generators())
    assert all(f"run {command.removeprefix('.venv/bin/')}" in message for command, message in stale.items())


def test_rule_page(copy: Copy) -> None:
    page = Page("rule")
    _, pattern = page.files
    [output] = follow(copy, page)
    assert passed(output) >= 2
    copy.root.joinpath(pattern).unlink()  # the forgotten step
    forgotten = copy.run(".venv/bin/pytest tests/optimizer/test_every_rule.py -k has_a_pattern")
    assert "remove_negation_before_cos" in forgotten.stdout
    assert "add a function with @pattern to tests/optimizer/*_patterns.py" in forgotten.stdout


def test_files_of_the_pages_pass_the_linter(copy: Copy) -> None:
    files: dict[str, str] = {}
    for path in PAGES.glob("*.md"):
        files |= Page(path.stem).files
    copy.write(files)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *files], cwd=copy.root, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
