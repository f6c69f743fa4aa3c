"""Feeds of a model from a folder of images, one image, an .npz or .npy file, or an iterable.

The same rules serve calibration, ``run``, ``verify`` and evaluation:

- an array for an input has the input's rank; its first axis is the samples, and is split into batches of the model;
- ``uint8`` images ([N, H, W, 3] or [N, H, W]) for an input of another type are preprocessed if preprocessing is given;
  ``schema/graph/input_types.py`` defines which types of other arrays are accepted.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.runtime.session.batches import one_by_one
from tpuconvert.runtime.session.border import numpy_type
from tpuconvert.samples.array_files import copied_from_file, load_arrays, released_after_use
from tpuconvert.samples.axis_order import axis_order
from tpuconvert.samples.image_files import IMAGE_SUFFIXES, images_in
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.finite import is_finite
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.graph.input_types import convert_input
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.content_digest import Digest, digest_of
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several

Feed = dict[str, Array]

CalibrationSource = str | Path | Iterable[Array] | Iterable[Mapping[str, Array]] | Mapping[str, Array]


@dataclass(frozen=True)
class FeedSource:
    """Feeds that can be iterated several times. Images are decoded one batch at a time, when the feed is requested.

    ``description`` states the origin of the feeds and everything that was left out. ``left_out`` is the number of
    samples in an incomplete last batch, which are not used.
    """

    description: str
    samples: int
    _batches: list[Any]
    _builder: _FeedBuilder
    _rest: tuple[Path, ...] = ()  # images of an incomplete last batch, which are not used
    left_out: int = 0
    _origin: _Origin | None = None  # of the batches, if they are arrays in a file
    _contents: tuple[bytes, ...] = ()  # digests of the batches, if they are known
    _is_received: bool = False

    @property
    def images(self) -> list[str]:
        """File names of the images, in order; empty if the samples are arrays."""
        return [path.name for path in self.image_files]

    @property
    def image_files(self) -> list[Path]:
        """Paths of the images, in order; empty if the samples are arrays."""
        return [path for batch in self._batches if isinstance(batch, list) for path in batch]

    @property
    def are_images(self) -> bool:
        """Return True if the preprocessing applies to every sample."""
        return all(isinstance(batch, list) or self._builder.takes_pixels(batch) for batch in self._batches)

    def remade(self, ports: list[Port], preprocess: Preprocess) -> FeedSource:
        """Return a source of the same images for other inputs and another preprocessing."""
        builder = _FeedBuilder(ports, preprocess, self._builder.file)
        return FeedSource(self.description, self.samples, self._batches, builder)

    def every(self, step: int) -> FeedSource:
        """Return a source of every ``step``-th batch, beginning with the first."""
        batches = self._batches[::step]
        samples = self.samples * len(batches) // max(1, len(self._batches))
        return FeedSource(self.description, samples, batches, self._builder)

    def digest(self) -> str:
        """Digest of the samples before preprocessing, in hexadecimal digits. For images, file contents are digested."""
        digest = Digest()
        for batch in released_after_use(self._batches):
            _add_content(digest, batch)
        return digest.hexdigest()

    def sorted_by_content(self) -> FeedSource:
        """Return the same samples in an order that depends on their content only.

        Images are sorted before they are put into batches. Arrays keep the batches in which they were given: axis 0
        of an input may count time steps, which must not be mixed.
        """
        if not self.images:
            digests = [_content(batch) for batch in released_after_use(self._batches)]
            order = sorted(range(len(digests)), key=digests.__getitem__)
            return replace(self, _contents=tuple(digests))._selected(order)
        size = len(self._batches[0])
        content_of = {path: _content([path]) for path in chain(*self._batches, self._rest)}
        paths = sorted([*chain(*self._batches), *self._rest], key=content_of.__getitem__)
        batches = _full_batches(paths, size)
        contents = tuple(b"".join(content_of[path] for path in batch) for batch in batches)
        return replace(self, _batches=batches, _rest=tuple(paths[len(batches) * size :]), _contents=contents)

    def from_file(self, file: Path, unused: Sequence[str]) -> FeedSource:
        """Return this source such that other processes read its arrays from a file, without the ``unused`` ones."""
        return replace(self, _origin=_Origin(file.absolute(), tuple(range(len(self))), tuple(unused)))

    def with_contents(self) -> FeedSource:
        """Return this source with digests of its batches, so that other processes can compare their samples."""
        return replace(self, _contents=tuple(map(_content, released_after_use(self._batches))))

    @property
    def contents(self) -> Sequence[bytes]:
        """Digests of the batches."""
        return self._contents or tuple(map(_content, self._batches))

    def part(self, start: int, end: int, step: int = 1) -> FeedSource:
        """Return a source of every ``step``-th of the batches ``start`` to ``end - 1``, in the same order."""
        return self._selected(range(start, end, step))

    def without(self, left_out: range) -> FeedSource:
        """Return a source of the batches whose numbers are not ``left_out``, in the same order."""
        return self._selected([index for index in range(len(self)) if index not in left_out])

    def _selected(self, indices: Sequence[int]) -> FeedSource:
        batches = [self._batches[index] for index in indices]
        contents = tuple(self._contents[index] for index in indices) if self._contents else ()
        samples = self.samples * len(batches) // max(1, len(self._batches))
        origin = self._origin.selected(indices) if self._origin is not None else None
        return replace(self, samples=samples, _batches=batches, _origin=origin, _contents=contents)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: names of images, a file of arrays and indices, or else the arrays."""
        batches: list[Any] = [
            [path.absolute() for path in batch] if isinstance(batch, list) else batch for batch in self._batches
        ]
        return {**vars(self), "_batches": batches if self._origin is None else None, "_is_received": True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        origin = state["_origin"]
        if origin is not None:
            state = {**state, "_batches": origin.batches(state["_builder"])}
        vars(self).update(state)

    def __iter__(self) -> Iterator[Feed]:
        for index, batch in enumerate(released_after_use(self._batches)):
            if self._is_received and self._contents:
                self._check_content(batch, self._contents[index])
            yield self._builder.build(copied_from_file(batch))

    def _check_content(self, batch: Any, expected: bytes) -> None:
        """Compare a batch with the batch of the sender, because the files of another machine may differ.

        Raises:
            UsageError: they differ, or a file is missing.
        """
        paths = batch if isinstance(batch, list) else []
        try:
            actual = _content(batch)
        except OSError as error:
            raise unreadable(error, hint=_SAME_FILES) from error
        if actual != expected:
            file = ", ".join(map(str, paths)) or self._builder.file
            raise UsageError("has other samples on this worker than on the client", file=file, hint=_SAME_FILES)

    def check_numbers(self, limit: int | None = None) -> None:
        """Refuse arrays with NaN or infinities. Images have none.

        A mask, whose numbers are 0 and infinities of one sign, is accepted: it is added before a softmax.

        Args:
            limit: number of batches to check, the first ones; None for all.

        Raises:
            UsageError: an array has such an element; the message names the file, the first such sample and its input.

        """
        for index, batch in enumerate(itertools.islice(released_after_use(self._batches), limit)):
            if isinstance(batch, list):  # images
                continue
            named = batch if isinstance(batch, Mapping) else {self._builder.only_port.name: batch}
            for name, port in self._builder.ports.items():
                array = np.asarray(named[name])
                if array.dtype.kind == "f" and not is_finite(array) and not _is_mask(array):
                    raise self._builder.not_finite(port, array, index)

    def check_complete(self) -> None:
        """Refuse an incomplete last batch, for uses in which no sample may be left out.

        Raises:
            UsageError: samples were left out; the message has their number and the batch size of the model.

        """
        if self.left_out:
            port = next(iter(self._builder.ports.values()))
            size = self._builder.batch(port)
            raise UsageError(
                f"{self.samples + self.left_out} samples for a model that takes {size} at a time",
                file=self._builder.file,
                hint=f"give a multiple of {size} samples; {one_by_one(port)}",
            )

    def __len__(self) -> int:
        return len(self._batches)


_SAME_FILES = "every worker needs the files of the samples under the same paths"


@dataclass(frozen=True)
class _Origin:
    """File and indices of batches, from which another process can load them."""

    file: Path
    indices: tuple[int, ...]
    unused: tuple[str, ...] = ()  # names of arrays that are not samples

    def selected(self, indices: Sequence[int]) -> _Origin:
        return replace(self, indices=tuple(self.indices[index] for index in indices))

    def batches(self, builder: _FeedBuilder) -> list[Any]:
        """Load the batches.

        Raises:
            UsageError: the file is missing, or has fewer batches.
        """
        if not self.file.exists():
            raise UsageError(f"{self.file}: no such file", hint=_SAME_FILES)
        status = self.file.stat()
        arrays = _arrays_of_file(self.file, status.st_mtime_ns, status.st_size)
        samples = {name: array for name, array in arrays.items() if name not in self.unused}
        every = _from_arrays(samples, self.file.name, builder)._batches
        if max(self.indices, default=0) >= len(every):
            raise UsageError(f"{self.file}: has fewer samples than on the client", hint=_SAME_FILES)
        return [every[index] for index in self.indices]


@functools.lru_cache(maxsize=1)
def _arrays_of_file(file: Path, mtime_ns: int, size: int) -> dict[str, Array]:
    """Read a file of arrays, unless it was the last one that was read and has not changed."""
    return load_arrays(file)


def load_feeds(
    source: Any, ports: list[Port], preprocess: Preprocess | None = None, *, limit: int | None = None
) -> FeedSource:
    """Create feeds of finite numbers for the inputs ``ports`` from ``source``.

    Args:
        source: a folder of images, an image, an ``.npz`` or ``.npy`` file, a mapping {input name: array}, or any
            iterable of arrays or of such mappings. A ``FeedSource`` is returned unchanged.
        ports: the model's inputs.
        preprocess: preprocessing of images. If it has no size, the size of the model's input is used.
        limit: number of feeds that are used, the first ones; None for all. Numbers of others are not checked.

    Raises:
        UsageError: the data do not fit the model, or are not finite; the message describes both.
        CorruptInputError: a file does not have the format that its suffix indicates.
        MissingExtraError: the source has images, but Pillow is not installed.

    """
    if isinstance(source, FeedSource):
        return source
    feeds = _load_feeds(source, ports, preprocess)
    feeds.check_numbers(limit)
    return feeds


def _load_feeds(source: Any, ports: list[Port], preprocess: Preprocess | None) -> FeedSource:
    builder = _FeedBuilder(ports, preprocess, str(source) if isinstance(source, str | Path) else "")
    if isinstance(source, str | Path):
        return _from_path(Path(source), builder)
    if isinstance(source, Mapping):
        return _from_arrays({name: np.asarray(array) for name, array in source.items()}, "arrays", builder)
    if isinstance(source, np.ndarray):
        return _from_arrays({"": source}, "an array", builder)
    try:
        items = list(source)  # a list, because the samples are iterated more than once
    except TypeError:
        raise UsageError(
            f"cannot read samples from {type(source).__name__}",
            hint="a folder of images, an .npz or .npy file, or an iterable of arrays or {name: array}",
        ) from None
    if not items:
        raise UsageError("no samples: the iterable is empty", hint="create a generator again: it gives them once")
    batches: list[Any] = [
        {name: np.asarray(array) for name, array in item.items()} if isinstance(item, Mapping) else np.asarray(item)
        for item in items
    ]
    builder.build(batches[0])  # raises errors about unsuitable samples now, not during calibration
    return FeedSource(several(len(items), "sample"), len(items), batches, builder)


def single_images(paths: Sequence[Path], ports: list[Port], preprocess: Preprocess | None) -> FeedSource:
    """Create feeds of image files, each of which is a batch.

    Raises:
        UsageError: the first image does not fit the model.
    """
    for path in paths:
        note_input(path)
    builder = _FeedBuilder(ports, preprocess, str(paths[0]))
    return _check_first(FeedSource(several(len(paths), "image"), len(paths), [[path] for path in paths], builder))


def image_feeds(paths: Sequence[Path], ports: list[Port], preprocess: Preprocess | None) -> FeedSource:
    """Create feeds of image files, in batches of the model's batch size. An incomplete last batch is left out.

    Raises:
        UsageError: there are too few images for one batch, or they do not fit the model.

    """
    builder = _FeedBuilder(ports, preprocess)
    size = builder.batch(builder.only_port)
    batches = _full_batches(list(paths), size)
    if not batches:
        raise UsageError(
            f"{several(len(paths), 'image')}, the model takes {size} at a time",
            hint="add images, or convert with a batch of 1: --input-shapes",
        )
    return _check_first(FeedSource(several(len(batches) * size, "image"), len(batches) * size, list(batches), builder))


class _FeedBuilder:
    """Builder that converts one batch (image paths, an array, or arrays by name) to a feed of the model."""

    def __init__(self, ports: list[Port], preprocess: Preprocess | None, file: str = "") -> None:
        self.ports = {port.name: port for port in ports}
        self.preprocess = preprocess
        self.file = file

    @property
    def only_port(self) -> Port:
        """The only input of the model.

        Raises:
            UsageError: the model has several inputs, so that arrays without names are ambiguous.

        """
        if len(self.ports) != 1:
            raise UsageError(
                f"the model has {len(self.ports)} inputs: {', '.join(map(describe, self.ports.values()))}",
                file=self.file,
                hint="give an .npz file with one array per input name, or NAME=FILE.npy for each",
            )
        return next(iter(self.ports.values()))

    @staticmethod
    def batch(port: Port) -> int:
        """Return the number of samples per feed: the extent of the input's first axis, or 1 if it is symbolic."""
        return port.shape[0] if port.shape and isinstance(port.shape[0], int) else 1

    def split(self, port: Port, array: Array) -> list[Array]:
        """Split an array into the parts for single feeds. An incomplete last batch is left out."""
        rank, size = len(port.shape), self.batch(port)
        if self.preprocess is not None and self.is_images(port, array):
            array = self.preprocess.stacked(array)
        else:
            if array.ndim == rank + 1:
                return list(array)  # the first axis counts feeds
            if array.ndim < rank or rank == 0:
                return [array]  # perhaps one sample without its batch axis; build() refuses other shapes
        return [array[start : start + size] for start in range(0, len(array) - size + 1, size)]

    def build(self, batch: Any) -> Feed:
        """Build one feed, in the order of the model's inputs."""
        if isinstance(batch, list):
            port = self.only_port
            images = self.image_rule(port)
            x = np.concatenate([images.load(path) for path in batch])
            return {port.name: self._fit_input(port, _as_declared(port, x))}
        if not isinstance(batch, Mapping):
            batch = {self.only_port.name: batch}
        missing = [describe(port) for name, port in self.ports.items() if name not in batch]
        if missing:
            hint = f"given: {', '.join(batch) or 'nothing'}"
            raise UsageError(f"no array for {', '.join(missing)}", file=self.file, hint=hint)
        return {name: self._fit(port, batch[name]) for name, port in self.ports.items()}

    def image_rule(self, port: Port) -> Preprocess:
        """Return the preprocessing, resizing to the size of the input."""
        if self.preprocess is None:
            raise UsageError(
                f"images need preprocessing to become {describe(port)}",
                file=self.file,
                hint="--preprocess color=RGB,mean=...,scale=...,layout=NCHW (the numbers used in training)",
            )
        return self.preprocess.with_size_of(port.shape)

    def takes_pixels(self, batch: Any) -> bool:
        """Return True if the batch is a single array, with or without name, to which the preprocessing applies."""
        arrays = list(batch.values()) if isinstance(batch, Mapping) else [batch]
        return len(arrays) == len(self.ports) == 1 and self.is_images(self.only_port, arrays[0])

    def not_finite(self, port: Port, array: Array, index: int) -> UsageError:
        """Return the error about the array of a batch that has NaN or an infinity."""
        first = np.argwhere(~np.isfinite(array))[0] if array.ndim else np.zeros(0, int)
        size = self.batch(port)
        sample = index * size + (int(first[0]) if size > 1 and array.ndim == len(port.shape) else 0)
        value = array[tuple(first)]
        what = "NaN" if np.isnan(value) else "infinity (inf)" if value > 0 else "-infinity (-inf)"
        where = f" at {first.tolist()}" if len(first) else ""
        return UsageError(
            f"sample {sample} of input '{port.name}' holds {what}{where}, expected finite numbers",
            file=self.file,
            hint="leave such samples out, or correct what computes them",
        )

    def is_images(self, port: Port, array: Array) -> bool:
        """Return True if the preprocessing applies to an array."""
        return (
            self.preprocess is not None
            and array.dtype == np.uint8
            and (port.dtype != "uint8" or port.quant is not None or bool(self.preprocess.fuse))
            and not (self.preprocess.has_planes and array.ndim == 3 and array.shape[1:] == port.shape[1:])
            and (array.ndim == 3 or (array.ndim == 4 and array.shape[3] in (1, 3)))
        )

    def _fit(self, port: Port, array: Array) -> Array:
        if self.is_images(port, array):
            array = _as_declared(port, self.image_rule(port).apply(array))
        return self._fit_input(port, array)

    def _fit_input(self, port: Port, array: Array) -> Array:
        """Return an array that needs no preprocessing with the axes and the type of the input."""
        shape = array.shape
        looks = f"{array.dtype}{list(shape)}"
        if array.ndim == len(port.shape) - 1 and self.batch(port) == 1:
            array = array[np.newaxis]  # one sample without its batch axis
        extents = zip(array.shape, port.shape, strict=False)
        if array.ndim != len(port.shape) or any(isinstance(want, int) and have != want for have, want in extents):
            is_pixels = array.dtype == np.uint8 and self.preprocess is None
            hint = "give arrays with the extents of the input; --preprocess gives pixels (uint8) its size"
            if is_pixels:
                color = "GRAY" if 1 in (port.shape[1:2] + port.shape[-1:]) else "RGB"
                hint = (
                    "pixels need --preprocess with the numbers used in training, for example "
                    f"--preprocess color={color},mean=127.5,scale=0.0078125; color={color} alone keeps the values"
                )
            if array.shape[1:] == port.shape[1:]:
                hint = one_by_one(port)
            order = axis_order(shape, port.shape)
            message = f"an array {looks} does not fit input {describe(port)}"
            if order is not None:
                message += f": {order.mismatch}"
                hint = hint if is_pixels else order.hint
            raise UsageError(message, file=self.file, hint=hint)
        try:
            return convert_input(array, numpy_type(port.dtype), port.name, is_quantized=port.quant is not None)
        except UsageError as error:
            raise UsageError(error.message, file=self.file, hint=error.hint) from error


def describe(port: Port) -> str:
    """Return a model input or output as text: ``x float32[1, 3, 224, 224]``."""
    return f"'{port.name}' {port.dtype}[{', '.join(map(str, port.shape))}]"


def _as_declared(port: Port, x: Array) -> Array:
    """Quantize a preprocessed image with the scale of the input; return it unchanged for a float input."""
    return port.quant.quantize(x) if port.quant is not None and np.dtype(port.dtype).kind in "iu" else x


def _from_path(path: Path, builder: _FeedBuilder) -> FeedSource:
    if os.path.isdir(path):  # Path.is_dir would raise for a name that is too long
        return _from_folder(path, builder)
    if not os.path.exists(path):
        raise absent_file(path, or_folder=True)
    note_input(path)
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return _check_first(FeedSource(path.name, 1, [[path]], builder))
    if suffix not in (".npz", ".npy"):
        raise UsageError(
            f"{path}: neither a folder, an image, .npz nor .npy", hint=f"images: {', '.join(IMAGE_SUFFIXES)}"
        )
    feeds = _from_arrays(load_arrays(path), path.name, builder)
    return replace(feeds, _origin=_Origin(path.absolute(), tuple(range(len(feeds)))))


def _from_folder(folder: Path, builder: _FeedBuilder) -> FeedSource:
    images = images_in(folder)
    others = sum(entry.is_file() for entry in folder.iterdir()) - len(images)
    for entry in images:
        note_input(entry)
    port = builder.only_port
    size = builder.batch(port)
    batches = _full_batches(images, size)
    if not batches:
        message = f"{folder}: {several(len(images), 'image')}, the model takes {size} at a time"
        raise UsageError(message, hint=one_by_one(port))
    used = len(batches) * size
    notes = [
        f"{several(count, what)} left out{why}"
        for count, what, why in (
            (others, "other file", ""),
            (len(images) - used, "image", f": not a full batch of {size}"),
        )
        if count
    ]
    name = folder.name or str(folder)
    description = f"{several(used, 'image')} of {name}" + (f" ({', '.join(notes)})" if notes else "")
    return _check_first(FeedSource(description, used, list(batches), builder, tuple(images[used:]), len(images) - used))


def _from_arrays(arrays: dict[str, Array], name: str, builder: _FeedBuilder) -> FeedSource:
    chosen, unused = _choose(arrays, builder)
    pieces = {input_name: builder.split(builder.ports[input_name], array) for input_name, array in chosen.items()}
    counts = {input_name: len(items) for input_name, items in pieces.items()}
    if min(counts.values()) == 0:
        empty = min(counts, key=lambda key: counts[key])
        what = f"{chosen[empty].dtype}{list(chosen[empty].shape)}"
        port = builder.ports[empty]
        if not len(chosen[empty]):
            raise UsageError(f"{name}: {what} holds no samples for input {describe(port)}", hint="give at least one")
        raise UsageError(f"{name}: {what} is less than one batch of input {describe(port)}", hint=one_by_one(port))
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"'{input_name}': {count}" for input_name, count in counts.items())
        hint = "give every input the same number of samples"
        raise UsageError(f"{name}: the inputs have different numbers of batches ({listed})", hint=hint)
    batches: list[Any] = [dict(zip(pieces, batch, strict=True)) for batch in zip(*pieces.values(), strict=True)]
    first = next(iter(chosen))
    used = sum(len(piece) if piece.ndim else 1 for piece in pieces[first])
    notes = [f"array '{unused_name}' left out" for unused_name in unused]
    first_array = chosen[first]
    left = len(first_array) - used if first_array.ndim and first_array.ndim == pieces[first][0].ndim else 0
    if left > 0:
        notes.append(f"{several(left, 'sample')} left out: not a full batch")
    description = f"{several(used, 'sample')} of {name}" + (f" ({', '.join(notes)})" if notes else "")
    return _check_first(FeedSource(description, used, batches, builder, left_out=max(left, 0)))


