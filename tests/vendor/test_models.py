"""Trained networks from input to output in the vendor's simulator, as ``export --compile`` proves them."""

import json

import pytest

import tpuconvert as tc
from tests.support.networks.data_models import convert_model, is_quantized, names
from tools.accuracy.datasets import entries

CHIPS = ("bm1684x", "bm1688", "bm1684")

DEFAULT, FLOAT, EXACT = "default", "float", "exact"
"""How a network is converted: as by default (INT8, or the integers of its source), in float, or with ``--exact-on``."""

LARGE = {"deeplabv3_257_tflite", "qr_super_resolution_caffe", "text_det_en_ppocrv3_onnx", "vttrack_onnx"}
"""Networks whose programs with every tensor take the simulators more than ten minutes: only outputs are compared."""

EXACT_ON_BM1684 = [
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
"""Float networks whose integers are compared on BM1684. The simulator needs more than 10 minutes for large ones."""

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
"""Networks whose TPULang programs are compiled. Those with 8-bit softmax or upsampling of UINT8 have none."""

CASES = [
    *((name, chip, DEFAULT) for name in names() for chip in CHIPS[:2]),
    *((name, "bm1684", FLOAT) for name in names(is_float=True)),
    *((name, "bm1684", EXACT) for name in EXACT_ON_BM1684),
]
"""Network, chip, and how it is converted. Quantized sources have no form on BM1684, whose scales are powers of two."""


@pytest.mark.vendor
@pytest.mark.parametrize(("name", "chip", "mode"), CASES)
def test_a_network_agrees_in_the_simulator(name, chip, mode, data_root, vendor, tmp_path, record_property):
    default = "source" if is_quantized(entries(data_root)[name]) else "int8"
    model, feeds = convert_model(data_root, name, chip, default if mode == DEFAULT else mode)
    checks = mode != FLOAT and name not in LARGE
    result = tc.export(model, tmp_path / "out", chip=chip, data=feeds, with_checks=checks, compile=True)
    (proof,) = result.proofs.values()
    record_property("case", f"{name} {chip} {mode}")
    record_property("proof", json.dumps({key: proof[key] for key in ("tensors", "level", "is_accepted")}))
    record_property("host", json.dumps([result.manifest["host_share"], result.manifest["host_nodes"]]))
    result.check()
    assert not [node for node in result.manifest["host_nodes"] if "other integers" in node.get("reason", "")]
    for kind in proof["tensors"]:
        assert kind["equal"] == kind["tensors"] or kind["kind"] != "integers"


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
    assert vendor.differences(model, feeds, chip, tmp_path / "export", to=to) == []
