"""The quantizers of the comparison: each setting makes an INT8 model of a network and opens it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx

import tpuconvert as tc
from tools.accuracy.trained.engines import Run, open_litert, open_onnxruntime, open_openvino
from tools.accuracy.trained.networks import Network
from tools.accuracy.trained.tpu_mlir import quantize_tpu_mlir
from tools.bench.litert_quantizer import quantize_litert
from tools.bench.prepare import quantize_onnxruntime, quantize_openvino
from tpuconvert.conversion.options.options import group_options


@dataclass(frozen=True)
class Quantizer:
    """A column of the table.

    Args:
        label: its heading.
        settings: keywords of ``open`` by the name of the setting. The table shows the best one of each network.
        open: quantizes a network with the calibration samples of a draw. Returns the model and the seconds.
        formats: formats of the sources that it can read.
        is_timed: its engine runs in this process, so that processor time measures a sample.
    """

    label: str
    settings: Mapping[str, Mapping[str, Any]]
    open: Callable[..., tuple[Run, float]]
    formats: tuple[str, ...] = ("onnx", "tflite")
    is_timed: bool = True


def _open_ours(network: Network, draw: int, *, quantize: str | None = "int8", **options: Any) -> tuple[Run, float]:
    samples = network.calibration(draw) if quantize else None
    start = time.perf_counter()
    model = tc.convert(
        network.source, calibration=samples, **group_options(input_shapes=network.shapes, quantize=quantize, **options)
    )
    seconds = time.perf_counter() - start
    return tc.Session(model, threads=1).run, seconds


def _open_onnxruntime(network: Network, draw: int, **options: Any) -> tuple[Run, float]:
    import onnxruntime  # noqa: F401  not part of the time

    target, samples = network.folder / "onnxruntime.onnx", network.calibration(draw)
    attempts: tuple[Mapping[str, Any], ...] = (
        {},
        # Per-channel MatMul with a bias fails without it.
        {"extra": {"QDQDisableWeightAdjustForInt32Bias": True}},
        # Some graphs fail after the optimizations of the preparation.
        {"extra": {"QDQDisableWeightAdjustForInt32Bias": True}, "optimize": False},
    )
    for attempt in attempts:
        merged = {**options, **attempt, "extra": {**options.get("extra", {}), **attempt.get("extra", {})}}
        start = time.perf_counter()
        try:
            quantize_onnxruntime(network.onnx, target, samples, **merged)
            seconds = time.perf_counter() - start
            return open_onnxruntime(target), seconds
        except Exception:  # errors of ONNX Runtime have no common class; the last one is raised
            if attempt is attempts[-1]:
                raise
    raise AssertionError("the last attempt returns or raises")


def _open_nncf(network: Network, draw: int, **options: Any) -> tuple[Run, float]:
    import nncf  # noqa: F401  not part of the time

    names = [port.name for port in onnx.load(network.onnx, load_external_data=False).graph.output]
    target, samples = network.folder / "nncf.xml", network.calibration(draw)
    start = time.perf_counter()
    quantize_openvino(network.onnx, target, samples, **options)
    seconds = time.perf_counter() - start
    return open_openvino(target, names), seconds


def _open_litert(network: Network, draw: int, **options: Any) -> tuple[Run, float]:
    from ai_edge_quantizer import quantizer  # noqa: F401  not part of the time

    target = network.folder / "litert.tflite"
    samples = [feed[network.entry.input] for feed in network.calibration(draw)]
    start = time.perf_counter()
    quantize_litert(network.source, target, samples, **options)
    seconds = time.perf_counter() - start
    return open_litert(target, network.source), seconds


def _open_tpu_mlir(network: Network, draw: int, **options: Any) -> tuple[Run, float]:
    start = time.perf_counter()
    run = quantize_tpu_mlir(network.onnx, network.calibration(draw), network.folder / "tpu-mlir", **options)
    return run, time.perf_counter() - start


OURS = "default"
QUANTIZERS: dict[str, Quantizer] = {
    "float": Quantizer("float", {"": {"quantize": None}}, _open_ours),
    OURS: Quantizer("tpuconvert", {"": {}}, _open_ours),
    "low": Quantizer("`--effort low`", {"": {"effort": "low"}}, _open_ours),
    "high": Quantizer("`--effort high`", {"": {"effort": "high"}}, _open_ours),
    "onnxruntime": Quantizer(
        "ONNX Runtime",
        {
            "U8S8": {},
            "S8S8": {"types": ("QInt8", "QInt8"), "extra": {"ActivationSymmetric": True}},
            "U8S8, linear": {"operators": ("Conv", "ConvTranspose", "MatMul", "Gemm")},
        },
        _open_onnxruntime,
    ),
    "nncf": Quantizer("NNCF", {"": {"preset": "PERFORMANCE"}}, _open_nncf),
    "litert": Quantizer("LiteRT", {"": {"weights": "MIN_MAX_UNIFORM_QUANT"}}, _open_litert, ("tflite",)),
    "tpu-mlir": Quantizer("TPU-MLIR", {"": {}}, _open_tpu_mlir, is_timed=False),
}
"""Columns of the table. ``float`` shows that tpuconvert computes the same float model as the engine of the source."""
