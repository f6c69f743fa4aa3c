"""Recognition of wrong files: every frontend reports the format and the next step."""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.frontends.sniffing import SourceFile, corrupt_input, identify
from tpuconvert.schema.errors import CorruptInputError, ResourceLimitError, UsageError
from tpuconvert.schema.system.limits import Limits


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name in names:
            packed.writestr(name, b"content")
    return buffer.getvalue()


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


ONNX_HEAD = bytes([0x08, 0x08, 0x12, 0x07]) + b"pytorch" + bytes(100)
CAFFEMODEL_HEAD = bytes([0x0A, 0x05]) + b"LeNet" + bytes([0xA2, 0x06, 0x10]) + bytes(50)

FILES = [
    ("m.onnx", b"", "empty"),
    ("m.onnx", bytes(1000), "zeros"),
    ("m.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", "lfs"),
    ("m.onnx", b"\n <!DOCTYPE html><html><body>Sign in</body></html>", "html"),
    ("m.onnx", b"<HTML><HEAD></HEAD></HTML>", "html"),
    ("m.xml", b"<?xml version='1.0'?><net name='n'><layers/></net>", "openvino"),
    ("m.xml", b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "xml"),
    ("m.param", b"7767517\n75 83\nInput data 0 1 data\n", "ncnn"),
    ("m.cfg", b"[net]\nbatch=1\n", "darknet"),
    ("m.onnx", b'{"error": "Not Found"}', "json"),
    ("m.onnx", b"404: Not Found", "text"),
    ("m.onnx", b'# a comment\nname: "LeNet"\nlayer { name: "data" }\n', "prototxt"),
    ("m.onnx", b"layers {\n  name: 'x'\n}\n", "prototxt"),
    ("m.onnx", archive("archive/data.pkl", "archive/version"), "pytorch"),
    ("m.zip", archive("model.onnx"), "zip"),
    ("m.keras", archive("config.json", "metadata.json"), "keras"),
    ("m.npz", archive("x.npy"), "npz"),
    ("m.onnx", gzip.compress(b"model"), "compressed"),
    ("m.onnx", npy(), "npy"),
    ("m.h5", b"\x89HDF\r\n\x1a\n" + bytes(100), "hdf5"),
    ("m.onnx", bytes(4) + b"TFL3" + bytes(100), "tflite"),
    ("m.ort", bytes(4) + b"ORTM" + bytes(100), "ort"),
    ("m.onnx", b"TPUM" + bytes(100), "tpum"),
    ("m.onnx", b"\x89PNG\r\n\x1a\n" + bytes(100), "image"),
    ("m.pth", b"\x80\x02}q\x00(X" + bytes(100), "pytorch"),
    ("saved_model.pb", b"\x08\x01\x12\x9a" + bytes(50), "savedmodel"),
    ("m.pb", b"\x0a\x20\x0a\x05input\x12\x0bPlaceholder" + bytes(50), "tensorflow"),
    ("whatever", ONNX_HEAD, "onnx"),
    ("whatever", CAFFEMODEL_HEAD, "caffemodel"),
]


@pytest.mark.parametrize(("name", "content", "expected"), FILES, ids=[f"{kind}-{name}" for name, _, kind in FILES])
def test_identify(name: str, content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    kind = SourceFile(tmp_path / name).kind
    assert kind is not None
    assert kind.id == expected
    assert kind.hint


@pytest.mark.parametrize(
    "character", ["\t", "\r", "\n", "\f", "\v", "\x1b", "\x7f", "\x85", "\u202e", "\u2028", "\u00e9", "💥"]
)
def test_control_characters_are_no_text(character: str) -> None:
    content = f"Not {character} found".encode()
    kind = identify(content, len(content), "m.onnx")
    assert (kind is not None and kind.id == "text") == (character.isprintable() or character in "\t\r\n\f")


def test_noise_is_nothing_in_particular() -> None:
    noise = np.random.default_rng(1).integers(128, 256, 4096, np.uint8).tobytes()
    assert identify(noise, len(noise), "m.onnx") is None


@pytest.mark.parametrize("expected", ["onnx", "tflite", "caffemodel"])
def test_every_frontend_gets_the_same_answer(expected: str, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CorruptInputError, match="this is a Git LFS pointer") as caught:
        SourceFile(path).check(expected, Limits())
    assert caught.value.exit_code == 4
    assert "git lfs pull" in str(caught.value)


def test_damaged_file_of_the_right_kind(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(ONNX_HEAD)
    SourceFile(path).check("onnx", Limits())
    error = corrupt_input(path, "onnx", "it holds no graph")
    assert "not an ONNX model, or a damaged one: it holds no graph" in str(error)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        _ = SourceFile(tmp_path / "absent.onnx").head
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    with pytest.raises(UsageError, match="is a folder") as caught:
        _ = SourceFile(tmp_path).head
    assert "SavedModel" in str(caught.value)


def test_limit_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(ONNX_HEAD)
    with pytest.raises(ResourceLimitError, match=f"{len(ONNX_HEAD)} bytes, more than 10"):
        SourceFile(path).check("onnx", Limits(max_file_bytes=10))


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(ONNX_HEAD)
    file = SourceFile(path)
    assert file.kind is not None
    path.unlink()
    assert file.kind.id == "onnx"
    assert SourceFile.of(file) is file
    assert (str(file), Path(file)) == (str(path), path)


def test_a_folder_as_a_model_has_a_next_step(tmp_path: Path) -> None:
    for call, step in ((tc.convert, "name the file of the model in it"), (tc.load, "name a .tpum file")):
        with pytest.raises(UsageError, match="is a folder") as caught:
            call(tmp_path)
        assert caught.value.hint == step
