"""Pictures made by code: lines and pages of text, documents, captchas. Each is a function of an index.

Fonts and their versions change the pictures: results of different machines are comparable only if these are equal.
"""

from __future__ import annotations

import functools
import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.Image import Image as Picture

from tools.accuracy.datasets import data_root

Color = tuple[int, int, int]

FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSansMono.ttf",
    "LiberationSans-Regular.ttf",
    "LiberationSerif-Regular.ttf",
    "LiberationSerif-Italic.ttf",
    "LiberationMono-Regular.ttf",
)
TEXT = """\
Quantization of trained networks needs samples that look like data the camera will see Invoice total 1284.50
EUR due 2026-11-29 Serial number board model Rev B warehouse shelf delivery order street Berlin Madrid
temperature 23.4 C humidity pressure valve open closed warning error please contact support Figure Table
results method accuracy 97.3% between river mountain yellow window seven bicycle garden letter morning price
quantity customer address telephone 555-0199 page 12
"""
WORDS = TEXT.split()
CAPTCHA_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ23456789"
CODE_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZabdefghnrt23456789"
"""Without letters that look alike."""

BLACK, WHITE = (0, 0, 0), (255, 255, 255)
FOLDERS = ("coco", "faces", "imagenet")
"""Folders of photos in the test data."""


@functools.cache
def photos(folder: str) -> list[Path]:
    """Return the photos of a folder of the test data."""
    return sorted(path for path in (data_root() / "images" / folder).iterdir() if path.suffix in (".jpg", ".png"))


def photo(folder: str, index: int) -> Picture:
    """Load a photo of the test data."""
    return Image.open(photos(folder)[index]).convert("RGB")


@functools.cache
def _installed_fonts() -> list[str]:
    installed = []
    for name in FONTS:
        try:
            ImageFont.truetype(name, 12)
        except OSError:
            continue
        installed.append(name)
    if not installed:
        raise SystemExit("text samples need fonts: install DejaVu or Liberation")
    return installed


