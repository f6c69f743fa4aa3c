"""Linear operators whose bias is computed or an input of the model, in INT8."""

from pathlib import Path

import pytest

from tests.support.quantize.onnx_builder import OnnxNet, compare


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
@pytest.mark.parametrize("op", ["Conv", "Conv of 3 axes", "ConvTranspose", "Gemm"])
def test_a_computed_bias_is_added(op: str, chip: str, tmp_path: Path) -> None:
    net = OnnxNet(3)
    spatial = {"Conv": (5, 6), "Conv of 3 axes": (3, 4, 5), "ConvTranspose": (5, 6), "Gemm": ()}[op]
    x, bias = net.input("x", 2, 4, *spatial), net.add("Tanh", net.input("b", 4))
    weight = net.normal(4, 4, *[3] * len(spatial), scale=0.3)
    y = net.add(op.split()[0], x, weight, bias)
    found = compare(net, [y], tmp_path, chip, samples=4)
    assert found.worst > 0.99
