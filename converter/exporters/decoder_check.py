"""Comparison of the parts of a decoder with the whole decoder: a prompt, then token by token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from tpuconvert.exporters.decoder_interface import MASKED
from tpuconvert.exporters.decoder_parts import HIDDEN, IDS, LOGITS, MASK, POSITIONS, STATES, Part, Parts, part_model
from tpuconvert.model.model import Model
from tpuconvert.runtime.session.session import Session
from tpuconvert.runtime.session.session_state import SessionState
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.plain_values import Plain
from tpuconvert.schema.types import Array, DType

MOST_TOKENS = 12
"""Tokens of the comparison: about half of them are the prompt."""

FLOAT_LIMIT = 1e-4
"""Largest difference of the logits of a float decoder, as a share of their range. Rounding causes about 1e-6."""

INTEGER_LIMIT = 0.05
"""The same for a decoder with integers, in which a rounded float may become another integer."""

Run = Callable[[Part, Mapping[str, Array]], Mapping[str, Array]]
"""Function that runs a part with feeds by input name and returns its outputs by name."""

Observe = Callable[[Part, Mapping[str, Array]], None]
"""Function that gets a part and its feeds, which change afterwards."""


@dataclass(frozen=True)
class PartsCheck(Plain):
    """Result of a comparison.

    Args:
        prompt: number of tokens of the prompt.
        tokens: number of tokens that were computed one by one.
        difference: largest difference of the logits, as a share of their range.
        same_tokens: number of logits whose largest element is the same; of ``tokens + 1``.
    """

    prompt: int
    tokens: int
    difference: float
    same_tokens: int


def check_parts(model: Model, parts: Parts, observe: Observe = lambda part, feeds: None) -> PartsCheck:
    """Run the parts and the whole decoder with the same tokens.

    Args:
        model: the decoder.
        parts: its parts.
        observe: function that is called with each part and the feeds of each of its runs.

    Raises:
        UsageError: the logits differ by more than rounding explains.
    """
    tokens, prompt = check_tokens(parts)
    with ExitStack() as stack:
        sessions: dict[str, Session] = {}

        def run(part: Part, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
            observe(part, feeds)
            if part.name not in sessions:
                session = Session(part_model(model, part))
                if part in parts.prefill:
                    with session:
                        return session.run(feeds)
                sessions[part.name] = stack.enter_context(session)
            return sessions[part.name].run(feeds)

        logits = run_parts(parts, run, tokens, prompt)
    expected = run_whole(model, tokens, prompt)
    check = compare_logits(logits, expected, prompt)
    limit = INTEGER_LIMIT if _has_integers(model) else FLOAT_LIMIT
    if not check.difference <= limit:
        raise UsageError(
            f"the parts of the decoder differ from the whole by {check.difference:.2g} of the range of the logits, "
            f"expected at most {limit:g}: it does not use positions or masks as the parts do",
            file=model.graph.file,
            hint="export the whole model, without --decoder-context",
        )
    return check


def check_tokens(parts: Parts) -> tuple[list[int], int]:
    """Return tokens for a comparison that fit into the caches, and how many of them are the prompt."""
    count = min(MOST_TOKENS, parts.context)
    vocabulary = int(parts.head.graph.outputs[0].shape[-1])
    return np.random.default_rng(0).integers(0, vocabulary, count).tolist(), max(1, count // 2)


def run_parts(parts: Parts, run: Run, tokens: Sequence[int], prompt: int) -> Array:
    """Compute the logits after a prompt and after each further token, as a runtime on a chip does.

    Args:
        parts: the parts.
        run: runs one of them.
        tokens: ids; at most as many as the context.
        prompt: number of tokens of the prompt.

    Returns:
        Logits [len(tokens) - prompt + 1, vocabulary].
    """
    context = parts.context
    ids = np.zeros((1, context), np.int32)
    ids[0, :prompt] = tokens[:prompt]
    mask = np.full((1, 1, context, context), MASKED, np.float32)
    mask[0, 0][np.tril_indices(context)] = 0
    shared = {IDS: ids, POSITIONS: np.arange(context, dtype=np.int32)[None], MASK: mask}
    caches: dict[str, Array] = {}
    hidden, appended = _run_form(parts.prefill, run, shared, {})
    for name, entries in appended.items():
        caches[name] = entries.copy()
        _tokens_of(caches[name], parts.axis, slice(prompt, None))[...] = 0
    logits = [run(parts.head, {STATES: hidden[:, prompt - 1 : prompt]})[LOGITS].reshape(-1)]
    for position in range(prompt, len(tokens)):
        mask = np.full((1, 1, 1, context + 1), MASKED, np.float32)
        mask[..., :position] = mask[..., context] = 0
        shared = {
            IDS: np.array([[tokens[position]]], np.int32),
            POSITIONS: np.array([[position]], np.int32),
            MASK: mask,
        }
        hidden, appended = _run_form(parts.decode, run, shared, caches)
        for name, entries in appended.items():
            _tokens_of(caches[name], parts.axis, slice(position, position + 1))[...] = entries
        logits.append(run(parts.head, {STATES: hidden})[LOGITS].reshape(-1))
    return np.stack(logits)


def run_whole(model: Model, tokens: Sequence[int], prompt: int) -> Array:
    """Compute the same logits as ``run_parts`` with a session of the whole decoder."""
    (name,) = [port.name for port in SessionState(model.graph, model.states).required]
    rows = []
    with Session(model) as session:
        (output,) = [item.name for item in session.outputs]
        for start, end in [(0, prompt), *((k, k + 1) for k in range(prompt, len(tokens)))]:
            rows.append(session.run({name: np.array([tokens[start:end]])})[output].reshape(end - start, -1)[-1])
    return np.stack(rows)


def compare_logits(actual: Array, expected: Array, prompt: int) -> PartsCheck:
    """Compare logits [tokens, vocabulary] with the logits of the whole decoder."""
    span = max(float(np.ptp(expected)), float(np.finfo(np.float32).tiny))
    difference = float(np.abs(actual.astype(np.float64) - expected).max()) / span
    same = int((actual.argmax(axis=1) == expected.argmax(axis=1)).sum())
    return PartsCheck(prompt, len(expected) - 1, difference, same)


def _has_integers(model: Model) -> bool:
    """Return True if activations are rounded to integers."""
    return any(
        getattr(node.op, "activation_type", None) is DType.INT8
        or any(value.dtype.is_integer and value.dtype.bits < 32 for value in node.outputs)
        for node in model.graph.nodes
    )


def _run_form(
    form: Sequence[Part], run: Run, shared: Mapping[str, Array], caches: Mapping[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """Run the parts of a form in order. Return the hidden states and the new entries of the caches."""
    hidden = shared[IDS]
    appended: dict[str, Array] = {}
    for part in form:
        feeds = {**shared, STATES: hidden}
        feeds |= {source: caches[name] for name, source, _ in part.caches if caches}
        names = [port.name for port in part.graph.input_ports]
        results = run(part, {name: feeds[name] for name in names})
        hidden = results[HIDDEN]
        appended |= {name: results[result] for name, _, result in part.caches}
    return hidden, appended


def _tokens_of(cache: Array, axis: int, tokens: slice) -> Array:
    return cache[(slice(None),) * axis + (tokens,)]