def _font(draws: random.Random, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(draws.choice(_installed_fonts()), size)


def random_words(draws: random.Random, low: int, high: int) -> str:
    """Return a random number of random words."""
    return " ".join(draws.choice(WORDS) for _ in range(draws.randint(low, high)))


def _gray(level: int) -> Color:
    return (level, level, level)


def _random_color(draws: random.Random, low: int, high: int) -> Color:
    return draws.randint(low, high), draws.randint(low, high), draws.randint(low, high)


def _with_noise(picture: Picture, seed: int, sigma: float) -> Picture:
    noise = np.random.default_rng(seed).normal(0, sigma, (picture.height, picture.width, 3))
    pixels = np.asarray(picture).astype(np.float32) + noise
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def line(index: int) -> Picture:
    """One line of one to three words, slightly rotated and noisy."""
    draws = random.Random(1000 + index)
    text = random_words(draws, 1, 3)
    font = _font(draws, 32)
    picture = Image.new("RGB", (1000, 60), _random_color(draws, 180, 255))
    canvas = ImageDraw.Draw(picture)
    canvas.text((6, 8), text, font=font, fill=_random_color(draws, 0, 100))
    picture = picture.crop((0, 0, int(canvas.textlength(text, font=font)) + 14, 52))
    picture = picture.rotate(draws.uniform(-1.5, 1.5), fillcolor=_gray(215))
    return _with_noise(picture, index, draws.uniform(2, 14))


def flipped(index: int) -> Picture:
    """A line of text; upside down where the index is odd."""
    return line(7000 + index).rotate(180 * (index % 2))


def captcha(index: int) -> Picture:
    """Four to six characters at random positions, on a photo where the index is odd."""
    draws = random.Random(2000 + index)
    width, height = 344, 384
    if index % 2:
        picture = photo("coco", index % len(photos("coco"))).resize((width, height))
    else:
        picture = Image.new("RGB", (width, height), _random_color(draws, 120, 255))
    for _ in range(draws.randint(4, 6)):
        size = draws.randint(40, 80)
        letter = draws.choice(CAPTCHA_LETTERS)
        glyph = Image.new("RGBA", (size + 30, size + 30), (0, 0, 0, 0))
        font = _font(draws, size)
        ImageDraw.Draw(glyph).text((15, 5), letter, font=font, fill=_random_color(draws, 0, 255), stroke_width=1)
        glyph = glyph.rotate(draws.uniform(-30, 30))
        corner = draws.randint(0, width - size - 30), draws.randint(0, height - size - 30)
        picture.paste(glyph, corner, glyph)
    return picture


def code(index: int) -> Picture:
    """A captcha of one line: four to six characters with lines across and noise."""
    draws = random.Random(3000 + index)
    text = "".join(draws.choice(CODE_LETTERS) for _ in range(draws.randint(4, 6)))
    picture = Image.new("RGB", (160, 64), _random_color(draws, 190, 255))
    canvas = ImageDraw.Draw(picture)
    left = draws.randint(4, 12)
    for letter in text:
        corner = left, draws.randint(6, 16)
        font = _font(draws, draws.randint(30, 38))
        canvas.text(corner, letter, font=font, fill=_random_color(draws, 0, 130))
        left += draws.randint(22, 25)
    for _ in range(draws.randint(0, 3)):
        ends = [draws.randint(0, 160), draws.randint(0, 64), draws.randint(0, 160), draws.randint(0, 64)]
        canvas.line(ends, fill=_random_color(draws, 80, 200))
    return _with_noise(picture, index, draws.uniform(2, 12))


def page(index: int) -> Picture:
    """Lines of text in several sizes; every fourth page has a pale photo as its background."""
    draws = random.Random(4000 + index)
    size = 640
    picture = Image.new("RGB", (size, size), _gray(draws.randint(180, 255)))
    if index % 4 == 3:
        picture = Image.blend(picture, photo("coco", index % 128).resize((size, size)), 0.35)
    canvas = ImageDraw.Draw(picture)
    top = 20
    while top < size - 60:
        height = draws.randint(14, 40)
        corner, text = (draws.randint(5, 80), top), random_words(draws, 1, 6)
        canvas.text(corner, text, font=_font(draws, height), fill=_gray(draws.randint(0, 100)))
        top += int(height * draws.uniform(1.3, 2.5))
    return _with_noise(picture, index, draws.uniform(0, 8))


class _Document:
    """A page of a document that is filled from top to bottom."""

    size = 912, 1200
    end = 1140
    """Lower end of the text block."""

    def __init__(self, index: int) -> None:
        self.draws = random.Random(5000 + index)
        self.picture = Image.new("RGB", self.size, WHITE)
        self.canvas = ImageDraw.Draw(self.picture)
        width, height = self.size
        self._write((80, 30), (2, 4), 14, 60)
        self.canvas.text((width // 2, height - 45), f"- {index} -", font=_font(self.draws, 14), fill=_gray(60))
        self._write((110, 80), (3, 5), 34, 0)
        self.top = 150

    def _write(self, corner: tuple[int, int], count: tuple[int, int], size: int, level: int, label: str = "") -> None:
        text = label + random_words(self.draws, *count)
        self.canvas.text(corner, text, font=_font(self.draws, size), fill=_gray(level))

    def add_title(self) -> bool:
        self._write((80, self.top), (2, 4), 24, 0)
        self.top += 46
        return True

    def add_text(self) -> bool:
        font = _font(self.draws, 17)
        for _ in range(self.draws.randint(3, 7)):
            text = random_words(self.draws, 10, 13)
            while self.canvas.textlength(text, font=font) > self.size[0] - 170:
                text = text.rsplit(" ", 1)[0]
            self.canvas.text((80, self.top), text, font=font, fill=_gray(15))
            self.top += 24
        self.top += 22
        return True

    def add_figure(self) -> bool:
        """Add a photo with a caption. Return False if it does not fit."""
        image = Image.open(self.draws.choice(photos("coco"))).convert("RGB")
        height = self.draws.randint(180, 260)
        width = min(600, int(height * image.width / image.height))
        if self.top + height + 50 > self.end:
            return False
        self.picture.paste(image.resize((width, height)), ((self.size[0] - width) // 2, self.top))
        self.top += height + 8
        self._write((self.size[0] // 3, self.top), (3, 5), 15, 20, f"Figure {self.draws.randint(1, 9)}: ")
        self.top += 44
        return True

    def add_table(self) -> bool:
        """Add a caption and a table. Return False if it does not fit."""
        rows, columns, height = self.draws.randint(4, 8), self.draws.randint(3, 6), 27
        if self.top + rows * height + 50 > self.end:
            return False
        self._write((self.size[0] // 3, self.top), (2, 4), 15, 20, f"Table {self.draws.randint(1, 9)}: ")
        self.top += 26
        width, bottom = self.size[0] - 240, self.top + rows * height
        for row in range(rows + 1):
            self.canvas.line([120, self.top + row * height, 120 + width, self.top + row * height], fill=BLACK)
        for column in range(columns + 1):
            left = 120 + column * width // columns
            self.canvas.line([left, self.top, left, bottom], fill=BLACK)
        font = _font(self.draws, 14)
        for row in range(rows):
            for column in range(columns):
                corner = 128 + column * width // columns, self.top + row * height + 5
                self.canvas.text(corner, self.draws.choice(WORDS)[:10], font=font, fill=BLACK)
        self.top += rows * height + 30
        return True


def document(index: int) -> Picture:
    """A document with header, title, paragraphs, figures with captions, tables and footer."""
    page_of_text = _Document(index)
    is_open = True
    while is_open and page_of_text.top < page_of_text.size[1] - 230:
        kind = page_of_text.draws.choice(["text", "text", "figure", "table", "title"])
        is_open = getattr(page_of_text, f"add_{kind}")()
    return page_of_text.picture


def turned(index: int) -> Picture:
    """A page or document, rotated by 0, 90, 180 or 270 degrees."""
    picture = page(9000 + index) if index % 2 else document(9000 + index)
    return picture.rotate(-90 * ((index // 2) % 4), expand=True)


PICTURES = {
    "captcha": captcha,
    "code": code,
    "document": document,
    "flipped": flipped,
    "line": line,
    "page": page,
    "turned": turned,
}
