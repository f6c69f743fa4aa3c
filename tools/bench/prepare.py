"""Files that engines load, created once per working folder: networks, inputs and quantized models.

Existing files are reused; ``--fresh`` removes them first.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter

from tpuconvert.schema.types import Array

Feed = dict[str, Array]
PER_CHANNEL_OPSET = 13

Shapes = dict[str, tuple[int, ...]]


def ready(path: Path, make: Callable[[Path], None]) -> Path:
    """Return the path of a file. Create the file if it does not exist; a partial file is never left."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"unfinished.{path.name}")
        make(unfinished)
        for made in path.parent.glob(f"{unfinished.stem}.*"):  # OpenVINO writes two files
            os.replace(made, made.with_name(made.name.removeprefix("unfinished.")))
    return path


def write_feed(target: Path, feed: Feed) -> None:
    """Write the sample of the measurement."""
    with target.open("wb") as file:
        np.savez(file, **feed)  # type: ignore[arg-type]  # numpy declares its own keywords only


def convert_ours(source: Path, target: Path, feeds: Sequence[Feed] | None, shapes: Shapes | None = None) -> None:
    """Convert with tpuconvert: INT8 with calibration samples, otherwise in the arithmetic of the source.

    Args:
        source: the file to convert.
        target: the file to write.
        feeds: calibration samples.
        shapes: shapes of the inputs with dynamic dimensions.
    """
    import tpuconvert as tc

    quantize = None if feeds is None else "int8"
    tc.convert(
        source, quantize=quantize, calibration=feeds, source_options=tc.SourceOptions(input_shapes=shapes or {})
    ).save(target)


def convert_mnn(source: Path, target: Path) -> None:
    """Convert with MNN, in float32. Its tool for INT8, mnnquant of the wheel 3.6, ends with std::length_error."""
    import MNN  # noqa: F401  absent: the row says so

    program = Path(sys.executable).with_name("mnnconvert")
    command = [str(program), "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(target), "--bizCode", "MNN"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not target.exists():  # it ends with success if it fails
        raise RuntimeError((done.stdout + done.stderr).strip().splitlines()[-1])


def quantize_onnxruntime(
    source: Path,
    target: Path,
    feeds: Sequence[Feed],
    *,
    method: str = "MinMax",
    types: tuple[str, str] = ("QUInt8", "QInt8"),
    per_channel: bool = True,
    ranges: Path | None = None,
    operators: Sequence[str] | None = None,
    extra: Mapping[str, Any] | None = None,
    optimize: bool = True,
) -> None:
    """Quantize with ONNX Runtime: static, QDQ, by default with UINT8 activations and min-max ranges.

    Args:
        source: a float ONNX file.
        target: the file to write.
        feeds: calibration samples.
        method: a calibration method.
        types: types of activations and of weights.
        per_channel: weights have one scale per output channel.
        ranges: file with the ranges of the method; written if it does not exist.
        operators: operators that are quantized; None quantizes all that it can.
        extra: the argument ``extra_options``.
        optimize: the preparation also optimizes the network.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # the package has no type information
        def __init__(self) -> None:
            self._feeds: Iterator[Feed] = iter(feeds)

        def get_next(self) -> Feed | None:
            return next(self._feeds, None)

    logging.getLogger().setLevel(logging.ERROR)
    simplified = target.with_name(f"simplified.{target.name}")
    activations, weights = types
    try:
        # As a file: in a ModelProto, the preprocessing moves the shapes of Reshape nodes into another file.
        onnx.save(_with_opset(source), simplified)
        quant_pre_process(str(simplified), str(simplified), skip_symbolic_shape=True, skip_optimization=not optimize)
        quantize_static(
            str(simplified),
            str(target),
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=QuantType[activations],
            weight_type=QuantType[weights],
            calibrate_method=CalibrationMethod[method],
            op_types_to_quantize=operators,
            extra_options=dict(extra or {}),
            **({} if ranges is None else {"calibration_cache_path": ranges}),
        )
    finally:
        simplified.unlink(missing_ok=True)


def _with_opset(source: Path) -> onnx.ModelProto:
    """Convert a network to an opset that has per-channel quantization."""
    model = onnx.load(source)
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    return (
        onnx.version_converter.convert_version(model, PER_CHANNEL_OPSET) if max(versions) < PER_CHANNEL_OPSET else model
    )


def quantize_openvino(
    source: Path,
    target: Path,
    feeds: Sequence[Feed],
    *,
    preset: str = "MIXED",
    is_transformer: bool = False,
    fast_bias_correction: bool = True,
) -> None:
    """Quantize with NNCF. The preset ``MIXED`` has symmetric weights and asymmetric activations."""
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    quantized = nncf.quantize(
        openvino.convert_model(source),
        nncf.Dataset(list(feeds)),
        preset=nncf.QuantizationPreset[preset],
        model_type=nncf.ModelType.TRANSFORMER if is_transformer else None,
        subset_size=len(feeds),
        fast_bias_correction=fast_bias_correction,
    )
    openvino.save_model(quantized, target, compress_to_fp16=False)
