"""ONNX operators on extreme integers: exact, refused, or with a warning that names the node."""

import zlib

import pytest

from tools.exactness.integer_types import CHIPS, IntegerCase, cases, expected, outcome

pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")

ALL = list(cases())
_SHARE = 10


def _is_sampled(case: IntegerCase) -> bool:
    return zlib.crc32(str(case).encode()) % _SHARE == 0


def _check(case: IntegerCase) -> None:
    outputs = expected(case)
    if outputs is None:
        pytest.skip("neither oracle has the type")
    for chip in CHIPS:
        outcome(case, chip, outputs)


@pytest.mark.parametrize("case", list(filter(_is_sampled, ALL)), ids=str)
def test_integers_are_exact_or_warned_about(case: IntegerCase) -> None:
    _check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=str)
def test_all_integers_are_exact_or_warned_about(case: IntegerCase) -> None:
    _check(case)


def test_cases_have_names_of_their_own() -> None:
    assert len(set(map(str, ALL))) == len(ALL)
