"""Layers against results of OpenCV's dnn module, which has a Caffe reader.

``make_opencv_expected.py`` wrote them. Tolerance: 1e-5 of the result's range, binary32 sums in another order.
"""

import numpy as np
import pytest

from tests.support.caffe import opencv_cases
from tests.support.caffe.networks import load_text, run
from tests.support.caffe.opencv_cases import CASES

EXPECTED = np.load(opencv_cases.EXPECTED)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_as_opencv(case, tmp_path):
    inputs, blobs = case.arrays()
    graph = load_text(tmp_path, case.text, blobs or None, outputs=[case.output])
    found = run(graph, *(inputs[int(port.name[1:])] for port in graph.input_ports))[case.output]
    wanted = EXPECTED[case.id]
    if case.id == "detection output":  # OpenCV gives the rows that it found, ours are followed by rows of 0
        assert not found[:, :, wanted.shape[2] :].any()
        found = found[:, :, : wanted.shape[2]]
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-5 * max(float(wanted.max() - wanted.min()), 1.0)
