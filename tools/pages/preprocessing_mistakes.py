"""Typical preprocessing mistakes of users, applied to the images of the labeled test models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from tools.accuracy.datasets import Entry
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.types import Array

LIMIT = 200
"""Number of samples per model. From a set that is sorted by class, every n-th sample is used."""

_IMAGENET = ((123.675, 116.28, 103.53), (1 / 58.395, 1 / 57.12, 1 / 57.375))
_CAFFE = ((104.0, 117.0, 123.0), (1.0,))


@dataclass(frozen=True)
class Images:
    """Labeled images of one model, as decoded, with the right preprocessing.

    Args:
        originals: uint8 [1, H, W, C] in RGB or gray, each with its own size.
        pixels: by ``fit``, uint8 [N, H, W, C], resized to the size of the model's input.
        labels: index of the class of each, as the output counts them.
        rule: the right preprocessing; its ``mean`` is replaced by ``mean_image`` if the file has one.
        mean_image: mean per pixel [H, W, C]; None for one per channel.

    """

    originals: list[Array]
    pixels: dict[str, Array]
    labels: Array
    rule: Preprocess
    mean_image: Array | None = None


@dataclass(frozen=True)
class Given:
    """Samples as a user provides them: pixels, a preprocessing, and the model input [N, H, W, C] computed from both.

    Args:
        pixels: resized to the size of the model's input with ``rule.fit``.
        rule: the preprocessing.
        normalized: the model's input.
        originals: the images before resizing, for mistakes of the resizing; None if the pixels are passed.

    """

    pixels: Array
    rule: Preprocess
    normalized: Array
    originals: list[Array] | None = None


Mistake = Callable[[Images], Given | None]
"""Function that applies a mistake. It returns None if the mistake has no effect, such as a forgotten mean of 0."""


def images_of(root: Path, entry: Entry, part: str) -> Images:
    """Load the images of a model for evaluation (``test``), or other images of the same set (``development``)."""
    kind, how = entry["labels"]["set"], entry["preprocessing"]
    offset = entry["labels"]["output_offset"]
    if kind in ("mnist", "cifar10"):
        with np.load(root / "images" / kind / "test.npz") as archive:
            images, labels = archive["images"], archive["labels"].astype(np.int64)
        start = 0 if part == "test" else 1
        images, labels = images[start::4][:LIMIT], labels[start::4][:LIMIT] + offset
        if kind == "mnist":
            rule = Preprocess(color="GRAY", scale=(how["scale"],))
            images = images.reshape(-1, 28, 28, 1)
            return Images(list(images[:, None]), _resize_both_ways(images, (28, 28)), labels, rule)
        mean = None if how["mean"] == "none" else np.load(root / "images" / kind / how["mean"]).astype(np.float32)
        per_channel = (0.0,) if mean is None else tuple(map(float, mean.mean(axis=(0, 1))))
        rule = Preprocess(mean=per_channel, layout=how["layout"])
        return Images(list(images[:, None]), _resize_both_ways(images, (32, 32)), labels, rule, mean)
    folder = root / "images" / ("imagenet" if kind == "imagenet" else "coco")
    listed = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["images"]
    if kind == "imagenet":
        listed = [item for item in listed if item["role"] == ("eval" if part == "test" else "calib")]
    named = "label" if kind == "imagenet" else "person"
    keys = {key: value for key, value in how.items() if key not in ("kind", "images")}
    rule = Preprocess.from_mapping(keys)
    plain = replace(rule, mean=(0.0,), scale=(1.0,), color="RGB", layout="NHWC")
    pixels = {
        fit: np.concatenate([replace(plain, fit=fit).load(folder / item["file"]) for item in listed]).astype(np.uint8)
        for fit in ("stretch", "crop")
    }
    labels = np.array([item[named] for item in listed]) + offset
    originals = [decode_image(folder / item["file"]) for item in listed]
    return Images(originals, pixels, labels, replace(rule, size=None))


def decode_image(path: Path) -> Array:
    """Decode an image file to uint8 [1, H, W, 3] in RGB."""
    with PIL.Image.open(path) as image:
        return np.asarray(image.convert("RGB"))[None]


def _resize_both_ways(images: Array, size: tuple[int, int]) -> dict[str, Array]:
    color = "GRAY" if images.shape[3] == 1 else "RGB"
    rule = Preprocess(size=size, color=color, layout="NHWC")
    return {fit: replace(rule, fit=fit).apply(images).astype(np.uint8) for fit in ("stretch", "crop")}


def right(images: Images) -> Given:
    """Return the samples with correct preprocessing."""
    return replace(_given_images(images, images.rule), originals=images.originals)


def _given_images(images: Images, rule: Preprocess, change: Callable[[Array], Array] | None = None) -> Given:
    """Return samples with decoded pixels, to which ``change`` is applied if it is given, and a preprocessing."""
    pixels = images.pixels[rule.fit]
    if change is not None:
        pixels = np.ascontiguousarray(change(pixels))
    ordered = (pixels[..., ::-1] if rule.color == "BGR" else pixels).astype(np.float32)
    mean: Any = np.asarray(rule.mean, np.float32)
    if images.mean_image is not None and rule.mean == images.rule.mean:
        mean = images.mean_image if rule.color == images.rule.color else images.mean_image[..., ::-1]
    return Given(pixels, rule, ((ordered - mean) * np.asarray(rule.scale, np.float32)).astype(np.float32))


def _has_mean(rule: Preprocess) -> bool:
    return any(rule.mean)


def _has_scale(rule: Preprocess) -> bool:
    return set(rule.scale) != {1.0}


def _is_color(images: Images) -> bool:
    return images.rule.color != "GRAY"


def _family(images: Images, mean: tuple[float, ...], scale: tuple[float, ...]) -> Given:
    """Use the mean and scale of another network, in the channel order of this network."""
    if not _is_color(images):
        mean, scale = (float(np.mean(mean)),), (float(np.mean(scale)),)
    return _given_images(images, replace(images.rule, mean=mean, scale=scale))


def _value_range(images: Images) -> Given:
    """Normalize to -1..1, or to 0..1 if -1..1 is correct."""
    is_centred = abs(images.rule.scale[0] * 127.5 - 1) < 0.02 and _has_mean(images.rule)
    return _family(images, (0.0,), (1 / 255,)) if is_centred else _family(images, (127.5,), (1 / 127.5,))


def _other_network(images: Images) -> Given:
    """Use mean and deviation of ImageNet, or of Caffe networks if the ImageNet values are correct."""
    is_imagenet = abs(images.rule.mean[0] - 123.675) < 0.1 and _has_scale(images.rule)
    return _family(images, *(_CAFFE if is_imagenet else _IMAGENET))


def _mean_in_other_units(images: Images) -> Given | None:
    """Subtract the mean after scaling: ``x = pixel * scale - mean``."""
    rule = images.rule
    if not _has_mean(rule) or not _has_scale(rule):
        return None
    scale = np.broadcast_to(np.asarray(rule.scale), np.broadcast_shapes((len(rule.mean),), (len(rule.scale),)))
    mean = np.broadcast_to(np.asarray(rule.mean), scale.shape) / scale
    return _given_images(images, replace(rule, mean=tuple(map(float, mean))))


def _swap_channels(images: Images) -> Given | None:
    if not _is_color(images):
        return None
    return _given_images(images, replace(images.rule, color="BGR" if images.rule.color == "RGB" else "RGB"))


def _reshape(images: Images) -> Given | None:
    """Reshape [C, H, W] to [H, W, C] instead of transposing."""
    if not _is_color(images):
        return None
    return _given_images(images, images.rule, lambda x: x.transpose(0, 3, 1, 2).reshape(x.shape))


def _transpose(images: Images) -> Given | None:
    return _given_images(images, images.rule, lambda x: x.transpose(0, 2, 1, 3))


def _other_fit(images: Images) -> Given:
    """Exchange the two ways of resizing: crop and stretch."""
    resized = _given_images(images, replace(images.rule, fit="crop" if images.rule.fit == "stretch" else "stretch"))
    return replace(resized, originals=images.originals)


def _with(images: Images, **changes: Any) -> Given:
    return _given_images(images, replace(images.rule, **changes))


def _scale(images: Images, factor: float) -> Given:
    return _with(images, scale=tuple(value * factor for value in images.rule.scale))


MISTAKES: dict[str, Mistake] = {
    "mean and scale forgotten": lambda images: _with(images, mean=(0.0,), scale=(1.0,)),
    "mean forgotten": lambda images: _with(images, mean=(0.0,)) if _has_mean(images.rule) else None,
    "scale forgotten": lambda images: _with(images, scale=(1.0,)) if _has_scale(images.rule) else None,
    "scale 256 times too large": lambda images: _scale(images, 256.0),
    "scale 256 times too small": lambda images: _scale(images, 1 / 256),
    "another value range": _value_range,
    "another network's mean": _other_network,
    "mean after scale": _mean_in_other_units,
    "R and B exchanged": _swap_channels,
    "reshaped, not transposed": _reshape,
    "pixels inverted": lambda images: _given_images(images, images.rule, lambda x: 255 - x),
    "H and W exchanged": _transpose,
    "upside down": lambda images: _given_images(images, images.rule, lambda x: x[:, ::-1]),
    "crop and stretch exchanged": _other_fit,
}
"""Name of a mistake -> function that applies it."""


def cases(images: Images) -> Iterator[tuple[str, Given | None]]:
    """Yield every mistake with its samples; None if it does not apply or does not change the model input."""
    want = right(images).normalized
    for name, mistake in MISTAKES.items():
        changed = mistake(images)
        same = changed is not None and np.allclose(changed.normalized, want, rtol=1e-4, atol=1e-4 * float(np.ptp(want)))
        yield name, None if same else changed
