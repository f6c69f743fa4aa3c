"""Results of ``tpuconvert run`` on images: their interpretation, with names of classes, and drawn pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuconvert.cli.problems import ensure
from tpuconvert.evaluation.images import image_size
from tpuconvert.option_declaration import option
from tpuconvert.outputs.drawing import as_picture, dequantize_outputs, sample_outputs
from tpuconvert.outputs.head import head_names
from tpuconvert.outputs.interpretation import Interpretation, Interpreter
from tpuconvert.outputs.labels import ClassNames, labels_of_metadata
from tpuconvert.outputs.picture import PICTURE_SUFFIXES, draw_results, import_pillow, save_picture
from tpuconvert.samples.image_files import IMAGE_SUFFIXES
from tpuconvert.schema.arithmetic.boxes import MIN_SCORE, NMS_IOU
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.input_files import refuse_input
from tpuconvert.schema.text.plain_values import Plain, Unbounded

if TYPE_CHECKING:
    from tpuconvert.model.model import Model
    from tpuconvert.samples.calibration_data import FeedSource
    from tpuconvert.samples.preprocess import Preprocess
    from tpuconvert.schema.types import Array


@dataclass(frozen=True, kw_only=True)
class DrawingOptions:
    """Options that interpret and draw results of images."""

    draw: str | None = option(
        None,
        "Draw the results on the images: a .png or .jpg file for one image, a folder for several.",
        metavar="OUT",
        is_output=True,
    )
    labels: str | None = option(
        None,
        "Names of the classes: text with one per line, or JSON. Default: those that a TFLite file stored.",
        metavar="FILE",
        is_file=True,
    )
    decode: str | None = option(
        None,
        f"How outputs become results: {', '.join(head_names())}, or module:function. Default: found from the outputs.",
        metavar="HEAD",
    )
    min_score: float = option(MIN_SCORE, "Smallest score of a detected object.", lower=0.0, upper=1.0)
    nms_iou: float = option(
        NMS_IOU, "Built-in decoders suppress boxes that overlap a better one by more.", lower=0.0, upper=1.0
    )

    def check(self, feeds: FeedSource) -> None:
        """Refuse options that do not fit the inputs, before the model runs.

        Raises:
            UsageError: there are no images, or the output is not a file or folder for their number.
            MissingExtraError: Pillow is not installed.

        """
        if self.draw is not None:
            refuse_input(self.draw)
        count = len(feeds.image_files)
        ensure(
            bool(count) or (self.draw is None and self.decode is None),
            f"{'--draw' if self.draw is not None else '--decode'} is for image files, the inputs are arrays",
            hint="give an image or a folder of images",
        )
        if self.draw is not None:
            import_pillow()
            suffix = Path(self.draw).suffix.lower()
            if suffix in set(IMAGE_SUFFIXES) - set(PICTURE_SUFFIXES) and not Path(self.draw).is_dir():
                raise UsageError(
                    f"{self.draw}: no image is written in this format",
                    hint=f"name a {' or '.join(PICTURE_SUFFIXES)} file, or a folder",
                )
            if count > 1 and Path(self.draw).suffix.lower() in PICTURE_SUFFIXES:
                raise UsageError(f"{self.draw}: one file for {count} images", hint="name a folder")
            for path in self.pictures(feeds.image_files):
                refuse_input(path)
                _check_place(path)

    def pictures(self, images: Sequence[Path]) -> list[Path]:
        """Return the file to write for each image: ``draw`` itself, or in this folder a file with the image's name."""
        assert self.draw is not None
        target = Path(self.draw)
        if target.suffix.lower() in PICTURE_SUFFIXES and not target.is_dir():
            return [target]
        return [
            target / (image.name if image.suffix.lower() in PICTURE_SUFFIXES else f"{image.name}.png")
            for image in images
        ]

    def class_names(self, model: Model) -> ClassNames:
        """Return the names given with --labels, or those that the source stored for the only output with labels."""
        names = ClassNames.of(self.labels)
        return names if names.is_given else labels_of_metadata(model.metadata, None)

    @property
    def is_used(self) -> bool:
        """Return True if the outputs are to be interpreted."""
        return self.draw is not None or self.decode is not None or self.labels is not None


def _check_place(path: Path) -> None:
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    ensure(folder.is_dir(), f"{folder}: is a file, expected a folder for the pictures", hint="name another folder")


def interpret_images(
    options: DrawingOptions,
    model: Model,
    rule: Preprocess | None,
    feeds: FeedSource,
    results: Sequence[Mapping[str, Array]],
) -> list[Interpretation]:
    """Return the results for every image, in order; empty if no option asks for them, or the inputs are arrays."""
    images = feeds.image_files
    if not options.is_used or not images:
        return []
    ports = model.graph.input_ports
    assert rule is not None, "images have been preprocessed"
    interpreter = Interpreter(
        rule.with_size_of(ports[0].shape),
        ClassNames.of(options.labels),
        model.metadata,
        options.decode,
        options.min_score,
        options.nms_iou,
    )
    count = len(images) // len(results)
    interpretations: list[Interpretation] = []
    for result in results:
        for outputs in sample_outputs(dequantize_outputs(result, model.graph.output_ports), count):
            interpretations.append(interpreter.interpret(outputs, image_size(images[len(interpretations)])))
    return interpretations


def write_pictures(options: DrawingOptions, feeds: FeedSource, interpretations: Sequence[Interpretation]) -> list[Path]:
    """Draw the results on every image. Return the files."""
    if options.draw is None:
        return []
    written = options.pictures(feeds.image_files)
    for image, path, results in zip(feeds.image_files, written, interpretations, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_picture(draw_results(as_picture(image), results), path)
    return written


@dataclass
class Score(Plain, keys={"label": "label?"}):
    """Score of one class.

    Args:
        label: name of the class, if it is known.

    """

    index: int
    value: Unbounded
    label: str = ""


@dataclass(frozen=True)
class OutputSummary:
    """Statistics of an output.

    Args:
        min, max, mean: of the real values, where an output of integers has a scale.
        best: the highest scores of the first samples; none for integers without a scale.

    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    min: Unbounded
    max: Unbounded
    mean: Unbounded
    best: list[list[Score]]


def result_lines(
    images: Sequence[str], interpretations: Sequence[Interpretation], summaries: Sequence[OutputSummary]
) -> list[str]:
    """Return the results of every image as text, unless they are in the summaries of the outputs already."""
    if not interpretations or (interpretations[0].classes and any(summary.best for summary in summaries)):
        return []
    lines = []
    for image, results in zip(images, interpretations, strict=True):
        lines += [f"{image}  ({results.head})", *(f"  {line}" for line in results.lines())]
    return lines


def add_labels(summaries: Sequence[OutputSummary], names: ClassNames, images: Sequence[str]) -> None:
    """Add the name of the class to every score in the summaries of outputs.

    Raises:
        UsageError: the user gave labels, but no output has that many classes.

    """
    fitting = [item for item in summaries if item.best and item.shape[1] == len(names.names)]
    for score in (score for summary in fitting for scores in summary.best for score in scores):
        score.label = names.name(score.index)
    if names.is_given and not fitting and not images:
        scored = [item for item in summaries if item.best]
        names.fit(scored[0].shape[1] if scored else 0)
