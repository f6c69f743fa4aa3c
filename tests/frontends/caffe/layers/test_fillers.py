"""Layers that the weight file does not have: fixed fillers, and tensors shared with another layer."""

import numpy as np
import pytest

from tests.support.caffe.networks import layer, load_text, run, with_input
from tpuconvert.schema.errors import UnsupportedError

OTHER = {"other": [np.zeros((7, 7))]}
"""Weights of a layer that no network here has; a weight file needs one."""

X = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)
ROWS = X.reshape(2, 4)


def conv(filler: str, extra: str = "kernel_size: 1") -> str:
    """Parameters of a convolution or deconvolution."""
    return f"convolution_param {{ num_output: 2 {extra} {filler} }}"


CASES = [
    ("Scale", "", X, X),
    ("Scale", "scale_param { bias_term: true }", X, X),
    ("Scale", 'scale_param { filler { value: 3 } bias_term: true bias_filler { type: "constant" value: 1 } }', X,
     3 * X + 1),
    ("Bias", "", X, X),
    ("Bias", "bias_param { filler { value: -2 } }", X, X - 2),
    ("PReLU", "", -X, -X / 4),
    ("PReLU", "prelu_param { filler { value: 0.5 } channel_shared: true }", -X, -X / 2),
    ("BatchNorm", "batch_norm_param { eps: 0.25 }", X, 2 * X),  # mean and variance 0: x / sqrt(eps)
    ("Convolution", conv("weight_filler { value: 2 } bias_filler { value: 1 }"), X,
     np.repeat(2 * X.sum(1, keepdims=True) + 1, 2, 1)),
    ("InnerProduct", "inner_product_param { num_output: 3 weight_filler { value: 1 } }", ROWS,
     np.repeat(ROWS.sum(1, keepdims=True), 3, 1)),
    ("Embed", "embed_param { num_output: 2 input_dim: 9 weight_filler { value: 5 } bias_term: false }", ROWS[:, :1],
     np.full((2, 1, 2), 5.0)),
    # Deconvolution with the kernel [1/4, 3/4, 3/4, 1/4] of Caffe's bilinear filler, per channel: x is read as constant
    # planes, whose inner pixels stay the same
    ("Deconvolution", conv('weight_filler { type: "bilinear" } bias_term: false',
                           "group: 2 kernel_size: 4 stride: 2 pad: 1"), np.ones((1, 2, 2, 2)),
     np.broadcast_to(np.multiply.outer([0.75, 1, 1, 0.75], [0.75, 1, 1, 0.75]), (1, 2, 4, 4))),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "parameters", "x", "expected"), CASES, ids=lambda item: str(item)[:40])
def test_layers_keep_fixed_fillers(type_, parameters, x, expected, tmp_path):
    graph = load_text(tmp_path, with_input(x.shape, layer(type_, parameters)), OTHER)
    np.testing.assert_allclose(run(graph, x)["y"], expected, rtol=1e-6)
    assert any("layer 'layer' is not in the weight file" in note and "its filler" in note for note in graph.notes)


def test_normalize_keeps_its_filler(tmp_path):
    graph = load_text(tmp_path, with_input(X.shape, layer("Normalize", "norm_param { eps: 0 }")), OTHER)
    norm = np.sqrt((X**2).sum((1, 2, 3), keepdims=True))
    np.testing.assert_allclose(run(graph, X)["y"], X / norm, rtol=1e-6)


@pytest.mark.parametrize("kind", ["xavier", "msra", "gaussian", "uniform", "positive_unitball"])
def test_random_fillers_are_refused(kind, tmp_path):
    text = with_input(X.shape, layer("Convolution", conv(f'weight_filler {{ type: "{kind}" }}')))
    with pytest.raises(UnsupportedError, match=rf"no blobs for it, and the filler '{kind}' of its kernel is not fixed"):
        load_text(tmp_path, text, OTHER)


def test_bilinear_filler_needs_a_square_kernel(tmp_path):
    parameters = conv('weight_filler { type: "bilinear" }', "kernel_h: 2 kernel_w: 3")
    with pytest.raises(UnsupportedError, match="the filler 'bilinear' of its kernel is not fixed"):
        load_text(tmp_path, with_input((1, 2, 4, 4), layer("Convolution", parameters)), OTHER)


@pytest.mark.parametrize("type_", ["Convolution", "InnerProduct"])
def test_weights_without_a_filler_are_missing(type_, tmp_path):
    """Caffe would compute with zeros."""
    parameters = conv("") if type_ == "Convolution" else "inner_product_param { num_output: 3 }"
    with pytest.raises(UnsupportedError, match="the weight file has 0 blobs for it"):
        load_text(tmp_path, with_input(X.shape, layer(type_, parameters)), OTHER)


