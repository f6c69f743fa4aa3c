"""Advice about networks whose tensors have parts of very different size: none that is false, rules that mend them."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.uneven_networks import KINDS
from tests.support.sampled import sampled
from tpuconvert.__main__ import main

WITHOUT = ["--without", "coarse-nodes", "--without", "balancing"]
"""Algorithms that mend these networks."""

NEXT = r"(?m)^warning: output '.+?': .*; next: (tpuconvert .*)$"


def written(kind: str, seed: int, folder: Path) -> tuple[str, str]:
    network = KINDS[kind](seed)
    path, data = folder / "net.onnx", folder / "samples.npz"
    path.write_bytes(network.net.model(network.output).SerializeToString())
    np.savez(data, **network.samples(64, 1000))
    return str(path), str(data)


@pytest.mark.parametrize(("kind", "seed"), sampled([("dense_features", 5), ("conv_features", 2), ("log_features", 1)]))
def test_the_printed_rule_mends_the_network(kind, seed, tmp_path, capsys):
    path, data = written(kind, seed, tmp_path)
    command = ["convert", path, "-o", str(tmp_path / "net.tpum"), "--quantize", "int8", "--calibration", data, *WITHOUT]
    assert main(command) == 0
    (next_step,) = re.findall(NEXT, capsys.readouterr().out)
    assert main(shlex.split(next_step)[1:]) == 0
    rule = re.findall(r"(?m)^   (--.*)$", capsys.readouterr().out)[0]
    assert main([*command, *shlex.split(rule)]) == 0
    assert not re.findall(NEXT, capsys.readouterr().out), rule


@pytest.mark.parametrize(
    ("kind", "seed"), [("dense_features", 0), ("dense_features", 5), ("conv_features", 2), ("outliers_before_silu", 1)]
)
def test_no_other_preprocessing_is_advised(kind, seed, tmp_path):
    path, data = written(kind, seed, tmp_path)
    ids = {finding.id for finding in tc.doctor(path, data, threads=1).findings}
    assert not ids & {"small-input", "large-input", "implausible-range"}
