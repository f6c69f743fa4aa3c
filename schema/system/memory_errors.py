"""Report allocations that failed as errors of tpuconvert."""

from __future__ import annotations

from types import TracebackType

from tpuconvert.schema.errors import ResourceLimitError

RUN_HINT = "use smaller inputs or a smaller batch, or a machine with more memory"
OTHER_HINT = "use a machine with more memory"


class MemoryErrors:
    """Context that replaces ``MemoryError`` by :class:`ResourceLimitError`.

    Args:
        what: what needs the memory, in the form "running the model".
        file: name of the model file, if known.
        hint: what the user can do.

    """

    def __init__(self, what: str, file: str = "", hint: str = OTHER_HINT) -> None:
        self._what = what
        self._file = file
        self._hint = hint

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, MemoryError):
            raise not_enough_memory(self._what, error, file=self._file, hint=self._hint) from error


def not_enough_memory(
    what: str, error: MemoryError, *, file: str = "", node: str = "", hint: str = OTHER_HINT
) -> ResourceLimitError:
    """Return the error for a failed allocation. NumPy names the size of the array, the native engine names none."""
    size = f": {error}" if "allocate" in str(error) else ""
    return ResourceLimitError(f"{what} needs more memory than there is{size}", file=file, node=node, hint=hint)


def too_large_run(error: MemoryError, *, file: str, node: str = "") -> ResourceLimitError:
    """Return the error for an allocation that failed while a model ran."""
    return not_enough_memory("running the model", error, file=file, node=node, hint=RUN_HINT)
