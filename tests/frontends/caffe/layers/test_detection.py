"""Prior boxes by SSD's loops, and a small detector from end to end."""

import math

import numpy as np
import pytest

from tests.support.caffe.networks import layer, load_text, run, with_input
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.ops.host.detection import DetectionOutput


def prior_boxes(folder, parameters, plane=(2, 3), image=(40, 60)):
    text = with_input((1, 1, *plane), "") + with_input((1, 3, *image), "").replace('"x"', '"image"')
    text += layer("PriorBox", f"prior_box_param {{ {parameters} }}", "x image")
    graph = load_text(folder, text)
    assert not graph.nodes, "it depends on extents alone"
    (output,) = graph.outputs
    return output.array


def test_prior_boxes_by_hand(tmp_path):
    """Steps 20: the first center is (10, 10); sizes 10 and sqrt(10 * 40) = 20, then the ratio 4 and its inverse."""
    found = prior_boxes(
        tmp_path, "min_size: 10 max_size: 40 aspect_ratio: 4 aspect_ratio: 1 aspect_ratio: 0.25 variance: 0.5"
    )
    assert found.shape == (1, 2, 2 * 3 * 4 * 4)
    boxes = found[0, 0].reshape(2, 3, 4, 4)
    first = np.array([[5, 5, 15, 15], [0, 0, 20, 20], [0, 7.5, 20, 12.5], [7.5, 0, 12.5, 20]])
    assert boxes[0, 0] == pytest.approx(first / [60, 40, 60, 40])
    assert boxes[1, 2] == pytest.approx(np.add(first, [40, 20, 40, 20]) / [60, 40, 60, 40])
    assert set(found[0, 1]) == {0.5}


@pytest.mark.parametrize(
    ("parameters", "box"),
    [
        ("min_size: 10 step: 8", [-1 / 60, -1 / 40, 9 / 60, 9 / 40]),
        ("min_size: 10 step: 8 clip: true", [0, 0, 9 / 60, 9 / 40]),
        ("min_size: 10 step_h: 20 step_w: 8 offset: 0", [-5 / 60, -5 / 40, 5 / 60, 5 / 40]),
        ("min_size: 10 img_size: 100", [20 / 100, 11.666667 / 100, 30 / 100, 21.666667 / 100]),
    ],
)
def test_prior_box_parameters(tmp_path, parameters, box):
    image = (40, 60)
    if "img_size" in parameters:  # steps 50 and 33.3: the center is (16.7, 25)
        box = [box[1], box[0], box[3], box[2]]
    found = prior_boxes(tmp_path, parameters, image=image)
    assert found[0, 0, :4] == pytest.approx(box, abs=1e-6)


def test_prior_boxes_without_flip_and_with_four_variances(tmp_path):
    found = prior_boxes(tmp_path, "min_size: 10 aspect_ratio: 4 flip: false variance: [0.1, 0.1, 0.2, 0.2]")
    assert found.shape == (1, 2, 2 * 3 * 2 * 4)
    assert found[0, 1, :8] == pytest.approx([0.1, 0.1, 0.2, 0.2] * 2)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("", "min_size is missing"),
        ("min_size: 9 max_size: 3", "above its min_size"),
        ("min_size: 9 variance: 0", "variance"),
    ],
)
def test_impossible_prior_boxes(tmp_path, parameters, words):
    with pytest.raises(UnsupportedError, match=words):
        prior_boxes(tmp_path, parameters)


PRIORS = np.array([[0.0, 0.0, 0.2, 0.2], [0.02, 0.0, 0.22, 0.2], [0.5, 0.5, 0.9, 0.7]], np.float32)
VARIANCES = np.tile(np.array([0.1, 0.1, 0.2, 0.2], np.float32), (3, 1))


def detect(conf, loc=None, variances=VARIANCES, **parameters):
    """Three priors; the first two overlap by 0.9 / 1.1 = 0.82."""
    conf = np.asarray(conf, np.float32)
    batch, classes = conf.shape[0], conf.shape[2]
    loc = np.zeros((batch, 12), np.float32) if loc is None else np.asarray(loc, np.float32)
    prior = np.stack([PRIORS, variances]).reshape(1, 2, 12)
    op = DetectionOutput(num_classes=classes, **parameters)
    (found,) = op.reference(loc, conf.reshape(batch, -1), prior)
    return found[0, 0]


def test_scores_overlaps_and_unused_rows():
    found = detect([[[0.2, 0.8], [0.1, 0.9], [0.7, 0.3]]], confidence_threshold=0.25, nms_threshold=0.5, keep_top_k=4)
    assert found == pytest.approx(
        np.array([[0, 1, 0.9, 0.02, 0, 0.22, 0.2], [0, 1, 0.3, 0.5, 0.5, 0.9, 0.7], [0] * 7, [0] * 7])
    )


def test_the_threshold_itself_does_not_pass():
    found = detect([[[0, 0.5], [0, 0.25], [0, 0.25]]], confidence_threshold=0.25, keep_top_k=3)
    assert found[:, 2].tolist() == [0.5, 0, 0]


def test_center_size_decoding():
    """Prior 3: center (0.7, 0.6), 0.4 x 0.2. The center moves by 0.1 * 1 * 0.4, the width grows by exp(0.2 * 5) = e."""
    loc = np.zeros((1, 12))
    loc[0, 8:] = [1, 0, 5, 0]
    found = detect([[[0, 0], [0, 0], [0, 1]]], loc, code_type=2, confidence_threshold=0.5, keep_top_k=1)
    half = 0.2 * math.e
    assert found[0, 3:] == pytest.approx([0.74 - half, 0.5, 0.74 + half, 0.7])


