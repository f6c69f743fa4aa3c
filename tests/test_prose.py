"""Documentation, docstrings, comments and messages contain none of ``PATTERNS``, which a reader has to read twice.

    python -m tests.test_prose [FOLDER ...]

prints all matches, and their number by pattern.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.syntax_trees import parse

ROOT = Path(__file__).resolve().parent.parent

BRITISH = (
    r"behaviour|colour|favour|flavour|honour|labour|neighbour|rumour|"
    r"(?:analy|cataly|paraly)s(?:e[dr]?\b|ing)|"
    r"(?:binar|canonical|categor|character|custom|emphas|equal|final|formal|general|initial|local|maxim|memor|minim|"
    r"normal|optim|organ|parallel|penal|quant|random|real|recogn|regular|serial|special|stabil|standard|summar|"
    r"symbol|synchron|token|util|vector|visual)is(?:e[drs]?|ing|ation|able)|"
    r"cent(?:re[ds]?|ring)|fibre|grey|licence|defence|offence|catalogue|dialogue|artefact|cheque|"
    r"(?:cancel|channel|label|level|model|signal|total|travel|tunnel)l(?:ed|ing|er)|"
    r"(?:ful|instal|skil)fil|judgement|learnt|mould|plough|spelt|sceptic|toward(?=s)|whilst|amongst"
)
BRITISH_WORD = rf"(?<![.\w])(?i:{BRITISH})[a-z]*\b"

PATTERNS = {
    r"(?<!\b[Tt]here )(?<!\b[Tt]here can )(?<!\b[Tt]here may )(?<!\b[Tt]here must )\b(?:is|are|was|were|be) no "
    r"(?!longer\b|more\b|less\b|fewer\b|\w+er than\b)": "write 'is not a' or 'does not have a'",
    r"(?<!\bso )\b(?:[Tt]hat|[Tt]hose) of\b": "repeat the noun",
    r"\b[Aa]nother (?:[\w`-]+ ){1,4}?than\b": "write 'a different X from'",
    r"\b(?:is|are|was) concluded\b": "write 'inferred'",
    r"\b(?:[Nn]o|[Ss]ome|[Ee]very|[Aa]ny)body\b|\b[Ww]hoever\b": "name the user, the caller or the node",
    r"\b(?:stands?|stood|standing) (?:in|for|beside)\b": "write 'is in', 'represents' or 'is next to'",
    BRITISH_WORD: "use the American spelling",
}
"""Advice by regular expression. ``there is no`` is correct."""
PARTS = [(" no ",), ("hat of", "hose of"), ("nother ",), ("concluded",), ("body", "hoever"), ("stand", "stood"), ()]
WORDS = dict(zip(PATTERNS, PARTS, strict=True))
"""Texts of which each match has one, by regular expression: they are found faster. ``is_british`` looks up words."""
FIRST_WORDS = r"\A\s*(?:What|Whether|How|Where)\b"


class Text(NamedTuple):
    """One paragraph, comment or string with the number of its first line."""

    line: int
    text: str
    is_docstring: bool = False


def tracked(*patterns: str) -> list[Path]:
    """Return the tracked files of this repository that match the patterns."""
    command = ["git", "ls-files", "-z", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [ROOT / name for name in names if name]


def markdown_texts(source: str) -> Iterator[Text]:
    """Yield paragraphs, headings and table rows; code is replaced by an empty code span."""
    without_blocks = re.sub(r"^( *)(```|~~~).*?^\1\2", lambda m: "\n" * m[0].count("\n"), source, flags=re.M | re.S)
    start, lines = 1, list[str]()
    for number, line in enumerate([*without_blocks.split("\n"), ""], 1):
        begins = not line.strip() or re.match(r"\s*(?:[-*|#]|\d+\.) ?", line)
        if begins and lines:
            yield Text(start, re.sub(r"`[^`]*`", "``", "\n".join(lines)))
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(line)


def python_texts(source: str) -> Iterator[Text]:
    """Yield docstrings, other strings and comments. A placeholder of an f-string becomes ``{}``."""
    tree = parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            text = "".join(map(str, values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        if re.search(r"\s", text):  # one word may be a name in a file
            yield Text(node.lineno, text, id(node) in docstrings)
    previous, lines = (-1, -1), list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        row, column = token.start
        if lines and previous != (row - 1, column):
            yield Text(previous[0] - len(lines) + 1, "\n".join(lines))
            lines = []
        lines.append(token.string.lstrip("# "))
        previous = row, column
    if lines:
        yield Text(previous[0] - len(lines) + 1, "\n".join(lines))


@functools.cache
def is_british(word: str) -> bool:
    """Return True if a word has the British spelling. All files together have ten thousand different words."""
    return re.match(BRITISH_WORD, word) is not None


def may_match(source: str) -> bool:
    """Return True if the patterns occur in a file, which may be code: parsing all files takes ten times as long."""
    joined = " ".join(re.sub(r"([\"'])\s+[fr]*\1", "", source).split()).replace(" # ", " ").replace(" #", " ")
    return (
        any(is_british(word) for word in set(re.findall(r"(?<![.\w])[A-Za-z]\w*", joined)))
        or any(re.search(pattern, joined) for pattern, parts in WORDS.items() if any(part in joined for part in parts))
        or bool(re.search(rf'"""{FIRST_WORDS[2:]}', source))
    )


