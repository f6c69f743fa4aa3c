"""Generated pages and pages with figures: each is made again, sampled, or states when and how it was measured.

``PAGES`` is the list of these pages, and of the sections of pages with several programs. A table of figures that is in
none of them must state its measurement too.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import documentation, programs
from tests.support.onnx.reference import NEEDS_NEWEST
from tests.support.syntax_trees import syntax_tree
from tools.aarch64.environment import missing
from tools.accuracy import labeled, ledger
from tools.accuracy.datasets import entries, labeled_set
from tools.pages import api_page
from tools.pages.benchmark_record import Place
from tpuconvert.runtime.native.builder.loader import extension

ROOT = Path(__file__).resolve().parent.parent


class Page(NamedTuple):
    """Check that keeps a page up to date.

    Attributes:
        tool: a module of ``tools`` and its arguments: with ``--check`` it makes the page again and compares the bytes.
        is_fast: whether each run does this; otherwise the nightly run does.
        sample: the test of each run that compares a part of the page, for pages that take longer.
        night: the test of the nightly run that compares all of it, where the tool has no ``--check``.
        is_measured: whether the page has to state its measurement: timings, other programs, or what takes long.
        needs: programs without which nothing is compared.

    """

    tool: str = ""
    is_fast: bool = False
    sample: str = ""
    night: str = ""
    is_measured: bool = False
    needs: str = ""


PAGES = {
    "docs/reference/commands.md": Page("tools.pages.option_tables", is_fast=True),
    "docs/reference/options.md": Page("tools.pages.command_options", is_fast=True),
    "docs/guides/evaluation.md": Page("tools.pages.option_tables", is_fast=True),
    "docs/inside/comparison.md": Page("tools.pages.comparison_page", is_fast=True),
    "docs/reference/security.md#controls": Page("tools.release.controls", is_fast=True),
    "docs/inside/architecture.md#mutants": Page("tools.release.mutants", is_fast=True, is_measured=True),
    "docs/inside/kernels.md#kernels": Page("tools.pages.kernel_page", is_fast=True),
    "docs/reference/operators/index.md": Page("tools.pages.operator_pages", is_fast=True),
    **{
        f"docs/reference/python/{name}.md": Page("tools.pages.api_page", is_fast=True)
        for name in ("index", *api_page.TASKS)
    },
    "docs/reference/supported-operators.md": Page("tools.pages.supported_operators", is_fast=True),
    "docs/inside/accuracy.md#ledger": Page(
        "tools.accuracy ledger", is_fast=True, night="tests/models/test_int8_accuracy.py::test_accuracy_is_as_recorded"
    ),
    "docs/inside/accuracy.md#trained": Page("tools.accuracy trained", is_fast=True, is_measured=True),
    "docs/inside/accuracy.md#quantizers": Page("tools.pages.benchmark_page", is_fast=True, is_measured=True),
    "docs/inside/optimizer.md": Page(
        "tools.pages.optimizer_page",
        is_fast=True,
        sample="tests/optimizer/test_trained_models.py::test_page_has_the_node_counts_of_every_model",
    ),
    "docs/inside/conformance.md#conformance": Page(
        sample="tests/converter/test_onnx_backend.py::test_sample_of_conformance_cases",
        night="tests/converter/test_onnx_backend.py::test_conformance",
    ),
    "docs/inside/conformance.md#integers": Page(
        "tools.exactness.integer_types",
        sample="tests/tools/test_integer_types.py::test_integers_are_exact_or_warned_about",
    ),
    "docs/reference/tflite.md": Page(
        "tools.exactness.tflite_operator_table",
        sample="tests/optimizer/quantize/lowering/tflite/test_documented.py::test_page_promises_no_more_than_a_short_run_shows",
        night="tests/optimizer/quantize/lowering/tflite/test_documented.py::test_numbers_are_those_of_the_tool",
        is_measured=True,
    ),
    "docs/inside/kernels.md#fallbacks": Page(
        "tools.pages.fallbacks", sample="tests/tools/test_fallbacks.py::test_sample_of_models"
    ),
    "docs/guides/preprocessing.md": Page(
        "tools.pages.preprocessing_table",
        sample="tests/tools/test_preprocessing_table.py::test_column_of_a_digit_classifier_is_that_of_the_page",
    ),
    "docs/inside/kernels.md#costs": Page("tools.aarch64 costs", needs="cross compilers and llvm-mca"),
    "docs/inside/benchmarks.md": Page("tools.pages.benchmark_page", is_fast=True, is_measured=True),
    **{f"docs/inside/simulator.md#{name}": Page(is_measured=True) for name in ("models", "floats")},
    "docs/inside/exporters.md": Page(
        sample="tests/tools/test_zoo.py::test_the_table_of_the_page_has_the_raw_rows", is_measured=True
    ),
}
FAST = sorted({page.tool for page in PAGES.values() if page.is_fast})
SLOW = sorted({page.tool for page in PAGES.values() if page.tool and not page.is_fast})

LISTS = {
    "docs/reference/commands.md": "values of options",
    "docs/inside/engine.md: | instruction set ": "versions of instruction sets",
    "docs/inside/optimizer.md: | chip ": "sizes of the chips",
    "docs/guides/preprocessing.md: | warning ": "limits of warnings",
    "docs/reference/quantization.md: | output ": "limits of outputs",
    "docs/inside/releasing.md: | file ": "versions of systems",
    "docs/inside/semantics.md": "formulas",
}
"""Tables with numbers that are not figures: a page, or the beginning of a table, and what the numbers are."""

WITHOUT_PROGRAM = "the program is not in the repository"
COMMAND = re.compile(
    rf"{WITHOUT_PROGRAM}|(?:`|    )(?:python |PYTHON )-m (?:tools|tests)\.|`tools/\w+"
    "|`pytest |`make |`tpuconvert "
)
STATED = re.compile(r"20\d\d-\d\d-\d\d\s+with tpuconvert \d+\.\d+")
MADE_BY = re.compile(r"(?:made|written|generated|made again)\s+by\s+`?python -m tools\.(\w+)", re.IGNORECASE)
FIGURE = re.compile(r"\d\.\d|\d ?%|\d of \d")


CONDITIONS = {
    "tools.pages.kernel_page": pytest.mark.skipif(extension() is None, reason="the native engine was not built"),
    "tools.pages.supported_operators": NEEDS_NEWEST,
}


@pytest.mark.parametrize("tool", [pytest.param(tool, marks=CONDITIONS.get(tool, ())) for tool in FAST])
def test_page_is_up_to_date(tool: str) -> None:
    """In a separate process: other tests register custom operators in this one."""
    check(tool)


@pytest.mark.slow
@pytest.mark.parametrize("tool", SLOW)
def test_page_is_up_to_date_at_night(tool: str, data_root: Path) -> None:
    if tool == "tools.aarch64 costs" and (reason := missing()):
        pytest.skip(reason)
    if tool in ("tools.exactness.integer_types", "tools.exactness.tflite_operator_table"):
        pytest.importorskip("onnxruntime")
        pytest.importorskip("ai_edge_litert.interpreter")
    check(tool)


PRINTED = {
    "tools.accuracy.outlier_channels": "docs/reference/quantization.md",
    "tools.accuracy.packed_weights_accuracy": "docs/guides/language-models.md",
}
"""Programs that print a table of accuracies, and the page that contains it."""
TOLERANCE = {"": 0.005, "%": 2.0}
"""Of cosines, and of percentages: matrix products of other processors round differently, which moves a few tokens."""


@pytest.mark.slow
@pytest.mark.parametrize("tool", PRINTED)
def test_printed_table_is_that_of_the_page(tool: str) -> None:
    command = programs.command(tool, options=("-W", "ignore"))
    done = subprocess.run(command, env=programs.environment(), capture_output=True, text=True, check=True)
    printed = done.stdout.strip()
    text = (ROOT / PRINTED[tool]).read_text(encoding="utf-8")
    rows = printed.splitlines()
    shown = text[text.index(rows[0]) :].splitlines()[: len(rows)]
    for row, on_page in zip(rows, shown, strict=True):
        assert re.sub(r"\d+\.\d+", "", row) == re.sub(r"\d+\.\d+", "", on_page)
        for unit, tolerance in TOLERANCE.items():
            numbers = [[float(n) for n in re.findall(rf"(\d+\.\d+){unit}(?!\S*%)", line)] for line in (row, on_page)]
            assert numbers[0] == pytest.approx(numbers[1], abs=tolerance), on_page


@pytest.mark.slow
def test_accuracies_of_bm1684_are_those_of_the_page(data_root: Path) -> None:
    text = (ROOT / "docs" / "guides" / "board.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w[\w.]*)` \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for name, images, *percent in rows:
        entry = entries(data_root)[name]
        data = labeled_set(data_root, entry)
        found = [labeled.measure(entry, data, "bm1684", "auto", exact_on) for exact_on in ("none", "bm1684")]
        assert found[0].images == int(images.replace(",", ""))
        correct = [found[0].float_correct, *(row.int8_correct for row in found)]
        # One image, as tools/accuracy ledger allows.
        assert [100 * n / found[0].images for n in correct] == pytest.approx(
            [float(item) for item in percent], abs=100 / found[0].images + 0.01
        )


def test_benchmark_of_accuracy_has_the_figures_of_the_ledger() -> None:
    """The nightly run measures the ledger again, so that the benchmark's rows of tpuconvert are measured again too."""
    rows = [row for heading in ("Flips of classifiers", "Detections kept") for row in Place("accuracy", heading).rows()]
    assert len(rows) >= 15
    for cells in rows:
        name, count = cells["network"].strip("`"), cells["images or detections"]
        for chip in ("bm1686", "bm1684"):
            share = float(cells[chip.upper()].split()[0])
            row = ledger.read_ledger()[name, chip, "auto"]
            total = row.get("images", row.get("detections"))
            field = "flips" if "images" in row else "kept"
            assert total == int(count)
            found = {**row, field: round(share * total / 100)}
            assert ledger.differences(row, found) == [], f"{name} {chip}: run python -m tools.bench accuracy"


