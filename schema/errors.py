"""All exceptions of the public API, with stable ids and exit codes.

All problems of a model are collected in a ``ProblemList`` and reported together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from tpuconvert.schema.option_style import in_style
from tpuconvert.schema.text.visible_text import one_line

_MOST_NAMES = 6
"""Largest number of node names listed per group of problems; of the others only the number is printed."""

_MOST_GROUPS = 50
"""Largest number of groups of problems that a message lists."""


class TpuConvertError(Exception):
    """Base of all errors of tpuconvert.

    Args:
        message: what was found, in one sentence.
        file: name of the file.
        node: name of the node, empty if the error concerns no single node.
        hint: the next step for the user.

    """

    id: ClassVar[str] = "TC1000"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, file: str = "", node: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.node = node
        self.hint = hint

    def add_place(self, file: str, node: str) -> None:
        """Name the file and the node, unless the error names some."""
        self.file = self.file or file
        self.node = self.node or node

    def __str__(self) -> str:
        text = f"{one_line(self.file)}: " if self.file else ""
        if self.node:
            text += f"node '{one_line(self.node)}': "
        text += in_style(self.message)
        return "\n    ".join([text, *in_style(self.hint).splitlines()])


class InternalError(TpuConvertError):
    """A bug in tpuconvert: please report it."""

    id = "TC1001"
    exit_code = 1


class RunError(TpuConvertError):
    """The values of an operator's operands are invalid, detected while the model runs."""

    id = "TC1002"
    exit_code = 8


class UsageError(TpuConvertError):
    """Wrong call: an unknown option, a missing argument, arrays that do not fit the model."""

    id = "TC2001"
    exit_code = 2


class PluginError(UsageError):
    """A mistake of a plugin or of another function of the user. The message contains file and line."""

    id = "TC2002"
    exit_code = 2


class ShapeError(TpuConvertError):
    """An operator does not accept the types of its operands. The message contains their shapes."""

    id = "TC3001"
    exit_code = 3


class CorruptInputError(TpuConvertError):
    """A file is damaged, hostile, or of another format."""

    id = "TC4001"
    exit_code = 4


class AmbiguousInputError(CorruptInputError):
    """A file has two contents for one value, of which readers choose different ones."""

    id = "TC4003"
    exit_code = 4


class ThresholdError(TpuConvertError):
    """A comparison exceeded its threshold."""

    id = "TC5001"
    exit_code = 5


class OutputError(ThresholdError):
    """An output is useless: NaN, or the same value everywhere."""

    id = "TC5002"
    exit_code = 5


class ResourceLimitError(TpuConvertError):
    """A resource limit was exceeded."""

    id = "TC6001"
    exit_code = 6


