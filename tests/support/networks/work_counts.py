"""Number of function calls as a reproducible measure of work."""

import sys
from collections.abc import Callable


def calls_of(work: Callable[[], object]) -> int:
    """Number of Python function calls."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
