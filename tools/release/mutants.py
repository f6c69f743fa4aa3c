"""Mutation testing: change the sources one operator or number at a time, and count the changes that a test notices.

    python -m tools.release.mutants [MODULE...] [--sample N] [--seed N] [--jobs N] | --record | --page | --check

``mutants.yaml`` has the modules, the tests that judge each of them, and the reasons of mutants that no test can kill.
Cosmic Ray makes the mutants and keeps the sessions; each mutant is judged by a process that is forked after the
packages of others are imported, because a new interpreter costs more than the tests. Only a copy of the repository
changes. The exit code is 1 if fewer than 90 % of a module's mutants are killed, if one survives
without a reason, or if a reason has no survivor. ``--record`` writes the counts into docs/inside/mutants.json and
their table into docs/inside/architecture.md; ``--page`` and ``--check`` run nothing.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from tools.pages.generated_file import replace_section

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_suffix(".yaml")
RECORD = ROOT / "docs" / "inside" / "mutants.json"
PAGE = ROOT / "docs" / "inside" / "architecture.md"
TOOL = "tools.release.mutants"
LEAST_SHARE = 0.9
MOST_SECONDS = 900
"""Time of the tests of a part without a change."""
MOST_BYTES = 16 << 30
"""Limit of the address space of the tests: a mutant may take all memory."""
PRELOADED = ("numpy", "numpy.random", "onnx", "pytest", "hypothesis", "hypothesis.strategies", "tflite", "rich.console")
"""Imported before the fork. None of them imports the package."""

OPERATORS = re.compile(
    r"core/(ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_Mul|Pow_Mul|LShift_RShift"
    r"|RShift_LShift|BitAnd_BitOr|BitOr_BitAnd|BitXor_BitAnd)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt|Is_IsNot"
    r"|IsNot_Is)"
    r"|ReplaceUnaryOperator_Delete_\w+|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|AddNot|ExceptionReplacer|NumberReplacer|ZeroIterationForLoop)"
)
"""Operators of Cosmic Ray: one other operator for each, both sides of every limit, numbers one below and one above."""


@dataclass(frozen=True)
class Mutant:
    """A change of a source: the lines that it removes and adds, without indentation."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Part:
    """Files of a module and the tests that judge them.

    Args:
        module: name of the module.
        files: source files.
        tests: test files, folders or names of tests, the quick ones first.
        reasons: of the mutants that no test can kill.
    """

    module: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    reasons: dict[Mutant, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Count:
    """Counts of a module.

    Args:
        module: name of the module.
        files: its source files.
        mutants: those that were judged.
        killed: those that a test noticed.
        explained: those that survived and have a reason.
    """

    module: str
    files: tuple[str, ...]
    mutants: int
    killed: int
    explained: int

    @property
    def share(self) -> float:
        """Return the share of killed mutants."""
        return self.killed / self.mutants if self.mutants else 1.0

    def __add__(self, other: Count) -> Count:
        """Add the counts of two parts of a module."""
        return Count(
            self.module,
            self.files + other.files,
            self.mutants + other.mutants,
            self.killed + other.killed,
            self.explained + other.explained,
        )


def parts() -> list[Part]:
    """Return the parts of the list."""
    return [
        Part(
            module=entry["module"],
            files=tuple(entry["files"]),
            tests=tuple(entry["tests"]),
            reasons={
                Mutant(each["file"], each["old"], each["new"]): each["reason"] for each in entry.get("reasons", ())
            },
        )
        for entry in yaml.safe_load(LIST.read_text(encoding="utf-8"))
    ]


Position = tuple[int, int]
"""Line from 1 and column from 0."""


class Counted:
    """Decide which mutants of a source count.

    Not counted are messages (``raise`` and formatted strings), annotations, decorators of classes and type-only
    imports; stars of arguments, which Cosmic Ray takes for products; and the negation of a condition that is one
    comparison, because the opposite comparison is a mutant too.
    """

    def __init__(self, source: str) -> None:
        nodes = list(ast.walk(ast.parse(source)))
        self._lines = source.split("\n")
        left_out: list[ast.expr | ast.stmt] = [node for node in nodes if isinstance(node, ast.JoinedStr | ast.Raise)]
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                left_out += node.decorator_list
        left_out += [node.annotation for node in nodes if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation]
        left_out += [node.returns for node in nodes if isinstance(node, ast.FunctionDef) and node.returns]
        left_out += [
            node
            for node in nodes
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        ]
        self._left_out = [(self._start(node), self._end(node)) for node in left_out]
        self._binary = [
            (self._end(node.left), self._start(node.right)) for node in nodes if isinstance(node, ast.BinOp)
        ] + [(self._end(node.target), self._start(node.value)) for node in nodes if isinstance(node, ast.AugAssign)]
        self._single_comparisons = {
            self._start(node.test)
            for node in nodes
            if isinstance(node, ast.If | ast.While | ast.IfExp)
            and isinstance(node.test, ast.Compare)
            and len(node.test.ops) == 1
            and not isinstance(node.test.ops[0], ast.In | ast.NotIn)
        }

    def has(self, operator: str, start: Position) -> bool:
        """Return True if a mutant counts.

        Args:
            operator: the name that Cosmic Ray gives it.
            start: position of the change.
        """
        if not OPERATORS.fullmatch(operator) or any(first <= start < last for first, last in self._left_out):
            return False
        if operator.startswith("core/ReplaceBinaryOperator_"):
            return any(first <= start < last for first, last in self._binary)
        return operator != "core/AddNot" or start not in self._single_comparisons

    def _start(self, node: ast.expr | ast.stmt) -> Position:
        return node.lineno, self._column(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> Position:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return node.end_lineno, self._column(node.end_lineno, node.end_col_offset)

    def _column(self, line: int, offset: int) -> int:
        """Convert an offset in bytes to characters."""
        return len(self._lines[line - 1].encode()[:offset].decode())


class Copy:
    """A copy of the repository whose sources change, and the tests of it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "copy"
        left_out = shutil.ignore_patterns(".git", ".venv", "build", "dist", "node_modules", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, self.root, ignore=left_out, symlinks=True)
        self._view = folder / "view"
        command = [sys.executable, "-m", "tools.release.package_view", str(self._view)]
        subprocess.run(command, cwd=self.root, check=True, stdout=subprocess.DEVNULL)
        self._log = folder / "log"

    def run(self, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Run tests in a process of their own, until one fails.

        Returns:
            The exit code of pytest, None if the tests do not end in time or the process dies; and the last output.
        """
        process = os.fork()
        if process == 0:
            self._test(tests)
        status = _wait(process, seconds)
        output = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
        return (os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None), output

    def _test(self, tests: Sequence[str]) -> None:
        """Run pytest and end the process."""
        os.setsid()
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.chdir(self.root)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        sys.path[:0] = [str(self._view), str(self.root)]
        os.environ["PYTHONPATH"] = str(self._view)
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "not slow and not vendor"]
        code = 1
        try:  # whatever a mutant raises, this process must not return to the caller of the fork
            code = int(importlib.import_module("pytest").main([*options, "--hypothesis-seed=0", *tests]))
            sys.stdout.flush()
        finally:
            os._exit(code)


def _wait(process: int, seconds: float) -> int | None:
    """Return the status of a process group's leader, or end the group after some seconds and return None."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.02)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def mutants_of(files: Sequence[Path]) -> list[Any]:
    """Return the counted mutants of files, as work items of Cosmic Ray in the order of the source."""
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import use_db

    with use_db(":memory:") as session:
        init(files, session, {})
        items = session.work_items
    rules = {file: Counted(file.read_text(encoding="utf-8")) for file in files}
    counted = []
    for item in items:
        (mutation,) = item.mutations
        line, column = mutation.start_pos
        if rules[mutation.module_path].has(mutation.operator_name, (line, column)):
            counted.append(item)
    return sorted(
        counted,
        key=lambda item: (
            str(item.mutations[0].module_path),
            item.mutations[0].start_pos,
            item.mutations[0].operator_name,
            item.mutations[0].occurrence,
        ),
    )


def judge(part: Part, sample: int, seed: int, sessions: Path) -> tuple[Count, list[str]]:
    """Judge the mutants of a part. Return the counts, and a line per survivor without a reason and reason without one.

    Args:
        part: the files and tests.
        sample: number of mutants that are drawn; 0 for all.
        seed: of the sample.
        sessions: folder for the session of Cosmic Ray, which ``cr-html`` and ``cosmic-ray dump`` read.

    Raises:
        RuntimeError: the tests fail without a change.
    """
    from cosmic_ray.work_db import use_db
    from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

    for name in PRELOADED:
        importlib.import_module(name)
    sessions.mkdir(parents=True, exist_ok=True)
    path = sessions / f"{part.module}-{Path(part.files[0]).stem}.sqlite"
    path.unlink(missing_ok=True)
    problems: list[str] = []
    explained: set[Mutant] = set()
    survivors = 0
    with tempfile.TemporaryDirectory() as folder, use_db(path) as session:
        copy = Copy(Path(folder))
        start = time.monotonic()
        code, output = copy.run(part.tests, MOST_SECONDS)
        if code != 0:
            raise RuntimeError(f"{part.module}: the tests fail without a change (exit code {code})\n{output}")
        seconds = 10 + 4 * (time.monotonic() - start)
        items = mutants_of([copy.root / file for file in part.files])
        if 0 < sample < len(items):
            items = [items[index] for index in sorted(random.Random(seed).sample(range(len(items)), sample))]
        session.add_work_items(items)
        for number, item in enumerate(items):
            mutant, line, code, output = _judge_one(copy, part, item.mutations[0], number, seconds)
            outcome = TestOutcome.SURVIVED if code == 0 else TestOutcome.KILLED
            diff = f"- {mutant.old}\n+ {mutant.new}"
            session.set_result(item.job_id, WorkResult(WorkerOutcome.NORMAL, output, outcome, diff))
            survivors += code == 0
            if code == 0 and mutant in part.reasons:
                explained.add(mutant)
            elif code == 0:
                problems.append(f"survived without a reason: {mutant.file}:{line}\n    {mutant.old}\n    {mutant.new}")
                print(problems[-1], flush=True)
    unexplained = len(problems)
    if not sample:
        problems += [f"no such survivor: {each.file}: {each.new}" for each in part.reasons if each not in explained]
    killed = len(items) - survivors
    count = Count(part.module, part.files, len(items), killed, survivors - unexplained)
    return count, problems


def _judge_one(
    copy: Copy, part: Part, mutation: Any, number: int, seconds: float
) -> tuple[Mutant, int, int | None, str]:
    """Apply a mutation to the copy and run the tests. Return the mutant, its line, the exit code and the output."""
    from cosmic_ray.mutating import use_mutation
    from cosmic_ray.plugins import get_operator

    operator = get_operator(mutation.operator_name)()
    with use_mutation(mutation.module_path, operator, mutation.occurrence) as (before, after):
        os.utime(mutation.module_path, (number, number))  # bytecode is valid for sources of one time
        code, output = copy.run(part.tests, seconds)
    file = str(mutation.module_path.relative_to(copy.root))
    old, new = changed_lines(before, after)
    return Mutant(file, old, new), mutation.start_pos[0], code, output


def changed_lines(before: str, after: str) -> tuple[str, str]:
    """Return the lines in which two texts differ, without indentation."""
    old, new = before.split("\n"), after.split("\n")
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return " ".join(line.strip() for line in old), " ".join(line.strip() for line in new)


def judge_all(
    selected: Sequence[Part], sample: int, seed: int, sessions: Path, jobs: int
) -> tuple[list[Count], list[str]]:
    """Judge parts in processes. Return the counts of the modules and the problems, a line or paragraph each."""
    counts: dict[str, Count] = {}
    problems: list[str] = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for count, found in pool.map(partial(judge, sample=sample, seed=seed, sessions=sessions), selected):
            counts[count.module] = counts[count.module] + count if count.module in counts else count
            problems += found
    problems += [
        f"{each.module}: {each.share:.1%} of the mutants are killed, expected at least {LEAST_SHARE:.0%}: add tests"
        for each in counts.values()
        if each.share < LEAST_SHARE
    ]
    return list(counts.values()), problems


def table(counts: Sequence[Count]) -> list[str]:
    """Return the lines of the table."""
    return [
        "| module | mutants | killed | survived with a reason | share killed |",
        "|---|---|---|---|---|",
        *(
            f"| {each.module} | {each.mutants:,} | {each.killed:,} | {each.explained:,} | {each.share:.1%} |"
            for each in counts
        ),
    ]


def page() -> str:
    """Return the page with the table of the recorded counts."""
    entries = json.loads(RECORD.read_text(encoding="utf-8"))
    counts = [Count(**{**entry["count"], "files": tuple(entry["count"]["files"])}) for entry in entries]
    oldest = min(entries, key=lambda entry: str(entry["date"]))
    measured = f"All mutants, measured {oldest['date']} with tpuconvert {oldest['version']} or later"
    lines = ["", f"{measured} by `python -m {TOOL} --record`:", "", *table(counts), ""]
    return replace_section(PAGE, PAGE.read_text(encoding="utf-8"), "mutants", TOOL, lines)


def record(counts: Sequence[Count]) -> None:
    """Replace the recorded counts of modules."""
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    entries = {entry["count"]["module"]: entry for entry in kept}
    for count in counts:
        stated = {"date": time.strftime("%Y-%m-%d"), "version": version("tpuconvert"), "count": asdict(count)}
        entries[count.module] = stated
    RECORD.write_text(json.dumps(list(entries.values()), indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Judge mutants, or write the page."""
    every = parts()
    modules = list(dict.fromkeys(part.module for part in every))
    parser = argparse.ArgumentParser(prog=f"python -m {TOOL}", description="Count the mutants that the tests kill.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(modules)} (all)")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="mutants per part of a module (all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--sessions", type=Path, default=ROOT / "build" / "mutants", metavar="FOLDER")
    parser.add_argument("--record", action="store_true", help=f"write the counts into {RECORD.name} and {PAGE.name}")
    parser.add_argument("--page", action="store_true", help="write the table of the recorded counts and judge nothing")
    parser.add_argument("--check", action="store_true", help="exit code 1 if the page is out of date")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.modules) - set(modules)):
        parser.error(f"{', '.join(unknown)}: not a module; the modules are {', '.join(modules)}")
    if options.check:
        is_current = PAGE.read_text(encoding="utf-8") == page()
        if not is_current:
            print(f"{PAGE.name} is out of date: run python -m {TOOL} --page", file=sys.stderr)
        return 0 if is_current else 1
    if options.record and options.sample:
        parser.error("--record counts all mutants: leave --sample out")
    if not options.page:
        selected = [part for part in every if not options.modules or part.module in options.modules]
        counts, problems = judge_all(selected, options.sample, options.seed, options.sessions, options.jobs)
        print("\n".join([*table(counts), *problems]))
        if problems or not options.record:
            return 1 if problems else 0
        record(counts)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
