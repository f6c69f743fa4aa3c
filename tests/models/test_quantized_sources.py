"""Models from quantized sources run on the integers of the source, end to end."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tests.support.tflite.runs import runs, runs_of
from tools.accuracy.datasets import entries, model_files
from tpuconvert.runtime.native.builder.loader import extension

MODELS = (
    "anomaly_autoencoder_int8_tflite",
    "cifar10_resnet8_int8_tflite",
    "imagenet_mobilenet_v1_0.25_128_uint8_tflite",
    "imagenet_mobilenet_v1_0.5_160_uint8_tflite",
    "imagenet_mobilenet_v2_keras_int8_tflite",
    "kws_dscnn_int8_tflite",
    "micro_speech_int8_tflite",
    "mnist_conv_int8_tflite",
    "mnist_lstm_int8_tflite",
    "sine_int8_tflite",
    "vww_mobilenet_int8_tflite",
)


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("name", sampled(MODELS, every=5))
def test_integers_of_the_source_engine(name, backend, data_root):
    """Every output element equals the element of TFLite's reference kernels; nothing in between is float.

    But for selections: 16-bit functions of an LSTM are tables of integers, which the chip keeps as FLOAT32 tensors.
    """
    if backend == "native" and extension() is None:
        pytest.skip("the native engine was not built")
    entry = entries(data_root)[name]
    model = tc.convert(model_files(data_root, entry)[0], source_options=tc.SourceOptions(state="ports"))
    floats = {node.op.name for node in model.graph.nodes if any(v.dtype.is_float for v in node.outputs)}
    assert floats <= ({"constdata", "index_select"} if "lstm" in name else set())
    for result, want in runs_of(model, data_root, entry, backend):
        assert result.dtype == want.dtype
        np.testing.assert_array_equal(result, want)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(MODELS))
def test_single_rounding(name, data_root):
    """Engines that round once differ by a few steps from the reference kernels."""
    entry = entries(data_root)[name]
    model = tc.convert(model_files(data_root, entry)[0], source_options=tc.SourceOptions(tflite_rounding="single"))
    assert "MULTIPLIER_SHIFT" in {node.op.mode.name for node in model.graph.nodes if node.op.name == "requant_int32"}
    for result, want in runs(data_root, entry, tflite_rounding="single"):
        assert np.abs(result.astype(int) - want.astype(int)).max() <= 32
