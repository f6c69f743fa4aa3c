"""ONNX Runtime's static quantization: a measure of what 8 bits can do, and a source of quantized models."""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnxruntime
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from tools.zoo.files import Array

PER_CHANNEL_SINCE = 13
"""First opset whose QuantizeLinear has a scale per channel."""


class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]  # the package has no annotations
    """The samples that calibrate, in the interface of ONNX Runtime."""

    def __init__(self, samples: Sequence[dict[str, Array]]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        """Return the next sample; None after the last one."""
        return next(self._samples, None)


def quantize(source: Path, target: Path, samples: Sequence[dict[str, Array]]) -> None:
    """Write a model with QuantizeLinear and DequantizeLinear: 8 bits, weights per channel, ranges of the samples."""
    opset = next(entry.version for entry in onnx.load(str(source)).opset_import if entry.domain in ("", "ai.onnx"))
    with tempfile.TemporaryDirectory() as folder, silent():
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantization.quantize_static(
            str(prepared),
            str(target),
            Samples(samples),
            per_channel=opset >= PER_CHANNEL_SINCE,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
        )


def session(path: Path, *, is_optimized: bool = True) -> onnxruntime.InferenceSession:
    """Return a session with one thread that prints no warnings."""
    options = onnxruntime.SessionOptions()
    if not is_optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@contextmanager
def silent() -> Iterator[None]:
    """Suppress the advice that the quantizer logs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
