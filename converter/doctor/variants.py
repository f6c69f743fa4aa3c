"""Variants of the given preprocessing that the user may have meant, as arrays for the same model input.

A variant is computed from pixels: decoded images if the samples are images, else pixels estimated from the arrays.
Arrays that were normalized with an unknown mean and scale are mapped to 0..255 by their smallest and largest value per
channel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import Array

_USUAL_FITS = ("stretch", "crop")
"""Values of ``fit`` that are tried as variants: the scores of classifiers, for which labels are given."""

_MEAN, _DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_CIFAR_MEAN, _CIFAR_DEVIATION = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)

FAMILIES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "0..255": ((0.0,), (1.0,)),
    "0..1": ((0.0,), (1 / 255,)),
    "-1..1": ((127.5,), (1 / 127.5,)),
    "-128..127": ((128.0,), (1.0,)),
    "-0.5..0.5": ((127.5,), (1 / 255,)),
    "ImageNet mean and deviation": (_MEAN, tuple(1 / deviation for deviation in _DEVIATION)),
    "Caffe mean": ((123.0, 117.0, 104.0), (1.0,)),
    "Caffe mean, scale 0.017": ((123.0, 117.0, 104.0), (0.017,)),
    "CIFAR mean and deviation": (_CIFAR_MEAN, tuple(1 / deviation for deviation in _CIFAR_DEVIATION)),
    "MNIST mean and deviation": ((33.318,), (1 / 78.567,)),
}
"""Mean and scale that common families of networks use, in the order R, G, B."""


@dataclass(frozen=True)
class Variant:
    """A variant of the preprocessing.

    Args:
        name: description of the change.
        advice: the option or the samples that the user should change.
        same_values: True if the variant only reorders the present values, so that the entropies are comparable.
        make: returns the samples with given indices as float arrays for the model's input.

    """

    name: str
    advice: str
    same_values: bool
    make: Callable[[Array], Array]


class TrialSamples:
    """Samples of a model with a single input, with the present preprocessing and with its variants.

    Args:
        source: the samples.
        port: the model's input.
        preprocess: applied to images among the samples.

    """

    def __init__(self, source: FeedSource, port: Port, preprocess: Preprocess | None) -> None:
        self.port = port
        self._source = source
        self.current = np.concatenate([self._in_units(np.asarray(feed[port.name])) for feed in source])
        is_fused = preprocess is not None and bool(preprocess.fuse)  # variants would need the nodes of the model
        self._layout = None if is_fused else _layout(port.shape)
        self.rule = preprocess.with_size_of(port.shape) if preprocess is not None and source.are_images else None
        self._decoded: dict[str, Array] = {}

    @property
    def are_images(self) -> bool:
        """Return True if the input has the shape of an image, normalized outside; there are no variants otherwise."""
        return self._layout is not None

    @property
    def channels(self) -> int:
        """Number of channels of the image."""
        return 3 if self._layout in ("NCHW", "NHWC") else 1

    def to_input_dtype(self, x: Array) -> Array:
        """Convert float values to the type of the model input: quantize, or round and saturate to an integer type."""
        if self.port.quant is not None and np.dtype(self.port.dtype).kind in "iu":
            return self.port.quant.quantize(x)
        dtype = np.dtype(self.port.dtype)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            x = np.clip(np.rint(x), limits.min, limits.max)
        return x.astype(dtype)

    def variants(self) -> Iterator[Variant]:
        """Yield variants that change the values, then variants that only reorder them."""
        if not self.are_images:
            return
        yield from self._normalizations()
        yield from self._arrangements()

    def _in_units(self, x: Array) -> Array:
        if self.port.quant is not None and x.dtype.kind in "iu":
            x = self.port.quant.dequantize(x)
        return x.astype(np.float32)

    def _pixels(self, fit: str | None = None) -> Array:
        """Return pixels [N, H, W, C] in the order R, G, B: decoded from images, or estimated from arrays."""
        key = fit or (self.rule.fit if self.rule is not None else "")
        if key not in self._decoded:
            self._decoded[key] = self._decode(key) if self.rule is not None else self._estimate()
        return self._decoded[key]

    def _decode(self, fit: str) -> Array:
        assert self.rule is not None
        color = "GRAY" if self.channels == 1 else "RGB"
        plain = dataclasses.replace(self.rule, mean=(0.0,), scale=(1.0,), color=color, fit=fit)
        port = Port(self.port.name, "float32", self.port.shape)
        images = np.concatenate([np.asarray(feed[port.name]) for feed in self._source.remade([port], plain)])
        return self._to_image(images)

    def _estimate(self) -> Array:
        """Estimate pixels from arrays: per channel, map the smallest value to 0 and the largest to 255."""
        images = self._to_image(self.current)
        low = images.min(axis=(0, 1, 2), keepdims=True)
        high = images.max(axis=(0, 1, 2), keepdims=True)
        pixels: Array = (images - low) * (255 / np.maximum(high - low, 1e-30))
        return pixels.astype(np.float32)

    def _to_image(self, x: Array) -> Array:
        """Convert a model input to [N, H, W, C]."""
        if self._layout == "NCHW":
            return x.transpose(0, 2, 3, 1)
        return x if self._layout == "NHWC" else x.reshape(len(x), *_plane(self.port.shape), 1)

    def _from_image(self, images: Array) -> Array:
        x = images.transpose(0, 3, 1, 2) if self._layout == "NCHW" else images
        return np.ascontiguousarray(x, np.float32).reshape(len(images), *self.current.shape[1:])

    def _normalizations(self) -> Iterator[Variant]:
        for name, (mean, scale) in FAMILIES.items():
            if self.channels == 1:
                mean, scale = (float(np.mean(mean)),), (float(np.mean(scale)),)
            elif name.startswith("MNIST"):
                continue
            for color in ("RGB", "BGR") if self.channels == 3 else ("GRAY",):
                reverse = color == "BGR"
                rule = Preprocess(
                    fit=self.rule.fit if self.rule is not None else "stretch",
                    color=color,
                    mean=mean[::-1] if reverse else mean,
                    scale=scale[::-1] if reverse else scale,
                    layout="NHWC" if self._layout == "NHWC" else "NCHW",
                )
                yield self._by_rule(f"{name}, {color}", rule)

        greatest = float(self._pixels().max())
        if 0 < greatest < 128:  # the pixels have fewer than 8 bits
            rule = Preprocess(color="GRAY" if self.channels == 1 else "RGB", scale=(1 / greatest,))
            if self._layout == "NHWC":
                rule = dataclasses.replace(rule, layout="NHWC")
            yield self._by_rule(f"0..1, of pixels up to {greatest:g}", rule)

    def _by_rule(self, name: str, rule: Preprocess, change: Callable[[Array], Array] | None = None) -> Variant:
        """Create the variant with preprocessing ``rule``; ``change`` is applied first, to RGB pixels [N, H, W, C]."""

        def make(indices: Array) -> Array:
            pixels = self._pixels(rule.fit if self.rule is not None else None)[indices]
            if change is not None:
                pixels = change(pixels)
            ordered = pixels[..., ::-1] if rule.color == "BGR" else pixels
            mean, scale = np.asarray(rule.mean, np.float32), np.asarray(rule.scale, np.float32)
            return self._from_image((ordered - mean) * scale)

        advice = f"--preprocess {short(rule)}"
        if self.rule is None:
            advice += " with samples of uint8 pixels, or the same change of the arrays"
        return Variant(name, advice, False, make)

    def _arrangements(self) -> Iterator[Variant]:
        def of_image(change: Callable[[Array], Array]) -> Callable[[Array], Array]:
            return lambda indices: self._from_image(change(self._to_image(self.current[indices])))

        rule = self.rule
        if self.channels == 3:
            advice = "exchange the first and third channel of the arrays"
            if rule is not None:
                advice = f"--preprocess {short(_with_other_color(rule))}"
            yield Variant("R and B exchanged", advice, True, of_image(lambda images: images[..., ::-1]))
            if rule is not None and len(set(rule.mean)) + len(set(rule.scale)) > 2:
                other = dataclasses.replace(rule, color=_other_color(rule.color))
                yield self._by_rule("R and B exchanged, mean and scale as given", other)
            for name, change in _MEMORY_ORDERS.items():
                if rule is None:
                    yield Variant(name, _LAYOUT_ADVICE, True, of_image(change))
                else:  # the change is applied to RGB pixels, before mean, scale and BGR
                    variant = self._by_rule(name, rule, change)
                    yield dataclasses.replace(variant, advice=_LAYOUT_ADVICE, same_values=True)
        high = self._to_image(self.current).max(axis=(0, 1, 2))
        low = self._to_image(self.current).min(axis=(0, 1, 2))
        advice = "invert the samples: 255 - pixel"
        if rule is not None:
            scale = np.asarray(rule.scale, np.float64)
            mean = np.broadcast_to(np.asarray(rule.mean) + (low + high) / scale, (self.channels,))
            inverted = dataclasses.replace(
                rule, mean=tuple(map(float, mean)), scale=tuple(-value for value in rule.scale)
            )
            advice = f"--preprocess {short(inverted)}"
        yield Variant("inverted", advice, True, of_image(lambda images: low + high - images))
        height, width = self._to_image(self.current[:1]).shape[1:3]
        if height == width:
            turned = of_image(lambda images: images.transpose(0, 2, 1, 3))
            yield Variant("height and width exchanged", "exchange the axes H and W of the samples", True, turned)
        yield Variant("upside down", "reverse the rows of the samples", True, of_image(lambda images: images[:, ::-1]))
        if rule is not None:
            for fit in _USUAL_FITS:
                if fit != rule.fit:
                    variant = self._by_rule(f"fit={fit}", dataclasses.replace(rule, fit=fit))
                    yield dataclasses.replace(variant, same_values=True)


def _from_channels_first(images: Array) -> Array:
    """Reinterpret memory that was read as [H, W, C] as [C, H, W]."""
    count, height, width, channels = images.shape
    return np.ascontiguousarray(images).reshape(count, channels, height, width).transpose(0, 2, 3, 1)


def _from_channels_last(images: Array) -> Array:
    """Reinterpret memory that was read as [C, H, W] as [H, W, C]."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(images.shape)


