"""Resource limits of everything that reads files, because files are untrusted.

The limits in force are set by :func:`limited`, else by the environment variable ``TPUCONVERT_LIMITS``, else the
defaults of :class:`Limits`. An exceeded limit is a :class:`ResourceLimitError` whose hint raises it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace

from tpuconvert.schema.errors import ResourceLimitError, UsageError

ENVIRONMENT = "TPUCONVERT_LIMITS"
"""Environment variable with limits: ``NAME=VALUE`` separated by commas. Worker processes inherit it."""

_EXPANSION = 20
"""Ratio of sizes above which compressed data count as a decompression bomb: images and activations compress by less."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds. Sizes are computed as Python integers and checked before memory is allocated.

    Units: ``*_bytes`` are bytes, ``*_seconds`` are seconds, all others are counts.
    """

    max_file_bytes: int = 16 << 30  # a model file or one file of external data
    max_message_bytes: int = (2 << 30) - 1  # the largest message that protobuf can parse
    max_text_bytes: int = 64 << 20  # a text: prototxt, YAML, JSON, labels, ranges
    max_yaml_bytes: int = 2 << 20  # a YAML text; parsing it takes about 20 s
    max_text_values: int = 200_000  # values of a YAML text after the expansion of its aliases and merge keys
    max_expanded_bytes: int = 256 << 20  # compressed data after expansion, if it is more than 20 times their size
    max_image_pixels: int = 64 << 20  # an image file; 192 MiB as RGB
    max_constant_bytes: int = 4 << 30  # one constant of the file
    max_folded_bytes: int = 64 << 20  # one result of an operator that is evaluated during the conversion
    max_tensor_elements: int = 1 << 40  # one tensor between nodes
    max_nodes: int = 200_000
    max_tensors: int = 400_000
    max_depth: int = 64  # nesting of messages, subgraphs or functions
    max_unrolled_nodes: int = 50_000  # nodes from unrolled loops and recurrent layers
    max_loop_iterations: int = 1_000_000  # iterations of a loop that the host executes
    max_computed_bytes: int = 96 << 20  # all constants that a conversion computes, plus 20 times the size of the files
    max_run_bytes: int = 1 << 30  # tensors between nodes at one time, if above 200 times the inputs and constants
    max_extent_characters: int = 2_000  # the formula of a symbolic extent
    max_expansion_bytes: int = 1 << 30  # constants that the conversion of one operator computes
    max_read_seconds: int = 120  # CPU time of reading a source model into a graph


DEFAULT_LIMITS = Limits()

RUN_BYTES_PER_GIVEN_BYTE = 200
"""Ratio of live tensors to inputs and constants up to which no limit applies."""

NAMES = {field.name.removeprefix("max_").replace("_", "-"): field.name for field in fields(Limits)}
"""Name of a limit as users write it -> field."""

_limits: ContextVar[Limits | None] = ContextVar("limits", default=None)
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def parse_limits(items: Iterable[str], base: Limits = DEFAULT_LIMITS) -> Limits:
    """Change limits by texts like ``image-pixels=2e8``.

    Raises:
        UsageError: an unknown name, or a value that is not a positive number.
    """
    changes = {}
    for item in items:
        name, _, text = (part.strip() for part in item.partition("="))
        if name not in NAMES:
            raise UsageError(
                f"limit '{item[:80]}': there is no limit '{name[:40]}'", hint=f"there are: {', '.join(NAMES)}"
            )
        try:
            value = int(float(text)) if text.strip("0123456789") else int(text)
        except (ValueError, OverflowError):
            value = 0
        if value < 1:
            raise UsageError(f"limit '{item[:80]}': not a positive number", hint=f"{name}={getattr(base, NAMES[name])}")
        changes[NAMES[name]] = value
    return replace(base, **changes)


@functools.lru_cache(maxsize=8)
def _from_text(text: str) -> Limits:
    try:
        return parse_limits([item for item in text.split(",") if item.strip()])
    except UsageError as error:
        raise UsageError(f"environment variable {ENVIRONMENT}: {error.message}", hint=error.hint) from None


def current_limits() -> Limits:
    """Return the limits in force.

    Raises:
        UsageError: the environment variable is malformed.
    """
    return _limits.get() or _from_text(os.environ.get(ENVIRONMENT, ""))


@contextlib.contextmanager
def limited(**limits: int) -> Iterator[None]:
    """Change limits for the files that are read in a ``with`` block.

    Args:
        limits: values by name; the names are in docs/reference/security.md, with ``_`` instead of ``-``.

    Example:
        >>> with tc.limited(image_pixels=200_000_000):
        ...     model = tc.convert("digits.onnx")

    Raises:
        UsageError: an unknown name, or a value that is not a positive number.

    """
    items = [f"{name.replace('_', '-')}={value}" for name, value in limits.items()]
    token = _limits.set(parse_limits(items, current_limits()))
    try:
        yield
    finally:
        _limits.reset(token)


def exceeded(
    amount: str, name: str, limits: Limits | None = None, *, file: str = "", node: str = ""
) -> ResourceLimitError:
    """Return the error for an exceeded limit.

    Args:
        amount: what was found, e.g. "13000x13000 pixels".
        name: field of :class:`Limits`.
        limits: the limits that were checked; those in force by default.
        file: name of the file.
        node: name of the node.
    """
    text = f"{amount}, more than {getattr(limits or current_limits(), name)}"
    return ResourceLimitError(text, file=file, node=node, hint=limit_hint(name))


def limit_hint(name: str) -> str:
    """Return the hint that tells how to change a limit, a field of :class:`Limits`."""
    shown = name.removeprefix("max_").replace("_", "-")
    return f"if you trust the file: tpuconvert --limit {shown}=NUMBER ..., or {ENVIRONMENT}={shown}=NUMBER"


def run_bytes_allowed(input_bytes: int) -> int:
    """Return the most bytes that the tensors of a run may take at one time, from the bytes of inputs and constants.

    Large inputs have large activations; resizing 8 x 8 pixels to 30,000 x 30,000 has a ratio of 14 million.
    """
    return max(current_limits().max_run_bytes, RUN_BYTES_PER_GIVEN_BYTE * input_bytes)


def check_expansion(compressed: int, expanded: int, file: str) -> None:
    """Refuse compressed data that expand beyond measure. Sizes are in bytes.

    Raises:
        ResourceLimitError: the size exceeds the limit, and is far above the size of the compressed data.
    """
    if expanded > current_limits().max_expanded_bytes and expanded > _EXPANSION * compressed:
        raise exceeded(f"{compressed:,} bytes that expand to {expanded:,} bytes", "max_expanded_bytes", file=file)


@contextlib.contextmanager
def reading_time(file: str) -> Iterator[None]:
    """Start the time of ``max_read_seconds`` for a block that reads a model; an inner block has the outer time.

    It is CPU time of the thread: on a busy machine, or after a pause of the process, a valid file is not refused.
    """
    if _deadline.get() is not None:
        yield
        return
    token = _deadline.set(time.thread_time() + current_limits().max_read_seconds)
    try:
        yield
    except _OutOfTime:
        raise exceeded("its reading takes long, in seconds of CPU time", "max_read_seconds", file=file) from None
    finally:
        _deadline.reset(token)


class _OutOfTime(BaseException):
    """The time is over. Not an ``Exception``, so that no handler of a converter takes it for its own failure."""


def check_time() -> None:
    """End the block of :func:`reading_time` if its time is over."""
    deadline = _deadline.get()
    if deadline is not None and time.thread_time() > deadline:
        raise _OutOfTime