def _choose(arrays: dict[str, Array], builder: _FeedBuilder) -> tuple[dict[str, Array], list[str]]:
    """Select the arrays for the model's inputs by name, or for a single input the only array with a suitable shape."""
    if all(name in arrays for name in builder.ports):
        return {name: arrays[name] for name in builder.ports}, [name for name in arrays if name not in builder.ports]
    if any(name in arrays for name in builder.ports):
        missing = [describe(port) for name, port in builder.ports.items() if name not in arrays]
        raise UsageError(f"no array for {', '.join(missing)}", file=builder.file, hint=f"given: {', '.join(arrays)}")
    port = builder.only_port
    rank = len(port.shape)
    candidates = [
        name
        for name, array in arrays.items()
        if builder.is_images(port, array) or (array.ndim >= max(rank - 1, 2 if rank > 1 else 0))
    ]
    if len(candidates) != 1:
        shapes = {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}
        if list(shapes) == [""]:  # a .npy file
            hint = "give arrays with the extents of the input"
            raise UsageError(f"an array {shapes['']} does not fit input {describe(port)}", file=builder.file, hint=hint)
        listed = ", ".join(f"'{name}' {shape}" for name, shape in shapes.items())
        raise UsageError(f"no array named {describe(port)}", file=builder.file, hint=f"found: {listed or 'no arrays'}")
    return {port.name: arrays[candidates[0]]}, [name for name in arrays if name != candidates[0]]


