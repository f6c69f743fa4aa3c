"""Trained networks of public packages in the vendor's simulator, from input to output."""

import json
from pathlib import Path

import pytest

import tpuconvert as tc
from tools.accuracy.trained.catalog import measured_names
from tools.accuracy.trained.networks import Network
from tools.accuracy.trained.wheels import UnavailableModelError, model_folder
from tpuconvert.conversion.options.options import group_options

WORK = Path(__file__).resolve().parents[2] / "build" / "accuracy-trained"
CHIPS = ("bm1684x", "bm1688")
FLOAT, INT8 = "float", "int8"
CALIBRATION, FEEDS = 8, 2
"""Samples of the calibration, and of the comparison: the integers have to agree, whatever the quantization is worth."""


@pytest.mark.vendor
@pytest.mark.parametrize("mode", [FLOAT, INT8])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", measured_names())
def test_a_network_of_a_package_agrees_in_the_simulator(name, chip, mode, vendor, tmp_path, record_property):
    network = Network(name, WORK, model_folder())
    try:
        source, samples = network.source, network.calibration(0)
    except (UnavailableModelError, FileNotFoundError, SystemExit) as absent:
        pytest.skip(str(absent))
    options = {} if mode == FLOAT else {"quantize": "int8", "calibration": samples[:CALIBRATION], "effort": "low"}
    model = tc.convert(source, chip=chip, **group_options(input_shapes=network.shapes, **options))
    result = tc.export(model, tmp_path / "out", chip=chip, data=samples[:FEEDS], compile=True)
    (proof,) = result.proofs.values()
    record_property("case", f"{name} {chip} {mode}")
    record_property("proof", json.dumps({key: proof[key] for key in ("tensors", "level", "is_accepted")}))
    record_property("host", json.dumps([result.manifest["host_share"], result.manifest["host_nodes"]]))
    result.check()