def check(tool: str) -> None:
    name, *arguments = tool.split()
    command = programs.command(name, *arguments, "--check")
    done = subprocess.run(command, env=programs.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_generated_page_is_listed() -> None:
    named = {name: MADE_BY.findall(path.read_text(encoding="utf-8")) for name, path in pages()}
    files = {name.partition("#")[0] for name in PAGES}
    assert {name for name, tools in named.items() if tools} <= files
    written = {file for path in (ROOT / "tools").glob("**/*.py") for file in page_constants(path)}
    assert written <= {Path(name).name for name in files}
    every = {path.relative_to(ROOT).as_posix() for path in documentation.DOCS.rglob("*.md")}
    assert files <= every


def test_every_public_name_has_one_task() -> None:
    listed = [name for file in api_page.TASKS for name in api_page.names_of(file)]
    assert sorted(listed) == sorted(api_page.exported())


def page_constants(path: Path) -> Iterator[str]:
    """Yield the file names of pages in the constants PAGE of a program."""
    for node in syntax_tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PAGE":
            yield from re.findall(r"[\w-]+\.md", ast.unparse(node.value))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_a_check(name: str) -> None:
    page = PAGES[name]
    assert page.is_fast or page.sample or page.is_measured or page.needs
    for test, is_slow in ((page.sample, False), (page.night, True)):
        if test:
            path, _, function = test.partition("::")
            (found,) = (
                node
                for node in syntax_tree(ROOT / path).body
                if isinstance(node, ast.FunctionDef) and node.name == function
            )
            assert ("pytest.mark.slow" in map(ast.unparse, found.decorator_list)) == is_slow


def test_figures_state_their_measurement() -> None:
    """A table of figures that no run makes again has command, version and date in its section or at the beginning."""
    wrong = []
    for name, path in pages():
        text = path.read_text(encoding="utf-8")
        for place, heading, before in tables(text):
            page = PAGES.get(name, PAGES.get(f"{name}#{section_at(text, place)}"))
            if page is not None and not page.is_measured:
                continue
            is_list = name in LISTS or any(f"{name}: {heading}".startswith(item) for item in LISTS)
            is_made = page is not None and "made by python -m tools." in before.split("\n")[-2]
            if not is_list and not is_made and not (COMMAND.search(before) and STATED.search(before)):
                wrong.append(f"{name}:{place}: {heading[:60]}")
    assert wrong == [], "\n".join([*wrong, "state the command, and 'DATE with tpuconvert VERSION'"])


def test_sections_of_pages_exist() -> None:
    for name in PAGES:
        path, _, section = name.partition("#")
        assert f"<!-- {section}: made by" in (ROOT / path).read_text(encoding="utf-8") or not section


def test_section_of_a_line() -> None:
    text = "a\n<!-- b c: made by python -m tools.x -->\nd\n<!-- end of b c -->\ne\n"
    assert [section_at(text, line) for line in (1, 3, 5)] == ["", "b c", ""]


def test_the_lists_exist() -> None:
    for item in LISTS:
        name, _, heading = item.partition(": ")
        assert heading in (ROOT / name).read_text(encoding="utf-8")


def test_a_table_without_a_statement_is_found() -> None:
    table = "| a | b |\n|---|---|\n| 1.5 | 2 |\n| 2.5 | 2 |\n"
    text = f"# A\n\n{table}\n## B\n\n`python -m tools.x.y`, 2026-01-02 with tpuconvert 0.1\n"
    ((line, heading, before),) = tables(text)
    assert (line, heading) == (3, "| a | b |") and not STATED.search(before)
    ((_, _, before),) = tables(f"# A\n\n2026-01-02 with tpuconvert 0.1\n\n## B\n\n`python -m tools.x.y`\n\n{table}")
    assert STATED.search(before) and COMMAND.search(before)


def section_at(text: str, line: int) -> str:
    """Return the name of the generated section that contains a line, or an empty string."""
    before = "\n".join(text.split("\n")[: line - 1])
    markers = re.findall(r"^<!-- (end of )?([\w ]+?)(?:: made by .*)? -->$", before, re.MULTILINE)
    return markers[-1][1] if markers and not markers[-1][0] else ""


def pages() -> Iterator[tuple[str, Path]]:
    """Yield name and path of the pages, without the pages of the operators."""
    for path in (ROOT / "README.md", *documentation.pages()):
        yield path.relative_to(ROOT).as_posix(), path


def tables(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, heading row, and what the reader has read of the page's beginning and of the section, for each table.

    Only tables count that have two rows or more with a decimal number or a share.
    """
    lines = text.split("\n")
    starts = [index for index, line in enumerate(lines) if line.startswith("## ")]
    beginning = lines[: next((i for i in starts if lines[i] != "## Machine"), len(lines))]
    for index, line in enumerate(lines):
        if line.startswith("|") and not lines[index - 1].startswith("|"):
            end = next((i for i in range(index, len(lines)) if not lines[i].startswith("|")), len(lines))
            rows = [row for row in lines[index + 2 : end] if FIGURE.search(row)]
            section = max((start for start in starts if start < index), default=0)
            if len(rows) >= 2:
                before = lines[section:index] if section else []
                yield index + 1, line, "\n".join([*beginning[:index], *before, ""])
