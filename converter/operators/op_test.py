"""``tpuconvert.operators.generated_tests``: tests of custom operators, generated from their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.operators.generated_tests import Outcome, raise_if_failed, run_tests
from tpuconvert.plugins import operators_of_file
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import style
from tpuconvert.text.table import table


@dataclass(frozen=True, repr=False)
class OpTests(Result, keys={"outcomes": "tests"}):
    """Results of the tests of the operators in a plugin.

    Args:
        outcomes: operator, test, ``passed`` (None for a test that does not apply) and detail.

    """

    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> list[Outcome]:
        """The tests that failed."""
        return [outcome for outcome in self.outcomes if outcome.passed is False]

    def check(self) -> None:
        """Raise an error with the number of failed tests.

        Raises:
            ThresholdError: at least one test failed.

        """
        raise_if_failed(self.outcomes)

    def lines(self) -> list[str]:
        """Return the table of tests."""
        return table(self._cells())

    def _cells(self) -> list[tuple[str, ...]]:
        words = {True: style("passed", "good"), False: style("FAILED", "bad"), None: "-"}
        cells = ((item.operator, item.test, words[item.passed], item.detail) for item in self.outcomes)
        return [("operator", "test", "result", ""), *cells]

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        return [repr(self)], self._cells()

    def __repr__(self) -> str:
        return f"<OpTests: {len(self.failed)} of {len(self.outcomes)} tests failed>"


def op_test(file: str | Path, *, require_native: bool = False) -> OpTests:
    """Test the operators that a plugin registers on the examples in their definitions.

    Inferred types must match the reference, the reference must be deterministic, the native kernel and the integer form
    must agree with the reference, and a saved and loaded model must give the same results.

    Args:
        file: The plugin.
        require_native: A native kernel that is not built is a failure.

    Returns:
        The outcomes. ``check`` raises an error if a test failed.

    Raises:
        UsageError: The plugin fails, or registers no operator.

    Example:
        >>> tc.op_test("swish_plugin.py")
        <OpTests: 0 of 5 tests failed>

    """
    return OpTests(tuple(run_tests(operators_of_file(file), require_native=require_native)))
