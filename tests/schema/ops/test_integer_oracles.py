"""Integer operators, compared with scalar Python integers: a few random examples each, a thousand in the slow tests."""

import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.support.operators.integer_oracles import ORACLES, Example, examples
from tests.support.operators.integer_oracles.base import COMPUTES_NOTHING
from tpuconvert.schema.definition.op import Op, all_ops

FEW, MANY = 6, 1000
KINDS = ("tpu", "atomic")


def is_integer(definition: type[Op]) -> bool:
    """Return True if the operator has integer operands or results on some chip."""
    return definition.kind.value in KINDS and any(
        dtype.is_integer
        for support in definition.dtypes.values()
        for case in support.cases
        for dtypes in case.operands.values()
        for dtype in dtypes
    )


INTEGER = [name for name, definition in all_ops().items() if is_integer(definition) and name not in COMPUTES_NOTHING]
DEFINED = [name for name in sorted(ORACLES) if name in all_ops()]


def agree(name: str, count: int) -> None:
    compared = 0

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(examples(name))
    def agrees(example: Example) -> None:
        nonlocal compared
        assume(example.check())
        compared += 1

    agrees()
    assert compared >= count, f"{name}: only {compared} examples that a chip takes"


@pytest.mark.parametrize("name", DEFINED)
def test_some_examples(name: str) -> None:
    agree(name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFINED)
def test_many_examples(name: str) -> None:
    agree(name, MANY)


def test_every_integer_operator_has_an_oracle() -> None:
    missing = sorted(set(INTEGER) - set(ORACLES))
    assert missing == [], "they compute with integers: write oracles in tests/support/operators/integer_oracles"
