"""Weights in 4 and 8 bits: search of the scales, and rounding with compensation."""

from __future__ import annotations

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.weights.group_weights import (
    GroupFormat,
    Moments,
    PackedWeight,
    outlier_inputs,
    pack_weight,
    pack_with_outliers,
    packable_nodes,
    second_moments,
)
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import F32, Array, TensorType

FORMS = [GroupFormat(bits, group, zero) for bits in (4, 8) for group in (32, 128) for zero in (False, True)]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def dequantized(packed: PackedWeight, form: GroupFormat, depth: int) -> Array:
    """The weight, [inputs, outputs]."""
    op = MatmulGroupQuantized(form.bits, form.group)
    return op.weights(packed.codes, packed.scale, packed.zero_point, depth).T


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_error_is_smaller_than_with_the_range_of_the_group(form: GroupFormat) -> None:
    """The baseline rounds with the scale from the largest magnitude (or the range) of each group."""
    weight = normal(256, 40)
    rounded = dequantized(pack_weight("y", weight, form), form, 256)
    groups = weight.T.reshape(40, -1, form.group)
    if form.has_zero_points:
        low, high = groups.min(axis=2, keepdims=True), groups.max(axis=2, keepdims=True)
        step = (high - low) / form.most
        baseline = np.clip(np.rint((groups - low) / step), 0, form.most) * step + low
    else:
        step = np.abs(groups).max(axis=2, keepdims=True) / (form.most // 2)
        baseline = np.rint(groups / step) * step
    error = np.square(rounded - weight).sum()
    assert error < np.square(baseline.reshape(40, -1).T - weight).sum()
    assert np.abs(rounded - weight).max() < 3 * step.max()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_samples_reduce_the_error_of_the_result(form: GroupFormat) -> None:
    weight = normal(200, 48)
    x = normal(2000, 200, seed=1) @ normal(200, 200, seed=2) * np.exp(normal(200, seed=3))
    test = x[1000:]
    moments = x[:1000].astype(np.float64).T @ x[:1000] / 1000
    errors = [
        np.square(test @ (dequantized(pack_weight("y", weight, form, given), form, 200) - weight)).sum()
        for given in (None, Moments(np.diagonal(moments).copy()), Moments(moments))
    ]
    assert errors[1] < 0.9 * errors[0]
    assert errors[2] < 0.5 * errors[1]


def held_out_error(form: GroupFormat, rows: int | None, count: int) -> float:
    """Squared error on other rows, for a weight that was rounded on a number of rows with small correlations."""
    weight, mixing = normal(256, 32), np.eye(256, dtype=np.float32) + 0.02 * normal(256, 256, seed=2)
    x, test = (normal(number, 256, seed=seed) @ mixing for number, seed in ((count, 1), (4000, 3)))
    moments = Moments(x.astype(np.float64).T @ x / count, rows)
    rounded = dequantized(pack_weight("y", weight, form, moments), form, 256)
    return float(np.square(test @ (rounded - weight)).sum())


def test_few_rows_are_not_fitted_exactly() -> None:
    """The number of rows lowers the error on other rows if they are few, and changes little if they are many."""
    form = GroupFormat(4, 32)
    assert held_out_error(form, 300, 300) < 0.8 * held_out_error(form, None, 300)
    assert held_out_error(form, 100_000, 4000) == pytest.approx(held_out_error(form, None, 4000), rel=0.01)


def with_outliers(count: int, depth: int = 256) -> Array:
    x = normal(count, depth, seed=1)
    x[:, [3, 100, 101, 250]] *= 20
    return x


@pytest.mark.parametrize("zero", [False, True])
def test_second_group_for_outliers_reduces_the_error(zero: bool) -> None:
    form = GroupFormat(4, 32, zero)
    weight, x = normal(256, 48), with_outliers(2000)
    moments = Moments(x[:1000].astype(np.float64).T @ x[:1000] / 1000, 1000)
    outliers = outlier_inputs(moments, form)
    assert outliers is not None and {3, 100, 101, 250} <= set(outliers)
    packed = pack_with_outliers("y", weight, form, moments, outliers)
    assert packed.order is not None
    assert sorted(packed.order) == sorted([*range(256), *outliers])
    test = x[1000:]
    wanted = test @ weight
    split = np.square(test[:, packed.order] @ dequantized(packed, form, 288) - wanted).sum() / np.square(wanted).sum()
    plain = np.square(test @ dequantized(pack_weight("y", weight, form, moments), form, 256) - wanted).sum()
    assert split == pytest.approx(packed.error, rel=0.4)  # other samples
    assert split < 0.6 * plain / np.square(wanted).sum()


@pytest.mark.parametrize(("square", "is_split"), [(3, True), (2, False)])
def test_second_group_needs_a_quarter_of_the_power(square: float, is_split: bool) -> None:
    """32 of 256 inputs have 96 of 320, or 64 of 288."""
    squares = np.ones(256)
    squares[5::8] = square
    inputs = outlier_inputs(Moments(np.diag(squares)), GroupFormat(4, 32))
    assert (inputs is not None) == is_split and (inputs is None or inputs.tolist() == list(range(5, 256, 8)))


@pytest.mark.parametrize(
    ("form", "moments"),
    [
        (GroupFormat(4, 32), np.eye(256)),
        (GroupFormat(8, 32), np.diag(np.r_[1e6, np.ones(255)])),
        (GroupFormat(4, 32), np.diag(np.r_[1e6, np.ones(254)])),
        (GroupFormat(4, 64), np.diag(np.r_[1e6, np.ones(255)])),
        (GroupFormat(4, 32), np.r_[1e6, np.ones(255)]),
    ],
    ids=["no outliers", "8 bits", "partial group", "few groups", "mean squares only"],
)
def test_no_second_group(form: GroupFormat, moments: Array) -> None:
    assert outlier_inputs(Moments(moments), form) is None


def test_reports_the_error_of_the_result() -> None:
    form = GroupFormat(4, 32)
    weight, x = normal(64, 32), normal(500, 64, seed=1) * np.linspace(0.1, 3, 64, dtype=np.float32)
    moments = x.astype(np.float64).T @ x / len(x)
    packed = pack_weight("y", weight, form, Moments(moments))
    wanted = x.astype(np.float64) @ weight
    error = np.square(x.astype(np.float64) @ dequantized(packed, form, 64) - wanted).sum() / np.square(wanted).sum()
    assert packed.error == pytest.approx(error, rel=1e-6)  # two orders of summation in binary64


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_represents_what_is_on_a_grid(form: GroupFormat) -> None:
    """Weights that are integers times a power of two, with the extreme codes in each group, are exact."""
    middle = 1 << (form.bits - 1)
    codes = np.random.default_rng(0).integers(0, form.most + 1, (128, 20))
    codes[:: form.group] = 0
    codes[1 :: form.group] = form.most
    weight = ((codes - middle) / 64).astype(np.float32)
    np.testing.assert_array_equal(dequantized(pack_weight("y", weight, form), form, 128), weight)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_zeros_stay_zeros(form: GroupFormat) -> None:
    weight = normal(130, 24)
    weight[:128] = 0
    weight[:, 3] = 0
    packed = pack_weight("y", weight, form, Moments(np.ones(130)))
    assert np.isfinite(packed.scale).all()
    values = dequantized(packed, form, 130)
    assert not values[:128].any()
    assert not values[:, 3].any()


@pytest.mark.parametrize("samples", [0, 3])
def test_unused_inputs_and_few_samples(samples: int) -> None:
    """The second moments are singular, or zero."""
    x = normal(samples, 64)
    form = GroupFormat(4, 32)
    weight = normal(64, 16, seed=1)
    rounded = dequantized(pack_weight("y", weight, form, Moments(x.T.astype(np.float64) @ x)), form, 64)
    assert np.abs(rounded - weight).max() < 1.5


def graph_of(weight: Array, **parameters: float) -> Graph:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (5, weight.shape[0])))
    graph.output(graph.add(MatrixMul(**parameters), x, graph.constant(weight, "w")))
    return graph


