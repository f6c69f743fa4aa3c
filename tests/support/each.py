"""Many cheap cases of one check as one test, which names every case that fails."""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

MOST_SHOWN = 5
"""Failures with their traceback; the others are named."""


def check_each(check: Callable[[Any], None], cases: Sequence[Any], name: Callable[[Any], str] = str) -> None:
    """Run a check for each case of a test, and fail with the names of all cases that fail.

    Args:
        check: takes a case; it fails by an exception.
        cases: at least one.
        name: returns the name of a case, for the failures.
    """
    assert cases, "no cases"
    failures = []
    for case in cases:
        try:
            check(case)
        except pytest.skip.Exception:
            continue
        except (Exception, pytest.fail.Exception):
            failures.append((name(case), traceback.format_exc(limit=-3)))
    if failures:
        shown = "\n".join(f"{case}: {text}" for case, text in failures[:MOST_SHOWN])
        pytest.fail(f"{len(failures)} of {len(cases)} cases fail: {[case for case, _ in failures]}\n{shown}")


def each(names: str, cases: Iterable[Any], name: Callable[[Any], str] = str) -> Callable[..., Any]:
    """Decorate a test so that it runs for each case, as one test; its other arguments are fixtures.

    ``pytest.mark.parametrize`` makes a test per case. Use it where a case takes long, has its own folder, or is
    selected alone.

    Args:
        names: argument names, separated by commas, for which a case has the values.
        cases: a value, or a tuple of values for several names; what ``pytest.param`` returns, too.
        name: returns the name of a case, for the failures.
    """
    arguments = [item.strip() for item in names.split(",")]
    listed = [case.values if isinstance(case, type(pytest.param())) else case for case in cases]

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(check)
        fixtures = [item for key, item in signature.parameters.items() if key not in arguments]

        @functools.wraps(check)
        def run(**given: Any) -> None:
            def check_case(case: Any) -> None:
                check(**given, **dict(zip(arguments, case if len(arguments) > 1 else (case,), strict=True)))

            check_each(check_case, listed, name)

        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate
