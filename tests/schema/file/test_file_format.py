"""Round trips, determinism and layout of .tpum files."""

import dataclasses
import errno
import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xxhash

from tests.support import programs
from tests.support.each import each
from tests.support.networks import tpum_models
from tests.support.networks.tpum_models import (
    EVERY_KIND,
    MODELS,
    AllKinds,
    Blocks,
    control_model,
    describe_model,
    of_version,
    rich_model,
    tiny_model,
)
from tpuconvert.schema.definition.op import Op, all_ops
from tpuconvert.schema.errors import InternalError, ResourceLimitError, UsageError
from tpuconvert.schema.file import file_writer, op_attributes
from tpuconvert.schema.file.file_encoder import encode
from tpuconvert.schema.file.file_format import ALIGNMENT, HEADER_SIZE, MAGIC, FileModel, read_model, write_model
from tpuconvert.schema.file.tpum_tables import AttributeKind
from tpuconvert.schema.graph.graph import Graph, Port, Source
from tpuconvert.schema.types import F32, I8, Chip, QuantParams, TensorType

HEADER = struct.Struct("<8sIIQQQQQ8s16s")  # repeated here: the layout must not change


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "m.tpum", MODELS[name]())
    assert describe_model(read_model(tmp_path / "m.tpum")) == describe_model(MODELS[name]())


@pytest.mark.parametrize("name", MODELS)
def test_writing_what_was_read_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "a.tpum", MODELS[name]())
    write_model(tmp_path / "b.tpum", read_model(tmp_path / "a.tpum"))
    assert (tmp_path / "b.tpum").read_bytes() == (tmp_path / "a.tpum").read_bytes()


def test_a_model_can_replace_the_file_it_was_read_from(tmp_path: Path) -> None:
    write_model(tmp_path / "m.tpum", rich_model())
    model = read_model(tmp_path / "m.tpum")
    write_model(tmp_path / "m.tpum", dataclasses.replace(model, quantize="none"))
    assert describe_model(model) == describe_model(rich_model())
    assert read_model(tmp_path / "m.tpum").quantize == "none"


def test_every_kind_of_attribute_is_in_the_test_models() -> None:
    used = {a.kind for op in EVERY_KIND for a in op_attributes.encode(op)}
    used |= {a.kind for a in encode(control_model())[0].attributes}
    assert used == set(AttributeKind)


@each("name", all_ops())
def test_every_operator_can_be_stored(name: str) -> None:
    op_attributes.forms(all_ops()[name])


@pytest.mark.parametrize("name", MODELS)
def test_same_bytes_in_another_process_and_folder(tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "here.tpum", MODELS[name]())
    expected = (tmp_path / "here.tpum").read_bytes()
    for seed in ("0", "4242"):
        folder = tmp_path / f"folder {seed}"
        folder.mkdir()
        program = programs.command(tpum_models.__name__, name, "m.tpum")
        subprocess.run(program, cwd=folder, env=programs.environment(PYTHONHASHSEED=seed), check=True)
        assert (folder / "m.tpum").read_bytes() == expected


def test_bytes_of_the_format(tmp_path: Path) -> None:
    """Bytes of a file of this version. A change on purpose needs another FORMAT_VERSION."""
    write_model(tmp_path / "m.tpum", golden())
    assert hashlib.sha256((tmp_path / "m.tpum").read_bytes()).hexdigest() == GOLDEN_SHA256


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_older_formats_are_read(tmp_path: Path, version: int) -> None:
    write_model(tmp_path / "m.tpum", golden())
    old = of_version(version, (tmp_path / "m.tpum").read_bytes())
    assert hashlib.sha256(old).hexdigest() == OLDER_SHA256[version]
    (tmp_path / "old.tpum").write_bytes(old)
    assert describe_model(read_model(tmp_path / "old.tpum")) == describe_model(golden())


def golden() -> FileModel:
    graph = Graph("golden", "golden.onnx")
    x = graph.input("x", TensorType(F32, ("N", 2)))
    data, integers = np.array([1.5, -2.0], np.float32), np.array([3, -4], np.int8)
    w = graph.constant(data, "w", QuantParams.per_tensor(0.5, 0, I8), integers)
    with graph.source(Source("golden.onnx", "n", "Mul")):
        graph.output(graph.add(AllKinds(real=0.5, numbers=(1, 2), maybe_number=3), x, w, name="y"))
    return FileModel(graph, Chip.BM1686, "1.0", preprocessing={"mean": [0.5]})


