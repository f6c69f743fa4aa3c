"""The verifier and reader on files made by the public flatbuffers builder, and on random damage to them."""

from __future__ import annotations

import random
import struct
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
import pytest
from flatbuffers import number_types as N
from flatbuffers.table import Table as Accessor

from tests.support.sampled import sampled
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.file.flatbuffer_reader import FlatBufferError, Limits, read, verify
from tpuconvert.schema.file.flatbuffer_schema import Kind, Schema

SCHEMA = Schema(
    tables={
        "Root": "version:u32=3 name:str! tensors:[Tensor] labels:[str] _ _ option:<Option> child:Root",
        "Tensor": "shape:[i32] type:i8 offset:u64 weights:[f64] flag:bool=true",
        "Conv": "stride:i32=1 bias:f32=0.5",
        "Pool": "_ window:[i16]",
    },
    unions={"Option": ("Conv", "Pool")},
)


def _vector(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def build(*, tag: int = 2, with_name: bool = True, depth: int = 0, identifier: bytes = b"TEST") -> bytes:
    """A file with every kind of field."""
    builder = flatbuffers.Builder(64)
    child = 0
    for _ in range(depth):
        name = builder.CreateString("child")
        builder.StartObject(9)
        builder.PrependUOffsetTRelativeSlot(1, name, 0)
        builder.PrependUOffsetTRelativeSlot(8, child, 0)
        child = builder.EndObject()
    tensors = []
    for index in range(3):
        builder.StartVector(4, 2, 4)
        builder.PrependInt32(index + 5)
        builder.PrependInt32(7)
        shape = builder.EndVector()
        builder.StartVector(8, 1, 8)
        builder.PrependFloat64(0.25)
        weights = builder.EndVector()
        builder.StartObject(5)
        builder.PrependUOffsetTRelativeSlot(0, shape, 0)
        builder.PrependInt8Slot(1, index, 0)
        builder.PrependUint64Slot(2, 1 << 40, 0)
        builder.PrependUOffsetTRelativeSlot(3, weights, 0)
        tensors.append(builder.EndObject())
    tensor_vector = _vector(builder, tensors)
    labels = _vector(builder, [builder.CreateString(text) for text in ("a", "ünï", "")])
    if tag == 1:
        builder.StartObject(2)
        builder.PrependInt32Slot(0, 9, 1)
    else:
        builder.StartVector(2, 3, 2)
        for value in (1, 2, 3):
            builder.PrependInt16(value)
        window = builder.EndVector()
        builder.StartObject(2)
        builder.PrependUOffsetTRelativeSlot(1, window, 0)
    option = builder.EndObject()
    name = builder.CreateString("net") if with_name else 0
    builder.StartObject(9)
    builder.PrependUint32Slot(0, 5, 3)
    builder.PrependUOffsetTRelativeSlot(1, name, 0)
    builder.PrependUOffsetTRelativeSlot(2, tensor_vector, 0)
    builder.PrependUOffsetTRelativeSlot(3, labels, 0)
    builder.PrependUint8Slot(6, tag, 0)
    builder.PrependUOffsetTRelativeSlot(7, option, 0)
    builder.PrependUOffsetTRelativeSlot(8, child, 0)
    builder.Finish(builder.EndObject(), file_identifier=identifier)
    return bytes(builder.Output())


_FLAGS: dict[str, Any] = {
    **{"bool": N.BoolFlags, "i8": N.Int8Flags, "u8": N.Uint8Flags, "i16": N.Int16Flags, "u16": N.Uint16Flags},
    **{"i32": N.Int32Flags, "u32": N.Uint32Flags, "i64": N.Int64Flags, "u64": N.Uint64Flags},
    **{"f32": N.Float32Flags, "f64": N.Float64Flags},
}


def read_all(buffer: bytes) -> int:
    """Read everything through the accessors of the flatbuffers package, which follow offsets blindly."""
    root = struct.unpack_from("<I", buffer)[0]
    return _read_table(buffer, Accessor(buffer, root), "Root")


def _read_table(buffer: bytes, accessor: Any, name: str) -> int:
    count = 0
    for field in SCHEMA.tables[name].fields:
        offset = accessor.Offset(4 + 2 * field.slot)
        if not offset:
            continue
        count += 1
        at = accessor.Pos + offset
        if field.kind is Kind.SCALAR:
            accessor.Get(_FLAGS[field.type], at)
        elif field.kind is Kind.STRING:
            accessor.String(at)
        elif field.kind is Kind.TABLE:
            count += _read_table(buffer, Accessor(buffer, accessor.Indirect(at)), field.type)
        elif field.kind is Kind.UNION:
            tag_offset = accessor.Offset(4 + 2 * (field.slot - 1))
            tag = accessor.Get(N.Uint8Flags, accessor.Pos + tag_offset) if tag_offset else 0
            member = SCHEMA.unions[field.type][tag - 1]
            count += _read_table(buffer, Accessor(buffer, accessor.Indirect(at)), member)
        else:
            start, length = accessor.Vector(offset), accessor.VectorLen(offset)
            for index in range(length):
                element = start + index * field.size
                if field.kind is Kind.SCALAR_VECTOR:
                    accessor.Get(_FLAGS[field.type], element)
                elif field.kind is Kind.STRING_VECTOR:
                    accessor.String(element)
                else:
                    count += _read_table(buffer, Accessor(buffer, accessor.Indirect(element)), field.type)
    return count


def check(buffer: bytes, **options: Any) -> None:
    verify(memoryview(buffer), SCHEMA, "Root", b"TEST", **group_options(**options))


class Conv(NamedTuple):
    stride: int = 1
    bias: float = 0.5


class Pool(NamedTuple):
    window: tuple[int, ...] = ()


class Tensor(NamedTuple):
    shape: tuple[int, ...] = ()
    type: int = 0
    offset: int = 0
    weights: tuple[float, ...] = ()
    flag: bool = True


class Root(NamedTuple):
    name: str
    version: int = 3
    tensors: tuple[Tensor, ...] = ()
    labels: tuple[str, ...] = ()
    option: Conv | Pool | None = None
    child: Any = None


ROWS = {row.__name__: row for row in (Conv, Pool, Tensor, Root)}


def read_root(buffer: bytes, **options: Any) -> Any:
    return read(memoryview(buffer), SCHEMA, "Root", b"TEST", ROWS, **options)


def patch_bytes(buffer: bytes, position: int, layout: str, value: int) -> bytes:
    copy = bytearray(buffer)
    struct.pack_into(layout, copy, position, value)
    return bytes(copy)


def field_position(buffer: bytes, slot: int) -> int:
    root = struct.unpack_from("<I", buffer)[0]
    vtable = root - struct.unpack_from("<i", buffer, root)[0]
    return int(root + struct.unpack_from("<H", buffer, vtable + 4 + 2 * slot)[0])


@pytest.mark.parametrize("tag", [1, 2])
def test_valid_files_pass(tag: int) -> None:
    buffer = build(tag=tag, depth=3)
    check(buffer)
    assert read_all(buffer) == 6 + (3 + 4 + 4) + (2 + 2 + 1) + 1  # root; tensors; children; option


def test_reads_every_kind_of_field() -> None:
    tensors = tuple(Tensor((7, index + 5), index, 1 << 40, (0.25,), True) for index in range(3))
    child = Root("child", child=Root("child"))
    expected = Root("net", 5, tensors, ("a", "ünï", ""), Pool((3, 2, 1)), child)
    assert read_root(build(depth=2)) == expected
    assert read_root(build(tag=1)) == expected._replace(option=Conv(9), child=None)
    unknown = patch_bytes(build(), field_position(build(), 6), "<B", 9)
    assert read_root(unknown, allow_unknown_union_tags=True) == expected._replace(option=None, child=None)


@pytest.mark.parametrize("length", [3, 300])
def test_reads_vectors_of_every_length(length: int) -> None:
    """Long ones are arrays, which take less time than tuples."""
    numbers = [0.5 * index for index in range(length)]
    builder = flatbuffers.Builder(64)
    weights = builder.CreateNumpyVector(np.array(numbers))
    builder.StartObject(5)
    builder.PrependUOffsetTRelativeSlot(3, weights, 0)
    tensors = _vector(builder, [builder.EndObject()])
    name = builder.CreateString("net")
    builder.StartObject(9)
    builder.PrependUOffsetTRelativeSlot(1, name, 0)
    builder.PrependUOffsetTRelativeSlot(2, tensors, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TEST")
    [tensor] = read_root(bytes(builder.Output())).tensors
    assert isinstance(tensor.weights, np.ndarray) == (length > 32)
    assert list(tensor.weights) == numbers


def test_description_is_parsed() -> None:
    fields = {field.name: field for field in SCHEMA.tables["Root"].fields}
    assert [field.slot for field in SCHEMA.tables["Root"].fields] == [0, 1, 2, 3, 7, 8]
    assert fields["version"].default == 3
    assert fields["name"].required
    assert SCHEMA.tables["Tensor"].fields[4].default is True
    assert SCHEMA.tables["Pool"].fields[0].slot == 1


@pytest.mark.parametrize(
    "text", ["x", "x:i33", "x:i32 x:i32", "x:[Missing]", "x:<Missing>", "x:str=1", ":i32", "x:[i32", "x:"]
)
def test_malformed_descriptions(text: str) -> None:
    with pytest.raises(ValueError, match="table T"):
        Schema({"T": text})


def test_wrong_identifier_and_short_files() -> None:
    with pytest.raises(FlatBufferError, match="identifier is b'OTHR', expected b'TEST'"):
        check(build(identifier=b"OTHR"))
    verify(build(identifier=b"OTHR"), SCHEMA, "Root", None)
    for length in range(8):
        with pytest.raises(FlatBufferError, match="too few"):
            check(build()[:length])


def test_every_truncation_is_refused() -> None:
    buffer = build(depth=2)
    for length in range(len(buffer) - 2):  # the last string is padded with two bytes that are not used
        with pytest.raises(FlatBufferError):
            check(buffer[:length])


def test_reports_path_of_nested_error() -> None:
    buffer = build()
    tensors = field_position(buffer, 2)
    vector = tensors + struct.unpack_from("<I", buffer, tensors)[0]
    element = vector + 4 + 4  # tensors[1]
    table = element + struct.unpack_from("<I", buffer, element)[0]
    vtable = table - struct.unpack_from("<i", buffer, table)[0]
    shape = table + struct.unpack_from("<H", buffer, vtable + 4)[0]
    with pytest.raises(FlatBufferError) as caught:
        check(patch_bytes(buffer, shape, "<I", 0x7FFFFFF0))
    assert caught.value.path == "tensors[1].shape"
    assert "leaves the file" in caught.value.reason


def test_huge_vector_lengths_are_refused_by_bounds() -> None:
    buffer = build()
    for slot in (1, 2, 3):
        position = field_position(buffer, slot)
        vector = position + struct.unpack_from("<I", buffer, position)[0]
        with pytest.raises(FlatBufferError, match="leave the file"):
            check(patch_bytes(buffer, vector, "<I", 0xFFFFFFFF))


def test_required_field() -> None:
    with pytest.raises(FlatBufferError, match="name: required, but missing"):
        check(build(with_name=False))


def test_unknown_union_tags() -> None:
    buffer = build(tag=1)
    later = patch_bytes(buffer, field_position(buffer, 6), "<B", 9)
    with pytest.raises(FlatBufferError, match=r"option: tag 9 of the union Option"):
        check(later)
    check(later, allow_unknown_union_tags=True)
    with pytest.raises(FlatBufferError, match="option: tag 0"):
        check(patch_bytes(buffer, field_position(buffer, 6), "<B", 0))


def test_alignment() -> None:
    shifted = build()
    root = struct.unpack_from("<I", shifted)[0]
    with pytest.raises(FlatBufferError, match="not aligned"):
        check(patch_bytes(shifted[:8] + b"\0" * 2 + shifted[8:], 0, "<I", root + 2))


def test_strings_must_end_and_may_have_to_be_utf8() -> None:
    buffer = build()
    position = field_position(buffer, 1)
    string = position + struct.unpack_from("<I", buffer, position)[0]
    with pytest.raises(FlatBufferError, match=r"name: string at byte .* zero byte"):
        check(patch_bytes(buffer, string + 4 + 3, "<B", 65))
    latin = patch_bytes(buffer, string + 4, "<B", 0xFF)
    check(latin)
    with pytest.raises(FlatBufferError, match=r"name: string at byte .* is not UTF-8"):
        read_root(latin)


def test_depth_and_visits_are_limited() -> None:
    check(build(depth=63))
    with pytest.raises(FlatBufferError, match="nested more than 64 deep") as caught:
        check(build(depth=64))
    assert caught.value.limit
    with pytest.raises(FlatBufferError, match="more than 10 tables") as caught:
        check(build(), limits=Limits(max_visits=10))
    assert caught.value.limit


def test_limits_visits_of_shared_tables() -> None:
    """Each table lists the one below it twenty times: twenty to the tenth power paths in a few hundred bytes."""
    schema = Schema({"Node": "children:[Node]"})
    builder = flatbuffers.Builder(64)
    builder.StartObject(1)
    below = builder.EndObject()
    for _ in range(10):
        children = _vector(builder, [below] * 20)
        builder.StartObject(1)
        builder.PrependUOffsetTRelativeSlot(0, children, 0)
        below = builder.EndObject()
    builder.Finish(below)
    with pytest.raises(FlatBufferError, match="more than 50000") as caught:
        verify(bytes(builder.Output()), schema, "Node", limits=Limits(max_visits=50_000))
    assert caught.value.limit


def test_cycles_end() -> None:
    buffer = build(depth=1)
    root = struct.unpack_from("<I", buffer)[0]
    position = field_position(buffer, 8)
    # Offsets are unsigned, so only a wrap of 32 bits could lead back; that leaves the file.
    with pytest.raises(FlatBufferError, match="child: offset"):
        check(patch_bytes(buffer, position, "<I", (root - position) % 2**32))


@pytest.mark.parametrize("seed", sampled(range(8)))
def test_random_damage_is_refused_or_readable(seed: int) -> None:
    generator = random.Random(seed)
    valid = [build(tag=1, depth=2), build(tag=2)]
    accepted = 0
    for _ in range(500):
        damaged = bytearray(generator.choice(valid))
        for _ in range(generator.choice([1, 1, 2, 5])):
            position = generator.randrange(len(damaged))
            damaged[position] = generator.choice([0, 1, 4, 0x7F, 0x80, 0xFF, generator.randrange(256)])
        try:
            check(bytes(damaged))
        except FlatBufferError:
            continue
        accepted += 1
        read_all(bytes(damaged))
    assert accepted > 50, f"seed {seed}: the damage should leave many files well formed"


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_are_refused(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(300):
        noise = bytearray(generator.randbytes(generator.randrange(8, 200)))
        noise[4:8] = b"TEST"
        try:
            check(bytes(noise))
        except FlatBufferError:
            continue
        read_all(bytes(noise))
