"""Older generations, old input fields and phases, as Caffe itself reads them."""

import json

import pytest

from tests.support.caffe.networks import write_text
from tpuconvert.frontends.caffe.file.description import read_description
from tpuconvert.frontends.caffe.file.messages import message_class
from tpuconvert.frontends.caffe.file.upgrade import V0_PARAMETERS, V0_RENAMED, V1_TYPES
from tpuconvert.schema.errors import CorruptInputError

V0 = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { layer { name: "pad1" type: "padding" pad: 2 } bottom: "data" top: "pad1" }
layers {
  layer { name: "conv1" type: "conv" num_output: 4 kernelsize: 5 stride: 2 group: 1 biasterm: false
          weight_filler { type: "gaussian" std: 0.01 } blobs_lr: 1. blobs_lr: 2. weight_decay: 1. }
  bottom: "pad1" top: "conv1"
}
layers { layer { name: "relu1" type: "relu" } bottom: "conv1" top: "conv1" }
layers { layer { name: "pool1" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "conv1" top: "pool1" }
layers { layer { name: "norm1" type: "lrn" local_size: 3 alpha: 0.5 beta: 0.25 } bottom: "pool1" top: "norm1" }
layers { layer { name: "ip1" type: "innerproduct" num_output: 10 biasterm: false } bottom: "norm1" top: "ip1" }
"""
V1 = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1" blobs_lr: 1 blobs_lr: 2 weight_decay: 1
  convolution_param { num_output: 4 kernel_size: 5 stride: 2 group: 1 bias_term: false pad: 2
                      weight_filler { type: "gaussian" std: 0.01 } } }
layers { name: "relu1" type: RELU bottom: "conv1" top: "conv1" }
layers { name: "pool1" type: POOLING bottom: "conv1" top: "pool1" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layers { name: "norm1" type: LRN bottom: "pool1" top: "norm1" lrn_param { local_size: 3 alpha: 0.5 beta: 0.25 } }
layers { name: "ip1" type: INNER_PRODUCT bottom: "norm1" top: "ip1"
  inner_product_param { num_output: 10 bias_term: false } }
"""
CURRENT = """
layer { name: "input" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 4 kernel_size: 5 stride: 2 group: 1 bias_term: false pad: 2
                      weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1" lrn_param { local_size: 3 alpha: 0.5 beta: 0.25 } }
layer { name: "ip1" type: "InnerProduct" bottom: "norm1" top: "ip1"
  inner_product_param { num_output: 10 bias_term: false } }
"""


def describe(folder, text):
    return read_description(write_text(folder, text))


def messages(folder, text):
    return [layer.message for layer in describe(folder, text).layers]


def test_three_generations_of_one_network_are_equal(tmp_path):
    current = messages(tmp_path, CURRENT)
    assert messages(tmp_path, V1) == current
    assert messages(tmp_path, V0) == current


def test_every_v1_type_has_a_name():
    types = message_class("V1LayerParameter").DESCRIPTOR.enum_types_by_name["LayerType"]
    assert set(V1_TYPES) == set(types.values_by_name)


def test_every_v0_parameter_is_moved_or_refused_on_purpose():
    fields = {field.name for field in message_class("V0LayerParameter").DESCRIPTOR.fields}
    moved_by_hand = {"name", "type", "blobs", "blobs_lr", "weight_decay"}
    without_meaning_since_v1 = {"new_num", "new_channels"}
    moved = {name for messages in V0_PARAMETERS.values() for names in messages.values() for name in names.split()}
    old_names = {new: old for old, new in V0_RENAMED.items()}
    assert fields == {old_names.get(name, name) for name in moved} | moved_by_hand | without_meaning_since_v1


def test_every_v0_parameter_arrives():
    layer = message_class("LayerParameter").DESCRIPTOR.fields_by_name
    for messages in V0_PARAMETERS.values():
        for message, names in messages.items():
            fields = layer[message].message_type.fields_by_name if message else layer
            assert set(names.split()) <= set(fields), message


def test_v0_parameters_that_mean_nothing_are_told(tmp_path):
    text = 'layers { layer { name: "a" type: "relu" num_output: 3 } bottom: "x" top: "y" }'
    (layer,) = describe(tmp_path, text).layers
    assert layer.dropped == ["num_output"]


def test_v0_numbers_that_are_out_of_range_today_are_told(tmp_path):
    text = 'layers { layer { name: "a" type: "images" new_height: -1 new_width: 4 } top: "x" }'
    (layer,) = describe(tmp_path, text).layers
    assert layer.dropped == ["new_height: -1"]
    assert layer.message.image_data_param.new_width == 4


def test_v1_weight_sharing_names_become_param_entries(tmp_path):
    text = 'layers { name: "a" type: INNER_PRODUCT bottom: "x" top: "y" param: "w" param: "b" blobs_lr: 0 }'
    (message,) = messages(tmp_path, text)
    assert [(spec.name, spec.lr_mult) for spec in message.param] == [("w", 0), ("b", 1)]


@pytest.mark.parametrize(
    ("fields", "shapes"),
    [
        ('input: "a" input: "b" input_dim: [1, 2, 3, 4, 5, 6, 7, 8]', [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ('input: "a" input: "b" input_shape { dim: 1 dim: 2 } input_shape { dim: 3 }', [[1, 2], [3]]),
        ('input: "a" input_dim: 1 input_dim: 60', [[1, 60]]),
        ('input: "a"', []),
    ],
)
def test_input_fields_become_a_layer(tmp_path, fields, shapes):
    first = messages(tmp_path, fields + ' layer { name: "r" type: "ReLU" bottom: "a" top: "y" }')[0]
    assert (first.type, list(first.top)) == ("Input", ["a", "b"][: len(first.top)])
    assert [list(shape.dim) for shape in first.input_param.shape] == shapes


def test_input_dims_that_do_not_add_up(tmp_path):
    with pytest.raises(CorruptInputError, match="5 input_dim for 2 inputs"):
        describe(tmp_path, 'input: "a" input: "b" input_dim: [1, 2, 3, 4, 5] layer { name: "r" type: "ReLU" }')


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        ("", True),
        ("include { phase: TEST }", True),
        ("include { phase: TRAIN }", False),
        ("include { phase: TRAIN } include { phase: TEST }", True),
        ("exclude { phase: TEST }", False),
        ("exclude { phase: TRAIN }", True),
        ("include { stage: 'deploy' }", True),
        ("include { stage: 'deploy' stage: 'other' }", False),
        ("include { not_stage: 'deploy' }", False),
        ("include { min_level: 2 }", True),
        ("include { min_level: 3 }", False),
        ("include { max_level: 1 }", False),
        ("exclude { phase: TRAIN stage: 'deploy' }", True),
    ],
)
def test_rules_are_those_of_the_test_phase(tmp_path, rule, runs):
    text = (
        'state { phase: TRAIN level: 2 stage: "deploy" } layer { name: "a" type: "ReLU" }'
        f'layer {{ name: "b" type: "ReLU" {rule} }}'
    )
    net = describe(tmp_path, text)
    assert [layer.message.name for layer in net.layers] == (["a", "b"] if runs else ["a"])
    assert net.left_out == ([] if runs else ["b"])


def test_include_and_exclude_at_once(tmp_path):
    with pytest.raises(CorruptInputError, match="include and exclude"):
        describe(tmp_path, "layer { name: 'a' type: 'ReLU' include { phase: TEST } exclude { phase: TRAIN } }")


def test_both_forms_at_once(tmp_path):
    with pytest.raises(CorruptInputError, match="mixes 'layer' with 'layers'"):
        describe(tmp_path, "layer { name: 'a' } layers { name: 'b' }")


def test_published_networks_have_the_types_that_are_listed(data_root):
    listed = json.loads((data_root / "caffe_prototxt" / "index.json").read_text(encoding="utf-8"))
    assert len(listed) == 41
    for entry in listed:
        net = read_description(data_root / entry["file"])
        assert net.layers and net.unknown == []
        assert all(layer.message.type and not layer.dropped and not layer.unknown for layer in net.layers), entry[
            "file"
        ]
