"""What a command has said on stdout so far: where JSON is asked for, it is one document and never two."""

from __future__ import annotations


class Answer:
    """Kept by the context of one command line.

    Args:
        is_json: whether JSON was asked for.

    """

    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json
        self.is_given = False

    @property
    def is_missing(self) -> bool:
        """Whether a document is still owed."""
        return self.is_json and not self.is_given
