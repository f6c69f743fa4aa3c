"""Report allocations that failed as errors of tpuconvert."""

from __future__ import annotations

from types import TracebackType

from tpuconvert.schema.errors import ResourceLimitError


class MemoryErrors:
    """Context that replaces ``MemoryError`` by :class:`ResourceLimitError`.

    Args:
        what: what needs the memory, in the form "running the model".
        file: name of the model file, if known.

    """

    def __init__(self, what: str, file: str = "") -> None:
        self._what = what
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, MemoryError):
            raise not_enough_memory(self._what, self._file, error) from error


def not_enough_memory(what: str, file: str, error: MemoryError, node: str = "") -> ResourceLimitError:
    """Return the error for a failed allocation. NumPy names the size of the array, the native engine names none."""
    size = f": {error}" if "allocate" in str(error) else ""
    return ResourceLimitError(
        f"{what} needs more memory than there is{size}",
        file=file,
        node=node,
        hint="use smaller inputs or a smaller batch, or a machine with more memory",
    )
