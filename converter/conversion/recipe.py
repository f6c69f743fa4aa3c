"""Recipe stored in a model file: digests and options that reproduce the conversion, without names or paths of files.

A recipe contains the digests of the source, of its external data and of the samples, and every option that differs from
its default. The same version converts the same source with the same options to the same bytes; ``reproduction.py``
compares them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tpuconvert.conversion.options.options import OPTIONS, Options, declaration, default_of
from tpuconvert.conversion.source import Source
from tpuconvert.schema.system.content_digest import ALGORITHM, digest_of
from tpuconvert.schema.system.file_digest import file_digest

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import FeedSource
    from tpuconvert.schema.file.file_model import Json
    from tpuconvert.schema.system.mapped_pages import MappedFile


class RangesDigest(Protocol):
    """Measured ranges, which a recipe identifies by their digest."""

    @property
    def samples(self) -> int:
        """Number of samples."""

    def digest(self) -> str:
        """Digest of the ranges, in hexadecimal digits."""


def make_recipe(
    source: Source,
    options: Options,
    calibration: FeedSource | None,
    ranges: RangesDigest | None = None,
    external: Sequence[str | os.PathLike[str]] = (),
    mapped: Sequence[MappedFile] = (),
    device: str = "",
) -> Callable[[], dict[str, Json]]:
    """Return a function that computes the recipe of a conversion as plain values.

    ``external`` lists the external data files of the source. Files in ``mapped`` are memory-mapped: they are digested
    later, while their constants are written or when the recipe is computed, without opening them again. ``device`` is
    the chip of the vendor's compiler whose notes the model has.
    """
    digest_of_source = _digest_when_written(source.model, mapped) or _known(source.digest())
    digests = [_digest_when_written(file, mapped) or _known(file_digest(file)) for file in external]
    source_entry: dict[str, Json] = {"format": source.format}
    external_entry: dict[str, Json] = {"files": len(external)}
    recipe: dict[str, Json] = {"source": source_entry}
    if source.weights is not None:
        recipe["weights"] = {ALGORITHM: file_digest(source.weights)}
    if external:
        recipe["external"] = external_entry
    if calibration is not None:
        recipe["calibration"] = {"samples": calibration.samples, ALGORITHM: calibration.digest()}
    if ranges is not None:
        recipe["ranges"] = {"samples": ranges.samples, ALGORITHM: ranges.digest()}
    if device:
        recipe["device"] = device
    recipe["options"] = write_options(options)

    def complete() -> dict[str, Json]:
        source_entry[ALGORITHM] = digest_of_source()
        together = "".join(digest() for digest in digests).encode("ascii")
        external_entry[ALGORITHM] = digest_of(together).hex()
        return recipe

    return complete


def _digest_when_written(file: object, mapped: Sequence[MappedFile]) -> Callable[[], str] | None:
    """Return a function for the digest of a mapped file while its data are copied; None for another file."""
    if isinstance(file, (str, os.PathLike)):
        return next((each.digest_while_reading() for each in mapped if each.is_at(file)), None)
    return None


def _known(digest: str) -> Callable[[], str]:
    return lambda: digest


def write_options(options: Options) -> dict[str, Json]:
    """Return the options that are stored in the recipe and differ from their defaults, as plain values by name."""
    values = {name: getattr(options, name) for name in OPTIONS if declaration(name).in_recipe}
    return {name: _plain(value) for name, value in values.items() if value != default_of(name)}


def _plain(value: Any) -> Json:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str) else str(value)
