"""Labeled boxes: a COCO annotation file, or one text file per image as YOLO writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from tpuconvert.evaluation.classes import Labeled, image_files
from tpuconvert.evaluation.images import image_size
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several

COCO_FILE = "instances.json"

FORMATS = f"a COCO file {COCO_FILE}, or a text file per image with lines 'class x y width height' from 0 to 1"


@dataclass(frozen=True)
class Objects:
    """Labeled objects in one image.

    Args:
        boxes: [N, 4], left, top, right, bottom, in pixels of the image.
        classes: [N], class indices.
        crowd: [N], True for a box around many objects: detections in it count neither as right nor as wrong.

    """

    boxes: Array
    classes: Array
    crowd: Array


def load_objects(samples: Any, labels: Any = None) -> Labeled:
    """Load images with their labeled boxes.

    Args:
        samples: a folder of images, or a list of image files.
        labels: a COCO file, a folder with a text file per image, or a list with one mapping per image: ``boxes`` [N, 4]
            (left, top, right, bottom in pixels), ``classes`` [N] and optionally ``crowd`` [N]. None: ``instances.json``
            in the folder of images, or else the text files in it.

    Raises:
        UsageError: there are no images or labels, or a file is missing.
        CorruptInputError: a file of labels does not have the format.

    """
    if isinstance(samples, str | os.PathLike):
        folder = Path(samples)
        if labels is None and os.path.isfile(folder / COCO_FILE):
            labels = folder / COCO_FILE
        if isinstance(labels, str | os.PathLike) and Path(labels).suffix.lower() == ".json":
            return _from_coco(folder, Path(labels))
        images = image_files(folder)
    elif isinstance(samples, list) and samples and all(isinstance(item, str | os.PathLike) for item in samples):
        images = [Path(item) for item in samples]
    else:
        raise UsageError("boxes are compared on image files", hint="give a folder of images, or a list of image files")
    if isinstance(labels, list | tuple):
        if len(labels) != len(images):
            raise UsageError(
                f"labels of {several(len(labels), 'image')} for {several(len(images), 'image')}",
                hint="give one list of objects per image, in the same order",
            )
        return Labeled(images, [_from_mapping(item) for item in labels])
    return Labeled(images, _from_texts(images, labels))


def _from_mapping(item: Any) -> Objects:
    if not isinstance(item, Mapping) or not {"boxes", "classes"} <= set(item):
        raise UsageError(f"labels of an image are {type(item).__name__}", hint="expected a mapping: boxes, classes")
    boxes = np.asarray(item["boxes"], dtype=np.float64).reshape(-1, 4)
    classes = np.asarray(item["classes"], dtype=np.int64).reshape(-1)
    crowd = np.asarray(item.get("crowd", np.zeros(len(classes))), dtype=bool).reshape(-1)
    if not len(boxes) == len(classes) == len(crowd):
        raise UsageError(f"{several(len(boxes), 'box')} with {len(classes)} classes", hint="give one class per box")
    return Objects(boxes, classes, crowd)


def _from_texts(images: list[Path], labels: str | os.PathLike[str] | None) -> list[Objects]:
    """Read the text file of each image. An image without one has no objects."""
    files = [(image.parent if labels is None else Path(labels)) / f"{image.stem}.txt" for image in images]
    if not any(os.path.isfile(file) for file in files):
        raise UsageError(f"{files[0].parent}: no labels of the images", hint=f"expected {FORMATS}")
    return [_from_text(file, image) for file, image in zip(files, images, strict=True)]


def _from_text(file: Path, image: Path) -> Objects:
    if not os.path.isfile(file):
        return Objects(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0, bool))
    note_input(file)
    height, width = image_size(image)
    try:
        rows = [[float(number) for number in line.split()] for line in read_text(file).splitlines() if line]
        numbers = np.array(rows, dtype=np.float64).reshape(-1, 5)
    except (ValueError, OverflowError, OSError) as error:
        raise CorruptInputError(f"no labels of boxes: {error}", file=str(file), hint=f"expected {FORMATS}") from error
    classes, center, extent = numbers[:, 0].astype(np.int64), numbers[:, 1:3], numbers[:, 3:]
    if not np.isfinite(numbers).all() or (classes < 0).any() or (classes != numbers[:, 0]).any():
        raise CorruptInputError("a class is not an integer, or a number is not finite", file=str(file))
    boxes = np.concatenate([center - extent / 2, center + extent / 2], axis=1) * (width, height, width, height)
    return Objects(boxes, classes, np.zeros(len(boxes), bool))


def _from_coco(folder: Path, file: Path) -> Labeled:
    """Read the images that a COCO file lists, by ascending id. Class k is the category with the k-th smallest id."""
    note_input(file)
    try:
        content = parse_json(read_text(file))
        images = {int(item["id"]): _image(folder, str(item["file_name"])) for item in content["images"]}
        categories = sorted(int(item["id"]) for item in content["categories"])
        index = {category: number for number, category in enumerate(categories)}
        rows_of: dict[int, list[tuple[list[float], int, bool]]] = {number: [] for number in sorted(images)}
        for item in content["annotations"]:
            left, top, width, height = (float(number) for number in item["bbox"])
            box = [left, top, left + width, top + height]
            rows_of[int(item["image_id"])].append((box, index[int(item["category_id"])], bool(item.get("iscrowd", 0))))
    except FileNotFoundError:
        raise absent_file(file) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CorruptInputError(
            f"no COCO annotations ({reason})", file=str(file), hint=f"expected {FORMATS}"
        ) from error
    missing = [path for path in images.values() if not os.path.isfile(path)]
    if missing:
        raise UsageError(
            f"{file}: {several(len(missing), 'image')} not in {folder}, the first is '{missing[0].name}'",
            hint="name the folder with these images, or remove them from the labels",
        )
    if not images:
        raise UsageError(f"{file}: lists no images", hint="give the instances file of the data set")
    return Labeled([images[number] for number in rows_of], [_objects(rows) for rows in rows_of.values()])


def _image(folder: Path, name: str) -> Path:
    """Return the path of an image. A labels file is untrusted input: it cannot name files outside of the folder."""
    path = PurePath(name)
    if path.anchor or ".." in path.parts:
        raise ValueError(f"{name!r} is not in the folder of images")
    return folder / path


def _objects(rows: list[tuple[list[float], int, bool]]) -> Objects:
    boxes: Array = np.array([box for box, _, _ in rows], dtype=np.float64).reshape(-1, 4)
    classes = np.array([index for _, index, _ in rows], dtype=np.int64)
    return Objects(boxes, classes, np.array([crowd for _, _, crowd in rows], dtype=bool))
