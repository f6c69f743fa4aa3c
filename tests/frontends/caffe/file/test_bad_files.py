"""Files that are not Caffe files get one clear error that names the file and the next step."""

import random

import numpy as np
import pytest

from tests.support.caffe.networks import layer, with_input, write_text, write_weights
from tpuconvert.frontends import caffe
from tpuconvert.schema.errors import CorruptInputError, ResourceLimitError, UnsupportedError, UsageError
from tpuconvert.schema.system.limits import Limits

NETWORK = with_input((1, 4), layer("InnerProduct", "inner_product_param { num_output: 1 }"))
BLOBS = {"layer": [np.ones((1, 4)), np.ones(1)]}
NOT_CAFFE = {
    "empty": b"",
    "html": b"<!DOCTYPE html><html><body>Sign in</body></html>",
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "random": random.Random(5).randbytes(5000),
    "zeros": bytes(4096),
    "tflite": b"\x1c\0\0\0TFL3" + bytes(100),
    "zip": b"PK\x03\x04" + bytes(100),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "onnx": b"\x08\x07\x12\x07pytorch" + bytes(100),
}


@pytest.mark.parametrize("content", NOT_CAFFE.values(), ids=NOT_CAFFE.keys())
def test_as_network(tmp_path, content):
    path = tmp_path / "net.prototxt"
    path.write_bytes(content)
    with pytest.raises(CorruptInputError, match=r"net\.prototxt: ") as error:
        caffe.load(path)
    assert error.value.exit_code == 4
    assert error.value.hint


@pytest.mark.parametrize("content", NOT_CAFFE.values(), ids=NOT_CAFFE.keys())
def test_as_weights(tmp_path, content):
    path = tmp_path / "net.caffemodel"
    path.write_bytes(content)
    with pytest.raises(CorruptInputError, match=r"net\.caffemodel: ") as error:
        caffe.load(write_text(tmp_path, NETWORK), path)
    assert error.value.exit_code == 4
    assert error.value.hint


def test_a_truncated_network(tmp_path):
    """Truncated inside a layer; after its first layer it is a network without output."""
    for size in range(1, len(NETWORK.rstrip())):
        with pytest.raises(CorruptInputError, match=r"net\.prototxt: "):
            caffe.load(write_text(tmp_path, NETWORK[:size]), require_weights=False)


def test_a_truncated_network_names_the_place(tmp_path):
    with pytest.raises(CorruptInputError, match=r"line 2, column 1: .*'layer' of line 1 is not closed"):
        caffe.load(write_text(tmp_path, NETWORK.splitlines()[0][:-1] + "\n"))


def test_swapped_arguments(tmp_path):
    network, weights = write_text(tmp_path, NETWORK), write_weights(tmp_path, BLOBS)
    with pytest.raises(UsageError, match="is a Caffe weight file") as error:
        caffe.load(weights, network)
    assert "MODEL" in error.value.hint
    with pytest.raises(CorruptInputError, match="this is a Caffe prototxt"):
        caffe.load(network, network)


def test_missing_files(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        caffe.load(tmp_path / "none.prototxt")
    with pytest.raises(UsageError, match="no such file"):
        caffe.load(write_text(tmp_path, NETWORK), tmp_path / "none.caffemodel")
    with pytest.raises(UsageError, match="is a folder"):
        caffe.load(tmp_path)


def test_a_solver(tmp_path):
    with pytest.raises(CorruptInputError, match="is a Caffe solver") as error:
        caffe.load(write_text(tmp_path, 'net: "train_val.prototxt"\nbase_lr: 0.01\nlr_policy: "step"\n'))
    assert "net" in error.value.hint


def test_limits(tmp_path):
    path = write_text(tmp_path, NETWORK)
    with pytest.raises(ResourceLimitError, match="bytes, more than 10"):
        caffe.load(path, limits=Limits(max_text_bytes=10))
    with pytest.raises(ResourceLimitError, match="2 layers, more than 1"):
        caffe.load(path, limits=Limits(max_nodes=1))
    with pytest.raises(ResourceLimitError):
        caffe.load(path, write_weights(tmp_path, BLOBS), limits=Limits(max_file_bytes=10))


def test_extents_beyond_all_limits_are_told_before_anything_is_made(tmp_path):
    huge = with_input((1 << 30, 1 << 30, 9, 9), layer("ReLU"))
    with pytest.raises(UnsupportedError, match="elements"):
        caffe.load(write_text(tmp_path, huge))
    wide = with_input((1, 1 << 20), layer("InnerProduct", "inner_product_param { num_output: 1000000 }"))
    with pytest.raises(UnsupportedError, match="more than"):
        caffe.load(write_text(tmp_path, wide))


def test_comments_in_any_encoding(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_bytes("# 网络\n".encode("gbk") + with_input((1, 4), layer("ReLU")).encode())
    assert len(caffe.load(path)) == 1
    path.write_bytes(b"\xef\xbb\xbf" + with_input((1, 4), layer("ReLU")).encode())
    assert len(caffe.load(path)) == 1
