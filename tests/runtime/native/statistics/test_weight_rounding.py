"""Rounding of weights in the native engine."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.weights import weight_rounding
from tpuconvert.runtime.native.builder.loader import ISA_VARIABLE, available_isas
from tpuconvert.runtime.native.statistics.weight_rounding import round_weights
from tpuconvert.runtime.threads import limited_threads

pytestmark = pytest.mark.skipif(not available_isas(), reason="the native engine was not built")


def drawn(groups, inputs, outputs):
    """Covariances of correlated inputs, and weights."""
    rng = np.random.default_rng(inputs)
    mixing = rng.normal(size=(groups, inputs, inputs // 3 + 1))
    covariance = mixing @ mixing.swapaxes(1, 2) + 0.3 * np.eye(inputs)
    return covariance, rng.normal(size=(groups, inputs, outputs)) * 40


def error(covariance, wanted, rounded):
    difference = wanted - rounded
    return np.einsum("gio,gij,gjo->o", difference, covariance, difference, optimize=True)


SHAPES = [(1, 300, 70), (1, 129, 1), (1, 1, 3), (2, 40, 48), (300, 9, 1), (3, 260, 17)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_error_is_that_of_binary64(shape):
    covariance, wanted = drawn(*shape)
    found, expected = round_weights(covariance, wanted, 127.0), weight_rounding._round(covariance, wanted)
    assert (found == np.rint(found)).all() and np.abs(found).max() <= 127
    # A weight between two integers may be rounded to the other one, which changes all later ones.
    assert (found == expected).mean() > 0.5
    sums = [error(covariance, wanted, rounded).sum() for rounded in (found, expected)]
    assert sums[0] == pytest.approx(sums[1], rel=0.1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_do_not_depend_on_instructions_and_threads(shape, monkeypatch):
    covariance, wanted = drawn(*shape)
    found = []
    for isa in available_isas():
        monkeypatch.setenv(ISA_VARIABLE, isa)
        for threads in (1, 3):
            with limited_threads(threads):
                found.append(round_weights(covariance, wanted, 127.0).tobytes())
    assert len(set(found)) == 1


def test_arguments_are_not_changed_unless_the_caller_allows_it():
    covariance, wanted = (array.astype(np.float32) for array in drawn(2, 20, 5))
    before = covariance.copy(), wanted.copy()
    expected = round_weights(covariance, wanted, 127.0)
    assert np.array_equal(covariance, before[0]) and np.array_equal(wanted, before[1])
    assert np.array_equal(round_weights(covariance, wanted, 127.0, overwrite_covariance=True), expected)
    assert not np.array_equal(covariance, before[0]) and np.array_equal(wanted, before[1])


@pytest.mark.parametrize("groups", [1, 3])
def test_matrices_that_are_not_positive_definite_are_reported(groups):
    covariance, wanted = drawn(groups, 140, 5)
    covariance[-1, 135, 135] = -1.0
    assert round_weights(covariance, wanted, 127.0) is None


def test_binary64_rounds_what_binary32_cannot():
    """Two inputs whose covariance is singular in binary32."""
    covariance = np.array([[[1.0, 1.0], [1.0, 1.0 + 2.0**-40]]])
    wanted = np.array([[[3.3], [4.4]]])
    assert round_weights(covariance, wanted, 127.0) is None
    assert weight_rounding._round(covariance, wanted)[:, 1].tolist() == [[4.0]]
