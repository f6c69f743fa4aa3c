"""Results of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tpuconvert.schema.text.plain_values import Count, Seconds
from tpuconvert.text.result import Result


class Token(NamedTuple):
    """One generated token.

    Args:
        id: its id.
        text: the text that it completes, in whole characters; empty without a tokenizer.
    """

    id: int
    text: str


@dataclass(frozen=True, repr=False)
class Generation(Result):
    """Tokens that a model has generated.

    Args:
        file: name of the model.
        tokens: the prompt.
        new_tokens: the generated tokens.
        text: the generated tokens as text; None without a tokenizer.
        stopped: True if the last token is an end token.
        reused_tokens: number of tokens of the prompt that were in the caches already.
        prompt_seconds: time of the runs with the rest of the prompt.
        seconds: time of the other runs.
        prompt_rate: tokens of the prompt per second, without the reused ones; None if no time was measured.
        rate: tokens per second in the other runs, one less than the generated tokens; None if there were none.

    """

    file: str
    tokens: tuple[Count, ...]
    new_tokens: tuple[Count, ...]
    text: str | None
    stopped: bool
    reused_tokens: Count
    prompt_seconds: Seconds
    seconds: Seconds
    prompt_rate: float | None
    rate: float | None

    def lines(self) -> list[str]:
        """Return the text, or the ids of the generated tokens separated by commas."""
        if self.text is not None:
            return self.text.split("\n")
        return [",".join(map(str, self.new_tokens))]

    @property
    def speed(self) -> str:
        """Numbers of tokens, and tokens per second, of the prompt and of the other runs."""
        reused = f" ({self.reused_tokens} reused)" if self.reused_tokens else ""
        prompt = f"prompt {len(self.tokens)} tokens{reused}{_per_second(self.prompt_rate)}"
        return f"{prompt}; generated {len(self.new_tokens)} tokens{_per_second(self.rate)}"


def _per_second(rate: float | None) -> str:
    return "" if rate is None else f", {rate:.1f} tokens/s"


@dataclass(frozen=True, repr=False)
class Generations(Result):
    """Continuations of several prompts.

    Args:
        generations: one per prompt, in their order.

    """

    generations: tuple[Generation, ...]

    def lines(self) -> list[str]:
        """Return the lines of all continuations, with an empty line between them."""
        parts: Sequence[list[str]] = [item.lines() for item in self.generations]
        return [line for index, part in enumerate(parts) for line in ([""] if index else []) + part]
