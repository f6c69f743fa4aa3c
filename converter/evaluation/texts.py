"""Labeled lines of text: one per image, in a text file or as values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpuconvert.evaluation.classes import Labeled, image_files
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.text.text_format import several

FORMS = "text with a line per image in the order of their names, or 'file name<tab>text'"


def load_texts(samples: Any, labels: Any) -> Labeled:
    """Load images with the text in each.

    Args:
        samples: a folder of images, or a list of image files.
        labels: a file, a list with one text per image, or a mapping from file name to text.

    Raises:
        UsageError: there are no images or labels, or an image has none.

    """
    if labels is None:
        raise UsageError("no texts", hint=f"give labels: {FORMS}")
    images = [Path(item) for item in samples] if isinstance(samples, list | tuple) else image_files(Path(samples))
    if isinstance(labels, str | os.PathLike):
        labels = _read(Path(labels))
    if isinstance(labels, Mapping):
        missing = [image.name for image in images if image.name not in labels]
        if missing:
            raise UsageError(f"no text for {several(len(missing), 'image')}, the first is '{missing[0]}'", hint=FORMS)
        labels = [labels[image.name] for image in images]
    if len(labels) != len(images):
        raise UsageError(f"{several(len(labels), 'text')} for {several(len(images), 'image')}", hint=FORMS)
    return Labeled(images, [str(text) for text in labels])


def _read(path: Path) -> list[str] | dict[str, str]:
    """Read the lines of a file; with a tab in each, texts by the name of the image without its folder."""
    note_input(path)
    try:
        lines = read_text(path, "utf-8-sig").rstrip("\r\n").split("\n")
    except (OSError, ValueError) as error:
        raise UsageError(f"holds no texts ({error})", file=str(path), hint=f"expected {FORMS}") from None
    rows = [line.removesuffix("\r").split("\t", 1) for line in lines]
    if all(len(row) == 2 for row in rows):
        return {os.path.basename(name): text for name, text in rows}
    return ["\t".join(row) for row in rows]
