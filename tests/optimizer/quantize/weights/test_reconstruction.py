"""Correction of weights for the errors of their operand."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.weights.reconstruction import FRACTION, DriftSums, correct_weights, drift_of


def observations(count: int, seed: int, leak: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Integer operand and drift of four inputs. Each input misses a share of the next one."""
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 256, (1, count, 4)).astype(np.uint8)
    drift = leak * np.roll(q, -1, axis=2) + rng.normal(0, noise, q.shape)
    return q, drift_of(q + drift, q)


def halves(count: int, leak: float, noise: float) -> dict[int, DriftSums]:
    return {half: DriftSums.of(*observations(count, half, leak, noise)) for half in range(2)}


def test_corrects_the_linear_part_of_the_drift():
    exact = np.random.default_rng(9).normal(size=(1, 3, 4))
    corrected = correct_weights(exact, halves(4000, 0.02, 0.5))
    # y = W (q + leak * roll(q)), so that input j gets a share of the weight of the input before it.
    wanted = exact + 0.02 * np.roll(exact, 1, axis=2)
    # The damping of 0.1 of the variance reduces the correction by about a tenth.
    assert np.abs(corrected - wanted).max() < 0.25 * np.abs(exact - wanted).max()


@pytest.mark.parametrize("seed", range(4))
def test_noise_does_not_change_the_weights_much(seed):
    """Six observations fit four inputs almost exactly; the other half of the samples shows that this means nothing."""
    exact = np.random.default_rng(seed).normal(size=(1, 3, 4))
    sums = {half: DriftSums.of(*observations(6, 10 * seed + half, 0.0, 2.0)) for half in range(2)}
    fitted = correct_weights(exact, {0: sums[0], 1: sums[0]})  # measured on the samples of the fit
    checked = correct_weights(exact, sums)
    assert np.abs(checked - exact).sum() < 0.5 * np.abs(fitted - exact).sum()


def test_the_correction_of_many_outputs_is_that_of_every_output():
    """With more outputs than inputs, the corrections are computed in another way."""
    exact = np.random.default_rng(3).normal(size=(1, 3, 4))
    sums = halves(400, 0.02, 0.5)
    repeated = correct_weights(np.tile(exact, (1, 5, 1)), sums)  # equal errors, so that the share is the same
    expected = np.tile(correct_weights(exact, sums), (1, 5, 1))
    assert np.abs(expected - repeated).max() < 1e-12 < 1e-3 < np.abs(expected[:, :3] - exact).max()


def test_one_half_alone_changes_nothing():
    exact = np.ones((1, 2, 4))
    assert correct_weights(exact, {0: DriftSums.of(*observations(100, 0, 0.1, 0.1))}) is exact


def test_drift_is_saturated_to_a_byte():
    assert drift_of(np.array([1000.0, 3.0]), np.array([0, 3], np.uint8)).tolist() == [127, 0]
    assert drift_of(np.array([1.25]), np.array([1], np.uint8)).tolist() == [FRACTION // 4]


def test_merged_sums_do_not_depend_on_the_split():
    q, drift = observations(1000, 0, 0.1, 1.0)
    whole = DriftSums.of(q, drift)
    for at in (1, 333, 999):
        parts = [DriftSums.of(q[:, rows], drift[:, rows]) for rows in (slice(at), slice(at, None))]
        for order in (parts, parts[::-1]):
            merged = order[0].merged(order[1])
            assert all(np.array_equal(a, b) for a, b in zip(merged.covariances(), whole.covariances(), strict=True))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_are_those_of_float64(dtype):
    rng = np.random.default_rng(0)
    q = rng.integers(0, 256, (3, 500, 20)).astype(np.uint8).view(dtype)
    drift = rng.integers(-127, 128, q.shape).astype(np.int8)
    inputs, drifts, sums = q.astype(np.float64), drift.astype(np.float64), DriftSums.of(q, drift)
    assert np.array_equal(sums.squares, inputs.swapaxes(1, 2) @ inputs)
    assert np.array_equal(sums.products, drifts.swapaxes(1, 2) @ inputs)
    assert np.array_equal(sums.totals, inputs.sum(axis=1)) and np.array_equal(sums.drifts, drifts.sum(axis=1))
