"""Exception that a converter raises for an operator that it cannot convert."""

from __future__ import annotations

from collections.abc import Iterable

from tpuconvert.schema.errors import ProblemKind


class CannotConvertError(Exception):
    """A node cannot be converted; the importer records the problem and continues with the next node.

    Args:
        kind: kind of the problem.
        message: what was found and what was expected.
        hint: next step for the user.
        needs: inputs of the model that must become constants, if the node could then be converted.
    """

    def __init__(self, kind: ProblemKind, message: str, hint: str = "", needs: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.needs = tuple(sorted(needs))
