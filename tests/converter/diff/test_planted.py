"""Planted differences: each is reported exactly, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.planted_differences import CHANNELS, Layer, Network, residual_network, samples
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.diff.result import ModelDifference
from tpuconvert.diff.text import hidden_text
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.types import DType, TensorType

Found = list[tuple[str, str, str, str]]


def changes(found: ModelDifference) -> Found:
    """Category, action, name and property of the changes that do not follow from others."""
    return sorted((c.category, c.action, c.name, c.what) for c in found.changes if not c.follows)


def compare(before: tc.Model, after: tc.Model, **options: Any) -> ModelDifference:
    """Compare without running the models."""
    return tc.diff(before, after, **group_options(**{"samples": 0, **options}))


NETWORK = residual_network()


def stretch(array: np.ndarray) -> np.ndarray:
    """Repeat the first axis."""
    return np.concatenate([array, array])


def with_weight(place: tuple[int, ...], value: float) -> Callable[[np.ndarray], np.ndarray]:
    """Change one element."""

    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[place] = value
        return array

    return change


def wider() -> Network:
    """The first conv with twice the channels; the convs that read it have weights for them."""
    network = NETWORK.with_constant("w1", stretch).with_constant("b1", stretch)
    return network.with_constant("w2", lambda a: np.concatenate([a, a], 1)).with_constant(
        "w3", lambda a: np.concatenate([a, a], 1)
    )


def swapped() -> Network:
    """Pool before sigmoid instead of after it."""
    network = NETWORK.with_layer("sigmoid", operands=("pool",)).with_layer("pool", operands=("conv3",))
    layers = list(network.layers)
    layers[7], layers[8] = layers[8], layers[7]
    for place, name in ((9, "sigmoid"), (11, "sigmoid")):
        layers[place] = replace(layers[place], operands=(name, *layers[place].operands[1:]))
    return replace(network, layers=tuple(layers))


FLOAT_CASES: dict[str, tuple[Network, Found]] = {
    "attribute": (
        NETWORK.with_layer("pool", attributes={"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        [("attributes", "changed", "pool", "ensure_pool_image"), ("attributes", "changed", "pool", "is_ceil_mode")],
    ),
    "weight value": (
        NETWORK.with_constant("w2", with_weight((0, 0, 0, 0), 0.75)),
        [("constants", "changed", "conv2", "tensor_weight")],
    ),
    "weight scale": (
        NETWORK.with_constant("w3", lambda a: a * np.float32(1.5)),
        [("constants", "changed", "shortcut", "tensor_weight")],
    ),
    "bias": (
        NETWORK.with_constant("b4", with_weight((3,), 0.1)),
        [("constants", "changed", "conv3", "tensor_bias")],
    ),
    "bias removed": (
        NETWORK.with_layer("conv3", operands=("sum", "w4")),
        [("constants", "removed", "conv3", "tensor_bias")],
    ),
    "extra node": (
        NETWORK.inserted("pool", Layer("Tanh", ("sigmoid",), "tanh")),
        [("nodes", "added", "tanh", "")],
    ),
    "removed node": (NETWORK.without("relu2"), [("nodes", "removed", "relu2", "")]),
    "other operator": (
        NETWORK.with_layer("sigmoid", op="Tanh"),
        [("attributes", "changed", "sigmoid", "active_type")],
    ),
    "replaced operator": (
        NETWORK.with_layer("sigmoid", op="Softmax", attributes={"axis": 1}),
        [("nodes", "changed", "sigmoid", "operator")],
    ),
    "swapped order": (swapped(), [("nodes", "moved", "sigmoid", "active")]),
    "rewired": (
        NETWORK.with_layer("shortcut", operands=("relu2", "w3")),
        [("nodes", "rewired", "shortcut", "operands")],
    ),
    "commuted operands": (NETWORK.with_layer("sum", operands=("shortcut", "relu2")), []),
    "wider layer": (wider(), [("constants", "changed", "conv1", "tensor_weight shape")]),
    "larger input": (
        replace(
            NETWORK.with_constant("w5", lambda a: np.concatenate([a] * 4)),
            inputs={"x": [1, 3, 16, 16]},
        ),
        [("interface", "changed", "x", "input shape")],
    ),
    "dynamic dimension": (
        replace(NETWORK, inputs={"x": ["N", 3, 8, 8]}, outputs={"logits": ["N", 10], "mean": ["N", CHANNELS]}),
        [("interface", "changed", "x", "input shape")],
    ),
    "renamed input": (
        replace(NETWORK.with_layer("conv1", operands=("image", "w1", "b1")), inputs={"image": [1, 3, 8, 8]}),
        [("interface", "renamed", "image", "input")],
    ),
    "renamed output": (
        replace(NETWORK.with_layer("logits", result="scores"), outputs={"scores": [1, 10], "mean": [1, CHANNELS]}),
        [("interface", "renamed", "scores", "output")],
    ),
    "renamed node": (
        NETWORK.renamed(lambda name: "inner" if name == "sigmoid" else name),
        [("names", "renamed", "inner", "")],
    ),
    "output order": (
        replace(NETWORK, outputs=dict(reversed(NETWORK.outputs.items()))),
        [("interface", "reordered", "outputs", "")],
    ),
    "output removed": (
        replace(NETWORK, layers=NETWORK.layers[:-1], outputs={"logits": [1, 10]}),
        [("interface", "removed", "mean", "output"), ("nodes", "removed", "mean", "")],
    ),
    "other opset": (replace(NETWORK, opset=13), []),
}


@pytest.fixture(scope="module")
def plain() -> tc.Model:
    return NETWORK.convert()


@pytest.fixture(scope="module")
def int8() -> tc.Model:
    return NETWORK.quantize()


@pytest.mark.parametrize("name", FLOAT_CASES)
def test_planted_in_float(name: str, plain: tc.Model) -> None:
    network, expected = FLOAT_CASES[name]
    found = compare(plain, network.convert())
    assert changes(found) == expected, found.text(everything=True)
    back = compare(network.convert(), plain)
    assert len(changes(back)) == len(expected), back.text(everything=True)


@pytest.mark.parametrize("name", FLOAT_CASES)
def test_planted_between_other_names(name: str, plain: tc.Model) -> None:
    """With other names of all tensors, the same differences are reported, besides the names."""
    network, expected = FLOAT_CASES[name]
    found = compare(plain, network.renamed(lambda name: f"n{int.from_bytes(name.encode())}").convert())
    kinds = sorted((category, action) for category, action, _, _ in changes(found) if category != "names")
    assert kinds == sorted((category, action) for category, action, _, _ in expected if category != "names")


def test_all_renamed_is_only_renamed(plain: tc.Model) -> None:
    found = compare(plain, NETWORK.renamed(lambda name: f"other/{name}").convert())
    assert {change.category for change in found.changes} == {"names"}
    renamed = {(change.before, change.after) for change in found.changes}
    assert renamed == {(layer.result, f"other/{layer.result}") for layer in NETWORK.layers[:-2]}


def test_exchanged_names_are_renamings(plain: tc.Model) -> None:
    """Names do not mislead: two convs exchange their names, but not their weights."""
    other = NETWORK.renamed(lambda name: {"conv2": "shortcut", "shortcut": "conv2"}.get(name, name))
    found = compare(plain, other.convert())
    assert changes(found) == [("names", "renamed", "conv2", ""), ("names", "renamed", "shortcut", "")]


def test_weights_are_measured(plain: tc.Model) -> None:
    scaled = compare(plain, FLOAT_CASES["weight scale"][0].convert()).changes[0].measured
    assert scaled.factor == pytest.approx(1.5)
    first = NETWORK.constants["w2"][0, 0, 0, 0]
    found = compare(plain, FLOAT_CASES["weight value"][0].convert()).changes[0].measured
    assert (found.different, found.elements) == (1, CHANNELS * CHANNELS * 9)
    assert found.max_difference == pytest.approx(abs(0.75 - first))
    assert found.mean_difference == pytest.approx(abs(0.75 - first) / found.elements)
    per_channel = NETWORK.with_constant(
        "w2", lambda a: a * np.linspace(1, 2, CHANNELS, dtype="f4")[:, None, None, None]
    )
    assert compare(plain, per_channel.convert()).changes[0].measured.factor_axis == 0


def test_consequences_are_marked(plain: tc.Model) -> None:
    """A larger input changes the shapes of every node after it."""
    found = compare(plain, FLOAT_CASES["larger input"][0].convert())
    assert sum(change.category == "types" and change.follows for change in found.changes) > 5


def test_equal_and_converted_again(plain: tc.Model, int8: tc.Model) -> None:
    for model, again in ((plain, NETWORK.convert()), (int8, NETWORK.quantize())):
        found = tc.diff(model, again, samples=2)
        assert found.is_equal
        assert found.changes == ()
        assert "no differences" in str(found)


@pytest.mark.parametrize(
    ("hidden", "following", "text"),
    [
        (0, 0, ""),
        (1, 1, "1 change that follows from others: tpuconvert diff --all"),
        (3, 3, "3 changes that follow from others: tpuconvert diff --all"),
        (3, 1, "and 3 more, 1 of them follows from others: tpuconvert diff --all"),
        (3, 0, "and 3 more: tpuconvert diff --all"),
    ],
)
def test_hidden_changes(hidden: int, following: int, text: str) -> None:
    assert hidden_text(hidden, following) == text


ONE_OUTPUT = FLOAT_CASES["output removed"][0]
UNREFINED = {"without": ("reconstruction", "weight-rounding", "bias-correction", "method-search")}


@pytest.fixture(scope="module")
def unrefined() -> tc.Model:
    return ONE_OUTPUT.quantize(**UNREFINED)


def test_other_thresholds_change_scales_and_weights_only(int8: tc.Model) -> None:
    other = NETWORK.quantize(calibration_method="minmax")
    found = compare(int8, other)
    assert found.matched == len(int8.graph) == len(other.graph)
    assert set(found.counts()) <= {"scales", "constants", "settings"}, found.text(everything=True)
    assert found.counts()["scales"] > 0
    assert [c.name for c in found.changes if c.category == "settings"] == ["option calibration_method"]


def test_scales_per_tensor(unrefined: tc.Model) -> None:
    """The weights of one conv have one scale instead of one per channel."""
    found = compare(unrefined, ONE_OUTPUT.quantize(**UNREFINED, precision=["conv2=per-tensor"]))
    assert changes(found) == [
        ("scales", "changed", "conv2:int32", "tensor_weight"),
        ("settings", "changed", "option precision", ""),
    ], found.text(everything=True)


def test_one_threshold(tmp_path: Path) -> None:
    """Another threshold of one tensor changes its scale; everything else follows."""
    source, data, ranges = (str(tmp_path / name) for name in ("net.onnx", "samples.npy", "ranges.json"))
    Path(source).write_bytes(ONE_OUTPUT.proto().SerializeToString())
    np.save(data, samples([1, 3, 8, 8]))
    assert main(["calibrate", source, "--calibration", data, "-o", ranges]) == 0
    models = [str(tmp_path / name) for name in ("before.tpum", "after.tpum")]
    for model, factor in zip(models, (1.0, 0.5), strict=True):
        stored = json.loads(Path(ranges).read_text())
        stored["ranges"]["sum"]["threshold"] *= factor
        Path(ranges).write_text(json.dumps(stored))
        assert main(["quantize", source, "--ranges", ranges, "-o", model, "--without", "channel-scales"]) == 0
    found = tc.diff(*models, samples=0)
    assert changes(found) == [("scales", "changed", "sum", "result")], found.text(everything=True)
    assert {change.name for change in found.changes} == {"sum", "conv3:int32", "conv3"}


def test_node_kept_in_float(unrefined: tc.Model) -> None:
    found = compare(unrefined, ONE_OUTPUT.quantize(**UNREFINED, keep_float=["logits"]))
    assert changes(found) == [
        ("precision", "changed", "logits", ""),
        ("settings", "changed", "option keep_float", ""),
    ], found.text(everything=True)


def test_float_against_int8(unrefined: tc.Model) -> None:
    """Every operator is matched with its integer form, to which the requantizations belong."""
    before = ONE_OUTPUT.convert()
    found = compare(before, unrefined)
    told = {change.category for change in found.changes if not change.follows}
    assert told == {"precision", "settings"}, found.text(everything=True)
    forms = {change.name: (change.before, change.after) for change in found.changes if change.category == "precision"}
    assert forms["conv2"] == ("conv + active in FLOAT32", "conv_v2 + requant_int32 in UINT8")
    assert forms["sigmoid"] == ("active in FLOAT32", "lut in UINT8")
    assert set(forms) == {layer.result for layer in ONE_OUTPUT.layers if layer.op != "Relu"}


def test_other_chip() -> None:
    found = compare(NETWORK.convert(), NETWORK.convert(chip="bm1684"))
    assert changes(found) == [("settings", "changed", "chip", "")]


def test_other_preprocessing() -> None:
    models = [NETWORK.convert(preprocess=f"color=RGB,scale={scale}") for scale in (0.5, 0.25)]
    found = compare(*models)
    assert changes(found) == [("settings", "changed", "preprocessing", "")]
    assert "scale=0.5" in found.changes[0].before
    assert "scale=0.25" in found.changes[0].after


def test_fused_and_unfused() -> None:
    """A batch normalization that one version has folded into the conv, and the other keeps as a node."""
    constants = {name: np.full(CHANNELS, value, np.float32) for name, value in zip("sbmv", (2, 1, 0.5, 4), strict=True)}
    network = replace(NETWORK, constants={**NETWORK.constants, **constants})
    network = network.inserted("relu2", Layer("BatchNormalization", ("conv2", *"sbmv"), "norm"))
    folded = network.convert()
    kept = network.convert(disable_rules=["fold_scale_into_previous_linear"])
    for models, texts in (
        ((kept, folded), ("conv + batch_norm", "conv")),
        ((folded, kept), ("conv", "conv + batch_norm")),
    ):
        found = compare(*models)
        told = [change for change in found.changes if change.category != "settings"]
        assert [(c.category, c.action, c.before, c.after) for c in told] == [("nodes", "replaced", *texts)]
    read = tc.diff(network.proto(), folded, as_read=True, samples=0)
    assert ("conv + batch_norm", "conv") in [(change.before, change.after) for change in read.changes]


def typed_graph(constant: str = "float32", result: DType = DType.FLOAT32) -> Graph:
    """``cast(x * constant)`` with a constant of a data type."""
    graph = Graph("typed")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 4)))
    product = graph.add(Mul(), x, graph.constant(np.arange(4, dtype=constant).reshape(1, 4)), name="product")
    cast = graph.add(Cast(result), product, name="cast")
    graph.output(graph.add(Active(ActiveType.ACTIVE_TANH), cast, name="y"))
    return graph


def test_constant_precision() -> None:
    """The same elements in another data type."""
    found = tc.diff(typed_graph(), typed_graph("float16"), samples=0)
    assert changes(found) == [("constants", "changed", "product", "tensor_i1 data type")]


def test_data_type() -> None:
    """A cast to another float type; the types of the nodes after it follow."""
    found = tc.diff(typed_graph(), typed_graph(result=DType.FLOAT16), samples=0)
    assert changes(found) == [("types", "changed", "cast", "data type")]
    assert [change.name for change in found.changes if change.follows and change.category == "types"] == ["y"]


def test_metadata_and_plugins(plain: tc.Model) -> None:
    content = replace(plain.content, metadata={**plain.metadata, "labels": ["a", "b"]}, plugins=("swish",))
    found = compare(plain, tc.Model(content))
    assert changes(found) == [("metadata", "changed", "labels", ""), ("settings", "changed", "plugins", "")]


def sum_graph(first: float, *, is_left: bool = False, is_output: bool = False) -> Graph:
    """``x + constant`` or ``constant + x``; with ``is_output`` the constant is an output, too."""
    graph = Graph("sum")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 4)))
    constant = graph.constant(np.array([[first, 1, 2, 3]], np.float32), "constant")
    graph.output(graph.add(Add(), *((constant, x) if is_left else (x, constant)), name="y"))
    if is_output:
        graph.output(constant)
    return graph


def test_constant_of_a_commutative_operator() -> None:
    """The order of the operands does not matter, and does not conceal another constant."""
    assert tc.diff(sum_graph(0), sum_graph(0, is_left=True), samples=0).is_equal
    found = tc.diff(sum_graph(0), sum_graph(5, is_left=True), samples=0)
    assert [(c.category, c.name) for c in found.changes] == [("constants", "y")]
    assert found.changes[0].measured.max_difference == 5


def test_constant_output() -> None:
    found = tc.diff(sum_graph(0, is_output=True), sum_graph(5, is_output=True), samples=1)
    assert changes(found) == [
        ("constants", "changed", "constant", "output"),
        ("constants", "changed", "y", "tensor_i1"),
    ]
    assert not found.outputs.is_equal


def test_constant_instead_of_a_computed_operand() -> None:
    """``x + constant`` becomes ``x + tanh(x)``."""
    graph = Graph("sum")
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 4)))
    other = graph.add(Active(ActiveType.ACTIVE_TANH), x, name="tanh")
    graph.output(graph.add(Add(), x, other, name="y"))
    found = tc.diff(sum_graph(0), graph, samples=0)
    assert changes(found) == [("nodes", "added", "tanh", ""), ("nodes", "rewired", "y", "operands")]


def test_limits_of_a_quantization_are_not_those_of_its_source() -> None:
    """The source is converted in float, where a smallest share of integers and exactness have no meaning."""
    digits = Path(tc.__file__).parents[1] / "examples" / "digits"
    pixels = "color=GRAY,scale=0.0625"
    for limit in ({"min_int8_share": 0.5}, {"exact_on": "bm1684x"}):
        limited = tc.Quantization(effort="low", **limit)
        model = tc.convert(
            digits / "digits.onnx", quantize=limited, calibration=digits / "calibration.npz", preprocess=pixels
        )
        assert set(tc.diff(digits / "digits.onnx", model, samples=0).counts()) == {"precision"}
