"""``tpuconvert.generate``: continue a sequence of tokens with a decoder language model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from tpuconvert.model.model import Model, load
from tpuconvert.plugins import load_plugins
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import CorruptInputError, MissingExtraError, UsageError
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.text.plain_values import Count, Seconds
from tpuconvert.schema.types import Array, format_shape
from tpuconvert.text.result import Result

CHUNK = 128
"""Number of tokens of a prompt per run, which bounds the memory of the logits. Results do not depend on it."""


@dataclass(frozen=True, repr=False)
class Generation(Result):
    """Tokens that a model has generated.

    Args:
        file: name of the model.
        tokens: the prompt.
        new_tokens: the generated tokens.
        text: the generated tokens as text; None without a tokenizer.
        stopped: True if the last token is a stop token.
        prompt_seconds: time of the runs with the prompt.
        seconds: time of the other runs.

    """

    file: str
    tokens: tuple[Count, ...]
    new_tokens: tuple[Count, ...]
    text: str | None
    stopped: bool
    prompt_seconds: Seconds
    seconds: Seconds

    def lines(self) -> list[str]:
        """Return the text, or the ids of the generated tokens separated by commas."""
        if self.text is not None:
            return self.text.split("\n")
        return [",".join(map(str, self.new_tokens))]


class _Tokenizer(Protocol):
    """The methods of ``tokenizers.Tokenizer`` that are used."""

    def encode(self, sequence: str) -> Any: ...
    def decode(self, ids: Sequence[int]) -> str: ...


def generate(
    model: Model | str | os.PathLike[str],
    *,
    tokens: Iterable[int] | None = None,
    prompt: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
    stop_tokens: Iterable[int] = (),
    backend: Literal["auto", "native", "reference"] = "auto",
    threads: int | None = None,
    plugins: Iterable[str | Path] = (),
) -> Generation:
    """Continue a sequence of tokens.

    Args:
        model: A decoder with key-value caches as state, or its file.
        tokens: Ids of the tokens of the prompt.
        prompt: Instead of ``tokens``: text, which the tokenizer encodes.
        tokenizer: ``tokenizer.json`` of the model. The generated tokens are decoded too.
        max_new_tokens: Largest number of tokens to generate.
        temperature: 0 chooses the token with the largest logit. Otherwise the logits are divided by it, and a token is
            drawn from their softmax.
        top_k: Number of tokens with the largest logits to draw from; None for all.
        seed: Seed of the random numbers.
        stop_tokens: Ids of tokens after which the generation ends, such as the end of a text.
        backend: ``auto``, ``native`` or ``reference``.
        threads: Number of threads of the native engine; None for the number of available CPUs.
        plugins: Python files with custom operators and converters.

    Returns:
        The generated tokens, and their text if a tokenizer is given.

    Raises:
        UsageError: The model is not a decoder with states, or the arguments do not fit it or each other.
        MissingExtraError: A tokenizer is given, and the package ``tokenizers`` is not installed.

    Example:
        >>> model = tc.load("decoder.tpum")
        >>> tc.generate(model, tokens=[1, 2, 3], max_new_tokens=4).new_tokens
        (3, 3, 3, 3)

    """
    if temperature < 0 or max_new_tokens < 1 or (top_k is not None and top_k < 1):
        message = f"temperature={temperature}, max_new_tokens={max_new_tokens}, top_k={top_k}"
        raise UsageError(f"{message}: expected a temperature of at least 0, and numbers of at least 1")
    load_plugins(plugins)
    encoder = None if tokenizer is None else _load_tokenizer(tokenizer)
    prompt_ids = _prompt_tokens(tokens, prompt, encoder)
    loaded = model if isinstance(model, Model) else load(model)
    output, size = _logits_of(loaded)
    outside = [token for token in prompt_ids if not 0 <= token < size]
    if outside:
        raise UsageError(f"token {outside[0]} is outside of the vocabulary, expected 0 to {size - 1}")
    stops, generated = frozenset(stop_tokens), list[int]()
    choose = _Choice(temperature, top_k, seed)
    with Session(loaded, backend=backend, threads=threads) as session:
        start = time.perf_counter()
        for first in range(0, len(prompt_ids), CHUNK):
            logits = session.run(np.array([prompt_ids[first : first + CHUNK]], np.int64))[output]
        begin = time.perf_counter()
        while True:
            generated.append(choose(logits[0, -1]))
            if generated[-1] in stops or len(generated) == max_new_tokens:
                break
            logits = session.run(np.array([[generated[-1]]], np.int64))[output]
        end = time.perf_counter()
    return Generation(
        file=loaded.graph.name,
        tokens=tuple(prompt_ids),
        new_tokens=tuple(generated),
        text=None if encoder is None else encoder.decode(generated),
        stopped=generated[-1] in stops,
        prompt_seconds=begin - start,
        seconds=end - begin,
    )


def _load_tokenizer(path: str | os.PathLike[str]) -> _Tokenizer:
    if not os.path.isfile(path):
        raise UsageError(f"{os.fspath(path)}: no such file, expected the tokenizer.json of the model")
    try:
        from tokenizers import Tokenizer  # optional dependency
    except ImportError as error:
        hint = "pip install 'tpuconvert[language]', or give --tokens"
        raise MissingExtraError("a tokenizer needs the package tokenizers", hint=hint) from error
    note_input(path)
    try:
        loaded: _Tokenizer = Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # the package raises Exception itself
        raise CorruptInputError(f"{os.fspath(path)} is not a tokenizer.json: {error}") from error
    return loaded


def _prompt_tokens(tokens: Iterable[int] | None, prompt: str | None, tokenizer: _Tokenizer | None) -> list[int]:
    """Ids of the prompt, of which at least one is needed."""
    if (tokens is None) == (prompt is None):
        raise UsageError("expected either tokens or a prompt", hint="--tokens 1,2,3, or --prompt TEXT --tokenizer FILE")
    if prompt is not None and tokenizer is None:
        raise UsageError("a prompt without a tokenizer", hint="add --tokenizer tokenizer.json, or give --tokens")
    ids = [int(token) for token in (tokens if tokens is not None else _encode(tokenizer, prompt))]
    if not ids:
        raise UsageError("the prompt has no tokens, expected at least one")
    return ids


def _encode(tokenizer: _Tokenizer | None, prompt: str | None) -> list[int]:
    assert tokenizer is not None and prompt is not None
    ids: list[int] = tokenizer.encode(prompt).ids
    return ids


def _logits_of(model: Model) -> tuple[str, int]:
    """Name of the output with the logits, and the number of tokens in the vocabulary."""
    if not model.states:
        raise UsageError(
            f"{model.graph.name} keeps no state between runs, expected a decoder with key-value caches",
            hint="convert an ONNX decoder whose caches are inputs and outputs, without --state ports or none",
        )
    states = {model.graph.output_ports[state.output].name for state in model.states}
    ports = [port for port in model.graph.output_ports if port.name not in states and len(port.shape) == 3]
    logits = [port for port in ports if port.name == "logits"] or ports
    if len(logits) != 1 or not isinstance(logits[0].shape[2], int) or logits[0].shape[0] not in (1, "batch"):
        listed = ", ".join(f"'{port.name}' {format_shape(port.shape)}" for port in ports)
        raise UsageError(f"the outputs are {listed or 'not of rank 3'}, expected logits [1, tokens, vocabulary]")
    return logits[0].name, logits[0].shape[2]


class _Choice:
    """Choice of the next token by its logits; see ``generate``."""

    def __init__(self, temperature: float, top_k: int | None, seed: int) -> None:
        self._temperature, self._top_k = temperature, top_k
        self._random = np.random.default_rng(seed)

    def __call__(self, logits: Array) -> int:
        """Return an id. Of equal logits, the token with the smallest id is preferred."""
        if self._temperature == 0:
            return int(np.argmax(logits))
        order = np.argsort(-logits.astype(np.float64), kind="stable")[: self._top_k]
        scores = logits[order].astype(np.float64) / self._temperature
        powers = np.exp(scores - scores[0])
        index = np.searchsorted(np.cumsum(powers), self._random.random() * powers.sum(), side="right")
        return int(order[min(int(index), len(order) - 1)])
