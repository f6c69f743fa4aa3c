"""Options that decide how a source is read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from tpuconvert.conversion.options.nms_options import read_append_nms
from tpuconvert.conversion.options.readers import (
    Buckets,
    Shapes,
    read_allow_root,
    read_buckets,
    read_fixed_inputs,
    read_names,
    read_shapes,
)
from tpuconvert.option_declaration import OptionGroup, document_fields, option
from tpuconvert.samples.preprocess import PIXEL_FORMATS, Preprocess
from tpuconvert.schema.graph.shape_buckets import Bucket
from tpuconvert.schema.system.limits import DEFAULT_LIMITS


@document_fields
@dataclass(frozen=True, kw_only=True)
class SourceOptions(OptionGroup):
    """Options that decide how a source is read."""

    input_shapes: Shapes = option(
        {},
        "Shapes of inputs with dynamic dimensions. For ONNX, a name instead of an extent keeps the dimension dynamic, "
        "and NAME may be a pattern such as 'past_key_values.*'.",
        read=read_shapes,
        metavar="NAME=1,3,224,224",
        is_repeated=True,
    )
    shapes: Buckets = option(
        (),
        "The only shapes of inputs that the model accepts, called buckets. The ONNX file has dynamic dimensions "
        "where they differ. A session makes a plan for each bucket.",
        read=read_buckets,
        metavar="1x3x320x320,1x3x640x640",
        syntax="For several inputs, 'a=1x16;b=1x16,a=1x64;b=1x64'.",
        is_repeated=True,
    )
    inputs: Sequence[str] | None = option(
        None,
        "Names of the tensors at which the model begins.",
        read=read_names,
        metavar="NAMES",
        syntax="Separate names by commas.",
    )
    outputs: Sequence[str] | None = option(
        None,
        "Names of the tensors at which the model ends.",
        read=read_names,
        metavar="NAMES",
        syntax="Separate names by commas.",
    )
    fuse_preprocess: str = option(
        "none",
        "Pixels as input: the model computes the preprocessing. They are uint8 [N, H, W, 3] in the order ``rgb`` or "
        "``bgr``, [N, H, W, 1] for ``gray``, or planes [N, H * 3/2, W] of a camera for ``nv12`` and "
        "``i420``. Needs preprocessing.",
        choices=("none", *PIXEL_FORMATS),
    )
    append_nms: str | None = option(
        None,
        "Append non-maximum suppression to outputs with boxes and scores. Keys are "
        "``boxes=NAME,scores=NAME``, and optionally ``iou=0.5``, ``score=0.25``, ``max=100`` per image and class, "
        "``format=cxcywh`` for centers and sizes, and ``objectness=true``.",
        read=read_append_nms,
        metavar="KEY=VALUE,...",
    )
    signature: str | None = option(
        None,
        "Key of the signature to convert, for a TFLite file with several.",
        metavar="NAME",
    )
    state: str = option(
        "auto",
        "Tensors that a session keeps between runs. ``auto``: the key-value caches of an ONNX decoder, and every run "
        "of a TFLite model starts with the initial state. ``reset``: the initial state, TFLite only. ``ports``: they "
        "are inputs and outputs. ``none``: no session keeps any; ``ports`` for ONNX, ``reset`` for TFLite.",
        choices=("auto", "reset", "ports", "none"),
    )
    keep_io_layout: bool = option(
        True,
        "Layout of inputs and outputs of rank 4 of a TFLite model. They keep NHWC, or become NCHW.",
        flags="--keep-io-layout/--nchw-io",
    )
    tflite_rounding: str = option(
        "double",
        "Rounding of a quantized TFLite model. ``double`` rounds as the reference kernels do, ``single`` as engines "
        "that round once.",
        choices=("double", "single"),
    )
    fix_inputs: Mapping[str, Any] = option(
        {},
        "Value of an input that becomes a constant. It is a number, a Boolean, a list, an array or the name of an "
        "``.npy`` file.",
        read=read_fixed_inputs,
        flags="--fix-input",
        metavar="NAME=VALUE",
        is_repeated=True,
        is_file=True,
    )
    max_iterations: int = option(
        DEFAULT_LIMITS.max_loop_iterations,
        "Largest number of iterations of a loop on the host. More are an error when the model runs.",
        metavar="N",
        lower=1,
    )
    allow_root: str | os.PathLike[str] | None = option(
        None,
        "Further folder with external data of an ONNX model. Otherwise the data is in the folder of the model.",
        read=read_allow_root,
        in_recipe=False,  # a path is valid on one machine only; the recipe contains the digest of the data
        metavar="DIR",
    )
    allow_non_finite: bool = option(
        False,
        "Accept constants that are NaN or infinite. Float only; infinity is always accepted where it has a meaning.",
    )

    @property
    def buckets(self) -> Sequence[Bucket]:
        """The buckets of ``shapes``, as they are stored."""
        return cast("Sequence[Bucket]", self.shapes)

    def fused(self, preprocess: Preprocess) -> Preprocess:
        """Return preprocessing with the pixel format of ``fuse_preprocess``."""
        return replace(preprocess, fuse="" if self.fuse_preprocess == "none" else self.fuse_preprocess)
