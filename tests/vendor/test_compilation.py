"""``export --compile`` with the vendor's compiler: what it proves, and the faults of the compiler."""

import json
from pathlib import Path

import pytest

import tpuconvert as tc
from tests.support.networks.data_models import convert_model
from tests.support.vendor.vendor_tools import Vendor


@pytest.mark.vendor
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_the_bundled_example_is_equal(chip: str, repository: Path, vendor: Vendor, tmp_path: Path) -> None:
    digits = repository / "examples" / "digits"
    how = {"calibration": str(digits / "calibration.npz"), "preprocess": "color=GRAY,scale=0.0625"}
    model = tc.convert(digits / "digits.onnx", chip=chip, quantize="int8", **how)
    for with_checks in (False, True):
        data = str(digits / "calibration.npz")
        result = tc.export(model, tmp_path / "out", chip=chip, data=data, with_checks=with_checks, compile=True)
        result.check()
        proof = json.loads((tmp_path / "out" / "proof.json").read_text())
        assert proof["compiler"] == "tpu_mlir 1.30.2" and len(proof["simulator"]["sha256"]) == 64
        kinds = {item["kind"]: item for item in proof["tensors"]}
        assert (kinds["integers"]["tensors"] if with_checks else 12) >= 12
        assert kinds["floats"]["largest_difference"] <= 3e-7  # two units of binary32 below 1: a softmax
    assert (tmp_path / "out" / "digits.bmodel").stat().st_size > 10_000


@pytest.mark.vendor
def test_other_layer_groups_give_equal_integers(data_root: Path, vendor: Vendor, tmp_path: Path) -> None:
    """At levels 2 and 1 the compiler gets rows of the first convolution wrong."""
    model, feeds = convert_model(data_root, "imagenet_squeezenet_v1.1_onnx", "bm1688", "int8")
    result = tc.export(model, tmp_path / "out", chip="bm1688", data=feeds, with_checks=True, compile=True)
    result.check()
    proof = result.proofs["out"]
    assert [attempt["outcome"] for attempt in proof["attempts"]] == ["differs", "differs", "accepted"]
    assert proof["level"] == 0


@pytest.mark.vendor
def test_a_node_at_which_the_compiler_aborts_is_left_to_the_host(
    data_root: Path, vendor: Vendor, tmp_path: Path
) -> None:
    """The last product of this network, 1280 to 1001 with an offset, aborts at every level that is fast."""
    model, feeds = convert_model(data_root, "imagenet_mobilenet_v2_keras_int8_tflite", "bm1688", "source")
    result = tc.export(model, tmp_path / "out", chip="bm1688", data=feeds, compile=True)
    result.check()
    first = result.manifest["host_nodes"][0]
    assert first["operator"] == "matrix_mul_v2" and "Assertion" in first["reason"]
    assert 0 < result.manifest["host_share"] < 0.01
    kinds = {item["kind"]: item for item in result.proofs["out"]["tensors"]}
    assert {kind: item["equal"] for kind, item in kinds.items()} == {"integers": 1, "results of the host": 1}
