"""Label images of segmentation: one per image, with the same name before the suffix."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.evaluation.classes import Labeled, image_files
from tpuconvert.schema.errors import UsageError
from tpuconvert.text.text_format import several


def load_label_images(samples: Any, labels: Any) -> Labeled:
    """Load images with the files or arrays of their label images.

    Args:
        samples: a folder of images, or a list of image files.
        labels: a folder with a PNG of the same name for each image, or a list of int arrays [height, width].

    Raises:
        UsageError: there are no images, or some have no label image.

    """
    if labels is None:
        raise UsageError("no label images", hint="give the folder with a PNG of the same name for each image as labels")
    is_list = isinstance(samples, list | tuple)
    images = [Path(item) for item in samples] if is_list else image_files(Path(samples))
    if isinstance(labels, str | os.PathLike):
        files = [Path(labels) / f"{image.stem}.png" for image in images]
        missing = [file.name for file in files if not os.path.isfile(file)]
        if missing:
            raise UsageError(
                f"{labels}: no label image {missing[0]}, {len(missing)} of {len(files)} are missing",
                hint="a label image has the name of its image, as .png",
            )
        return Labeled(images, files)
    arrays = [np.asarray(item) for item in labels]
    if len(arrays) != len(images):
        raise UsageError(
            f"{several(len(arrays), 'label image')} for {several(len(images), 'image')}",
            hint="give one label image per image, in the same order",
        )
    return Labeled(images, arrays)
