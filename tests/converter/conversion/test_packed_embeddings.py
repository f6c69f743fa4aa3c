"""``embedding_type``: tables of tokens in 4 and 8 bits, heads that share them, and scales of 16 bits in files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.conversion.options.options import group_options
from tpuconvert.progress import Progress
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import Array

TOKENS, WIDTH, INNER, ROWS = 600, 64, 512, 5


def language_model(factor: float = 1.0, head: str = "transposed") -> onnx.ModelProto:
    """Rows of a table plus rows of a table of positions, two matmuls, and a head.

    Args:
        factor: for all weights.
        head: ``transposed`` multiplies by the transposed table, ``copied`` has its own copy of it, ``own`` has others.
    """
    rng = np.random.default_rng(0)
    shapes = {"table": (TOKENS, WIDTH), "places": (512, WIDTH), "w1": (WIDTH, INNER), "w2": (INNER, WIDTH)}
    arrays = {name: (factor * rng.normal(size=shape) / 8).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
        helper.make_node("Gather", ["places", "position_ids"], ["placed"]),
        helper.make_node("Add", ["embedded", "placed"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w1"], ["m1"]),
        helper.make_node("Relu", ["m1"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["m2"]),
    ]
    if head == "transposed":
        nodes.append(helper.make_node("Transpose", ["table"], ["head"], perm=[1, 0]))
    else:
        own = rng.normal(size=(TOKENS, WIDTH)).astype(np.float32)
        arrays["head"] = np.ascontiguousarray((arrays["table"] if head == "copied" else own).T)
    nodes.append(helper.make_node("MatMul", ["m2", "head"], ["logits"]))
    port = helper.make_tensor_value_info
    inputs = [port(name, TensorProto.INT64, [1, ROWS]) for name in ("input_ids", "position_ids")]
    outputs = [port("logits", TensorProto.FLOAT, [1, ROWS, TOKENS])]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "language", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(count: int = 1) -> list[dict[str, Array]]:
    rng = np.random.default_rng(2)
    places = np.arange(ROWS)[None]
    return [{"input_ids": rng.integers(0, TOKENS, (1, ROWS)), "position_ids": places} for _ in range(count)]


def packed(proto: onnx.ModelProto, **options: object) -> tc.Model:
    return tc.convert(proto, **group_options(**{"weight_type": "int4", **options}))


def nodes_of(model: tc.Model, op: type) -> list[Node]:
    return [node for node in model.graph.nodes if isinstance(node.op, op)]


def test_a_tied_head_shares_the_packed_table() -> None:
    for head in ("transposed", "copied"):
        model = packed(language_model(head=head))
        (lookup,) = nodes_of(model, GatherGroupQuantized)
        first, second, tied = nodes_of(model, MatmulGroupQuantized)
        assert lookup.inputs[1] is tied.inputs[1]
        assert lookup.inputs[2] is tied.inputs[2]
        assert [node.op.bits for node in (lookup, first, second, tied)] == [8, 4, 4, 8]
        (places,) = nodes_of(model, IndexSelect)
        assert places.inputs[0] is not None and places.inputs[0].shape == (512, WIDTH)  # positions stay in float
        (note,) = [note for note in model.content.notes if note.kind == "weights"]
        assert "1 embedding has weights in int8, shared by 1 of these matmuls" in note.message


@pytest.mark.parametrize(
    ("options", "bits"),
    sampled(
        [
            ({}, [8, 4]),
            ({"embedding_type": "int4"}, [4, 4]),
            ({"embedding_type": "float32"}, [4]),
            ({"embedding_type": "int4", "weight_type": "int8"}, [4, 8]),
        ],
        every=3,
    ),
)
def test_bits_of_a_table_that_no_matmul_shares(options: dict[str, object], bits: list[int]) -> None:
    model = packed(language_model(head="own"), **options)
    lookups, matmuls = nodes_of(model, GatherGroupQuantized), nodes_of(model, MatmulGroupQuantized)
    assert [node.op.bits for node in (*lookups, matmuls[-1])] == bits


def test_a_shared_table_has_the_bits_of_the_matmuls() -> None:
    model = packed(language_model(), weight_type="int8", embedding_type="int4")
    assert {node.op.bits for node in nodes_of(model, GatherGroupQuantized)} == {8}


@pytest.mark.parametrize("zero", [False, True])
def test_results_are_close_and_equal_in_both_engines(zero: bool) -> None:
    model = packed(language_model(), weight_type="int8", weight_zero_points=zero)
    (feed,) = feeds()
    with tc.Session(model) as native, tc.Session(model, backend="reference") as reference:
        found, expected = native.run(feed)["logits"], reference.run(feed)["logits"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    with tc.Session(tc.convert(language_model())) as session:
        exact = session.run(feed)["logits"]
    assert np.square(found - exact).sum() < 1e-3 * np.square(exact).sum()


def test_size_of_the_file(tmp_path: Path) -> None:
    """Codes and 16 bits per group, once for the table and the head; the table of positions in float."""
    model = packed(language_model())
    model.save(tmp_path / "m.tpum")
    small = packed(language_model(), embedding_type="float32")
    small.save(tmp_path / "float.tpum")
    header = (tmp_path / "m.tpum").read_bytes()[:128]
    version, weights = struct.unpack_from("<I", header, 8)[0], struct.unpack_from("<Q", header, 48)[0]
    table = TOKENS * WIDTH * 17 // 16
    matmuls = 2 * WIDTH * INNER * 9 // 16
    places = 512 * WIDTH * 4
    assert table + matmuls + places <= weights < table + matmuls + places + 10 * 64  # aligned to 64 bytes
    assert version == 4


def test_scales_are_read_as_they_were(tmp_path: Path) -> None:
    model = packed(language_model())
    model.save(tmp_path / "m.tpum")
    loaded = tc.load(tmp_path / "m.tpum")
    for before, after in zip(*(nodes_of(each, MatmulGroupQuantized) for each in (model, loaded)), strict=True):
        scales = [node.inputs[2].array for node in (before, after) if node.inputs[2] is not None]
        assert [scale.dtype for scale in scales] == [np.float32, np.float32]
        assert scales[0].tobytes() == scales[1].tobytes()
    (feed,) = feeds()
    with tc.Session(model) as first, tc.Session(tmp_path / "m.tpum") as second:
        logits = first.run(feed)["logits"]
        assert second.run(feed)["logits"].tobytes() == logits.tobytes()
        second.run(feed, observe=lambda value, array: None)  # reads dropped constants again
        assert second.run(feed)["logits"].tobytes() == logits.tobytes()


def test_scales_that_half_does_not_hold_stay_in_float32(tmp_path: Path) -> None:
    model = packed(language_model(1e-6))
    scales = [node.inputs[2].array for node in nodes_of(model, MatmulGroupQuantized) if node.inputs[2] is not None]
    assert all((scale.astype(np.float16) != scale).any() for scale in scales)
    (note,) = [note for note in model.content.notes if note.kind == "weights"]
    worst = float(note.message.rsplit("' ", 1)[1].split(" %")[0])
    assert worst < 1  # percent, as for larger weights
    model.save(tmp_path / "m.tpum")
    assert struct.unpack_from("<I", (tmp_path / "m.tpum").read_bytes(), 8)[0] == 3


def test_progress_of_samples_and_weights() -> None:
    class Stages(Progress):
        def __init__(self) -> None:
            self.seen: list[tuple[str, int | None, list[int]]] = []

        def stage(self, name: str, total: int | None = None) -> None:
            self.seen.append((name, total, []))

        def advance(self, done: int) -> None:
            self.seen[-1][2].append(done)

    for count in (0, 3):
        progress = Stages()
        samples = feeds(count) if count else None
        tc.convert(language_model(), calibration=samples, progress=progress, **group_options(weight_type="int4"))
        stages = {name: (total, done) for name, total, done in progress.seen}
        if count:
            assert stages["run the samples"] == (3, [1, 2, 3])
        total, done = stages["round the weights, in percent"]
        assert total == 100
        assert done == [0, 31, 63, 100]  # two matmuls of 32768 weights, a table of 38400
