"""Packed weights in a file: equal results on every instruction set, and files that are stale, foreign or damaged."""

import gc
import json
import os
import struct
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from native_cases import make

import tpuconvert as tc
from tpuconvert.runtime import packed_file
from tpuconvert.runtime.native.call_record import Decoder
from tpuconvert.runtime.native.loader import available_isas, extension, native
from tpuconvert.runtime.packed_file import ALIGNMENT, HEADER_SIZE
from tpuconvert.runtime.prepacking import PackedWeightsWarning, prepack
from tpuconvert.runtime.session import Session
from tpuconvert.schema import constant_file
from tpuconvert.schema.errors import CorruptInputError, TpuConvertError, UsageError
from tpuconvert.schema.file_format import FileModel, write_model
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.types import F32, I8, Array, Chip, TensorType

pytestmark = pytest.mark.skipif(
    extension() is None or not constant_file.IS_SUPPORTED, reason="no native engine, or a system without pread"
)

Feeds = dict[str, Array]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> tuple[Path, Feeds]:
    """The digits network in INT8, and a sample."""
    path = tmp_path_factory.mktemp("packed") / "digits.tpum"
    samples = np.load(repository / "examples/digits/calibration.npz")["images"][:, np.newaxis] * np.float32(0.0625)
    tc.convert(repository / "examples/digits/digits.onnx", quantize="int8", calibration=samples).save(path)
    return path, {"image": samples[:1]}


@pytest.fixture
def packed(network: tuple[Path, Feeds], tmp_path: Path) -> Path:
    return prepack(network[0], tmp_path / "digits.packed")


def assert_equal(one: Session, other: Session, feeds: Feeds) -> None:
    found, wanted = one.run(feeds), other.run(feeds)
    assert list(found) == list(wanted)
    for name, array in found.items():
        assert array.dtype == wanted[name].dtype and array.tobytes() == wanted[name].tobytes(), name


