"""Mutations of files for the campaigns: of bytes, of nested values, of protobuf messages, and of fields per format."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import Any

import yaml
from google.protobuf import text_format
from google.protobuf.message import Message

from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.file_header import HEADER_SIZE, Header

NUMBERS = [0, 1, -1, 2, 7, 64, 127, 128, 255, 256, 32767, 65535, 1 << 20]
NUMBERS += [(1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63)]
REALS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, 1e308, float("inf"), float("-inf"), float("nan")]
TEXTS = ["", "x", "\0", "\n", "..", "/", "a" * 5000, "\u202e", "💥", "%s%n", "input", "conv1"]


# Of any file


def damage_bytes(content: bytes, chance: random.Random) -> bytes:
    """Change, remove, repeat or insert a few bytes, or cut the end off."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        place = chance.randrange(len(found) + 1)
        size = min(chance.choice((1, 1, 2, 4, 8, 64, 1024)), len(found) - place)
        kind = chance.randrange(7)
        if kind == 0 and size:
            found[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            found[place : place + size] = chance.randbytes(size)
        elif kind == 2:
            del found[place : place + size]
        elif kind == 3:
            found[place:place] = found[place : place + size]
        elif kind == 4:
            number = chance.choice(NUMBERS) & ((1 << 64) - 1)
            width = chance.choice((1, 2, 4, 8))
            part = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            found[place : place + width] = part
        elif kind == 5:
            other = chance.randrange(len(found) + 1)
            found[place : place + size] = found[other : other + size]
        elif chance.random() < 0.2:
            del found[place:]
        if not found:
            break
    return bytes(found)


def change_value(value: Any, chance: random.Random) -> Any:
    """Return another value, mostly of the same type."""
    if chance.random() < 0.1:
        return chance.choice([None, True, "x", 1.5, [], {}, 1 << 70])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([value + 1, value - 1, -value, value * 2, *NUMBERS])
    if isinstance(value, float):
        return chance.choice([value * 1e6, -value, *REALS])
    if isinstance(value, str):
        return chance.choice([value[:-1], value + value, *TEXTS])
    if isinstance(value, bytes):
        return damage_bytes(value, chance) if value else b"x"
    return None


def change_tree(tree: Any, chance: random.Random) -> Any:
    """Change one place of nested lists, dictionaries and named tuples."""
    if isinstance(tree, dict) and tree and chance.random() < 0.95:
        key = chance.choice(list(tree))
        kind = chance.random()
        if kind < 0.05:
            return {name: value for name, value in tree.items() if name != key}
        if kind < 0.1:
            return {chance.choice(TEXTS) if name == key else name: value for name, value in tree.items()}
        return {name: change_tree(value, chance) if name == key else value for name, value in tree.items()}
    if isinstance(tree, (list, tuple)) and tree and chance.random() < 0.95:
        if hasattr(tree, "_fields"):
            place = chance.choice(tree._fields)
            return tree._replace(**{place: change_tree(getattr(tree, place), chance)})
        items, place = list(tree), chance.randrange(len(tree))
        kind = chance.random()
        if kind < 0.05:
            del items[place]
        elif kind < 0.1:
            items.insert(place, chance.choice(items))
        elif kind < 0.15:
            other = chance.randrange(len(items))
            items[place], items[other] = items[other], items[place]
        else:
            items[place] = change_tree(items[place], chance)
        return type(tree)(items)
    return change_value(tree, chance)


def change_message(message: Message, chance: random.Random) -> None:
    """Change one field of a protobuf message or of a message in it."""
    present = message.ListFields()
    if not present:
        return
    description, value = chance.choice(present)
    repeated = not isinstance(value, (int, float, str, bytes, bool, Message))
    try:
        if not repeated and isinstance(value, Message):
            change_message(value, chance)
        elif not repeated:
            setattr(message, description.name, change_value(value, chance))
        elif description.message_type is not None and chance.random() < 0.8:
            change_message(chance.choice(value), chance)
        elif chance.random() < 0.3:
            del value[chance.randrange(len(value))]
        elif description.message_type is not None:
            value.add().CopyFrom(chance.choice(value))
        else:
            value[chance.randrange(len(value))] = change_value(chance.choice(value), chance)
    except (TypeError, ValueError, AttributeError, OverflowError):
        message.ClearField(description.name)  # the value does not fit the type of the field


# Of one format


def sign(content: bytes) -> bytes:
    """Store the right digest in a damaged program. Otherwise the reader would refuse it before the other checks."""
    import xxhash

    digest = xxhash.xxh3_128(content[HEADER_SIZE:]).digest()
    return content[:56] + b"xxh3-128" + digest + content[80:]


def damage_signed(content: bytes, chance: random.Random) -> bytes:
    damaged = damage_bytes(content, chance)
    return sign(damaged) if len(damaged) > HEADER_SIZE else damaged


def change_program(content: bytes, chance: random.Random) -> bytes:
    """Change fields of the description of a program, and write a valid header and digest."""
    header = Header.unpack(content[:HEADER_SIZE], len(content))
    start = header.metadata_offset
    tables: Any = tpum.unpack(memoryview(content)[start : start + header.metadata_size])
    for _ in range(chance.choice((1, 1, 2, 3))):
        tables = change_tree(tables, chance)
    try:
        metadata = tpum.pack(tables)
    except Exception:  # the value does not fit the type of the field
        return content
    size = len(metadata)
    metadata += bytes(-size % 64)
    sizes = (size).to_bytes(8, "little")
    changed = content[:start] + metadata
    # header: magic, version, header size, file size, offset and size of the metadata, offset and size of the weights
    changed = changed[:16] + len(changed).to_bytes(8, "little") + changed[24:32] + sizes + changed[40:]
    return sign(changed)


def change_onnx(content: bytes, chance: random.Random) -> bytes:
    import onnx

    message = onnx.ModelProto.FromString(content)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        change_message(message, chance)
    return message.SerializeToString()


def _network() -> Any:
    from tpuconvert.frontends.caffe.file.messages import new_message

    return new_message("NetParameter")


def change_weights(content: bytes, chance: random.Random) -> bytes:
    message = _network()
    message.ParseFromString(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        change_message(message, chance)
    found: bytes = message.SerializePartialToString()
    return found


def change_prototxt(content: bytes, chance: random.Random) -> bytes:
    message = _network()
    text_format.Parse(content.decode(), message)
    for _ in range(chance.choice((1, 1, 2, 3))):
        change_message(message, chance)
    return text_format.MessageToString(message).encode()


def change_flatbuffer(content: bytes, chance: random.Random) -> bytes:
    """Change aligned 32-bit words: offsets, sizes and scalars of the tables, not the weights."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.randrange(len(found) // 4) * 4
        word = int.from_bytes(found[place : place + 4], "little")
        word = chance.choice([word + 4, word - 4, word + 1, word * 2, *NUMBERS]) & 0xFFFFFFFF
        found[place : place + 4] = word.to_bytes(4, "little")
    return bytes(found)


def change_json(content: bytes, chance: random.Random) -> bytes:
    tree = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        tree = change_tree(tree, chance)
    return json.dumps(tree).encode()


def change_yaml(content: bytes, chance: random.Random) -> bytes:
    tree = yaml.safe_load(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        tree = change_tree(tree, chance)
    return yaml.safe_dump(tree).encode()


def change_arrays(content: bytes, chance: random.Random) -> bytes:
    """Change the header or the data of a member, and write a valid archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            member = source.read(name)
            head = damage_bytes(member[:128], chance) if chance.random() < 0.7 else member[:128]
            target.writestr(name, head + member[128:])
    return made.getvalue()


def flip_bit(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(8 * len(content))
    found = bytearray(content)
    found[place // 8] ^= 1 << place % 8
    return bytes(found)
