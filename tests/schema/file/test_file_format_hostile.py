"""Damaged, hostile and wrong files: each is rejected with one CorruptInputError."""

import os
import random
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash

from tests.support.networks.tpum_models import MODELS, control_model, kinds_model, of_version, rich_model, tiny_model
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.file_encoder import encode
from tpuconvert.schema.file.file_format import ALIGNMENT, HEADER_SIZE, FileModel, read_model, write_model
from tpuconvert.schema.file.flatbuffer_writer import FlatBufferWriter, TableForm

MUTATIONS = 1500  # per model
SAMPLE = 75  # of them in every run


def update_digest(content: bytes | bytearray) -> bytes:
    """Update the digest, so that the checks after it are tested."""
    digest = xxhash.xxh3_128(content[HEADER_SIZE:]).digest()
    return bytes(content[:56]) + b"xxh3-128" + digest + bytes(content[80:])


def reading(path: Path, content: bytes) -> FileModel | CorruptInputError:
    """Read the content. Return the model, or the CorruptInputError."""
    path.write_bytes(content)
    try:
        return read_model(path)
    except CorruptInputError as error:
        return error


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(CorruptInputError) as caught:
        read_model(path)
    error = caught.value
    assert error.exit_code == 4 and error.file == str(path) and error.hint and error.message
    return str(error)


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    write_model(tmp_path / "original.tpum", tiny_model())
    return (tmp_path / "original.tpum").read_bytes()


def test_every_truncation(tmp_path: Path, content: bytes) -> None:
    for length in range(len(content)):
        refusal(tmp_path / "m.tpum", content[:length])


def test_rejects_truncation_with_matching_header(tmp_path: Path, content: bytes) -> None:
    """Header and digest match the truncated content, so that only the later checks can find it."""
    start, weights_size = struct.unpack_from("<Q16xQ", content, 24)
    metadata = content[start:].rstrip(b"\0")
    weights = content[HEADER_SIZE : HEADER_SIZE + weights_size]
    results = [reading(tmp_path / "m.tpum", build_file(metadata[:size], weights)) for size in range(len(metadata))]
    refused = [isinstance(result, CorruptInputError) for result in results]
    text = sum(len(word) + 8 for word in ("", "tiny", "none", "0"))  # the last bytes; names may lose letters
    assert all(refused[:-text]), [size for size, is_refused in enumerate(refused) if not is_refused]


def build_file(metadata: bytes, weights: bytes) -> bytes:
    """Build a file from metadata and weights, without the code under test."""
    metadata += bytes(-len(metadata) % ALIGNMENT)
    body = weights + bytes(-len(weights) % ALIGNMENT)
    sizes = (3, 128, 128 + len(body) + len(metadata), 128 + len(body), len(metadata), 128, len(body))
    return update_digest(struct.pack("<8sIIQQQQQ72x", b"TPUM\r\n\x1a\n", *sizes) + body + metadata)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_changed_byte_is_noticed(tmp_path: Path, content: bytes, version: int) -> None:
    if version < 3:
        content = of_version(version, content)
    assert isinstance(reading(tmp_path / "m.tpum", content), FileModel)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0x10
        refusal(tmp_path / "m.tpum", bytes(changed))


