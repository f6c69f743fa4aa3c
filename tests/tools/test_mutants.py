"""Mutation testing: which mutants count, how they are judged, and the list of modules, tests and reasons."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tools.release import mutants
from tools.release.mutants import Count, Counted, Mutant, Part, changed_lines, judge, mutants_of, parts, table

SOURCE = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Number = int | float


@dataclass(frozen=True)
class Settings:
    depth: "int | None" = None


def scaled(values: list[int] | None, *, factor: int = 3) -> int | float:
    \"\"\"Sum the scaled values, 1 + 1.\"\"\"
    if values is None or not values:
        raise ValueError(f"{1 + 1} values" + "!")
    total = 0
    for value in list((*values,)):
        if value < 0:
            continue
        total += value * factor
    return total
"""


def test_mutants_that_count(tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray")
    path = tmp_path / "scaled.py"
    path.write_text(SOURCE, encoding="utf-8")
    changes = [
        (SOURCE.splitlines()[item.mutations[0].start_pos[0] - 1].strip(), item.mutations[0].operator_name[5:])
        for item in mutants_of([path])
    ]
    assert sorted(changes) == [
        ("continue", "ReplaceContinueWithBreak"),
        ("def scaled(values: list[int] | None, *, factor: int = 3) -> int | float:", "NumberReplacer"),
        ("def scaled(values: list[int] | None, *, factor: int = 3) -> int | float:", "NumberReplacer"),
        ("for value in list((*values,)):", "ZeroIterationForLoop"),
        ("if value < 0:", "NumberReplacer"),
        ("if value < 0:", "NumberReplacer"),
        ("if value < 0:", "ReplaceComparisonOperator_Lt_GtE"),
        ("if value < 0:", "ReplaceComparisonOperator_Lt_LtE"),
        ("if values is None or not values:", "AddNot"),
        ("if values is None or not values:", "ReplaceComparisonOperator_Is_IsNot"),
        ("if values is None or not values:", "ReplaceOrWithAnd"),
        ("if values is None or not values:", "ReplaceUnaryOperator_Delete_Not"),
        ("total += value * factor", "ReplaceBinaryOperator_Mul_Div"),
        ("total = 0", "NumberReplacer"),
        ("total = 0", "NumberReplacer"),
    ]


def test_columns_are_characters() -> None:
    rules = Counted("x = 'äöü', 1 + 2\n")
    assert rules.has("core/ReplaceBinaryOperator_Add_Sub", (1, 13))
    assert not rules.has("core/ReplaceBinaryOperator_Add_Mul", (1, 13))


def test_lines_of_a_change() -> None:
    assert changed_lines("a\n  b\nc\n", "a\n  d\nc\n") == ("b", "d")
    assert changed_lines("a\n  b\nc\n", "a\nc\n") == ("b", "")


def test_the_list_names_files_tests_and_reasons(repository: Path) -> None:
    files = [file for part in parts() for file in part.files]
    assert len(files) == len(set(files)) >= 4
    for part in parts():
        assert all((repository / path.split("::")[0]).exists() for path in (*part.files, *part.tests))
        for mutant, reason in part.reasons.items():
            lines = [line.strip() for line in (repository / mutant.file).read_text(encoding="utf-8").splitlines()]
            assert mutant.file in part.files and reason
            assert mutant.old in lines and mutant.new != mutant.old, f"{mutant.file} has no line '{mutant.old}'"


def test_the_record_has_every_module_and_enough_killed_mutants() -> None:
    counts = [Count(**entry["count"]) for entry in json.loads(mutants.RECORD.read_text(encoding="utf-8"))]
    assert {count.module for count in counts} == {part.module for part in parts()}
    for count in counts:
        assert count.share >= mutants.LEAST_SHARE
        assert count.killed + count.explained == count.mutants
        assert sorted(count.files) == sorted(
            file for part in parts() if part.module == count.module for file in part.files
        )


def test_table_and_sum() -> None:
    total = Count("m", ("a.py",), 10, 9, 1) + Count("m", ("b.py",), 1990, 1800, 0)
    assert table([total])[2] == "| m | 2,000 | 1,809 | 1 | 90.5% |"
    assert total.files == ("a.py", "b.py")


def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["absent"], "absent: not a module; the modules are fixed_point"),
        (["--record", "--sample", "3"], "leave --sample out"),
    ):
        with pytest.raises(SystemExit):
            mutants.main(arguments)
        assert words in capsys.readouterr().err


@pytest.fixture
def small_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository of one module and the tests of it."""
    root = tmp_path / "small"
    (root / "tools" / "release").mkdir(parents=True)
    (root / "tools" / "release" / "package_view.py").write_text("", encoding="utf-8")
    (root / "small.py").write_text(
        textwrap.dedent(
            """
            def limited(x):
                while x > 3:
                    x -= 1
                return max(x, 0)
            """
        ),
        encoding="utf-8",
    )
    test = "def test_limits():\n    assert [limited(x) for x in (-1, 2, 8, 9)] == [0, 2, 3, 3]\n"
    (root / "test_small.py").write_text(f"from small import limited\n\n\n{test}", encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", root)
    return root


@pytest.mark.slow  # one mutant never ends: it waits for the limit of time
def test_survivors_need_a_reason(small_repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray")
    part = Part("small", ("small.py",), ("test_small.py",))
    count, problems = judge(part, 0, 0, tmp_path / "sessions")
    survivors = [problem.splitlines()[-1].strip() for problem in problems]
    assert count.mutants == count.killed + len(survivors)
    assert survivors == []
    weak = small_repository / "test_small.py"
    weak.write_text("from small import limited\n\n\ndef test_limits():\n    assert limited(2) == 2\n", encoding="utf-8")
    reasons = {
        Mutant("small.py", "x -= 1", "x -= 2"): "a reason",
        Mutant("small.py", "return max(x, 0)", "return max(x, 9)"): "not a survivor",
    }
    count, problems = judge(Part("small", ("small.py",), ("test_small.py",), reasons), 0, 0, tmp_path / "sessions")
    assert count.explained == 1 and count.killed < count.mutants
    assert any("survived without a reason: small.py:3" in problem for problem in problems)
    assert "no such survivor: small.py: return max(x, 9)" in problems


def test_tests_that_fail_without_a_change_are_an_error(small_repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray")
    (small_repository / "test_small.py").write_text("def test_wrong():\n    assert 0\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="small: the tests fail without a change"):
        judge(Part("small", ("small.py",), ("test_small.py",)), 0, 0, tmp_path / "sessions")
