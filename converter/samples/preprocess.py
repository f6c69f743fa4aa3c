"""Preprocessing of images: size, color order, mean, scale and layout, given once and stored in the model.

x = (pixel - mean) * scale, per channel, in binary32. Calibration, running and verification all use the
:class:`Preprocess` stored in the model, so that they agree.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from tpuconvert.samples.image_files import INSTALL_PILLOW, open_image
from tpuconvert.schema.arithmetic.opencv_resizing import RESIZERS
from tpuconvert.schema.arithmetic.yuv420 import rgb_to_yuv420
from tpuconvert.schema.errors import MissingExtraError, UsageError
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several
from tpuconvert.yaml_files import read_yaml

COLORS = {"RGB": 3, "BGR": 3, "GRAY": 1}
FITS = ("stretch", "crop", "letterbox", "letterbox-top-left")
LAYOUTS = ("NCHW", "NHWC")

CROP_SHARE = (7, 8)
"""``fit=crop`` takes the center square whose side is this share of the shorter side."""

PILLOW_FILTERS = {
    "pillow-nearest": "NEAREST",
    "pillow-bilinear": "BILINEAR",
    "pillow-bicubic": "BICUBIC",
    "pillow-lanczos": "LANCZOS",
    "pillow-box": "BOX",
}
"""Attributes of ``PIL.Image.Resampling`` by the value of ``resize``. Pillow filters with antialiasing."""

RESIZES = (*PILLOW_FILTERS, *RESIZERS)

PIXEL_FORMATS = {"rgb": "RGB", "bgr": "BGR", "gray": "GRAY", "nv12": "RGB", "i420": "RGB"}
"""Formats of uint8 images that a model with fused preprocessing takes -> color order of their pixels."""

PLANE_FORMATS = {"nv12": True, "i420": False}
"""Formats whose images are planes [N, H * 3/2, W] instead of pixels [N, H, W, C] -> True if U and V are interleaved."""

YAML_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Preprocess:
    """Conversion of images to the input of a model.

    Args:
        size: (height, width) in pixels; None uses the size of the model's input.
        fit: ``stretch`` takes the whole image; ``crop`` the center square of 7/8 of the shorter side; ``letterbox``
            the whole image with its aspect ratio, in the center of a border; ``letterbox-top-left`` the same with the
            border at the right or at the bottom.
        color: channel order of the model.
        mean: subtracted first; a scalar, or one value per channel in the order of ``color``. Unit: pixel values.
        scale: factor applied after the subtraction; a scalar, or one value per channel.
        layout: axis order of the model's input.
        resize: library and method whose pixels are reproduced; one of ``RESIZES``.
        pad: pixel value of the border of a letterbox, an integer from 0 to 255.
        fuse: the model computes ``color``, ``mean``, ``scale`` and ``layout`` itself, from uint8 images in this format;
            one of ``PIXEL_FORMATS``. Empty: it does not.
        camera: (height, width) of the images that a model with ``fuse`` takes, if it also computes ``fit``, ``resize``
            and ``pad`` itself. Needs ``size`` and a method of OpenCV. Images of another size are resized to it first.

    Raises:
        UsageError: a value is not valid; the message names the key and the valid values.

    """

    size: tuple[int, int] | None = None
    fit: str = "stretch"
    color: str = "RGB"
    mean: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    layout: str = "NCHW"
    resize: str = "pillow-bilinear"
    pad: float = 114
    fuse: str = ""
    camera: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        words = (("fit", FITS), ("color", tuple(COLORS)), ("layout", LAYOUTS), ("resize", RESIZES))
        for key, allowed in words:
            if getattr(self, key) not in allowed:
                raise UsageError(f"preprocessing: {key} is '{getattr(self, key)}'", hint=f"one of {', '.join(allowed)}")
        for key in ("size", "camera"):
            numbers = getattr(self, key)
            if numbers is not None and (len(numbers) != 2 or min(numbers) < 1):
                raise UsageError(f"preprocessing: {key} is {numbers}", hint="two positive numbers: HEIGHTxWIDTH")
        for key in ("mean", "scale"):
            numbers = getattr(self, key)
            if len(numbers) not in (1, self.channels) or not all(math.isfinite(number) for number in numbers):
                raise UsageError(
                    f"preprocessing: {key} is {', '.join(map(str, numbers)) or 'empty'}",
                    hint=f"one finite number, or {self.channels} for {self.color}",
                )
        if 0.0 in self.scale:
            raise UsageError(
                "preprocessing: scale is 0, every image would be the same",
                hint="leave it out, or give the factor of the training, such as 0.00392157",
            )
        if self.fuse and self.fuse not in PIXEL_FORMATS:
            raise UsageError(f"preprocessing: fuse is '{self.fuse}'", hint=f"one of {', '.join(PIXEL_FORMATS)}")
        if self.fuse and (self.fuse == "gray") != (self.color == "GRAY"):
            message = f"preprocessing: fuse={self.fuse} with color={self.color}"
            raise UsageError(message, hint="gray is for color=GRAY, the others are for color=RGB and color=BGR")
        if self.camera is not None and (self.size is None or self.resize not in RESIZERS):
            message = f"preprocessing: camera with resize={self.resize}" + ("" if self.size else " and without size")
            raise UsageError(message, hint=f"add size=HEIGHTxWIDTH of the network, and one of {', '.join(RESIZERS)}")
        if self.pad not in range(256):
            raise UsageError(f"preprocessing: pad is {self.pad}", hint="an integer from 0 to 255")

    @property
    def channels(self) -> int:
        """Number of channels of an image in the model's color order."""
        return COLORS[self.color]

    @property
    def has_planes(self) -> bool:
        """True if the samples are camera planes, uint8 [N, H * 3/2, W]."""
        return self.fuse in PLANE_FORMATS

    @property
    def input_layout(self) -> str:
        """Axis order of the samples: ``layout``, or NHWC if the model computes the preprocessing itself."""
        return "NHWC" if self.fuse else self.layout

    @staticmethod
    def of(value: Preprocess | str | Mapping[str, Any]) -> Preprocess:
        """Return preprocessing given as an object, as text for ``parse``, or as a mapping.

        Raises:
            UsageError: a key is unknown, or a value is not valid.

        """
        if isinstance(value, str):
            return Preprocess.parse(value)
        return value if isinstance(value, Preprocess) else Preprocess.from_mapping(value)

    @staticmethod
    def parse(text: str) -> Preprocess:
        """Read ``key=value,...`` or the name of a YAML file with the same keys.

        A part without ``=`` continues the value before it: ``mean=104,117,123,color=BGR,size=224x224``.

        Raises:
            UsageError: a key is unknown, a value is not valid, or the file is not such a YAML file.

        """
        if text.lower().endswith(YAML_SUFFIXES):
            note_input(text)
            return Preprocess.from_mapping(_read_yaml(Path(text)))
        values: dict[str, list[str]] = {}
        key = ""
        for part in text.split(","):
            if "=" in part:
                key, part = (piece.strip() for piece in part.split("=", 1))
                if key in values:
                    raise UsageError(f"preprocessing: {key} is given twice", hint="give it once")
            if not key:
                raise UsageError(f"preprocessing: '{part}' has no key", hint=f"keys: {', '.join(_keys())}")
            values.setdefault(key, []).append(part.strip())
        return Preprocess.from_mapping(values)

    @staticmethod
    def from_mapping(values: Mapping[str, Any]) -> Preprocess:
        """Read the fields from a mapping, as stored in a YAML file or in the metadata of a model.

        Raises:
            UsageError: a key is unknown or a value is not valid.

        """
        unknown = sorted(set(values) - set(_keys()))
        if unknown:
            raise UsageError(f"preprocessing: unknown key '{unknown[0]}'", hint=f"keys: {', '.join(_keys())}")
        fields: dict[str, Any] = {}
        for key, value in values.items():
            items = list(value) if isinstance(value, list | tuple) else [value]
            if key in ("size", "camera"):
                if items == [None]:
                    continue
                if len(items) == 1:
                    items = str(items[0]).lower().split("x")
                fields[key] = tuple(int(number) for number in _numbers(key, items * 2 if len(items) == 1 else items))
            elif key in ("mean", "scale"):
                fields[key] = _numbers(key, items)
            elif len(items) != 1:
                raise UsageError(f"preprocessing: {key} has {len(items)} values", hint="one value")
            elif key == "pad":
                (number,) = _numbers(key, items)
                fields[key] = int(number) if number.is_integer() else number
            else:
                word = str(items[0])
                fields[key] = word.lower() if key in ("fit", "resize", "fuse") else word.upper()
        return Preprocess(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain lists, numbers and strings, for YAML and the model file.

        ``resize``, ``pad``, ``fuse`` and ``camera`` are left out if they have their defaults, so that older versions
        can read the file.
        """
        defaults = {item.name: item.default for item in dataclasses.fields(self) if item.name in _LATER_KEYS}
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
            if value is not None and (key not in defaults or value != defaults[key])
        }

    def __str__(self) -> str:
        parts = []
        for key, value in self.to_dict().items():
            separator = "x" if key in ("size", "camera") else ","
            parts.append(f"{key}={separator.join(map(str, value)) if isinstance(value, list) else value}")
        return ",".join(parts)

    def with_size_of(self, shape: tuple[int | str, ...]) -> Preprocess:
        """Return the preprocessing with a size: its own, or else the layout of a model input with this shape.

        Raises:
            UsageError: the shape is not the shape of an image, or its channels or size differ from the preprocessing.

        """
        if self.fuse and self.camera is not None:
            return self._checked_camera(shape)
        if self.has_planes and len(shape) == 3:
            shape = (shape[0], shape[1] * 2 // 3 if isinstance(shape[1], int) else shape[1], shape[2], self.channels)
        if len(shape) != 4:
            raise UsageError(
                f"preprocessing: the model's input has {len(shape)} axes, {self.input_layout} has 4",
                hint="leave the preprocessing out, and give arrays",
            )
        rows, columns = (2, 3) if self.input_layout == "NCHW" else (1, 2)
        self.check_fits(shape)
        height, width = shape[rows], shape[columns]
        if self.size is not None:
            pairs = zip((height, width), self.size, strict=True)
            if any(isinstance(have, int) and have != want for have, want in pairs):
                raise UsageError(
                    f"preprocessing: size is {self.size[0]}x{self.size[1]}, the model's input is {height}x{width}",
                    hint="leave size out to take the model's; --input-shapes changes the size of some models",
                )
            return self
        if not isinstance(height, int) or not isinstance(width, int):
            raise UsageError("preprocessing: the model's input has no fixed size", hint="give size=HEIGHTxWIDTH")
        return dataclasses.replace(self, size=(height, width))

    def _checked_camera(self, shape: tuple[int | str, ...]) -> Preprocess:
        """Return self if a model input has the size of the camera's images."""
        assert self.camera is not None
        height, width = self.camera
        expected = (height * 3 // 2, width) if self.has_planes else (height, width, self.channels)
        if shape[1:] != expected:
            raise UsageError(
                f"preprocessing: camera is {height}x{width}, the model's input is {list(shape)}",
                hint="leave the preprocessing out to use the preprocessing of the model",
            )
        return self

    def check_fits(self, shape: tuple[int | str, ...]) -> None:
        """Check that a model input of rank 4 has the number of channels of this color order, in this layout.

        Raises:
            UsageError: the input has another number of channels.

        """
        channels = shape[1 if self.input_layout == "NCHW" else 3]
        if channels != self.channels and isinstance(channels, int):
            other = LAYOUTS[1 - LAYOUTS.index(self.input_layout)]
            fits_other = shape[1 if other == "NCHW" else 3] == self.channels
            hint = f"layout={other} may be meant" if fits_other else "choose a color with this number of channels"
            raise UsageError(
                f"preprocessing: the model's input {list(shape)} has {several(channels, 'channel')} in "
                f"{self.input_layout}, {self.color} has {self.channels}",
                hint="color=GRAY has one" if channels == 1 and not fits_other else hint,
            )

    def region(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Return the part of an image that the model sees: left, top, right, bottom in pixels of the image.

        Includes the border of a letterbox: the part then exceeds the image. Integers for other fits.

        Args:
            width: width of the image.
            height: height of the image.

        """
        if self.camera is not None and self.camera != (height, width):
            left, top, right, bottom = self.region(self.camera[1], self.camera[0])
            columns, rows = width / self.camera[1], height / self.camera[0]
            return left * columns, top * rows, right * columns, bottom * rows
        if self.is_letterbox and self.size is not None:
            (inner_height, inner_width), (top, left) = self.place(width, height)
            rows, columns = height / inner_height, width / inner_width
            return -left * columns, -top * rows, (self.size[1] - left) * columns, (self.size[0] - top) * rows
        if self.fit != "crop":
            return 0, 0, width, height
        return self.crop_box(width, height)

    @property
    def is_letterbox(self) -> bool:
        """True if images keep their aspect ratio within a border."""
        return self.fit.startswith("letterbox")

    @staticmethod
    def crop_box(width: int, height: int) -> tuple[int, int, int, int]:
        """Return the part of an image for ``fit=crop``: left, top, right, bottom."""
        side = max(1, min(width, height) * CROP_SHARE[0] // CROP_SHARE[1])
        left, top = (width - side) // 2, (height - side) // 2
        return left, top, left + side, top + side

    def place(self, width: int, height: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the (height, width) of the resized image in a letterbox, and the (top, left) corner.

        Sizes are rounded to even, and an odd border is one pixel wider at the end, as in Ultralytics' ``LetterBox``.
        """
        assert self.size is not None
        ratio = min(self.size[0] / height, self.size[1] / width)
        inner = max(1, round(height * ratio)), max(1, round(width * ratio))
        if self.fit == "letterbox-top-left":
            return inner, (0, 0)
        return inner, ((self.size[0] - inner[0]) // 2, (self.size[1] - inner[1]) // 2)

    def load(self, path: Path) -> Array:
        """Decode an image file and convert it to one sample of the model's input, with a batch axis.

        Raises:
            MissingExtraError: Pillow is not installed.
            CorruptInputError: the file is not an image, or is damaged.
            ResourceLimitError: the image has more pixels than the limit.

        """
        with open_image(path) as opened:
            image = opened.convert("RGB")
        return self._finish(image)[np.newaxis]

    def load_any(self, image: Any) -> Array:
        """Convert one image, or an array of several images, to a batch of the model's input.

        Args:
            image: a path, a PIL image, or a uint8 array in a shape that ``stacked`` takes or [H, W].

        Raises:
            UsageError: the argument has another type or shape.
            CorruptInputError: the file is not an image.

        """
        if isinstance(image, Path):
            return self.load(image)
        if hasattr(image, "convert") and hasattr(image, "getbands"):  # a PIL image, without importing PIL
            return self._finish(image.convert("RGB"))[np.newaxis]
        if not isinstance(image, np.ndarray):
            raise UsageError(
                f"not an image: {type(image).__name__}", hint="a path, a PIL image, or a uint8 array [N, H, W, 3]"
            )
        if image.ndim == 3 and self.channels == 3 and image.shape[0] == 3 and image.shape[2] != 3:
            raise self._no_images(image, "channels come last: array.transpose(1, 2, 0)")
        if image.ndim == 2:
            image = image[..., np.newaxis]
        if image.ndim == 3 and image.shape[2] in (1, 3, 4):
            image = image[np.newaxis]
        return self.apply(image)

    def apply(self, pixels: Array) -> Array:
        """Convert decoded images to a batch of the model's input.

        Args:
            pixels: uint8, RGB or gray, in a shape that ``stacked`` takes.

        Raises:
            UsageError: the argument is not an array of images.

        """
        pixels = self.stacked(pixels)
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
            is_rgba = pixels.ndim == 4 and pixels.shape[3] == 4
            raise self._no_images(pixels, "drop the alpha channel: array[..., :3]" if is_rgba else "")
        target = (self.camera if self.fuse else None) or self.size or pixels.shape[1:3]
        is_fitted = self.fit != "crop" or bool(self.fuse and self.camera)
        if pixels.shape[1:3] == target and is_fitted and pixels.shape[3] == self.channels:
            return self._normalize(pixels)  # no resizing, so that Pillow is not needed
        return np.stack([self._convert(image) for image in pixels])

    @staticmethod
    def _no_images(array: Array, hint: str = "") -> UsageError:
        forms = "images are uint8 [N, H, W, 3], [N, H, W, 1], [N, H, W], or one as [H, W, 3]"
        return UsageError(f"not images: {array.dtype}{list(array.shape)}", hint=f"{hint}; {forms}" if hint else forms)

    def stacked(self, pixels: Array) -> Array:
        """Reshape images to [N, H, W, C]: [H, W, 3] is one image for a color model, [N, H, W] are gray images."""
        if pixels.ndim != 3:
            return pixels
        return pixels[np.newaxis] if self.channels == 3 and pixels.shape[2] == 3 else pixels[..., np.newaxis]

    def _convert(self, image: Array) -> Array:
        if image.shape[2] == self.channels and self.resize in RESIZERS:
            return self._finish_pixels(image)
        try:
            from PIL import Image
        except ImportError as error:
            hint = f"{INSTALL_PILLOW}, or choose a method that does not: {', '.join(RESIZERS)}"
            raise MissingExtraError(
                f"preparing these images with resize={self.resize} needs Pillow", hint=hint
            ) from error
        squeezed = image[..., 0] if image.shape[2] == 1 else image
        return self._finish(Image.fromarray(squeezed).convert("RGB"))

    def _finish(self, image: Any) -> Array:
        """Convert a decoded PIL image to a sample without batch axis."""
        pixels = np.asarray(image.convert("L") if self.color == "GRAY" else image, dtype=np.uint8)
        return self._finish_pixels(pixels.reshape(*pixels.shape[:2], -1))

    def _finish_pixels(self, pixels: Array) -> Array:
        """Crop, resize, pad and normalize an image [H, W, C] in RGB or gray."""
        if self.camera is not None:
            pixels = resize_pixels(pixels, self.camera, self.resize)
            if self.fuse:
                return cast(Array, self._normalize(pixels[np.newaxis])[0])
        height, width = pixels.shape[:2]
        if self.fit == "crop":
            left, top, right, bottom = self.crop_box(width, height)
            pixels = pixels[top:bottom, left:right]
        if self.size is not None:
            inner, (top, left) = self.place(width, height) if self.is_letterbox else (self.size, (0, 0))
            pixels = resize_pixels(pixels, inner, self.resize)
            if inner != self.size:
                framed = np.full((*self.size, pixels.shape[2]), self.pad, np.uint8)
                framed[top : top + inner[0], left : left + inner[1]] = pixels
                pixels = framed
        normalized: Array = self._normalize(pixels[np.newaxis])[0]
        return normalized

    def _normalize(self, pixels: Array) -> Array:
        """Convert pixels [N, H, W, C], RGB or gray, to the model's color order, value range and layout."""
        if self.has_planes:
            return rgb_to_yuv420(pixels, interleaved=PLANE_FORMATS[self.fuse])
        if self.fuse:
            return np.ascontiguousarray(pixels[..., ::-1] if self.fuse == "bgr" else pixels)
        ordered = pixels[..., ::-1] if self.color == "BGR" else pixels
        mean, scale = np.asarray(self.mean, np.float32), np.asarray(self.scale, np.float32)
        x = (ordered.astype(np.float32) - mean) * scale
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2) if self.layout == "NCHW" else x)


def resize_pixels(pixels: Array, size: tuple[int, int], method: str) -> Array:
    """Resize an image with the results of Pillow or OpenCV.

    Args:
        pixels: uint8 [H, W, C], with C = 1 or 3.
        size: (height, width) of the result.
        method: one of ``RESIZES``.

    """
    if pixels.shape[:2] == size:
        return pixels
    if method in RESIZERS:
        return RESIZERS[method](pixels, size)
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))
    resized = image.resize((size[1], size[0]), getattr(Image.Resampling, PILLOW_FILTERS[method]))
    return np.asarray(resized, np.uint8).reshape(*size, -1)


_LATER_KEYS = ("resize", "pad", "fuse", "camera")
"""Keys that the first versions of the file format did not have."""


def _keys() -> list[str]:
    return [item.name for item in dataclasses.fields(Preprocess)]


def _numbers(key: str, items: list[Any]) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in items)
    except (TypeError, ValueError):
        joined = ",".join(map(str, items))
        hint = f"one number, or one per channel: {key}=1.5,2.5,3.5"
        raise UsageError(f"preprocessing: {key} is '{joined}', not numbers", hint=hint) from None


def _read_yaml(path: Path) -> Mapping[str, Any]:
    values = read_yaml(path)
    if isinstance(values, Mapping) and set(values) == {"preprocess"}:
        values = values["preprocess"]
    if not isinstance(values, Mapping):
        raise UsageError(f"{path}: not a mapping", hint=f"keys: {', '.join(_keys())}")
    return {str(key): value for key, value in values.items()}
