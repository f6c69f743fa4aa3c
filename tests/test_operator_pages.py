"""The operator pages match the definitions and are valid Markdown."""

import inspect
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

from tests.support.each import each
from tests.support.operators import contract
from tools.pages import operator_pages
from tpuconvert.operators.description import describe, operator_notes
from tpuconvert.schema.definition.dtype_rules import IO_SAME
from tpuconvert.schema.definition.op import ALL_SAME, Op, Operand, OpKind, all_ops, case, on, same, todo
from tpuconvert.schema.types import F16, F32, I8, I32, U8, Array, Chip, Scalar, TensorType

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "reference" / "operators").glob("*.md"))
OPERATORS = [definition for definition in all_ops().values() if definition.kind is not OpKind.CUSTOM]


def test_what_is_out_of_date_is_named_with_the_command(tmp_path: Path) -> None:
    wanted = {Path("docs/reference/operators/add.md"): "new", Path("docs/reference/operators/sub.md"): "same"}
    folder = tmp_path / "docs" / "reference" / "operators"
    folder.mkdir(parents=True)
    (folder / "add.md").write_text("old", encoding="utf-8")
    (folder / "sub.md").write_text("same", encoding="utf-8")
    (folder / "gone.md").write_text("of an operator that is no more", encoding="utf-8")
    assert operator_pages.out_of_date(tmp_path, wanted) == [
        "docs/reference/operators/add.md",
        "docs/reference/operators/gone.md",
    ]
    assert operator_pages.COMMAND == "python -m tools.pages.operator_pages"


def test_every_operator_has_a_page_and_stands_in_the_index() -> None:
    names = [definition.name for definition in OPERATORS]
    assert [page.stem for page in PAGES if page.stem != "index"] == sorted(names)
    index = (ROOT / "docs" / "reference" / "operators" / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[([\w.]+)\]\([\w.]+\.md\)", index, re.MULTILINE)) == sorted(names)


@each("page", PAGES, lambda page: page.stem)
def test_page_is_sound(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", text):
        linked = page.parent / target
        assert linked.is_file(), target
        if anchor:
            explicit = re.findall(r'<a id="([^"]+)">', linked.read_text(encoding="utf-8"))
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in [*slugs, *explicit]
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):  # every row of a table has the same number of cells
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1, block
    assert not re.search(r"\bD-[A-Z]+-\d", text), "a decision number says nothing here"
    assert "  \n" not in text


@each("page", PAGES, lambda page: page.stem)
def test_page_renders_as_it_is_meant(page: Path) -> None:
    """Formulas contain no accidental emphasis or tags, names are complete, and every table is rendered."""
    text = page.read_text(encoding="utf-8")
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    words = re.sub(r"<[^>]+>", "", rendered)
    assert "<em>" not in rendered
    assert "\\" not in words
    assert "``" not in words
    assert rendered.count("<table>") == len(re.findall(r"^\|(?:---\|)+$", text, re.MULTILINE))
    assert rendered.count("<tr>") == len(re.findall(r"^\| ", text, re.MULTILINE))


@each("definition", OPERATORS, lambda definition: definition.name)
def test_description_is_complete(definition: type[Op]) -> None:
    about = describe(definition)
    assert about.formula.endswith((".", ":")), "the first line of the docstring is a sentence"
    assert [item.name for item in about.operands] == [operand.name for operand in definition.inputs]
    taken = inspect.signature(definition.infer).parameters.values()
    assert all(item.symbol for item in about.operands) or any(item.kind is item.VAR_POSITIONAL for item in taken)
    assert all(chip.cases or chip.notes for chip in about.chips)


@each("entry", [entry for entry in contract.defined_entries() if entry["examples"]], lambda entry: entry["name"])
def test_example_has_the_results_of_the_contract(entry: contract.Entry) -> None:
    """The numbers in the notes equal one of the contract's examples, apart from truncation."""
    lines = operator_notes()[entry["name"]]["example"]
    begin = next(number for number, line in enumerate(lines) if line.startswith("gives"))
    end = next((n for n, line in enumerate(lines) if n > begin and line.startswith(("gives", "note:"))), len(lines))
    found = numbers(" ".join(line for line in lines[begin + 1 : end] if line.startswith("    ")))
    for example in entry["examples"]:
        wanted = [number for array in contract.results(entry, example).values() for number in flat(array)]
        if len(wanted) == len(found) and np.allclose(found, wanted, rtol=1e-4, atol=1e-4, equal_nan=True):
            return
    pytest.fail(f"no example of {entry['name']} gives {found}")


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.sub(r"[\[\],]", " ", text).split() if word != "..."]


