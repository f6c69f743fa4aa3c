"""Models that are quantized at the source run on their own integers, end to end."""

import numpy as np
import pytest
from datasets import entries, model_files, reference_samples

import tpuconvert as tc

MODELS = {
    "anomaly_autoencoder_int8_tflite": 1.0,
    "cifar10_resnet8_int8_tflite": 1.0,
    "imagenet_mobilenet_v1_0.25_128_uint8_tflite": 1.0,
    "imagenet_mobilenet_v1_0.5_160_uint8_tflite": 1.0,
    "imagenet_mobilenet_v2_keras_int8_tflite": 0.99,
    "kws_dscnn_int8_tflite": 1.0,
    "micro_speech_int8_tflite": 1.0,
    "mnist_conv_int8_tflite": 1.0,
    "sine_int8_tflite": 1.0,
    "vww_mobilenet_int8_tflite": 1.0,
}
"""Share of output integers that equal TFLite's reference kernels exactly, at least. All lie within one step."""


IN_FLOAT = {"imagenet_mobilenet_v2_keras_int8_tflite": ["dequant_int_to_fp32", "reduce", "divs"]}
"""Its mean over height and width changes the scale, which has no integer form."""


@pytest.mark.parametrize("name", MODELS)
def test_integers_of_the_source_engine(name, data_root):
    entry = entries(data_root)[name]
    model = tc.convert(model_files(data_root, entry)[0])
    floats = [node.op.name for node in model.graph.nodes if any(v.dtype.is_float for v in node.outputs)]
    assert floats == IN_FLOAT.get(name, []), "integer arithmetic from end to end"
    equal = total = 0
    with tc.Session(model) as session:
        for feeds, expected in reference_samples(data_root, entry):
            found = session.run(feeds)
            for output, want in expected.items():
                assert found[output].dtype == want.dtype
                step = np.abs(found[output].astype(np.int64) - want)
                assert step.max() <= 1
                equal, total = equal + int((step == 0).sum()), total + step.size
    assert equal >= MODELS[name] * total
