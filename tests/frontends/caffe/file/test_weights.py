"""Weight files: against protobuf's own parser, in every form that blobs were ever stored in, and damaged."""

import contextlib
import random
import struct

import numpy as np
import pytest

from tests.support.caffe.networks import weights_message, write_weights
from tpuconvert.frontends.caffe.file.messages import message_class, new_message
from tpuconvert.frontends.caffe.file.weights import read_weights
from tpuconvert.schema.errors import CorruptInputError


def store(folder, message):
    path = folder / "w.caffemodel"
    path.write_bytes(message if isinstance(message, bytes) else message.SerializeToString())
    return path


def one_layer(**blob):
    net = new_message("NetParameter")
    net.name = "n"
    layer = net.layer.add(name="a", type="Scale")
    layer.blobs.add(**blob)
    return net


def test_agrees_with_protobuf_on_trained_networks(data_root):
    files = sorted(data_root.glob("models/*/model.caffemodel"))
    assert len(files) == 11
    for file in files:
        net = message_class("NetParameter").FromString(file.read_bytes())
        expected = {layer.name: layer.blobs for layer in [*net.layer, *net.layers] if layer.blobs}
        weights = read_weights(file)
        assert weights.keys() == expected.keys()
        for name, blobs in expected.items():
            for blob, want in zip(weights[name], blobs, strict=True):
                assert np.array_equal(blob.data.reshape(-1), np.array(want.data, np.float32))


def test_shapes_and_values(tmp_path):
    path = write_weights(tmp_path, {"a": [np.arange(6.0).reshape(2, 3), np.array([7.0])], "b": [], "c": [np.zeros(0)]})
    weights = read_weights(path)
    assert list(weights) == ["a", "c"]
    assert weights["a"][0].data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert weights["a"][0].data.dtype == np.float32
    assert weights["a"][1].shape == (1,)
    assert weights["c"][0].shape == (0,)


def test_legacy_shape(tmp_path):
    (blob,) = read_weights(store(tmp_path, one_layer(num=1, channels=1, height=2, width=3, data=range(6))))["a"]
    assert blob.shape == (1, 1, 2, 3)


def test_double_and_half_precision(tmp_path):
    doubles = one_layer(shape={"dim": [2]}, double_data=[1.5, 1e-50])
    assert read_weights(store(tmp_path, doubles))["a"][0].data.tolist() == [1.5, 0.0]
    halves = one_layer(shape={"dim": [2]}, raw_data_type=2, raw_data=np.array([0.5, -2], "<f2").tobytes())
    assert read_weights(store(tmp_path, halves))["a"][0].data.tolist() == [0.5, -2.0]


def test_elements_that_are_not_packed(tmp_path):
    """As files from before packed fields have them: a tag before every element."""
    values = np.linspace(-1, 1, 100, dtype=np.float32)
    blob = b"".join(b"\x2d" + struct.pack("<f", value) for value in values) + b"\x3a\x03\x0a\x01\x64"
    layer = b"\x0a\x01a" + b"\x3a" + bytes([len(blob) & 0x7F | 0x80, len(blob) >> 7]) + blob
    net = b"\x0a\x01n" + b"\xa2\x06" + bytes([len(layer) & 0x7F | 0x80, len(layer) >> 7]) + layer
    assert message_class("NetParameter").FromString(net).layer[0].blobs[0].data == values.tolist()
    assert np.array_equal(read_weights(store(tmp_path, net))["a"][0].data, values)


def test_v1_and_v0_layers(tmp_path):
    net = new_message("NetParameter")
    net.layers.add(name="v1").blobs.add(shape={"dim": [1]}, data=[1])
    net.layers.add().layer.name = "v0"
    net.layers[1].layer.blobs.add(num=1, channels=1, height=1, width=1, data=[2])
    weights = read_weights(store(tmp_path, net))
    assert {name: blobs[0].data.tolist() for name, blobs in weights.items()} == {"v1": [1], "v0": [[[[2]]]]}


def test_parameters_of_forks_do_not_matter(tmp_path):
    """Field 147 is a message with numbers in one fork and with texts in another."""
    layer = weights_message({"a": [np.ones(2)]}).layer[0].SerializeToString() + b"\x9a\x09\x03\x0a\x01\xff"
    net = b"\x0a\x01n\xa2\x06" + bytes([len(layer)]) + layer
    assert read_weights(store(tmp_path, net))["a"][0].data.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        ({"shape": {"dim": [3]}, "data": [1, 2]}, "holds 2 elements instead of 3"),
        ({"shape": {"dim": [-1, -2]}, "data": [1, 2]}, r"a blob of shape \[-1, -2\]"),
        ({"shape": {"dim": [1 << 62, 1 << 62]}, "data": [1]}, "holds 1 elements"),
        ({"shape": {"dim": [1] * 40}, "data": [1]}, "a blob of 40 axes"),
        ({"raw_data_type": 3, "raw_data": b"1234"}, "elements of type 3"),
        ({"raw_data_type": 2, "raw_data": b"123"}, "do not hold elements of 2 bytes"),
    ],
)
def test_blobs_that_contradict_themselves(tmp_path, blob, words):
    with pytest.raises(CorruptInputError, match=words):
        read_weights(store(tmp_path, one_layer(**blob)))


def test_every_truncation_is_one_clear_error(tmp_path):
    """Cut between layers, a file is a shorter one; everywhere else it is damaged."""
    blobs = {"first": [np.arange(20.0)], "second": [np.ones((2, 3)), np.ones(2)]}
    content = weights_message(blobs).SerializeToString()
    names, told = set(), []
    for size in range(1, len(content)):
        try:
            names.add(tuple(read_weights(store(tmp_path, content[:size]))))
        except CorruptInputError as error:
            told.append((error.exit_code, "w.caffemodel" in str(error), bool(error.hint)))
    assert names == {("first",)}
    assert set(told) == {(4, True, True)}


def test_damaged_bytes_never_escape_as_another_error(tmp_path):
    content = weights_message({"a": [np.arange(30.0)], "b": [np.ones((2, 3))]}).SerializeToString()
    generator = random.Random(20240501)
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(generator.randint(1, 6)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        with contextlib.suppress(CorruptInputError):
            read_weights(store(tmp_path, bytes(damaged)))


def test_many_short_runs_take_linear_time(tmp_path):
    """Alternating unpacked fields, which a scan to the end of the file for each of them would make quadratic."""
    blob = b"\x2d\x00\x00\x00\x00\x35\x00\x00\x00\x00" * 50_000
    length = b"\xa0\xc2\x1e"  # 500 000
    layer = b"\x0a\x01a\x3a" + length + blob
    net = b"\xa2\x06" + bytes([(len(layer) & 0x7F) | 0x80, (len(layer) >> 7 & 0x7F) | 0x80, len(layer) >> 14]) + layer
    assert len(read_weights(store(tmp_path, net))["a"][0].data) == 50_000