def flat(array: Array) -> list[float]:
    shown = array.ravel()
    if shown.size > operator_pages.SMALL:
        shown = np.array(numbers(np.array2string(array, threshold=operator_pages.SMALL).replace("...", " ")))
    return [float(number) for number in shown]


# --- words ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words(Op):
    """y = f(x).

    Shapes: x [...],
    y the same.
    Units: none.
    """

    mode: int = 0

    name = "words"
    inputs = (Operand("tensor_i", tuple(range(2, 9))),)
    dtypes = on(
        bm1682=None,
        bm1684=todo(
            F32,
            case({"a": (I8,), "y": (F32,)}),
            case({"a": (U8,), "y": (F32,)}),
            case({"a": (I8,), "y": (I32,)}, requires_coeff=("a",)),
            case({"a": (F32,), "y": (I32,)}, IO_SAME),
        ),
        bm1686=(same(F32), same(F16), same(I8, when=lambda op: True, when_text="mode is 1", compute="EXACT_INT")),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        raise NotImplementedError


def test_words_for_data_types() -> None:
    lines = {line.chip: line for line in describe(Words, notes={}).chips}
    assert lines["BM1682"].notes == ("this chip does not have it",)
    assert not lines["BM1682"].supported
    assert lines["BM1684"].notes == ("marked unfinished by the vendor: legal with a warning",)
    assert lines["BM1684"].cases == (
        "FLOAT32",
        "``a`` INT8, UINT8; ``y`` FLOAT32",
        "``a`` INT8; ``y`` INT32. ``a`` is constant",
        "``a`` FLOAT32; ``y`` INT32. ``tensor_i`` and the output have the same dtype",
    )
    assert lines["BM1686"].cases == (
        "FLOAT32, FLOAT16, the same for all operands and results",
        "When ``mode`` is 1: INT8. Computed in integers, without overflow in between",
    )


def test_cases_that_mean_something_else_are_not_joined() -> None:
    free = on(case({"all": (F32,)}), case({"all": (I8,)}))[Chip.BM1686]  # mixed types are not among these two
    assert ALL_SAME not in free.cases[0].rules
    mixed = type("Mixed", (Words,), {"dtypes": dict.fromkeys(Chip, free)})
    assert describe(mixed, [Chip.BM1686], {}).chips[0].cases == ("FLOAT32", "INT8")


def test_paragraphs_and_families() -> None:
    about = describe(Words, notes={"words": {"family": "Tests", "example": ["words()"]}})
    assert (about.formula, about.details) == ("y = f(x).", ("Shapes: x [...], y the same.", "Units: none."))
    assert (about.signature, about.operands[0].about) == ("words(tensor_i; mode=0) -> tensor_o", "rank 2 to 8, tensor")
    assert (about.family, about.example) == ("Tests", ("words()",))
    assert describe(Words, notes={}).family == "Further operators"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Scalar(I32, 2147483647), "2147483647 as INT32"),
        (Scalar.f32(0.1), "0.1 as FLOAT32"),
        ((1,), "(1,)"),
        (tuple(range(20)), "(0, 1, 2, ..., 17, 18, 19)"),
        (-np.inf, "-inf"),
        (I8, "INT8"),
        (None, "None"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert operator_pages.format_value(value) == text


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("a * b", "a * b"),
        ("dh*(kh-1) * 2", r"dh\*(kh-1) * 2"),
        ("LEAKY_RELU and ``x_y*``", "LEAKY_RELU and `x_y*`"),
        ("_x_", r"\_x\_"),
        ("a < b, <b>", r"a < b, \<b>"),
    ],
)
def test_markdown(text: str, markdown: str) -> None:
    assert operator_pages._mark_code(text) == markdown
