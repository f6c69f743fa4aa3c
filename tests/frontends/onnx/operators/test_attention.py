"""Attention against the reference evaluator: heads, masks, caches, and rows in which nothing may be attended."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx.models import assert_converts, model, one, ramp, save_model
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.types import Array

Q, K, V = ramp(2, 4, 3, 8), ramp(2, 4, 5, 8, seed=1), ramp(2, 4, 5, 6, seed=2)
PAST = {"pk": ramp(2, 4, 2, 8, seed=3), "pv": ramp(2, 4, 2, 6, seed=4)}
TRUTH = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)

CASES: list[tuple[dict[str, Array], list[str], dict[str, Any]]] = [
    ({}, [], {}),
    ({}, [], {"scale": 0.25, "softcap": 2.0}),
    ({}, [], {"is_causal": 1}),
    ({"m": ramp(3, 5)}, ["m"], {}),
    ({"m": TRUTH}, ["m"], {}),
    ({"m": TRUTH[:, :3]}, ["m"], {}),
    ({"m": ramp(2, 1, 3, 5)}, ["m"], {"is_causal": 1}),
    (PAST, ["", "pk", "pv"], {"is_causal": 1}),
    *(({"m": ramp(3, 5)}, ["m"], {"qk_matmul_output_mode": mode, "softcap": 1.5}) for mode in (1, 2, 3)),
    ({"m": ramp(3, 5)}, ["m"], {"qk_matmul_output_mode": 0}),  # with softcap the evaluator is not what the text says
]


@pytest.mark.parametrize(("more", "names", "attributes"), CASES)
def test_four_dimensions(more: dict[str, Array], names: list[str], attributes: dict[str, Any], tmp_path: Path) -> None:
    feeds = {"q": Q, "k": K, "v": V, **more}
    outputs = ["y", "pk2", "pv2", "qk"] if "pk" in more or "qk_matmul_output_mode" in attributes else ["y"]
    node = one("Attention", "q", "k", "v", *names, outputs=outputs, **attributes)
    assert_converts(model([node], feeds, outputs, opset=24, ir_version=11), feeds, tmp_path, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_three_dimensions_and_shared_heads(kv_heads: int, tmp_path: Path) -> None:
    feeds = {"q": ramp(2, 3, 4 * 8), "k": ramp(2, 5, kv_heads * 8, seed=1), "v": ramp(2, 5, kv_heads * 6, seed=2)}
    node = one("Attention", "q", "k", "v", q_num_heads=4, kv_num_heads=kv_heads)
    assert_converts(model([node], feeds, ["y"], opset=23, ir_version=11), feeds, tmp_path, atol=1e-5)


@pytest.mark.parametrize("window", [{"left_window_size": 1}, {"left_window_size": 0, "right_window_size": 1}])
def test_sliding_window(window: dict[str, int], tmp_path: Path) -> None:
    feeds = {"q": Q, "k": K, "v": V}
    proto = model([one("Attention", "q", "k", "v", **window)], feeds, ["y"], opset=25, ir_version=12)
    assert_converts(proto, feeds, tmp_path, atol=1e-5)


def test_refused(tmp_path: Path) -> None:
    feeds = {"q": ramp(2, 3, 10), "k": ramp(2, 5, 10), "v": ramp(2, 5, 10)}
    node = one("Attention", "q", "k", "v", q_num_heads=4, kv_num_heads=4)
    with pytest.raises(UnsupportedError, match="q_num_heads=4 for a width of 10"):
        load(save_model(model([node], feeds, ["y"], opset=23), tmp_path))
