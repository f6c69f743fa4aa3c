"""Trained networks and published layers against the outputs of other engines.

Tolerance: 1e-4 of the output's range (binary32 sums in another order), 1e-5 absolute for probabilities.
"""

import json

import numpy as np
import pytest
from caffe_networks import run

from tpuconvert.frontends import caffe
from tpuconvert.schema.errors import UnsupportedError

MODELS = [
    "cifar10_quick_caffe",
    "cifar10_resnet8_caffe",
    "imagenet_squeezenet_v1.1_caffe",
    "lenet_mnist_caffe",
    "mtcnn_onet_caffe",
    "mtcnn_pnet_caffe",
    "mtcnn_rnet_caffe",
    "plate_segmentation_caffe",
    "qr_super_resolution_caffe",
    "retinaface_mnet_caffe",
    "ultraface_rfb_320_caffe",
]
REFUSED = {
    "cv_accum_ref": "no TPU operator",
    "cv_data_augmentation_8x6": "no TPU operator",
    "cv_flow_warp": "no TPU operator",
    "cv_net_roi_pooling": "no TPU operator",
}
LOSSES = {"EuclideanLoss", "ContrastiveLoss", "Python"}


def assert_close(found, want):
    assert found.shape == want.shape
    probabilities = want.min() >= 0 and np.allclose(want.sum(-1 if want.ndim == 2 else None), 1, atol=1e-4)
    tolerance = 1e-5 if probabilities else 1e-4 * float(want.max() - want.min())
    assert np.abs(found.astype(np.float64) - want).max() <= tolerance


@pytest.mark.parametrize("name", MODELS)
def test_matches_the_reference(name, data_root):
    (entry,) = (m for m in json.loads((data_root / "manifest.json").read_text())["models"] if m["id"] == name)
    folder = data_root / "models" / name
    shapes = {item["name"]: item["shape"] for item in entry["inputs"]}
    graph = caffe.load(folder / "deploy.prototxt", folder / "model.caffemodel", input_shapes=shapes)
    graph.validate()
    assert [port.name for port in graph.output_ports] == [item["name"] for item in entry["outputs"]]
    reference = np.load(folder / "reference.npz")
    for suffix in ["", *(f"_s{k}" for k in range(1, 4) if f"in0_s{k}" in reference)]:
        found = run(graph, reference["in0" + suffix])
        for index, output in enumerate(found.values()):
            assert_close(output, reference[f"out{index}{suffix}"])


def layer_cases(root):
    cases = json.loads((root / "layers" / "cases.json").read_text())
    return [case for case in (cases if isinstance(cases, list) else cases["cases"]) if case["format"] == "caffe"]


def test_published_layers(data_root):
    matched, refused = [], {}
    for case in layer_cases(data_root):
        folder = data_root / "layers" / "caffe" / case["id"]
        weights = folder / "model.caffemodel"
        try:
            graph = caffe.load(folder / "deploy.prototxt", weights if weights.exists() else None)
        except UnsupportedError as error:
            refused[case["id"]] = error.problems[0].kind.heading
            continue
        io = np.load(folder / "io.npz")
        found = run(graph, *(io[key] for key in io if key.startswith("in")))
        for output, want in zip(found.values(), (io[key] for key in io if key.startswith("out")), strict=True):
            assert_close(output, want)
        matched.append(case["id"])
    assert refused == REFUSED
    assert len(matched) == 12


def test_published_networks_convert_or_say_what_is_missing(data_root):
    """Without weights everything else about them is checked; data bases do not tell their extents."""
    converted = []
    for file in sorted((data_root / "caffe_prototxt").glob("*.prototxt")):
        try:
            caffe.load(file, require_weights=False)
            converted.append(file.name)
        except UnsupportedError as error:
            for problem in error.problems:
                shape_is_missing = problem.kind.heading == "shape not known" and "data" in problem.node
                no_data_layer = problem.message == "reads 'data', which no layer before it makes"
                assert shape_is_missing or no_data_layer or problem.op in LOSSES, (file.name, problem)
    assert len(converted) == 18
    assert sum("deploy" in name for name in converted) == 4
