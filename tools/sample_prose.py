"""Draw docstrings, comments and documentation sentences for a review: ``python tools/sample_prose.py --seed 7``.

The same seed and the same tracked files give the same samples: 60 docstrings, 60 comments and 40 sentences, each with
file and line. Generated files and texts of other projects are left out.
"""

import argparse
import ast
import functools
import io
import random
import re
import signal
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"docstrings": 60, "comments": 60, "documentation": 40}
LEFT_OUT = ("docs/operators/", "docs/python-api.md", "tests/spec/")
"""Generated files, and the vendor's specification."""
NO_PROSE = re.compile(r"#!|# (noqa|type:|ruff:|mypy:|fmt:|pragma)|// (namespace|clang-format|NOLINT)|#? ?-{3}")
LIST_ITEM = re.compile(r"\A *(?:[-*]|\d+\.) ")
WORDS = 3
"""Smallest number of words of a sentence that is sampled."""


class Text(NamedTuple):
    """A piece of prose and where it begins."""

    file: str
    line: int
    text: str


def tracked_files(*endings: str) -> list[str]:
    """Return the tracked files with one of the endings, sorted."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    return sorted(name for name in listed if name.endswith(endings) and not name.startswith(LEFT_OUT))


def docstrings(file: str, source: str) -> Iterator[Text]:
    """Yield the strings that document modules, classes, functions and module-level names."""
    for parent in ast.walk(ast.parse(source)):
        body = getattr(parent, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield Text(file, statement.lineno, text.strip())


def python_comments(file: str, source: str) -> Iterator[Text]:
    """Yield comments of Python source."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from _comments(
        file, source, {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    )


def cpp_comments(file: str, source: str) -> Iterator[Text]:
    """Yield ``//`` comments of C++ source."""
    found = {number: re.search(r"//.*", line) for number, line in enumerate(source.splitlines(), 1)}
    yield from _comments(file, source, {number: comment[0] for number, comment in found.items() if comment})


def _comments(file: str, source: str, by_line: dict[int, str]) -> Iterator[Text]:
    """Join consecutive lines that consist of a comment; a comment after code is a separate text."""
    lines = ["", *source.splitlines()]
    prose = {line: comment for line, comment in by_line.items() if not NO_PROSE.match(comment)}
    block: list[str] = []
    for line, comment in prose.items():
        block.append(comment.lstrip("#/ "))
        whole = lines[line].strip() == comment.strip()
        if not (whole and line + 1 in prose and lines[line + 1].strip() == prose[line + 1].strip()):
            text = " ".join(block)
            if re.search("[A-Za-z]{2}", text):
                yield Text(file, line - len(block) + 1, text)
            block = []


def sentences(file: str, source: str) -> Iterator[Text]:
    """Yield the sentences of a Markdown page, without headings, tables, code blocks and HTML comments."""
    skipped = r"^( *)```.*?^\1```$|<!--.*?-->|^(?:#|\||!!!)[^\n]*$"
    prose = re.sub(skipped, lambda match: "\n" * match[0].count("\n"), source, flags=re.DOTALL | re.MULTILINE)
    paragraph: list[str] = []
    for line, text in enumerate([*prose.splitlines(), ""], 1):
        if paragraph and (not text.strip() or LIST_ITEM.match(text)):
            yield from _split_sentences(file, line - len(paragraph), paragraph)
            paragraph = []
        if text.strip():
            paragraph.append(text)


def _split_sentences(file: str, first: int, lines: list[str]) -> Iterator[Text]:
    text = LIST_ITEM.sub("", "\n".join(lines), count=1)
    for sentence in re.finditer(r"\S.*?(?:[.?!](?=\s+[A-Z`*\[(])|\Z)", text, re.DOTALL):
        if len(sentence[0].split()) >= WORDS:
            yield Text(file, first + text.count("\n", 0, sentence.start()), " ".join(sentence[0].split()))


@functools.cache
def population() -> dict[str, list[Text]]:
    """Return all docstrings, comments and sentences of the tracked files."""
    texts: dict[str, list[Text]] = {kind: [] for kind in SIZES}
    for file in tracked_files(".py", ".h", ".cpp", ".md"):
        source = (ROOT / file).read_text(encoding="utf-8")
        if file.endswith(".py"):
            texts["docstrings"] += docstrings(file, source)
            texts["comments"] += python_comments(file, source)
        elif file.endswith(".md"):
            texts["documentation"] += sentences(file, source)
        else:
            texts["comments"] += cpp_comments(file, source)
    return texts


def draw_samples(seed: int) -> dict[str, list[Text]]:
    """Draw the three samples, each sorted by file and line."""
    generator = random.Random(seed)
    return {kind: sorted(generator.sample(texts, SIZES[kind])) for kind, texts in population().items()}


def main() -> None:
    """Print the samples as Markdown."""
    parser = argparse.ArgumentParser(description="Draw docstrings, comments and documentation sentences for a review.")
    parser.add_argument("--seed", type=int, required=True, help="number that decides which texts are drawn")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # exit silently if stdout is closed, as by `| head`
    for kind, texts in draw_samples(parser.parse_args().seed).items():
        print(f"## {len(texts)} {kind}\n")
        for number, text in enumerate(texts, 1):
            print(f"{number}. {text.file}:{text.line}\n")
            print("\n".join(f"       {line.strip()}".rstrip() for line in text.text.splitlines()) + "\n")


if __name__ == "__main__":
    main()