def mutations(content: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Random damage to the metadata of kinds that break parsers, each with a matching digest."""
    chance = random.Random(seed)
    start, size = struct.unpack_from("<QQ", content, 24)
    end = start + size
    odd = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
    for number in range(count):
        changed = bytearray(content)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            position = chance.randrange(start, end - 8)
            kind = chance.randrange(6)
            if kind == 0:
                changed[position] = chance.randrange(256)
            elif kind == 1:
                struct.pack_into("<I", changed, position & ~3, chance.choice(odd))
            elif kind == 2:
                struct.pack_into("<H", changed, position & ~1, chance.choice(odd) & 0xFFFF)
            elif kind == 3:
                (old,) = struct.unpack_from("<I", changed, position & ~3)
                struct.pack_into("<I", changed, position & ~3, (old + chance.choice((-8, -4, -1, 1, 4, 8))) % (1 << 32))
            elif kind == 4:
                other = chance.randrange(start, end - 8)
                changed[position : position + 4] = changed[other : other + 4]
            else:
                struct.pack_into("<Q", changed, position & ~7, chance.choice((0, 1 << 62, (1 << 64) - 1, 1 << 31)))
        yield f"seed {seed}, mutation {number}", update_digest(changed)


@pytest.mark.parametrize("count", [SAMPLE, pytest.param(MUTATIONS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_random_damage(tmp_path: Path, name: str, count: int) -> None:
    write_model(tmp_path / "original.tpum", MODELS[name]())
    models = 0
    for what, content in mutations((tmp_path / "original.tpum").read_bytes(), zlib.crc32(name.encode()), count):
        try:
            result = reading(tmp_path / "m.tpum", content)
        except Exception as error:
            pytest.fail(f"{what}: {type(error).__name__}: {error}")
        if isinstance(result, FileModel):
            models += 1
            for value in result.graph.values:  # all constants can be read to their last byte
                if value.data is not None:
                    value.data.tobytes()
    assert 0 < models < count  # names and numbers may change; most damage is found


def repack(path: Path, model: FileModel, change: Callable[[tpum.Model], tpum.Model]) -> bytes:
    """The file of a model whose tables were changed before they were packed."""
    tables, _ = encode(model)
    write_model(path, model)
    content = path.read_bytes()
    weights, size = struct.unpack_from("<QQ", content, 40)
    return build_file(tpum.pack(change(tables)), content[weights : weights + size])


def in_graph(**changes: Any) -> Callable[[tpum.Model], tpum.Model]:
    return lambda t: t._replace(graph=t.graph._replace(**changes))


def in_value(name: str, /, **changes: Any) -> Callable[[tpum.Model], tpum.Model]:
    def change(tables: tpum.Model) -> tpum.Model:
        values = [v._replace(**changes) if v.name == name else v for v in tables.graph.values]
        return in_graph(values=tuple(values))(tables)

    return change


def in_node(index: int, /, **changes: Any) -> Callable[[tpum.Model], tpum.Model]:
    def change(tables: tpum.Model) -> tpum.Model:
        nodes = list(tables.graph.nodes)
        nodes[index] = nodes[index]._replace(**changes)
        return in_graph(nodes=tuple(nodes))(tables)

    return change


def in_attribute(name: str, /, **changes: Any) -> Callable[[tpum.Model], tpum.Model]:
    def change(tables: tpum.Model) -> tpum.Model:
        attributes = [a._replace(**changes) if a.name == name else a for a in tables.attributes]
        return tables._replace(attributes=tuple(attributes))

    return change


def in_buffer(index: int, /, **changes: Any) -> Callable[[tpum.Model], tpum.Model]:
    def change(tables: tpum.Model) -> tpum.Model:
        buffers = list(tables.buffers)
        buffers[index] = buffers[index]._replace(**changes)
        return tables._replace(buffers=tuple(buffers))

    return change


def in_model(**changes: Any) -> Callable[[tpum.Model], tpum.Model]:
    return lambda t: t._replace(**changes)


K = tpum.AttributeKind
PER_AXIS = tpum.Quantization(scale=(1.0, 2.0), zero_point=(0, 0), dtype=tpum.DType.INT8, per_axis=True)

# Changes to the tables of the rich model, and the expected words of the error.
LIES: dict[str, tuple[Callable[[tpum.Model], tpum.Model], str]] = {
    "input out of range": (in_graph(inputs=(0, 99)), "value 99, but there are"),
    "negative input": (in_graph(inputs=(0, -1)), "value -1, but there are"),
    "input twice": (in_graph(inputs=(0, 0)), "computed twice"),
    "input is a constant": (in_graph(inputs=(0, 2)), "is a constant"),
    "fewer ports than inputs": (in_graph(input_ports=()), "number of ports"),
    "fewer ports than outputs": (in_graph(output_ports=()), "number of ports"),
    "output out of range": (in_graph(outputs=(0, 1, 2, 3, 400)), "value 400"),
    "no nodes": (in_graph(nodes=()), "not computed before"),
    "value without producer": (in_graph(nodes=(), outputs=(), output_ports=()), "no node computes"),
    "no symbols": (in_graph(symbols=()), "symbolic dimension"),
    "two values of one name": (in_value("a", name="b"), "same name"),
    "no data type": (in_value("a", dtype=tpum.DType.NONE), "no data type"),
    "another data type": (in_value("a", dtype=tpum.DType.INT8), "is stored as"),
    "another rank": (in_value("a", shape=(1,)), "is stored as"),
    "another extent": (in_value("a", shape=(-1, 4, 8, 9)), "is stored as"),
    "rank 0": (in_value("a", shape=()), "rank 0"),
    "rank 9": (in_value("a", shape=(1,) * 9), "9 extents"),
    "huge shape": (in_value("unread", shape=(1 << 62, 1 << 62)), "elements"),
    "huge constant": (in_value("w", shape=(1 << 62, 4)), "elements"),
    "size that wraps at 64 bits": (in_value("w", shape=(1 << 39, 0, 1 << 39)), "elements"),
    "symbolic constant": (in_value("w", shape=(-1, 3)), "symbolic"),
    "constant of another size": (in_value("w", shape=(4, 4)), "needs 64 bytes"),
    "constant of another type": (in_value("w", dtype=tpum.DType.INT8), "needs 12 bytes"),
    "data out of range": (in_value("w", data=99), "constant 99, but there are"),
    "negative data": (in_value("w", data=-2), "stored integers"),
    "stored out of range": (in_value("w", stored=99), "constant 99, but there are"),
    "stored without a type": (in_value("w", stored_dtype=tpum.DType.NONE), "no data type"),
    "stored, but no data": (in_value("a", stored=0), "no data"),
    "result is a constant": (in_value("a", data=0, shape=(4, 3), stored=-1), "computed twice"),
    "scale of another length": (in_value("w", quantization=PER_AXIS), "2 scales along"),
    "axis out of range": (in_value("w", quantization=PER_AXIS._replace(axis=2)), "axis 2"),
    "no scale": (in_value("a", quantization=tpum.Quantization(dtype=tpum.DType.INT8)), "0 scales"),
    "negative scale": (
        in_value("a", quantization=tpum.Quantization(scale=(-1.0,), zero_point=(0,), dtype=tpum.DType.INT8)),
        "positive",
    ),
    "quantization without a type": (
        in_value("a", quantization=tpum.Quantization(scale=(1.0,), zero_point=(0,))),
        "no data type",
    ),
    "operand that is not made yet": (in_node(0, inputs=(12,)), "not computed before"),
    "operand out of range": (in_node(0, inputs=(1 << 30,)), "not computed before"),
    "negative operand": (in_node(0, inputs=(-2,)), "not computed before"),
    "node without operands": (in_node(0, inputs=()), "lacks its operand"),
    "absent operand that is needed": (in_node(0, inputs=(-1,)), "lacks its operand"),
    "too many operands": (in_node(0, inputs=(0, 0, 0, 0)), "operands"),
    "node without results": (in_node(0, outputs=()), "no results"),
    "too many results": (in_node(2, outputs=(9, 10)), "does not fit"),
    "one result twice": (in_node(3, outputs=(10, 10)), "one twice"),
    "parameter out of range": (in_node(0, attributes=(1 << 20,)), "does not exist"),
    "negative parameter": (in_node(0, attributes=(-1,)), "does not exist"),
    "no parameters": (in_node(3, attributes=()), "lacks its parameter 'axis'"),
    "parameter twice": (in_node(0, attributes=(0, 0)), "given twice"),
    "unknown parameter": (in_attribute("flag", name="flog"), "no parameter 'flog'"),
    "parameter of another kind": (in_attribute("number", kind=K.FLOAT), "stored as FLOAT, expected INT"),
    "parameter without a value": (in_attribute("number", kind=K.NONE), "no value"),
    "Boolean 2": (in_attribute("flag", integer=2), "neither true nor false"),
    "unknown enum member": (in_attribute("color", string="BLUE"), "BLUE"),
    "data type none": (in_attribute("dtype", dtype=tpum.DType.NONE), "parameter 'dtype'"),
    "scalar that does not fit": (in_attribute("scalar", dtype=tpum.DType.UINT8, integer=256), "representable"),
    "pair of three": (in_attribute("pair", integers=(1, 2, 3)), "3 items"),
    "refused by the operator": (in_attribute("axis", integer=-1), "is negative"),
    "axis that infer trips over": (in_attribute("axis", integer=100), "does not fit"),
    "unknown operator": (in_node(0, op="acme_thing"), "not known here: acme_thing"),
    "constant beyond the file": (in_buffer(0, offset=1 << 40), "ends at byte"),
    "last constant beyond the file": (in_buffer(-1, offset=1 << 63), "ends at byte"),
    "constant larger than the file": (in_buffer(-1, size=(1 << 64) - 1), "ends at byte"),
    "constants that overlap": (in_buffer(1, offset=0), "overlaps"),
    "constant that is not aligned": (in_buffer(1, offset=68), "aligned"),
    "constant of no value": (
        lambda t: in_model(buffers=(*t.buffers, tpum.Buffer(offset=t.buffers[-1].offset)))(t),
        "belongs to no value",
    ),
    "no chip": (in_model(chip=tpum.Chip.NONE), "no chip"),
    "not JSON": (in_model(metadata=(tpum.Entry(key="k", json="{"),)), "not JSON"),
    "NaN in JSON": (in_model(metadata=(tpum.Entry(key="k", json="NaN"),)), "not JSON"),
    "deep JSON": (in_model(metadata=(tpum.Entry(key="k", json="[" * 100_000),)), "not JSON"),
    "long number in JSON": (in_model(metadata=(tpum.Entry(key="k", json="9" * 100_000),)), "not JSON"),
    "key twice": (in_model(preprocessing=(tpum.Entry(key="k", json="1"),) * 2), "twice"),
    "port of an unknown type": (
        in_graph(input_ports=(tpum.Port(name="p", dtype="object"),) * 2),
        "unknown type 'object'",
    ),
    "port with other extents": (
        in_graph(input_ports=(tpum.Port(name="p", dtype="float32", shape=(4097, 1, 8, 8)),) * 2),
        "port 'p' has other extents than the input 'x:nchw'",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_rejects_inconsistent_tables(tmp_path: Path, name: str) -> None:
    change, words = LIES[name]
    message = refusal(tmp_path / "m.tpum", repack(tmp_path / "m.tpum", rich_model(), change))
    assert re.search(re.escape(words), message), message


def in_subgraph(index: int, /, **changes: Any) -> Callable[[tpum.Model], tpum.Model]:
    def change(tables: tpum.Model) -> tpum.Model:
        graphs = list(tables.subgraphs)
        graphs[index] = graphs[index]._replace(**changes)
        return tables._replace(subgraphs=tuple(graphs))

    return change


def chain(depth: int, width: int) -> Callable[[tpum.Model], tpum.Model]:
    """Replace the main graph by nested conditions, each with ``width`` nodes whose branches are the same subgraph."""

    def change(tables: tpum.Model) -> tpum.Model:
        leaf = tables.subgraphs[0]._replace(nodes=(), values=tables.subgraphs[0].values[:1], outputs=(0,))
        floats = leaf.values[0]
        attributes = [
            tpum.Attribute(name, K.GRAPH, level) for level in range(depth) for name in ("then_branch", "else_branch")
        ]
        graphs = [leaf]
        for level in range(depth):
            values = [floats._replace(name=f"v{number}") for number in range(width + 1)]
            values.append(floats._replace(name="c", shape=(1,)))
            nodes = [
                tpum.Node("host_if", (2 * level, 2 * level + 1), (width + 1, number), (number + 1,))
                for number in range(width)
            ]
            ports = (tpum.Port("c", "float32", (1,)), tpum.Port("x", "float32", (2,)))
            graphs.append(
                tpum.Graph(f"level{level}", "", "", (), tuple(values), tuple(nodes), (width + 1, 0), (width,), ports,
                           (tpum.Port("y", "float32", (2,)),))
            )  # fmt: skip
            if level:  # inner conditions take their condition as a captured value
                inner = tuple(node._replace(inputs=(width + 1, width + 1, n)) for n, node in enumerate(nodes))
                graphs[-1] = graphs[-1]._replace(nodes=inner)
        return tables._replace(subgraphs=tuple(graphs[:-1]), graph=graphs[-1], attributes=tuple(attributes), buffers=())

    return change


# Changes to the tables of the model with subgraphs (0: then, 1: else, 2: body), and the expected words of the error.
SUBGRAPH_LIES: dict[str, tuple[Callable[[tpum.Model], tpum.Model], str]] = {
    "itself": (in_attribute("then_branch", integer=2), "refers to subgraph 2, but only 2 are stored before it"),
    "the main graph": (in_attribute("body", integer=3), "refers to subgraph 3, but only 3"),
    "negative": (in_attribute("else_branch", integer=-1), "refers to subgraph -1"),
    "another kind": (in_attribute("body", kind=K.INT), "stored as INT, expected GRAPH"),
    "none": (in_attribute("body", kind=K.NONE), "no value"),
    "unused": (in_attribute("else_branch", integer=0), "a subgraph belongs to no node"),
    "lacks subgraphs": (in_model(subgraphs=()), "refers to subgraph"),
    "another number of inputs": (in_subgraph(0, inputs=(), input_ports=()), "is not computed before"),
    "no outputs": (in_subgraph(0, outputs=(), output_ports=()), "0 and 1 results"),
    "too many states": (in_attribute("states", integer=2), "host_loop needs 2 values, got 1"),
    "too deep": (chain(9, 1), "nested more than 8 deep"),
    "too many nodes when expanded": (chain(8, 16), "have more than 1048576 nodes"),
}


@pytest.mark.parametrize("name", SUBGRAPH_LIES)
def test_rejects_inconsistent_subgraphs(tmp_path: Path, name: str) -> None:
    change, words = SUBGRAPH_LIES[name]
    message = refusal(tmp_path / "m.tpum", repack(tmp_path / "m.tpum", control_model(), change))
    assert re.search(re.escape(words), message), message


def test_accepts_nested_subgraphs(tmp_path: Path) -> None:
    content = repack(tmp_path / "m.tpum", control_model(), chain(8, 1))
    assert isinstance(reading(tmp_path / "m.tpum", content), FileModel)


def test_the_unchanged_tables_are_accepted(tmp_path: Path) -> None:
    """The undamaged file is accepted."""
    for model in (rich_model(), kinds_model(), tiny_model(), control_model()):
        assert isinstance(reading(tmp_path / "m.tpum", repack(tmp_path / "m.tpum", model, lambda t: t)), FileModel)


def test_missing_plugin_names_what_to_load(tmp_path: Path) -> None:
    write_model(tmp_path / "m.tpum", rich_model())
    code = "from tpuconvert.schema.file.file_format import read_model; read_model('m.tpum')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "format_test_all_kinds, format_test_split" in done.stderr
    assert "the model needs: acme; load it with plugins=" in done.stderr


def test_a_parameter_that_is_not_stored_takes_its_default(tmp_path: Path) -> None:
    """Older files stay readable after an operator gets a new parameter."""
    model = reading(tmp_path / "m.tpum", repack(tmp_path / "m.tpum", tiny_model(3), in_node(0, attributes=())))
    assert isinstance(model, FileModel) and model.graph.nodes[0].op.attributes()["number"] == 0


def test_unknown_enum_number(tmp_path: Path) -> None:
    content = bytearray(repack(tmp_path / "m.tpum", tiny_model(), lambda t: t))
    (start,) = struct.unpack_from("<Q", content, 24)
    root = start + struct.unpack_from("<I", content, start)[0]
    vtable = root - struct.unpack_from("<i", content, root)[0]
    content[root + struct.unpack_from("<H", content, vtable + 6)[0]] = 200  # Model.chip, slot 1
    assert "200 is not a valid Chip" in refusal(tmp_path / "m.tpum", update_digest(content))


def test_many_tables_that_share_one_long_vector_are_refused(tmp_path: Path) -> None:
    """100,000 values of 100,000 extents each would be 10^10 numbers out of one megabyte."""
    writer = FlatBufferWriter(tpum.SCHEMA)
    shape, name = writer.scalars("q", range(100_000)), writer.string("v")
    value = writer.table(TableForm((0, "O", 0), (2, "O", 0)), name, shape)
    empty = writer.string("")
    graph = writer.table(
        TableForm(*((slot, "O", 0) for slot in (0, 1, 2, 4))), empty, empty, empty, _many(writer, value)
    )
    root = writer.table(TableForm((0, "O", 0), (1, "B", 0), (2, "O", 0), (4, "O", 0)), empty, 1, empty, graph)
    metadata = writer.finish(root, b"TPUM")
    assert "overlap" in refusal(tmp_path / "m.tpum", build_file(metadata, b""))
    with pytest.raises(ValueError, match="overlap"):
        tpum.unpack(memoryview(metadata))


def _many(writer: FlatBufferWriter, value: int) -> int:
    return writer.offsets([value] * 100_000)


WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "zeros": (bytes(5000), "not a .tpum file"),
    "random": (random.Random(1).randbytes(5000), "not a .tpum file"),
    "html": (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "web page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "git lfs pull"),
    "onnx": (b"\x08\x08\x12\x07pytorch\x1a\x032.1:\x80\x01" + bytes(200), "ONNX"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(200), "TFLite"),
    "prototxt": (b'name: "LeNet"\nlayer {\n}\n', "prototxt"),
    "bare metadata": (b"\x10\0\0\0TPUM" + bytes(200), "not a .tpum file"),
    "text mode": (b"TPUM\n\x1a\n" + bytes(500), "binary mode"),
    "magic alone": (b"TPUM\r\n\x1a\n", "ends inside its header"),
    "magic and zeros": (b"TPUM\r\n\x1a\n" + bytes(500), "does not describe"),
    "magic and ones": (b"TPUM\r\n\x1a\n\x01\0\0\0" + b"\xff" * 500, "cut off"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files(tmp_path: Path, name: str) -> None:
    content, words = WRONG[name]
    assert words in refusal(tmp_path / "m.tpum", content)


def test_identifies_onnx_models(tmp_path: Path, data_root: Path) -> None:
    paths = sorted((data_root / "models").rglob("*.onnx"))
    assert paths
    for path in paths:
        assert "ONNX" in refusal(tmp_path / "m.tpum", path.read_bytes()), path


def test_newer_format_version(tmp_path: Path, content: bytes) -> None:
    changed = bytearray(content)
    changed[8] = 5
    message = refusal(tmp_path / "m.tpum", bytes(changed))
    assert "version 5 is newer" in message and "upgrade" in message


@pytest.mark.parametrize(("version", "name"), [(0, b"xxh3-128"), (3, b"crc32\0\0\0"), (3, b"xxh3-129")])
def test_rejects_unknown_digest_algorithms(tmp_path: Path, content: bytes, version: int, name: bytes) -> None:
    changed = bytearray(content)
    changed[8], changed[56:64] = version, name
    assert "does not describe" in refusal(tmp_path / "m.tpum", bytes(changed))


@pytest.mark.parametrize(("field", "version"), [(32, 1), (32, 2), (32, 3), (48, 3)])
def test_rejects_unpadded_parts(tmp_path: Path, content: bytes, field: int, version: int) -> None:
    """One byte more of metadata (32) or weights (48), in a header that is right otherwise."""
    changed = bytearray((of_version(version, content) if version < 3 else content) + b"\0")
    metadata, weights = struct.unpack_from("<Q8xQ", changed, 32)
    metadata, weights = metadata + (field == 32), weights + (field == 48)
    places = (128 + weights, metadata, 128, weights) if version == 3 else (128, metadata, 128 + metadata, weights)
    struct.pack_into("<5Q", changed, 16, len(changed), *places)
    assert "does not describe" in refusal(tmp_path / "m.tpum", update_digest(changed))


def test_messages_of_damage(tmp_path: Path, content: bytes) -> None:
    changed = bytearray(content)
    changed[-1] ^= 1
    assert "some bytes were changed" in refusal(tmp_path / "m.tpum", bytes(changed))
    assert "some bytes were changed" in refusal(tmp_path / "m.tpum", of_version(1, content)[:-1] + b"\x55")
    assert "cut off" in refusal(tmp_path / "m.tpum", content[:-1])
    assert "does not describe" in refusal(tmp_path / "m.tpum", content + b"\0")


def test_rejects_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_model(tmp_path / "absent.tpum")
    with pytest.raises(UsageError, match="folder or a device"):
        read_model(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UsageError, match="folder or a device"):
            read_model(tmp_path / "pipe")