def matches(source: str, suffix: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, matched words and advice for the text of one file."""
    if not may_match(source):
        return
    for text in markdown_texts(source) if suffix == ".md" else python_texts(source):
        for pattern, advice in PATTERNS.items():
            for match in re.finditer(pattern.replace(" ", r"\s"), re.sub(r"\n *", "\n", text.text)):
                yield text.line + match.string[: match.start()].count("\n"), match[0], advice
        if text.is_docstring and (match := re.match(FIRST_WORDS, text.text)):
            yield text.line, match[0], "begin a docstring with an imperative or a noun phrase"


def matches_below(*folders: str) -> Iterator[tuple[str, int, str, str]]:
    """Yield file, line number, matched words and advice for the tracked files below some folders, or for all.

    Without ``docs/reference/operators``: its pages consist of docstrings and of texts of the operator contract.
    """
    for file in tracked("*.md", "*.py", ":!docs/reference/operators"):
        name = file.relative_to(ROOT).as_posix()
        if file != Path(__file__).resolve() and (not folders or name.startswith(folders)):
            for line, words, advice in matches(file.read_text(encoding="utf-8"), file.suffix):
                yield name, line, " ".join(words.split()), advice


def test_no_pattern_occurs() -> None:
    found = [f"{name}:{line}: '{words}': {advice}" for name, line, words, advice in matches_below()]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "suffix", "expected"),
    [
        ('"""What it is."""\n', ".py", [(1, "What")]),
        ('"""Sum.\n\nIt is\nno sum.\n"""\n', ".py", [(3, "is no")]),
        ('raise ValueError(f"{x} is no" f" number, nobody")\n', ".py", [(1, "is no"), (1, "nobody")]),
        ("x = 1  # a\n\n# the size is that\n# of x\n", ".py", [(3, "that of")]),
        ('"""Names."""\nKEY = "colour"\nx = colours(KEY)\n', ".py", []),
        ("A\ncolour\n\n- another b than `c d`\n", ".md", [(2, "colour"), (4, "another b than")]),
        ("There is no `is no`; so that of two.\n\n```\nis no x\n```\n", ".md", []),
    ],
)
def test_matches(source: str, suffix: str, expected: list[tuple[int, str]]) -> None:
    assert [(line, " ".join(words.split())) for line, words, _ in matches(source, suffix)] == expected


if __name__ == "__main__":
    counts: Counter[str] = Counter()
    for name, line, words, advice in matches_below(*sys.argv[1:]):
        print(f"{name}:{line}: {words}")
        counts[advice] += 1
    for advice, count in counts.most_common():
        print(f"{count:6}  {advice}")
