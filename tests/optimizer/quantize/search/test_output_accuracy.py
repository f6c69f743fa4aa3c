"""Accuracy of single outputs against limits: numbers, integers, sets of rows, batches, results that are not finite."""

import math

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.search.output_accuracy import OutputAccuracy, measure_outputs
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.types import F32, I32, TensorType

RUNS = 8


def graph_of(shape: tuple[int, ...], *, is_integer: bool = False) -> Graph:
    graph = Graph("net")
    x = graph.input("x", TensorType(F32, shape))
    y = graph.add(Cast(out_dtype=I32) if is_integer else Active(ActiveType.ACTIVE_TANH), x, name="y")
    graph.output(y)
    return graph


def measure(wanted: list[np.ndarray], found: list[np.ndarray], *, batch: int = 1) -> OutputAccuracy:
    graph = graph_of(wanted[0].shape, is_integer=wanted[0].dtype.kind != "f")
    feeds = [{"x": np.zeros((batch, 4), np.float32)}] * len(wanted)
    runs = [[{"y": array} for array in arrays] for arrays in (wanted, found)]
    (result,) = measure_outputs(graph, feeds, *runs)
    return result


def numbers(*shape: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(RUNS)]


def test_the_mean_cosine_and_the_ratio_are_those_of_numpy() -> None:
    wanted, noise = numbers(1, 50), numbers(1, 50, seed=1)
    found = [a + 0.1 * b for a, b in zip(wanted, noise, strict=True)]
    result = measure(wanted, found)
    pairs = [(a.ravel().astype(float), b.ravel().astype(float)) for a, b in zip(wanted, found, strict=True)]
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]
    assert result.cosine == pytest.approx(np.mean(cosines))
    assert result.worst_cosine == pytest.approx(min(cosines))
    ratio = sum(a @ a for a, _ in pairs) / sum((a - b) @ (a - b) for a, b in pairs)
    assert result.sqnr == pytest.approx(10 * math.log10(ratio))
    assert result.is_accurate


@pytest.mark.parametrize(("noise", "is_accurate"), [(0.08, True), (0.2, False)])
def test_the_limit_of_the_cosine(noise: float, is_accurate: bool) -> None:
    wanted = numbers(1, 200)
    found = [a + noise * b for a, b in zip(wanted, numbers(1, 200, seed=1), strict=True)]
    assert measure(wanted, found).is_accurate is is_accurate


def test_a_wrong_scale_is_below_the_ratio_only() -> None:
    wanted = numbers(1, 50)
    result = measure(wanted, [0.8 * array for array in wanted])
    assert result.cosine == pytest.approx(1) and not result.is_accurate


@pytest.mark.parametrize("factor", [1e-30, 1e-42, 1e30])
def test_tiny_and_huge_results_are_compared_like_others(factor: float) -> None:
    wanted = [(array * factor).astype(np.float32) for array in numbers(1, 50)]
    assert measure(wanted, wanted).is_accurate
    assert not measure(wanted, [array[:, ::-1] for array in wanted]).is_accurate


def test_constant_results() -> None:
    zeros, ones = [np.zeros((1, 5), np.float32)] * RUNS, [np.ones((1, 5), np.float32)] * RUNS
    assert measure(zeros, zeros).is_accurate and measure(ones, ones).is_accurate
    assert not measure(zeros, ones).is_accurate and not measure(ones, zeros).is_accurate


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_results_that_are_not_finite(number: float) -> None:
    wanted = numbers(1, 50)
    broken = [array.copy() for array in wanted]
    broken[3][0, 7] = number
    assert not measure(wanted, broken).is_accurate
    assert not measure(broken, wanted).is_accurate
    assert measure(broken, broken).is_accurate
    assert not measure(broken, [-array for array in broken]).is_accurate


def test_nothing_is_accurate_without_a_finite_element() -> None:
    infinite = [np.full((1, 4), np.inf, np.float32)] * RUNS
    assert not measure(infinite, infinite).is_accurate


def test_a_destroyed_sample_is_not_hidden_by_its_batch() -> None:
    wanted = numbers(4, 50)
    for array in wanted:
        array[1] *= 0.12  # 1.4 % of the power: neither the cosine of the run nor the ratio shows the error
    found = [array.copy() for array in wanted]
    for array in found:
        array[1] = -array[1, ::-1]
    assert measure(wanted, found).cosine > 0.98  # without the samples of the batch
    assert not measure(wanted, found, batch=4).is_accurate


def test_negligible_samples_of_a_batch_have_no_cosine() -> None:
    wanted = numbers(4, 50)
    for array in wanted:
        array[1] *= 1e-3
    found = [array.copy() for array in wanted]
    for array in found:
        array[1] = 0
    assert measure(wanted, found, batch=4).is_accurate


def test_one_number_per_sample_is_compared_over_the_batch() -> None:
    wanted = [np.abs(array) + 0.1 for array in numbers(4, 1)]
    assert not measure(wanted, [np.ones_like(array) for array in wanted], batch=4).is_accurate


def test_another_shape_is_not_accurate() -> None:
    assert not measure(numbers(1, 5), numbers(1, 6)).is_accurate
    integers = [np.zeros((1, 5), np.int32)] * RUNS
    assert not measure(integers, [array[:, :4] for array in integers]).is_accurate


@pytest.mark.parametrize(("different", "is_accurate"), [(0, True), (1, True), (2, False), (8, False)])
def test_classes_are_compared_by_their_equal_share(different: int, is_accurate: bool) -> None:
    wanted = [np.array([3], np.int32)] * RUNS
    found = [np.array([4 if index < different else 3], np.int32) for index in range(RUNS)]
    result = measure(wanted, found)
    assert result.equal == 1 - different / RUNS and result.sqnr is None
    assert result.is_accurate is is_accurate


@pytest.mark.parametrize(("share", "is_accurate"), [(0.01, True), (0.1, False)])
def test_masks_are_compared_by_their_equal_share(share: float, is_accurate: bool) -> None:
    rng = np.random.default_rng(0)
    wanted = [rng.integers(0, 2, (1, 100, 10)).astype(np.int32) for _ in range(RUNS)]
    found = [np.where(rng.random(array.shape) < share, 1 - array, array).astype(np.int32) for array in wanted]
    assert measure(wanted, found).is_accurate is is_accurate


def test_the_standard_error_is_subtracted() -> None:
    wanted = numbers(1, 200)
    found = [array.copy() for array in wanted]
    noise = np.random.default_rng(1).standard_normal((1, 200)).astype(np.float32)
    found[0] += 0.38 * noise  # one sample has a cosine of about 0.93, so that the mean is above the limit
    result = measure(wanted, found)
    assert result.cosine > 0.99 and not result.is_accurate


def test_results_without_elements() -> None:
    empty = [np.zeros((0, 4), np.float32)] * 2
    assert measure(empty, empty).is_accurate
