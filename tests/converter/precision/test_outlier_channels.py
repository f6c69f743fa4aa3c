"""Attribution and tuning of a transformer with outlier channels in one place, which only ``balancing`` would repair."""

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tools.bench.outliers import OUTLIER_NETWORKS, Outliers
from tpuconvert.conversion.options.options import group_options

WITHOUT = {"without": ["balancing", "coarse-nodes"]}


@pytest.fixture(scope="module", params=["bert", pytest.param("vit", marks=pytest.mark.slow)])
def broken(request, tmp_path_factory) -> Path:
    """Folder with a network whose fourth normalization, before the second feed-forward part, has outlier channels."""
    pytest.importorskip("onnxruntime", reason="the networks are built with onnxruntime")
    network, folder = OUTLIER_NETWORKS[request.param], tmp_path_factory.mktemp(request.param)
    network.write(folder / "net.onnx", outliers=Outliers(norms=(3,)))
    np.savez(folder / "calibration.npz", **network.samples(16, 1000))
    np.savez(folder / "data.npz", **network.samples(4, 2000))
    return folder


def convert(folder: Path, **options) -> tc.Model:
    return tc.convert(
        folder / "net.onnx",
        calibration=folder / "calibration.npz",
        **group_options(quantize="int8", **WITHOUT, **options),
    )


@pytest.mark.slow
def test_attribution_ranks_the_matmul_with_outlier_channels_first(broken: Path) -> None:
    source = broken / "net.onnx"
    found = tc.attribute(convert(broken), source, data=broken / "data.npz")
    first, second = found.nodes[:2]
    assert first.op == "matrix_mul" and first.cause == "activations"
    assert first.isolated.noise > 10 * second.isolated.noise
    # The rule that it prints keeps this matmul in float; no other one uses the operand.
    assert first.rule == f"--keep-float '{first.name}'"
    repaired = tc.attribute(convert(broken, keep_float=first.keep_float), source, data=broken / "data.npz")
    assert repaired.model.noise < found.model.noise / 4


@pytest.mark.slow
def test_tuning_keeps_at_most_two_nodes_in_float(broken: Path) -> None:
    guilty = tc.attribute(convert(broken), broken / "net.onnx", data=broken / "data.npz").nodes[0].name
    found = tc.tune(
        broken / "net.onnx",
        calibration=str(broken / "calibration.npz"),
        data=str(broken / "data.npz"),
        output=broken / "net.tpum",
        metric="cosine",
        max_drop=0.4,
        **group_options(**WITHOUT),
    )
    assert found.trials[0].metric < 0.993
    assert found.best.is_enough and found.best.metric > 0.996
    assert guilty in found.best.keep_float and len(found.best.keep_float) <= 2
