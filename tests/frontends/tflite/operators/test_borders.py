"""Signatures, the layout of inputs and outputs, and what a file says about itself."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

import tpuconvert as tc
from tests.support.tflite.cases import numbers
from tests.support.tflite.models import O, S, Signature, T, ops, run, serialize
from tpuconvert.conversion.options.options import group_options
from tpuconvert.conversion.source import Source
from tpuconvert.frontends.tflite import load
from tpuconvert.frontends.tflite.file import metadata
from tpuconvert.schema.errors import CorruptInputError, ThresholdError, UsageError

DOUBLE = S([T("a:0", (2,)), T("b:0", (2,))], [O("ADD", [0, 0], [1], "AddOptions")], [0], [1])
NEGATE = S([T("a:0", (2,)), T("b:0", (2,))], [O("NEG", [0], [1])], [0], [1])
TWO = (Signature("double", [("x", 0)], [("y", 1)]), Signature("negate", [("p", 0)], [("q", 1)], 1))


def write(folder: Path, data: bytes) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(data)
    return path


def test_a_signature_names_inputs_and_outputs(tmp_path: Path) -> None:
    path = write(tmp_path, serialize(DOUBLE, signatures=TWO[:1]))
    graph = load(path)
    assert ([port.name for port in graph.input_ports], [port.name for port in graph.output_ports]) == (["x"], ["y"])
    assert load(path, input_shapes={"x": (5,)}).output_ports[0].shape == (5,)
    assert load(path, input_shapes={"a:0": (5,)}).output_ports[0].shape == (5,)
    assert ops(load(path, outputs=["y"])) == ["add"]
    with tc.Session(tc.convert(path), backend="reference") as session:
        assert session.run({"x": np.asarray([1, 2], np.float32)})["y"].tolist() == [2, 4]


def test_one_of_several_signatures(tmp_path: Path) -> None:
    path = write(tmp_path, serialize(DOUBLE, NEGATE, signatures=TWO))
    for key, expected in (("double", [2, 4]), ("negate", [-1, -2])):
        assert run(load(path, signature=key), [1, 2])[0].tolist() == expected
    with pytest.raises(UsageError, match="2 signatures: 'double', 'negate'"):
        load(path)
    with pytest.raises(UsageError, match="no signature 'half'") as caught:
        load(path, signature="half")
    assert "'double', 'negate'" in caught.value.hint


def test_damaged_signatures(tmp_path: Path) -> None:
    for signature, says in (
        (Signature("s", [("x", 9)], []), "names tensor 9 of 2"),
        (Signature("s", [], [], 3), "names subgraph 3 of 1"),
    ):
        with pytest.raises(CorruptInputError, match=says):
            load(write(tmp_path, serialize(DOUBLE, signatures=[signature])))


def convolution() -> bytes:
    """Two convolutions with a reshape between the second and an output of rank 2."""
    weights = [T("w", data=numbers("w", (4, 3, 3, 3))), T("b", data=numbers("b", (4,)))]
    tensors = [T("x", (1, 6, 5, 3)), *weights, T("y", (1, 6, 5, 4)), T("shape", data=np.asarray([1, -1], np.int32))]
    tensors.append(T("flat", (1, 120)))
    options = {"padding": 0, "stride_h": 1, "stride_w": 1}
    operators = [O("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", options), O("RESHAPE", [3, 4], [5])]
    return serialize(S(tensors, operators, [0], [3, 5]))


def test_keep_io_layout_makes_ports_nchw(tmp_path: Path) -> None:
    path = write(tmp_path, convolution())
    kept, turned = load(path), load(path, keep_io_layout=False)
    x = numbers("x", (1, 6, 5, 3))
    plane, flat = run(kept, x)
    turned_plane, turned_flat = run(turned, x.transpose(0, 3, 1, 2))
    assert [port.shape for port in turned.input_ports] == [(1, 3, 6, 5)]
    assert [port.shape for port in turned.output_ports] == [(1, 4, 6, 5), (1, 120)]
    np.testing.assert_array_equal(turned_plane.transpose(0, 2, 3, 1), plane)
    np.testing.assert_array_equal(turned_flat, flat)
    assert ops(kept).count("permute") == 2
    assert ops(turned).count("permute") == 1  # in front of the reshape


def test_budget_of_transposes(tmp_path: Path) -> None:
    path = write(tmp_path, convolution())
    assert "transposes: 2 left" in tc.convert(path, max_transposes=2).summary()
    with pytest.raises(ThresholdError, match="transposes: 2 left, 1 allowed: 'x:nchw', 'y'") as caught:
        tc.convert(path, max_transposes=1)
    assert caught.value.exit_code == 5
    assert (
        "transposes: 1 left"
        in tc.convert(path, max_transposes=1, source_options=tc.SourceOptions(keep_io_layout=False)).summary()
    )


def test_what_belongs_to_tflite_only(data_root: Path) -> None:
    path = data_root / "models" / "ultraface_rfb_320_onnx" / "model.onnx"
    for arguments, says in (
        ({"signature": "s"}, "--signature"),
        ({"state": "reset"}, "--state reset"),
        ({"keep_io_layout": False}, "--nchw-io"),
    ):
        with pytest.raises(UsageError, match=f"{says} belongs to TFLite models only"):
            tc.convert(path, **group_options(**arguments))  # type: ignore[arg-type]  # by name


def description(*, mean: list[float], std: list[float], identifier: bytes = b"M001") -> bytes:
    """A metadata table with one image input that is normalized, and an output with labels."""
    b = flatbuffers.Builder(256)

    def table(count: int, **slots: tuple[str, Any]) -> int:
        b.StartObject(count)
        for slot, (kind, value) in slots.items():
            number = int(slot.removeprefix("s"))
            if kind == "byte":
                b.PrependUint8Slot(number, value, 0)
            else:
                b.PrependUOffsetTRelativeSlot(number, value, 0)
        return int(b.EndObject())

    def vector(items: list[int]) -> int:
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return int(b.EndVector())

    numbers_ = [b.CreateNumpyVector(np.asarray(values, np.float32)) for values in (mean, std)]
    normalization = table(2, s0=("offset", numbers_[0]), s1=("offset", numbers_[1]))
    unit = table(2, s0=("byte", 1), s1=("offset", normalization))
    image = table(2, s0=("byte", 1))
    content = table(3, s0=("byte", 2), s1=("offset", image))
    units, name = vector([unit]), b.CreateString("photo")
    tensor = table(7, s0=("offset", name), s3=("offset", content), s4=("offset", units))
    label_name = b.CreateString("labels.txt")
    label = table(4, s0=("offset", label_name), s2=("byte", 2))
    labels = vector([label])
    scores = table(7, s6=("offset", labels))
    inputs, outputs = vector([tensor]), vector([scores])
    subgraphs = vector([table(4, s2=("offset", inputs), s3=("offset", outputs))])
    author = b.CreateString("an author")
    b.Finish(table(8, s3=("offset", subgraphs), s4=("offset", author)), file_identifier=identifier)
    return bytes(b.Output())


def write_described(folder: Path, table: bytes, labels: bytes | None = b"cat\ndog\n") -> Path:
    subgraph = S([T("x", (1, 4, 4, 3)), T("y", (1, 4, 4, 3))], [O("RELU", [0], [1])], [0], [1])
    data = serialize(subgraph, metadata={metadata.NAME: table})
    if labels is not None:
        archive = io.BytesIO(data)
        with zipfile.ZipFile(archive, "a") as zipped:
            zipped.writestr("labels.txt", labels)
        data = archive.getvalue()
    return write(folder, data)


def test_what_a_file_says_about_itself(tmp_path: Path) -> None:
    path = write_described(tmp_path, description(mean=[127.5], std=[128.0]))
    graph = load(path)
    assert graph.metadata == {
        "author": "an author",
        "inputs": [{"name": "photo", "content": "image", "color": "RGB", "mean": [127.5], "std": [128.0]}],
        "outputs": [{"labels": ["cat", "dog"]}],
    }
    model = tc.convert(path)
    assert str(model.preprocess) == "fit=stretch,color=RGB,mean=127.5,scale=0.0078125,layout=NHWC"
    given = tc.convert(path, preprocess="mean=1,layout=NHWC").preprocess
    assert str(given).startswith("fit=stretch,color=RGB,mean=1.0")
    turned = tc.convert(path, source_options=tc.SourceOptions(keep_io_layout=False)).preprocess
    assert turned is not None
    assert turned.layout == "NCHW"
    assert "2 labels: cat, dog" in model.summary()
    model.save(tmp_path / "model.tpum")
    assert tc.load(tmp_path / "model.tpum").metadata["outputs"] == [{"labels": ["cat", "dog"]}]


@pytest.mark.parametrize(("mean", "std"), [([1, 2], [1]), ([1], [0]), ([float("nan")], [1]), ([], [1])])
def test_normalization_that_cannot_be(tmp_path: Path, mean: list[float], std: list[float]) -> None:
    """It is left out, as if nothing had been said."""
    assert tc.convert(write_described(tmp_path, description(mean=mean, std=std))).preprocess is None


def test_damaged_metadata_is_a_note(tmp_path: Path) -> None:
    table = description(mean=[1], std=[1])
    for cut in (9, len(table) // 2):
        graph = load(write_described(tmp_path, table[:cut]))
        assert not graph.metadata
        assert any("metadata cannot be read" in note for note in graph.notes)
    assert any(
        "label file 'labels.txt' is not in the model" in note
        for note in load(write_described(tmp_path, table, None)).notes
    )
    assert any(
        "label file 'labels.txt' cannot be read" in note
        for note in load(write_described(tmp_path, table, b"\xff\xfe")).notes
    )


def _patch(data: bytes, local: int, central: int, value: int) -> bytes:
    """Set 16 bits in the headers of the only member of an archive behind a model. Offsets are from their signatures."""
    found = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        start = found.rindex(signature) + offset
        found[start : start + 2] = value.to_bytes(2, "little")
    return bytes(found)


COUNTING = bytes(range(9, 60))
DAMAGED_LZMA = b"\x09\x04\x05\0" + b"\x5d\0\0\x80\0" + b"\xff" * 40
"""Version and size of the properties, valid properties, and a stream that does not begin with 0."""


@pytest.mark.parametrize(
    ("local", "central", "value", "message"),
    [
        (6, 8, 1, "label file 'labels.txt' cannot be read: .*encrypted"),
        (4, 6, 99, "label file 'labels.txt' is not in the model"),
        (8, 10, 99, "label file 'labels.txt' cannot be read: .*compression"),
        (8, 10, zipfile.ZIP_LZMA, "label file 'labels.txt' cannot be read"),
        (8, 10, zipfile.ZIP_BZIP2, "label file 'labels.txt' cannot be read"),
        (8, 10, zipfile.ZIP_DEFLATED, "label file 'labels.txt' cannot be read"),
    ],
    ids=["encrypted", "later version", "unknown compression", "lzma", "bzip2", "deflate"],
)
@pytest.mark.parametrize("content", [COUNTING, DAMAGED_LZMA], ids=["counting", "damaged lzma"])
def test_label_files_that_cannot_be_read(
    tmp_path: Path, local: int, central: int, value: int, message: str, content: bytes
) -> None:
    path = write_described(tmp_path, description(mean=[1], std=[1]), content)
    path.write_bytes(_patch(path.read_bytes(), local, central, value))
    notes = load(path).notes
    assert any(re.search(message, note) for note in notes), notes


def test_other_engine_is_not_run_with_other_ports(tmp_path: Path) -> None:
    """It would take the file's own layout, and the state of the run before."""
    from tpuconvert.conversion.options.options import Options
    from tpuconvert.verify.source_comparison import verify_source

    path = write(tmp_path, convolution())
    for arguments in ({"keep_io_layout": False}, {"state": "ports"}):
        options = Options.of(**arguments)  # type: ignore[arg-type]  # by name
        found = verify_source(tc.convert(path, **group_options(**arguments)), Source(path), options, oracle="auto")  # type: ignore[arg-type]  # by name
        assert found.to_dict()["first_difference"] is None