GOLDEN_SHA256 = "453b08a2fcb63e7b4ab76298543dbdfce8be012d8891b481028054a84b7b5238"
OLDER_SHA256 = {
    1: "7f25faa9d49bba7c75c75b281f708ccd880b941d7786c0e57639a4da720671d5",
    2: "00a7bc1d600b43f441b72b7cf9f83112dffe5383da5e678797c98bc1275458bc",
}


def test_layout(tmp_path: Path) -> None:
    write_model(tmp_path / "m.tpum", rich_model())
    content = (tmp_path / "m.tpum").read_bytes()
    magic, version, header, size, metadata, metadata_size, weights, weights_size, name, digest = HEADER.unpack_from(
        content
    )
    assert (magic, version, header, weights) == (MAGIC, 3, HEADER_SIZE, HEADER_SIZE) and magic[:4] == b"TPUM"
    assert size == len(content) == metadata + metadata_size
    assert metadata == weights + weights_size and weights_size % ALIGNMENT == metadata_size % ALIGNMENT == 0
    assert content[metadata + 4 : metadata + 8] == b"TPUM"  # the FlatBuffers identifier
    assert name == b"xxh3-128" and digest == xxhash.xxh3_128(content[HEADER_SIZE:]).digest()
    assert not any(content[HEADER.size : HEADER_SIZE])


def test_paths_do_not_enter_the_file(tmp_path: Path) -> None:
    def made(folder: str) -> bytes:
        graph = Graph("g", f"{folder}m.onnx")
        with graph.source(Source(f"{folder}m.onnx", "scope/n", "Relu")):
            graph.output(graph.add(AllKinds(), graph.input("x", TensorType(F32, (1,)))))
        write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1686, "1"))
        return (tmp_path / "m.tpum").read_bytes()

    assert made("/home/user/") == made("C:\\Users\\else\\") == made("")
    assert b"scope/n" in made("")


def test_identical_constants_are_stored_once(tmp_path: Path) -> None:
    graph = Graph()
    data = np.arange(100_000, dtype=np.float32)
    for index in range(5):
        graph.output(graph.constant(data.copy().reshape(100, 1000), f"c{index}"))
    graph.output(graph.constant(data + 1, "other"))
    write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1686, "1"))
    assert 800_000 <= (tmp_path / "m.tpum").stat().st_size < 810_000
    arrays = [value.array for value in read_model(tmp_path / "m.tpum").graph.outputs]
    assert all(np.shares_memory(arrays[0], array) for array in arrays[1:5])
    assert arrays[4].shape == (100, 1000) and arrays[5].shape == (100_000,)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_constants_are_read_only_views_of_one_content(
    tmp_path: Path, is_mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_mapped:
        monkeypatch.setattr("tpuconvert.schema.system.mapped_pages.COPIED_BYTES", 1)
    write_model(tmp_path / "m.tpum", tiny_model(elements=1 << 20))
    (w,) = (value for value in read_model(tmp_path / "m.tpum").graph.values if value.is_constant)
    assert not w.array.flags.writeable and not w.array.flags.owndata
    assert w.array.ctypes.data % ALIGNMENT == 0
    with pytest.raises(ValueError, match="read-only"):
        w.array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        w.array.flags.writeable = True
    if is_mapped and Path("/proc/self/maps").exists():
        address = w.array.ctypes.data
        regions = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        (name,) = (
            region[-1]
            for region in regions
            if int(region[0].split("-")[0], 16) <= address < int(region[0].split("-")[1], 16)
        )
        assert name.endswith("m.tpum"), "the array is not a view of the mapped file"


def test_big_endian_and_strided_constants_have_the_same_bytes(tmp_path: Path) -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name, array in {"plain": data, "big": data.astype(">f4"), "strided": np.asfortranarray(data)}.items():
        graph = Graph()
        graph.output(graph.constant(data, "c"))
        graph.outputs[0].data = array
        write_model(tmp_path / name, FileModel(graph, Chip.BM1686, "1"))
    assert (tmp_path / "big").read_bytes() == (tmp_path / "plain").read_bytes() == (tmp_path / "strided").read_bytes()


def test_neither_onnx_nor_tflite_is_loaded(tmp_path: Path) -> None:
    graph = Graph()
    graph.output(graph.input("x", TensorType(F32, (1,))))
    write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1686, "1"))
    code = (
        "import sys; from tpuconvert.schema.file.file_format import read_model; read_model('m.tpum')\n"
        "assert not {'onnx', 'tflite', 'google.protobuf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@dataclass(frozen=True)
class Unstorable(Op):
    """A field that cannot be stored in a file."""

    name = "format_test_unstorable"
    value: dict[str, int] = dataclasses.field(default_factory=dict)

    def infer(self, *types: TensorType) -> tuple[TensorType]:
        return (TensorType(F32, (1,)),)


def _break(change: Callable[[FileModel], object]) -> FileModel:
    model = rich_model()
    change(model)
    return model


BROKEN: dict[str, Callable[[FileModel], object]] = {
    "attribute of a wrong type": lambda m: setattr(m.graph.nodes[0], "op", AllKinds(number=1.5)),  # type: ignore[arg-type]  # that is wrong with it
    "integer beyond 64 bits": lambda m: setattr(m.graph.nodes[0], "op", AllKinds(numbers=(1 << 63,))),
    "text instead of bytes": lambda m: setattr(m.graph.nodes[0], "op", Blocks(block="text")),  # type: ignore[arg-type]  # that is wrong with it
    "None where it is not allowed": lambda m: setattr(m.graph.nodes[0], "op", AllKinds(text=None)),  # type: ignore[arg-type]  # that is wrong with it
    "field that cannot be stored": lambda m: m.graph.add(Unstorable()),
    "port of an unknown type": lambda m: m.graph.output(m.graph.outputs[0], Port("p", "object", ())),
    "result stored as another type": lambda m: setattr(m.graph.nodes[0].output, "type", TensorType(I8, (1,))),
    "constant of another shape": lambda m: setattr(m.graph.find("w"), "data", np.zeros(3, np.float32)),
    "scales that do not fit the axis": lambda m: setattr(
        m.graph.find("w"), "quant", QuantParams((1.0, 1.0), (0, 0), I8, 1)
    ),
    "value of another graph": lambda m: m.graph.outputs.append(tiny_model().graph.outputs[0]),
    "not JSON": lambda m: m.metadata.update(x={1, 2}),  # type: ignore[attr-defined]  # that is wrong with it
    "NaN is not JSON": lambda m: m.metadata.update(x=float("nan")),  # type: ignore[attr-defined]  # that is wrong with it
    "text that is not Unicode": lambda m: m.graph.notes.append("\ud800"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_does_not_write_unreadable_model(tmp_path: Path, name: str) -> None:
    model = _break(BROKEN[name])
    with pytest.raises(InternalError, match="cannot be written"):
        write_model(tmp_path / "m.tpum", model)
    assert list(tmp_path.iterdir()) == []


def test_nodes_out_of_order_are_not_written(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (1,)))
    first = graph.add(AllKinds(), x, name="first")
    second = graph.add(AllKinds(), x, name="second")
    graph.set_input(first.producer, 0, second)  # type: ignore[arg-type]  # it has a producer
    graph.output(first)
    with pytest.raises(InternalError, match="not computed before it"):
        write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1686, "1"))
    graph.sort()
    write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1686, "1"))


