"""The error that ends one converter."""

from __future__ import annotations

from collections.abc import Iterable

from tpuconvert.schema.errors import ProblemKind


class CannotConvertError(Exception):
    """Ends one converter; the importer reports it as a problem of the model and continues with the next node.

    Args:
        kind: of the problem.
        message: what was found and what was expected.
        hint: the next step for the user.
        needs: inputs of the model that would have to be constants, if only that is missing.
    """

    def __init__(self, kind: ProblemKind, message: str, hint: str = "", needs: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.needs = tuple(sorted(needs))
