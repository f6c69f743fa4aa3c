"""Run the ``CASES`` of each file in this folder. Generated cases are equal in every run and on every machine."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.operators.op_cases import Case

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


class CaseItem(pytest.Item):
    """One check of one case."""

    def __init__(self, name: str, parent: pytest.Collector, check: Callable[[], None]) -> None:
        super().__init__(name, parent)
        self.check = check

    def runtest(self) -> None:
        self.check()


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """Generate two tests for each case in ``CASES``: of the definition, and of a model file with the operator."""
    if name != "CASES" or not isinstance(obj, list):
        return None
    items: list[pytest.Item] = []
    for case in obj:
        if isinstance(case, Case):
            items.append(CaseItem.from_parent(collector, name=f"definition[{case}]", check=case.check))
            items.append(CaseItem.from_parent(collector, name=f"model[{case}]", check=_model_check(case)))
    return items


def _model_check(case: Case) -> Callable[[], None]:
    def check() -> None:
        with tempfile.TemporaryDirectory() as folder:
            case.check_in_model(Path(folder))

    return check
