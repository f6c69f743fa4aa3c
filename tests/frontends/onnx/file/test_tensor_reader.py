"""Constants of every element type in every way of storing them, and external data that may not leave the folder."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, narrow
from tpuconvert.frontends.onnx.file.tensor_reader import TensorReader
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.system.limits import DEFAULT_LIMITS
from tpuconvert.schema.types import Array


def reader(folder: Path) -> TensorReader:
    return TensorReader(folder / "model.onnx", DEFAULT_LIMITS)


NUMBERS = [0, 1, -1, 2.5, -3.0, 6.0, 0.125, -7.0]
INTEGERS = [0, 1, 2, 3, 5, 7, 1, 0]
NUMPY_TYPES = ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
               "uint64", "bool"]  # fmt: skip


@pytest.mark.parametrize("name", NUMPY_TYPES)
@pytest.mark.parametrize("raw", [True, False])
def test_numpys_own_types(name: str, raw: bool, tmp_path: Path) -> None:
    values = np.array(NUMBERS if name.startswith("float") else INTEGERS).astype(name)
    if name.startswith("int"):
        values[1] = np.iinfo(values.dtype).min
    code = helper.np_dtype_to_tensor_dtype(values.dtype)
    tensor = helper.make_tensor("t", code, [2, 4], values.tobytes() if raw else values.tolist(), raw=raw)
    found = reader(tmp_path).read(tensor)
    assert found.dtype == values.dtype
    assert np.array_equal(found, values.reshape(2, 4))


NARROW = {
    TensorProto.BFLOAT16: NUMBERS,
    TensorProto.FLOAT8E4M3FN: NUMBERS,
    TensorProto.FLOAT8E4M3FNUZ: NUMBERS,
    TensorProto.FLOAT8E5M2: NUMBERS,
    TensorProto.FLOAT8E5M2FNUZ: NUMBERS,
    TensorProto.INT4: [0, 1, -8, 7, -1],
    TensorProto.UINT4: [0, 15, 3, 8, 9],
}


@pytest.mark.parametrize("code", NARROW, ids=lambda code: ELEMENTS[code].name)
@pytest.mark.parametrize("raw", [True, False])
def test_types_that_numpy_lacks(code: int, raw: bool, tmp_path: Path) -> None:
    tensor = helper.make_tensor("t", code, [len(NARROW[code])], NARROW[code])
    if raw:
        tensor = numpy_helper.from_array(numpy_helper.to_array(tensor), "t")
    found = reader(tmp_path).read(tensor)
    expected = numpy_helper.to_array(tensor).astype(np.float32)  # the onnx package's own decoder
    assert np.array_equal(found.astype(np.float32), expected)
    assert np.array_equal(found.astype(np.float32), np.array(NARROW[code], np.float32))


@pytest.mark.parametrize("code", [c for c in NARROW if "float8" in ELEMENTS[c].name], ids=lambda c: ELEMENTS[c].name)
def test_all_256_float8_values(code: int, tmp_path: Path) -> None:
    numbers = pytest.importorskip("ml_dtypes")
    tensor = TensorProto(name="t", data_type=code, dims=[256], raw_data=bytes(range(256)))
    kind = getattr(numbers, ELEMENTS[code].name.replace("float8", "float8_"))
    expected = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    np.testing.assert_array_equal(reader(tmp_path).read(tensor), expected)


def test_bytes_of_int4_that_onnx_1_16_writes_as_signed_numbers(tmp_path: Path) -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.INT4, dims=[3], int32_data=[-105, 6])
    assert reader(tmp_path).read(tensor).tolist() == [7, -7, 6]
    tensor.int32_data[0] = -129
    with pytest.raises(CorruptInputError, match="outside the range of int4"):
        reader(tmp_path).read(tensor)


def test_scalars_and_empty_tensors(tmp_path: Path) -> None:
    scalar = reader(tmp_path).read(numpy_helper.from_array(np.array(5, np.int64)))
    assert scalar.shape == ()
    assert scalar == 5
    assert reader(tmp_path).read(numpy_helper.from_array(np.empty((0, 3), np.float32))).shape == (0, 3)


@pytest.mark.parametrize("linear", [True, False])
def test_sparse(linear: bool, tmp_path: Path) -> None:
    values = helper.make_tensor("s", TensorProto.FLOAT, [2], [5.0, 7.0])
    positions = [1, 5] if linear else [0, 1, 1, 2]
    indices = helper.make_tensor("i", TensorProto.INT64, [2] if linear else [2, 2], positions)
    found = reader(tmp_path).read_sparse(helper.make_sparse_tensor(values, indices, [2, 3]))
    assert found.tolist() == [[0, 5, 0], [0, 0, 7]]
    outside = helper.make_tensor("i", TensorProto.INT64, [2], [1, 6])
    with pytest.raises(CorruptInputError, match="outside its shape"):
        reader(tmp_path).read_sparse(helper.make_sparse_tensor(values, outside, [2, 3]))


def test_equal_contents_share_memory(tmp_path: Path) -> None:
    """A function is inlined per call and a loop per iteration, and protobuf copies the bytes at each access."""
    tensors, values = reader(tmp_path), np.arange(1000, dtype=np.float32)
    first, second = (tensors.read(numpy_helper.from_array(values, name)) for name in "ab")
    other = tensors.read(numpy_helper.from_array(values + 1, "c"))
    assert np.shares_memory(first, second)
    assert not np.shares_memory(first, other)
    assert np.array_equal(other, values + 1)


def test_narrow_checks_the_range() -> None:
    assert narrow(np.array([1, -5], np.int64)).dtype == np.int32
    assert narrow(np.array([True, False])).tolist() == [1.0, 0.0]
    assert narrow(np.array([1.5])).dtype == np.float32
    with pytest.raises(OverflowError, match="2147483648 does not fit int32"):
        narrow(np.array([1 << 31], np.int64))


# External data


def external(location: str, shape: tuple[int, ...] = (4,), **entries: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.fixture
def weights(tmp_path: Path) -> Array:
    values = np.arange(10, dtype=np.float32)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "w.bin").write_bytes(values.tobytes())
    (tmp_path / "secret.bin").write_bytes(values.tobytes())
    return values


def test_external_data_is_mapped(weights: Array, tmp_path: Path) -> None:
    found = reader(tmp_path / "model").read(external("w.bin", offset="8", length="16"))
    assert np.array_equal(found, weights[2:6])
    assert not found.flags.writeable
    whole = reader(tmp_path / "model").read(external("w.bin", (10,)))
    assert np.array_equal(whole, weights)
    unaligned = reader(tmp_path / "model").read(external("w.bin", (1,), offset="3", length="4"))
    assert unaligned.tobytes() == weights.tobytes()[3:7]


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({"location": "../secret.bin"}, "outside the model's folder"),
        ({"location": "sub/../../secret.bin"}, "outside the model's folder"),
        ({"location": "..\\secret.bin"}, "outside the model's folder"),
        ({"location": "/etc/passwd"}, "absolute path"),
        ({"location": "C:\\secret.bin"}, "absolute path"),
        ({"location": "absent.bin"}, "which does not exist"),
        ({"location": "."}, "which does not exist"),
        ({"location": ""}, "without a location"),
        ({"location": "w.bin", "offset": "30", "length": "16"}, "refers to bytes 30 to 46"),
        ({"location": "w.bin", "offset": "100"}, "refers to bytes"),
        ({"location": "w.bin", "offset": "-4"}, "which is not a number"),
        ({"location": "w.bin", "offset": "9" * 50}, "which is not a number"),
        ({"location": "w.bin", "length": "12"}, "holds 12 bytes"),
    ],
)
def test_external_data_that_is_refused(entries: dict[str, str], complaint: str, weights: Array, tmp_path: Path) -> None:
    location = entries.pop("location")
    with pytest.raises(CorruptInputError) as caught:
        reader(tmp_path / "model").read(external(location, **entries))
    assert complaint in str(caught.value)
    entries["location"] = location  # parameters are shared by repeated runs


def test_links_out_of_the_folder_are_refused(weights: Array, tmp_path: Path) -> None:
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(CorruptInputError, match="outside the model's folder"):
        reader(tmp_path / "model").read(external("link.bin"))
    (tmp_path / "model" / "inside.bin").symlink_to(tmp_path / "model" / "w.bin")
    assert np.array_equal(reader(tmp_path / "model").read(external("inside.bin", length="16")), weights[:4])
