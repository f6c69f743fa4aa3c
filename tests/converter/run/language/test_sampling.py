"""Choice of the next token: probabilities of transformers, draws, and options that exclude one another."""

import inspect
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.run.language.sampling import Choice, _penalize, candidates
from tpuconvert.schema.types import Array

LOGITS = np.array([2.0, -1.0, 0.5, 3.0, 1.5, -0.5, 2.5, 0.25], np.float32)
TOKENS = [3, 3, 1]

CASES: list[tuple[dict[str, Any], list[float]]] = [
    ({}, [0.15379, 0.00766, 0.03432, 0.41805, 0.09328, 0.01262, 0.25356, 0.02672]),
    ({"temperature": 0.5, "top_k": 3}, [0.09003, 0, 0, 0.66524, 0, 0, 0.24473, 0]),
    ({"temperature": 2.0, "top_p": 0.8}, [0.1929, 0, 0.09112, 0.31805, 0.15023, 0, 0.24769, 0]),
    ({"min_p": 0.3}, [0.18632, 0, 0, 0.50648, 0, 0, 0.3072, 0]),
    ({"repetition_penalty": 2.0}, [0.22941, 0.0042, 0.05119, 0.13914, 0.13914, 0.01883, 0.37823, 0.03986]),
    (
        {"temperature": 0.7, "repetition_penalty": 1.5, "top_k": 5, "top_p": 0.9, "min_p": 0.2},
        [0.22064, 0, 0, 0.22064, 0.10801, 0, 0.45071, 0],
    ),
    ({"temperature": 3.0, "top_k": 6, "top_p": 0.7, "min_p": 0.8}, [0, 0, 0, 0.54157, 0, 0, 0.45843, 0]),
    ({"top_p": 0.0}, [0, 0, 0, 1, 0, 0, 0, 0]),
]
"""Options, and the softmax after the logits processors of transformers 5.24 with them, in float32."""


def probabilities(logits: Array, tokens: list[int], sampling: tc.Sampling) -> Array:
    scores = _penalize(logits.astype(np.float64), tokens, sampling.repetition_penalty)
    ids, shares = candidates(scores, sampling)
    every = np.zeros(len(logits))
    every[ids] = shares
    return every


@pytest.mark.parametrize(("options", "expected"), CASES)
def test_probabilities_of_transformers(options: dict[str, Any], expected: list[float]) -> None:
    computed = probabilities(LOGITS, TOKENS, tc.Sampling(**{"temperature": 1.0, **options}))
    np.testing.assert_allclose(computed, expected, atol=1e-5)  # the stored numbers have 5 digits


def test_top_k_keeps_tokens_with_equal_logits() -> None:
    logits = np.array([1, 2, 2, 0], np.float32)
    assert (probabilities(logits, [], tc.Sampling(temperature=1.0, top_k=1)) > 0).tolist() == [False, True, True, False]


def test_top_p_of_equal_probabilities_keeps_one() -> None:
    assert np.count_nonzero(probabilities(np.zeros(8, np.float32), [], tc.Sampling(temperature=1.0, top_p=0.0))) == 1


@pytest.mark.filterwarnings("error")
def test_extreme_numbers_choose_the_largest_logit() -> None:
    logits = np.array([3.0, -2.0, 5.0, 4.0], np.float32)
    assert Choice(tc.Sampling(temperature=1e-320))(logits, [0]) == 2
    assert Choice(tc.Sampling(repetition_penalty=1e308))(np.array([3, -20, 5, 4], np.float32), [0, 1]) == 2


def test_draws_follow_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.1, 0.3, 0.1], np.float32))
    choose = Choice(tc.Sampling(temperature=1.0, top_k=2))
    counts = np.bincount([choose(logits, []) for _ in range(20000)], minlength=4) / 20000
    np.testing.assert_allclose(counts, [0.5 / 0.8, 0, 0.3 / 0.8, 0], atol=0.015)  # 4 standard deviations


def test_greedy_choice_takes_the_first_of_equal_logits_after_the_penalty() -> None:
    logits = np.array([1, 3, 3, 2], np.float32)
    assert Choice(tc.Sampling())(logits, []) == 1
    assert Choice(tc.Sampling(repetition_penalty=2.0))(logits, [1]) == 2
    assert Choice(tc.Sampling(repetition_penalty=2.0))(-logits, [0]) == 0
    assert Choice(tc.Sampling(repetition_penalty=2.5))(-logits, [0]) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0, expected a number of at least 0"),
        ({"temperature": float("nan")}, "temperature is 'nan'"),
        ({"temperature": float("inf")}, "temperature is 'inf'"),
        ({"top_k": 0}, "top_k is 0, expected a number of at least 1"),
        ({"top_p": 1.5}, "top_p is 1.5, expected a number from 0 to 1"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0, expected more than 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"max_new_tokens": 2.5}, r"max_new_tokens is '2.5' \(float\)"),
        ({"stop_tokens": (3, -1)}, "stop_tokens has -1, expected ids of at least 0"),
        ({"stop_tokens": (3.5,)}, r"stop_tokens is '\(3.5,\)'"),
    ],
)
def test_limits(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tc.UsageError, match=message):
        tc.Sampling(**options)


def test_own_values_win_over_those_of_the_files() -> None:
    stored = tc.Sampling(temperature=0.6, top_p=0.9, top_k=20, stop_tokens=(2,), max_new_tokens=5)
    own = tc.Sampling(temperature=0.8, top_k=3, stop_tokens=(7, 8), seed=4)
    expected = tc.Sampling(temperature=0.8, top_p=0.9, top_k=3, stop_tokens=(7, 8), max_new_tokens=5, seed=4)
    assert own.completed(stored) == expected
    assert tc.Sampling(temperature=0).completed(stored).temperature == 0
    with pytest.raises(tc.UsageError, match="top_p has no effect with temperature 0") as caught:
        tc.Sampling(top_p=0.5).completed(tc.Sampling())
    assert "temperature" in caught.value.hint


def test_the_function_has_the_fields_of_sampling() -> None:
    """Their names and defaults are written twice, for type checkers."""
    arguments = inspect.signature(tc.generate).parameters
    assert {item.name: item.default for item in fields(tc.Sampling)}.items() <= {
        name: argument.default for name, argument in arguments.items()
    }.items()