def test_selects_large_finite_weights() -> None:
    form = GroupFormat(4, 32)
    assert len(packable_nodes(graph_of(normal(128, 128)), form)) == 1
    assert not packable_nodes(graph_of(normal(128, 127)), form)
    assert not packable_nodes(graph_of(normal(16, 2048)), form)
    broken = normal(128, 128)
    broken[3, 4] = np.inf
    assert not packable_nodes(graph_of(broken), form)


def test_second_moments_are_means_over_all_rows() -> None:
    graph = graph_of(normal(128, 128))
    feeds = [{"x": normal(5, 128, seed=seed)} for seed in range(3)]
    ((name, moments),) = second_moments(graph, packable_nodes(graph, GroupFormat(4, 32)), feeds)
    rows = np.concatenate([feed["x"] for feed in feeds]).astype(np.float64)
    assert name == "x" and moments.rows == 15
    np.testing.assert_allclose(
        moments.products, rows.T @ rows / 15, rtol=1e-6, atol=1e-6
    )  # sums of a sample in binary32


def test_samples_do_not_run_later_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product with the last weight is not an input of another one."""
    graph = Graph()
    x = graph.input("x", TensorType(F32, (5, 128)))
    y = graph.add(MatrixMul(), x, graph.constant(normal(128, 256), "w"))
    graph.output(graph.add(MatrixMul(), y, graph.constant(normal(256, 128), "v")))
    executed: list[int] = []
    monkeypatch.setattr(
        "tpuconvert.optimizer.quantize.weights.group_weights.Session",
        lambda part, **options: executed.append(len(part)) or Session(part, **options),
    )
    mean_products = dict(second_moments(graph, packable_nodes(graph, GroupFormat(4, 32)), [{"x": normal(5, 128)}]))
    assert executed == [1] and set(mean_products) == {"x", y.name}
    assert len(graph) == 2 and len(graph.outputs) == 1


def test_second_moments_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuconvert.optimizer.quantize.weights.group_weights._MOST_BYTES", 1)
    monkeypatch.setattr("tpuconvert.optimizer.quantize.weights.group_weights.MOST_INPUTS", 200)
    graph = Graph()
    x = graph.input("x", TensorType(F32, (5, 128)))
    y = graph.add(MatrixMul(), x, graph.constant(normal(128, 256), "w"))
    graph.output(graph.add(MatrixMul(), y, graph.constant(normal(256, 128), "v")))
    feeds = [{"x": normal(5, 128)}]
    mean_products = dict(second_moments(graph, packable_nodes(graph, GroupFormat(4, 32)), feeds))
    assert [mean_products[name].products.shape for name in ("x", y.name)] == [(128, 128), (256,)]