def test_some_blobs_are_not_completed_by_fillers(tmp_path):
    parameters = conv("weight_filler { value: 2 } bias_filler { value: 1 }")
    with pytest.raises(UnsupportedError, match="the weight file has 1 blobs for it, the bias would be number 2"):
        load_text(tmp_path, with_input(X.shape, layer("Convolution", parameters)), {"layer": [np.ones((2, 2, 1, 1))]})


def test_a_renamed_layer_is_not_filled(tmp_path):
    weights = {"old_name": [np.array([0.1, 0.2])]}
    with pytest.raises(UnsupportedError, match="blobs of the shape of its slope for a layer 'old_name'"):
        load_text(tmp_path, with_input(X.shape, layer("PReLU")), weights)


def test_blobs_are_shared_by_name_of_the_parameter(tmp_path):
    named = 'param { name: "w" } param { name: "b" } inner_product_param { num_output: 4 }'
    text = with_input((2, 4), layer("InnerProduct", named, "x", "h", "first"))
    text += layer("InnerProduct", named, "h", "y", "second")
    weight, bias = np.arange(16, dtype=np.float32).reshape(4, 4) / 8, np.array([1, 2, 3, 4], np.float32)
    for owner in ("first", "second"):
        graph = load_text(tmp_path, text, {owner: [weight, bias]})
        expected = (ROWS @ weight.T + bias) @ weight.T + bias
        np.testing.assert_allclose(run(graph, ROWS)["y"], expected, rtol=1e-5)


def test_one_of_the_blobs_is_shared(tmp_path):
    """The other one keeps its filler."""
    first = layer("Convolution", 'param { name: "w" } ' + conv("bias_term: false"), "x", "h", "first")
    second = layer("Convolution", 'param { name: "w" } ' + conv("bias_filler { value: 1 }"), "h", "y", "second")
    kernel = np.array([[1, 2], [3, 4]], np.float32)
    graph = load_text(tmp_path, with_input(X.shape, first + second), {"first": [kernel.reshape(2, 2, 1, 1)]})
    expected = np.einsum("oc,nchw->nohw", kernel @ kernel, X) + 1
    np.testing.assert_allclose(run(graph, X)["y"], expected, rtol=1e-6)


def test_a_shared_blob_of_another_shape_is_refused(tmp_path):
    first = layer("InnerProduct", 'param { name: "w" } inner_product_param { num_output: 4 bias_term: false }',
                  "x", "h", "first")  # fmt: skip
    second = layer("InnerProduct", 'param { name: "w" } inner_product_param { num_output: 3 bias_term: false }',
                   "h", "y", "second")  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"its weight has shape \[4, 4\] in the weight file"):
        load_text(tmp_path, with_input((2, 4), first + second), {"first": [np.ones((4, 4))]})


def test_a_shared_parameter_has_the_filler_of_its_first_layer(tmp_path):
    text = layer("Scale", 'param { name: "s" } scale_param { filler { value: 2 } }', "x", "h", "first")
    text += layer("Scale", 'param { name: "s" } scale_param { filler { value: 5 } }', "h", "z", "second")
    text += layer("Scale", 'param { name: "s" }', "z", "y", "third")
    graph = load_text(tmp_path, with_input(X.shape, text), OTHER)
    np.testing.assert_array_equal(run(graph, X)["y"], 8 * X)


def test_a_shared_filler_of_another_shape_is_refused(tmp_path):
    shared = (
        'param {{ name: "w" }} inner_product_param {{ num_output: {} bias_term: false weight_filler {{ value: 1 }} }}'
    )
    text = layer("InnerProduct", shared.format(4), "x", "h", "first")
    text += layer("InnerProduct", shared.format(3), "h", "y", "second")
    with pytest.raises(UnsupportedError, match=r"its weight has shape \[4, 4\] in layer 'first', the prototxt needs"):
        load_text(tmp_path, with_input((2, 4), text), OTHER)


def test_a_shared_filler_needs_its_layer(tmp_path):
    text = layer("Scale", 'param { name: "s" } scale_param { filler { value: 2 } }', "x", "h", "first")
    text += layer("Scale", 'param { name: "s" }', "x", "y", "second")
    with pytest.raises(UnsupportedError, match="is the parameter 's' of layer 'first', which has no content"):
        load_text(tmp_path, with_input(X.shape, text), OTHER, outputs=["y"])
