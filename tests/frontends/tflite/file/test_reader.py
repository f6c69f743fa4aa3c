"""Files that are fine, damaged, hostile, or something else."""

from __future__ import annotations

import dataclasses
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.support.tflite.models import O, S, T, graph_of, run, serialize, single
from tpuconvert.frontends.tflite import load
from tpuconvert.frontends.tflite.file import reader
from tpuconvert.frontends.tflite.file.reader import read_model
from tpuconvert.schema.errors import (
    CorruptInputError,
    ResourceLimitError,
    TpuConvertError,
    UnsupportedError,
    UsageError,
)
from tpuconvert.schema.system.limits import DEFAULT_LIMITS

ADD = single("ADD", [T(shape=(2, 2)), T(data=np.ones((2, 2), np.float32))], [T(shape=(2, 2))], "AddOptions")


def write(folder: Path, data: bytes, name: str = "m.tflite") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"<!DOCTYPE html><html><body>sign in</body></html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
        (b"", "an empty file"),
        (b"\0" * 64, "zero bytes"),
        (b"PK\x03\x04" + b"\0" * 60, "ZIP archive"),
        (b"\x08\x07\x12\x07pytorch" + b"\0" * 40, "ONNX"),
        (bytes(range(7, 200)), "damaged"),
    ],
)
def test_something_else(tmp_path: Path, data: bytes, says: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(CorruptInputError) as caught:
        load(path)
    assert caught.value.exit_code == 4
    assert caught.value.file == str(path)
    assert says in str(caught.value)
    assert caught.value.hint


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load(tmp_path / "absent.tflite")


def test_truncated_files(tmp_path: Path) -> None:
    data = serialize(ADD)
    for length in range(8, len(data) - 4, 7):
        with pytest.raises(CorruptInputError):
            load(write(tmp_path, data[:length]))


def test_damage_is_named_by_its_path(tmp_path: Path) -> None:
    data = bytearray(serialize(ADD))
    name = data.index(b"out0")
    struct.pack_into("<I", data, name - 4, 1 << 30)  # the length of the string
    with pytest.raises(CorruptInputError, match=r"subgraphs\[0\]\.tensors\[2\]\.name"):
        load(write(tmp_path, bytes(data)))


@pytest.mark.parametrize(
    ("subgraph", "says"),
    [
        (dataclasses.replace(ADD, outputs=[9]), r"outputs names tensor 9 of 3"),
        (dataclasses.replace(ADD, operators=[O("ADD", [0, 7], [2])]), r"operators\[0\].inputs names tensor 7"),
        (dataclasses.replace(ADD, operators=[O("ADD", [0, 1], [-1])]), r"operators\[0\].outputs names tensor -1"),
        (dataclasses.replace(ADD, inputs=[]), "neither a constant nor computed before"),
        (dataclasses.replace(ADD, tensors=[T("x", (2, -2)), *ADD.tensors[1:]]), r"shape \[2, -2\]"),
        (
            dataclasses.replace(ADD, tensors=[ADD.tensors[0], T("y", (2, 2), raw=b"abc"), ADD.tensors[2]]),
            "needs 16 bytes",
        ),
    ],
)
def test_indices_and_sizes(tmp_path: Path, subgraph: S, says: str) -> None:
    with pytest.raises(CorruptInputError, match=says):
        load(write(tmp_path, serialize(subgraph)))


def test_two_scales_with_three_zero_points(tmp_path: Path) -> None:
    quantized = T("x", (2, 2), "INT8", scale=(1.0, 2.0), zero_point=(0, 0, 0))
    with pytest.raises(CorruptInputError, match="2 scales and 3 zero points"):
        load(write(tmp_path, serialize(dataclasses.replace(ADD, tensors=[quantized, *ADD.tensors[1:]]))))


@pytest.mark.parametrize("seed", range(6))
def test_random_damage_gives_our_errors_or_a_graph(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    weights = T(data=np.ones((2, 3, 3, 1), np.float32))
    convolution = single(
        "CONV_2D", [T(shape=(1, 4, 4, 1)), weights, T(data=np.zeros(2, np.float32))], [T(shape=(1, 4, 4, 2))],
        "Conv2DOptions", stride_h=1, stride_w=1,
    )  # fmt: skip
    sliced = single(
        "STRIDED_SLICE",
        [T(shape=(4, 4)), *(T(data=np.asarray(n, np.int32)) for n in ([0, 1], [2, 4], [1, 2]))],
        [T(shape=(2, 2))],
        "StridedSliceOptions",
        shrink_axis_mask=0,
    )
    valid = [serialize(ADD), serialize(convolution), serialize(sliced)]
    converted = 0
    codes: set[int] = set()
    for _ in range(150):
        data = bytearray(generator.choice(valid))
        for _ in range(generator.choice([1, 1, 3])):
            data[generator.randrange(8, len(data))] = generator.choice(
                [0, 1, 2, 0x7F, 0x80, 0xFF, generator.randrange(256)]
            )
        path = write(tmp_path, bytes(data))
        try:
            load(path)
            converted += 1
        except TpuConvertError as error:
            codes.add(error.exit_code)
    assert codes <= {3, 4, 6}, f"seed {seed}"
    assert converted > 10, f"seed {seed}: most damage hits numbers, not structure"


def test_reads_buffers_after_the_flatbuffers_part(tmp_path: Path) -> None:
    graph = load(write(tmp_path, serialize(ADD, external=True)))
    assert run(graph, [[1, 2], [3, 4]])[0].tolist() == [[2, 3], [4, 5]]


def test_external_buffer_beyond_the_end(tmp_path: Path) -> None:
    data = serialize(ADD, external=True)
    with pytest.raises(CorruptInputError, match="buffer 1 is at bytes"):
        load(write(tmp_path, data[:-4]))


def test_large_files_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MAPPED_BYTES", 16)
    graph = load(write(tmp_path, serialize(ADD)))
    assert run(graph, [[1, 2], [3, 4]])[0].tolist() == [[2, 3], [4, 5]]


def test_limits(tmp_path: Path) -> None:
    path = write(tmp_path, serialize(ADD))
    for limits, says in (
        (dataclasses.replace(DEFAULT_LIMITS, max_file_bytes=100), "more than 100"),
        (dataclasses.replace(DEFAULT_LIMITS, max_constant_bytes=15), "16 bytes, more than 15"),
        (dataclasses.replace(DEFAULT_LIMITS, max_tensors=2), "3 tensors"),
        (dataclasses.replace(DEFAULT_LIMITS, max_depth=2), "nested more than 2 deep"),
    ):
        with pytest.raises(ResourceLimitError, match=says) as caught:
            load(path, limits=limits)
        assert caught.value.exit_code == 6


@pytest.mark.parametrize(
    ("tensor", "values"),
    [
        (T(data=np.asarray([1.5, -2], np.float16)), [1.5, -2]),
        (T(shape=(2,), type="BFLOAT16", raw=struct.pack("<HH", 0x3FC0, 0xC000)), [1.5, -2]),
        (T(data=np.asarray([True, False])), [1, 0]),
        (T(data=np.asarray([7, -9], np.int64)), [7, -9]),
    ],
)
def test_types_that_are_widened(tmp_path: Path, tensor: T, values: list[float]) -> None:
    graph = graph_of(tmp_path, single("EXPAND_DIMS", [tensor, T(data=np.int32(0))], [T(type=tensor.type)]))
    (output,) = run(graph)
    assert output.reshape(-1).tolist() == values


def test_64_bit_constants_must_fit(tmp_path: Path) -> None:
    large = T(data=np.asarray([1 << 40], np.int64))
    subgraph = single("ADD", [T(shape=(1,), type="INT64"), large], [T(shape=(1,), type="INT64")], "AddOptions")
    with pytest.raises(UnsupportedError, match="holds 1099511627776"):
        load(write(tmp_path, serialize(subgraph)))


def test_four_bit_weights_are_unpacked(tmp_path: Path) -> None:
    """Two numbers per byte, the first one in the low half."""
    path = write(tmp_path, serialize(single("ABS", [T(shape=(3,), type="INT4", raw=bytes([0x7F, 0x08]))], [T()])))
    model = read_model(path)
    assert model.data(model.subgraphs[0].tensors[0]).tolist() == [-1, 7, -8]  # type: ignore[union-attr]  # it has data


def test_operator_codes_above_the_old_field(tmp_path: Path) -> None:
    """GELU is 150: the older one-byte field holds the place holder 127."""
    model = read_model(write(tmp_path, serialize(single("GELU", [T(shape=(1,))], [T(shape=(1,))]))))
    assert model.subgraphs[0].operators[0].name == "GELU"


def test_operator_code_only_in_the_later_field(tmp_path: Path) -> None:
    data = bytearray(serialize(single("DEQUANTIZE", [T(shape=(1,))], [T(shape=(1,))])))
    model = read_model(write(tmp_path, bytes(data)))
    code = model.model.OperatorCodes(0)
    position = code._tab.Pos + code._tab.Offset(4)
    data[position] = 0
    assert read_model(write(tmp_path, bytes(data))).subgraphs[0].operators[0].name == "DEQUANTIZE"


def test_equal_and_missing_names_become_unique(tmp_path: Path) -> None:
    tensors = [T("t", (1,)), T("t", (1,)), T("", (1,))]
    subgraph = S(tensors, [O("ABS", [0], [1]), O("ABS", [1], [2])], [0], [2])
    path = write(tmp_path, serialize(subgraph))
    names = [tensor.name for tensor in read_model(path).subgraphs[0].tensors]
    assert names == ["t", "t#2", "tensor_2"]
    load(path).validate()


def test_options_helper_writes_what_is_read(tmp_path: Path) -> None:
    subgraph = single("SQUEEZE", [T(shape=(1, 2, 1))], [T(shape=(2,))], "SqueezeOptions", squeeze_dims=(0, 2))
    (operator,) = read_model(write(tmp_path, serialize(subgraph))).subgraphs[0].operators
    assert operator.options.table == "SqueezeOptions"
    assert operator.options.get("squeeze_dims") == (0, 2)
