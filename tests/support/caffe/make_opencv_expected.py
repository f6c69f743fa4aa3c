"""Write opencv_expected.npz: results of OpenCV's dnn module for the networks of tests/support/caffe/opencv_cases.py.

    pip install "opencv-python-headless<5"
    python -m tests.support.caffe.make_opencv_expected

OpenCV's importer of Caffe files is its own; nothing of it is shared with ours.
"""

import tempfile
from pathlib import Path

import cv2
import numpy as np

from tests.support.caffe.networks import write_text, write_weights
from tests.support.caffe.opencv_cases import CASES

TARGET = Path(__file__).with_name("opencv_expected.npz")


def compute_expected(case, folder):
    inputs, blobs = case.arrays()
    network, weights = write_text(folder, case.text), write_weights(folder, blobs or {"none": [np.zeros(1)]})
    net = cv2.dnn.readNetFromCaffe(str(network), str(weights))
    for index, array in enumerate(inputs):
        net.setInput(array, f"x{index}")
    return net.forward()  # of the last layer: names mean layers there, not blobs


def main():
    results = {"opencv": np.array(cv2.__version__)}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            try:
                results[case.id] = compute_expected(case, Path(folder))
            except cv2.error as error:
                print(f"{case.id}: {str(error).splitlines()[0][:300]}")
    np.savez_compressed(TARGET, **results)
    print(f"{TARGET.name}: {len(results) - 1} of {len(CASES)} results, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
