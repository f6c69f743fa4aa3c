"""Scales of a calibrated graph, which are chosen once for the same nodes and algorithms."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.conversion.options.options import group_options
from tpuconvert.conversion.quantization.integer_forms import IntegerForms


class Forgetful(dict[object, Any]):
    """A dictionary that keeps nothing."""

    def __setitem__(self, key: object, value: Any) -> None:
        """Drop the item."""


def network() -> Any:
    """A cheap depthwise conv with spikes, which gets 16 bits, before other layers."""
    net = OnnxNet(5)
    x = net.conv(net.input("x", 1, 8, 12, 12), 8, groups=8)
    x = net.add("Clip", x, net.constant(np.float32(-3)), net.constant(np.float32(3)))
    x = net.add("Relu", net.conv(x, 32))
    return net.model(net.dense(net.add("Flatten", net.add("GlobalAveragePool", x)), 10))


def samples() -> list[dict[str, Any]]:
    """Images with one spike."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(24, 1, 8, 12, 12)).astype(np.float32)
    images[:, 0, 3, 5, 5] += 200.0
    return [{"x": image} for image in images]


@pytest.mark.parametrize(
    "options", [{}, {"chip": "bm1684"}, pytest.param({"effort": "high"}, marks=pytest.mark.slow)], ids=str
)
def test_scales_are_chosen_once_and_do_not_change(
    options: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[Any] = Counter()
    original = IntegerForms._annotate

    def count(self: IntegerForms, *arguments: Any) -> Any:
        kept, int16, balanced, left_out = arguments
        made[frozenset(kept.items()), frozenset(int16), frozenset(balanced), frozenset(left_out)] += 1
        return original(self, *arguments)

    monkeypatch.setattr(IntegerForms, "_annotate", count)
    source, given = network(), samples()
    once = tc.convert(
        source, calibration=given, **group_options(quantize="int8", calibration_method="minmax", **options)
    )
    assert set(made.values()) == {1}
    once.save(tmp_path / "once.tpum")
    made.clear()
    initialize = IntegerForms.__init__

    def forget(self: IntegerForms, *arguments: Any) -> None:
        initialize(self, *arguments)
        self._annotations = Forgetful()

    monkeypatch.setattr(IntegerForms, "__init__", forget)
    again = tc.convert(
        source, calibration=given, **group_options(quantize="int8", calibration_method="minmax", **options)
    )
    again.save(tmp_path / "again.tpum")
    assert (tmp_path / "once.tpum").read_bytes() == (tmp_path / "again.tpum").read_bytes()
    if options.get("chip") != "bm1684":
        assert max(made.values()) > 1, "the network does not repeat a choice"