_MEMORY_ORDERS = {
    "memory read as [C, H, W]": _from_channels_first,
    "memory read as [H, W, C]": _from_channels_last,
}

_LAYOUT_ADVICE = "transpose the arrays between NHWC and NCHW (numpy.transpose) instead of reshaping them"


def short(rule: Preprocess) -> str:
    """Format a preprocessing as a value of ``--preprocess``, without the size, which the model determines."""
    values = dataclasses.replace(rule, size=None).to_dict()
    words = []
    for key, value in values.items():
        if isinstance(value, list):
            numbers = value[:1] if len(set(value)) == 1 else value
            value = ",".join(f"{number:.6g}" for number in numbers)
        words.append(f"{key}={value}")
    return ",".join(words)


def _other_color(color: str) -> str:
    return "BGR" if color == "RGB" else "RGB"


def _with_other_color(rule: Preprocess) -> Preprocess:
    """Swap RGB and BGR. Mean and scale stay with the channels of the model."""
    return dataclasses.replace(rule, color=_other_color(rule.color))


def _layout(shape: Sequence[int | str]) -> str | None:
    """Return the layout of an image input: NCHW or NHWC for 3 channels, ``plane`` for 1; None for other inputs."""
    if len(shape) == 4 and shape[1] == 3 and shape[3] != 3:
        return "NCHW"
    if len(shape) == 4 and shape[3] == 3:
        return "NHWC"
    plane = _plane(shape)
    return "plane" if len(plane) == 2 and min(plane) >= 8 else None


def _plane(shape: Sequence[int | str]) -> tuple[int, ...]:
    """Return the extents other than 1, without the batch."""
    return tuple(extent for extent in shape[1:] if isinstance(extent, int) and extent != 1)
