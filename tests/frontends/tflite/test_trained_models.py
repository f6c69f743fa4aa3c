"""Trained models and single layers of public collections against the results of the TFLite reference kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.sampled import sampled
from tests.support.tflite.models import run
from tpuconvert.frontends.tflite import load
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.convolution.conv import Conv

FLOAT_MODELS = (
    "anomaly_autoencoder_tflite",
    "cifar10_resnet8_tflite",
    "deeplabv3_257_tflite",
    "face_landmark_tflite",
    "face_short_range_tflite",
    "mnist_conv_tflite",
    "mnist_lstm_tflite",
    "sine_float_tflite",
    "ultraface_rfb_320_tflite",
    "vww_mobilenet_tflite",
)
# Smallest cosine between float results when annotated values are rounded to their integers after every operator.
INTEGER_MODELS = {
    "anomaly_autoencoder_int8_tflite": 0.9999,
    "cifar10_resnet8_int8_tflite": 0.999,
    "imagenet_mobilenet_v1_0.25_128_uint8_tflite": 0.98,  # a fragile network
    "imagenet_mobilenet_v1_0.5_160_uint8_tflite": 0.99,
    "imagenet_mobilenet_v2_keras_int8_tflite": 0.98,
    "kws_dscnn_int8_tflite": 0.99,
    "micro_speech_int8_tflite": 0.9999,
    "mnist_conv_int8_tflite": 0.999,
    "mnist_lstm_int8_tflite": 0.9999,
    "sine_int8_tflite": 0.9999,
    "vww_mobilenet_int8_tflite": 0.999,
}
# TFLite keeps the state of a recurrent layer between runs, so only the first sample begins where we begin.
FIRST_SAMPLE_ONLY = {"mnist_lstm_tflite", "mnist_lstm_int8_tflite"}
# Of files with several signatures the one on the first subgraph, which the references were computed with.
SIGNATURES = {"aeq_constant_tensor_and_buffer_only_sharing_weight_fcs": "sig1", "aeq_two_signatures_a8w8": "add"}


def entry(root: Path, name: str) -> dict[str, Any]:
    models = json.loads((root / "manifest.json").read_text())["models"]
    found: dict[str, Any] = next(model for model in models if model["id"] == name)
    return found


def samples(path: Path, graph: Graph) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs of every sample of a reference file."""
    stored = np.load(path)
    suffixes = [key.removeprefix("in0") for key in stored.files if key == "in0" or key.startswith("in0_")]
    for suffix in suffixes:
        yield (
            [stored[f"in{i}{suffix}"] for i in range(len(graph.inputs))],
            [stored[f"out{i}{suffix}"] for i in range(len(graph.outputs))],
        )


@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_float_models_match(data_root: Path, name: str) -> None:
    known = entry(data_root, name)
    graph = load(data_root / known["paths"]["model.tflite"])
    graph.validate()
    for number, (inputs, expected) in enumerate(samples(data_root / known["reference"]["file"], graph)):
        if number and name in FIRST_SAMPLE_ONLY:
            break
        for result, want in zip(run(graph, *inputs), expected, strict=True):
            assert (result.shape, result.dtype) == (want.shape, want.dtype)
            probabilities = want.min() >= 0 and np.allclose(want.sum(-1), 1, atol=1e-4)
            extent = float(np.ptp(want)) or float(np.abs(want).max())  # a single number has no range
            tolerance = 1e-5 if probabilities else 1e-4 * extent
            assert np.abs(result.astype(np.float64) - want).max() <= tolerance


@pytest.mark.parametrize("name", sampled(INTEGER_MODELS, every=2))
def test_annotations_of_integer_models(data_root: Path, name: str) -> None:
    """Rounding where the annotations say gives the integers of the source, up to the rounding inside operators."""
    known = entry(data_root, name)
    graph = load(data_root / known["paths"]["model.tflite"])
    assert graph.rescale == "tflite"
    for number, (inputs, expected) in enumerate(samples(data_root / known["reference"]["file"], graph)):
        if number and name in FIRST_SAMPLE_ONLY:
            break
        for result, want, port in zip(run(graph, *inputs, simulate=True), expected, graph.output_ports, strict=True):
            assert (result.shape, result.dtype) == (want.shape, want.dtype)
            assert port.quant is not None
            a, b = port.quant.dequantize(result).reshape(-1), port.quant.dequantize(want).reshape(-1)
            assert float(a @ b) >= INTEGER_MODELS[name] * float(np.linalg.norm(a) * np.linalg.norm(b))
            assert a.argmax() == b.argmax()


def test_hybrid_model(data_root: Path) -> None:
    """8-bit weights, float activations: the reference rounds the activations of such convolutions to 127 steps.

    Our arithmetic does not; with the same rounding put in front of those convolutions the results agree.
    """
    known = entry(data_root, "kws_dscnn_tflite")
    graph = load(data_root / known["paths"]["model.tflite"])
    rounded = {node.inputs[0] for node in graph.nodes if isinstance(node.op, Conv) and node.op.groups == 1}
    for inputs, (expected,) in samples(data_root / known["reference"]["file"], graph):
        values: dict[str, Any] = {graph.inputs[0].name: inputs[0]}
        for node in graph.nodes:
            operands = [None if v is None else v.data if v.is_constant else values[v.name] for v in node.inputs]
            for value, result in zip(node.outputs, node.op.evaluate(*operands), strict=True):
                if value in rounded:
                    step = np.abs(result).max().astype(np.float64) / 127
                    result = (np.round(result / step) * step).astype(np.float32)
                values[value.name] = result
        assert np.abs(values[graph.outputs[0].name] - expected).max() <= 1e-4


def test_single_layers(data_root: Path) -> None:
    cases = json.loads((data_root / "layers" / "cases.json").read_text())
    wrong = []
    for case in (case for case in cases if case["format"] == "tflite"):
        graph = load(data_root / case["paths"]["model.tflite"], signature=SIGNATURES.get(case["id"]))
        for inputs, expected in samples(data_root / case["io"], graph):
            results = run(graph, *inputs, simulate=True)
            for result, want, port in zip(results, expected, graph.output_ports, strict=True):
                assert (result.shape, result.dtype) == (want.shape, want.dtype), case["id"]
                difference = np.abs(result.astype(np.float64) - want.astype(np.float64)).max()
                # One step for integers; 32-bit ones do not fit into binary32 and lose their last four bits.
                integers = 16 if result.dtype == np.int32 else 1
                tolerance = integers if port.quant else 1e-4 * max(float(np.ptp(want.astype(np.float64))), 1e-30)
                if difference > tolerance:
                    wrong.append((case["id"], difference, tolerance))
    assert wrong == []
