"""Every example of README.md and docs/ runs, links lead somewhere, and the README is short."""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import tpuconvert as tc
from tests.support.documentation import DOCS, name_of, navigation, pages
from tpuconvert.schema import errors

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [README, *pages()]
RUN = ("bash", "python")
"""Languages of the blocks that are run. A Python block that begins with a comment ``# name.py`` is that file."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every block of a page that is run."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [(language, text) for language, text in found if language in RUN]


LONG = {
    *("guides/board", "guides/ci", "guides/evaluation", "guides/failing-models"),
    *("guides/int8-accuracy", "guides/preprocessing", "guides/report", "reference/commands"),
    *("reference/quantization", "reference/caffe", "reference/onnx", "reference/security", "reference/tflite"),
    *("guides/custom-operators", "start/install", "inside/engine", "inside/optimizer"),
}
"""Pages whose examples run at night: 1 to 20 s of CPU time each. Their commands have tests of their own."""

EXAMPLES = [(page, number) for page in PAGES for number in range(len(blocks(page)))]


@pytest.fixture(scope="module")
def folders(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """A folder per page with the files that its examples read: examples/."""
    made = {page: tmp_path_factory.mktemp(page.stem) for page in PAGES}
    for folder in made.values():
        (folder / "examples").symlink_to(repository / "examples", target_is_directory=True)
    return made


def test_long_pages_exist() -> None:
    assert {name_of(page) for page, _ in EXAMPLES} >= LONG


@pytest.mark.parametrize(
    ("page", "number"),
    [
        pytest.param(
            page, number, id=f"{name_of(page)}-{number}", marks=pytest.mark.slow if name_of(page) in LONG else ()
        )
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


@pytest.mark.slow
def test_model_with_a_custom_operator_says_what_is_missing(folders: dict[Path, Path]) -> None:
    """Runs after the examples above, whose model has an operator of a plugin."""
    folder = folders[ROOT / "docs" / "guides" / "custom-operators.md"]
    done = subprocess.run(
        [sys.executable, "-m", "tpuconvert", "inspect", "net.tpum"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 4, done.stderr
    assert "the model needs: channel_gate; load it with --plugin" in done.stderr


def test_first_commands_are_demo_and_test() -> None:
    """They are a block of code, not the continuation of a list."""
    tokens = MarkdownIt("commonmark").parse(README.read_text(encoding="utf-8"))
    first = next(token for token in tokens if token.type in ("fence", "code_block"))
    assert re.findall(r"^make \w+", first.content, re.MULTILINE) == ["make demo", "make test"]


def test_links_lead_somewhere(repository: Path) -> None:
    for page in (README, *DOCS.rglob("*.md"), repository / "CONTRIBUTING.md", repository / "CHANGELOG.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_exit_codes_are_those_of_the_errors() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    told = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)`", text, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    mine = {kind.__name__: kind.exit_code for kind in kinds if issubclass(kind, errors.TpuConvertError)}
    assert told.items() <= mine.items()
    assert set(told.values()) == set(mine.values())
    for kind in told:
        assert hasattr(tc, kind)


def project_urls() -> dict[str, str]:
    """Return the addresses of the project, by name, from setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["metadata"]["project_urls"].strip().splitlines()
    return {name.strip(): address.strip() for name, _, address in (line.partition("=") for line in lines)}


def file_at(address: str) -> Path | None:
    """Return the file or folder of the repository at an address of its home, or None for another address."""
    pattern = rf"{re.escape(project_urls()['Source'])}/(?:blob|tree|raw)/main/([^#]+)"
    match = re.fullmatch(pattern, address)
    return ROOT / match[1] if match else None


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 700
    assert len(readme_links()) <= 12


def readme_links() -> list[str]:
    """Return the targets of the links and images of the README."""
    return re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8"))


def test_links_of_the_readme_work_on_the_package_page() -> None:
    assert re.findall(r"<(?:a|img)\b|^\[[^\]]+\]:", README.read_text(encoding="utf-8"), re.MULTILINE) == []
    for address in readme_links():
        path = file_at(address)
        assert address == project_urls()["Issues"] if path is None else path.exists(), address


def test_addresses_of_the_project() -> None:
    urls = project_urls()
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}
    assert file_at(urls["Documentation"]) == ROOT / "docs"
    assert file_at(urls["Changelog"]) == ROOT / "CHANGELOG.md"
    assert urls["Issues"].startswith(f"{urls['Source']}/")


def links_of(page: Path) -> list[str]:
    """Return the pages that a page links to, in its order, relative to ``docs``."""
    targets = re.findall(r"\]\(([^):#]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    paths = [(page.parent / target).resolve() for target in targets]
    return [path.relative_to(DOCS).as_posix() for path in paths if path.is_relative_to(DOCS)]


PARTS = ("Start", "Guides", "Reference", "Inside")


def test_order_of_the_parts() -> None:
    """The navigation has four parts, and the list of the index has the same pages in the same order."""
    assert tuple(navigation()) == PARTS
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    headings = [heading for heading in re.findall(r"^## (.+)$", text, re.MULTILINE) if heading in PARTS]
    assert tuple(headings) == PARTS
    for part, names in navigation().items():
        section = re.split(r"^## ", text.partition(f"\n## {part}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        assert re.findall(r"^- .*?\]\(([^):#]+\.md)\)", section, re.MULTILINE) == names, part


def test_readme_has_the_order_of_the_navigation() -> None:
    order = [name for names in navigation().values() for name in names]
    table = README.read_text(encoding="utf-8").partition("## I want to")[2]
    named = [name for name in re.findall(r"/main/docs/([^)#]+\.md)\)", table) if name != "index.md"]
    assert named == sorted(named, key=order.index)


def test_every_page_is_two_clicks_from_the_index() -> None:
    first = set(links_of(DOCS / "index.md"))
    second = {name for page in first for name in links_of(DOCS / page)}
    every = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert every - first - second - {"index.md"} == set()
    assert {page.relative_to(DOCS).as_posix() for page in pages()} - {"index.md"} <= first
