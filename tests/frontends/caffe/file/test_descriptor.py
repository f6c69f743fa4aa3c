"""The descriptor set is in step with frontends/caffe/file/caffe.proto."""

from importlib import resources

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FieldDescriptor

from tools.pages import generate_caffe_descriptor as tool
from tpuconvert.frontends.caffe.file.messages import message_class


def shipped_descriptor():
    content = resources.files("tpuconvert.frontends.caffe.file").joinpath("caffe_descriptor.desc").read_bytes()
    return descriptor_pb2.FileDescriptorSet.FromString(content)


def test_was_made_from_the_text_as_it_is():
    assert shipped_descriptor().file[1].name == tool.digest_entry(tool.PROTO.read_bytes()), (
        "run python -m tools.pages.generate_caffe_descriptor"
    )


def test_compiles_to_the_same():
    pytest.importorskip("grpc_tools", reason="grpcio-tools is needed to compile frontends/caffe/file/caffe.proto")
    assert descriptor_pb2.FileDescriptorSet.FromString(tool.compile_proto()) == shipped_descriptor()


def test_nothing_is_registered_globally():
    message_class("NetParameter")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("tpuconvert.caffe.NetParameter")


# Numbers that files in the world are written with; from Caffe's published schema.
NUMBERS = {
    ("NetParameter", "layer"): 100,
    ("NetParameter", "layers"): 2,
    ("NetParameter", "input_shape"): 8,
    ("LayerParameter", "blobs"): 7,
    ("LayerParameter", "convolution_param"): 106,
    ("LayerParameter", "batch_norm_param"): 139,
    ("LayerParameter", "scale_param"): 142,
    ("LayerParameter", "prelu_param"): 131,
    ("V1LayerParameter", "blobs"): 6,
    ("V1LayerParameter", "name"): 4,
    ("V0LayerParameter", "blobs"): 50,
    ("BlobProto", "data"): 5,
    ("BlobProto", "shape"): 7,
    ("ConvolutionParameter", "dilation"): 18,
    ("PoolingParameter", "round_mode"): 13,
}


@pytest.mark.parametrize(("place", "number"), NUMBERS.items(), ids=lambda item: str(item))
def test_field_numbers(place, number):
    assert message_class(place[0]).DESCRIPTOR.fields_by_name[place[1]].number == number


def test_every_layer_parameter_is_a_message_of_its_own():
    for field in message_class("LayerParameter").DESCRIPTOR.fields:
        assert field.name.endswith("_param") == (field.number >= 100)
        assert field.number < 100 or field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
