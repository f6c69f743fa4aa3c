"""The option --preprocess of commands that run a model."""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.option_declaration import option
from tpuconvert.samples.preprocess import Preprocess


@dataclass(frozen=True, kw_only=True)
class PreprocessOption:
    """Preprocessing of a command that runs a model."""

    preprocess: str | None = option(
        None,
        "Preprocessing to use instead of the preprocessing of the model; see convert.",
        metavar="KEY=VALUE,...",
        is_file=True,
    )

    @property
    def rule(self) -> Preprocess | None:
        """The given preprocessing."""
        return None if self.preprocess is None else Preprocess.parse(self.preprocess)
