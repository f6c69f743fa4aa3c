"""Shape buckets: the only shapes of the inputs that a model with symbolic extents accepts.

A model file stores them in its metadata. A session makes one plan for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.graph.graph import Port

KEY = "shape_buckets"
"""Key of the buckets in the metadata of a file."""

Bucket = Mapping[str, Sequence[int]]
"""Shape of each input with symbolic extents, by name."""


def buckets_of(metadata: Mapping[str, Any]) -> list[Bucket]:
    """Return the buckets of a model by its metadata; empty if it accepts all shapes.

    Raises:
        CorruptInputError: the entry of the file is not what this package writes.
    """
    buckets = metadata.get(KEY, ())
    try:
        return [{str(name): tuple(map(int, shape)) for name, shape in bucket.items()} for bucket in buckets]
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptInputError(
            f"'{KEY}' in the metadata is not a list of shapes", hint="convert the model again"
        ) from error


def format_bucket(bucket: Bucket) -> str:
    """Format a bucket as the option ``--shapes`` takes it: ``image=1x3x320x320``, inputs separated by semicolons."""
    return ";".join((f"{name}=" if name else "") + "x".join(map(str, shape)) for name, shape in bucket.items())


def format_buckets(buckets: Sequence[Bucket]) -> str:
    """Format buckets as the option ``--shapes`` takes them, separated by commas."""
    return ",".join(map(format_bucket, buckets))


def extents_of(bucket: Bucket, ports: Sequence[Port]) -> dict[str, int]:
    """Return the numbers of all symbolic extents of the inputs.

    Raises:
        UsageError: an input is missing or unknown, or a shape does not fit.
    """
    ports_by_name = {port.name: port for port in ports}
    wrong = [name for name in bucket if name not in ports_by_name]
    if wrong:
        raise UsageError(f"shapes: the model has no input '{wrong[0]}'", hint=f"its inputs: {', '.join(ports_by_name)}")
    bound: dict[str, int] = {}
    for port in ports:
        shape = bucket.get(port.name)
        if shape is None:
            if any(isinstance(extent, str) for extent in port.shape):
                hint = f"add {port.name}=... to it, after a semicolon"
                raise UsageError(f"shapes: {format_bucket(bucket)} has no shape for input '{port.name}'", hint=hint)
            continue
        fits = len(shape) == len(port.shape)
        for have, want in zip(shape, port.shape, strict=False):
            fits = fits and have == (bound.setdefault(want, have) if isinstance(want, str) else want)
        if not fits:
            expected_shape = "x".join(map(str, port.shape))
            bucket_text = format_bucket({port.name: shape})
            raise UsageError(f"shapes: {bucket_text} does not fit the input, which is {port.name}={expected_shape}")
    return bound
