"""Sessions of the public API: sessions of the engine that also run on images, with the stored preprocessing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.outputs.detector import Decode
from tpuconvert.outputs.drawing import Drawing, as_picture, dequantize_outputs
from tpuconvert.outputs.interpretation import Interpreter
from tpuconvert.outputs.labels import ClassNames, Labels
from tpuconvert.runtime.session import batches, session
from tpuconvert.samples.image_files import images_in
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import MIN_SCORE, NMS_IOU
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Array

Images = str | os.PathLike[str] | Array | Iterable[Any]
"""Path of an image or of a folder of images, PIL image, uint8 array, or an iterable of these."""


OPEN_BATCH = 32
"""Batch size for images if the model has a dynamic batch."""


class Session(session.Session):  # noqa: D101  the docstring of the base class describes both
    __doc__ = session.Session.__doc__

    @property
    def _preprocessing(self) -> Mapping[str, Any]:
        """The preprocessing that the model file stores."""
        content = getattr(self._model, "content", self._model)
        preprocessing: Mapping[str, Any] = getattr(content, "preprocessing", {})
        return preprocessing

    def run_images(
        self, images: Images, *, preprocess: Preprocess | str | Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """Run the model on images, preprocessed as the model file states.

        Args:
            images: a path (of an image or a folder of images), a PIL image, a uint8 array [N, H, W, 3], [N, H, W]
                or [H, W, 3] in RGB or gray, or several of them. Each may have its own size.
            preprocess: replaces the preprocessing of the model.

        Returns:
            One array per output name. The first axis counts the images, in the given order.

        Raises:
            UsageError: the model stores no preprocessing, has several inputs, or takes images in larger batches.
            CorruptInputError: a file is not an image.
        """
        self._check_open()
        port = self._image_port(None)
        rule = self._rule(preprocess).with_size_of(port.shape)
        step = port.shape[0] if isinstance(port.shape[0], int) else OPEN_BATCH
        results, waiting = [], list[Array]()
        for image in _each(images):
            waiting.append(_as_declared(rule.load_any(image), port))
            if sum(map(len, waiting)) % step == 0:
                results.append(self.run({port.name: np.concatenate(waiting)}))
                waiting.clear()
        if waiting:
            results.append(self.run({port.name: np.concatenate(waiting)}))
        if not results:
            raise _none_given()
        if len(results) > 1:
            batches.check_joinable([port], self._graph.output_ports)
        return batches.join(results)

    def preprocess(
        self,
        images: Images,
        *,
        preprocess: Preprocess | str | Mapping[str, Any] | None = None,
        input: str | None = None,
    ) -> dict[str, Array]:
        """Convert images to a feed for :meth:`run` with the preprocessing of the model.

        Args:
            images: as in :meth:`run_images`.
            preprocess: replaces the preprocessing of the model.
            input: name of the input that takes images, required for a model with several inputs. The feed contains only
                it.

        Raises:
            UsageError: the model stores no preprocessing, or has several inputs.
            CorruptInputError: a file is not an image.
        """
        port = self._image_port(input)
        rule = self._rule(preprocess).with_size_of(port.shape)
        arrays = [rule.load_any(image) for image in _each(images)]
        if not arrays:
            raise _none_given()
        return {port.name: _as_declared(np.concatenate(arrays), port)}

    def draw(
        self,
        image: Any,
        *,
        labels: Labels | None = None,
        decode: Decode | None = None,
        min_score: float = MIN_SCORE,
        nms_iou: float = NMS_IOU,
        preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    ) -> Drawing:
        """Run the model on one image and draw what it found: classes, boxes, points or a mask.

        Args:
            image: a path, a PIL image, or a uint8 array [H, W, 3] or [H, W]. Needs Pillow.
            labels: names of the classes: a file (text with one per line, or JSON), or a list. None: those that the
                source stored.
            decode: how outputs become results: ``classes``, ``segmentation``, ``points2d``, ``points3d``, a decoder of
                :func:`tpuconvert.evaluate`, ``module:function``, or a function. None: found from the outputs.
            min_score: smallest score of an object.
            nms_iou: overlap above which the box with the lower score is left out.
            preprocess: replaces the preprocessing of the model.

        Returns:
            The results in pixels of the image, and the picture. A notebook shows it.

        Raises:
            MissingExtraError: Pillow is not installed.
            UsageError: the meaning of the outputs is not known, or the labels do not fit.
        """
        picture = as_picture(image)
        port = self._image_port(None)
        rule = self._rule(preprocess).with_size_of(port.shape)
        names = ClassNames.of(labels)
        interpreter = Interpreter(rule, names, self._metadata, decode, min_score, nms_iou)
        outputs = dequantize_outputs(self.run_images(picture, preprocess=rule), self._graph.output_ports)
        return Drawing(interpreter.interpret(outputs, (picture.height, picture.width)), picture)

    @property
    def _metadata(self) -> Mapping[str, Any]:
        """The metadata that the model file stores."""
        content = getattr(self._model, "content", self._model)
        metadata: Mapping[str, Any] = getattr(content, "metadata", {})
        return metadata

    def _rule(self, preprocess: Preprocess | str | Mapping[str, Any] | None) -> Preprocess:
        if preprocess is not None:
            return Preprocess.of(preprocess)
        if not self._preprocessing:
            raise UsageError(
                "the model stores no preprocessing, images cannot become its input",
                hint="convert it with --preprocess color=RGB,mean=...,scale=... (the numbers used in training), "
                "or give preprocess= here",
            )
        return Preprocess.from_mapping(self._preprocessing)

    def _image_port(self, name: str | None) -> Port:
        ports = {port.name: port for port in self._graph.input_ports}
        if name is None:
            if len(ports) == 1:
                return next(iter(ports.values()))
            hint = "session.run({**session.preprocess(images, input=NAME), OTHER: array})"
            raise UsageError(f"the model has {len(ports)} inputs: {', '.join(ports)}; expected one", hint=hint)
        if name not in ports:
            hint = did_you_mean(name, ports) or f"its inputs: {', '.join(ports)}"
            raise UsageError(f"the model has no input '{name}'", hint=hint)
        return ports[name]


def _as_declared(x: Array, port: Port) -> Array:
    """Quantize a preprocessed image with the scale of the input; return it unchanged for a float input."""
    return port.quant.quantize(x) if port.quant is not None and np.dtype(port.dtype).kind in "iu" else x


def _none_given() -> UsageError:
    return UsageError("no images were given", hint="a path, a PIL image, a uint8 array, or a list of them")


def _each(images: Images) -> Iterable[Any]:
    """Return an iterable whose items are single images or arrays of several images."""
    if isinstance(images, str | os.PathLike):
        path = Path(images)
        if os.path.isdir(path):
            return images_in(path)
        return [path]
    if isinstance(images, np.ndarray) or hasattr(images, "convert"):
        return [images]
    if isinstance(images, Iterable):
        return [Path(each) if isinstance(each, str) else each for each in images]
    return [images]
