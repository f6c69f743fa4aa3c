"""Progress of a long conversion. The library reports it; the command line shows it on stderr."""

from __future__ import annotations


class Progress:
    """Receiver of the stages of a conversion. This one ignores them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage; ``total`` is the number of its steps, if known."""

    def report(self, text: str) -> None:
        """Report a fact that is neither an error nor a note of the model, such as the samples used."""

    def advance(self, done: int) -> None:
        """Report the number of finished steps of the stage."""


SILENT = Progress()
