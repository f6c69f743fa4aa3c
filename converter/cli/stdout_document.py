"""State of stdout of a command: with ``--json`` it prints exactly one document."""

from __future__ import annotations


class StdoutDocument:
    """State of one command line, stored in its click context: whether the JSON document was printed.

    Args:
        is_json: whether the command prints JSON.

    """

    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json
        self.is_given = False

    @property
    def is_missing(self) -> bool:
        """Return True if the document was not printed yet."""
        return self.is_json and not self.is_given
