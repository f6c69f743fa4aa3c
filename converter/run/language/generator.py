"""``tpuconvert.Generator``: a decoder language model that continues prompts and conversations, token by token."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np

from tpuconvert.model.model import Model, load
from tpuconvert.plugins import load_plugins
from tpuconvert.run.language.chat_template import Messages
from tpuconvert.run.language.generation import Generation, Token
from tpuconvert.run.language.model_files import ModelFiles
from tpuconvert.run.language.sampling import LONGEST, Choice, Sampling
from tpuconvert.run.language.text_pieces import TextPieces
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import RunError, UsageError
from tpuconvert.schema.graph.states import FIXED
from tpuconvert.schema.types import Array, format_shape

CHUNK = 128
"""Number of tokens of a prompt per run, which bounds the memory of the logits. Results do not depend on it."""

Prompt = str | Messages
"""Text to continue, or messages of a conversation to answer."""


class Generator:
    """A decoder language model that continues prompts. Use it in a ``with`` block, or call ``close``.

    The caches of the model are kept between calls: tokens at the start of a prompt that equal the tokens of the call
    before, as in a conversation, are not run again. Results do not depend on it.

    End tokens and the defaults of ``sampling`` are read from ``generation_config.json``, and the chat template from
    ``chat_template.jinja`` or ``tokenizer_config.json``, in the folder of the tokenizer.

    Args:
        model: A decoder with key-value caches as state, or its file.
        tokenizer: ``tokenizer.json`` of the model, or its folder. None: the folder of the model's file.
        sampling: Choice of the tokens.
        backend: ``auto``, ``native`` or ``reference``.
        threads: Number of threads of the native engine; None for the number of available CPUs.
        plugins: Python files with custom operators and converters.

    Raises:
        UsageError: The model is not a decoder with states, or the tokenizer does not exist.
        CorruptInputError: A file is damaged.

    Example:
        >>> with tc.Generator("decoder.tpum") as generator:
        ...     [token.id for token in generator.stream(tokens=[1, 2, 3])][:4]
        [3, 3, 3, 3]
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        *,
        tokenizer: str | os.PathLike[str] | None = None,
        sampling: Sampling | None = None,
        backend: Literal["auto", "native", "reference"] = "auto",
        threads: int | None = None,
        plugins: Iterable[str | Path] = (),
    ) -> None:
        load_plugins(plugins)
        self._files = ModelFiles.find(tokenizer, None if isinstance(model, Model) else model)
        self._has_text = tokenizer is not None
        self._sampling = sampling or Sampling()
        loaded = model if isinstance(model, Model) else load(model)
        self._output, self._size = _logits_of(loaded)
        self._name = loaded.graph.name
        self._can_truncate = all(state.axis != FIXED for state in loaded.states)
        self._cached: list[int] = []
        self._stream: TokenStream | None = None
        if tokenizer is not None:
            self._files.tokenizer  # noqa: B018  errors in the file are reported now
        self._session = Session(loaded, backend=backend, threads=threads)

    @property
    def notes(self) -> list[str]:
        """Parameters of ``generation_config.json`` that have no effect, and the reason of a new plan for each token."""
        reason = self._session.replanning
        plans = f"every token needs a new plan, which takes most of its time: {reason}"
        return [*self._files.notes, *([plans] if reason else [])]

    def stream(self, prompt: Prompt | None = None, *, tokens: Iterable[int] | None = None) -> TokenStream:
        """Start a continuation, and return an iterator of its tokens. It ends the one before.

        Args:
            prompt: Text, which the tokenizer encodes, or messages such as ``[{"role": "user", "content": "Hello"}]``,
                of which the chat template makes the text.
            tokens: Instead: ids of the tokens of the prompt. The generated tokens have text only if ``tokenizer`` was
                given.

        Raises:
            UsageError: There are no tokens, or tokens outside of the vocabulary, or files for the text are missing.
            MissingExtraError: A package of the extra ``language`` is not installed.
            CorruptInputError: A file is damaged.
        """
        ids = self._prompt_tokens(prompt, tokens)
        outside = [token for token in ids if not 0 <= token < self._size]
        if outside:
            raise UsageError(f"token {outside[0]} is outside of the vocabulary, expected 0 to {self._size - 1}")
        has_text = prompt is not None or self._has_text
        pieces = TextPieces(self._files.tokenizer.decode) if has_text else None
        self._stream = TokenStream(self, ids, self._sampling.completed(self._files.sampling), pieces)
        return self._stream

    def generate(self, prompt: Prompt | None = None, *, tokens: Iterable[int] | None = None) -> Generation:
        """Return a whole continuation; arguments and errors as for :meth:`stream`."""
        stream = self.stream(prompt, tokens=tokens)
        for _ in stream:
            pass
        return stream.generation

    def close(self) -> None:
        """Release the memory of the model."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prompt_tokens(self, prompt: Prompt | None, tokens: Iterable[int] | None) -> list[int]:
        """Ids of the prompt, of which at least one is needed."""
        if tokens is not None and prompt is None:
            ids = _checked_ids(tokens)
        elif tokens is not None or prompt is None:
            raise UsageError("expected either tokens or a prompt", hint="--tokens 1,2,3, or --prompt TEXT")
        elif isinstance(prompt, str):
            _check_text(prompt)
            ids = list(self._files.tokenizer.encode(prompt).ids)
        else:
            text = self._files.template.prompt_of(_checked_messages(prompt))
            ids = list(self._files.tokenizer.encode(text, add_special_tokens=False).ids)  # the text contains them
        if not ids:
            raise UsageError("the prompt has no tokens, expected at least one")
        return ids

    def _is_current(self, stream: TokenStream) -> bool:
        return self._stream is stream

    def _begin(self, tokens: Sequence[int]) -> tuple[int, Array]:
        """Run a prompt; return the number of tokens that were in the caches, and the logits of its last token."""
        pairs = zip(self._cached, tokens[:-1], strict=False)  # the last token has to run
        common = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(self._cached), len(tokens) - 1))
        if common < self._session.length and not self._can_truncate:
            common = 0
        self._session.truncate(common)
        del self._cached[common:]
        for first in range(common, len(tokens), CHUNK):
            logits = self._run(tokens[first : first + CHUNK])
        return common, logits

    def _run(self, tokens: Sequence[int]) -> Array:
        """Append tokens; return the logits of the last."""
        try:
            logits: Array = self._session.run(np.array([tokens], np.int64))[self._output][0, -1]
        except RunError as error:
            if not self._cached:
                raise
            done = len(self._cached)
            raise RunError(
                f"the model fails after {done} tokens, which may be all that its positions allow: {error.message}",
                hint=f"generate fewer: prompt and --max-new-tokens together at most {done}",
            ) from error
        self._cached += tokens
        return logits


class TokenStream(Iterator[Token]):
    """Tokens of a continuation, which are computed when they are needed. See :meth:`Generator.stream`."""

    def __init__(self, generator: Generator, tokens: list[int], sampling: Sampling, pieces: TextPieces | None) -> None:
        self._generator, self._tokens, self._pieces = generator, tokens, pieces
        self._choose = Choice(sampling)
        self._limit = LONGEST if sampling.max_new_tokens is None else sampling.max_new_tokens
        self._stops = frozenset(sampling.stop_tokens)
        self._new: list[int] = []
        self._texts: list[str] = []
        self._reused = 0
        self._prompt_seconds = self._seconds = 0.0

    @property
    def is_stopped(self) -> bool:
        """True if the last token is an end token."""
        return bool(self._new) and self._new[-1] in self._stops

    def __next__(self) -> Token:
        if self._is_ended:
            raise StopIteration
        if not self._generator._is_current(self):
            raise UsageError("another continuation has begun", hint="use a Generator for each of them")
        start = time.perf_counter()
        is_first = not self._new
        if is_first:
            self._reused, logits = self._generator._begin(self._tokens)
        else:
            logits = self._generator._run(self._new[-1:])
        self._new.append(self._choose(logits, self._tokens + self._new))
        seconds = time.perf_counter() - start
        self._prompt_seconds, self._seconds = (
            (seconds, 0.0) if is_first else (self._prompt_seconds, self._seconds + seconds)
        )
        return Token(self._new[-1], self._next_text())

    @property
    def _is_ended(self) -> bool:
        return self.is_stopped or len(self._new) >= self._limit

    def _next_text(self) -> str:
        if self._pieces is None:
            return ""
        text = self._pieces.add(self._new[-1])
        self._texts.append(text + self._pieces.flush() if self._is_ended else text)
        return self._texts[-1]

    @property
    def generation(self) -> Generation:
        """The tokens until now, and the times that they took."""
        ran, others = len(self._tokens) - self._reused, len(self._new) - 1
        return Generation(
            file=self._generator._name,
            tokens=tuple(self._tokens),
            new_tokens=tuple(self._new),
            text=None if self._pieces is None else "".join(self._texts),
            stopped=self.is_stopped,
            reused_tokens=self._reused,
            prompt_seconds=self._prompt_seconds,
            seconds=self._seconds,
            prompt_rate=ran / self._prompt_seconds if self._prompt_seconds else None,
            rate=others / self._seconds if self._seconds else None,
        )


def _checked_ids(tokens: Iterable[int]) -> list[int]:
    """Return the ids of tokens.

    Raises:
        UsageError: they are not integers.
    """
    try:
        return [operator.index(token) for token in tokens]
    except TypeError as error:
        raise UsageError(f"the ids of tokens are not integers: {error}", hint="tokens=[1, 2, 3]") from error


def _checked_messages(messages: Messages) -> Messages:
    """Return messages that have a role and a content, both of them text.

    Raises:
        UsageError: there are none, or one has another form.
    """
    hint = 'expected messages such as {"role": "user", "content": "Hello"}'
    if not messages:
        raise UsageError("the conversation has no messages", hint=hint)
    for message in messages:
        texts = [message.get(name) for name in ("role", "content")] if isinstance(message, Mapping) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(f"the conversation contains {str(message)[:80]!r}", hint=hint)
        _check_text(message["role"])
        _check_text(message["content"])
    return messages


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        part = f"{text[error.start]!a} at character {error.start}"
        raise UsageError(f"the prompt contains {part}, which is not Unicode", hint="encode it as UTF-8") from error


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
