"""Trained networks and published layers against the outputs of other engines.

Tolerance: 1e-4 of the output's range (binary32 sums in another order), 1e-5 absolute for probabilities.
"""

import json

import numpy as np
import pytest

from tests.support.caffe.networks import run
from tpuconvert.__main__ import main
from tpuconvert.frontends import caffe
from tpuconvert.frontends.caffe.file.description import read_description
from tpuconvert.frontends.caffe.node import caffe_op
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
    "cv_data_augmentation_8x6": "changes images for training",
}
WITHOUT_VALUES = {"cv_net_roi_pooling"}
"""The data set holds no regions for it; test_against_loops.py has the layer."""
DATA_BASE_EXTENTS = {
    "cifar10": "data=1,3,32,32",
    "hdf5_classification": "data=10,4",
    "lenet": "data=64,1,28,28",
    "autoencoder": "data=64,1,28,28",
    "mnist_siamese": "pair_data=64,2,28,28",
}
"""Image shapes of the 15 networks that name a database and no crop size, as in the database."""


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
            (problem,) = error.problems
            assert problem.kind.heading == "no TPU operator"
            assert problem.message.startswith(REFUSED[case["id"]])
            refused[case["id"]] = problem.hint
            continue
        if case["id"] in WITHOUT_VALUES:
            assert [value.shape for value in graph.outputs] == [(100, 3, 6, 6)]
            continue
        io = np.load(folder / "io.npz")
        found = run(graph, *(io[key] for key in io if key.startswith("in")))
        for output, want in zip(found.values(), (io[key] for key in io if key.startswith("out")), strict=True):
            assert_close(output, want)
        matched.append(case["id"])
    assert set(refused) == set(REFUSED)
    assert len(matched) == 14


def published_networks(root):
    return sorted((root / "caffe_prototxt").glob("*.prototxt"))


@pytest.mark.parametrize(("step", "expected"), [(10, 4), pytest.param(1, 26, marks=pytest.mark.slow)])
def test_published_networks_pass_check(data_root, capsys, step, expected):
    """All 41, or each tenth, through the command; where only a database has the image extents, these are given."""
    failures, without_help = {}, 0
    assert len(published_networks(data_root)) == 41
    for file in published_networks(data_root)[::step]:
        code = main(["check", str(file)])
        without_help += code == 0
        told = capsys.readouterr().err
        if code == 3 and "has no shape in the prototxt" in told:
            (shape,) = {text for part, text in DATA_BASE_EXTENTS.items() if part in file.name}
            code = main(["check", str(file), "--input-shapes", shape])
            told = capsys.readouterr().err
        if code != 0:
            failures[file.name] = told
    assert failures == {}
    assert without_help == expected


def test_published_networks_become_current_layers(data_root):
    """Every layer of every generation has a type that is converted, or is a loss; no parameter is lost."""
    generations = set()
    for file in published_networks(data_root):
        net = read_description(file)
        generations.add(file.name.split("_")[0])
        for item in net.layers:
            layer = item.message
            assert caffe_op.find(layer.type) or layer.type.endswith("Loss") or any(layer.loss_weight), layer.type
            assert not item.unknown
            assert not item.dropped
        assert not net.unknown
    assert generations == {"v0", "v1", "new"}
