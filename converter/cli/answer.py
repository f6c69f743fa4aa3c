"""What a command has said on stdout so far: where JSON is asked for, it is one document and never two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Answer:
    """Kept by the context of one command line.

    Args:
        is_json: whether JSON was asked for.
        is_given: whether the document was printed.

    """

    is_json: bool
    is_given: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether a document is still owed."""
        return self.is_json and not self.is_given
