"""What a long conversion tells while it runs. The library says nothing; the command line draws it on stderr."""

from __future__ import annotations


class Progress:
    """Receives the stages of a conversion. This one keeps silent; others draw."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A stage begins; ``total`` is the number of its steps, where that is known."""

    def tell(self, text: str) -> None:
        """Something worth knowing that no error and no note of the model says, such as which samples were used."""

    def advance(self, done: int) -> None:
        """So many steps of the stage are done."""


SILENT = Progress()
