"""Pictures of results: a copy of the image with boxes, points or masks, and a caption or legend below it."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.outputs.interpretation import Interpretation, score_text
from tpuconvert.samples.image_files import INSTALL_PILLOW
from tpuconvert.schema.errors import MissingExtraError, UsageError
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import shorten

Color = tuple[int, int, int]
Font = Any  # ImageFont.FreeTypeFont; Pillow is optional

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg")

SMALLEST_SIDE = 320
"""The longer side of a picture in pixels. A smaller image is enlarged by a whole factor, so that text fits."""

GROUND: Color = (24, 26, 30)
INK: Color = (240, 240, 240)
TRACK: Color = (62, 66, 74)
MASK_SHARE = 0.55
LONGEST_LABEL = 40


def import_pillow() -> Any:
    """Return the module ``PIL.ImageDraw``.

    Raises:
        MissingExtraError: Pillow is not installed.

    """
    try:
        from PIL import ImageDraw
    except ImportError as error:
        raise MissingExtraError("drawing results needs Pillow", hint=INSTALL_PILLOW) from error
    return ImageDraw


def class_color(index: int) -> Color:
    """Return the color of a class: neighbors have distant hues, and every third class another brightness."""
    hue = (0.33 + index * 0.6180339887498949) % 1
    red, green, blue = colorsys.hsv_to_rgb(hue, (0.85, 0.6, 0.95)[index % 3], (0.95, 1.0, 0.75)[index % 3])
    return round(red * 255), round(green * 255), round(blue * 255)


def text_color(ground: Color) -> Color:
    """Return black or white, whichever has the higher contrast on a color (WCAG relative luminance)."""
    linear = [(part / 255 / 12.92) if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in ground]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (0, 0, 0) if luminance > 0.179 else (255, 255, 255)


def draw_results(image: Any, results: Interpretation) -> Any:
    """Return a picture of the results: a copy of a PIL image in RGB with what the model found.

    Raises:
        MissingExtraError: Pillow is not installed.

    """
    return _Picture(image, results).draw()


def save_picture(picture: Any, path: Path) -> None:
    """Write a picture as PNG or JPEG, as the suffix states. A file of that name is replaced atomically.

    Raises:
        UsageError: the suffix is another one, or the file is an input of the call.

    """
    suffix = path.suffix.lower()
    if suffix not in PICTURE_SUFFIXES:
        raise UsageError("the suffix selects the format of a picture", file=str(path), hint=", ".join(PICTURE_SUFFIXES))
    with replacing(path) as file:
        picture.save(file, **({"format": "PNG"} if suffix == ".png" else {"format": "JPEG", "quality": 92}))


@dataclass(frozen=True)
class _Area:
    """Rectangle in pixels of the picture."""

    left: float
    top: float
    right: float
    bottom: float

    @staticmethod
    def of(box: Sequence[float]) -> _Area:
        return _Area(*box)

    def overlaps(self, other: _Area) -> bool:
        is_beside = self.right <= other.left or other.right <= self.left
        return not is_beside and self.top < other.bottom and other.top < self.bottom


class _Picture:
    """One picture while it is drawn. Lengths derive from the size of the picture.

    Args:
        image: the PIL image.
        results: the results, in pixels of the image.

    """

    def __init__(self, image: Any, results: Interpretation) -> None:
        self.module = import_pillow()
        from PIL import Image, ImageFont

        self.results = results
        self.scale = max(1, math.ceil(SMALLEST_SIDE / max(image.size)))
        enlarged = (image.width * self.scale, image.height * self.scale)
        self.image = image.convert("RGB").resize(enlarged, Image.Resampling.NEAREST)
        longer = max(self.image.size)
        self.line = max(2, round(longer / 320))
        self.font: Font = ImageFont.load_default(size=max(13, round(longer / 42)))
        self.pad = max(3, round(longer / 200))
        self.row = self._text_height() + 2 * self.pad

    def draw(self) -> Any:
        results = self.results
        if results.class_of_pixel is not None:
            self._draw_mask(results.class_of_pixel)
            shown = [(class_color(item.index), f"{item.label}  {item.share:.1%}") for item in self._segments()]
            return self._with_legend(shown or [(TRACK, "background only")])
        if results.classes:
            return self._with_scores()
        if results.text is not None:
            line = one_line(results.text.text) or "no text"
            return self._with_legend([(class_color(0), f"{line}  {results.text.score:.2f}")])
        pen = self.module.Draw(self.image)
        for item in reversed(results.objects):  # the highest score last, on top of the others
            self._draw_box(pen, item.box, class_color(item.index))
        for item in results.objects:
            self._draw_points(pen, item.points, len(item.points))
        self._draw_labels(pen)
        self._draw_points(pen, results.points, 1)
        return self.image if results.objects or results.points else self._with_legend([(TRACK, "nothing found")])

    def _text_height(self) -> int:
        ascent, descent = self.font.getmetrics()
        return int(ascent + descent)

    def _place(self, x: float, y: float) -> tuple[float, float]:
        return x * self.scale, y * self.scale

    def _draw_box(self, pen: Any, box: Sequence[float], color: Color) -> None:
        """Draw a frame whose outer edge is the box; boxes beyond the picture are cut at its border."""
        left, top = self._place(box[0], box[1])
        right, bottom = self._place(box[2], box[3])
        left, top = max(0, round(left)), max(0, round(top))
        right, bottom = min(self.image.width, round(right)) - 1, min(self.image.height, round(bottom)) - 1
        if right > left and bottom > top:
            pen.rectangle((left, top, right, bottom), outline=color, width=self.line)

    def _draw_labels(self, pen: Any) -> None:
        """Draw the labels of the objects, the highest score first, where they hide no other label or small object.

        In a crowd a label has the score only, or is left out; the color of the frame still shows the class.
        """
        taken: list[_Area] = []
        boxes = [tuple(edge * self.scale for edge in item.box) for item in self.results.objects]
        for number, item in enumerate(self.results.objects):
            color = class_color(item.index)
            for text in (f"{_short(item.label)} {item.score:.2f}", f"{item.score:.2f}"):
                width = round(pen.textlength(text, font=self.font)) + 2 * self.pad
                areas = self._label_areas(boxes[number], width)
                others = [box for index, box in enumerate(boxes) if index != number and box[2] - box[0] < 2 * width]
                area = next(
                    (area for area in areas if not any(map(area.overlaps, [*taken, *map(_Area.of, others)]))), None
                )
                if area is not None:
                    taken.append(area)
                    pen.rectangle((area.left, area.top, area.right - 1, area.bottom - 1), fill=color)
                    pen.text((area.left + self.pad, area.top), text, fill=text_color(color), font=self.font)
                    break

    def _label_areas(self, box: Sequence[float], width: int) -> list[_Area]:
        """Return areas for a label of a box that are inside the picture: above it, at its upper edge, below it."""
        height = self._text_height()
        left = max(0, min(round(box[0]), self.image.width - width))
        tops = (round(box[1]) - height, max(0, round(box[1])), round(box[3]))
        is_roomy = box[2] - box[0] >= width and box[3] - box[1] >= 3 * height
        areas = [_Area(left, top, left + width, top + height) for top in tops]
        shown = [area for area in areas if area.top >= 0 and area.bottom <= self.image.height]
        return [area for area in shown if is_roomy or area.top != tops[1]] or shown

    def _draw_points(self, pen: Any, points: Sequence[tuple[float, float]], colors: int) -> None:
        """Draw points with a dark rim, with one of ``colors`` colors each, in the same order for every object."""
        spread = np.ptp(np.array(points), axis=0).max() * self.scale if len(points) > 1 else max(self.image.size)
        limit = 1.2 * self.line
        radius = max(1.0, min(limit, spread / 18)) if len(points) <= 20 else max(1.0, min(limit, spread / 200))
        for index, point in enumerate(points):
            x, y = self._place(*point)
            rim = radius + (1 if radius > 1.5 else 0.5)
            pen.ellipse((x - rim, y - rim, x + rim, y + rim), fill=(0, 0, 0))
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=class_color(index % colors))

    def _segments(self) -> list[Any]:
        """Return the segments with color, the largest first."""
        return sorted((item for item in self.results.segments if not item.is_background), key=lambda item: -item.share)

    def _draw_mask(self, classes: Array) -> None:
        """Blend the color of the class into every pixel, and draw the borders between classes in full color."""
        from PIL import Image

        classes = classes.repeat(self.scale, axis=0).repeat(self.scale, axis=1)
        pixels = np.asarray(self.image).astype(np.float32)
        colors = np.zeros((int(classes.max()) + 1, 3), dtype=np.float32)
        shares = np.zeros(len(colors), dtype=np.float32)
        for item in self._segments():
            colors[item.index], shares[item.index] = class_color(item.index), MASK_SHARE
        share = np.where(_borders(classes, self.line), np.sign(shares)[classes], shares[classes])[..., np.newaxis]
        self.image = Image.fromarray(np.round(pixels * (1 - share) + colors[classes] * share).astype(np.uint8))

    def _extended(self, rows: int) -> tuple[Any, Any]:
        """Return the picture with a dark bar of ``rows`` lines below it, and its drawing context."""
        from PIL import Image

        picture = Image.new("RGB", (self.image.width, self.image.height + rows * self.row + self.pad), GROUND)
        picture.paste(self.image, (0, 0))
        return picture, self.module.Draw(picture)

    def _with_legend(self, items: Sequence[tuple[Color, str]]) -> Any:
        """Return the picture above a legend: a square of the color and a text per item, in lines."""
        side = self._text_height() * 2 // 3
        pen = self.module.Draw(self.image)
        positions, x, line = [], self.pad, 0
        for _, text in items:
            width = side + 2 * self.pad + round(pen.textlength(_short(text), font=self.font)) + 3 * self.pad
            if x > self.pad and x + width > self.image.width:
                x, line = self.pad, line + 1
            positions.append((x, line))
            x += width
        picture, pen = self._extended(line + 1)
        for (color, text), (left, number) in zip(items, positions, strict=True):
            top = self.image.height + self.pad + number * self.row
            above = top + (self._text_height() - side) // 2
            pen.rectangle((left, above, left + side, above + side), fill=color)
            pen.text((left + side + 2 * self.pad, top), _short(text), fill=INK, font=self.font)
        return picture

    def _with_scores(self) -> Any:
        """Return the picture above a caption: a line per class with its score, and a bar of that length under both."""
        classes = self.results.classes
        picture, pen = self._extended(len(classes))
        texts = [score_text(item.score, classes) for item in classes]
        column = max(round(pen.textlength(text, font=self.font)) for text in texts)
        low = min(0.0, *(item.score for item in classes))
        span = max(1.0 if all(text.endswith("%") for text in texts) else 0.0, classes[0].score - low) or 1.0
        for number, (item, text) in enumerate(zip(classes, texts, strict=True)):
            top = self.image.height + self.pad + number * self.row
            reach = round((picture.width - 2 * self.pad) * min(1.0, max(0.0, (item.score - low) / span)))
            pen.rectangle((self.pad, top, self.pad + max(1, reach), top + self._text_height()), fill=TRACK)
            right = 2 * self.pad + column
            pen.text((right - pen.textlength(text, font=self.font), top), text, fill=INK, font=self.font)
            pen.text((right + 3 * self.pad, top), _short(item.label), fill=INK, font=self.font)
        return picture


def _short(text: str) -> str:
    return shorten(one_line(text), LONGEST_LABEL)


def _borders(classes: Array, width: int) -> Array:
    """Return True for pixels within ``width // 2`` (at least 1) of another class."""
    borders = np.zeros(classes.shape, dtype=bool)
    for distance in range(1, max(1, width // 2) + 1):
        down = classes[distance:] != classes[:-distance]
        across = classes[:, distance:] != classes[:, :-distance]
        borders[distance:] |= down
        borders[:, distance:] |= across
    return borders
