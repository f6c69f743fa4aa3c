"""``export --compile`` with the vendor's compiler: what it proves, and the faults of the compiler."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tpuconvert as tc
from tests.support.networks.data_models import convert_model
from tests.support.networks.decoders import STANDARD, Decoder
from tests.support.onnx.models import model as onnx_model
from tests.support.onnx.models import one, ramp, save_model
from tests.support.vendor.vendor_tools import Vendor
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.schema.errors import ThresholdError
from tpuconvert.schema.graph.graph import Value


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
        assert ("integers" in kinds) == with_checks and (not with_checks or kinds["integers"]["tensors"] >= 12)
        assert kinds["floats"]["largest_difference"] <= 3e-7  # two units of binary32 below 1: a softmax
        cycles = proof["cycles"]
        assert max(cycles["compute"], cycles["transfer"]) <= cycles["total"] <= cycles["compute"] + cycles["transfer"]
        tensors = {layer["tensor"] for layer in cycles["layers"]}
        assert {"conv1/relu", "pool", "probability"} <= tensors and "" not in tensors
    assert (tmp_path / "out" / "digits.bmodel").stat().st_size > 10_000


@pytest.mark.vendor
def test_a_program_that_differs_is_not_a_success(data_root: Path, vendor: Vendor, tmp_path: Path) -> None:
    """Level 3 of layer grouping computes wrong scores for this network."""
    model, feeds = convert_model(data_root, "ultraface_rfb_320_onnx", "bm1688", "int8")
    result = tc.export(model, tmp_path / "out", chip="bm1688", data=feeds, layer_groups=3, compile=True)
    assert not result.proofs["out"]["is_accepted"] and result.proofs["out"]["differing"]
    with pytest.raises(ThresholdError, match="of the compiled program differ"):
        result.check()


@pytest.mark.vendor
def test_a_node_at_which_the_compiler_aborts_is_left_to_the_host(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BM1684X has no function in float16. The export, which casts around it, is changed so that it does not."""

    add_floats = Lowering.add_floats

    def add_in_float16(
        lowering: Lowering, operation: str, operands: Sequence[Tensor], value: Value, kind: str = "", **attributes: Any
    ) -> None:
        if operation == "tpu.Active":
            lowering.add(operation, [lowering.as_kind(x, "f16") for x in operands], value, **attributes)
        else:
            add_floats(lowering, operation, operands, value, kind, **attributes)

    monkeypatch.setattr(Lowering, "add_floats", add_in_float16)
    weights = {name: ramp(8, 8, 1, 1, seed=ord(name)) for name in "ab"}
    nodes = [
        one("Conv", "x", "a", outputs=["first"]),
        one("Sigmoid", "first", outputs=["gate"]),
        one("Conv", "gate", "b", outputs=["y"]),
    ]
    path = save_model(onnx_model(nodes, {"x": ramp(1, 8, 4, 4)}, ["y"], weights), tmp_path)
    model = tc.convert(path, chip="bm1684x")
    result = tc.export(model, tmp_path / "out", chip="bm1684x", floats="f16", compile=True)
    result.check()
    nodes_on_host = result.manifest["host_nodes"]
    assert [node["operator"] for node in nodes_on_host] == ["active", "conv"]
    assert 'Assertion "dtype == DT_FP32 && "active only support float32"" failed' in nodes_on_host[0]["reason"]
    assert [item["kind"] for item in result.proofs["out"]["tensors"]] == ["floats", "results of the host"]


@pytest.mark.vendor
def test_every_part_of_a_decoder_has_a_proof(vendor: Vendor, tmp_path: Path) -> None:
    """With weights of 4 bits, in float16."""
    weights = tc.PackedWeights(weight_type="int4")
    model = tc.convert(Decoder(STANDARD, hidden=256, heads=8).build(), packed_weights=weights)
    result = tc.export(model, tmp_path / "parts", chip="bm1688", floats="f16", decoder_context=16, compile=True)
    result.check()
    assert set(result.proofs) == set(result.manifest["programs"]) and len(result.proofs) > 4
    for part in result.manifest["programs"]:
        assert (tmp_path / "parts" / part / f"{part}.bmodel").stat().st_size > 10_000
