"""ResNet50 and MobileNetV2: at least 60 % of global-memory traffic is saved, with the documented memory."""

from pathlib import Path

import pytest

import tpuconvert as tc
from tests.support.networks import data_models
from tests.support.sampled import sampled
from tools.bench.networks import NETWORKS, write_network
from tpuconvert.model.cost import describe_cost

ENOUGH = 0.6


def saved_share(model: tc.Model) -> float:
    return describe_cost(model)["saved"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "mobilenetv2"])
def test_random_weights(tmp_path: Path, name: str) -> None:
    network, source = NETWORKS[name], tmp_path / "m.onnx"
    write_network(network, source)
    samples = [{network.input: network.samples(1, 0)}]
    for chip in ("bm1682", "bm1684", "bm1686"):
        assert saved_share(tc.convert(source, chip=chip)) >= ENOUGH
    for chip in ("bm1684", "bm1686"):
        assert saved_share(tc.convert(source, chip=chip, quantize="int8", calibration=samples)) >= ENOUGH


@pytest.mark.parametrize("name", sampled([name for name in data_models.names() if "mobilenet_v2" in name]))
def test_trained_mobilenets(data_root: Path, name: str) -> None:
    model, _ = data_models.convert_model(data_root, name, "bm1686", "source")
    assert saved_share(model) >= ENOUGH
