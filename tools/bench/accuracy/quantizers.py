"""The quantizers with their settings: each setting makes a quantized network and opens it."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tools.accuracy.trained.engines import litert_names, open_litert
from tools.bench.accuracy.subjects import Outputs, Run, Subject, our_run
from tools.bench.litert_quantizer import quantize_litert
from tools.bench.prepare import Feed, quantize_onnxruntime, quantize_openvino, ready
from tpuconvert.schema.types import Array

FLOAT = "float"
"""Setting of a peer without quantization: shows that it computes the same network."""

OURS = "tpuconvert"


@dataclass(frozen=True)
class Tool:
    """A quantizer.

    Args:
        label: its name in the tables.
        settings: keywords of ``open`` by the name of the setting.
        open: quantizes a subject and opens the result. Raises ImportError if the tool is not installed.
        formats: formats of the sources that it can be given, also as an ONNX file of tpuconvert.
    """

    label: str
    settings: Mapping[str, Mapping[str, Any]]
    open: Callable[..., Run]
    formats: tuple[str, ...] = ("onnx", "tflite", "caffe")


def _open_ours(subject: Subject, name: str, *, chip: str) -> Run:
    return our_run(subject.convert(chip=chip, quantize="int8"))


def _open_onnxruntime(subject: Subject, name: str, *, quantize: bool = True, **options: Any) -> Run:
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    network = subject.onnx
    path = network.path
    (port,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_inputs()
    if quantize:
        ranges = subject.folder / f"{options['method']}.json"
        path = ready(
            subject.folder / f"{_file_name(name)}.onnx",
            lambda path: quantize_onnxruntime(network.path, path, _feeds(subject, port.name), ranges=ranges, **options),
        )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(sample: Array) -> Outputs:
        return network.finish(dict(zip(names, session.run(None, {port.name: sample}), strict=True)))

    return run


def _open_openvino(subject: Subject, name: str, *, quantize: bool = True, **options: Any) -> Run:
    import openvino

    network = subject.source or subject.onnx
    path = network.path
    port = openvino.convert_model(path).inputs[0].get_any_name()
    if quantize:
        path = ready(
            subject.folder / f"{_file_name(name)}.xml",
            lambda path: quantize_openvino(network.path, path, _feeds(subject, port), **options),
        )
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    declared = _declared_outputs(network.path)
    names = [
        next((name for name in sorted(output.get_names()) if name in declared), output.get_any_name())
        for output in compiled.outputs
    ]

    def run(sample: Array) -> Outputs:
        found = compiled({port: sample})
        return network.finish({name: np.array(found[index]) for index, name in enumerate(names)})

    return run


def _open_litert(subject: Subject, name: str, *, quantize: bool = True, **options: Any) -> Run:
    network = subject.source
    assert network is not None, "a TFLite network is its own source"
    path = network.path
    if quantize:
        path = ready(
            subject.folder / f"{_file_name(name)}.tflite",
            lambda path: quantize_litert(network.path, path, subject.calibration, **options),
        )
    run = open_litert(path, network.path)
    (port,), _ = litert_names(network.path)
    return lambda sample: network.finish(run({port: sample}))


def _declared_outputs(path: Path) -> set[str]:
    """Names of the outputs of an ONNX file; OpenVINO may give an output further names."""
    return {output.name for output in onnx.load(path).graph.output} if path.suffix == ".onnx" else set()


def _feeds(subject: Subject, port: str) -> list[Feed]:
    return [{port: sample} for sample in subject.calibration]


def _file_name(setting: str) -> str:
    return setting.replace(", ", "_").replace(" ", "-")


ORT_TYPES = {"U8S8": ("QUInt8", "QInt8"), "S8S8": ("QInt8", "QInt8")}
ORT_METHODS = ("MinMax", "Entropy", "Percentile")
"""All calibration methods except Distribution, which is for FLOAT8: with integers, networks lose all accuracy."""

TOOLS: dict[str, Tool] = {
    OURS: Tool(OURS, {"BM1686": {"chip": "bm1686"}, "BM1684": {"chip": "bm1684"}}, _open_ours),
    "onnxruntime": Tool(
        "ONNX Runtime",
        {
            FLOAT: {"quantize": False},
            **{
                f"{method}, {types}, per {weights}": {
                    "method": method,
                    "types": ORT_TYPES[types],
                    "per_channel": weights == "channel",
                }
                for method, types, weights in itertools.product(ORT_METHODS, ORT_TYPES, ("channel", "tensor"))
            },
        },
        _open_onnxruntime,
    ),
    "nncf": Tool(
        "NNCF",
        {
            FLOAT: {"quantize": False},
            **{
                f"{preset}, {'fast' if fast else 'accurate'} bias correction": {
                    "preset": preset,
                    "fast_bias_correction": fast,
                }
                for preset, fast in itertools.product(("PERFORMANCE", "MIXED"), (True, False))
            },
        },
        _open_openvino,
    ),
    "litert": Tool(
        "LiteRT",
        {
            FLOAT: {"quantize": False},
            **{f"weights {name}": {"weights": name} for name in ("MIN_MAX_UNIFORM_QUANT", "OCTAV", "MSE")},
        },
        _open_litert,
        ("tflite",),
    ),
}


def measure(subject: Subject, tool: str, setting: str) -> dict[str, float]:
    """Quantize, run on the evaluation images, and compare with the float network."""
    with contextlib.redirect_stdout(sys.stderr):  # tools print their progress on stdout, which is for the page
        run = TOOLS[tool].open(subject, f"{tool}, {setting}", **TOOLS[tool].settings[setting])
        return subject.measure(subject.run(run))
