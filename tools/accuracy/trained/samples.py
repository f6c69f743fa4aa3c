"""Samples of an entry of the catalog: photos, and pictures, sounds and files made by code."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image
from PIL.Image import Image as Picture

from tools.accuracy.trained.byte_files import content, first_and_last_bytes
from tools.accuracy.trained.catalog import Entry, Item, read_items
from tools.accuracy.trained.crops import CROPS, RunHelper
from tools.accuracy.trained.pictures import FOLDERS, PICTURES, photo
from tools.accuracy.trained.sounds import WAVES, command, frames
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.types import Array

Feed = dict[str, Array]

WINDOWS = 16
"""Windows of a spoken command: as many features as a wake word model takes."""
WINDOW_FRAMES, WINDOW_STEP, BANDS = 76, 8, 32
SPECTROGRAM, EMBEDDING = "pyopen_melspectrogram", "pyopen_embedding"
WAKE_WORD_SETS = ("mel", "embedding")
"""Index = clip * WINDOWS + window."""

SETS = {*FOLDERS, *(f"{folder}_{kind}" for folder in FOLDERS for kind in CROPS), *PICTURES, *WAVES, *WAKE_WORD_SETS,
        "frames", "files"}  # fmt: skip
"""Names of all sets."""
SETS_WITHOUT_PHOTOS = {"code", "flipped", "line", "frames", *WAVES, *WAKE_WORD_SETS}
"""Sets that do not need the test data."""


def needs_photos(entry: Entry) -> bool:
    """Return True if samples of the entry are made from photos of the test data."""
    return any(item.set not in SETS_WITHOUT_PHOTOS for item in read_items([*entry.calibration.of, *entry.evaluation]))


def load(entry: Entry, items: Sequence[Item], run: RunHelper) -> list[Feed]:
    """Return the samples of the items as inputs of the model.

    Args:
        entry: the model.
        items: elements of sets; an item of crops yields a sample per object.
        run: runs a float model of the catalog.
    """
    others = {name: np.full(entry.shapes[name], value, np.float32) for name, value in entry.constants.items()}
    return [{entry.input: array, **others} for item in items for array in _arrays(entry, item, run)]


def _arrays(entry: Entry, item: Item, run: RunHelper) -> Iterator[Array]:
    folder, _, kind = item.set.partition("_")
    if item.set in WAVES or item.set in ("frames", "files"):
        shape = entry.shapes[entry.input]
        if item.set == "frames":
            yield frames(item.index, shape[0])
        elif item.set == "files":
            yield first_and_last_bytes(content(item.index)).reshape(shape)
        else:
            yield WAVES[item.set](item.index, max(shape)).reshape(shape)
    elif item.set in WAKE_WORD_SETS:
        yield _wake_word_sample(entry, item, run)
    elif item.set in PICTURES:
        yield prepare(PICTURES[item.set](item.index), entry.preprocess)
    elif item.set in FOLDERS:
        yield prepare(photo(item.set, item.index), entry.preprocess)
    else:
        picture = photo(folder, item.index)
        for square in CROPS[kind](picture, run):
            yield prepare(square.cut(picture), entry.preprocess)


def prepare(picture: Picture, how: Any) -> Array:
    """Convert a picture to one sample of a model."""
    if how.get("fit") != "width":
        return Preprocess.from_mapping(how).load_any(picture)
    height, width = how["size"]
    inner = min(width, -(-height * picture.width // picture.height))
    resized = picture.resize((inner, height), Image.Resampling.BILINEAR)
    sample = Preprocess.from_mapping({**how, "fit": "stretch", "size": [height, inner]}).load_any(resized)
    return np.pad(sample, ((0, 0), (0, 0), (0, 0), (0, width - inner)))


def _wake_word_sample(entry: Entry, item: Item, run: RunHelper) -> Array:
    """Return one window of a spectrogram, or the features of all windows of a command."""
    clip, window = divmod(item.index, WINDOWS)
    spectrogram = _spectrogram(clip, entry.phrase, run)
    if item.set == "mel":
        return _window(spectrogram, window)
    features = [next(iter(run(EMBEDDING, _window(spectrogram, index)).values())) for index in range(WINDOWS)]
    return np.stack([each.reshape(-1) for each in features])[np.newaxis]


def _window(spectrogram: Array, index: int) -> Array:
    return spectrogram[index * WINDOW_STEP :][:WINDOW_FRAMES].reshape(1, WINDOW_FRAMES, BANDS, 1)


@functools.lru_cache(8)
def _spectrogram(clip: int, phrase: str, run: RunHelper) -> Array:
    (bands,) = run(SPECTROGRAM, command(clip, phrase)[np.newaxis]).values()
    result: Array = bands.reshape(-1, BANDS) / 10 + 2  # the range of values that the features were trained with
    return result
