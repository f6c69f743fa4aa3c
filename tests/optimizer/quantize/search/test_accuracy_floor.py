"""Regions with 16 bits for networks whose outputs miss the target (``accuracy_floor``)."""

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.networks import RELU, signal_to_noise
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.conversion.options.options import group_options
from tpuconvert.model.accuracy_notes import AccuracyWarning
from tpuconvert.optimizer.quantize.search.accuracy_floor import FloorCandidates, raise_to_floor
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import F32, I8, U8, Array, TensorType

GIVEN = {"quantize": "int8", "calibration_method": "minmax", "without": ["method-search", "coarse-nodes"]}


def spread(layers: int = 8, channels: int = 0) -> tuple[OnnxNet, str]:
    """Layers that average an image, and a last one that takes the differences of its pixels.

    The differences are small beside the mean of the image, so that the rounding of each layer is as large as they are.
    A convolution with some channels can follow, which has most of the MACs.
    """
    net = OnnxNet(3)
    x = net.input("x", 1, 4, 16, 32)
    for index in range(layers):
        rows = np.zeros((4, 1, 1, 3), np.float32)
        rows[:, 0, 0, :2] = (-0.9, 0.9) if index == layers - 1 else (0.3, 0.7)
        x = net.add("Conv", x, net.constant(rows), group=4, kernel_shape=[1, 3])
    if channels:
        return net, net.conv(net.conv(x, channels), 6)
    return net, net.add("Flatten", net.add("Conv", x, net.normal(6, 4, 1, 1), kernel_shape=[1, 1]))