class MissingExtraError(TpuConvertError):
    """An optional part of tpuconvert is not installed. The hint contains the command that installs it."""

    id = "TC7001"
    exit_code = 7


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem in a model: a stable id, and the heading of its group."""

    id: str
    heading: str


NO_OPERATOR = ProblemKind("TC3101", "no TPU operator")
UNSUPPORTED_ATTRIBUTE = ProblemKind("TC3102", "unsupported attribute")
UNSUPPORTED_TYPE = ProblemKind("TC3103", "unsupported data type")
UNKNOWN_SHAPE = ProblemKind("TC3104", "shape not known")
INVALID_NODE = ProblemKind("TC3105", "invalid node")
ILLEGAL_ON_CHIP = ProblemKind("TC3106", "not on this chip")
TOO_LARGE = ProblemKind("TC3107", "too large")
NOT_FINITE = ProblemKind("TC3108", "not finite")
NO_EXACT_FORM = ProblemKind("TC3109", "no exact form")
COMPILER_FAILS = ProblemKind("TC3110", "does not compile")


@dataclass(frozen=True)
class Problem:
    """One reason for which a model cannot be converted.

    Args:
        kind: group and id.
        op: source operator, as named by the source format.
        node: name of the source node.
        message: what was found and what was expected.
        hint: the next step.
        needs: inputs of the model that have to become constants to solve the problem, if this is possible.

    """

    kind: ProblemKind
    op: str
    node: str
    message: str = ""
    hint: str = ""
    needs: tuple[str, ...] = ()

    def with_hint(self, hint: str) -> Problem:
        """Return a copy of the problem with another hint."""
        return Problem(self.kind, self.op, self.node, self.message, hint, self.needs)


def without_operator(message: str, op: str) -> str:
    """Remove the prefix ``OP: `` from a message that is printed next to the operator's name.

    Case and underscores of the name are ignored: ``BatchMatMul`` equals ``batch_matmul``.
    """
    name, separator, rest = message.partition(": ")
    return rest if separator and _letters(name) == _letters(op) else message


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


class ProblemList:
    """Collection of the problems of one model, which are reported together.

    Args:
        file: name of the model file.
        detail: addition to the heading, such as ``opset 11``.

    """

    def __init__(self, file: str, detail: str = "") -> None:
        self.file = file
        self.detail = detail
        self._problems: dict[Problem, None] = {}  # in the order of their addition

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._problems)

    def add(
        self,
        kind: ProblemKind,
        op: str,
        node: str,
        message: str = "",
        hint: str = "",
        needs: tuple[str, ...] = (),
    ) -> None:
        """Add a problem unless an equal one was added before."""
        self._problems.setdefault(Problem(kind, op, node, without_operator(message, op), hint, needs))

    def revise(self, change: Callable[[Problem], Problem]) -> None:
        """Replace every problem by the result of ``change``."""
        self._problems = dict.fromkeys(change(problem) for problem in self._problems)

    def extend(self, problems: ProblemList) -> None:
        """Add the problems of another list."""
        for problem in problems:
            self.add(problem.kind, problem.op, problem.node, problem.message, problem.hint, problem.needs)

    def raise_if_any(self) -> None:
        """Report all problems.

        Raises:
            UnsupportedError: there is at least one problem.

        """
        if self._problems:
            self.fail()

    def fail(self) -> NoReturn:
        """Raise an UnsupportedError that contains all problems."""
        raise UnsupportedError(self.file, self.detail, tuple(self._problems))


class UnsupportedError(TpuConvertError):
    """All problems of one model, grouped by kind and operator."""

    id = "TC3100"
    exit_code = 3

    def __init__(self, file: str, detail: str, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        self.detail = detail
        super().__init__(_report(detail, problems), file=file)


def _report(detail: str, problems: tuple[Problem, ...]) -> str:
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for problem in problems:
        key = (problem.kind.heading, one_line(problem.op), problem.message, problem.hint)
        groups.setdefault(key, []).append(one_line(problem.node))
    kinds = len({problem.kind for problem in problems})
    extra = f" ({detail})" if detail else ""
    lines = [f"{_count(len(problems), 'problem')} in {_count(kinds, 'kind')}{extra}, nothing was written"]
    heading_width = max(len(key[0]) for key in groups)
    op_width = min(max(len(key[1]) for key in groups), 40)
    shown = sorted(groups.items())[:_MOST_GROUPS]
    waiting = Counter(hint for (_, _, _, hint), _ in shown)  # a hint is printed once, after the last group that has it
    for (heading, op, message, hint), nodes in shown:
        names = ", ".join(f"'{name}'" for name in nodes[:_MOST_NAMES])
        if len(nodes) > _MOST_NAMES:
            names += f" and {len(nodes) - _MOST_NAMES} more"
        line = f"  {heading:<{heading_width}}  {op:<{op_width}}  {names}"
        lines.append(f"{line}  {message}" if message and len(nodes) == 1 else line)
        if message and len(nodes) > 1:
            lines.append(f"      {message}")
        waiting[hint] -= 1
        lines.extend(f"      {part}" for part in hint.splitlines() if not waiting[hint])
    if len(groups) > _MOST_GROUPS:
        lines.append(f"  and {len(groups) - _MOST_GROUPS:,} further groups of problems")
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