def _full_batches(paths: list[Path], size: int) -> list[list[Path]]:
    """Split images into batches. An incomplete last batch is left out."""
    return [paths[start : start + size] for start in range(0, len(paths) - size + 1, size)]


def _content(batch: Any) -> bytes:
    """Digest of one batch of arrays, or digests of the images of a batch."""
    if isinstance(batch, list) and len(batch) > 1:
        return b"".join(_content([path]) for path in batch)
    digest = Digest()
    _add_content(digest, batch)
    return digest.digest()


def _add_content(digest: Digest, batch: Any) -> None:
    """Add a batch to a digest: images by their files' content, arrays by name, type, shape and elements."""
    if isinstance(batch, list):
        for path in batch:
            digest.update(digest_of(path.read_bytes()))
        return
    for name, array in sorted(batch.items()) if isinstance(batch, Mapping) else (("", batch),):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)


def _is_mask(array: Array) -> bool:
    """Return True if all numbers are 0 or infinities of one sign, and some are 0."""
    zero = array == 0
    return bool(zero.any() and any(np.all(zero | (array == infinity)) for infinity in (np.inf, -np.inf)))


def _check_first(source: FeedSource) -> FeedSource:
    """Build the first batch, so that samples that do not fit raise an error now. Return the source."""
    next(iter(source))
    return source
