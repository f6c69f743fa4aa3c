"""Choice of the next token by its logits, with the meaning and order of the logits processors of transformers."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tpuconvert.option_declaration import OptionGroup, document_fields, option
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

LONGEST = 256
"""Number of new tokens if neither a call nor ``generation_config.json`` limits it."""


def _read_penalty(value: float | None) -> float | None:
    if value == 0:
        raise UsageError("repetition_penalty is 0, expected more than 0")
    return value


def _read_tokens(ids: Iterable[int]) -> tuple[int, ...]:
    """Return the ids of tokens.

    Raises:
        TypeError: they are not integers.
        UsageError: an id is negative.
    """
    tokens = tuple(map(operator.index, ids))
    if any(token < 0 for token in tokens):
        raise UsageError(f"stop_tokens has {min(tokens)}, expected ids of at least 0")
    return tokens


@document_fields
@dataclass(frozen=True, kw_only=True)
class Sampling(OptionGroup):
    """Choice of the next token. None takes the value of ``generation_config.json``, or else the default."""

    max_new_tokens: int | None = option(None, "Largest number of new tokens, by default 256.", lower=1)
    temperature: float | None = option(
        None,
        "0, the default, chooses the largest logit; else a token is drawn from the softmax of logits divided by it.",
        lower=0.0,
    )
    top_k: int | None = option(
        None, "Draw from the tokens with the K largest logits, and equal ones.", metavar="K", lower=1
    )
    top_p: float | None = option(
        None, "Draw from the most probable tokens that together have this probability.", lower=0.0, upper=1.0
    )
    min_p: float | None = option(
        None, "Draw from the tokens with at least this share of the largest probability.", lower=0.0, upper=1.0
    )
    repetition_penalty: float | None = option(
        None,
        "Positive logits of tokens that occurred before are divided by it, negative ones multiplied.",
        read=_read_penalty,
        lower=0.0,
    )
    seed: int = option(0, "Of the random numbers.", lower=0)
    stop_tokens: tuple[int, ...] = option(
        (),
        "Token after which the generation ends, instead of the end tokens of the model's files.",
        read=_read_tokens,
        flags="--stop-token",
        metavar="ID",
        lower=0,
        is_repeated=True,
    )

    def check_draws(self) -> None:
        """Refuse options that have no effect, because no token is drawn.

        Raises:
            UsageError: they are given, and the temperature is 0.
        """
        name = next((item for item in ("top_k", "top_p", "min_p") if getattr(self, item) is not None), None)
        if name is not None and not self.temperature:
            raise UsageError(f"{name} has no effect with temperature 0", hint="add --temperature 1, or leave it out")

    def completed(self, defaults: Sampling) -> Sampling:
        """Return these values, and the values of ``defaults`` for None and for no stop tokens.

        Raises:
            UsageError: as for :meth:`check_draws`.
        """
        absent = [item.name for item in fields(self) if getattr(self, item.name) in (None, ())]
        temperature = defaults.temperature if self.temperature is None else self.temperature
        replace(self, temperature=temperature).check_draws()
        return replace(self, **{name: getattr(defaults, name) for name in absent})


class Choice:
    """Choice of the next token by its logits.

    Args:
        sampling: how; None is the default.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def __call__(self, logits: Array, tokens: Sequence[int]) -> int:
        """Return an id. Of equal logits, the token with the smallest id is preferred.

        Args:
            logits: of all tokens of the vocabulary.
            tokens: the prompt and the tokens that were generated before.
        """
        scores = _penalize(logits.astype(np.float64), tokens, self._sampling.repetition_penalty)
        if not self._sampling.temperature:
            return int(np.argmax(scores))
        ids, probabilities = candidates(scores, self._sampling)
        index = np.searchsorted(np.cumsum(probabilities), self._random.random() * probabilities.sum(), side="right")
        return int(ids[min(int(index), len(ids) - 1)])


def _penalize(scores: Array, tokens: Sequence[int], penalty: float | None) -> Array:
    """Lower the scores of tokens that occurred before, each of them once."""
    if penalty is None or penalty == 1:
        return scores
    seen = np.unique(np.asarray(tokens, np.int64))
    changed = scores.copy()
    with np.errstate(over="ignore"):  # an infinite score is never chosen
        changed[seen] = np.where(scores[seen] < 0, scores[seen] * penalty, scores[seen] / penalty)
    return changed


def candidates(scores: Array, sampling: Sampling) -> tuple[Array, Array]:
    """Return the ids of the tokens to draw from, and their probabilities.

    In this order: temperature, top-k, top-p, min-p. Each of them keeps at least the most probable token, and the
    probabilities of the next are relative to the tokens that are left. Only tokens that top-p may keep are sorted, as a
    vocabulary takes longer to sort than a small model to run.

    Args:
        scores: logits after the repetition penalty.
        sampling: with a temperature above 0.
    """
    assert sampling.temperature
    with np.errstate(over="ignore"):  # of a tiny temperature: scores below the largest become -inf
        scaled = (scores - scores.max()) / sampling.temperature
    ids = np.arange(len(scaled))
    if sampling.top_k is not None and sampling.top_k < len(scaled):  # tokens with the logit of the last one stay
        ids = np.flatnonzero(scaled >= np.partition(scaled, -sampling.top_k)[-sampling.top_k])
    if sampling.top_p is not None and sampling.top_p < 1:
        ids = _most_probable(ids, _softmax(scaled[ids]), 1 - sampling.top_p)
    if sampling.min_p is not None:
        probabilities = _softmax(scaled[ids])
        ids = ids[probabilities >= sampling.min_p * probabilities.max()]
    return ids, _softmax(scaled[ids])


def _most_probable(ids: Array, probabilities: Array, share: float) -> Array:
    """Remove the least probable tokens, as many as together have at most a share of the probability."""
    may_stay = probabilities > share / len(ids)  # all others together have at most the share
    may_stay |= probabilities == probabilities.max()
    rest, ids, probabilities = probabilities[~may_stay].sum(), ids[may_stay], probabilities[may_stay]
    order = np.argsort(-probabilities, kind="stable")
    sums = rest + np.cumsum(probabilities[order][::-1])[::-1]  # of a token and all that are less probable
    most_probable: Array = ids[order[: max(1, int(np.count_nonzero(sums > share)))]]
    return most_probable


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max())
    probabilities: Array = powers / powers.sum()
    return probabilities
