"""``tpuconvert.generate``: continue a sequence of tokens with a decoder language model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from tpuconvert.model.model import Model
from tpuconvert.run.language.generation import Generation
from tpuconvert.run.language.generator import Generator, Prompt
from tpuconvert.run.language.sampling import Sampling


def generate(  # noqa: D417  the fields of Sampling share a line
    model: Model | str | os.PathLike[str],
    *,
    tokens: Iterable[int] | None = None,
    prompt: Prompt | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    seed: int = 0,
    stop_tokens: Iterable[int] = (),
    backend: Literal["auto", "native", "reference"] = "auto",
    threads: int | None = None,
    plugins: Iterable[str | Path] = (),
) -> Generation:
    """Continue a sequence of tokens. :class:`Generator` returns the tokens one by one, and continues a conversation.

    End tokens and the defaults of the other parameters are read from ``generation_config.json`` in the folder of the
    tokenizer, if it exists. The arguments of a call win.

    Args:
        model: A decoder with key-value caches as state, or its file.
        tokens: Ids of the tokens of the prompt.
        prompt: Instead of ``tokens``: text, which the tokenizer encodes, or messages of a conversation such as
            ``[{"role": "user", "content": "Hello"}]``, of which the chat template makes the text.
        tokenizer: ``tokenizer.json`` of the model, or its folder. None: the folder of the model's file.
        max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, stop_tokens: Fields of
            :class:`Sampling`.
        backend: ``auto``, ``native`` or ``reference``.
        threads: Number of threads of the native engine; None for the number of available CPUs.
        plugins: Python files with custom operators and converters.

    Returns:
        The generated tokens, and their text if a prompt or a tokenizer is given.

    Raises:
        UsageError: The model is not a decoder with states, or the arguments do not fit it or each other.
        MissingExtraError: A package of the extra ``language`` is not installed.
        CorruptInputError: A file of the model is damaged, or its chat template exceeds the limits.

    Example:
        >>> model = tc.load("decoder.tpum")
        >>> tc.generate(model, tokens=[1, 2, 3], max_new_tokens=4).new_tokens
        (3, 3, 3, 3)

    """
    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop_tokens=tuple(stop_tokens),
    )
    with Generator(
        model, tokenizer=tokenizer, sampling=sampling, backend=backend, threads=threads, plugins=plugins
    ) as generator:
        return generator.generate(prompt, tokens=tokens)
