"""Operators of ONNX Runtime's own domain give what ONNX Runtime gives."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.onnx.microsoft_cases import CASES, RECORD, Case
from tests.support.onnx.models import graph_of, ops, ours
from tpuconvert.frontends.onnx.operators.microsoft import DOMAIN
from tpuconvert.frontends.registry import registry
from tpuconvert.schema.errors import UnsupportedError


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_onnx_runtime(case: Case, tmp_path: Path) -> None:
    found = ours(case.model(), case.inputs, tmp_path)
    with np.load(RECORD) as recorded:
        for name in filter(None, case.outputs):
            want = recorded[f"{case}/{name}"]
            assert found[name].shape == want.shape, name
            assert found[name].dtype == want.dtype, name
            if want.dtype.kind in "iu":  # ONNX Runtime rounds sums of scaled products in another order
                assert np.abs(found[name].astype(int) - want.astype(int)).max() <= case.steps, name
            else:
                np.testing.assert_allclose(found[name], want, rtol=case.rtol, atol=case.rtol, err_msg=name)


def test_every_operator_of_the_domain_has_a_case() -> None:
    registry("onnx").discover()
    known = {entry.name for entry in registry("onnx").entries() if entry.domain == DOMAIN}
    covered = {case.op for case in CASES} | {
        "QuantizeLinear",
        "DequantizeLinear",
        "QLinearReduceMean",
        "TransposeMatMul",
        "GroupQueryAttention",  # test_cached_attention.py
    }
    assert known <= covered


def n_bits(**changes: object) -> Case:
    """A MatMulNBits of [2, 40] with 3 columns and blocks of 32; attributes and constants may be changed."""
    constants = {
        "w": np.zeros((3, 2, 16), np.uint8),
        "s": np.ones(6, np.float32),
        "z": np.zeros(3, np.uint8),
        "order": np.zeros(40, np.int32),
        "b": np.zeros(3, np.float32),
    }
    attributes = {"K": 40, "N": 3, "bits": 4, "block_size": 32}
    for name, value in changes.items():
        (constants if name in constants else attributes)[name] = value  # type: ignore[assignment]
    reads = ["x", "w", "s", "z", "order" if "order" in changes else "", "b"]
    used = {name: array for name, array in constants.items() if name in reads}
    return Case("MatMulNBits", "", reads, {"x": np.ones((2, 40), np.float32)}, used, attributes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 3}, "bits=3, block_size=32"),
        ({"block_size": 24}, "bits=4, block_size=24"),
        ({"K": 41}, "its first input has shape"),
        ({"N": -3}, "bits=4"),
        ({"N": 4}, "96 bytes of codes and 6 scales for N=4, K=40, expected 128 and 8"),
        ({"N": 1 << 40}, "96 bytes of codes"),
        ({"block_size": 1 << 40}, "96 bytes of codes"),
        ({"w": np.zeros((3, 2, 15), np.uint8)}, "90 bytes of codes"),
        ({"s": np.ones(5, np.float32)}, "5 scales"),
        ({"z": np.zeros(6, np.uint8)}, "6 zero points in uint8, expected 3 bytes or floats"),
        ({"z": np.zeros(3, np.float32)}, "3 zero points in float32, expected 6"),
        ({"z": np.zeros(3, np.int64)}, "3 zero points in int64"),
        ({"b": np.zeros(4, np.float32)}, "a bias of shape"),
        ({"order": np.zeros(39, np.int32)}, "g_idx has 39 elements, expected 40 in the range 0 to 1"),
        ({"order": np.full(40, 2, np.int32)}, "in the range 0 to 1"),
        ({"order": np.full(40, -1, np.int32)}, "in the range 0 to 1"),
        ({"order": np.zeros(40, np.int32)}, "g_idx with groups of different sizes"),
        ({"weight_prepacked": 1}, "weight_prepacked"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_refuses_packed_weights_of_the_wrong_size(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        graph_of(n_bits(**changes).model(), tmp_path)


def test_two_bit_weights_are_stored_in_four(tmp_path: Path) -> None:
    """Codes 3, 2, 1, 0 minus 2 by hand; the first code is in the low-order bits."""
    codes = np.full((3, 2, 8), 0b00011011, np.uint8)
    case = n_bits(bits=2, w=codes, z=np.full(3, 0b1010, np.uint8))
    assert ops(graph_of(case.model(), tmp_path)) == ["matmul_group_quantized"]
    x = np.zeros((2, 40), np.float32)
    x[:, [0, 5, 34, 39]] = ((1, 10, 100, 1000), (2, 0, 0, 1))
    found = ours(case.model(), {"x": x}, tmp_path)["y"]
    np.testing.assert_array_equal(found, np.repeat([[1 - 0 - 100 - 2000 + 0], [2 - 2]], 3, axis=1))


def gather_blocks(**changes: object) -> Case:
    """A GatherBlockQuantized of two rows of 64 columns; attributes and constants may be changed."""
    constants = {"w": np.zeros((5, 32), np.uint8), "s": np.ones((5, 2), np.float32), "z": np.zeros((5, 1), np.uint8)}
    attributes = {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    for name, value in changes.items():
        (constants if name in constants else attributes)[name] = value  # type: ignore[assignment]
    ids = {"ids": np.zeros((1, 2), np.int64)}
    return Case("GatherBlockQuantized", "", ["w", "ids", "s", "z"], ids, constants, attributes)


def test_gathered_table_stays_packed(tmp_path: Path) -> None:
    graph = graph_of(gather_blocks().model(), tmp_path)
    assert "gather_group_quantized" in ops(graph)
    (node,) = [node for node in graph.nodes if node.op.name == "gather_group_quantized"]
    assert [None if value is None else value.shape for value in node.inputs[1:]] == [(5, 32), (5, 2), (5, 1)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 3}, "bits=3"),
        ({"block_size": 24}, "block_size=24"),
        ({"gather_axis": 1}, "gather_axis=1"),
        ({"quantize_axis": 0}, "quantize_axis=0"),
        ({"s": np.ones((5, 1), np.float32)}, r"scales of shape \[5, 1\] for 5 rows of 2 blocks"),
        ({"z": np.zeros((5, 2), np.uint8)}, "zero points"),
        ({"block_size": 1 << 40}, "scales of shape"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_refuses_tables_of_the_wrong_size(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        graph_of(gather_blocks(**changes).model(), tmp_path)
