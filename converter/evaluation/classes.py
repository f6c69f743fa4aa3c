"""Class indices of samples: from folders, ``.npz`` files, and files of labels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.samples.array_files import load_arrays
from tpuconvert.samples.image_files import IMAGE_SUFFIXES
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several

LABELS = "labels"

LABEL_FILES = "a .npy or .npz file, or text: one class per line in the order of the samples, or 'file name,class'"


@dataclass(frozen=True)
class Labeled:
    """Samples with their labels.

    Args:
        samples: arrays, arrays by input name, a file of them, or a list of image files.
        labels: one per sample in the same order: class indices, or what another metric takes. None without labels.

    """

    samples: Any
    labels: Any

    def are_images(self) -> bool:
        """Return True if the samples are image files."""
        return _are_files(self.samples)


_NO_LABELS = "give the labels with --labels, or --unlabeled with --reference to compare two models"


def load_labeled(path: str | os.PathLike[str], classes: int) -> Labeled:
    """Read an ``.npz`` file with an array ``labels``, or a folder with a folder of images per class.

    Each folder is a class: its name is the class index if all names are numbers, otherwise names are sorted.

    Args:
        path: the file or folder.
        classes: number of classes of the model; checked against the labels, and against folders whose names are not
            numbers.

    Raises:
        UsageError: there are no labels, or they do not match the classes or samples.
        CorruptInputError: a file does not have the format that its suffix indicates.

    """
    source = Path(path)
    if os.path.isdir(source):  # Path.is_dir would raise for a name that is too long
        return _from_folders(source, classes)
    if source.suffix.lower() != ".npz":
        raise UsageError(f"{source}: neither a folder per class nor an .npz file with '{LABELS}'", hint=_NO_LABELS)
    arrays = load_arrays(source)
    labels = arrays.pop(LABELS, None)
    if labels is None or not arrays:
        hint = f"numpy.savez(FILE, images=..., {LABELS}=...) writes such a file"
        raise UsageError(
            f"holds no array '{LABELS}' beside the samples", file=str(source), hint=f"{hint}\n{_NO_LABELS}"
        )
    labels = labels.reshape(-1)
    if labels.dtype.kind not in "iu" or labels.size == 0 or labels.min() < 0 or labels.max() >= classes:
        values = f"{labels.dtype} from {labels.min()} to {labels.max()}" if labels.size else "empty"
        text = f"'{LABELS}' are {values}, expected whole numbers from 0 to {classes - 1}"
        raise UsageError(text, file=str(source), hint="classes are counted from 0")
    return Labeled(next(iter(arrays.values())) if len(arrays) == 1 else arrays, labels)


def _from_folders(root: Path, classes: int) -> Labeled:
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir())
    if not folders:
        raise UsageError(
            f"{root}: has no folder per class", hint=f"put the images of each class into its own folder\n{_NO_LABELS}"
        )
    if all(folder.name.isdecimal() for folder in folders):
        numbers = [int(folder.name) for folder in folders]
    elif len(folders) == classes:
        numbers = list(range(classes))
    else:
        raise UsageError(
            f"{root}: {len(folders)} folders, the model knows {classes} classes",
            hint=f"name each folder with the number of its class\n{_NO_LABELS}",
        )
    if len(set(numbers)) < len(numbers) or max(numbers) >= classes:
        raise UsageError(
            f"{root}: the folders' names are not numbers of classes from 0 to {classes - 1}, each once",
            hint="name each folder with the number of its class",
        )
    images, labels = [], []
    for number, folder in zip(numbers, folders, strict=True):
        files = sorted(entry for entry in folder.iterdir() if entry.suffix.lower() in IMAGE_SUFFIXES)
        images += files
        labels += [number] * len(files)
    if not images:
        raise UsageError(f"{root}: no images in its folders", hint=f"known: {', '.join(IMAGE_SUFFIXES)}")
    return Labeled(images, np.array(labels))


def read_labels(labels: Any) -> Array | dict[str, int]:
    """Read class indices from a file, or convert them to an array.

    Args:
        labels: an array, or a ``.npy``, ``.npz`` or text file: one class per line, or ``file name,class``.

    Returns:
        int64 classes in the order of the samples, or a mapping from file name to class.

    Raises:
        UsageError: the file has another form, or the labels are not integers.

    """
    if isinstance(labels, str | os.PathLike):
        path = Path(labels)
        labels = _read_array(path) if path.suffix.lower() in (".npy", ".npz") else _read_text(path)
    if isinstance(labels, Mapping):
        return {str(name): int(index) for name, index in labels.items()}
    array = np.asarray(labels).reshape(-1)
    if array.dtype.kind not in "iu":
        raise UsageError(f"labels are {array.dtype}, expected integers")
    return array.astype(np.int64)


def _read_array(path: Path) -> Array:
    """Read the array ``labels`` of a file, or else its first one."""
    arrays = load_arrays(path)
    if not arrays:
        raise UsageError("holds no arrays", file=str(path), hint=LABEL_FILES)
    return arrays.get(LABELS, next(iter(arrays.values())))


def _read_text(path: Path) -> list[int] | dict[str, int]:
    """Read one class per line, or a file name and a class, separated by a comma or white space."""
    note_input(path)
    try:
        lines = [line.strip() for line in read_text(path).splitlines()]
        rows = [line.rsplit("," if "," in line else None, 1) for line in lines if line]
        if rows and len(rows[0]) == 2 and not rows[0][1].strip().isdecimal() and path.suffix.lower() == ".csv":
            del rows[0]  # the names of the columns
        if all(len(row) == 2 for row in rows) and not all(row[0].strip().isdecimal() for row in rows):
            by_name = {name.strip(): _class(index) for name, index in rows}
            if len(by_name) < len(rows):
                raise ValueError("a file name occurs twice")
            return by_name
        return [_class(number) for row in rows for number in row]
    except OSError as error:
        raise unreadable(error, path) from error
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{path}: holds no labels ({error})", hint=LABEL_FILES) from None


def _class(text: str) -> int:
    number = int(text)
    if abs(number) >> 63:
        raise ValueError(f"class {text.strip()[:40]}")
    return number


def in_order(labels: Array | dict[str, int], names: list[str]) -> Array:
    """Return the class of each sample.

    Args:
        labels: result of ``read_labels``.
        names: file names of the images, in the order of the samples; empty if the samples are arrays.

    Raises:
        UsageError: an image has no label, or names are given for samples that have none.

    """
    if not isinstance(labels, dict):
        return labels
    if not names:
        raise UsageError("labels by file name for samples that are not image files", hint="give one class per sample")
    missing = [name for name in names if name not in labels]
    if missing:
        raise UsageError(
            f"no label for {several(len(missing), 'image')}, the first is '{missing[0]}'",
            hint="add it to the labels, or remove the image",
        )
    return np.array([labels[name] for name in names], dtype=np.int64)


def image_files(folder: Path) -> list[Path]:
    """Return the images of a folder, sorted by name.

    Raises:
        UsageError: there are none.

    """
    if os.path.isfile(folder):
        raise UsageError(f"{folder}: is a file, expected a folder of images", hint="name the folder")
    if not os.path.isdir(folder):
        raise absent_file(folder, or_folder=True)
    images = sorted(entry for entry in folder.iterdir() if entry.suffix.lower() in IMAGE_SUFFIXES)
    if not images:
        raise UsageError(f"{folder}: no images", hint=f"known: {', '.join(IMAGE_SUFFIXES)}")
    return images


def load_classes(samples: Any, labels: Any, classes: int) -> Labeled:
    """Load samples with their class indices.

    Args:
        samples: without labels, as ``load_labeled`` takes them; else a folder of images, a list of image files, or
            arrays as ``convert`` takes them for calibration.
        labels: as ``read_labels`` takes them, or None.
        classes: number of classes of the model.

    Raises:
        UsageError: there are no labels, or they do not fit the classes or the samples.

    """
    if labels is None:
        if not isinstance(samples, str | os.PathLike):
            raise UsageError("samples without labels", hint="give labels: one class index per sample")
        return load_labeled(samples, classes)
    if isinstance(samples, str | os.PathLike) and os.path.isdir(samples):
        samples = image_files(Path(samples))
    names = [item.name for item in samples] if _are_files(samples) else []
    class_indices = in_order(read_labels(labels), names)
    if names and len(class_indices) != len(names):
        raise UsageError(
            f"{several(len(class_indices), 'label')} for {several(len(names), 'image')}", hint="give one per image"
        )
    if class_indices.size == 0 or class_indices.min() < 0 or class_indices.max() >= classes:
        limits = f"from {class_indices.min()} to {class_indices.max()}" if class_indices.size else "empty"
        raise UsageError(f"labels are {limits}, expected 0 to {classes - 1}")
    return Labeled(samples, class_indices)


def _are_files(samples: Any) -> bool:
    return isinstance(samples, list) and bool(samples) and all(isinstance(item, Path) for item in samples)


def load_any(samples: Any, labels: Any) -> Labeled:
    """Load samples with labels of any kind, one per sample, or None for each.

    Args:
        samples: a folder of images, an ``.npz`` file that may have an array ``labels``, or as ``convert`` takes them.
        labels: as ``read_labels`` takes them, an array or list with one entry per sample, or None.

    Raises:
        UsageError: a file cannot be read.

    """
    path = Path(samples) if isinstance(samples, str | os.PathLike) else None
    if path is not None and os.path.isdir(path):
        samples = image_files(path)
    elif path is not None and path.suffix.lower() == ".npz" and labels is None:
        arrays = load_arrays(path)
        labels = arrays.pop(LABELS, None)
        samples = next(iter(arrays.values())) if len(arrays) == 1 else arrays
    if isinstance(labels, str | os.PathLike) and Path(labels).suffix.lower() in (".npy", ".npz"):
        labels = _read_array(Path(labels))
    elif isinstance(labels, str | os.PathLike | Mapping):
        labels = in_order(read_labels(labels), [item.name for item in samples] if _are_files(samples) else [])
    return Labeled(samples, labels)
