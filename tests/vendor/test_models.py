"""Trained models in the vendor's simulator: every integer tensor has the integers of our runtime."""

import pytest

from tests.support.networks.data_models import convert_model, is_quantized, names
from tools.accuracy.datasets import entries

REFUSED = {
    "deeplabv3_257_tflite": "bilinear resizing in floating point between integers",
    "imagenet_mobilenet_v2_qlinear_onnx": "the source multiplies floats before its first integers",
    "kws_dscnn_tflite": "floating-point operators before the first integers",
    "mnist_lstm_int8_tflite": "activation functions of the LSTM in floating point",
    "silero_vad_16k_onnx": "an integer input without a scale",
    "text_det_en_ppocrv3_onnx": "the compiler aborts on a fused convolution of this size",
    "vttrack_onnx": "floating-point operators between integers",
}
"""Models without an exact export, and the reason."""
COMPILER_FAILS = {
    ("imagenet_mobilenet_v2_keras_int8_tflite", "bm1688"): "wrong rows in a grouped layer; aborts without layer groups",
    ("mnist_lstm_tflite", "bm1684x"): "the compiler needs more than 30 minutes for the unrolled steps",
    ("mnist_lstm_tflite", "bm1688"): "the compiler needs more than 30 minutes for the unrolled steps",
}
"""Models that the compiler cannot compile for a chip, and what happens."""


BM1684 = [
    "anomaly_autoencoder_tflite",
    "cifar10_quick_caffe",
    "cifar10_resnet8_caffe",
    "cifar10_resnet8_onnx",
    "cifar10_resnet8_tflite",
    "imagenet_mobilenet_v1_0.25_onnx",
    "imagenet_squeezenet_v1.1_onnx",
    "kws_dscnn_tflite",
    "lenet_mnist_caffe",
    "mnist_conv_tflite",
    "mnist_keras_onnx",
    "plate_class_96_onnx",
    "sine_float_tflite",
    "vww_mobilenet_tflite",
    "yunet_n_320_onnx",
]
"""Float models that are compared on BM1684. The simulator needs more than 10 minutes for large ones."""

TPULANG = [
    "anomaly_autoencoder_int8_tflite",
    "anomaly_autoencoder_tflite",
    "cifar10_quick_caffe",
    "cifar10_resnet8_caffe",
    "cifar10_resnet8_onnx",
    "cifar10_resnet8_tflite",
    "imagenet_mobilenet_v1_0.25_onnx",
    "lenet_mnist_caffe",
    "mnist_conv_tflite",
    "mnist_keras_onnx",
    "mtcnn_onet_caffe",
    "plate_class_96_onnx",
    "vww_mobilenet_tflite",
]
"""Models whose TPULang programs are compiled. Those with 8-bit softmax or upsampling of UINT8 have none."""


WITHOUT_LAYER_GROUPS = {("imagenet_squeezenet_v1.1_caffe", "bm1688"), ("imagenet_squeezenet_v1.1_onnx", "bm1688")}
"""Models of which the compiler gets some rows of a grouped layer wrong: rows 29 to 56 of the first convolution."""


FLOAT_END = ["deeplabv3_257_tflite", "vttrack_onnx"]
"""Models with floating-point nodes between integers. With ``--exact-on`` everything after these is left to the host."""

CASES = [
    *(
        (name, chip, "default")
        for name in names()
        for chip in ("bm1684x", "bm1688")
        if name not in REFUSED and (name, chip) not in COMPILER_FAILS
    ),
    *((name, chip, "exact") for name in FLOAT_END for chip in ("bm1684x", "bm1688")),
    *((name, "bm1684", "exact") for name in BM1684),
]
"""Model, chip, and how it is converted: as by default, or with ``--exact-on``."""


@pytest.mark.vendor
@pytest.mark.parametrize(("name", "chip", "mode"), CASES)
def test_every_integer_is_equal(name, chip, mode, data_root, vendor, tmp_path, record_property):
    default = "source" if is_quantized(entries(data_root)[name]) else "int8"
    model, feeds = convert_model(data_root, name, chip, "exact" if mode == "exact" else default)
    grouping = 3 if (name, chip) in WITHOUT_LAYER_GROUPS else 2
    lines = vendor.compare(model, feeds, chip, tmp_path / "export", grouping=grouping)
    record_property("case", f"{name} {chip} {mode}")
    record_property("tensors", sum("floating point" not in line for line in lines))
    assert [line for line in lines if line.startswith("DIFF")] == []


@pytest.mark.vendor
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
@pytest.mark.parametrize("name", TPULANG)
def test_every_integer_of_tpulang_is_equal(name, chip, data_root, tpulang, tmp_path):
    how = "source" if is_quantized(entries(data_root)[name]) else "int8"
    model, feeds = convert_model(data_root, name, chip, how)
    assert tpulang.differences(model, feeds, chip, tmp_path / "export", to="tpulang") == []


WIDE = {
    "imagenet_mobilenet_v1_0.25_onnx": ["Conv2d_1_depthwise=int16", "Conv2d_2_depthwise=int16"],
    "imagenet_squeezenet_v1.1_onnx": ["fire2/squeeze1x1=int16", "fire2/expand1x1=int16", "fire3/squeeze1x1=int16"],
}
"""Nodes that the default gives 16 bits with 100 calibration images."""


@pytest.mark.vendor
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
@pytest.mark.parametrize("name", WIDE)
def test_every_integer_of_16_bits_is_equal(name, chip, to, data_root, vendor, tmp_path):
    model, feeds = convert_model(data_root, name, chip, "int8", precision=WIDE[name])
    assert any("=int16" in note.message for note in model.notes if note.kind == "precision")
    grouping = 3 if (name, chip) in WITHOUT_LAYER_GROUPS else 2
    assert vendor.differences(model, feeds, chip, tmp_path / "export", to=to, grouping=grouping) == []
