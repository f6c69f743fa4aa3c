"""One operator per model, against the reference evaluator of the onnx package.

Cases whose expected values do not come from there are written out by hand at the end.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.each import each
from tests.support.onnx.cases.case import Case, i64
from tests.support.onnx.cases.operators import CASES
from tests.support.onnx.models import assert_converts, graph_of, model, one, ops, ours, ramp, save_model
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.types import Array


@each("case", CASES)
def test_operator(case: Case, tmp_path: Path) -> None:
    assert_converts(case.model(), case.feeds, tmp_path, atol=case.atol)


# Values by hand


def result(op: str, x: Any, *constants: Any, folder: Path, opset: int = 17, **attributes: Any) -> Array:
    feeds = {"x": np.asarray(x, np.float32)}
    given = {f"c{index}": np.asarray(array) for index, array in enumerate(constants)}
    proto = model([one(op, "x", *given, **attributes)], feeds, ["y"], given, opset=opset)
    return ours(proto, feeds, folder)["y"]


def test_softmax_before_opset_13_flattens(tmp_path: Path) -> None:
    y = result("Softmax", np.zeros((2, 2, 4)), folder=tmp_path, opset=11, axis=1)
    assert np.allclose(y, 1 / 8)
    assert np.allclose(result("Softmax", np.zeros((2, 2, 4)), folder=tmp_path, opset=13, axis=1), 1 / 2)


def test_average_pool_before_opset_7_leaves_padding_out(tmp_path: Path) -> None:
    y = result("AveragePool", np.ones((1, 1, 2, 2)), folder=tmp_path, opset=6, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    assert y.reshape(-1).tolist() == [1.0] * 4


def test_legacy_broadcasting_is_aligned_by_the_attribute(tmp_path: Path) -> None:
    x, b = np.zeros((2, 3, 4), np.float32), np.array([1, 2, 3], np.float32)
    y = result("Add", x, b, folder=tmp_path, opset=6, broadcast=1, axis=1)
    assert y[0, :, 0].tolist() == [1, 2, 3]


def test_prelu_before_opset_7_belongs_to_the_channels(tmp_path: Path) -> None:
    y = result("PRelu", -np.ones((1, 2, 1, 2)), np.array([3, 5], np.float32), folder=tmp_path, opset=6)
    assert y.reshape(-1).tolist() == [-3, -3, -5, -5]


def test_upsample_of_old_opsets(tmp_path: Path) -> None:
    x = np.array([[[[1, 2]]]])
    scales = np.array([1, 1, 2, 2], np.float32)
    for opset, constants, attributes in ((9, [scales], {}), (7, [], {"scales": scales.tolist()})):
        y = result("Upsample", x, *constants, folder=tmp_path, opset=opset, **attributes)
        assert y.tolist() == [[[[1, 1, 2, 2], [1, 1, 2, 2]]]]


def test_resize_chooses_the_cheapest_operator_that_is_exact(tmp_path: Path) -> None:
    def resize_operators(sizes: Sequence[int], **attributes: Any) -> list[str]:
        node = one("Resize", "x", "", "", "sizes", **attributes)
        return ops(graph_of(model([node], {"x": ramp(1, 2, 4, 6)}, ["y"], {"sizes": i64(*sizes)}), tmp_path))

    assert resize_operators((1, 2, 8, 12), mode="nearest") == ["upsample"]
    assert resize_operators((1, 2, 5, 9), mode="linear") == ["interpolate"]
    assert resize_operators((1, 2, 8, 12), mode="cubic").count("matrix_mul") == 2
    assert resize_operators((1, 2, 4, 6), mode="linear") == []


def test_padding_never_wins_a_maximum(tmp_path: Path) -> None:
    y = result("MaxPool", -np.ones((1, 1, 3, 3)), folder=tmp_path, kernel_shape=[2, 2], dilations=[2, 2], pads=[1] * 4)
    assert (y == -1).all()


def test_bounds_of_clip_in_the_wrong_order(tmp_path: Path) -> None:
    assert result("Clip", [-5, 0, 5], np.float32(2), np.float32(1), folder=tmp_path).tolist() == [1, 1, 1]


def test_64_bit_slice_bounds_never_reach_the_graph(tmp_path: Path) -> None:
    y = result("Slice", [1, 2, 3], i64(-(1 << 63)), i64((1 << 63) - 1), folder=tmp_path)
    assert y.tolist() == [1, 2, 3]


# The reference evaluator is wrong, or not able, in the next five cases.


def test_grouped_transposed_convolution_is_two_ungrouped_ones(tmp_path: Path) -> None:
    x, w = ramp(1, 4, 3, 3), ramp(4, 2, 2, 2, seed=1)
    whole = result("ConvTranspose", x, w, folder=tmp_path, group=2)
    halves = [result("ConvTranspose", x[:, k : k + 2], w[k : k + 2], folder=tmp_path) for k in (0, 2)]
    np.testing.assert_allclose(whole, np.concatenate(halves, 1), rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 2, 3, 4, 5)])
def test_global_max_pool_of_other_ranks(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = ramp(*shape)
    expected = x.max(tuple(range(2, len(shape))), keepdims=True)
    assert np.array_equal(result("GlobalMaxPool", x, folder=tmp_path), expected)


def test_norms_of_negative_and_of_no_numbers(tmp_path: Path) -> None:
    y = result("LpNormalization", [[-1, 3], [0, 0]], folder=tmp_path, p=1)
    assert y.tolist() == [[-0.25, 0.75], [0, 0]]


def test_negative_pads_cut(tmp_path: Path) -> None:
    y = result("Pad", [[1, 2, 3], [4, 5, 6]], i64(1, -1, -1, 1), folder=tmp_path)
    assert y.tolist() == [[0, 0, 0], [2, 3, 0]]


def test_nearest_positions_are_computed_in_binary32(tmp_path: Path) -> None:
    # 1.5 / f32(0.6) - 0.5 is 2 in binary32, as runtimes compute it, and 1.9999999 in binary64
    x = np.arange(6).reshape(1, 1, 1, 6)
    scales = np.array([1, 1, 1, 0.6], np.float32)
    y = result("Resize", x, np.empty(0, np.float32), scales, folder=tmp_path, nearest_mode="floor")
    assert y.tolist() == [[[[0, 2, 3]]]]


@pytest.mark.parametrize(
    ("op", "x", "constants", "attributes", "complaint"),
    [
        ("Sum", np.zeros(3, bool), [np.ones(3, np.uint8)], {}, "different types"),
        ("Reshape", ramp(6), [i64(4, 2)], {}, r"shape \[6\] does not fit \[4, 2\]"),
        ("Reshape", ramp(6), [i64(-1, -1)], {}, "target shape"),
        ("Conv", ramp(1, 3, 4, 4), [ramp(2, 2, 3, 3)], {}, "do not match"),
        ("Conv", ramp(1, 2, 4, 4), [ramp(2, 2, 3, 3)], {"strides": [0, 1]}, "strides"),
        ("Conv", ramp(1, 2, 4, 4), [ramp(2, 2, 3, 3)], {"auto_pad": "SOME"}, "auto_pad='SOME'"),
        ("Gather", ramp(3), [i64(3)], {}, "outside -3 to 2"),
        ("TopK", ramp(3), [i64(4)], {}, "k=4 of extent 3"),
        ("Transpose", ramp(3, 2), [], {"perm": [0, 0]}, "not an order of 2 axes"),
        ("Cast", ramp(3), [], {"to": TensorProto.STRING}, "cast to string"),
        ("Resize", ramp(1, 1, 2, 2), [np.float32(0), np.array([1, 1, 2, 2], np.float32)],
         {"mode": "nearest", "antialias": 1}, "antialias=1"),
        ("LayerNormalization", ramp(2, 3), [ramp(3)], {"stash_type": 11}, "stash_type=11"),
    ],
)  # fmt: skip
def test_refused(
    op: str, x: Array, constants: list[Array], attributes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    given = {f"c{index}": np.asarray(array) for index, array in enumerate(constants)}
    proto = model([one(op, "x", *given, **attributes)], {"x": x}, ["y"], given, opset=18)
    with pytest.raises(UnsupportedError, match=complaint) as caught:
        load(save_model(proto, tmp_path))
    assert len(caught.value.problems) == 1


def test_einsum_without_a_sum_is_an_elementwise_product(tmp_path: Path) -> None:
    """A matmul per element would take 16 nodes per operand of this shape."""
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    case = Case("Einsum", [x] * 9, [], {"equation": f"{','.join(['ij'] * 9)}->ij"})
    graph = graph_of(case.model(), tmp_path)
    assert len(graph) <= 8
