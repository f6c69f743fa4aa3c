"""Grouped convolutions whose weights have a zero point, on every instruction set."""

import pytest
from native_cases import make
from native_cases.comparison import difference, evaluator

from tpuconvert.runtime.native.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")


@pytest.mark.parametrize("seed", [500, 501, 502, 505])
@pytest.mark.parametrize("threads", [1, 4])
def test_groups_of_some_channels(seed: int, threads: int) -> None:
    """These cases ended the process with AMX."""
    case = make("conv_v2_grouped", seed)
    for isa in available_isas():
        results = NativePlan(case.graph, case.chip.name, isa, threads).run(case.feeds, evaluator(case.chip))
        for result, expected in zip(results, case.expected, strict=True):
            assert not difference(result, expected, exact=True), isa