@pytest.mark.parametrize("isa", available_isas())
def test_results_are_those_of_the_model(
    network: tuple[Path, Feeds], tmp_path: Path, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCONVERT_ISA", isa)
    path, feeds = network
    file = prepack(path, tmp_path / "x.packed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for threads, is_mapped in ((1, False), (1, True), (2, False)):
            session = Session(path, threads=threads, packed=file, map_packed=is_mapped)
            with Session(path, threads=threads) as plain, session:
                assert session.backend == "native" and repr(session) == repr(plain)
                assert (session.inputs, session.outputs) == (plain.inputs, plain.outputs)
                assert session.memory == plain.memory and session.reference_nodes == []
                assert_equal(session, plain, feeds)
                batch = {"image": np.concatenate([feeds["image"]] * 5)}
                assert_equal(session, plain, batch)
                assert_equal(session, plain, {"image": feeds["image"].astype(np.float64)})


CASES = (
    "blocks",
    "conv_v2",
    "conv_v2_depthwise",
    "conv_v2_large",
    "conv_v2_winograd",
    "inverted_residual",
    "residual_convolution",
    "matrix_mul_modes",
    "float_products",
    "quantized_networks",
)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("kind", CASES)
def test_random_graphs_have_equal_results(kind: str, isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUCONVERT_ISA", isa)
    path, packed_count = tmp_path / "case.tpum", 0
    for seed in range(4):
        case = make(kind, seed)
        write_model(path, FileModel(case.graph, case.chip, "1"))
        feeds = {port.name: feed for port, feed in zip(case.graph.input_ports, case.feeds, strict=True)}
        try:
            file = prepack(path)
        except UsageError:  # a node without a kernel
            continue
        packed_count += 1
        with Session(path) as plain, Session(path, packed=file, map_packed=bool(seed % 2)) as session:
            assert_equal(session, plain, feeds)
    assert packed_count, "no graph of this kind was packed"


def test_weights_are_packed_once(network: tuple[Path, Feeds], packed: Path) -> None:
    """The kernels that save their weights do not need those of the model."""
    if available_isas()[-1] not in ("avx512vnni", "amx"):
        pytest.skip("the kernels of this processor pack again")
    text = packed.read_bytes()
    assert b'"replaced"' in text
    with Session(network[0]) as session:
        weights = [value.array for value in session._graph.values if value.dtype is I8 and value.is_constant]
    kept = [array.tobytes() in text for array in weights if array.size > 64]
    assert len(kept) == 5 and sum(kept) == 1, "only the depthwise convolution packs its weights again"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the mappings of the process")
def test_mapped_weights_stay_in_the_file_until_the_session_ends(network: tuple[Path, Feeds], packed: Path) -> None:
    if b'"replaced"' not in packed.read_bytes():
        pytest.skip("the kernels of this processor pack again")

    def is_mapped() -> bool:
        return str(packed) in Path("/proc/self/maps").read_text()

    with Session(network[0], packed=packed) as copied, Session(network[0], packed=packed, map_packed=True) as session:
        assert is_mapped()
        packed.unlink()  # the file exists as long as it is mapped
        assert_equal(session, copied, network[1])
    del session
    gc.collect()
    assert not is_mapped()


def test_observers_and_profiles_read_the_model(network: tuple[Path, Feeds], packed: Path) -> None:
    path, feeds = network
    with Session(path) as plain, Session(path, packed=packed) as session:
        found: list[list[tuple[str, bytes]]] = [[], []]
        for each, values in zip((plain, session), found, strict=True):
            each.run(feeds, observe=lambda value, array, values=values: values.append((value.name, array.tobytes())))
        assert found[0] == found[1] and len(found[0]) > 3
        steps = [[(step.name, step.nodes) for step in each.profile(feeds)] for each in (plain, session)]
        assert steps[0] == steps[1]


def test_the_public_session_finds_the_preprocessing(network: tuple[Path, Feeds], packed: Path) -> None:
    with tc.Session(network[0], packed=packed) as session:
        picture = np.zeros((8, 8), np.uint8)
        with pytest.raises(UsageError, match="stores no preprocessing"):
            session.run_images(picture)
        assert session.run_images(picture, preprocess="color=GRAY")["probability"].shape == (1, 10)


def test_files_are_the_same_every_time(network: tuple[Path, Feeds], packed: Path, tmp_path: Path) -> None:
    assert prepack(network[0], tmp_path / "again.packed").read_bytes() == packed.read_bytes()
    copied = tmp_path / "copy.tpum"
    copied.write_bytes(network[0].read_bytes())
    assert prepack(copied) == tmp_path / "copy.tpum.packed"
    assert (tmp_path / "copy.tpum.packed").read_bytes() == packed.read_bytes()


# Stale and foreign files


def test_weights_of_another_model_are_not_used(network: tuple[Path, Feeds], packed: Path, tmp_path: Path) -> None:
    path, feeds = network
    other = tmp_path / "other.tpum"
    model = tc.load(path)
    model.graph.name = "other"
    model.save(other)
    with pytest.warns(PackedWeightsWarning, match=r"digits\.packed: .* it was made for another model"):
        session = Session(other, packed=packed)
    with session, Session(path) as plain:
        assert_equal(session, plain, feeds)


def test_weights_of_another_engine_are_not_used(
    network: tuple[Path, Feeds], packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, feeds = network
    monkeypatch.setattr(native(), "BUILD", "another")
    with pytest.warns(PackedWeightsWarning, match="made for another build of the engine"):
        session = Session(path, packed=packed)
    with session, Session(path) as plain:
        assert_equal(session, plain, feeds)


def test_weights_of_another_instruction_set_are_not_used(
    network: tuple[Path, Feeds], packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(available_isas()) < 2:
        pytest.skip("one instruction set")
    monkeypatch.setenv("TPUCONVERT_ISA", available_isas()[0])
    with pytest.warns(PackedWeightsWarning, match=f"it was made for {available_isas()[-1]}"):
        Session(network[0], packed=packed).close()


def test_a_model_that_was_replaced_is_noticed(network: tuple[Path, Feeds], packed: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.tpum"
    path.write_bytes(network[0].read_bytes())
    with Session(path, packed=packed) as session:
        model = tc.load(path)
        model.graph.name = "other"
        model.save(path)
        with pytest.raises(CorruptInputError, match=r"m\.tpum: it was replaced"):
            session.run(network[1], observe=lambda value, array: None)
        assert session.run(network[1])


# Damaged and hostile files


def test_changed_bytes_are_found(network: tuple[Path, Feeds], packed: Path) -> None:
    content = packed.read_bytes()
    random = np.random.default_rng(0)
    places = {*range(0, 56), HEADER_SIZE, len(content) - ALIGNMENT, *random.integers(0, len(content), 150).tolist()}
    plain = Session(network[0])
    harmless = 0
    for place in sorted(places):
        packed.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            session = Session(network[0], packed=packed, map_packed=bool(place % 2))
        except CorruptInputError:
            continue
        harmless += 1  # padding after a part, or zeros of the header
        assert_equal(session, plain, network[1])
    assert harmless < len(places) / 4


def test_truncated_files_are_found(network: tuple[Path, Feeds], packed: Path) -> None:
    content = packed.read_bytes()
    for size in (0, 1, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 10, len(content) // 2, len(content) - 1):
        packed.write_bytes(content[:size])
        with pytest.raises(CorruptInputError):
            Session(network[0], packed=packed)


def test_a_file_that_is_truncated_while_it_is_read(
    network: tuple[Path, Feeds], packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = packed_file._read

    def truncate_after(found: packed_file.PackedFile) -> None:
        read(found)
        os.truncate(packed, found.parts_offset + 1)

    monkeypatch.setattr(packed_file, "_read", truncate_after)
    if b'"replaced"' not in packed.read_bytes():
        pytest.skip("the kernels of this processor pack again")
    with pytest.raises(CorruptInputError, match="cannot be read"):
        Session(network[0], packed=packed)


def rewrite(packed: Path, change: object) -> None:
    """Change the description and store a matching digest and size."""
    content = packed.read_bytes()
    _, _, _, _, text_size, array_size = struct.unpack_from("<8sIIQQQ", content)
    description = json.loads(content[HEADER_SIZE : HEADER_SIZE + text_size])
    change(description)  # type: ignore[operator]
    text = json.dumps(description).encode()
    text = text.ljust(-(-len(text) // ALIGNMENT) * ALIGNMENT)
    rest = content[HEADER_SIZE + text_size :]
    digest = xxhash.xxh3_128(text + rest[:array_size]).digest()
    size = HEADER_SIZE + len(text) + len(rest)
    header = struct.pack("<8sIIQQQ16s72x", b"TPUPACK\n", 1, HEADER_SIZE, size, len(text), array_size, digest)
    packed.write_bytes(header + text + rest)


def leaves(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(leaf for key, item in items for leaf in leaves(item, (*path, key)))]


CHANGES = (-1, 0, 1, 2**31, 2**63, 10**30, 0.5, "x", None, [], {}, {"call": ["Program", [], {}]}, {"array": 10**6},
           {"enum": ["Rescale", "x"]}, {"float": "x"}, {"replaced": ["|i1", [1, 1, 1, 1]]}, True)  # fmt: skip


@pytest.mark.parametrize("isa", available_isas())
def test_hostile_descriptions_are_refused_or_harmless(
    network: tuple[Path, Feeds], tmp_path: Path, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a valid digest: nothing but documented errors, whatever the values are."""
    monkeypatch.setenv("TPUCONVERT_ISA", isa)
    path, feeds = network
    packed = prepack(path, tmp_path / "x.packed")
    content, random, refused = packed.read_bytes(), np.random.default_rng(len(isa)), 0
    for _ in range(120):
        packed.write_bytes(content)

        def change(description: dict[str, object]) -> None:
            paths = [place for place in leaves(description) if place and place[0] != "key"]
            *above, last = paths[int(random.integers(len(paths)))]
            inner: object = description
            for key in above:
                inner = inner[key]  # type: ignore[index]
            inner[last] = CHANGES[int(random.integers(len(CHANGES)))]  # type: ignore[index]

        rewrite(packed, change)
        try:
            with Session(path, packed=packed, map_packed=bool(random.integers(2))) as session:
                session.run(feeds)
        except (TpuConvertError, MemoryError):
            refused += 1
    assert refused > 40


@pytest.mark.parametrize("dtype", ["x", True, None, ["float32"]])
def test_a_port_of_an_unknown_type(network: tuple[Path, Feeds], packed: Path, dtype: object) -> None:
    def change(description: dict[str, Any]) -> None:
        description["ports"][0][0][1] = dtype

    rewrite(packed, change)
    with pytest.raises(CorruptInputError, match=r"unknown type|unhashable"):
        Session(network[0], packed=packed)


def test_calls_that_make_no_steps_are_refused() -> None:
    decoder = Decoder(native(), [])
    with pytest.raises(ValueError, match="there is no kernel 'Program'"):
        decoder.step("Program", None, "scalar", native().PackedRecord(-1, []))
    for name in ("Program", "MappedFile", "Memory", "PackedRecord", "available_isas", "Rescale", "__class__", "absent"):
        with pytest.raises(ValueError, match="there is no spec"):
            decoder.value({"call": [name, [], {}]})
    nested: object = 1
    for _ in range(100):
        nested = [nested]
    with pytest.raises(ValueError, match="too many levels"):
        decoder.value(nested)


# Models and arguments without packed weights


def test_models_without_packed_weights_are_refused(tmp_path: Path) -> None:
    graph = Graph("dynamic")
    graph.output(graph.add(Active(ActiveType.ACTIVE_RELU), graph.input("x", TensorType(F32, ("N", 3)))))
    write_model(tmp_path / "dynamic.tpum", FileModel(graph, Chip.BM1686, "1"))
    with pytest.raises(UsageError, match="only models with static shapes"):
        prepack(tmp_path / "dynamic.tpum")
    assert not (tmp_path / "dynamic.tpum.packed").exists()


def test_arguments_that_do_not_fit(network: tuple[Path, Feeds], packed: Path) -> None:
    path, _ = network
    for model, options in (
        (tc.load(path), {}),
        (path, {"backend": "reference"}),
        (path, {"memory_limit": 1 << 30}),
    ):
        with pytest.raises(UsageError, match="packed weights are for sessions of a path"):
            Session(model, packed=packed, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no such file"):
        Session(path, packed="absent.packed")
    with pytest.raises(UsageError, match="there is no file of packed weights"):
        Session(path, map_packed=True)
    with pytest.raises(UsageError, match="folder"):
        Session(path, packed=path.parent)
    with pytest.raises(CorruptInputError, match="not a file of packed weights"):
        Session(path, packed=path)
    with pytest.raises(UsageError, match="this file is read"):
        prepack(path, path)
    with pytest.raises(CorruptInputError):
        Session(packed, packed=packed)