def images(count: int, seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    noise = rng.normal(scale=0.05, size=(count, 1, 4, 16, 32))
    level = rng.uniform(2.0, 4.0, size=(count, 1, 4, 1, 1))
    return [{"x": (level[index] + noise[index]).astype(np.float32)} for index in range(count)]


def sqnr(net: OnnxNet, output: str, model: tc.Model) -> float:
    with tc.Session(tc.convert(net.model(output))) as real, tc.Session(model) as session:
        runs = [(real.run(feed)[output], session.run(feed)[output]) for feed in images(8, seed=9)]
    return signal_to_noise(*(np.concatenate(arrays) for arrays in zip(*runs, strict=True)))


def notes(model: tc.Model, kind: str) -> list[str]:
    return [note.message for note in model.notes if note.kind == kind and "cosine" not in note.message]


def test_errors_that_are_spread_over_layers_get_16_bits_together() -> None:
    net, output = spread()
    with pytest.warns(AccuracyWarning, match="mean cosine"):
        plain = tc.convert(net.model(output), calibration=images(16), **group_options(max_int16_share=0.0, **GIVEN))
    model = tc.convert(net.model(output), calibration=images(16), **group_options(max_int16_share=1.0, **GIVEN))
    assert sqnr(net, output, model) > sqnr(net, output, plain) + 6
    (text,) = notes(model, "int16-nodes")
    assert "with 16 bits" in text and "dB of its variance" in text
    assert not notes(plain, "int16-nodes")


def test_a_missed_target_names_the_branch_and_a_share_that_meets_it() -> None:
    net, output = spread()
    with pytest.warns(AccuracyWarning, match="20 dB are the target"):
        model = tc.convert(net.model(output), calibration=images(16), **group_options(max_int16_share=0.01, **GIVEN))
    (text,) = notes(model, "accuracy")
    assert "20 dB are the target" in text
    share = float(text.rsplit("--max-int16-share ", 1)[1].split()[0])
    assert 0.01 < share <= 1.0
    mended = tc.convert(net.model(output), calibration=images(16), **group_options(max_int16_share=share, **GIVEN))
    assert not notes(mended, "accuracy")
    assert f"warning: {text}" in model.summary()


def test_the_choice_does_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    net, output = spread()
    for count in (1, 2):
        model = tc.convert(
            net.model(output), calibration=images(16), **group_options(max_int16_share=1.0, workers=count, **GIVEN)
        )
        assert notes(model, "int16-nodes")
        model.save(tmp_path / f"{count}.tpum")
    assert (tmp_path / "1.tpum").read_bytes() == (tmp_path / "2.tpum").read_bytes()


def gated() -> tuple[OnnxNet, str, str]:
    """A hard-swish with one channel a hundred times as large as the others, before a depthwise convolution."""
    net = OnnxNet(4)
    scales = np.ones((8, 1, 1), np.float32)
    scales[0] = 100.0
    x = net.add("Mul", net.conv(net.input("x", 1, 4, 12, 12), 8), net.constant(scales))
    swish = net.add("HardSwish", x)
    y = net.conv(swish, 8, groups=8)
    return net, swish, net.conv(net.add("Mul", y, net.constant(1.0 / scales)), 6)


def test_8_bit_forms_of_functions_with_16_bits_have_scales_per_channel() -> None:
    """The result is requantized with a scale for each channel, which the depthwise convolution undoes."""
    net, swish, output = gated()
    found = {}
    for rules in ([], ["op:hard_swish=int16"]):
        model = tc.convert(
            net.model(output), calibration=net.samples(16), **group_options(effort="low", precision=rules, **GIVEN)
        )
        with tc.Session(tc.convert(net.model(output))) as real, tc.Session(model) as native:
            with tc.Session(model, backend="reference") as reference:
                feed = net.samples(1, seed=9)[0]
                result = native.run(feed)[output]
                assert result.tobytes() == reference.run(feed)[output].tobytes()
            found[bool(rules)] = signal_to_noise(real.run(feed)[output], result)
    value = model.graph.find(f"{swish}:int8") or model.graph.find(f"{swish}:uint8")
    assert value is not None and value.quant is not None
    assert value.quant.dtype in (I8, U8)
    assert len(set(value.quant.scale)) > 1
    assert found[True] > found[False] + 6


def test_a_chip_without_16_bits_computes_regions_in_float() -> None:
    net, output = spread(channels=128)
    given = {**GIVEN, "chip": "bm1684", "without": ["method-search"]}
    plain = tc.convert(
        net.model(output), calibration=images(16), **group_options(**given | {"without": GIVEN["without"]})
    )
    model = tc.convert(net.model(output), calibration=images(16), **group_options(**given))
    assert sqnr(net, output, model) > sqnr(net, output, plain) + 2
    (text,) = notes(model, "coarse-nodes")
    assert "in float" in text and "dB of its variance" in text
    assert not notes(plain, "coarse-nodes")


def test_functions_with_16_bits_have_no_form_in_tpulang_and_the_summary_says_so(tmp_path: Path) -> None:
    net, _, output = gated()
    given = {**GIVEN, "calibration": net.samples(16), "max_int16_share": 1.0}
    model = tc.convert(net.model(output), **group_options(**given))
    (text,) = notes(model, "int16-nodes")
    assert "TPULang has no form of some: an export to it needs --without int16-nodes" in text
    tc.export(model, tmp_path / "wide", to="tpu-mlir")
    with pytest.raises(UnsupportedError, match="no exact form"):
        tc.export(model, tmp_path / "wide_program", to="tpulang")
    given |= {"without": [*GIVEN["without"], "int16-nodes"], "max_int16_share": None}
    narrow = tc.convert(net.model(output), **group_options(**given))
    tc.export(narrow, tmp_path / "narrow", to="tpulang")
    net, output = spread()
    model = tc.convert(net.model(output), calibration=images(16), **group_options(max_int16_share=1.0, **GIVEN))
    assert notes(model, "int16-nodes") and "TPULang" not in str(notes(model, "int16-nodes"))
    tc.export(model, tmp_path / "linear", to="tpulang")


def test_candidates_at_the_start_and_with_the_largest_error() -> None:
    candidates = FloorCandidates({"a": 0.02, "b": 0.5, "c": 0.02}, {"f": 0.0, "g": 0.0}, ["f", "a", "b", "g", "c"])
    assert candidates.start(0.05) == {"f", "a"}
    assert candidates.start(1.0) == {"f", "a", "b", "g", "c"}
    assert candidates.fill({"a": 0.1, "b": 9.0, "c": 0.2}, 0.03) == {"c"}
    assert candidates.share({"a", "b", "f"}) == 0.52


def branches(level: float, second: tuple[float, float, float]) -> Graph:
    """Two outputs: ``level`` times eight inputs, and multiples of the ninth one and the positive and negative tenth."""
    graph = Graph("branches")
    x = graph.input("x", TensorType(F32, (1, 10)))
    signs = np.concatenate([np.eye(10), -np.eye(10)], axis=1)
    hidden = graph.add(RELU, product(graph, x, signs), name="hidden")
    first, last = np.zeros((20, 8)), np.zeros((20, 1))
    first[:8], first[10:18] = level * np.eye(8), -level * np.eye(8)
    last[[8, 18, 9, 19], 0] = second[0], -second[0], *second[1:]
    graph.output(product(graph, hidden, first, "first"))
    graph.output(product(graph, hidden, last, "last"))
    return graph


def product(graph: Graph, x: Value, weight: Array, name: str | None = None) -> Value:
    operands = (weight, np.zeros((1, weight.shape[1])))
    return graph.add(MatrixMul(), x, *(graph.constant(array.astype(np.float32)) for array in operands), name=name)


def test_a_branch_that_meets_the_target_by_chance_does_not_reject_a_region() -> None:
    """The second output misses the target on other samples, and is worse on one sample with the region."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(8, 1, 10)).astype(np.float32)
    rows[:4, 0, 9], rows[4:, 0, 9], rows[7, 0, 9] = 1.0, 0.0, -1.0
    floor = raise_to_floor(
        branches(1.0, (1.0, 0.0, 0.0)),
        FloorCandidates({"b": 0.02}, {}, ["b"]),
        lambda names: branches(1.0, (1.01, 0.0, 2.0)) if names else branches(0.5, (1.0, 5.0, 0.0)),
        lambda names: [branches(1.0, (1.0, 0.0, 0.0)) for _ in names],
        [{"x": row} for row in rows],
        0.05,
    )
    assert floor is not None and floor.names == ("b",)


def test_a_region_that_helps_few_samples_little_is_confirmed_by_all() -> None:
    """The error falls by 0.4 dB on the samples that confirm it, and vanishes on the others."""
    rows = np.random.default_rng(0).normal(size=(8, 1, 10)).astype(np.float32)
    rows[:4, 0, 9], rows[4:, 0, 9] = 1.0, -1.0

    def raised(confirming: float) -> tuple[str, ...]:
        floor = raise_to_floor(
            branches(1.0, (1.0, 0.0, 0.0)),
            FloorCandidates({"b": 0.02}, {}, ["b"]),
            lambda names: branches(1.0, (1.0, 0.0, confirming) if names else (1.0, 1.0, 1.0)),
            lambda names: [branches(1.0, (1.0, 0.0, 0.0)) for _ in names],
            [{"x": row} for row in rows],
            0.05,
        )
        assert floor is not None
        return floor.names

    assert raised(0.95) == ("b",)
    assert raised(1.05) == ()
