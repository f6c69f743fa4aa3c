"""Texts in the source code that a program prints, and the commands and options in them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import tpuconvert as tc
from tests.support.syntax_trees import syntax_tree
from tpuconvert.cli.group import COMMANDS, group
from tpuconvert.cli.option_hints import options_of

PACKAGE = Path(tc.__file__).resolve().parents[1]
FOLDERS = ("converter", "frontends", "optimizer", "runtime", "schema")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_NAMES = "|".join(sorted(COMMANDS, key=len, reverse=True))
COMMAND = re.compile(
    rf"\btpuconvert (?:(?:{_NAMES})(?![\w-])|--[a-z])"  # a command for a shell
    r"|^tpuconvert {}|{} --help"  # its name is computed
    r"|\btpuconvert\.\w+\("  # a call in Python
)


class Text(NamedTuple):
    """A text constant: file and line, and its characters. Fields of an f-string are replaced by ``{}``."""

    place: str
    text: str


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the text constants of a module, without docstrings. The words of a command line are ``tpuconvert {}``."""
    place = path.relative_to(PACKAGE)
    skipped: set[int] = set()
    for node in ast.walk(syntax_tree(path)):  # parents come before their children
        found = ""
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif id(node) in skipped:
            continue
        elif isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
            found = "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = node.value
        elif isinstance(node, ast.List) and node.elts:
            first = node.elts[0]
            found = "tpuconvert {}" if isinstance(first, ast.Constant) and first.value == "tpuconvert" else ""
        if found:
            yield Text(f"{place}:{node.lineno}", found)


@functools.cache
def all_texts() -> list[Text]:
    """Return the text constants of the package."""
    return [text for folder in FOLDERS for path in sorted((PACKAGE / folder).rglob("*.py")) for text in texts_of(path)]


_GROUP_OPTIONS = {option for parameter in group.params for option in parameter.opts} | {"--help"}
_OTHER_PROGRAMS = re.compile(r"\b(?:pip|dask) [^\n;]*")


def foreign_options(text: str, arguments: list[str]) -> list[str]:
    """Return the options in the text of an error that the command does not have, and no command named before them."""
    found = []
    running = next((argument for argument in arguments if argument in COMMANDS), "")
    quoted = {argument for argument in arguments if argument.startswith("-")}  # what the user wrote is repeated
    for clause in re.split(r"[;\n]", _OTHER_PROGRAMS.sub("", text)):
        names = [running] if running else []
        for word in re.findall(r"[\w=/-]+", clause):
            if word in COMMANDS:
                names.append(word)
            option = word.split("=")[0]
            is_option = OPTION.fullmatch(option) and option not in _GROUP_OPTIONS | quoted
            if is_option and names and not any(option in options_of(name) for name in names):
                found.append(option)
    return found