@pytest.mark.parametrize(
    ("code_type", "encoded", "expected"),
    [(1, False, [0.6, 0.5, 0.9, 0.9]), (1, True, [1.5, 0.5, 0.9, 1.7]), (3, False, [0.54, 0.5, 0.9, 0.74])],
)
def test_corner_decoding(code_type, encoded, expected):
    loc = np.zeros((1, 12))
    loc[0, 8:] = [1, 0, 0, 1]
    found = detect(
        [[[0, 0], [0, 0], [0, 1]]], loc, code_type=code_type, variance_encoded_in_target=encoded,
        confidence_threshold=0.5, keep_top_k=1,
    )  # fmt: skip
    assert found[0, 3:] == pytest.approx(expected)


def test_classes_stay_together_and_the_best_of_all_are_kept():
    conf = [[[0, 0.9, 0.2], [0, 0.1, 0.8], [0, 0.7, 0.6]]]
    found = detect(conf, nms_threshold=1, keep_top_k=4)
    assert found[:, 1:3].tolist() == pytest.approx(np.array([[1, 0.9], [1, 0.7], [2, 0.8], [2, 0.6]]))


def test_without_a_background_class_every_class_counts():
    found = detect([[[0.9], [0.1], [0.3]]], background_label_id=-1, nms_threshold=1)
    assert found[:, 1:3] == pytest.approx(np.array([[0, 0.9], [0, 0.3], [0, 0.1]]))


def test_boxes_per_class():
    loc = np.zeros((1, 3, 2, 4))
    loc[0, 2, 1] = [1, 1, 0, 0]
    found = detect([[[0, 0], [0, 0], [0, 1]]], loc.reshape(1, 24), share_location=False, keep_top_k=1)
    assert found[0, 3:] == pytest.approx([0.6, 0.6, 0.9, 0.7])


def test_only_the_best_candidates_are_compared():
    found = detect([[[0, 0.9], [0, 0.8], [0, 0.7]]], nms_threshold=0.5, nms_top_k=2)
    assert found[:, 2].tolist() == pytest.approx([0.9, 0.0])


def test_a_threshold_that_falls():
    """After each kept box 0.9 is multiplied by 0.6: the second box overlaps by 0.82, more than 0.54."""
    conf = [[[0, 0.9], [0, 0.8], [0, 0.7]]]
    assert (detect(conf, nms_threshold=0.9)[:, 2] > 0).sum() == 3
    assert (detect(conf, nms_threshold=0.9, nms_eta=0.6)[:, 2] > 0).sum() == 2


def test_equal_scores_keep_the_order_of_the_priors():
    found = detect([[[0, 0.5], [0, 0.5], [0, 0.5]]], nms_threshold=1)
    assert found[:, 3].tolist() == pytest.approx([0, 0.02, 0.5])


def test_images_follow_one_another():
    found = detect([[[0, 0.5], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 0.75]]], confidence_threshold=0.1, keep_top_k=2)
    assert found[:, :3].tolist() == [[0, 1, 0.5], [1, 1, 0.75], [0, 0, 0], [0, 0, 0]]


def test_boxes_whose_corners_are_swapped_overlap_nothing():
    loc = np.zeros((1, 12))
    loc[0, :4] = [30, 0, 0, 0]
    found = detect([[[0, 0.9], [0, 0.8], [0, 0.1]]], loc, nms_threshold=0.1)
    assert (found[:, 2] > 0).sum() == 3


def test_shapes_are_checked(tmp_path):
    text = with_input((1, 12), "") + with_input((1, 6), "").replace('"x"', '"c"')
    text += with_input((1, 2, 12), "").replace('"x"', '"p"')
    good = layer("DetectionOutput", "detection_output_param { num_classes: 2 keep_top_k: 5 }", "x c p")
    assert load_text(tmp_path, text + good).outputs[0].shape == (1, 1, 5, 7)
    every = layer("DetectionOutput", "detection_output_param { num_classes: 2 nms_param { top_k: 2 } }", "x c p")
    assert load_text(tmp_path, text + every).outputs[0].shape == (1, 1, 2, 7)
    bad = layer("DetectionOutput", "detection_output_param { num_classes: 3 }", "x c p")
    with pytest.raises(UnsupportedError, match="do not fit 3 priors and 3 classes"):
        load_text(tmp_path, text + bad)
    with pytest.raises(UnsupportedError, match="has no num_classes"):
        load_text(tmp_path, text + layer("DetectionOutput", "", "x c p"))


def test_from_the_prototxt_to_boxes(tmp_path):
    text = with_input((1, 12), "") + with_input((1, 6), "").replace('"x"', '"c"')
    text += with_input((1, 2, 12), "").replace('"x"', '"p"')
    text += layer(
        "DetectionOutput",
        "detection_output_param { num_classes: 2 code_type: CENTER_SIZE keep_top_k: 2 confidence_threshold: 0.25 "
        "nms_param { nms_threshold: 0.5 top_k: 10 } save_output_param { output_directory: 'd' } }",
        "x c p",
    )
    graph = load_text(tmp_path, text)
    prior = np.stack([PRIORS, VARIANCES]).reshape(1, 2, 12)
    found = run(graph, np.zeros((1, 12)), np.array([[0.2, 0.8, 0.1, 0.9, 0.7, 0.3]]), prior)["y"][0, 0]
    assert found[:, 2].tolist() == pytest.approx([0.9, 0.3])
