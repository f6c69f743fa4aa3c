"""Kernels for AArch64 give the bytes of the host's kernels, on processors with and without dot products and i8mm.

The engine is cross-compiled and runs under QEMU; ``python -m tools.aarch64 prepare`` installs what that needs.
Without it these tests are skipped. A failure names the case: ``native_cases.make(kind, seed)`` builds it again.
"""

import pytest

from tests.support.native_cases import KINDS, make
from tests.support.native_cases.comparison import evaluator
from tools.aarch64.environment import CPUS
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan

SAMPLE = 2
"""Cases per kind outside of the full run."""
FULL = 60
"""Cases per kind of the full run."""
NARROW = (("float_products", 103), ("float_group_products", 104), ("float_recurrent_layers", 100))
"""Products whose columns end before the last register of a panel: Neon has panels of four registers, others of two."""
ISAS = ("scalar", "neon", "dotprod", "i8mm")


def results_of_host(case):
    return NativePlan(case.graph, case.chip.name, available_isas()[-1], 1).run(case.feeds, evaluator(case.chip))


def cases_of(kind, seeds):
    cases = [make(kind, seed) for seed in seeds]
    return [(case, results_of_host(case)) for case in cases]


def check(summary, isas, least):
    """Assert that the expected instruction sets ran, and that nothing differed."""
    problems = summary["problems"]
    assert tuple(summary["isas"]) == tuple(isas)
    assert summary["count"] >= least
    assert not problems, f"{len(problems)} differences; the first ones:\n" + "\n".join(problems[:3])


@pytest.fixture(scope="module")
def sample(emulated):
    """Cases of every kind; made after the check that an emulator exists."""
    return [case for kind in KINDS for case in cases_of(kind, range(SAMPLE))]


def test_every_instruction_set_gives_the_bytes_of_the_host(emulated, sample):
    summary = emulated(CPUS["i8mm"], sample)
    check(summary, ISAS, len(sample) * len(ISAS))


def test_products_that_are_narrower_than_a_panel(emulated):
    cases = [case for kind, seed in NARROW for case in cases_of(kind, [seed])]
    check(emulated(CPUS["i8mm"], cases), ISAS, len(cases) * len(ISAS))


@pytest.mark.slow
@pytest.mark.parametrize(("best", "isas"), [("neon", ISAS[:2]), ("dotprod", ISAS[:3])])
def test_a_processor_with_fewer_instructions(emulated, sample, best, isas):
    """An instruction that the processor lacks would end the emulated process."""
    check(emulated(CPUS[best], sample), isas, len(sample) * len(isas))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all(emulated, kind):
    cases = cases_of(kind, range(100, 100 + FULL))
    check(emulated(CPUS["i8mm"], cases, (1, 2, 4)), ISAS, len(cases) * len(ISAS) * 3)
