"""docs/inside/semantics.md contains every section and decision that code and tests cite."""

import re
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, round_shift

PAGE = "docs/inside/semantics.md"
CITATION = re.compile(
    r"docs/inside/semantics\.md,\s+sections?\s+(\d+(?:\.\d+)?(?:,\s+\d+(?:\.\d+)?)*(?:\s+and\s+\d+(?:\.\d+)?)?)"
)


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / PAGE).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sources(repository: Path) -> dict[str, str]:
    """Source text of the Python and C++ files by path."""
    folders = ("converter", "frontends", "optimizer", "runtime", "schema", "tests", "tools")
    paths = [
        path for folder in folders for path in (repository / folder).rglob("*") if path.suffix in (".py", ".h", ".cpp")
    ]
    return {str(path.relative_to(repository)): path.read_text(encoding="utf-8") for path in paths}


def test_every_section_has_its_anchor(page: str) -> None:
    numbers = re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", page, re.MULTILINE)
    anchors = re.findall(r'^<a id="section-([\d.]+)"></a>\n\n#+ \1\.? ', page, re.MULTILINE)
    assert anchors == numbers
    assert len(set(numbers)) == len(numbers)


def test_cited_sections_exist(page: str, sources: dict[str, str]) -> None:
    sections = set(re.findall(r'<a id="section-([\d.]+)">', page))
    cited = {
        (name, number)
        for name, text in sources.items()
        for citation in CITATION.findall(text)
        for number in re.findall(r"\d+(?:\.\d+)?", citation)
    }
    assert len(cited) >= 15
    assert {(name, number) for name, number in cited if number not in sections} == set()


def test_citations_have_the_form_that_is_checked(sources: dict[str, str]) -> None:
    """Every citation names the page and a section."""
    own = f"tests/{Path(__file__).name}"
    wrong = {
        name
        for name, text in sources.items()
        if name != own and len(re.findall(r"semantics\.md, ", text)) != len(CITATION.findall(text))
    }
    assert wrong == set(), "write: docs/inside/semantics.md, section 9.1"
    vague = r"(?i)operator set's semantics|section [\d.]+ of the semantics"
    assert [name for name, text in sources.items() if name != own and re.search(vague, text)] == []


def test_links_within_the_page_have_a_target(page: str) -> None:
    anchors = set(re.findall(r'<a id="([^"]+)">', page))
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_cited_decisions_exist(page: str, repository: Path) -> None:
    decisions = set(re.findall(r"^\| (D-[A-Z0-9]+-\d+) \|", page, re.MULTILINE))
    specification = "".join(
        path.read_text(encoding="utf-8")
        for path in (repository / "tests" / "support" / "operators" / "spec").glob("*.yaml")
    )
    cited = set(re.findall(r"\bD-[A-Z0-9]+-\d+\b", page + specification))
    assert cited - decisions == set()


def test_rounding_table_has_the_results_of_the_definitions(page: str) -> None:
    header = re.search(r"^\| mode \| rounded .*$", page, re.MULTILINE)
    assert header is not None
    numerators = np.array([int(number) for number in re.findall(r"(-?\d+)/4", header[0])])
    assert len(numerators) == 8
    for mode in RoundingMode:
        row = re.search(rf"^\| {mode.name} \|[^|]*\|(.*)\|$", page[header.end() :], re.MULTILINE)
        assert (row is None) == (mode is RoundingMode.UNKNOWN)
        if row is not None:
            assert [int(cell) for cell in row[1].split("|")] == round_shift(numerators, 2, mode).tolist(), mode