@pytest.mark.parametrize(("name", "words"), [("missing/m.tpum", "create its folder"), ("", "regular file")])
def test_reports_unwritable_path(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        write_model(tmp_path / name, tiny_model())
    assert words in str(caught.value) and caught.value.exit_code == 2


@pytest.mark.parametrize("missing", ["", "posix_fallocate"])
def test_large_files_have_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Space is reserved for them, if the system supports it."""
    write_model(tmp_path / "small.tpum", rich_model())
    monkeypatch.setattr(file_writer, "_MUCH", 100)
    if missing:
        monkeypatch.delattr(os, missing, raising=False)
    write_model(tmp_path / "large.tpum", rich_model())
    assert (tmp_path / "large.tpum").read_bytes() == (tmp_path / "small.tpum").read_bytes()


@pytest.mark.parametrize(("number", "is_written"), [(errno.EOPNOTSUPP, True), (errno.ENOSPC, False)])
def test_reports_failed_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_written: bool
) -> None:
    def fail(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(file_writer, "_MUCH", 100)
    monkeypatch.setattr(os, "posix_fallocate", fail, raising=False)
    if is_written:
        write_model(tmp_path / "m.tpum", rich_model())
        assert describe_model(read_model(tmp_path / "m.tpum")) == describe_model(rich_model())
    else:
        with pytest.raises(ResourceLimitError, match="free space"):
            write_model(tmp_path / "m.tpum", rich_model())
        assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link_and_the_mode_follows_the_umask(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.tpum").symlink_to(tmp_path / "real" / "m.tpum")
    before = os.umask(0o027)
    try:
        write_model(tmp_path / "link.tpum", tiny_model())
    finally:
        os.umask(before)
    assert (tmp_path / "link.tpum").is_symlink()
    assert (tmp_path / "real" / "m.tpum").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["m.tpum"]
